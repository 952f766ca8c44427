"""Network of a velocity field v(x, t, parents) over pictures, for flow matching.

A U-Net: residual blocks at every resolution, self-attention at the coarsest. Time and parents scale
and shift the channels of every block. Maps are (B, width, rows, columns).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.errors import UsageError

COARSEST_SIDE = 8  # the maps are halved until their shorter side is at most this
GROUPS = 8
HEADS = 4
FREQUENCIES = 16
SLOWEST, FASTEST = 0.25, 20.0  # turns per unit of time


class GroupNorm(nn.GroupNorm):
    """Group normalisation in the precision of its input.

    Autocast would return single precision, which the next convolution rounds again: most of the
    memory traffic of a step.
    """

    def forward(self, maps: Tensor) -> Tensor:
        if maps.dtype != torch.bfloat16:
            return super().forward(maps)
        weight = None if self.weight is None else self.weight.to(maps.dtype)
        bias = None if self.bias is None else self.bias.to(maps.dtype)
        with torch.autocast(maps.device.type, enabled=False):
            return functional.group_norm(maps, self.num_groups, weight, bias, self.eps)


class ModulatedBlock(nn.Module):
    """x + conv(silu((1 + scale) norm(conv(silu(norm(x)))) + shift)); adds nothing at first.

    Arguments:
        inputs, outputs: channels.
        condition: features (B, condition) that give scale and shift of each channel.
    """

    def __init__(self, inputs: int, outputs: int, condition: int) -> None:
        super().__init__()
        self.first_norm = GroupNorm(math.gcd(GROUPS, inputs), inputs)
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second_norm = GroupNorm(math.gcd(GROUPS, outputs), outputs, affine=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.modulation = nn.Linear(condition, 2 * outputs)
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)
        nn.init.zeros_(self.second.weight)
        nn.init.zeros_(self.second.bias)  # type: ignore[arg-type]

    def forward(self, maps: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.modulation(condition)[..., None, None].chunk(2, dim=1)
        inner = self.first(functional.silu(self.first_norm(maps)))
        inner = functional.silu(self.second_norm(inner) * (1 + scale) + shift)
        return self.skip(maps) + self.second(inner)


class SelfAttention(nn.Module):
    """Attention of every place to every other, with learned positions; adds nothing at first."""

    def __init__(self, width: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.heads = math.gcd(HEADS, width)
        self.norm = GroupNorm(math.gcd(GROUPS, width), width)
        self.positions = nn.Parameter(0.02 * torch.randn(size[0] * size[1], width))
        self.project = nn.Linear(width, 3 * width)
        self.last = nn.Linear(width, width)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, maps: Tensor) -> Tensor:
        tokens = self.norm(maps).flatten(2).transpose(1, 2) + self.positions  # (B, places, width)
        queries, keys, values = (
            each.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for each in self.project(tokens).chunk(3, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(queries, keys, values)
        mixed = self.last(mixed.transpose(1, 2).flatten(2))
        return maps + mixed.transpose(1, 2).unflatten(2, maps.shape[2:])


class VelocityNetwork(nn.Module):
    """v(x, t, parents) of pictures of any size.

    Arguments:
        image_shape: (C, H, W).
        parents: f, features of the parents.
        widths: channels per resolution, from the finest; the last one repeats, surplus ones are
            not used.
        patch: side of the squares of pixels that the finest maps have as channels.
        hidden: features of time and parents.
    """

    frequencies: Tensor

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        parents: int,
        widths: Sequence[int] = (32, 64, 128),
        patch: int = 2,
        hidden: int = 128,
    ) -> None:
        super().__init__()
        colours, height, width = image_shape
        if not widths or min(widths) < 1:
            raise UsageError(f"flow_widths={tuple(widths)} must be one or more numbers above 0.")
        if not 1 <= patch <= min(height, width) // 2:
            raise UsageError(
                f"patch={patch} must be from 1 to {min(height, width) // 2}, half of the "
                "picture's shorter side."
            )
        self.patch, self.image_shape = patch, image_shape
        sizes = [(-(-height // patch), -(-width // patch))]
        while min(sizes[-1]) > COARSEST_SIDE:
            sizes.append((-(-sizes[-1][0] // 2), -(-sizes[-1][1] // 2)))
        channels = [widths[min(i, len(widths) - 1)] for i in range(len(sizes))]
        steps = list(itertools.pairwise(channels))  # (finer, coarser)
        turns = torch.exp(torch.linspace(math.log(SLOWEST), math.log(FASTEST), FREQUENCIES))
        self.register_buffer("frequencies", 2 * math.pi * turns, persistent=False)
        self.condition = nn.Sequential(
            nn.Linear(2 * FREQUENCIES + parents, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
        )
        self.first = nn.Conv2d(colours * patch**2, channels[0], 3, padding=1)
        self.down = nn.ModuleList(ModulatedBlock(fine, fine, hidden) for fine, _ in steps)
        self.halve = nn.ModuleList(
            nn.Conv2d(fine, coarse, 3, stride=2, padding=1) for fine, coarse in steps
        )
        self.middle = nn.ModuleList(
            ModulatedBlock(channels[-1], channels[-1], hidden) for _ in range(2)
        )
        self.attention = SelfAttention(channels[-1], sizes[-1])
        self.widen = nn.ModuleList(nn.Conv2d(coarse, fine, 1) for fine, coarse in reversed(steps))
        self.up = nn.ModuleList(
            ModulatedBlock(2 * fine, fine, hidden) for fine, _ in reversed(steps)
        )
        self.last_norm = GroupNorm(math.gcd(GROUPS, channels[0]), channels[0])
        self.last = nn.Conv2d(channels[0], colours * patch**2, 3, padding=1)

    def forward(self, states: Tensor, times: Tensor, parents: Tensor) -> Tensor:
        """Return velocities (B, C, H, W) of states (B, C, H, W) at times (B,)."""
        angles = times[:, None] * self.frequencies
        condition = self.condition(torch.cat([angles.sin(), angles.cos(), parents], dim=1))
        _, height, width = self.image_shape
        below, right = -height % self.patch, -width % self.patch
        maps = functional.pad(states, (0, right, 0, below)) if below or right else states
        maps = self.first(functional.pixel_unshuffle(maps, self.patch))
        finer = []
        for block, halve in zip(self.down, self.halve, strict=True):
            maps = block(maps, condition)
            finer.append(maps)
            maps = halve(maps)
        maps = self.middle[1](self.attention(self.middle[0](maps, condition)), condition)
        for block, widen in zip(self.up, self.widen, strict=True):
            skipped = finer.pop()
            maps = functional.interpolate(widen(maps), size=skipped.shape[2:], mode="nearest")
            maps = block(torch.cat([maps, skipped], dim=1), condition)
        maps = self.last(functional.silu(self.last_norm(maps)))
        return functional.pixel_shuffle(maps, self.patch)[..., :height, :width]
