"""Encoders and decoders for any image, and pixel likelihoods against torch.distributions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.distributions import Bernoulli, Laplace, Normal

from intervae.errors import UsageError
from intervae.nets.images import (
    ConvDecoder,
    ConvEncoder,
    MLPDecoder,
    MLPEncoder,
    PadToEven,
    PerConceptDecoder,
    base_size,
    build_decoder,
    build_encoder,
    halvings,
)
from intervae.nets.likelihood import negative_log_likelihood

SHAPES = [
    (1, 1, 1),
    (1, 2, 3),
    (1, 5, 7),
    (2, 8, 8),
    (3, 9, 31),
    (1, 28, 28),
    (3, 33, 47),
    (4, 16, 100),
    (3, 64, 64),
    (1, 129, 127),
]


@pytest.mark.parametrize("network", ["conv", "mlp"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_image_size_is_encoded_and_decoded(shape: tuple[int, int, int], network: Any) -> None:
    encoder, decoder = (
        build_encoder(network, shape, 5, (8, 16, 8, 8), 24),
        build_decoder(network, 6, shape, (8, 16, 8, 8), 24),
    )
    assert encoder(torch.rand(2, *shape)).shape == (2, 5)
    images = decoder(torch.randn(2, 6))
    assert images.shape == (2, *shape)
    assert torch.isfinite(images).all()


@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 33, 47), (1, 28, 28), (2, 8, 8)], ids=str)
def test_every_pixel_is_encoded_and_decoded(shape: tuple[int, int, int]) -> None:
    images = torch.rand(1, *shape, requires_grad=True)
    ConvEncoder(shape, 5, (4, 4, 4, 4), 16)(images).square().sum().backward()
    assert images.grad is not None
    assert (images.grad != 0).all()
    decoder = ConvDecoder(6, shape, (4, 4, 4, 4), 16)
    change = decoder(torch.randn(1, 6)) - decoder(torch.randn(1, 6))
    assert (change != 0).all()


def test_images_are_halved_until_they_are_small() -> None:
    assert [halvings(size, size, 4) for size in (1, 4, 8, 15, 16, 31, 32, 63, 64, 1024)] == [
        1,
        1,
        1,
        1,
        2,
        2,
        3,
        3,
        4,
        4,
    ]
    assert halvings(1000, 9, 4) == 1
    assert halvings(64, 64, 2) == 2
    assert base_size(33, 47, 3) == (5, 6)
    assert base_size(28, 28, 2) == (7, 7)
    assert base_size(1, 1, 1) == (1, 1)


def test_the_decoder_mirrors_the_encoder() -> None:
    encoder, decoder = (
        build_encoder("conv", (3, 33, 47), 5, (4, 8, 16, 32), 24),
        build_decoder("conv", 5, (3, 33, 47), (4, 8, 16, 32), 24),
    )
    down = [
        (m.in_channels, m.out_channels) for m in encoder.modules() if isinstance(m, torch.nn.Conv2d)
    ]
    up = [
        (m.in_channels, m.out_channels)
        for m in decoder.modules()
        if isinstance(m, torch.nn.ConvTranspose2d)
    ]
    assert down == [(3, 4), (4, 8), (8, 16)]
    assert up == [(16, 8), (8, 4), (4, 3)]


def test_padding_repeats_the_last_row_and_column_of_odd_maps() -> None:
    maps = torch.arange(6.0).reshape(1, 1, 2, 3)
    assert PadToEven()(maps).tolist() == [[[[0, 1, 2, 2], [3, 4, 5, 5]]]]
    even = torch.rand(1, 1, 4, 6)
    assert PadToEven()(even) is even


def test_the_encoder_centres_images() -> None:
    encoder = ConvEncoder((1, 8, 8), 3, (4,), 8)
    with torch.no_grad():
        for parameter in encoder.convolutions.parameters():
            parameter.zero_()
        encoder.convolutions[1].weight[0, 0, 1, 1] = 1.0
    outputs: list[torch.Tensor] = []
    encoder.convolutions[1].register_forward_hook(lambda _, __, output: outputs.append(output))
    images = torch.rand(2, 1, 8, 8)
    encoder(images)
    assert torch.allclose(outputs[0][:, 0], (2 * images - 1)[:, 0, ::2, ::2])


def test_the_default_mlp_has_the_sizes_of_causal_vae() -> None:
    encoder, decoder = MLPEncoder((4, 96, 96), 32), MLPDecoder(16, (4, 96, 96))
    assert [m.out_features for m in encoder.modules() if isinstance(m, torch.nn.Linear)] == [
        900,
        300,
        32,
    ]
    assert [m.out_features for m in decoder.modules() if isinstance(m, torch.nn.Linear)] == [
        300,
        300,
        1024,
        4 * 96 * 96,
    ]


def test_per_concept_decoders_are_averaged() -> None:
    decoders = [torch.nn.Linear(2, 3) for _ in range(4)]
    latents = torch.randn(5, 8)
    expected = sum(d(latents[:, 2 * i : 2 * i + 2]) for i, d in enumerate(decoders)) / 4
    assert torch.allclose(PerConceptDecoder(decoders)(latents), expected, atol=1e-6)


@pytest.mark.parametrize(
    "sizes", [(0, (8,), 4), (3, (), 4), (3, (8, 0), 4), (3, (8,), 0), (-2, (8,), 4)]
)
def test_networks_without_units_are_refused(sizes: tuple[int, tuple[int, ...], int]) -> None:
    latents, channels, hidden = sizes
    for network in ("conv", "mlp"):
        with pytest.raises(UsageError, match="without units"):
            build_encoder(network, (1, 16, 16), latents, channels, hidden)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="without units"):
            build_decoder(network, latents, (1, 16, 16), channels, hidden)  # type: ignore[arg-type]


# ---- likelihoods ---------------------------------------------------------------------------
@pytest.mark.parametrize("scale", [0.05, 1.0, 3.0])
def test_likelihoods_match_torch_distributions(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    output, grey = (
        torch.randn((4, 3, 5, 6), generator=generator),
        torch.rand((4, 3, 5, 6), generator=generator),
    )
    mean = torch.sigmoid(output)
    black_and_white = (grey > 0.5).float()
    for result, expected in (
        (
            negative_log_likelihood(output, black_and_white, "bernoulli", scale),
            Bernoulli(logits=output).log_prob(black_and_white),
        ),
        (
            negative_log_likelihood(output, grey, "bernoulli", scale),
            grey * torch.log(mean) + (1 - grey) * torch.log(1 - mean),
        ),
        (
            negative_log_likelihood(output, grey, "gaussian", scale),
            Normal(mean, scale).log_prob(grey),
        ),
        (
            negative_log_likelihood(output, grey, "laplace", scale),
            Laplace(mean, scale).log_prob(grey),
        ),
    ):
        assert result.shape == (4,)
        assert torch.allclose(result, -expected.sum((1, 2, 3)), rtol=1e-5, atol=1e-4)


def test_likelihoods_stay_finite_at_extreme_outputs() -> None:
    output = torch.tensor([[-200.0, 200.0, 0.0]])
    images = torch.tensor([[1.0, 0.0, 0.5]])
    for likelihood in ("bernoulli", "gaussian", "laplace"):
        nll = negative_log_likelihood(output, images, likelihood, 0.1)  # type: ignore[arg-type]
        assert torch.isfinite(nll).all()
    assert negative_log_likelihood(output, images, "bernoulli", 0.1).item() == pytest.approx(
        400 + math.log(2)
    )
