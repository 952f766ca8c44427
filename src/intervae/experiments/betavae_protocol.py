"""Details of the beta-VAE metric's protocol, changed one at a time (Higgins et al. 2017)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from intervae import figures
from intervae.data.readers.dsprites import RENDERED_AGAIN, DspritesGrid
from intervae.experiments.base import Experiment, MetricKey, Numbers
from intervae.experiments.betavae import BETA_VAE_METRIC, FACTORS, GridSimulator
from intervae.experiments.grid_codes import GridCodes
from intervae.experiments.jobs import Train
from intervae.metrics.factor_sampling import SimulatorSampler
from intervae.metrics.pair_points import (
    AdagradClassifier,
    Difference,
    PairPoints,
    absolute_difference,
    pair_points,
)

METRIC = "beta_vae_score"
HEART = 2  # class of the shape
DIFFERENCES: dict[str, Difference] = {
    "absolute": absolute_difference,
    "squared": lambda first, second: (first - second) ** 2,
    "signed": np.subtract,
}


@dataclass(frozen=True)
class Points:
    """How the points are drawn.

    Arguments:
        batch: pairs per point.
        training: training points; test points are half as many.
        factors: that pairs share and the classifier predicts.
        shape: class of the shape of all images; None for random shapes.
        halved: whether only the lower half of each factor's values is drawn.
        difference: of the codes of a pair, a name in DIFFERENCES.
        posterior: "mean" or "sample", the code of an image.
    """

    batch: int = 64
    training: int = 10_000
    factors: tuple[str, ...] = FACTORS
    shape: int | None = None
    halved: bool = False
    difference: str = "absolute"
    posterior: str = "mean"


@dataclass(frozen=True)
class Protocol:
    """A protocol of the metric; without changes, that of `metrics.beta_vae_score`.

    Arguments:
        standardised: whether each code's distances have unit variance over the training points.
        own_scale: whether codes have the scale of `own_scale` instead of unit variance.
        steps: Adagrad steps of the classifier; 0 for a converged logistic regression.
    """

    points: Points = Points()
    standardised: bool = True
    own_scale: bool = False
    steps: int = 0


OURS, GUESS = "ours", "Adagrad, own scale, not standardised"
_LONG = f"{GUESS}, 100,000 steps"
_ADAGRAD = Protocol(steps=10_000)
_GUESS = replace(_ADAGRAD, own_scale=True, standardised=False)
_FACTORS_AND_SHAPE = ("shape", *FACTORS)
PROTOCOLS: dict[str, Protocol] = {
    OURS: Protocol(),
    "10 pairs per point": Protocol(Points(batch=10)),
    "200 pairs per point": Protocol(Points(batch=200)),
    "500 training points": Protocol(Points(training=500)),
    "hearts only": Protocol(Points(shape=HEART)),
    "shape as a fifth factor": Protocol(Points(factors=_FACTORS_AND_SHAPE)),
    "lower half of the values": Protocol(Points(halved=True)),
    "squared differences": Protocol(Points(difference="squared")),
    "signed differences": Protocol(Points(difference="signed")),
    "posterior samples": Protocol(Points(posterior="sample")),
    "not standardised": Protocol(standardised=False),
    "own scale, not standardised": Protocol(standardised=False, own_scale=True),
    "Adagrad": _ADAGRAD,
    "Adagrad, not standardised": replace(_ADAGRAD, standardised=False),
    GUESS: _GUESS,
    f"{GUESS}, 1,000 steps": replace(_GUESS, steps=1000),
    _LONG: replace(_GUESS, steps=100_000),
    f"{GUESS}, 200 pairs": replace(_GUESS, points=Points(batch=200)),
}
_OF_VAES_ONLY = ("posterior samples",)
_LINEAR = tuple(name for name in PROTOCOLS if name not in _OF_VAES_ONLY)
_CLASSIFIERS = (OURS, "not standardised", "Adagrad", "Adagrad, not standardised", GUESS)


@dataclass(frozen=True)
class ProtocolJob(Train):
    """Train a representation on dSprites and score it by several protocols.

    Arguments:
        protocols: names in PROTOCOLS; they are the parts of the numbers.
        share: fraction of the usual number of points, for representations of many codes.
    """

    protocols: tuple[str, ...] = _LINEAR
    share: float = 1.0

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        grid = data.grid
        assert isinstance(grid, DspritesGrid)
        codes = GridCodes(grid, seed)
        if self.model != "ground-truth":
            model, _ = self.train(data, seed, device, folder)
            codes = GridCodes(grid.to(device), seed, model)
        drawn: dict[Points, tuple[PairPoints, PairPoints]] = {}
        numbers: Numbers = {}
        for name in self.protocols:
            protocol = PROTOCOLS[name]
            if protocol.points not in drawn:
                drawn[protocol.points] = self.draw(codes, protocol.points, seed)
            accuracy = accuracy_of(protocol, *drawn[protocol.points], codes.own_scale, seed)
            numbers[MetricKey(METRIC, name)] = accuracy
        return numbers

    def draw(self, codes: GridCodes, points: Points, seed: int) -> tuple[PairPoints, PairPoints]:
        """Return training and test points."""
        simulator = GridSimulator(
            codes.grid, seed, points.factors, shape=points.shape, halved=points.halved
        )
        represent = codes.draw if points.posterior == "sample" else codes.represent
        sampler = SimulatorSampler(
            represent, simulator.rows, simulator.draw, points.factors, None, 4096, seed
        )
        training = max(2, round(self.share * points.training))
        difference = DIFFERENCES[points.difference]
        counts = ((training, 3), (-(-training // 2), 4))
        first, second = (
            pair_points(sampler, points.batch, count, np.random.default_rng([seed, k]), difference)
            for count, k in counts
        )
        return first, second


def accuracy_of(
    protocol: Protocol, training: PairPoints, test: PairPoints, own_scale: Any, seed: int
) -> float:
    """Return the accuracy on the test points of a classifier fitted on the training points."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    factor: Any = own_scale if protocol.own_scale else 1.0
    if protocol.standardised:
        factor = 1 / np.maximum(training.distances.std(0), np.finfo(np.float64).tiny)
    classifier: Any = LogisticRegression(max_iter=1000)
    if protocol.steps:
        classifier = AdagradClassifier(protocol.steps, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        classifier.fit(training.distances * factor, training.shared)
    return float((classifier.predict(test.distances * factor) == test.shared).mean())


# ---- the experiment ------------------------------------------------------------------------------
def _paper(score: float) -> dict[str, float]:
    return {f"{METRIC}|{name}": score for name in (OURS, GUESS)}


_SMALL: dict[str, Any] = {
    "latents": 10,
    "channels": (16, 16, 32, 32),
    "hidden": 128,
    "batch_size": 128,
    "epochs": 8,
    "learning_rate": 2e-3,
}
_DOWNSAMPLED: dict[str, Any] = {"file": "downsampled"}
_VAE_PROTOCOLS = (*_CLASSIFIERS, _LONG, "200 pairs per point", "posterior samples")


def _job(
    model: str,
    score: float | None,
    settings: Mapping[str, Any],
    variant: str = "",
    options: Mapping[str, Any] | None = None,
    **changes: Any,
) -> ProtocolJob:
    paper = {} if score is None else _paper(score)
    return ProtocolJob(
        "dsprites",
        model,
        options or {},
        settings,
        variant,
        paper,
        paper_differs=RENDERED_AGAIN,
        **changes,
    )


_FULL_SIZE = tuple(
    replace(
        _job(job.model, job.paper[METRIC], job.settings, "full size"),
        training=job.training,
        protocols=_VAE_PROTOCOLS,
    )
    for job in BETA_VAE_METRIC.jobs
    if job.model in ("untrained-vae", "vae", "beta-vae")
)
_JOBS = (
    _job("ground-truth", 1.0, {}),
    _job("pca", 0.849, {"latents": 10}),
    _job("ica", 0.4203, {"latents": 10}),
    _job("pca", None, {"latents": 32}, "32 components", protocols=(OURS, GUESS), seeds=1),
    _job("ica", None, {"latents": 32}, "32 components", protocols=(OURS, GUESS), seeds=1),
    _job("raw-pixels", 0.4575, {}, protocols=(OURS, "Adagrad", GUESS), share=0.3, seeds=1),
    *(
        _job(model, None, settings, "small", _DOWNSAMPLED, protocols=_VAE_PROTOCOLS, seeds=seeds)
        for model, settings, seeds in (
            ("untrained-vae", {"latents": 10, "network": "mlp-1200"}, 3),
            ("vae", _SMALL, 1),
            ("beta-vae", {**_SMALL, "beta": 4.0}, 1),
        )
    ),
)


def draw_scores(path: Path, rows: Any) -> None:
    """Draw a grid of scores, a row per protocol and a column per representation."""
    scores = {
        (row["part"], f"{row['model']} {row['variant']}".strip()): row["mean"]
        for row in rows
        if row["metric"] == METRIC and row["part"]
    }
    papers = {
        ("paper", f"{row['model']} {row['variant']}".strip()): row["paper"]
        for row in rows
        if row["metric"] == METRIC and "paper" in row
    }
    columns = list(dict.fromkeys(column for _, column in scores))
    lines = [name for name in PROTOCOLS if any(name == part for part, _ in scores)]
    numbers = scores | papers
    grid = figures.NumberGrid(
        METRIC.replace("_", " "),
        [*lines, *(["paper"] if papers else [])],
        columns,
        [
            [numbers.get((line, column)) for column in columns]
            for line in [*lines, *(["paper"] if papers else [])]
        ],
    )
    figures.number_grids(path, [grid], title="The beta-VAE metric by its protocol")


BETA_VAE_PROTOCOL = Experiment(
    "betavae-protocol",
    "Details of the beta-VAE metric's protocol",
    (*_JOBS, *_FULL_SIZE),
    seeds=3,
    shown=(METRIC,),
    notes=("betavae-protocol",),
    by_part=METRIC,
    figure=draw_scores,
    quick=tuple(
        replace(
            _job(model, None, settings, "", _DOWNSAMPLED, protocols=_CLASSIFIERS),
            share=0.1,
        )
        for model, settings in (
            ("ground-truth", {}),
            ("pca", {"latents": 10, "fitted_on": 5000}),
            ("ica", {"latents": 10, "fitted_on": 5000}),
        )
    ),
)
