"""Inference of the Ladder VAE: top-down with evidence from below (Eq. 19 to 25), or bottom-up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from intervae.models.ladder_vae.networks import LadderLayer, merge_gaussians

Noise = Sequence[Tensor] | None  # (S B, d_i) for each layer; None for the posterior means
Gaussian = tuple[Tensor, Tensor]  # mean and variance


def bottom_up_evidence(
    up: Iterable[nn.Module], images: Tensor, noise: Noise, upward_input: str
) -> list[Gaussian]:
    """Return mu^_i and s2^_i of every layer given images (B, C, H, W), repeated for the samples.

    Arguments:
        upward_input: what the next layer receives, "hidden" or "mean".
    """
    inputs, evidence = images, []
    for network in up:
        hidden, mean, variance = network(inputs)
        inputs = hidden if upward_input == "hidden" else mean
        evidence.append((_repeat(mean, noise), _repeat(variance, noise)))
    return evidence


def infer_top_down(
    evidence: Sequence[Gaussian],
    down: nn.ModuleList,
    down_inference: nn.ModuleList | None,
    noise: Noise,
) -> list[LadderLayer]:
    """Merge the evidence with p(z_i | z_{i+1}), from the top to z_1.

    Arguments:
        down_inference: networks whose output is merged instead of that of the generative `down`.
    """
    layers: list[LadderLayer] = []
    for i in reversed(range(len(evidence))):
        mean, variance = evidence[i]
        if not layers:
            prior = torch.zeros_like(mean), torch.ones_like(variance)
        else:
            prior = down[i](layers[0].z)[1:]
            top_down = prior
            if down_inference is not None:
                top_down = down_inference[i](layers[0].z)[1:]
            mean, variance = merge_gaussians(mean, variance, *top_down)
        z = draw_layer(mean, variance, noise, i)
        layers.insert(0, LadderLayer(z, mean, variance, *prior))
    return layers


def infer_bottom_up(
    up: Iterable[nn.Module], down: nn.ModuleList, images: Tensor, noise: Noise
) -> list[LadderLayer]:
    """q(z_1 | x), q(z_2 | z_1), ...; the prior of a layer is conditioned on the one above."""
    inputs, posteriors = images, []
    for i, network in enumerate(up):
        _, mean, variance = network(inputs)
        if i == 0:
            mean, variance = _repeat(mean, noise), _repeat(variance, noise)
        inputs = draw_layer(mean, variance, noise, i)
        posteriors.append((inputs, mean, variance))
    top = posteriors[-1][0]
    priors = [network(above[0])[1:] for network, above in zip(down, posteriors[1:], strict=True)]
    priors.append((torch.zeros_like(top), torch.ones_like(top)))
    return [LadderLayer(*q, *p) for q, p in zip(posteriors, priors, strict=True)]


def draw_layer(mean: Tensor, variance: Tensor, noise: Noise, index: int) -> Tensor:
    """Return the sample of a layer with its noise, or the mean without noise."""
    return mean if noise is None else mean + variance.sqrt() * noise[index]


def _repeat(evidence: Tensor, noise: Noise) -> Tensor:
    """Repeat (B, d) for the S samples of the noise: (S B, d)."""
    if noise is None or len(noise[0]) == len(evidence):
        return evidence
    return evidence.repeat(len(noise[0]) // len(evidence), 1)
