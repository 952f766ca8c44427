"""Grad-CAM++ (Chattopadhay et al. 2018): where in a picture the feature maps are that raise one number, which CMCL draws for a latent (sec. 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


def grad_cam(maps: Tensor, gradient: Tensor) -> Tensor:
    """The weighted sum of feature maps, before it is scaled.

    With g = dY / dA and Y taken through exp, whose second and third derivatives are then powers of the first wherever Y is straight in A:
    alpha_ij^k = g^2 / (2 g^2 + sum_ab A_ab^k g^3), w_k = sum_ij alpha_ij^k relu(g_ij^k), map = relu(sum_k w_k A^k).
    exp(Y) itself is one factor for a whole picture and falls out when the map is scaled. Where the fraction is 0 / 0, or its denominator is
    negative (maps that are negative in sum), alpha is 0.

    Arguments:
        maps: A (B, K, h, w).
        gradient: g (B, K, h, w).

    Returns:
        (B, h, w), 0 or more.
    """
    square = gradient.square()
    denominator = 2 * square + maps.sum((2, 3), keepdim=True) * square * gradient
    alpha = torch.where(denominator > 0, square / torch.where(denominator > 0, denominator, 1.0), 0.0)
    weights = (alpha * gradient.relu()).sum((2, 3), keepdim=True)  # (B, K, 1, 1)
    return (weights * maps).sum(1).relu()


def difference_map(maps: Tensor, gradient: Tensor, reference: Tensor) -> Tensor:
    """What the features at each place add to Y beyond those of a reference, to first order: relu(sum_k g^k (A^k - R^k)).

    Grad-CAM++ has one weight for a whole feature map, so behind a dense layer, which weighs every place differently, it shows where features are
    rather than where they count. Here each place has its own gradient, and what every picture has alike falls out.

    Arguments:
        maps, gradient: A and g (B, K, h, w).
        reference: R (K, h, w), mean maps of other pictures.

    Returns:
        (B, h, w), 0 or more.
    """
    return (gradient * (maps - reference)).sum(1).relu()


def enlarge(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """(B, h, w) to (B, H, W) by bilinear interpolation, each scaled to reach from 0 to 1; a map that is the same everywhere becomes 0."""
    large = functional.interpolate(maps[:, None], size=size, mode="bilinear", align_corners=False)[:, 0]
    low, high = large.amin((1, 2), keepdim=True), large.amax((1, 2), keepdim=True)
    return torch.where(high > low, (large - low) / torch.where(high > low, high - low, 1.0), 0.0)


def feature_blocks(network: nn.Module, run: Callable[[], Any]) -> list[nn.Module]:
    """The last layer of each block of convolutions that `run` goes through, in order: a block ends where the size of the maps changes."""
    seen: list[tuple[nn.Module, tuple[int, ...]]] = []

    def note(layer: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            seen.append((layer, tuple(output.shape[2:]) if output.ndim == 4 else ()))

    hooks = [layer.register_forward_hook(note) for layer in network.modules() if not list(layer.children())]
    try:
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()
    blocks: list[nn.Module] = []
    convolved = False  # whether there was a convolution since the size last changed
    for k, (layer, size) in enumerate(seen):
        convolved = (convolved and k > 0 and seen[k - 1][1] == size) or isinstance(layer, nn.Conv2d)
        if convolved and size and (k + 1 == len(seen) or seen[k + 1][1] != size):
            blocks.append(layer)
    return blocks


def maps_and_gradient(layer: nn.Module, run: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """What `layer` gives while `run` computes targets (B,), and their gradient with respect to it, (B, K, h, w) each.

    `run` may be a query that switches gradients off: they are switched on again from this layer on.
    """
    found: list[Tensor] = []

    def cut(_: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        torch.set_grad_enabled(True)
        found.append(output.detach().requires_grad_())
        return found[-1]

    hook = layer.register_forward_hook(cut)
    try:
        with torch.enable_grad():
            gradient = torch.autograd.grad(run().sum(), found[-1])[0]
    finally:
        hook.remove()
    return found[-1].detach(), gradient
