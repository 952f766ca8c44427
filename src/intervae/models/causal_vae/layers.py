"""decoder=layers: which variables paint what, and the loss that gives each part to the fewest.

A layer of several variables paints only in its region, and pays for every pixel there that the
layers of single variables paint right without it. In the first half of training the loss turns from
squared to absolute errors, whose answer to what a layer cannot know is the median, the background;
and from pixels weighted by their deviation from the background to equal weights, without which thin
objects are not found.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import interpolate, max_pool2d

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Spec
from intervae.discovery.image_groups import check_groups, find_image_groups
from intervae.errors import UsageError
from intervae.nets.layered_decoder import LayeredDecoder

SCALE = 0.1  # of the Laplace likelihood of a pixel
PRICE = 0.02  # of a pixel that a larger layer paints though smaller ones paint it right
RIGHT = 0.1  # largest colour error of a pixel that counts as painted right
SQUARED = 3.0  # weight of squared errors at the start
REGION = 0.02  # of a group's largest gain at a pixel, for it to paint there
TURN = (0.25, 0.5)  # shares of training between which the losses turn
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
                f"no pixel shows {name!r}; do({name}) will leave the picture as it is, but for "
                "the effects of this variable.",
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
    """Pixels (H, W) where a group explains something, and those around them, as 0 and 1."""
    inside = (gain_map > REGION * gain_map.max()).float()[None, None]
    return max_pool2d(interpolate(inside, size=shape, mode="nearest"), 5, 1, 2)[0, 0]


def draw_pixels(
    decoder: LayeredDecoder, count: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Pixels (P,) of a step, half of them where groups paint, and their weights (P,)."""
    region = decoder.group_region
    area = region.numel()
    density = 0.5 + 0.5 * region * area / region.sum().clamp(min=1)
    density = torch.where(region.sum() > 0, density, torch.ones_like(density))
    ends = (density / area).cumsum(0)
    draws = torch.rand(count, device=region.device, generator=generator) * ends[-1]
    pixels = torch.searchsorted(ends, draws).clamp(max=area - 1)
    return pixels, 1 / density[pixels]


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


def layer_loss(
    decoder: LayeredDecoder,
    values: Tensor,
    images: Tensor,
    progress: Tensor,
    pixels: Tensor | None = None,
    pixel_weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Pixel loss and the price of larger layers, each summed over pixels, batch means.

    The pixel loss is the negative log-likelihood of a Laplace distribution of scale SCALE, but for
    a constant, from the middle of training on.

    Arguments:
        values: (B, n) concepts.
        images: (B, C, H, W) in [0, 1].
        progress: 0-dim, from 0 to 1 over training.
        pixels: (P,) indices of the pixels to use, or None for all.
        pixel_weights: (P,) weights of mean 1 that make up for pixels drawn more often than others.
    """
    side = images.shape[-2] * images.shape[-1]
    truth = images.flatten(2)
    background = decoder.background.flatten(1)
    deviation = (truth - background).abs().mean(1)  # (B, H W)
    balance = 0.5 + 0.5 * deviation / deviation.mean(1, keepdim=True).clamp(min=1e-6)
    if pixels is not None:
        truth, balance = truth[..., pixels], balance[:, pixels]
    start = 1 - ((progress - TURN[0]) / (TURN[1] - TURN[0])).clamp(0, 1)  # 1, then falling to 0
    weight = balance[:, None] ** start
    if pixel_weights is not None:
        weight = weight * pixel_weights ** (1 - start)

    def error(prediction: Tensor) -> Tensor:
        difference = prediction - truth
        return (
            weight * (SQUARED * start * difference.square() + (1 - 0.9 * start) * difference.abs())
        ).mean()

    logits = decoder.layer_logits(values, pixels)
    picture, weights = decoder.compose(logits, pixels)
    count = decoder.single_count
    total = error(picture)
    extra = torch.zeros_like(total)
    if 0 < count < logits.shape[1]:
        alone = decoder.compose(logits[:, :count].detach(), pixels).pixels
        wrong = (alone - truth).abs().amax(1)
        price = weights[:, count:].sum(1) * (1 - wrong / RIGHT).clamp(min=0) * weight[:, 0]
        extra = PRICE * price.mean()
    elements = side * images.shape[1] / SCALE
    return total * elements, extra * elements
