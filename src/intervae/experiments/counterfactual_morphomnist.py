"""Counterfactuals of digits with a true answer: MorphoMNIST, every variable under every do().

intervae reproduce counterfactual-morphomnist [--only hvae] [--quick]

The protocol of Melistas et al. 2024 with its floor, doing nothing and the true picture beside
every number; see `intervae.evaluation.simulated_counterfactuals`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from intervae import figures
from intervae.data import Dataset
from intervae.evaluation import write_evaluation
from intervae.evaluation.simulated_counterfactuals import (
    PREDICTOR_IMAGES,
    answer,
    make_references,
    measure_counterfactuals,
)
from intervae.experiments.base import Experiment, Numbers
from intervae.experiments.jobs import Train, measured_numbers
from intervae.metrics.variable_networks import EPOCHS
from intervae.models.base import Model
from intervae.models.batches import spread_rows
from intervae.report import write_figures

SHEET_IMAGES = 8
TEST_DIGITS = 1000
# published numbers of the counterfactual image benchmark (2024), by metric and cell
_PUBLISHED_CELLS = {
    "vae": {
        "thickness": (0.109, 0.333, 0.139),
        "intensity": (3.15, 5.33, 4.64),
        "digit": (0.989, 0.988, 0.775),
    },
    "hvae": {
        "thickness": (0.086, 0.224, 0.117),
        "intensity": (1.99, 3.52, 2.10),
        "digit": (0.985, 0.935, 0.972),
    },
}
_PUBLISHED_CYCLES = {"vae": (2.60, 7.70), "hvae": (0.438, 1.55)}
_ACTED_ON = ("thickness", "intensity", "digit")  # columns of the published table


def published(picture: str) -> dict[str, float]:
    """Return metric (or `metric|cell`) -> number of the benchmark; its predictors are others."""
    numbers = dict(
        zip(
            ("composition_1_levels", "composition_10_levels"),
            _PUBLISHED_CYCLES[picture],
            strict=True,
        )
    )
    for variable, row in _PUBLISHED_CELLS[picture].items():
        metric = f"effectiveness_{'accuracy' if variable == 'digit' else 'error'}"
        cells = zip(_ACTED_ON, row, strict=True)
        numbers |= {f"{metric}|do({do}) {variable}": value for do, value in cells}
    return numbers


@dataclass(frozen=True)
class TrainOnDigits(Train):
    """Train on digits with the true graph, score counterfactuals, draw them beside the truth.

    Arguments:
        takes_graph: whether the model is given the graph.
        test_images: number of test digits.
        predictor_images, predictor_epochs: of the networks that read the variables.
    """

    takes_graph: bool = True
    test_images: int = TEST_DIGITS
    predictor_images: int = PREDICTOR_IMAGES
    predictor_epochs: int = EPOCHS

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        known = {"graph": data.graph} if self.takes_graph else {}
        job = replace(self, settings={**self.settings, **known})
        model, seconds = job.train(data, seed, device, folder)
        measurements = measure_counterfactuals(
            model,
            data,
            images=self.test_images,
            predictor_images=self.predictor_images,
            predictor_epochs=self.predictor_epochs,
        )
        write_evaluation(folder, measurements)
        write_figures(model, data, folder)
        draw_sheet(self, model, data, folder / "figures" / "counterfactuals-and-truth.png")
        return {"train_seconds": seconds, **measured_numbers(measurements)}


def draw_sheet(job: TrainOnDigits, model: Model, data: Dataset, path: Path) -> None:
    """Draw test digits, do({}), and each do() with the simulator's picture at its right."""
    truth = make_references(
        data,
        model.device,
        images=job.test_images,
        predictor_images=job.predictor_images,
        predictor_epochs=job.predictor_epochs,
    ).truth
    chosen = spread_rows(len(truth.images), SHEET_IMAGES)
    images, labels = truth.images[chosen], truth.labels[chosen]
    use_labels = model.counterfactual_takes_labels

    def pictures(do: Mapping[str, Any]) -> np.ndarray:
        return answer(model, images, labels, dict(do), use_labels=use_labels).images

    columns, heads = [images.astype(np.float32) / 255, pictures({})], ["picture", "do()"]
    for name, values in truth.interventions.items():
        columns.append(pictures({name: values[chosen]}))
        heads.append(f"do({name})")
        if name not in truth.without_true_image:
            columns.append(truth.pictures[name][chosen].astype(np.float32) / 255)
            heads.append("truth")
    rows = [
        figures.ClipRow(
            ", ".join(
                f"{v.name} {v.format_value(truth.interventions[v.name][row])}"
                for v in truth.variables
            ),
            np.stack([column[k] for column in columns]),
            generated=len(columns) - 1,
        )
        for k, row in enumerate(np.asarray(chosen))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    title = "Test digits under do() of the value named at the left, and what they should be"
    figures.clip_rows(path, rows, heads=heads, title=title)


# guidance, steps and share of noise were chosen on validation digits, after a training on a CPU
FLOW: dict[str, Any] = {
    "picture": "flow",
    "flow_widths": (32, 64),
    "flow_steps": 10,
    "flow_hidden_classes": 0.1,
    "flow_guidance": 1.5,
    "batch_size": 64,
    "learning_rate": 2e-3,
    "epochs": 12,
}
# for a GPU: wider, or with maps of full size
WIDE_FLOW: dict[str, Any] = {
    **FLOW,
    "flow_widths": (64, 128),
    "corrections": 1,
    "batch_size": 256,
    "epochs": 40,
}
LARGE_FLOW: dict[str, Any] = {
    **WIDE_FLOW,
    "flow_widths": (32, 64, 128),
    "patch": 1,
    "corrections": 2,
    "epochs": 32,
}
SMALL_HVAE: dict[str, Any] = {
    "picture": "hvae",
    "widths": (16, 32, 48, 64, 96),
    "layers": (1, 1, 1, 2, 1),
    "encoder_blocks": (1,),
    "batch_size": 32,
}
SHORT: dict[str, Any] = {"batch_size": 128, "epochs": 30}
TF32, BF16 = {"precision": "tf32"}, {"precision": "bf16"}


class DigitModel(NamedTuple):
    """A row of the table; see `TrainOnDigits`."""

    model: str
    settings: dict[str, Any]
    options: dict[str, Any] | None = None
    takes_graph: bool = True
    training: dict[str, Any] | None = None


MODELS: dict[str, DigitModel] = {
    "vae": DigitModel("deep-scm", {"picture": "vae", **SHORT}, training=TF32),
    "hvae": DigitModel("deep-scm", {**SMALL_HVAE, "epochs": 8}),
    "flow": DigitModel("deep-scm", FLOW),
    "flow 5 % labelled": DigitModel("deep-scm", FLOW, {"labelled": 0.05}),
    "wide flow": DigitModel("deep-scm", WIDE_FLOW, training=BF16),
    "large flow": DigitModel("deep-scm", LARGE_FLOW, training=BF16),
    "rest": DigitModel("causal-vae", {"rest": 16, **SHORT}, training=TF32),
    "rest, no graph": DigitModel(
        "condition-vae", {"rest": 16, **SHORT}, takes_graph=False, training=TF32
    ),
}


def _job(variant: str) -> TrainOnDigits:
    row = MODELS[variant]
    picture = row.settings.get("picture", "")
    return TrainOnDigits(
        "morpho-mnist",
        row.model,
        row.options or {},
        row.settings,
        variant.replace(",", ""),
        paper=published(picture) if picture in _PUBLISHED_CELLS and not row.options else {},
        training=row.training or {},
        takes_graph=row.takes_graph,
        paper_differs="the benchmark's MorphoMNIST; ours is made here from MNIST",
    )


_CELLS = tuple(
    f"effectiveness_{kind}{reference}"
    for kind in ("error", "error_morphometry", "accuracy")
    for reference in ("", "_doing_nothing", "_true_picture")
)

COUNTERFACTUAL_MORPHOMNIST = Experiment(
    "counterfactual-morphomnist",
    "Counterfactuals of digits with a true answer: MorphoMNIST",
    tuple(_job(variant) for variant in MODELS),
    seeds=5,
    shown=(
        "composition_1_levels",
        "composition_10_levels",
        "reversibility_1_levels",
        "counterfactual_pixel_mae_levels",
        "counterfactual_pixel_mae_levels_doing_nothing",
        *_CELLS,
        "minimality_variables",
        "predictor_error",
        "predictor_accuracy_min",
        "train_seconds",
    ),
    columns=(
        "composition_1_levels",
        "composition_10_levels",
        "counterfactual_pixel_mae_levels",
        "counterfactual_pixel_mae_levels_doing_nothing",
        "effectiveness_error_morphometry",
        "effectiveness_error_morphometry_doing_nothing",
        "effectiveness_accuracy",
    ),
    notes=("counterfactual-morphomnist",),
    pictures=("counterfactuals-and-truth",),
    quick=(
        replace(
            _job("hvae"),
            options={"samples": 12_000},
            settings={**SMALL_HVAE, "epochs": 7},
            test_images=500,
            predictor_images=6000,
            predictor_epochs=4,
        ),
    ),
)
