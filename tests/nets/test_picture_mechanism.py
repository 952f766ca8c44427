"""Picture mechanisms: exact abduction, KL, sizes, parents in every layer, and a tiny fit."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from intervae.causal.gaussian import kl_diagonal, log_normal
from intervae.errors import UsageError
from intervae.nets.latent_pictures import PixelDistribution
from intervae.nets.picture_mechanism import PictureMechanism
from intervae.nets.pictures import build_picture_mechanism
from intervae.nets.stochastic_layers import ParentConv
from small_mechanisms import PARENTS, SHAPES, batch, loss_terms, make

PICTURES = ["vae", "hvae"]


# ---- abduction and prediction --------------------------------------------------------------------
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@torch.no_grad()
def test_null_intervention_with_pixel_noise_returns_the_picture(
    picture: Any, shape: tuple[int, int, int]
) -> None:
    mechanism, (images, parents) = make(picture, shape), batch(shape)
    noise = mechanism.abduct(images, parents)
    torch.testing.assert_close(
        mechanism.predict(noise, parents, pixel_temperature=1), images, rtol=0, atol=1e-5
    )
    mean, _ = mechanism.mean_scale(noise.latents, parents)
    smooth = mechanism.predict(noise, parents, pixel_temperature=0)
    torch.testing.assert_close(smooth, mean.clamp(0, 1))
    assert (smooth - images).abs().mean() > 0.05  # an untrained mean is not the picture
    assert [tuple(z.shape[1:]) for z in noise.latents] == mechanism.latent_shapes


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("family", ["logistic", "gaussian", "laplace"])
@pytest.mark.parametrize("scale", ["pixel", "channel"])
@torch.no_grad()
def test_drawn_latents_also_return_the_picture(picture: Any, family: Any, scale: Any) -> None:
    shape = (3, 12, 12)
    mechanism = make(picture, shape, pixels=PixelDistribution(family, scale, 0.05, 0.01))
    images, parents = batch(shape)
    generator = torch.Generator().manual_seed(3)
    noise = mechanism.abduct(images, parents, generator, temperature=1)
    assert not torch.equal(noise.latents[0], mechanism.abduct(images, parents).latents[0])
    torch.testing.assert_close(
        mechanism.predict(noise, parents, pixel_temperature=1), images, rtol=0, atol=1e-5
    )
    _, spread = mechanism.mean_scale(noise.latents, parents)
    assert (spread > 0.01).all()
    if scale == "channel":
        assert (spread.flatten(2).std(2) < 1e-7).all()


@pytest.mark.parametrize("picture", PICTURES)
@torch.no_grad()
def test_noise_survives_packing_into_a_matrix(picture: Any) -> None:
    shape = (1, 28, 28)
    mechanism, (images, parents) = make(picture, shape), batch(shape)
    noise = mechanism.abduct(images, parents)
    again = mechanism.unpack(mechanism.pack(noise))
    torch.testing.assert_close(again, noise, rtol=0, atol=0)


@pytest.mark.parametrize("picture", PICTURES)
@torch.no_grad()
def test_other_parents_change_the_prediction_of_the_same_noise(picture: Any) -> None:
    shape = (1, 16, 16)
    mechanism, (images, parents) = make(picture, shape), batch(shape)
    noise = mechanism.abduct(images, parents)
    before = mechanism.predict(noise, parents)
    for feature in range(PARENTS):
        other = parents.clone()
        other[0, feature] += 2
        change = (mechanism.predict(noise, other) - before).abs().amax((1, 2, 3))
        assert change[0] > 1e-3
        assert (change[1:] < 1e-5).all()  # only the picture whose parent changed


# ---- loss ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_loss_is_finite_with_gradients_for_every_weight(
    picture: Any, shape: tuple[int, int, int]
) -> None:
    mechanism, (images, parents) = make(picture, shape), batch(shape)
    loss, kl = loss_terms(mechanism, images, parents, torch.Generator().manual_seed(0))
    assert loss.shape == kl.shape == (3,)
    assert (kl > 0).all()
    (loss + kl).mean().backward()
    for name, weights in mechanism.named_parameters():
        assert weights.grad is not None, name
        assert torch.isfinite(weights.grad).all(), name
        assert weights.grad.abs().sum() > 0, name


@pytest.mark.parametrize("picture", PICTURES)
@torch.no_grad()
def test_same_generator_gives_the_same_loss_and_samples(picture: Any) -> None:
    shape = (1, 28, 28)
    mechanism, (images, parents) = make(picture, shape), batch(shape)

    def draw(seed: int) -> tuple[Tensor, ...]:
        def generator() -> torch.Generator:
            return torch.Generator().manual_seed(seed)

        loss, kl = loss_terms(mechanism, images, parents, generator())
        pictures = mechanism.sample(parents, generator(), pixel_temperature=1)
        assert pictures.shape == images.shape
        assert pictures.min() >= 0
        assert pictures.max() <= 1
        return loss, kl, pictures, *mechanism.abduct(images, parents, generator(), 1).latents

    torch.testing.assert_close(draw(0), draw(0), rtol=0, atol=0)
    assert not torch.equal(draw(0)[0], draw(1)[0])
    assert not torch.equal(draw(0)[2], draw(1)[2])
    cold = [mechanism.sample(parents, torch.Generator().manual_seed(s), 0) for s in (0, 1)]
    assert torch.equal(*cold)


@torch.no_grad()
def test_kl_of_every_layer_is_its_monte_carlo_estimate() -> None:
    """One picture many times: means over draws of log q - log p and of the closed forms agree."""
    shape, count = (1, 8, 8), 5000
    mechanism: Any = make("hvae", shape, latents=1, widths=(4,), layers=(1,)).double()
    images, parents = (tensor[:1].double() for tensor in batch(shape))
    images, parents = images.expand(count, -1, -1, -1), parents.expand(count, -1)
    generator = torch.Generator().manual_seed(0)
    activations = mechanism.activations(images)
    estimates, closed_forms = [], []

    def choose(index: int, layer: Any, maps: Tensor, prior: Any) -> Tensor:
        posterior = layer.infer_posterior(maps, activations[index], parents)
        z = posterior.draw(1.0, generator)
        log_ratio = log_normal(z, *posterior) - log_normal(z, *prior)
        estimates.append(log_ratio.flatten(1).sum(1))
        closed_forms.append(kl_diagonal(*posterior, *prior))
        return z

    mechanism.decode(parents, choose)
    result = mechanism.infer(images, parents, torch.Generator().manual_seed(0))
    torch.testing.assert_close(result.layer_kl, torch.stack(closed_forms))
    for estimate, closed_form in zip(estimates, closed_forms, strict=True):
        error = (estimate - closed_form).std().item() / math.sqrt(count)
        assert (estimate - closed_form).mean().item() == pytest.approx(0, abs=4 * error)
        assert closed_form.mean().item() > 20 * error


@torch.no_grad()
def test_prior_starts_standard_normal_and_kls_are_finite_at_64_pixels() -> None:
    torch.manual_seed(0)
    mechanism: Any = build_picture_mechanism("hvae", (3, 64, 64), PARENTS)
    images, parents = batch((3, 64, 64))
    result = mechanism.infer(images, parents, torch.Generator().manual_seed(0))
    assert result.layer_kl.shape == (24, 3)
    assert torch.isfinite(result.layer_kl).all()
    assert (result.layer_kl >= 0).all()
    units = torch.tensor([math.prod(shape) for shape in mechanism.latent_shapes])
    assert (result.layer_kl / units[:, None]).max() < 0.5  # no layer starts far from its prior
    for level in mechanism.decoder:
        for layer in level.layers:
            prior, features = layer.infer_prior(torch.randn(1, layer.prior.first.in_channels, 4, 4))
            assert not prior.mean.any()
            assert not prior.log_variance.any()
            assert not features.any()


@torch.no_grad()
def test_posterior_equal_to_the_prior_has_no_kl() -> None:
    mechanism: Any = make("hvae", (1, 8, 8))
    for level in mechanism.decoder:
        for layer in level.layers:
            for block in (layer.prior, layer.posterior):
                block.last.weight.zero_()
                block.last.bias.zero_()
    images, parents = batch((1, 8, 8))
    result = mechanism.infer(images, parents, torch.Generator().manual_seed(0))
    assert result.layer_kl.abs().max() == 0


def test_extreme_statistics_keep_loss_and_gradients_finite() -> None:
    mechanism: Any = make("hvae", (1, 8, 8))
    with torch.no_grad():
        for level in mechanism.decoder:
            for layer in level.layers:
                layer.posterior.last.bias += 1000.0
                layer.prior.last.bias[: 2 * layer.latents] -= 1000.0
    images, parents = batch((1, 8, 8))
    loss, kl = loss_terms(mechanism, images, parents)
    (loss + kl).mean().backward()
    assert torch.isfinite(loss + kl).all()
    assert all(torch.isfinite(weights.grad).all() for weights in mechanism.parameters())


def test_parent_convolution_equals_one_with_constant_maps() -> None:
    join, maps, parents = ParentConv(5, 3, 7), torch.randn(2, 5, 6, 4), torch.randn(2, 3)
    constant = parents[:, :, None, None].expand(-1, -1, 6, 4)
    expected = join.convolution(torch.cat([maps, constant], dim=1))
    torch.testing.assert_close(join(maps, parents), expected)


# ---- speed and sizes -----------------------------------------------------------------------------
@pytest.mark.parametrize("picture", PICTURES)
def test_bfloat16_computes_likelihood_and_kl_in_single_precision(picture: Any) -> None:
    shape = (1, 16, 16)
    mechanism, (images, parents) = make(picture, shape), batch(shape)
    exact = loss_terms(mechanism, images, parents, torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        terms = loss_terms(mechanism, images, parents, torch.Generator().manual_seed(0))
    sum(term.mean() for term in terms).backward()  # type: ignore[union-attr]
    for term, expected in zip(terms, exact, strict=True):
        assert term.dtype == torch.float32
        torch.testing.assert_close(term, expected, rtol=0.05, atol=0.5)


class Loss(torch.nn.Module):
    """The loss as a module, for `functional_call`."""

    def __init__(self, mechanism: PictureMechanism) -> None:
        super().__init__()
        self.mechanism = mechanism

    def forward(self, images: Tensor, parents: Tensor) -> Tensor:
        loss, kl = loss_terms(self.mechanism, images, parents)
        return (loss + kl).mean()


@pytest.mark.parametrize("picture", PICTURES)
def test_loss_and_gradients_are_vmapped_over_models(picture: Any) -> None:
    shape = (1, 9, 9)
    models: Any = [Loss(make(picture, shape)) for _ in range(2)]
    with torch.no_grad():
        for weights in models[1].parameters():
            weights *= 0.9
    stacked, _ = stack_module_state(models)

    def call(weights: dict[str, Tensor]) -> Tensor:
        return functional_call(models[0], weights, batch(shape))

    torch.manual_seed(0)
    joint = vmap(call, randomness="same")(stacked)
    joint.sum().backward()
    for index, model in enumerate(models):
        torch.manual_seed(0)
        loss = model(*batch(shape))
        loss.backward()
        torch.testing.assert_close(joint[index], loss, rtol=1e-4, atol=1e-2)
        for name, weights in model.named_parameters():
            gradient = stacked[name].grad
            assert gradient is not None
            scale = weights.grad.abs().max().item()
            torch.testing.assert_close(gradient[index], weights.grad, rtol=0, atol=1e-3 * scale)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"picture": "gan"}, "vae"),
        ({"image_shape": (1, 7, 28)}, "at least 8"),
        ({"parents": 0}, "at least one parent"),
        ({"widths": ()}, "widths"),
        ({"layers": (4, 0)}, "layers=4,0"),
        ({"latents": 0}, "latents=0"),
        ({"patch": 0}, "patch=0"),
        ({"patch": 15}, "from 1 to 14"),
        ({"pixels": PixelDistribution(smallest_scale=0)}, "smallest_scale"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, Any], message: str) -> None:
    arguments = {"picture": "hvae", "image_shape": (1, 28, 28), "parents": 2, **options}
    with pytest.raises(UsageError, match=message):
        build_picture_mechanism(**arguments)


# ---- training ------------------------------------------------------------------------------------
@pytest.mark.parametrize("picture", PICTURES)
def test_tiny_model_fits_sixteen_pictures_and_obeys_a_parent(picture: Any) -> None:
    """Squares whose brightness is the parent and whose place is not."""
    generator = torch.Generator().manual_seed(0)
    images = torch.zeros(16, 1, 8, 8)
    brightness = torch.linspace(0.3, 1, 16)[torch.randperm(16, generator=generator)]
    for i in range(16):
        row, column = 1 + i // 4, 1 + i % 4
        images[i, 0, row : row + 3, column : column + 3] = brightness[i]
    images = (images * 255).round() / 255
    parents = ((brightness - brightness.mean()) / brightness.std())[:, None]
    torch.manual_seed(0)
    mechanism = build_picture_mechanism(
        picture,
        (1, 8, 8),
        1,
        channels=(32, 32),
        hidden=64,
        widths=(16, 32, 32),
        layers=(1,),
        encoder_blocks=(1,),
        latents=8,
    )
    optimiser = torch.optim.AdamW(mechanism.parameters(), 5e-3)
    for _ in range(120):
        optimiser.zero_grad()
        loss, kl = loss_terms(mechanism, images, parents, generator)
        (loss + kl).mean().backward()
        torch.nn.utils.clip_grad_norm_(mechanism.parameters(), 200.0)
        optimiser.step()
    with torch.no_grad():
        noise = mechanism.abduct(images, parents)
        error = (mechanism.predict(noise, parents) - images).abs().mean().item()
        brighter = mechanism.predict(noise, parents + 1).mean((1, 2, 3))
        darker = mechanism.predict(noise, parents - 1).mean((1, 2, 3))
    assert error < 0.02  # a black picture has an error of 0.09
    assert (brighter > darker).all()
