"""decoder=layers: which variables paint what, and the loss that gives each part to the fewest.

A layer of several variables paints only in its region, and pays for every pixel there that the
layers of single variables paint right without it. In the first half of training the loss turns from
squared to absolute errors, whose answer to what a layer cannot know is the median, the background;
and from pixels weighted by their deviation from the background to equal weights, without which thin
objects are not found. Opacities are limited at first, and less and less until then.
"""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Spec
from intervae.discovery.image_groups import check_groups, find_image_groups
from intervae.errors import DataWarning, UsageError
from intervae.nets.layered_decoder import LARGEST_OPACITY, LayeredDecoder

SCALE = 0.1  # of the Laplace likelihood of a pixel
PRICE = 0.02  # of a pixel that a larger layer paints though smaller ones paint it right
RIGHT = 0.1  # largest colour error of a pixel that counts as painted right
SQUARED = 3.0  # weight of squared errors at the start
REGION = 0.02  # of a group's largest gain at a pixel, to be in the box where it paints
MARGIN = 0.25  # of the box's extent, by which it is extended on every side
FIRST_LIMIT = 3.0  # of opacity logits at the start: a layer that is closed learns nothing
TURN = (0.25, 0.5)  # shares of training between which the losses turn
CHANGED = 1e-4  # of a value, in standard deviations, for its layers to count as changed
BACKGROUND_IMAGES = 1024  # whose median is the background


def choose_layers(
    decoder: LayeredDecoder, data: Dataset, graph: CausalGraph, layers: str, seed: int
) -> None:
    """Set the decoder's layers and background from the training split.

    Arguments:
        graph: over the labels, known or learned.
        layers: "auto", or the variables of each layer, such as "a,b+c".
    """
    spec, train = data.spec, data.train
    groups = find_image_groups(
        train.images,
        spec.normalise(train.labels),
        spec.names,
        kinds=[v.kind for v in spec.variables],
        graph=graph,
        groups=parse_layers(layers, spec, decoder),
        max_groups=len(decoder.groups),
        seed=seed,
    )
    painted = {name for group in groups for name in group.variables}
    for name in spec.names:
        if name not in painted:
            warnings.warn(
                f"no pixel shows {name!r} in {len(train)} training images; do({name}) will leave "
                "the picture as it is, but for the effects of this variable. If it draws an "
                "object together with other variables, name them with layers=.",
                DataWarning,
                stacklevel=2,
            )
    background = train[torch.arange(min(BACKGROUND_IMAGES, len(train)))].images
    decoder.set_layers(
        [[spec.names.index(name) for name in group.variables] for group in groups],
        background.float().div(255).median(0).values,
        explained=[group.explained for group in groups],
        regions=[region_of(group.gain_map, spec.image_shape[1:]) for group in groups],
    )


def region_of(gain_map: Tensor, shape: tuple[int, int]) -> Tensor:
    """Pixels (H, W) that a group may paint, as 0 and 1.

    The box around what the group explains, extended on every side by MARGIN of its extent: do()
    moves an object beyond the places where training showed it.
    """
    inside = (gain_map > REGION * gain_map.max()).nonzero()
    region = torch.zeros(shape)
    if len(inside) == 0:
        return region
    bounds = []
    for axis in (0, 1):
        scale = shape[axis] / gain_map.shape[axis]
        low, high = float(inside[:, axis].min()) * scale, float(inside[:, axis].max() + 1) * scale
        margin = MARGIN * (high - low)
        bounds.append((max(0, math.floor(low - margin)), math.ceil(high + margin)))
    (top, bottom), (left, right) = bounds
    region[top:bottom, left:right] = 1
    return region


def draw_pixels(
    decoder: LayeredDecoder, count: int, generator: torch.Generator | None
) -> Tensor | None:
    """Draw pixels (count,) uniformly from those that groups may paint; None for all of them."""
    inside = decoder.group_pixels
    if count >= len(inside):
        return None
    draws = torch.rand(count, device=inside.device, generator=generator) * len(inside)
    return inside[draws.long().clamp(max=len(inside) - 1)]


