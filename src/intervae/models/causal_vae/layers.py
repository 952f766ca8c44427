"""decoder=layers: which variables paint what, and the loss that gives each part to the fewest.

A layer paints only in its region, and one of several variables pays for every pixel there that the
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
from torch.nn import functional

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Spec
from intervae.discovery.image_groups import check_groups, find_image_groups
from intervae.errors import DataWarning, UsageError
from intervae.models.batches import spread_rows
from intervae.nets.layered_decoder import LARGEST_OPACITY, DrawnPixels, LayeredDecoder

SCALE = 0.1  # of the Laplace likelihood of a pixel
PRICE = 0.02  # of a pixel that a larger layer paints though smaller ones paint it right
RIGHT = 0.1  # largest colour error of a pixel that counts as painted right
SQUARED = 3.0  # weight of squared errors at the start
REGION = 0.02  # of a group's largest gain at a pixel, to be in the box where it paints
MARGIN = 0.25  # of the box's extent, by which it is extended on every side
FIRST_LIMIT = 1.0  # of opacity logits at the start: a layer behind others must still learn
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
    rows = spread_rows(len(train), BACKGROUND_IMAGES)  # the first ones may be all of one kind
    background = train[rows].images
    shape = spec.image_shape[1:]
    decoder.set_layers(
        [[spec.names.index(name) for name in group.variables] for group in groups],
        background.float().div(255).median(0).values,
        explained=[group.explained for group in groups],
        regions=[region_of(group.gain_map, shape) for group in groups],
        gains=[
            functional.interpolate(group.gain_map[None, None].float(), shape)[0, 0]
            for group in groups
        ],
    )


def region_of(gain_map: Tensor, shape: tuple[int, int]) -> Tensor:
    """Pixels (H, W) that a layer may paint, as 0 and 1.

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


def changed_image(
    decoder: LayeredDecoder,
    images: Tensor,
    before: Tensor,
    after: Tensor,
    pixel_temperature: float,
    background: Tensor | None = None,
) -> Tensor:
    """Return g(z') + t keep u, clipped to [0, 1], with the images' own pixel noise u = x - g(z).

    `keep` is 1 less the largest shares, before or after, of layers with changed values.

    Arguments:
        images: (B, C, H, W) in [0, 1].
        before, after: values (B, n) of the variables, in normalised units.
        background: (B, C, H W) in the place of the decoder's.
    """
    rows = list(decoder.active)
    members = decoder.members[rows].bool()  # (L, n)
    moved = (before - after).abs() > CHANGED  # an effect is computed again, up to rounding
    changed = (moved[:, None] & members).any(2)  # (B, L)
    old, new = (
        decoder.compose(decoder.layer_logits(values), background=background)
        for values in (before, after)
    )
    painted = torch.maximum(old.weights, new.weights) * changed[..., None]  # (B, L, H W)
    keep = 1 - painted.sum(1, keepdim=True).clamp(max=1)
    answer = new.pixels + pixel_temperature * keep * (images.flatten(2) - old.pixels)
    return answer.clamp(0, 1).unflatten(2, decoder.image_shape[1:])


def opacity_limit(progress: Tensor) -> Tensor:
    """Largest absolute opacity logit: FIRST_LIMIT, rising to LARGEST_OPACITY at TURN[1].

    A layer at -l behind one at l has the share 1 / (1 + exp(l) + exp(2 l)), by which its gradient
    is multiplied: .09 with l = 1, and .002 with l = 3, where some layers never come back.
    """
    early = (1 - progress / TURN[1]).clamp(min=0)
    return LARGEST_OPACITY * (FIRST_LIMIT / LARGEST_OPACITY) ** early


def layer_loss(
    decoder: LayeredDecoder,
    values: Tensor,
    images: Tensor,
    progress: Tensor,
    drawn: DrawnPixels | None = None,
    background: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Pixel loss and the price of larger layers, each summed over pixels, batch means.

    The pixel loss is the negative log-likelihood of a Laplace distribution of scale SCALE, but for
    a constant, from the middle of training on. Layers are evaluated at the drawn pixels, which
    stand for all that layers may paint; the others show the background.

    Arguments:
        values: (B, n) concepts.
        images: (B, C, H, W) in [0, 1].
        progress: 0-dim, from 0 to 1 over training.
        drawn: pixels of `LayeredDecoder.draw_pixels`, or None for all.
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

    limit = opacity_limit(progress)
    behind = decoder.background.flatten(1) if background is None else background
    outside = (1 - decoder.region) * weight * error(behind, truth)
    if drawn is None:
        drawn = DrawnPixels(torch.arange(truth.shape[2], device=truth.device), decoder.region)
    pixels, area = drawn
    target, weight = truth[..., pixels], area * weight[:, pixels]
    logits = decoder.layer_logits(values, pixels, limit)
    picture, shares = decoder.compose(logits, pixels, background)
    total = outside.sum(1).mean() + (weight * error(picture, target)).sum(1).mean()
    singles = decoder.single_count
    if singles == len(decoder.active):
        return total / SCALE, torch.zeros_like(progress)
    with torch.no_grad():
        alone = decoder.compose(logits[:, :singles], pixels, background).pixels
        wrong = (alone - target).abs().amax(1)
    price = shares[:, singles:].sum(1) * (1 - wrong / RIGHT).clamp(min=0)
    extra = PRICE * images.shape[1] * (weight * price).sum(1).mean()
    return total / SCALE, extra / SCALE
