"""Every variable under every do(), with a simulator's truth, floor and doing nothing in each cell.

The protocol of Melistas et al. 2024 (counterfactual image benchmark): a model gets images and
their labels, do() sets a variable to the value of another test image. Its predictors are not the
only readers here, and what they read on true images stands beside what they read on answers.
Pixel differences are in grey levels, 0 to 255 (metrics that end in `_levels`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from intervae.data import Variable
from intervae.data.simulators.base import Simulator
from intervae.metrics.base import Measurement
from intervae.metrics.counterfactual import variable_distances
from intervae.metrics.image_similarity import as_float_images, pixel_mae
from intervae.metrics.variable_regressor import VariableRegressor

LEVELS = 255
SOURCES = ("doing_nothing", "true_picture")  # references of each cell


class Answer(NamedTuple):
    """Images (N, C, H, W) in [0, 1] after do(), and the labels (N, n) that belong to them."""

    images: np.ndarray
    labels: np.ndarray


# images, labels (N, n), do -> answer
LabelledQuery = Callable[[np.ndarray, np.ndarray, dict[str, Any]], Answer]


@dataclass(frozen=True)
class TrueCounterfactuals:
    """Test images, a do() of each variable, and the simulator's images and values under it.

    Arguments:
        images: (N, C, H, W) uint8.
        labels: (N, n).
        interventions: name -> (N,) values.
        pictures: name -> images (N, C, H, W) uint8 under do(name).
        values: name -> variables (N, n) under do(name).
        without_true_image: variables whose do() has no unique true image.
    """

    variables: tuple[Variable, ...]
    images: np.ndarray
    labels: np.ndarray
    interventions: Mapping[str, np.ndarray]
    pictures: Mapping[str, np.ndarray]
    values: Mapping[str, np.ndarray]
    without_true_image: tuple[str, ...]


def other_values(
    variables: Sequence[Variable], labels: np.ndarray, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return for each variable and row the value of another row, every row's value once."""
    rng, draws = np.random.default_rng(seed), {}
    for variable, column in zip(variables, labels.T, strict=True):
        order = rng.permutation(len(column))
        draws[variable.name] = np.empty(len(column))
        draws[variable.name][order] = column[np.roll(order, 1)]
    return draws


def true_counterfactuals(
    simulator: Simulator,
    images: np.ndarray,
    labels: np.ndarray,
    exogenous: np.ndarray,
    *,
    seed: int = 0,
    variables: Sequence[Variable] = (),
) -> TrueCounterfactuals:
    """Render the truth of do(v = value of another image), for each variable v.

    Arguments:
        images: (N, C, H, W) uint8, rendered from `exogenous` (N, e).
        variables: those of the data, with their scale; by default the simulator's.
    """
    variables = tuple(variables or simulator.variables)
    interventions = other_values(variables, np.asarray(labels, dtype=np.float64), seed)
    pictures, values = {}, {}
    for name, value in interventions.items():
        pictures[name], values[name] = simulator.counterfactual(
            exogenous, {name: value}, size=images.shape[-1]
        )
    return TrueCounterfactuals(
        variables,
        images,
        np.asarray(labels, dtype=np.float64),
        interventions,
        pictures,
        values,
        simulator.without_true_image,
    )


def cycle_errors(
    query: LabelledQuery,
    truth: TrueCounterfactuals,
    *,
    cycles: Sequence[int] = (1, 10),
    undo_cycles: Sequence[int] | None = None,
) -> list[Measurement]:
    """Return the error of repeated do({}), and of repeated do and undo, after m cycles.

    Arguments:
        undo_cycles: numbers of do and undo; those of do({}) by default.

    Returns:
        composition_m_levels: mean |x' - x| after m times do({}).
        reversibility_m_levels: per variable v, the same after m times do(v = value of another
            image) and do(v = its own value); the headline is the mean over variables.
    """
    undo_cycles = cycles if undo_cycles is None else undo_cycles
    own = dict(zip((v.name for v in truth.variables), truth.labels.T, strict=True))
    null = _repeat(query, truth, [{}], cycles)
    undone = {
        name: _repeat(query, truth, [{name: values}, {name: own[name]}], undo_cycles)
        for name, values in truth.interventions.items()
    }
    n = len(truth.images)
    composition = [_pixels(f"composition_{m}_levels", {"": null[m]}, n, cycles=m) for m in cycles]
    return composition + [
        _pixels(
            f"reversibility_{m}_levels",
            {name: errors[m] for name, errors in undone.items()},
            n,
            cycles=m,
        )
        for m in undo_cycles
    ]


def answers_to_all(query: LabelledQuery, truth: TrueCounterfactuals) -> dict[str, np.ndarray]:
    """Return the images (N, C, H, W) in [0, 1] of the answers to the do() of each variable."""
    return {
        name: as_float_images(query(truth.images, truth.labels, {name: values}).images)
        for name, values in truth.interventions.items()
    }


