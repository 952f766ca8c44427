"""CausalGAN beside CausalVAE and ConditionVAE under do() (CausalVAE, App. D.3 and Fig. 3)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from intervae import figures
from intervae.data import Dataset, Variable
from intervae.experiments.base import Experiment, MetricKey, Numbers
from intervae.experiments.jobs import Train
from intervae.metrics import fit_image_regressor, simulator_regressor
from intervae.models.base import Model
from intervae.report import write_figures

SHOWN_IMAGES = 8  # columns of a picture
NEEDS_GRAPH = ("causal-gan", "causal-vae")
FIGURES = ("interventions", "samples")  # of a run; pictures of faces are not published
PICTURES = tuple(
    f"pendulum-{model}-{figure}"
    for model in ("causal-vae", "condition-vae", "causal-gan")
    for figure in FIGURES
    if (model, figure) != ("causal-gan", "interventions")  # which has no encoder
)


@dataclass(frozen=True)
class SamplesUnderDo(Train):
    """Train with the known graph; measure samples under do() with a regressor of images.

    Arguments:
        samples: number of images of each intervention.
    """

    samples: int = 512

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        assert data.graph is not None
        known = {"graph": data.graph} if self.model in NEEDS_GRAPH else {}
        job = replace(self, settings={**self.settings, **known})
        model, seconds = job.train(data, seed, device, folder)
        write_figures(model, data, folder)
        draw_samples(model, data, folder / "figures" / "samples.png", seed)
        return {"train_seconds": seconds, **do_numbers(model, data, self.samples, seed)}


def do_values(variable: Variable, labels: np.ndarray) -> tuple[float, float]:
    """Return the two values of do(): the quartiles of labels (N,), or 0 and 1."""
    if variable.kind == "binary":
        return 0.0, 1.0
    low, high = np.quantile(labels, (0.25, 0.75))
    return float(low), float(high)


def label_regressor(data: Dataset) -> Callable[[Any], np.ndarray]:
    """Return a regressor of the labels of images.

    With a simulator it is fitted on pictures in which every label is set at random: from pictures
    of the data a regressor would learn to read effects off their causes.
    """
    if data.simulator is not None:
        return simulator_regressor(data.simulator, data.spec.image_shape[-1])[0]
    labels = data.train.labels.cpu().numpy()
    return fit_image_regressor(data.train.images, labels, data.variables)


def do_numbers(model: Model, data: Dataset, samples: int, seed: int) -> Numbers:
    """Compare samples under do() with what was set and with what the graph says.

    `do_error`: mean absolute error of the set variable, as measured in the samples;
    `effects_moved`, `others_moved`: absolute difference of the means of descendants, and of the
    other variables, between the two values; `true_...` of the simulator, where there is one. All
    in standard deviations of the labels.
    """
    assert data.graph is not None
    labels = data.train.labels.cpu().numpy()
    scale = labels.std(0)
    regressor = label_regressor(data)
    per_variable: dict[str, list[tuple[str, float]]] = {}
    for i, variable in enumerate(data.variables):
        values = do_values(variable, labels[:, i])
        measured, true = [], []
        for value in values:
            do = {variable.name: value}
            measured.append(regressor(model.sample(samples, do=do, seed=seed).cpu()))
            if data.simulator is not None:
                exogenous = data.test.fields["exogenous"].cpu().numpy()
                true.append(data.simulator.simulate(exogenous, do))
        error = [np.abs(m[:, i] - v).mean() for m, v in zip(measured, values, strict=True)]
        rows = [("do_error", float(np.mean(error) / scale[i]))]
        for prefix, pair in (("", measured), ("true_", true)):
            if pair:
                rows += _moved(prefix, pair, scale, data, variable.name)
        per_variable[variable.name] = rows
    numbers: Numbers = {}
    for name, rows in per_variable.items():
        numbers |= {MetricKey(metric, name): value for metric, value in rows}
    metrics = dict.fromkeys(metric for rows in per_variable.values() for metric, _ in rows)
    for metric in metrics:
        numbers[metric] = float(
            np.mean([v for rows in per_variable.values() for m, v in rows if m == metric])
        )
    return numbers


def _moved(
    prefix: str, pair: list[np.ndarray], scale: np.ndarray, data: Dataset, name: str
) -> list[tuple[str, float]]:
    """Return how far descendants and other variables moved; nothing for a group without any."""
    assert data.graph is not None
    moved = np.abs(pair[1].mean(0) - pair[0].mean(0)) / scale
    effects = set(data.graph.descendants(name)) & set(data.names)
    groups = {
        "effects_moved": [data.names.index(n) for n in data.names if n in effects],
        "others_moved": [data.names.index(n) for n in data.names if n not in effects and n != name],
    }
    return [(prefix + key, float(moved[rows].mean())) for key, rows in groups.items() if rows]


def draw_samples(model: Model, data: Dataset, path: Path, seed: int) -> None:
    """Draw samples with the same noise under do() on each variable, below those without do()."""
    labels = data.train.labels.cpu().numpy()
    rows = []
    for i, variable in enumerate(data.variables):
        value = do_values(variable, labels[:, i])[1]
        images = model.sample(SHOWN_IMAGES, do={variable.name: value}, seed=seed).cpu()
        rows.append(figures.InterventionRow(f"do({variable.name} = {value:.3g})", images, None))
    path.parent.mkdir(parents=True, exist_ok=True)
    figures.interventions(path, rows, model.sample(SHOWN_IMAGES, seed=seed).cpu())


def copy_figures(folders: Mapping[str, Path], stem: Path) -> None:
    """Copy the pictures of Pendulum's runs of the first seed; the keys are those of the jobs."""
    for name in PICTURES:
        key, _, figure = name.rpartition("-")
        source = folders[key] / "figures" / f"{figure}.png" if key in folders else None
        if source is not None and source.is_file():
            shutil.copyfile(source, stem.with_name(f"{stem.name}-{name}.png"))


def _jobs(
    data: tuple[tuple[str, dict[str, Any]], ...],
    settings: Mapping[str, Mapping[str, Any]],
    samples: int,
) -> tuple[SamplesUnderDo, ...]:
    return tuple(
        SamplesUnderDo(name, model, options, own, samples=samples)
        for name, options in data
        for model, own in settings.items()
    )


_COLUMNS = ("do_error", "effects_moved", "true_effects_moved", "others_moved", "true_others_moved")
SAMPLES_UNDER_DO = Experiment(
    "causalgan-do",
    "CausalGAN beside CausalVAE under do()",
    _jobs(
        (("pendulum", {"size": 64}), ("celeba", {"labels": "smile"})),
        {"causal-vae": {}, "condition-vae": {}, "causal-gan": {}},
        512,
    ),
    seeds=5,
    shown=(*_COLUMNS, "train_seconds"),
    notes=("causalgan-do",),
    columns=_COLUMNS,
    pictures=PICTURES,
    gather=copy_figures,
    quick=_jobs(
        (("pendulum", {"size": 16, "samples": 400}),),
        {
            "causal-vae": {"epochs": 2, "channels": (8, 8)},
            "condition-vae": {"epochs": 2, "channels": (8, 8)},
            "causal-gan": {
                "epochs": 2,
                "channels": (8, 16),
                "hidden": 32,
                "controller_epochs": 2,
                "batch_size": 32,
            },
        },
        64,
    ),
)
