"""A decoder that paints a picture in layers, each from its own few variables.

A layer of one variable is a convolutional decoder. A layer of several is a network of the pixel's
coordinates, so that it extrapolates to combinations of variables that training never showed.
Every layer gives a colour and an opacity logit per pixel. A softmax of the logits over the layers
and the background (logit 0) composes them; the layer with the larger logit is in front.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from intervae.nets.images import ConvDecoder
from intervae.nets.layer_opacity import limit_opacity, split_opacity

COMBINATIONS = 8  # of coordinates and variables, in a coordinate layer
OCTAVES = 3  # frequencies of each combination
MOST_POINTS = 2**18  # pixels times images that a coordinate layer handles at once in queries
CLOSED = -30.0  # opacity logit outside the region of a layer
LARGEST_OPACITY = 12.0  # absolute opacity logit inside it
DARKEST = 1e-6  # pixels are kept this far from 0 and 1, so that their logits are finite


class Composition(NamedTuple):
    """A picture put together from layers, at all or some pixels."""

    pixels: Tensor  # (B, C, P) in [0, 1]
    weights: Tensor  # (B, L, P) share of each layer; the background has the rest


class CoordinateLayer(nn.Module):
    """Variables (B, n) and pixel coordinates (P, 2) to colour and opacity logits (B, C + 1, P).

    The input is octaves of learned linear combinations of coordinates and variables. A translation
    by a variable is the simplest such function, and it holds outside the training data.
    """

    def __init__(self, variables: int, channels: int, hidden: int = 64) -> None:
        super().__init__()
        self.of_coordinates = nn.Linear(2, COMBINATIONS, bias=False)
        self.of_variables = nn.Linear(variables, COMBINATIONS)
        features = COMBINATIONS * (1 + 2 * OCTAVES)
        self.hidden = nn.Sequential(
            nn.Linear(features, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        self.output = nn.Linear(hidden, channels + 1)
        with torch.no_grad():
            self.of_coordinates.weight.normal_(0, 0.7)
            self.of_coordinates.weight[:2] = torch.eye(2)
            self.of_variables.weight.normal_(0, 0.2)  # variables move the pattern slowly at first
            self.of_variables.bias.zero_()
            for layer in self.hidden:
                if isinstance(layer, nn.Linear):
                    nn.init.kaiming_normal_(layer.weight)
            self.output.weight.mul_(0.3)

    def forward(self, variables: Tensor, coordinates: Tensor) -> Tensor:
        mixed = self.of_coordinates(coordinates)[None] + self.of_variables(variables)[:, None]
        return self.output(self.hidden(octaves(mixed))).transpose(1, 2)


def octaves(values: Tensor) -> Tensor:
    """Values (..., m) with their sines and cosines at OCTAVES frequencies, (..., m (1 + 2 O))."""
    angles = [math.pi / 2 * 2**octave * values for octave in range(OCTAVES)]
    waves = [wave for angle in angles for wave in (torch.sin(angle), torch.cos(angle))]
    return torch.cat([values, *waves], dim=-1)


class LayeredDecoder(nn.Module):
    """Variables (B, n) to images (B, C, H, W): one layer per variable, and some per group.

    Arguments:
        variables: n.
        groups: number of layers of several variables; `set_layers` says which.
        channels, hidden: of the convolutional layers of single variables.
        group_hidden: width of the coordinate layers.

    `members` (n + groups, n) holds the variables of each layer; a layer without any is not used.
    """

    background: Tensor
    members: Tensor
    explained: Tensor
    regions: Tensor
    coordinates: Tensor

    def __init__(
        self,
        variables: int,
        image_shape: tuple[int, int, int],
        channels: Sequence[int],
        hidden: int,
        *,
        groups: int = 3,
        group_hidden: int = 64,
    ) -> None:
        super().__init__()
        colours, height, width = image_shape
        self.variables, self.image_shape = variables, image_shape
        self.singles = nn.ModuleList(
            ConvDecoder(1 + 2 * OCTAVES, (colours + 1, height, width), channels, hidden)
            for _ in range(variables)
        )
        self.groups = nn.ModuleList(
            CoordinateLayer(variables, colours, group_hidden) for _ in range(groups)
        )
        for layer in self.singles:  # a gentle start: logits near 0 everywhere
            layer.convolutions[-1].weight.data.mul_(0.3)  # type: ignore[union-attr, index]
        self.register_buffer("background", torch.full(image_shape, 0.5))
        self.register_buffer("members", torch.eye(variables + groups, variables))
        self.register_buffer("explained", torch.zeros(variables + groups))
        self.register_buffer("regions", torch.ones(groups, height * width))
        y, x = torch.meshgrid(*(_centres(side) for side in (height, width)), indexing="ij")
        self.register_buffer("coordinates", torch.stack([x, y], -1).flatten(0, 1), persistent=False)
        self._active: tuple[int, ...] | None = None
        self._group_region: Tensor | None = None
        self._group_pixels: Tensor | None = None

    # ---- which layer paints what ---------------------------------------------------------------
    def set_layers(
        self,
        layers: Sequence[Sequence[int]],
        background: Tensor,
        *,
        explained: Sequence[float] | None = None,
        regions: Sequence[Tensor] | None = None,
    ) -> None:
        """Use a layer for each of these sets of variables, over a background (C, H, W).

        Arguments:
            explained: what each layer explains, to be kept with it.
            regions: (H, W) of 0 and 1 for each layer; one of several variables paints only there.
        """
        self.members.zero_()
        self.explained.zero_()
        self.regions.fill_(1)
        free = iter(range(self.variables, len(self.members)))
        for i, layer in enumerate(layers):
            row = layer[0] if len(layer) == 1 else next(free)
            self.members[row, list(layer)] = 1
            self.explained[row] = explained[i] if explained is not None else 0.0
            if regions is not None and row >= self.variables:
                self.regions[row - self.variables] = regions[i].flatten()
        self.background.copy_(background)
        self._active = self._group_region = self._group_pixels = None
        _ = self.active, self.group_pixels  # now: a captured step must not wait for the device

    @property
    def active(self) -> tuple[int, ...]:
        """Rows of `members` with a variable, single variables first."""
        if self._active is None:
            self._active = tuple(self.members.any(1).nonzero()[:, 0].tolist())
        return self._active

    def _load_from_state_dict(self, *args: object, **options: object) -> None:
        super()._load_from_state_dict(*args, **options)
        self._active = self._group_region = self._group_pixels = None

    # ---- pictures ------------------------------------------------------------------------------
    def single_logits(self, variables: Tensor, limit: Tensor | float = LARGEST_OPACITY) -> Tensor:
        """Colour and opacity logits (B, S, C + 1, H W) of the active layers of one variable.

        Arguments:
            limit: of the absolute opacity logits; a small one keeps all layers in the picture.
        """
        rows = self.active[: self.single_count]
        if not rows:
            colours, height, width = self.image_shape
            return variables.new_zeros(variables.shape[0], 0, colours + 1, height * width)
        outputs = [
            self.singles[row](octaves(variables[:, row : row + 1])).flatten(2) for row in rows
        ]
        return limit_opacity(torch.stack(outputs, dim=1), limit)

    def group_logits(
        self, variables: Tensor, pixels: Tensor, limit: Tensor | float = LARGEST_OPACITY
    ) -> Tensor:
        """Colour and opacity logits (B, G, C + 1, P) of the active groups at some pixels."""
        outputs = []
        for row in self.active[self.single_count :]:
            layer, region = self.groups[row - self.variables], self.regions[row - self.variables]
            inputs, chunks = variables * self.members[row], [pixels]
            if not torch.is_grad_enabled():  # bounded memory for queries
                chunks = list(pixels.split(max(1, MOST_POINTS // variables.shape[0])))
            output = torch.cat([layer(inputs, self.coordinates[chunk]) for chunk in chunks], dim=2)
            closed = torch.zeros_like(output[:, :, :1])
            closed[:, -1] = CLOSED
            inside = region[pixels].bool()
            outputs.append(torch.where(inside, limit_opacity(output, limit), closed))
        return torch.stack(outputs, dim=1)

    def layer_logits(self, variables: Tensor, pixels: Tensor | None = None) -> Tensor:
        """Colour and opacity logits (B, L, C + 1, P) of the active layers at all or some pixels.

        For whole pictures groups are evaluated in their regions only.
        """
        singles = self.single_logits(variables)
        if pixels is not None:
            singles = singles[..., pixels]
        if self.single_count == len(self.active):
            return singles
        if pixels is not None:
            return torch.cat([singles, self.group_logits(variables, pixels)], dim=1)
        inside = self.group_pixels
        painted = self.group_logits(variables, inside)
        groups = painted.new_zeros(*painted.shape[:3], singles.shape[-1])
        groups[:, :, -1] = CLOSED
        return torch.cat([singles, groups.index_copy(3, inside, painted)], dim=1)

    def compose(
        self, logits: Tensor, pixels: Tensor | None = None, background: Tensor | None = None
    ) -> Composition:
        """Layers' logits (B, L, C + 1, P) to a picture, over (B, C, H W) or the own background."""
        background = self.background.flatten(1) if background is None else background
        background = background if pixels is None else background[..., pixels]
        colours, opacities = split_opacity(logits)
        shares = _with_background(opacities[:, :, 0])
        own, weights = shares.split([1, logits.shape[1]], dim=1)
        picture = own * background + (weights[:, :, None] * torch.sigmoid(colours)).sum(1)
        return Composition(picture, weights)

    @staticmethod
    def shares(logits: Tensor) -> Tensor:
        """Shares (B, 1 + L, P) of the background and of layers with logits (B, L, C + 1, P)."""
        return _with_background(logits[:, :, -1])

    @property
    def group_region(self) -> Tensor:
        """(H W) of 0 and 1: pixels that an active layer of several variables may paint."""
        if self._group_region is None or self._group_region.device != self.regions.device:
            rows = [row - self.variables for row in self.active if row >= self.variables]
            used = [self.regions[row] for row in rows] or [torch.zeros_like(self.regions[0])]
            self._group_region = torch.stack(used).amax(0)
        return self._group_region

    @property
    def group_pixels(self) -> Tensor:
        """(P,) indices of the pixels of `group_region`."""
        if self._group_pixels is None or self._group_pixels.device != self.regions.device:
            self._group_pixels = self.group_region.nonzero()[:, 0]
        return self._group_pixels

    @property
    def single_count(self) -> int:
        """Number of active layers of one variable; they come first."""
        return sum(row < self.variables for row in self.active)

    def forward(self, variables: Tensor, background: Tensor | None = None) -> Tensor:
        """Logits (B, C, H, W) of the composed picture, over (B, C, H W) or the own background."""
        if self.active:
            flat = self.compose(self.layer_logits(variables), background=background).pixels
        else:
            own = self.background.flatten(1).expand(variables.shape[0], -1, -1)
            flat = own if background is None else background
        picture = flat.unflatten(2, self.image_shape[1:])
        return torch.logit(picture, DARKEST)


def _with_background(opacities: Tensor) -> Tensor:
    """Softmax (B, 1 + L, P) of opacity logits (B, L, P) and of the background's, which is 0."""
    return torch.softmax(nn.functional.pad(opacities, (0, 0, 1, 0)), dim=1)


def _centres(side: int) -> Tensor:
    return (torch.arange(side) + 0.5) / side * 2 - 1
