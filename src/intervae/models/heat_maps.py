"""Heat maps of a latent (Grad-CAM++, CMCL's Fig. 5), for every model whose encoder has convolutions, and which latent goes with which column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from intervae.data.base import Dataset, Split
from intervae.errors import QueryError, unknown
from intervae.models.base import Model, answers, as_tensor, ask
from intervae.nets.heat_maps import difference_map, enlarge, feature_blocks, grad_cam, maps_and_gradient

AT_ONCE = 64  # pictures whose feature maps are held together
TRAINING_ROWS = 2000  # on which the latent of a column and its sign are decided
EXCHANGED = 128  # rows on which it is told whether a latent is shown
LEAST_SHOWN = 0.05  # of the squared change of pixels that the most visible latent makes


def heat_map(model: Model, images: Any, latent: str, *, sign: int = 1, block: int = -1, reference: Any = None, labels: Any = None) -> Tensor:
    """Where in each picture the features are that make a latent large (`sign=1`) or small (`sign=-1`): Grad-CAM++ of its posterior mean.

    Arguments:
        images: (B, C, H, W).
        latent: one of `model.latent_names`; of several dims, their sum.
        sign: a latent may be large or small where what it stands for is there; `link` tells which.
        block: of the encoder's convolutions, between two changes of size: -1 the last, as the paper has it, -2 the one before, of twice the size.
        reference: (R, C, H, W) pictures without what is looked for. With them the map is not Grad-CAM++ but what each place adds to the latent
            beyond the mean features of these (`difference_map`), which is far more local; blocks before the last suit it best.
        labels: (B, d), where the encoder needs them; not with a reference.

    Returns:
        (B, H, W) in [0, 1] on the CPU, each picture's map scaled by itself; 0 everywhere where nothing raises the latent.
    """
    if latent not in model.latent_names:
        raise unknown("latent", latent, model.latent_names, QueryError)
    if sign not in (1, -1):
        raise QueryError(f"sign={sign!r} must be 1 or -1: whether the map is of the latent or of its negative.")
    if model.spec.frames is not None or not model.latents_are_variables:
        raise QueryError(f"{model.name} has no latents of single pictures that a heat map could be drawn of.")
    given = as_tensor(images, "images")
    given = given[None] if given.ndim == 3 else given
    table = None if labels is None else model.as_labels(labels, len(given))
    place = model.latent_names.index(latent)
    blocks = encoder_blocks(model, given[:1], None if table is None else table[:1])
    if not -len(blocks) <= block < len(blocks):
        raise QueryError(f"block={block}: the encoder of this {model.name} has {len(blocks)} blocks of convolutions; use -1 to -{len(blocks)}.")

    if reference is not None and table is not None:
        raise QueryError("a heat map against a reference takes no labels; use a model whose encoder can do without.")

    def target(pictures: Tensor, some: Tensor | None) -> Tensor:
        return sign * model.encode(pictures, some)[:, place].sum(1)

    found, training = [], model.training
    model.eval()
    try:
        usual = None if reference is None else _mean_maps(blocks[block], as_tensor(reference, "reference"), target)
        for start in range(0, len(given), AT_ONCE):
            rows = slice(start, start + AT_ONCE)
            part = given[rows], None if table is None else table[rows]
            seen = maps_and_gradient(blocks[block], lambda part=part: target(*part))  # type: ignore[misc]
            small = grad_cam(*seen) if usual is None else difference_map(*seen, usual)
            found.append(enlarge(small, (given.shape[-2], given.shape[-1])).cpu())
    finally:
        model.train(training)
    return torch.cat(found)


def _mean_maps(layer: nn.Module, pictures: Tensor, target: Callable[[Tensor, Tensor | None], Tensor]) -> Tensor:
    """(K, h, w): what a layer gives for these pictures, on average."""
    pictures = pictures[None] if pictures.ndim == 3 else pictures
    if not len(pictures):
        raise QueryError("the reference of a heat map has no pictures; give one at least.")
    parts = [maps_and_gradient(layer, lambda part=part: target(part, None))[0].sum(0) for part in pictures.split(AT_ONCE)]  # type: ignore[misc]
    return torch.stack(parts).sum(0) / len(pictures)


def encoder_blocks(model: Model, images: Tensor, labels: Any = None) -> list[nn.Module]:
    """The last layer of each block of convolutions that encode() goes through; refused where there are none."""
    blocks = feature_blocks(model, lambda: model.encode(images, labels))
    if not blocks:
        raise QueryError(f"the encoder of this {model.name} has no convolutions, so there is no heat map; use a convolutional network.")
    return blocks


def has_heat_maps(model: Model, split: Split) -> bool:
    """Whether `heat_map` can be asked."""
    if model.spec.frames is not None or not model.latents_are_variables:
        return False
    part = split[:1]
    return bool(feature_blocks(model, lambda: model.encode(part.images, part.labels if model.needs_labels else None)))


# ---- which latent goes with which column ----------------------------------------------------------------------------
class Link(NamedTuple):
    """A column and the latent that goes with it."""

    column: str
    latent: str
    edge: str  # "column -> latent", "latent -> column", or "" where the model has no graph or no such edge in it
    association: float  # 0 to 1 on training rows: absolute correlation, of a categorical column the root of the share of variance between categories
    sign: int  # of their correlation on training rows; 1 for a categorical column

    @property
    def words(self) -> str:
        """Such as "covid -> z0", or "covid ... z0 (no edge)"."""
        ends = (self.latent, self.column) if self.edge == "latent -> column" else (self.column, self.latent)
        return f"{ends[0]} {'->' if self.edge else '...'} {ends[1]}{'' if self.edge else ' (no edge)'}"


def link(model: Model, data: Dataset, column: str) -> Link:
    """The latent that goes with a column: of those that an edge joins to it, in either direction, the one with the largest association.

    Latents that pictures do not show are passed over (`shown`): what is left of a collapsed latent may follow a column closely.
    Weights of edges are not compared: into a binary column they are in logits, into a latent in standard deviations. Where no edge joins the
    column to a latent, and for models without such a graph, it is the latent with the largest association of all.
    """
    if column not in data.names:
        raise unknown("column", column, data.names, QueryError)
    part = data.train[torch.arange(min(len(data.train), TRAINING_ROWS))]
    latents = ask(model, "encode", part).double().sum(-1).numpy()  # (N, n)
    values = part.labels[:, data.names.index(column)].double().cpu().numpy()
    categorical = data.variables[data.names.index(column)].kind == "categorical"
    correlations = np.array([_correlation(latent, values) for latent in latents.T])
    associations = np.array([_between_categories(latent, values) for latent in latents.T]) if categorical else np.abs(correlations)
    names, edges = model.latent_names, {}
    if answers(type(model), "graph") and column not in names and set(model.graph.names) >= {*names, column}:
        edges = dict.fromkeys(model.graph.parents(column), "latent -> column") | dict.fromkeys(model.graph.children(column), "column -> latent")
    seen = shown(model, part)
    joined = np.array([name in edges for name in names]) & seen
    best = int(np.where(joined if joined.any() else seen, associations, -1.0).argmax())
    sign = 1 if categorical or correlations[best] >= 0 else -1
    return Link(column, names[best], edges.get(names[best], ""), float(associations[best]), sign)


def shown(model: Model, split: Split, least: float | None = None) -> np.ndarray:
    """(n,) which latents a picture shows: exchanged between pictures, they change it by `least` or more of what the most visible one does."""
    least = LEAST_SHOWN if least is None else least
    z = ask(model, "encode", split[torch.arange(min(len(split), EXCHANGED))]).to(model.device)
    before, changes = model.decode(z), []
    for i in range(z.shape[1]):
        other = z.clone()
        other[:, i] = z[:, i].roll(1, 0)
        changes.append(float((model.decode(other) - before).square().mean()))
    return np.array(changes) >= least * max(changes)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """0 where one of them is constant."""
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0


def _between_categories(latent: np.ndarray, codes: np.ndarray) -> float:
    """Root of the share of the latent's variance that lies between the means of the categories; 0 where it is constant."""
    if latent.std() == 0:
        return 0.0
    present, place = np.unique(codes, return_inverse=True)
    means = np.array([latent[codes == code].mean() for code in present])
    return float(means[place].std() / latent.std())
