"""Batch normalisation whose forward pass changes nothing: a loss stays a pure function, and a step can be captured or vmapped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

EPSILON = 1e-5  # added to variances
MOMENTUM = 0.1  # how far the kept statistics move towards the last batch's


class BatchNorm(nn.Module):
    """(B, features, ...) normalised over all axes but axis 1: by the batch's statistics in training, by the kept ones in eval mode.

    Unlike torch's own layer it never writes to its buffers in `forward`; `update_statistics` does, after a step, from what the last
    batch had, and `measure_statistics` replaces them by those of whole data.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("variance", torch.ones(features))
        self.seen: tuple[Tensor, Tensor] | None = None  # mean and 1 / standard deviation of the last batch in training; not saved

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return functional.batch_norm(inputs, self.mean, self.variance, self.gain, self.shift, False, 0.0, EPSILON)
        # without running statistics nothing is written, and the batch's own come back beside the result
        output, mean, inverse_std = torch.native_batch_norm(inputs, self.gain, self.shift, None, None, True, 0.0, EPSILON)
        self.seen = mean.detach(), inverse_std.detach()
        return output


def normalisers(module: nn.Module) -> list[BatchNorm]:
    return [part for part in module.modules() if isinstance(part, BatchNorm)]


@torch.no_grad()
def update_statistics(module: nn.Module) -> None:
    """Move every layer's kept statistics towards those of its last batch; belongs into `Phase.after_step`."""
    layers = [layer for layer in normalisers(module) if layer.seen is not None]
    if layers:
        means, variances = _seen(layers)
        # one kernel for all layers, not one each
        torch._foreach_lerp_([layer.mean for layer in layers], means, MOMENTUM)
        torch._foreach_lerp_([layer.variance for layer in layers], variances, MOMENTUM)


def _seen(layers: list[BatchNorm]) -> tuple[list[Tensor], list[Tensor]]:
    """Means and variances of the last batch."""
    means = [layer.seen[0].to(layer.mean.dtype) for layer in layers if layer.seen is not None]
    inverse_stds = [layer.seen[1].to(layer.mean.dtype) for layer in layers if layer.seen is not None]
    variances = torch._foreach_pow(inverse_stds, -2)
    torch._foreach_sub_(variances, EPSILON)
    return means, list(variances)


@torch.no_grad()
def measure_statistics(module: nn.Module, run: Callable[[Any], Any], batches: Iterable[Any]) -> None:
    """Replace every layer's kept statistics by those over `batches` of equal size, each passed to `run` with the layers in training mode.

    The variance of everything is the mean of the batches' variances and the variance of their means.
    """
    layers = normalisers(module)
    sums = [torch.zeros(3, *layer.mean.shape, dtype=torch.float64, device=layer.mean.device) for layer in layers]
    was_training = module.training
    module.train()
    count = 0
    for batch in batches:
        run(batch)
        count += 1
        for total, mean, variance in zip(sums, *_seen(layers), strict=True):
            total += torch.stack([mean.double(), mean.double().square(), variance.double()])
    module.train(was_training)
    for total, layer in zip(sums, layers, strict=True) if count else ():
        mean, square, variance = total / count
        layer.mean.copy_(mean)
        layer.variance.copy_(variance + square - mean.square())
