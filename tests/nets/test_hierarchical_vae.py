"""The hierarchical VAE of pictures: resolutions, parents in every layer, noise of its latents."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from intervae.nets.hierarchical_vae import resolutions
from intervae.nets.pictures import build_picture_mechanism
from intervae.nets.stochastic_layers import ParentConv
from small_mechanisms import PARENTS, SHAPES, batch, loss_terms, make


def test_parents_reach_prior_posterior_and_maps_of_every_layer() -> None:
    mechanism, (images, parents) = make("hvae", (1, 16, 16)), batch((1, 16, 16))
    loss, kl = loss_terms(mechanism, images, parents, torch.Generator().manual_seed(0))
    (loss + kl).mean().backward()
    joins = [module for module in mechanism.modules() if isinstance(module, ParentConv)]
    assert len(joins) == 2 * len(mechanism.latent_shapes)
    for join in joins:
        gradient = join.convolution.weight.grad
        assert gradient is not None
        assert (gradient[:, join.inputs :].abs().sum(0) > 0).all()


def test_resolutions_end_at_one_pixel() -> None:
    assert resolutions(28, 28) == [(32, 32), (16, 16), (8, 8), (4, 4), (1, 1)]
    assert resolutions(8, 8) == [(8, 8), (4, 4), (1, 1)]
    assert resolutions(33, 33) == [(40, 40), (20, 20), (10, 10), (5, 5), (1, 1)]
    assert resolutions(64, 96)[-2:] == [(4, 6), (1, 1)]
    assert resolutions(28, 28, patch=2) == [(16, 16), (8, 8), (4, 4), (1, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("patch", [2, 3])
@torch.no_grad()
def test_patches_keep_the_place_of_every_pixel(shape: tuple[int, int, int], patch: int) -> None:
    """A null intervention is exact, and the last layer's map of a patch is that square of pixels.

    The last layer is set to copy channel k to pixel k of the square, over maps that are known.
    """
    mechanism: Any = make("hvae", shape, patch=patch)
    images, parents = batch(shape)
    noise = mechanism.abduct(images, parents)
    again = mechanism.predict(noise, parents, pixel_temperature=1)
    torch.testing.assert_close(again, images, rtol=0, atol=1e-5)
    mechanism.last.weight.zero_()
    mechanism.last.bias.copy_(torch.arange(mechanism.last.bias.numel()))
    mean, _ = mechanism.mean_scale(mechanism.abduct(images, parents).latents, parents)
    left, _, top, _ = mechanism._margins()
    colour, row, column = torch.meshgrid(*map(torch.arange, shape), indexing="ij")
    place = ((row + top) % patch) * patch + (column + left) % patch
    expected = 0.5 + 0.5 * (colour * patch**2 + place)
    torch.testing.assert_close(mean[0], expected)


@torch.no_grad()
def test_parents_scale_the_channels_of_the_finest_level() -> None:
    """With weights that double every channel at parent 1, the maps before the last layer double."""
    mechanism: Any = make("hvae", (1, 12, 12), parent_scales=True)
    level = mechanism.decoder[-1]
    level.scales.weight.zero_()
    level.scales.bias.zero_()
    level.scales.weight[:, 0] = 1
    maps = torch.randn(2, level.scales.out_features, *level.size)
    parents = torch.tensor([[0.0, 5.0, 5.0], [1.0, 5.0, 5.0]])
    torch.testing.assert_close(level.end(maps, parents), maps * (1 + parents[:, :1, None, None]))
    images, parents = batch((1, 12, 12))
    noise = mechanism.abduct(images, parents)
    again = mechanism.predict(noise, parents, pixel_temperature=1)
    torch.testing.assert_close(again, images, rtol=0, atol=1e-5)


def test_default_hierarchy_has_20_layers_and_2_million_weights() -> None:
    mechanism = build_picture_mechanism("hvae", (1, 28, 28), PARENTS)
    sides = [shape[-1] for shape in mechanism.latent_shapes]
    assert sides == [side for side in (1, 4, 8, 16, 32) for _ in range(4)]
    assert all(shape[0] == 16 for shape in mechanism.latent_shapes)
    assert sum(w.numel() for w in mechanism.parameters()) == pytest.approx(2e6, rel=0.05)


@torch.no_grad()
def test_noise_of_a_sample_gives_the_sample_of_other_parents() -> None:
    """x(parents, e) is one function: the noise of a sample predicts what it would have been."""
    (_, parents), others = batch((1, 28, 28)), torch.zeros(3, PARENTS)
    for latent_noise, consistent in (("standardised", True), ("values", False)):
        mechanism = make("hvae", (1, 28, 28), latent_noise=latent_noise)
        noise, mean, _ = mechanism.generate(parents, torch.Generator().manual_seed(0))
        _, expected, _ = mechanism.generate(others, torch.Generator().manual_seed(0))
        torch.testing.assert_close(mechanism.mean_scale(noise, parents)[0], mean)
        predicted, _ = mechanism.mean_scale(noise, others)
        difference = float((predicted - expected).abs().max())
        assert (difference < 1e-4) == consistent


@torch.no_grad()
def test_noise_of_samples_is_standard_normal() -> None:
    mechanism = make("hvae", (1, 8, 8))
    noise, _, _ = mechanism.generate(torch.ones(400, PARENTS), torch.Generator().manual_seed(0))
    for layer in noise:
        assert float(layer.mean()) == pytest.approx(0, abs=0.1)
        assert float(layer.std()) == pytest.approx(1, abs=0.1)
