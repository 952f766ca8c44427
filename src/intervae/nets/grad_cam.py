"""Grad-CAM++ (Chattopadhay et al. 2018): heat maps of the image regions that raise an output.

CMCL draws them for its latents (sec. 4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def grad_cam(maps: Tensor, gradient: Tensor) -> Tensor:
    """Return the unscaled heat map of Grad-CAM++, (B, h, w), 0 or more.

    With g = dY / dA and an exponential of Y, whose higher derivatives are powers of g where Y is
    linear in A: alpha_ij^k = g^2 / (2 g^2 + sum_ab A_ab^k g^3), w_k = sum_ij alpha_ij^k
    relu(g_ij^k), map = relu(sum_k w_k A^k). The factor exp(Y) cancels when the map is scaled.
    alpha is 0 where its denominator is not positive.

    Arguments:
        maps: feature maps A (B, K, h, w).
        gradient: g (B, K, h, w).
    """
    square = gradient.square()
    denominator = 2 * square + maps.sum((2, 3), keepdim=True) * square * gradient
    alpha = torch.where(
        denominator > 0, square / torch.where(denominator > 0, denominator, 1.0), 0.0
    )
    weights = (alpha * gradient.relu()).sum((2, 3), keepdim=True)  # (B, K, 1, 1)
    return (weights * maps).sum(1).relu()


def difference_map(maps: Tensor, gradient: Tensor, reference: Tensor) -> Tensor:
    """Return relu(sum_k g^k (A^k - R^k)), (B, h, w).

    This is the first-order effect on Y of the features at each place, relative to a reference.
    Grad-CAM++ has one weight per feature map, so before a dense layer it shows where features are
    active rather than where they matter. Here every place has its own gradient, and features that
    all images share cancel.

    Arguments:
        maps, gradient: A and g (B, K, h, w).
        reference: R (K, h, w), mean maps of other images.
    """
    return (gradient * (maps - reference)).sum(1).relu()


def enlarge(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize maps (B, h, w) to (B, H, W) bilinearly and scale each to [0, 1].

    A constant map becomes 0.
    """
    large = functional.interpolate(maps[:, None], size=size, mode="bilinear", align_corners=False)
    large = large[:, 0]
    low, high = large.amin((1, 2), keepdim=True), large.amax((1, 2), keepdim=True)
    return torch.where(high > low, (large - low) / torch.where(high > low, high - low, 1.0), 0.0)


def feature_blocks(network: nn.Module, run: Callable[[], Any]) -> list[nn.Module]:
    """Return the last layer of each convolutional block that `run` passes, in order.

    A block ends where the size of the feature maps changes.
    """
    outputs: list[tuple[nn.Module, tuple[int, ...]]] = []  # (layer, size of its maps)

    def record(layer: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            outputs.append((layer, tuple(output.shape[2:]) if output.ndim == 4 else ()))

    hooks = [
        layer.register_forward_hook(record)
        for layer in network.modules()
        if not list(layer.children())
    ]
    try:
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()
    blocks: list[nn.Module] = []
    convolved = False  # whether a convolution occurred since the size last changed
    for k, (layer, size) in enumerate(outputs):
        same_size = k > 0 and outputs[k - 1][1] == size
        convolved = (convolved and same_size) or isinstance(layer, nn.Conv2d)
        if convolved and size and (k + 1 == len(outputs) or outputs[k + 1][1] != size):
            blocks.append(layer)
    return blocks


def maps_and_gradient(layer: nn.Module, run: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """Return the output of `layer` and the gradient of the targets of `run`, each (B, K, h, w).

    `run` returns targets (B,). It may be a query under no_grad: gradients are enabled from this
    layer on.
    """
    outputs: list[Tensor] = []

    def detach(_: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        torch.set_grad_enabled(True)
        outputs.append(output.detach().requires_grad_())
        return outputs[-1]

    hook = layer.register_forward_hook(detach)
    try:
        with torch.enable_grad():
            gradient = torch.autograd.grad(run().sum(), outputs[-1])[0]
    finally:
        hook.remove()
    return outputs[-1].detach(), gradient
