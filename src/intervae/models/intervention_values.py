"""Values of an intervention: what a picture showed, what do() set, and what the answer shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from intervae.causal.do import Do
from intervae.data import Spec, Variable
from intervae.data.support import SHARE, LabelSupport
from intervae.errors import abbreviate
from intervae.models.capabilities import HasGraph

NOT_SHOWN = 0.5  # standard deviations between a set value and the one that the picture shows
LISTED = 3  # values in a note


class InterventionValues(NamedTuple):
    """Values (B, n) of a model's variables around do(), in their own units.

    Arguments:
        before: read on the original pictures by the model.
        target: what do() and the mechanisms set.
        after: read on the counterfactual pictures by the model.
        moved: (B, n), variables whose value do() changed; all others are bit for bit the same.
    """

    names: tuple[str, ...]
    before: np.ndarray
    target: np.ndarray
    after: np.ndarray
    moved: np.ndarray


@torch.no_grad()
def intervention_values(
    model: Any, images: Any, do: Do, pictures: Any, labels: Any = None
) -> InterventionValues:
    """Measure the variables of images (B, C, H, W) and of their counterfactuals `pictures`.

    Arguments:
        model: one that has `measure` and `intervene`.
        labels: (B, n) that the counterfactual started from; without them it starts from what the
            model reads on the images.
    """
    start = model.encode(images, labels)
    latents = model.intervene(start, {k: v for k, v in do.items() if k in model.latent_names})

    def units(codes: torch.Tensor) -> np.ndarray:
        columns = [model.to_units(i, codes[:, i]) for i in range(codes.shape[1])]
        return torch.stack(columns, dim=1).cpu().numpy()

    return InterventionValues(
        tuple(model.latent_names),
        model.measure(images).cpu().numpy(),
        units(latents),
        model.measure(pictures).cpu().numpy(),
        (latents != start).any(-1).cpu().numpy(),
    )


def not_shown(values: InterventionValues, spec: Spec) -> np.ndarray:
    """Return (B, n): variables that do() moved and whose value the picture does not show."""
    scale = np.array(
        [spec.variable(name).std if name in spec.names else np.inf for name in values.names]
    )
    tolerance = np.where(
        [_is_discrete(spec, name) for name in values.names], 0.5, NOT_SHOWN * scale
    )
    return values.moved & (np.abs(values.after - values.target) > tolerance)


def not_shown_notes(values: InterventionValues, spec: Spec) -> list[str]:
    """Return a note for each variable that a picture does not show as it was set."""
    missing = not_shown(values, spec)
    if len(missing) == 1:
        return [
            f"do() sets {name} to {format_value(spec, name, values.target[0, i])}, but the picture "
            f"shows {format_value(spec, name, values.after[0, i])}, as the model reads it."
            for i, name in enumerate(values.names)
            if missing[0, i]
        ]
    return [
        f"{int(missing[:, i].sum())} of {len(missing)} pictures do not show the {name} that do() "
        "sets, as the model reads them."
        for i, name in enumerate(values.names)
        if missing[:, i].any()
    ]


def off_support(
    model: Any, values: InterventionValues, do: Iterable[str], support: LabelSupport | None
) -> np.ndarray:
    """Return (B,): whether do() leads to a combination of labels unlike the training data.

    Compared are the acted variables, their descendants and the parents of both. Readings that were
    as far from the training data before do() do not count.
    """
    names = related_variables(model, do)
    if support is None or not names:
        return np.zeros(len(values.before), dtype=bool)
    after, before = (
        support.distances(_label_columns(support.variables, values.names, table), names)
        for table in (values.target, values.before)
    )
    return after > np.maximum(support.limit(names), 2 * before)


def off_support_note(
    model: Any, values: InterventionValues, do: Iterable[str], support: LabelSupport | None
) -> list[str]:
    """Return the note on combinations that are off support, if there are any."""
    outside, names = off_support(model, values, do, support), related_variables(model, do)
    if support is None or not outside.any():
        return []
    table = _label_columns(support.variables, values.names, values.target)[outside]
    distance = float(support.distances(table, names).max())
    related, limit = abbreviate(names, LISTED), support.limit(names)
    start = (
        f"this combination of {related} is unlike the training data: the nearest row differs by"
        if len(outside) == 1
        else f"{outside.sum()} of {len(outside)} combinations of {related} are unlike the training "
        "data: the nearest row differs by up to"
    )
    return [
        f"{start} {distance:.2g} standard deviations, while {SHARE:.0%} of the rows have another "
        f"one within {limit:.2g}; the image extrapolates."
    ]


def related_variables(model: Any, do: Iterable[str]) -> list[str]:
    """Return the labels that do() concerns: those it names, their descendants, parents of both."""
    labels: tuple[str, ...] = model.spec.names
    acted = [name for name in do if name in labels]
    if not acted or not set(labels) <= set(model.latent_names):
        return []
    if not isinstance(model, HasGraph):
        return list(labels)
    graph = model.graph
    reached = {*acted, *(each for name in acted for each in graph.descendants(name))}
    reached |= {parent for name in tuple(reached) for parent in graph.parents(name)}
    return [name for name in labels if name in reached]


def format_value(spec: Spec, name: str, value: float, *, digits: int = 4) -> str:
    """Return a value as text: the category of a code, else a number."""
    categories = spec.categories.get(name, ())
    if float(value) in range(len(categories)):
        return categories[int(value)]
    return f"{value:.{digits}g}"


def _label_columns(
    variables: Sequence[Variable], names: Sequence[str], table: np.ndarray
) -> np.ndarray:
    """Return the columns of a table (B, n) over `names` that belong to the variables."""
    return table[:, [list(names).index(v.name) for v in variables]]


def _is_discrete(spec: Spec, name: str) -> bool:
    return name in spec.names and spec.variable(name).kind != "continuous"
