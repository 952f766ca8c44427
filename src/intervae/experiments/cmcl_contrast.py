"""When CMCL's contrast can matter (Mao et al. 2022, Eqs. 11-13): correlated columns.

The classifier D of the contrast separates latents under do(cause) from latents under do(effect).
Where columns are independent both have the same distribution at the true model, so D can learn
nothing; where causes are correlated do() breaks the correlation. `true-latents` measures D's limit
on the simulator itself; the other rows train CMCL with and without the contrast.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from intervae.data.simulators import CrossModal
from intervae.experiments.base import Experiment, Job, Numbers
from intervae.experiments.cmcl_jobs import TrainOnSimulation

TRUE_LATENTS = "true-latents"
LATENTS, CHANGES = "latents", "changes"
ROWS = 6000  # of each class; half of them for fitting


@dataclass(frozen=True)
class SeparateTrueLatents(Job):
    """Fit a classifier of do(cause) against do(effect) on the simulator's own latents.

    Arguments:
        inputs: `latents` after do(), as in Eq. 13, or their `changes` under do().
        first_seed: simulator and rows of seed k use first_seed + k.
    """

    inputs: str = LATENTS
    first_seed: int = 200

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.metrics import log_loss, roc_auc_score

        world = seed + self.first_seed
        simulator = CrossModal(**self.options, world=world)
        inputs, labels = contrast_classes(simulator, ROWS, np.random.default_rng(world))
        if self.inputs == LATENTS:
            inputs = inputs[:, : inputs.shape[1] // 2]
        fitting = np.arange(len(labels)) // 2 % 2 == 0
        classifier = HistGradientBoostingClassifier(
            max_iter=60, learning_rate=0.05, random_state=0
        ).fit(inputs[fitting], labels[fitting])
        probability, true = classifier.predict_proba(inputs[~fitting])[:, 1], labels[~fitting]
        return {
            "classifier_auc": float(roc_auc_score(true, probability)),
            # nats per pair of rows by which D is better than a coin
            "contrast_gain": float(2 * (np.log(2) - log_loss(true, probability))),
        }


def contrast_classes(
    simulator: CrossModal, rows: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw latents after do() and their changes, (2 rows, 2 m), and the class: 1 for do(cause).

    A column is set to its value in another row, a random cause or effect in each row. Both classes
    have rows of their own, in turn.
    """
    columns, m = simulator.structured_names, len(simulator.latent_names)
    causes = [u for u in columns if simulator.graph.children(u)]
    effects = [u for u in columns if simulator.graph.parents(u)]
    halves = []
    for candidates in (effects, causes):
        noises = simulator.sample_exogenous(rows, rng)
        before, after = simulator.simulate(noises)[:, :m], np.empty((rows, m))
        chosen, other = rng.integers(len(candidates), size=rows), np.roll(np.arange(rows), 1)
        for k, column in enumerate(candidates):
            moved = simulator.simulate(noises, {column: lambda v: v[other]})[:, :m]  # noqa: B023
            after[chosen == k] = moved[chosen == k]
        halves.append(np.hstack([after, after - before]))
    inputs = np.stack(halves, 1).reshape(2 * rows, 2 * m)
    return inputs, np.tile([0.0, 1.0], rows)


# ---- experiment ----------------------------------------------------------------------------------
WORLD: dict[str, Any] = {"graph": "3/6", "directions": "half", "weakest": 2.0}
CORRELATION = 0.9
IMAGES: dict[str, Any] = {"size": 8, "samples": 900}
MODEL: dict[str, Any] = {
    "latents": 3,
    "embedding": 6,
    "network": "conv",
    "channels": (8, 16),
    "hidden": 32,
    "likelihood": "gaussian",
    "scale": 0.03,
    "epochs": 40,
    "learning_rate": 3e-3,
    "rate_schedule": "cosine",
}
COLUMNS: dict[str, dict[str, Any]] = {
    "correlated columns": {"correlation": CORRELATION},
    "independent columns": {},
}
CONTRAST = {"no contrast": False, "contrast": True}


def _train(columns: str, words: str) -> TrainOnSimulation:
    return TrainOnSimulation(
        "cross-modal",
        "cmcl",
        {**WORLD, **IMAGES, **COLUMNS[columns]},
        {**MODEL, "contrast": CONTRAST[words]},
        f"{columns}, {words}",
        first_seed=200,
    )


_TRUE = tuple(
    SeparateTrueLatents(
        "cross-modal",
        TRUE_LATENTS,
        {**WORLD, **COLUMNS[columns]},
        variant=f"{columns}, {inputs}",
        inputs=inputs,
    )
    for columns in COLUMNS
    for inputs in (LATENTS, CHANGES)
)
CMCL_CONTRAST = Experiment(
    "cmcl-contrast",
    "When CMCL's contrast can matter: independent and correlated columns",
    (*_TRUE, *(_train(columns, words) for columns in COLUMNS for words in CONTRAST)),
    seeds=3,
    shown=(
        "classifier_auc",
        "contrast_gain",
        "mic_linked",
        "mic_column",
        "shd",
        "direction_right",
        "label_influence",
        "reconstruction_mse",
        "train_seconds",
    ),
    columns=("classifier_auc", "contrast_gain", "mic_linked", "shd", "label_influence"),
    notes=("cmcl-contrast",),
    quick=(
        _TRUE[0],
        *(
            replace(job, settings={**job.settings, "epochs": 4})
            for job in (_train("independent columns", words) for words in CONTRAST)
        ),
    ),
)
