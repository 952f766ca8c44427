"""Counterfactual images of binary variables, scored by a classifier that did not train the model.

Every image is asked for do(v = the other value), for each variable v. Composition and effectiveness
follow Monteiro et al. (2023); flips are what else the classifier then reads differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data import Variable
from intervae.errors import DataError
from intervae.metrics.axioms import composition, f1_score
from intervae.metrics.base import Measurement
from intervae.metrics.image_similarity import as_float_images, psnr
from intervae.metrics.interventions import MODEL, CounterfactualQuery, non_descendants
from intervae.metrics.variable_regressor import VariableRegressor

Scores = dict[str, float]
INTERVENTION = "do(variable = the value that the image does not have)"


class AttributeReadings(NamedTuple):
    """What a classifier reads, 0 or 1: (N, n), columns in the order of `names`."""

    names: tuple[str, ...]
    labels: np.ndarray
    original: np.ndarray
    reconstruction: np.ndarray  # the answer to do({})
    after: Mapping[str, np.ndarray]  # variable -> the answer to do(variable = the other value)


def counterfactual_attributes(
    query: CounterfactualQuery,
    images: Any,
    labels: np.ndarray,
    variables: Sequence[Variable],
    classifier: VariableRegressor,
    graph: CausalGraph,
) -> list[Measurement]:
    """Measure composition, effectiveness and flips of do(v = the other value).

    Arguments:
        query: function of (images, do) to counterfactual images in [0, 1].
        images: (N, C, H, W), uint8 or in [0, 1]; new to the model and to the classifier.
        labels: (N, n) values of the variables in these images, 0 or 1.
        classifier: reads all variables, see `fit_attribute_classifier`.
        graph: the model's graph over the variables.

    Returns:
        composition_1, composition_psnr: mean absolute error and PSNR of do({}).
        effectiveness_accuracy, effectiveness_f1: see `attribute_effectiveness`.
        attribute_flips, ...: see `attribute_flips`.
        predictor_...: quality of the classifier on these images as they are.
    """
    start, table = as_float_images(images), np.asarray(labels, dtype=np.float64)
    rebuilt = as_float_images(query(start, {}), "the answer to do({})")
    readings = read_attributes(query, start, table, variables, classifier, rebuilt)
    columns = [classifier.names.index(name) for name in readings.names]
    in_order = np.zeros((len(table), len(classifier.names)))
    in_order[:, columns] = table
    quality = classifier.quality(start, in_order, name="predictor")
    return [
        *composition(query, start, table, variables, times=(1,)),
        _composition_psnr(rebuilt, start),
        *attribute_effectiveness(readings),
        *attribute_flips(readings, graph),
        *quality,
    ]


def read_attributes(
    query: CounterfactualQuery,
    images: np.ndarray,
    labels: np.ndarray,
    variables: Sequence[Variable],
    classifier: VariableRegressor,
    reconstruction: np.ndarray,
) -> AttributeReadings:
    """Ask for do(v = the other value) of every variable, and read all answers."""
    names = tuple(v.name for v in variables)
    if set(names) != set(classifier.names):
        raise DataError(
            f"the classifier reads {', '.join(classifier.names)}, but the variables are "
            f"{', '.join(names)}; train it on the same ones."
        )
    if labels.shape != (len(images), len(names)) or not np.isin(labels, (0, 1)).all():
        raise DataError(
            f"labels must be 0 or 1 and ({len(images)}, {len(names)}), one row per image and one "
            f"column per variable, not {labels.shape} with other values or NaN."
        )
    columns = [classifier.names.index(name) for name in names]

    def read(pictures: Any) -> np.ndarray:
        return classifier(pictures)[:, columns]

    after = {
        name: read(as_float_images(query(images, {name: 1 - labels[:, i]}), f"do({name})"))
        for i, name in enumerate(names)
    }
    return AttributeReadings(names, labels, read(images), read(reconstruction), after)


def attribute_effectiveness(readings: AttributeReadings) -> list[Measurement]:
    """Compare what is read after do(v = the other value) with that value, for every v.

    Returns `effectiveness_accuracy` and `effectiveness_f1` (F1 of the value 1), both with the
    references, under their names in the parameters:
        doing_nothing: the untouched images, of which the classifier misreads some.
        real_pictures: what real images of the new values would score, from the fractions of either
            class that the classifier reads correctly in the untouched images; above it a model
            draws an attribute more clearly than pictures show it. A variable of which the images
            have only one value has no such reference.
    """
    scores: dict[str, dict[str, Scores]] = {
        "accuracy": {MODEL: {}, "doing_nothing": {}, "real_pictures": {}},
        "f1": {MODEL: {}, "doing_nothing": {}, "real_pictures": {}},
    }
    for i, name in enumerate(readings.names):
        own, before, after = (
            table[:, i] for table in (readings.labels, readings.original, readings.after[name])
        )
        for source, read in ((MODEL, after), ("doing_nothing", before)):
            scores["accuracy"][source][name] = float((read == 1 - own).mean())
            scores["f1"][source][name] = f1_score(read, 1 - own)
        if np.ptp(own) > 0:
            accuracy, f1 = _expected_scores(before, own)
            scores["accuracy"]["real_pictures"][name] = accuracy
            scores["f1"]["real_pictures"][name] = f1
    return [
        _measurement(f"effectiveness_{metric}", each, len(readings.labels), higher_is_better=True)
        for metric, each in scores.items()
    ]


def attribute_flips(readings: AttributeReadings, graph: CausalGraph) -> list[Measurement]:
    """Measure what do(v) must not change: the attributes w that are no descendants of v.

    The flips of w are the fraction of images in which w is read differently than in the original.

    Returns (nothing if every attribute is a descendant of every other):
        attribute_flips: per do(v), mean over w; the reference `reconstruction` is the same of
            do({}).
        attribute_flips_excess: the difference of the two.
        attribute_flips_worst, attribute_flips_excess_worst: per do(v), of the w with the largest;
            the headline is the largest of all, the parameter `attribute` names w.
    """
    column = {name: i for i, name in enumerate(readings.names)}
    rebuilt = (readings.reconstruction != readings.original).mean(0)
    flips, references = {}, {}
    for name in readings.names:
        fixed = [w for w in non_descendants(graph, name) if w in column]
        if fixed:
            changed = (readings.after[name] != readings.original).mean(0)
            flips[name] = {w: float(changed[column[w]]) for w in fixed}
            references[name] = {w: float(rebuilt[column[w]]) for w in fixed}
    if not flips:
        return []
    excess = {v: {w: x - references[v][w] for w, x in each.items()} for v, each in flips.items()}
    n = len(readings.labels)

    def mean(table: dict[str, Scores]) -> Scores:
        return {v: float(np.mean(list(each.values()))) for v, each in table.items()}

    return [
        _measurement(
            "attribute_flips",
            {MODEL: mean(flips), "reconstruction": mean(references)},
            n,
            higher_is_better=False,
            attributes=flips,
        ),
        _measurement(
            "attribute_flips_excess",
            {MODEL: mean(excess)},
            n,
            higher_is_better=False,
            attributes=excess,
        ),
        _worst("attribute_flips_worst", flips, n),
        _worst("attribute_flips_excess_worst", excess, n),
    ]


def _expected_scores(read: np.ndarray, own: np.ndarray) -> tuple[float, float]:
    """Accuracy and F1 of real images in which each image has the other value."""
    correct = [float((read == c)[own == c].mean()) for c in (0, 1)]  # fraction of each class
    ones = float((own == 0).mean())  # share of images whose new value is 1
    true_positives, false_positives = ones * correct[1], (1 - ones) * (1 - correct[0])
    either = true_positives + false_positives + ones
    accuracy = true_positives + (1 - ones) * correct[0]
    return accuracy, 2 * true_positives / either if either else 1.0


def _composition_psnr(rebuilt: np.ndarray, images: np.ndarray) -> Measurement:
    values = psnr(rebuilt, images)
    return Measurement(
        "composition_psnr",
        float(values.mean()),
        len(images),
        spread=float(values.std()),
        parameters={"null_interventions": 1, "headline": "do({})"},
        higher_is_better=True,
    )


def _measurement(
    metric: str, scores: dict[str, Scores], n: int, *, higher_is_better: bool, **parameters: Any
) -> Measurement:
    """Mean over variables, and the means of the references beside their scores."""
    means = {key: float(np.mean(list(each.values()))) for key, each in scores.items() if each}
    references = {
        key: {"value": mean, **scores[key]} for key, mean in means.items() if key != MODEL
    }
    return Measurement(
        metric,
        means[MODEL],
        n,
        scores[MODEL],
        parameters={"intervention": INTERVENTION, **references, **parameters},
        higher_is_better=higher_is_better,
    )


def _worst(metric: str, table: dict[str, Scores], n: int) -> Measurement:
    names = {v: max(each, key=lambda w: each[w]) for v, each in table.items()}
    largest = {v: table[v][w] for v, w in names.items()}
    return Measurement(
        metric,
        max(largest.values()),
        n,
        largest,
        parameters={"intervention": INTERVENTION, "attribute": names},
        higher_is_better=False,
    )
