"""What supervised readers get from the images of CMCL's experiments: ceilings for its latents.

`cmcl-folded`: the true latents from images of `cross-modal` with the paper's transform (Mao et al.
2022, App. E.1, Table 1). `covid-readers`: COVID from X-rays, or their frame alone (sec. 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from intervae.data import Dataset, Split
from intervae.experiments.base import Experiment, Job, Numbers
from intervae.experiments.cmcl import DATA, FREE, QUICK_DATA, QUICK_GRAPH
from intervae.experiments.cmcl_jobs import load_world
from intervae.experiments.cmcl_score import EncodedSplits, latent_numbers, true_edges
from intervae.experiments.cmcl_xray import binary_scores
from intervae.experiments.jobs import load_shared
from intervae.metrics.attribute_classifier import fit_attribute_classifier

# ---- latents of simulated images -----------------------------------------------------------------
CELLS, TREES, WITH_TABLE = "cells", "boosted-trees", "boosted-trees + table"


@dataclass(frozen=True)
class ReadLatents(Job):
    """Read the true latents off test images; `model` is the reader.

    `cells` are the transformed latents by least squares, untrained. `boosted-trees` are regressions
    of each true latent on all of them, fitted on training and validation rows; `+ table` also on
    the columns.

    Arguments:
        first_seed: simulator and rows of seed k use first_seed + k, as in the tables.
    """

    first_seed: int = 100

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = load_world(self.data, self.options, seed + self.first_seed)
        read = self.read(data)
        order = list(range(read.test.shape[1]))
        mic = latent_numbers(read, data, (order, order), seed)
        linked, true = [edge.latent for edge in true_edges(data)], data.test.fields["latents"]
        ranks = [
            abs(float(scipy.stats.spearmanr(read.test[:, j], true[:, j]).statistic)) for j in linked
        ]
        metrics = ("mic_linked", "mic_all", "mic_by_chance", "mic_true_column", "test_rows")
        return {**{name: mic[name] for name in metrics}, "rank_correlation": float(np.mean(ranks))}

    def read(self, data: Dataset) -> EncodedSplits:
        """Return what the reader says of the latents of training and test images."""
        inputs = [_inputs(data, split, self.model) for split in (data.train, data.test)]
        if self.model == CELLS:
            return EncodedSplits(*inputs)
        from sklearn.ensemble import HistGradientBoostingRegressor

        fitting = np.vstack([inputs[0], _inputs(data, data.validation, self.model)])
        targets = np.vstack([s.fields["latents"].numpy() for s in (data.train, data.validation)])
        models = [
            HistGradientBoostingRegressor(max_iter=60, random_state=0).fit(fitting, target)
            for target in targets.T
        ]
        return EncodedSplits(*(np.stack([m.predict(x) for m in models], 1) for x in inputs))


def _inputs(data: Dataset, split: Split, reader: str) -> np.ndarray:
    cells = data.simulator.read_cells(split.images)  # type: ignore[union-attr]
    return np.hstack([cells, split.labels.numpy()]) if reader == WITH_TABLE else cells


def _read(reader: str, graph: str, variant: str, **options: Any) -> ReadLatents:
    return ReadLatents(
        "cross-modal", reader, {**DATA, "graph": graph, **options}, variant=f"{graph} {variant}"
    )


GRAPHS = ("8/16", "10/20")  # of the rows of Table 1 with the paper's transform
LESS_NOISE = (0.03, 0.01)  # after the transform; the paper does not print it, ours is 0.1
QUICK_OPTIONS = {**QUICK_DATA, "graph": QUICK_GRAPH, "gp": "free"}
FOLDED_COLUMNS = ("mic_linked", "mic_all", "mic_by_chance", "mic_true_column", "rank_correlation")

CMCL_FOLDED = Experiment(
    "cmcl-folded",
    "CMCL's Table 1 with the paper's transform: what the images tell of the latents",
    tuple(
        job
        for graph in GRAPHS
        for job in (
            *(_read(reader, graph, FREE, gp="free") for reader in (CELLS, TREES, WITH_TABLE)),
            *(_read(CELLS, graph, f"{FREE}, noise {s:g}", gp="free", noise=s) for s in LESS_NOISE),
            _read(CELLS, graph, f"{FREE}, no noise", gp="free", noise=0.0),
            _read(CELLS, graph, "monotone", gp="monotone"),
        )
    ),
    seeds=5,
    shown=(*FOLDED_COLUMNS, "test_rows"),
    columns=FOLDED_COLUMNS,
    notes=("cmcl-folded",),
    quick=tuple(
        ReadLatents("cross-modal", reader, QUICK_OPTIONS, variant=f"{QUICK_GRAPH} {FREE}")
        for reader in (CELLS, TREES)
    ),
)

# ---- COVID in X-rays -----------------------------------------------------------------------------
LOGISTIC, CLASSIFIER = "pca-logistic", "convolutional-classifier"
COMPONENTS, STRENGTHS, FOLDS = (10, 20, 40, 80), (0.003, 0.03, 0.3), 5
REGIONS = ("whole", "centre", "frame")
FRAME = 6  # the frame is this part of the side wide, 1/6
CLASSIFIER_SETTINGS: dict[str, Any] = {"widths": (8, 16, 32, 64)}


@dataclass(frozen=True)
class ReadCovid(Job):
    """Predict COVID with a supervised reader; each seed holds out other patients.

    `pca-logistic` is a logistic regression on principal components, both sizes chosen by
    cross-validation over patients; `convolutional-classifier` has settings fixed beforehand. Both
    are fitted on training and validation images.

    Arguments:
        region: `whole`, `centre` (without a frame of a sixth of each side) or `frame`.
    """

    region: str = "whole"

    def check(self) -> None:
        load_shared(self.data, dict(self.options))

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = load_shared(self.data, {**self.options, "seed": seed})
        images, labels, patients = _fitting_rows(data)
        images = keep_region(images, self.region)
        test, truth = keep_region(data.test.images.numpy(), self.region), _labels(data.test)
        if self.model == LOGISTIC:
            probability = _logistic(images, labels, patients, test)
        else:
            classifier = fit_attribute_classifier(
                images, labels[:, None], data.variables, device=device, seed=seed, **self.settings
            )
            probability = scipy.special.expit(classifier.logits(test)[:, 0])
        return binary_scores(truth, probability, majority=float(labels.mean() >= 0.5))


def keep_region(images: np.ndarray, region: str) -> np.ndarray:
    """Return uint8 images (N, C, H, W) that are grey outside the region."""
    height, width = images.shape[2:]
    centre = np.zeros((height, width), dtype=bool)
    centre[height // FRAME : -(height // FRAME), width // FRAME : -(width // FRAME)] = True
    mask = {"whole": centre | ~centre, "centre": centre, "frame": ~centre}[region]
    return np.where(mask, images, np.uint8(128))


def _labels(split: Split) -> np.ndarray:
    return split.labels[:, 0].numpy()


def _fitting_rows(data: Dataset) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    splits = (data.train, data.validation)
    return (
        np.concatenate([split.images.numpy() for split in splits]),
        np.concatenate([_labels(split) for split in splits]),
        np.concatenate([split.fields["patient"].numpy() for split in splits]),
    )


def _logistic(
    images: np.ndarray, labels: np.ndarray, patients: np.ndarray, test: np.ndarray
) -> np.ndarray:
    """Return the probabilities (M,) of test images."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, GroupKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pipeline = make_pipeline(
        PCA(max(COMPONENTS), random_state=0), StandardScaler(), LogisticRegression(max_iter=3000)
    )
    grid = {"pca__n_components": COMPONENTS, "logisticregression__C": STRENGTHS}
    search = GridSearchCV(pipeline, grid, cv=GroupKFold(FOLDS), scoring="neg_log_loss")
    search.fit(images.reshape(len(images), -1) / 255.0, labels, groups=patients)
    return search.predict_proba(test.reshape(len(test), -1) / 255.0)[:, 1]


def _covid(reader: str, region: str, size: int = 64) -> ReadCovid:
    settings = CLASSIFIER_SETTINGS if reader == CLASSIFIER else {}
    variant = region if size == 64 else f"{region}, {size} pixels"
    return ReadCovid("covid-cxr", reader, {"size": size}, settings, variant, region=region)


SCORES = ("accuracy", "above_majority", "majority_accuracy", "balanced_accuracy", "auc")
COVID_READERS = Experiment(
    "covid-readers",
    "COVID in X-rays by supervised readers, also from the frame of the images alone",
    (
        *(_covid(LOGISTIC, region) for region in REGIONS),
        _covid(LOGISTIC, "whole", 128),
        _covid(CLASSIFIER, "whole"),
    ),
    seeds=5,
    shown=(*SCORES, "test_pictures"),
    columns=SCORES,
    notes=("covid-readers",),
    quick=(replace(_covid(LOGISTIC, "whole", 16), variant="whole, 16 pixels"),),
)
