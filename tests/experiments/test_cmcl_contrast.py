"""Classes of the contrast on true latents: equal distributions where columns are independent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy

from intervae.data.simulators import CrossModal
from intervae.experiments import cmcl_contrast
from intervae.experiments.cmcl_contrast import (
    CHANGES,
    LATENTS,
    WORLD,
    SeparateTrueLatents,
    contrast_classes,
)


def classes(seed: int = 0, **options: float) -> tuple[CrossModal, np.ndarray, np.ndarray]:
    simulator = CrossModal(**{**WORLD, **options}, world=seed)
    inputs, labels = contrast_classes(simulator, 4000, np.random.default_rng(seed))
    return simulator, inputs[labels == 0], inputs[labels == 1]


def test_do_moves_one_caused_latent_or_none() -> None:
    simulator, effect, cause = classes()
    m = len(simulator.latent_names)
    assert (effect[:, m:] == 0).all()
    caused = [bool(simulator.graph.parents(z)) for z in simulator.latent_names]
    assert (cause[:, m:][:, ~np.array(caused)] == 0).all()
    assert ((cause[:, m:] != 0).sum(1) == 1).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_latents_of_both_classes_have_one_distribution(seed: int) -> None:
    simulator, effect, cause = classes(seed)
    m = len(simulator.latent_names)
    for j in range(m):
        assert scipy.stats.ks_2samp(effect[:, j], cause[:, j]).pvalue > 1e-3
    assert np.abs(np.corrcoef(cause[:, :m].T) - np.corrcoef(effect[:, :m].T)).max() < 0.06


def test_do_breaks_the_correlation_of_causes() -> None:
    simulator, effect, cause = classes(correlation=0.9)
    caused = [j for j, z in enumerate(simulator.latent_names) if simulator.graph.parents(z)]
    before, after = (
        abs(scipy.stats.spearmanr(rows[:, caused]).statistic) for rows in (effect, cause)
    )
    assert before > 0.3
    assert after < 0.1  # one of two causes is drawn anew in each row


def test_a_classifier_is_a_coin_unless_it_gets_changes_or_causes_are_correlated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cmcl_contrast, "ROWS", 3000)

    def auc(inputs: str, **options: float) -> float:
        job = SeparateTrueLatents("cross-modal", "m", {**WORLD, **options}, inputs=inputs)
        numbers = job.run(0, "cpu", tmp_path)
        assert (numbers["contrast_gain"] > 0.05) == (numbers["classifier_auc"] > 0.6)
        return numbers["classifier_auc"]

    assert auc(LATENTS) == pytest.approx(0.5, abs=0.04)
    assert auc(CHANGES) > 0.98
    assert auc(LATENTS, correlation=0.9) > 0.6