def parse_layers(text: str, spec: Spec, decoder: LayeredDecoder) -> list[tuple[str, ...]] | None:
    """`"light,length+position"` to the variables of each layer; None for "auto"."""
    if text == "auto":
        return None
    groups = check_groups(
        [[name.strip() for name in group.split("+")] for group in text.split(",")], spec.names
    )
    if sum(len(group) > 1 for group in groups) > len(decoder.groups):
        raise UsageError(
            f"layers={text} has more than {len(decoder.groups)} layers of several variables; "
            "leave some out."
        )
    return groups


class ImageLayer(NamedTuple):
    """One layer of a trained decoder.

    Arguments:
        variables: the variables that paint it.
        explained: fraction of the pictures' deviation from the background that the set explains
            and smaller sets do not; see `intervae.discovery.image_groups`.
    """

    variables: tuple[str, ...]
    explained: float


def unpainted(decoder: LayeredDecoder, before: Tensor, after: Tensor) -> Tensor:
    """Return (B, H W): 1 less the largest shares of layers with changed values, before or after.

    Arguments:
        before, after: values (B, n) of the variables, in normalised units.
    """
    rows = list(decoder.active)
    members = decoder.members[rows].bool()  # (L, n)
    moved = (before - after).abs() > CHANGED  # an effect is computed again, up to rounding
    changed = (moved[:, None] & members).any(2)  # (B, L)
    shares = [decoder.shares(decoder.layer_logits(v))[:, 1:] for v in (before, after)]
    painted = torch.maximum(*shares) * changed[..., None]  # (B, L, H W)
    return 1 - painted.sum(1).clamp(max=1)


def layer_loss(
    decoder: LayeredDecoder,
    values: Tensor,
    images: Tensor,
    progress: Tensor,
    pixels: Tensor | None = None,
    background: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Pixel loss and the price of larger layers, each summed over pixels, batch means.

    The pixel loss is the negative log-likelihood of a Laplace distribution of scale SCALE, but for
    a constant, from the middle of training on. Groups are evaluated at `pixels`, which stand for
    all that groups may paint; elsewhere the picture is that of the single layers.

    Arguments:
        values: (B, n) concepts.
        images: (B, C, H, W) in [0, 1].
        progress: 0-dim, from 0 to 1 over training.
        pixels: (P,) random pixels of `decoder.group_pixels`, or None for all of these.
        background: (B, C, H W) in the place of the decoder's.
    """
    truth = images.flatten(2)
    deviation = (truth - decoder.background.flatten(1)).abs().mean(1)  # (B, H W)
    balance = 0.5 + 0.5 * deviation / deviation.mean(1, keepdim=True).clamp(min=1e-6)
    start = 1 - ((progress - TURN[0]) / (TURN[1] - TURN[0])).clamp(0, 1)  # 1, then falling to 0
    weight = balance**start

    def error(prediction: Tensor, target: Tensor) -> Tensor:  # (B, P), summed over channels
        difference = prediction - target
        squared, absolute = difference.square().sum(1), difference.abs().sum(1)
        return SQUARED * start * squared + (1 - 0.9 * start) * absolute

    early = (1 - progress / TURN[1]).clamp(min=0)
    limit = LARGEST_OPACITY * (FIRST_LIMIT / LARGEST_OPACITY) ** early
    logits = decoder.single_logits(values, limit)
    outside = weight * error(decoder.compose(logits, background=background).pixels, truth)
    if decoder.single_count == len(decoder.active):
        return outside.sum(1).mean() / SCALE, torch.zeros_like(progress)
    inside = decoder.group_pixels
    if pixels is None:
        pixels = inside
    area = len(inside) / len(pixels)  # pixels that a drawn one stands for
    total = (outside * (1 - decoder.group_region)).sum(1).mean()
    target, weight = truth[..., pixels], weight[:, pixels]
    logits = logits.index_select(3, pixels)  # its gradient is faster than that of an index
    layers = torch.cat([logits, decoder.group_logits(values, pixels, limit)], dim=1)
    picture, weights = decoder.compose(layers, pixels, background)
    total = total + area * (weight * error(picture, target)).sum(1).mean()
    with torch.no_grad():
        wrong = (decoder.compose(logits, pixels, background).pixels - target).abs().amax(1)
    price = weights[:, decoder.single_count :].sum(1) * (1 - wrong / RIGHT).clamp(min=0)
    extra = PRICE * images.shape[1] * area * (weight * price).sum(1).mean()
    return total / SCALE, extra / SCALE
