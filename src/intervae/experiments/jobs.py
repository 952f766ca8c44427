"""Jobs of several experiments: train and evaluate a model, or discover a graph of the labels."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intervae.data import Dataset, load_data
from intervae.discovery import discover
from intervae.evaluation import METRICS, evaluate, write_evaluation
from intervae.evaluation.context import Context
from intervae.experiments.base import Job, MetricKey, Numbers
from intervae.files import write_json
from intervae.metrics.base import Measurement
from intervae.metrics.interventions import GROUPS
from intervae.models import create
from intervae.models.base import Model
from intervae.models.storage import load_model
from intervae.report import write_figures
from intervae.training import fit
from intervae.training.seeds import fit_stack

# references that are recorded
COMPARED = ("doing_nothing", "decoder_alone", "reconstruction", "true_picture", "real_pictures")
FIT_OPTIONS = {"checkpoint_seconds": 60, "tensorboard": False}
_LOADING = threading.Lock()


@dataclass(frozen=True)
class Train(Job):
    """Train a model, evaluate it on the test split and draw its figures.

    An interrupted run is resumed.

    Arguments:
        metrics: names of metrics to evaluate; without any, all that apply.
    """

    metrics: tuple[str, ...] = ()

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        model, seconds = self.train(data, seed, device, folder)
        context = Context(model, data)
        metrics = [name for name in self.metrics if METRICS[name].applies(context)]
        measurements = evaluate(model, data, metrics)
        write_evaluation(folder, measurements)
        write_figures(model, data, folder)
        return {"train_seconds": seconds, **measured_numbers(measurements)}

    def check(self) -> None:
        self.load()

    def load(self) -> Dataset:
        """Return the data; jobs with the same data share one copy."""
        return load_shared(self.data, self.options)

    def train(self, data: Dataset, seed: int, device: str, folder: Path) -> tuple[Model, float]:
        """Return the trained model, loaded from its run folder, and the seconds of training."""
        model = create(self.model, data, **self.settings)
        resume = (folder / "config.json").is_file()
        options = {**FIT_OPTIONS, **self.training}
        result = fit(model, data, seed=seed, out=folder, device=device, resume=resume, **options)
        return load_model(folder, device), result.seconds

    @property
    def trains_stacks(self) -> bool:
        """Whether `run` trains the model of each seed on the data of `load`, as it does here."""
        return type(self).run is Train.run

    def train_stack(
        self, runs: Mapping[int, Path], device: str, notify: Callable[[str], None]
    ) -> None:
        data = self.load()
        fit_stack(
            [create(self.model, data, **self.settings) for _ in runs],
            data,
            list(runs),
            list(runs.values()),
            device=device,
            resume=True,
            stack=True,
            required=True,
            notify=notify,
            **{**FIT_OPTIONS, **self.training},
        )


def measured_numbers(measurements: Sequence[Measurement]) -> Numbers:
    """Return headlines, values per variable and references of measurements."""
    numbers: Numbers = {}
    for m in measurements:
        numbers[m.metric] = m.value
        if "by_chance" in m.parameters:
            numbers[f"{m.metric}_by_chance"] = m.parameters["by_chance"]["value"]
            numbers[f"{m.metric}_images"] = float(m.n)
        for name, value in m.per_variable.items():
            numbers[MetricKey(m.per_variable_metric, name)] = value
        numbers |= _compared(m)
    return numbers


def _compared(m: Measurement) -> Numbers:
    """Return the means over causes and effects, and references, of a counterfactual metric.

    Doing nothing, reconstructions and true pictures have the names METRIC_doing_nothing, ..., also
    for each variable; means over causes METRIC_causes, METRIC_causes_doing_nothing, ....
    """
    numbers: Numbers = {}
    present = [key for key in COMPARED if key in m.parameters]
    for group in [group for group in GROUPS if group in m.parameters]:
        means = m.parameters[group]
        numbers[f"{m.metric}_{group}"] = means["value"]
        numbers |= {f"{m.metric}_{group}_{key}": means[key] for key in present}
    for key in present:
        values = m.parameters[key]
        numbers[f"{m.metric}_{key}"] = values["value"]
        names = [name for name in m.per_variable if name in values]
        numbers |= {MetricKey(f"{m.metric}_{key}", name): values[name] for name in names}
    return numbers


def load_shared(name: str, options: Mapping[str, Any]) -> Dataset:
    """Return a data set; calls with the same options share one copy."""
    with _LOADING:
        return _load(name, json.dumps(dict(options), sort_keys=True))


@functools.lru_cache(maxsize=6)
def _load(name: str, options: str) -> Dataset:
    return load_data(name, **json.loads(options))


@dataclass(frozen=True)
class Discover(Job):
    """Discover the graph of the labels; `model` is a method, each seed samples its own rows."""

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = load_data(self.data, **{**self.options, "size": 8, "seed": seed})
        assert data.graph is not None
        labels = data.train.labels.numpy()
        result = discover(labels, self.model, names=data.names, seed=seed, **self.settings)
        write_json(folder / "graph.json", result.graph.to_json())
        return {"shd": float(data.graph.shd(result.graph)), "seconds": result.seconds}
