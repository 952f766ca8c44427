"""A decoder that paints a picture in layers, each from its own few variables.

Every layer is a network of the pixel's coordinates that gives a colour and an opacity logit per
pixel. That of one variable moves its pattern in any affine way; that of several only shifts it, so
that it extrapolates to combinations of variables that training never showed. A softmax of the
logits over the layers and the background (logit 0) composes them; the layer with the larger logit
is in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from intervae.nets.coordinate_layers import ShiftedLayer, TransformedLayer
from intervae.nets.layer_opacity import limit_opacity, split_opacity

PIXELS_AT_ONCE = 1024  # that a layer handles in queries, for a bounded memory
CLOSED = -30.0  # opacity logit outside the region of a layer
LARGEST_OPACITY = 12.0  # absolute opacity logit inside it
DARKEST = 1e-6  # pixels are kept this far from 0 and 1, so that their logits are finite


class Composition(NamedTuple):
    """A picture put together from layers, at all or some pixels."""

    pixels: Tensor  # (B, C, P) in [0, 1]
    weights: Tensor  # (B, L, P) share of each layer; the background has the rest


class DrawnPixels(NamedTuple):
    """Random pixels that stand for all that layers may paint."""

    pixels: Tensor  # (P,) indices in the flattened picture
    area: Tensor  # (P,) number of pixels that each stands for


class LayeredDecoder(nn.Module):
    """Variables (B, n) to images (B, C, H, W): one layer per variable, and some per group.

    Arguments:
        variables: n.
        groups: number of layers of several variables; `set_layers` says which.
        hidden: width of the layers.

    `members` (n + groups, n) holds the variables of each layer; a layer without any is not used.
    `density` (H W) is the probability with which training draws a pixel.
    """

    background: Tensor
    members: Tensor
    explained: Tensor
    regions: Tensor
    density: Tensor
    coordinates: Tensor

    def __init__(
        self,
        variables: int,
        image_shape: tuple[int, int, int],
        *,
        groups: int = 3,
        hidden: int = 64,
    ) -> None:
        super().__init__()
        colours, height, width = image_shape
        self.variables, self.image_shape = variables, image_shape
        self.singles = nn.ModuleList(TransformedLayer(colours, hidden) for _ in range(variables))
        self.groups = nn.ModuleList(ShiftedLayer(variables, colours, hidden) for _ in range(groups))
        layers, pixels = variables + groups, height * width
        self.register_buffer("background", torch.full(image_shape, 0.5))
        self.register_buffer("members", torch.eye(layers, variables))
        self.register_buffer("explained", torch.zeros(layers))
        self.register_buffer("regions", torch.ones(layers, pixels))
        self.register_buffer("density", torch.full((pixels,), 1 / pixels))
        y, x = torch.meshgrid(*(_centres(side) for side in (height, width)), indexing="ij")
        self.register_buffer("coordinates", torch.stack([x, y], -1).flatten(0, 1), persistent=False)
        self._active: tuple[int, ...] | None = None
        self._inside: dict[int, Tensor] = {}

    # ---- which layer paints what ---------------------------------------------------------------
    def set_layers(
        self,
        layers: Sequence[Sequence[int]],
        background: Tensor,
        *,
        explained: Sequence[float] | None = None,
        regions: Sequence[Tensor] | None = None,
        gains: Sequence[Tensor] | None = None,
    ) -> None:
        """Use a layer for each of these sets of variables, over a background (C, H, W).

        Arguments:
            explained: what each layer explains, to be kept with it.
            regions: (H, W) of 0 and 1 for each layer, where it paints; everywhere by default.
            gains: (H, W) of what each layer explains at each pixel. Half of the pixels of a
                training step are drawn by them, with an equal share for each layer, else a small
                object would get few; the other half evenly from where layers paint.
        """
        self.members.zero_()
        self.explained.zero_()
        self.regions.fill_(1)
        free = iter(range(self.variables, len(self.members)))
        for i, layer in enumerate(layers):
            row = layer[0] if len(layer) == 1 else next(free)
            self.members[row, list(layer)] = 1
            self.explained[row] = explained[i] if explained is not None else 0.0
            if regions is not None:
                self.regions[row] = regions[i].flatten()
        self.background.copy_(background)
        self._forget()
        inside = self.region  # reads `active`: a captured step must not wait for the device
        even = inside / inside.sum().clamp(min=1)
        by_gain = [_normalised(gain.flatten().to(inside) * inside) for gain in gains or ()]
        drawn = torch.stack(by_gain).mean(0) if by_gain else even
        self.density.copy_((even + drawn) / 2)

    @property
    def active(self) -> tuple[int, ...]:
        """Rows of `members` with a variable, single variables first."""
        if self._active is None:
            self._active = tuple(self.members.any(1).nonzero()[:, 0].tolist())
        return self._active

    @property
    def single_count(self) -> int:
        """Number of active layers of one variable; they come first."""
        return sum(row < self.variables for row in self.active)

    @property
    def region(self) -> Tensor:
        """(H W) of 0 and 1: pixels that an active layer may paint."""
        # a list as index is a copy from the host, which a captured step cannot make
        rows = [self.regions[row] for row in self.active]
        return torch.stack(rows).amax(0) if rows else torch.zeros_like(self.regions[0])

    def draw_pixels(self, count: int, generator: torch.Generator | None) -> DrawnPixels:
        """Draw pixels by `density`."""
        totals = self.density.cumsum(0)
        draws = torch.rand(count, device=totals.device, generator=generator) * totals[-1]
        index = torch.searchsorted(totals, draws, right=True).clamp(max=len(totals) - 1)
        density = self.density[index]
        return DrawnPixels(index, torch.where(density > 0, 1 / (count * density), 0.0))

    def _load_from_state_dict(self, *args: object, **options: object) -> None:
        super()._load_from_state_dict(*args, **options)
        self._forget()

    def _forget(self) -> None:
        """Drop what was read off the buffers."""
        self._active, self._inside = None, {}

    def _pixels_of(self, row: int) -> Tensor:
        """Return the indices (P,) of the pixels that a layer may paint."""
        inside = self._inside.get(row)
        if inside is None or inside.device != self.regions.device:
            inside = self._inside[row] = self.regions[row].nonzero()[:, 0]
        return inside

    # ---- pictures ------------------------------------------------------------------------------
    def layer_logits(
        self,
        variables: Tensor,
        pixels: Tensor | None = None,
        limit: Tensor | float = LARGEST_OPACITY,
    ) -> Tensor:
        """Colour and opacity logits (B, L, C + 1, P) of the active layers at all or some pixels.

        Arguments:
            limit: of the absolute opacity logits; a small one keeps all layers in the picture.
        """
        if not self.active:
            count = len(self.coordinates) if pixels is None else len(pixels)
            return variables.new_zeros(len(variables), 0, self.image_shape[0] + 1, count)
        if pixels is None:
            logits = [self._whole(row, variables, limit) for row in self.active]
        else:
            logits = [self._at(row, variables, pixels, limit) for row in self.active]
        return torch.stack(logits, dim=1)

    def _paint(self, row: int, variables: Tensor, pixels: Tensor) -> Tensor:
        """Return the logits (B, C + 1, P) of one layer, as if it painted everywhere."""
        single = row < self.variables
        layer = self.singles[row] if single else self.groups[row - self.variables]
        inputs = variables[:, row : row + 1] if single else variables * self.members[row]
        chunks = (pixels,)
        if not torch.is_grad_enabled():
            chunks = pixels.split(PIXELS_AT_ONCE)
        return torch.cat([layer(inputs, self.coordinates[chunk]) for chunk in chunks], dim=2)

    def _at(self, row: int, variables: Tensor, pixels: Tensor, limit: Tensor | float) -> Tensor:
        """Return the logits (B, C + 1, P) of one layer at some pixels."""
        output = limit_opacity(self._paint(row, variables, pixels), limit)
        return torch.where(self.regions[row, pixels].bool(), output, self._closed(output))

    def _whole(self, row: int, variables: Tensor, limit: Tensor | float) -> Tensor:
        """Return the logits (B, C + 1, H W) of one layer, computed in its region only."""
        inside = self._pixels_of(row)
        painted = limit_opacity(self._paint(row, variables, inside), limit)
        canvas = self._closed(painted).expand(*painted.shape[:2], len(self.coordinates))
        return canvas.index_copy(2, inside, painted)

    @staticmethod
    def _closed(logits: Tensor) -> Tensor:
        """Return logits (B, C + 1, 1) of a layer that is not there, for (B, C + 1, P)."""
        closed = torch.zeros_like(logits[:, :, :1])
        closed[:, -1] = CLOSED
        return closed

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

    def forward(self, variables: Tensor, background: Tensor | None = None) -> Tensor:
        """Logits (B, C, H, W) of the composed picture, over (B, C, H W) or the own background."""
        if self.active:
            flat = self.compose(self.layer_logits(variables), background=background).pixels
        else:
            own = self.background.flatten(1).expand(variables.shape[0], -1, -1)
            flat = own if background is None else background
        picture = flat.unflatten(2, self.image_shape[1:])
        return torch.logit(picture, DARKEST)


def _normalised(weights: Tensor) -> Tensor:
    """Return weights of at least 0 that sum to 1, or to 0 without any."""
    weights = weights.clamp(min=0)
    return weights / weights.sum().clamp(min=1e-12)


def _with_background(opacities: Tensor) -> Tensor:
    """Softmax (B, 1 + L, P) of opacity logits (B, L, P) and of the background's, which is 0."""
    return torch.softmax(nn.functional.pad(opacities, (0, 0, 1, 0)), dim=1)


def _centres(side: int) -> Tensor:
    return (torch.arange(side) + 0.5) / side * 2 - 1
