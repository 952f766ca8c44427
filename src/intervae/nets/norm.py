"""Batch normalisation without side effects in the forward pass.

A loss that uses it stays a pure function, so a step can be captured as a CUDA graph or vmapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

EPSILON = 1e-5  # added to variances
MOMENTUM = 0.1  # of the running statistics


class BatchNorm(nn.Module):
    """Normalise (B, features, ...) over all axes but axis 1.

    Training uses the statistics of the batch, evaluation the running statistics. Unlike torch's
    layer, `forward` does not update the running statistics: `update_statistics` does after a step,
    and `measure_statistics` replaces them by those of a whole data set.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("variance", torch.ones(features))
        # (mean, 1 / standard deviation) of the last training batch; not saved
        self.batch_statistics: tuple[Tensor, Tensor] | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return functional.batch_norm(
                inputs, self.mean, self.variance, self.gain, self.shift, False, 0.0, EPSILON
            )
        # without running statistics nothing is written, and those of the batch are returned
        output, mean, inverse_std = torch.native_batch_norm(
            inputs, self.gain, self.shift, None, None, True, 0.0, EPSILON
        )
        self.batch_statistics = mean.detach(), inverse_std.detach()
        return output


def batch_norm_layers(module: nn.Module) -> list[BatchNorm]:
    """Return the BatchNorm layers of a module, in order."""
    return [layer for layer in module.modules() if isinstance(layer, BatchNorm)]


@torch.no_grad()
def update_statistics(module: nn.Module) -> None:
    """Move the running statistics towards those of the last batch; for `Phase.after_step`."""
    layers = [layer for layer in batch_norm_layers(module) if layer.batch_statistics is not None]
    if layers:
        means, variances = _last_batch(layers)
        # one kernel for all layers
        torch._foreach_lerp_([layer.mean for layer in layers], means, MOMENTUM)
        torch._foreach_lerp_([layer.variance for layer in layers], variances, MOMENTUM)


def _last_batch(layers: list[BatchNorm]) -> tuple[list[Tensor], list[Tensor]]:
    """Return means and variances of the last batch, one tensor per layer that has them."""
    pairs = [
        (layer.batch_statistics, layer.mean.dtype)
        for layer in layers
        if layer.batch_statistics is not None
    ]
    means = [statistics[0].to(dtype) for statistics, dtype in pairs]
    inverse_stds = [statistics[1].to(dtype) for statistics, dtype in pairs]
    variances = torch._foreach_pow(inverse_stds, -2)
    torch._foreach_sub_(variances, EPSILON)
    return means, list(variances)


@torch.no_grad()
def measure_statistics(
    module: nn.Module, run: Callable[[Any], Any], batches: Iterable[Any]
) -> None:
    """Replace the running statistics of every layer by those over all batches.

    The total variance is the mean of the batches' variances plus the variance of their means.

    Arguments:
        run: called with each batch while the layers are in training mode.
        batches: of equal size.
    """
    layers = batch_norm_layers(module)
    sums = [
        torch.zeros(3, *layer.mean.shape, dtype=torch.float64, device=layer.mean.device)
        for layer in layers
    ]
    was_training = module.training
    module.train()
    count = 0
    for batch in batches:
        run(batch)
        count += 1
        for total, mean, variance in zip(sums, *_last_batch(layers), strict=True):
            total += torch.stack([mean.double(), mean.double().square(), variance.double()])
    module.train(was_training)
    for total, layer in zip(sums, layers, strict=True) if count else ():
        mean, square, variance = total / count
        layer.mean.copy_(mean)
        layer.variance.copy_(variance + square - mean.square())
