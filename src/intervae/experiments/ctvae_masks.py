"""CT-VAE (Gendron et al. 2023, Fig. 6): masks and graphs that close, against the accuracies.

intervae reproduce ctvae-masks [--quick]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intervae.data import Dataset
from intervae.evaluation import evaluate
from intervae.experiments.base import Experiment, MetricKey, Numbers
from intervae.experiments.ctvae import SETTINGS, options_of
from intervae.experiments.ctvae_glossary import GLOSSARY
from intervae.experiments.ctvae_measures import mask_selectivity
from intervae.experiments.jobs import FIT_OPTIONS, Train
from intervae.models import create
from intervae.models.base import Model
from intervae.report import write_figures
from intervae.training import fit

EDGE_SHARES = (0.02, 0.05, 0.1, 0.2)  # largest mean fractions of open edges
_METRICS = (
    "action_accuracy",
    "factor_accuracy",
    "majority_accuracy",
    "factor_majority_accuracy",
    "mask_auc",
    "mask_balanced",
    "change_auc",
    "mask_open",
    "codes_changed",
    "edges_open",
    "train_seconds",
)


@dataclass(frozen=True)
class TrainSparseGraphs(Train):
    """Train without sparse epochs, then continue once for each share of open edges, if `sparse`.

    The numbers of the first model have no part; those of a continued one have its share as part.

    Arguments:
        sparse: settings of the sparse epochs.
        shares: values of `edge_share`.
    """

    sparse: Mapping[str, Any] = field(default_factory=dict)
    shares: tuple[float, ...] = EDGE_SHARES

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        model, seconds = self.train(data, seed, device, folder)
        numbers = _measure(model, data, seed) | {"train_seconds": seconds}
        for share in self.shares if self.sparse else ():
            out = folder / f"edges-{share}"
            sparse, more = self._continue(model, data, share, seed, device, out)
            for key, value in (_measure(sparse, data, seed) | {"train_seconds": more}).items():
                numbers[MetricKey(str(key), str(share))] = value
            if share == self.shares[-1]:
                write_figures(sparse, data, folder)
        return numbers

    def _continue(
        self, model: Model, data: Dataset, share: float, seed: int, device: str, out: Path
    ) -> tuple[Model, float]:
        """Return the model after its sparse epochs, and their seconds."""
        changes = {"edge_share": share, "epochs": 0, "transition_epochs": 0, "decoder_epochs": 0}
        sparse = create(self.model, data, **{**self.settings, **self.sparse, **changes})
        sparse.initialise(seed)
        sparse.load_state_dict({**sparse.state_dict(), **model.state_dict()})
        sparse.trained = True  # keeps these weights
        result = fit(
            sparse,
            data,
            seed=seed,
            out=out,
            device=device,
            overwrite=True,
            **{**FIT_OPTIONS, **self.training},
        )
        return sparse, result.seconds


def _measure(model: Model, data: Dataset, seed: int) -> Numbers:
    """Return accuracies of actions and factors, and how well masks locate changes."""
    wanted = [m for m in evaluate(model, data, ["actions"]) if m.metric in _METRICS]
    numbers: Numbers = {m.metric: m.value for m in wanted}
    return numbers | mask_selectivity(model, data, seed)


def _draw(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    from intervae.figures import curves_over_parameter

    job = rows[0]["data"]
    curves_over_parameter(
        path,
        [row for row in rows if row["data"] == job and row["variant"].startswith("action masked")],
        panels={
            "Accuracy": {"action_accuracy": "action", "factor_accuracy": "factor"},
            "Masks": {"mask_auc": "mask AUC", "mask_balanced": "mask, balanced accuracy"},
            "Open": {"edges_open": "edges", "mask_open": "masks", "codes_changed": "true changes"},
        },
        across="largest mean fraction of open edges",
        title=f"Sparse graphs of CT-VAE on {job}",
    )


_SMALL = {
    "seed": 5,
    "size": 16,
    "levels": [4, 4, 4, 3, 3, 3],
    "transitions": {"draws": 1000, "train_draws": 0},
}
_SMALL_SETTINGS = {
    "codes": 64,
    "features": 32,
    "patch": 4,
    "filters": 32,
    "epochs": 15,
    "width": 64,
    "edge_width": 16,
    "causal_share": 1 / 16,
    "attribution_weight": 0.1,
    "transition_epochs": 6,
    "decoder_epochs": 0,
}


def _job(data: str, masked: bool) -> TrainSparseGraphs:
    settings = {**SETTINGS[data], "masked_action": masked, "decoder_epochs": 0}
    name = "action masked" if masked else "edges masked"
    sparse = {"sparse_epochs": settings["transition_epochs"]} if masked else {}
    training = {"precision": "tf32"}
    return TrainSparseGraphs(
        data, "ct-vae", options_of(data), settings, name, training=training, sparse=sparse
    )


def _small_job(masked: bool, sparse: Mapping[str, Any]) -> TrainSparseGraphs:
    settings = {**_SMALL_SETTINGS, "masked_action": masked}
    name = "action masked" if masked else "edges masked"
    return TrainSparseGraphs("shapes3d-like", "ct-vae", _SMALL, settings, name, sparse=sparse)


CTVAE_MASKS = Experiment(
    "ctvae-masks",
    "CT-VAE: sparse masks and graphs",
    tuple(_job(data, masked) for data in SETTINGS for masked in (False, True)),
    seeds=3,
    shown=_METRICS,
    notes=("ctvae-masks",),
    glossary={
        **GLOSSARY,
        "edges masked": "a mask chooses the edges of a variable (Eq. 4); the action reaches all",
        "action masked": "an action reaches only the variables whose mask is open",
    },
    columns=("action_accuracy", "factor_accuracy", "mask_auc", "mask_open", "edges_open"),
    figure=_draw,
    quick=(_small_job(False, {}), _small_job(True, {"sparse_epochs": 6})),
)
