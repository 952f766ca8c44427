"""What a search compares: the validation loss of a run, or a metric on the validation split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from intervae.data import Dataset
from intervae.errors import TrainingError, UsageError, unknown
from intervae.evaluation import METRICS, evaluate
from intervae.models.base import Model
from intervae.models.phases import Phase

LOSS = "validation loss"


@dataclass(frozen=True)
class SearchObjective:
    """The number that a search compares.

    Arguments:
        metric: an entry of METRICS, or "" for the validation loss of the last phase.
    """

    metric: str = ""

    @property
    def name(self) -> str:
        return f"{self.metric} on the validation split" if self.metric else LOSS

    def check(self, model: Model) -> None:
        """Raise a UsageError for a model without such a number, before anything is trained."""
        if self.metric and self.metric not in METRICS:
            raise unknown("metric", self.metric, METRICS)
        phases = [phase for phase in model.phases() if phase.players]
        if not phases:
            raise UsageError(f"{model.name} is not trained in steps, so there is nothing to tune.")
        if not self.metric and len(phases[-1].players) > 1:
            raise UsageError(
                f"{model.name} is trained by {len(phases[-1].players)} players whose losses rank "
                "no settings; name what to compare with --metric."
            )

    def measure(
        self, model: Model, data: Dataset, history: Sequence[Mapping[str, Any]]
    ) -> tuple[float, bool]:
        """Return the number of a trained model and whether higher is better.

        Arguments:
            data: from `without_test`.
            history: lines of metrics.jsonl.
        """
        if not self.metric:
            return final_loss(model.phases(), history), False
        measurement = evaluate(model, data, [self.metric])[0]
        if measurement.higher_is_better is None:
            raise UsageError(f"neither more nor less of {self.metric} is better; name another.")
        if not math.isfinite(measurement.value):
            raise TrainingError(f"{self.metric} is {measurement.value} on the validation split.")
        return float(measurement.value), measurement.higher_is_better


def final_loss(phases: Sequence[Phase], history: Sequence[Mapping[str, Any]]) -> float:
    """Return the validation loss of the weights with which the last phase ended."""
    last = [phase for phase in phases if phase.players][-1]
    losses = [
        line["validation"]["loss"]
        for line in history
        if line["phase"] == last.name and "loss" in line.get("validation", {})
    ]
    if not losses:
        raise UsageError("no epoch was trained, so there is no validation loss to compare.")
    return float(min(losses) if last.keep_best else losses[-1])


def without_test(data: Dataset) -> Dataset:
    """Return the data with the validation split in the place of the test split.

    Whatever reads "the test split" of it, such as a metric, reads the validation split.
    """
    transitions = data.transitions
    if transitions is not None:
        transitions = replace(transitions, test=transitions.validation)
    return replace(data, test=data.validation, transitions=transitions)
