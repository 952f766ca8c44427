"""Heat maps of a latent (Grad-CAM++, CMCL's Fig. 5), and the latent linked to a column."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from intervae.data import Dataset, Split
from intervae.errors import QueryError, unknown
from intervae.models.base import Model
from intervae.models.batches import query_split
from intervae.models.capabilities import HasGraph
from intervae.models.checks import check_model
from intervae.models.inputs import as_tensor
from intervae.nets.grad_cam import (
    difference_map,
    enlarge,
    feature_blocks,
    grad_cam,
    maps_and_gradient,
)

CHUNK = 64  # images whose feature maps are in memory together
LINK_ROWS = 2000  # training rows that decide the latent of a column and its sign
VISIBILITY_ROWS = 128  # rows that decide whether a latent is visible
MIN_VISIBLE_FRACTION = 0.05  # fraction of the squared pixel change of the most visible latent


def heat_map(
    model: Model,
    images: Any,
    latent: str,
    *,
    sign: int = 1,
    block: int = -1,
    reference: Any = None,
    labels: Any = None,
) -> Tensor:
    """Return where each image has the features that raise a latent: Grad-CAM++ of its mean.

    Arguments:
        images: (B, C, H, W).
        latent: one of `model.latent_names`; the sum of its dims.
        sign: 1, or -1 for features that lower the latent; see `Link.sign`.
        block: index of a block of the encoder's convolutions; -1 is the last, as in the paper,
            -2 the one before, of twice the size.
        reference: (R, C, H, W) images without the feature. The map is then the first-order
            effect of each place relative to their mean features (`difference_map`), which is more
            local; -2 suits it best.
        labels: (B, d), if the encoder needs them; not with a reference.

    Returns:
        (B, H, W) in [0, 1] on the CPU, each map scaled by itself; 0 if nothing raises the latent.
    """
    check_model(model)
    if latent not in model.latent_names:
        raise unknown("latent", latent, model.latent_names, QueryError)
    if sign not in (1, -1):
        raise QueryError(f"sign={sign!r} must be 1 (raises the latent) or -1 (lowers it).")
    if model.spec.frames is not None or not model.latents_are_variables:
        raise QueryError(f"{model.name} has no latents of single images, so it has no heat maps.")
    if reference is not None and labels is not None:
        raise QueryError(
            "a heat map with a reference takes no labels; "
            "use a model whose encoder does not need them."
        )
    tensor = as_tensor(images, "images")
    tensor = tensor[None] if tensor.ndim == 3 else tensor
    table = None if labels is None else model.as_labels(labels, len(tensor))
    blocks = encoder_blocks(model, tensor[:1], None if table is None else table[:1])
    if not -len(blocks) <= block < len(blocks):
        raise QueryError(
            f"block={block}: the encoder of this {model.name} has {len(blocks)} blocks of "
            f"convolutions; use -1 to -{len(blocks)}."
        )
    layer, index = blocks[block], model.latent_names.index(latent)

    def target(images: Tensor, labels: Tensor | None) -> Tensor:
        return sign * model.encode(images, labels)[:, index].sum(1)

    maps, training = [], model.training
    model.eval()
    try:
        mean_maps = None
        if reference is not None:
            mean_maps = _mean_maps(layer, as_tensor(reference, "reference"), target)
        for start in range(0, len(tensor), CHUNK):
            rows = slice(start, start + CHUNK)
            chunk = partial(target, tensor[rows], None if table is None else table[rows])
            features = maps_and_gradient(layer, chunk)
            small = (
                grad_cam(*features) if mean_maps is None else difference_map(*features, mean_maps)
            )
            maps.append(enlarge(small, (tensor.shape[-2], tensor.shape[-1])).cpu())
    finally:
        model.train(training)
    return torch.cat(maps)


def _mean_maps(
    layer: nn.Module, images: Tensor, target: Callable[[Tensor, Tensor | None], Tensor]
) -> Tensor:
    """Return the mean output of a layer over images, (K, h, w)."""
    images = images[None] if images.ndim == 3 else images
    if not len(images):
        raise QueryError("the reference of a heat map has no images; give at least one.")
    sums = [
        maps_and_gradient(layer, partial(target, chunk, None))[0].sum(0)
        for chunk in images.split(CHUNK)
    ]
    return torch.stack(sums).sum(0) / len(images)


def encoder_blocks(model: Model, images: Tensor, labels: Any = None) -> list[nn.Module]:
    """Return the last layer of each block of convolutions of the encoder."""
    blocks = feature_blocks(model, lambda: model.encode(images, labels))
    if not blocks:
        raise QueryError(
            f"the encoder of this {model.name} has no convolutions, so it has no heat maps; "
            "use a convolutional network."
        )
    return blocks


def has_heat_maps(model: Model, split: Split) -> bool:
    """Whether `heat_map` works for this model."""
    if model.spec.frames is not None or not model.latents_are_variables:
        return False
    first = split[:1]
    labels = first.labels if model.needs_labels else None
    return bool(feature_blocks(model, lambda: model.encode(first.images, labels)))


# ---- the latent of a column --------------------------------------------------------------------
class Link(NamedTuple):
    """A column of the table and the latent that goes with it.

    Arguments:
        edge: "column -> latent", "latent -> column", or "" if the graph has no edge between them.
        association: 0 to 1 on training rows: absolute correlation, or sqrt(R^2) of the category
            means if the column is categorical.
        sign: sign of the correlation; 1 for a categorical column.
    """

    column: str
    latent: str
    edge: str
    association: float
    sign: int

    @property
    def text(self) -> str:
        """The link in words, such as "covid -> z0" or "covid ... z0 (no edge)"."""
        if not self.edge:
            return f"{self.column} ... {self.latent} (no edge)"
        if self.edge == "latent -> column":
            return f"{self.latent} -> {self.column}"
        return f"{self.column} -> {self.latent}"


def link_column(model: Model, data: Dataset, column: str) -> Link:
    """Return the latent with the largest association with a column.

    Candidates are the visible latents that an edge of the graph joins to the column, in either
    direction; without any, all visible latents. Weights of edges are not compared, as those into a
    binary column are logits and those into a latent standard deviations.
    """
    if column not in data.names:
        raise unknown("column", column, data.names, QueryError)
    part = data.train[torch.arange(min(len(data.train), LINK_ROWS))]
    latents = query_split(model, "encode", part).double().sum(-1).numpy()  # (N, n)
    values = part.labels[:, data.names.index(column)].double().cpu().numpy()
    correlations = np.array([_correlation(latent, values) for latent in latents.T])
    associations = np.abs(correlations)
    is_categorical = data.variables[data.names.index(column)].kind == "categorical"
    if is_categorical:
        associations = np.array([_correlation_ratio(latent, values) for latent in latents.T])
    names, edges = model.latent_names, {}
    if isinstance(model, HasGraph) and column not in names:
        graph = model.graph
        if set(graph.names) >= {*names, column}:
            edges = dict.fromkeys(graph.parents(column), "latent -> column")
            edges |= dict.fromkeys(graph.children(column), "column -> latent")
    visible = visible_latents(model, part)
    joined = np.array([name in edges for name in names]) & visible
    best = int(np.where(joined if joined.any() else visible, associations, -1.0).argmax())
    sign = 1 if is_categorical or correlations[best] >= 0 else -1
    return Link(column, names[best], edges.get(names[best], ""), float(associations[best]), sign)


def visible_latents(model: Model, split: Split, min_fraction: float | None = None) -> np.ndarray:
    """Return which latents are visible in the decoded images, (n,) of bools.

    A latent is visible if exchanging it between images changes the pixels by at least the
    fraction `min_fraction` of the squared change of the most visible one.
    """
    min_fraction = MIN_VISIBLE_FRACTION if min_fraction is None else min_fraction
    part = split[torch.arange(min(len(split), VISIBILITY_ROWS))]
    z = query_split(model, "encode", part).to(model.device)
    before, changes = model.decode(z), []
    for i in range(z.shape[1]):
        exchanged = z.clone()
        exchanged[:, i] = z[:, i].roll(1, 0)
        changes.append(float((model.decode(exchanged) - before).square().mean()))
    return np.array(changes) >= min_fraction * max(changes)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return the correlation of a and b, 0 if one of them is constant."""
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0


def _correlation_ratio(latent: np.ndarray, codes: np.ndarray) -> float:
    """Return sqrt(R^2) of the category means, 0 if the latent is constant."""
    if latent.std() == 0:
        return 0.0
    categories, index = np.unique(codes, return_inverse=True)
    means = np.array([latent[codes == code].mean() for code in categories])
    return float(means[index].std() / latent.std())