def true_picture_errors(
    answers: Mapping[str, np.ndarray], truth: TrueCounterfactuals
) -> Measurement:
    """Return `counterfactual_pixel_mae_levels` of do() with a unique true image.

    The parameter `doing_nothing` has that of the unchanged images.
    """
    names = [name for name in answers if name not in truth.without_true_image]

    def errors(images: Callable[[str], np.ndarray]) -> dict[str, float]:
        return {
            name: LEVELS * float(pixel_mae(images(name), truth.pictures[name]).mean())
            for name in names
        }

    model, nothing = errors(lambda name: answers[name]), errors(lambda name: truth.images)
    return _pixels(
        "counterfactual_pixel_mae_levels",
        model,
        len(truth.images),
        doing_nothing={"value": float(np.mean(list(nothing.values()))), **nothing},
    )


class CellReader:
    """Reads variables on the references of each cell once, then on the answers of any model.

    Arguments:
        regressor: reads some of the variables.
        suffix: last part of the metrics' names, such as `_morphometry`.
    """

    def __init__(
        self, regressor: VariableRegressor, truth: TrueCounterfactuals, *, suffix: str = ""
    ) -> None:
        self.regressor, self.truth, self.suffix = regressor, truth, suffix
        names = [v.name for v in truth.variables]
        self.columns = [names.index(name) for name in regressor.names]
        unchanged = regressor(truth.images)
        self.references = {
            "doing_nothing": self._distances(dict.fromkeys(truth.pictures, unchanged)),
            "true_picture": self._distances(
                {name: regressor(images) for name, images in truth.pictures.items()}
            ),
        }

    def effectiveness(self, answers: Mapping[str, np.ndarray]) -> list[Measurement]:
        """Compare what is read on answers with the simulator's values under the same do().

        Cells are named `do(v) w`: the variable w under do(v).

        Returns (only for kinds of variables that occur):
            effectiveness_error: mean |read - true| in units of w; the headline is the mean over
                cells in standard deviations.
            effectiveness_accuracy: fraction of the classes read as the true one.
        """
        model = self._distances({name: self.regressor(x) for name, x in answers.items()})
        variables = [self.truth.variables[i] for i in self.columns]
        measurements = []
        for kind, continuous in (("error", True), ("accuracy", False)):
            chosen = [v for v in variables if (v.kind == "continuous") == continuous]
            if chosen:
                name = f"effectiveness_{kind}{self.suffix}"
                measurements.append(self._measurement(name, model, chosen, continuous))
        return measurements

    def _distances(self, readings: Mapping[str, np.ndarray]) -> dict[tuple[str, str], float]:
        """Return (do, variable) -> mean distance of readings (N, m) to the true values."""
        result: dict[tuple[str, str], float] = {}
        for do, values in readings.items():
            true = self.truth.values[do][:, self.columns]
            distances = variable_distances(self.regressor.variables, values, true).mean(0)
            result |= {
                (do, name): float(value)
                for name, value in zip(self.regressor.names, distances, strict=True)
            }
        return result

    def _measurement(
        self,
        metric: str,
        model: Mapping[tuple[str, str], float],
        variables: Sequence[Variable],
        continuous: bool,
    ) -> Measurement:
        def cells(distances: Mapping[tuple[str, str], float]) -> tuple[dict[str, float], float]:
            scores, scaled = {}, []
            for v in variables:
                for do in self.truth.pictures:
                    distance = distances[do, v.name]
                    scores[f"do({do}) {v.name}"] = distance if continuous else 1 - distance
                    scaled.append(distance / v.std if continuous else 1 - distance)
            return scores, float(np.mean(scaled))

        scores, headline = cells(model)
        references = {}
        for source in SOURCES:
            values, mean = cells(self.references[source])
            references[source] = {"value": mean, **values}
        over = "mean over cells" + (" of error / standard deviation" if continuous else "")
        return Measurement(
            metric,
            headline,
            len(self.truth.images),
            scores,
            parameters={"headline": over, **references},
            higher_is_better=not continuous,
        )


def _repeat(
    query: LabelledQuery,
    truth: TrueCounterfactuals,
    steps: Sequence[dict[str, Any]],
    times: Sequence[int],
) -> dict[int, float]:
    """Apply `steps` max(times) times; return mean |image - first| in levels after each count."""
    errors, current = {}, Answer(truth.images, truth.labels)
    for m in range(1, max(times) + 1):
        for do in steps:
            current = query(current.images, current.labels, do)
        if m in times:
            errors[m] = LEVELS * float(pixel_mae(current.images, truth.images).mean())
    return errors


def _pixels(metric: str, errors: Mapping[str, float], n: int, **parameters: Any) -> Measurement:
    """Return the mean of errors in levels; those with a name stand beside it."""
    return Measurement(
        metric,
        float(np.mean(list(errors.values()))),
        n,
        {name: value for name, value in errors.items() if name},
        parameters={"unit": "grey levels, 0 to 255", **parameters},
        higher_is_better=False,
    )
