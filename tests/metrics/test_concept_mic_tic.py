"""MIC and TIC of vector-valued variables with labels: mean, best dim and chance."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.errors import DataError, UsageError
from intervae.metrics.concept_mic_tic import concept_information
from intervae.metrics.maximal_information import mic, permutation_null, tic

N = 300


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Two variables of three dims: the first has its label in one dim, the second in all dims.

    The signs of the second variable's dims cancel in the mean.
    """
    rng = np.random.default_rng(0)
    labels = rng.uniform(-1, 1, (N, 2))
    latents = rng.normal(size=(N, 2, 3))
    latents[:, 0, 1] = labels[:, 0] ** 3
    latents[:, 1] = labels[:, 1:] * np.array([1.0, -2.0, 1.0]) + 0.01 * rng.normal(size=(N, 3))
    return latents, labels


def test_values_equal_mic_and_tic_of_mean_and_best_dim() -> None:
    latents, labels = samples()
    measurements = {
        m.metric: m for m in concept_information(latents, labels, ["a", "b"], permutations=0)
    }
    assert set(measurements) == {"mic", "mic_best_dim", "tic", "tic_best_dim"}
    for key, coefficient in (("mic", mic), ("tic", tic)):
        mean = [coefficient(latents[:, i].mean(1), labels[:, i]) for i in range(2)]
        best = [
            max(coefficient(latents[:, i, j], labels[:, i]) for j in range(3)) for i in range(2)
        ]
        assert measurements[key].per_variable == pytest.approx(dict(zip("ab", mean, strict=True)))
        assert measurements[f"{key}_best_dim"].per_variable == pytest.approx(
            dict(zip("ab", best, strict=True))
        )
        assert measurements[key].value == pytest.approx(np.mean(mean))
        assert measurements[f"{key}_best_dim"].value == pytest.approx(np.mean(best))
    assert measurements["mic"].n == N
    # the mean is less informative than the dims
    assert measurements["mic_best_dim"].value > 0.95 > 0.5 > measurements["mic"].value
    assert "by_chance" not in measurements["mic"].parameters


def test_best_dim_scores_low_where_only_the_mean_is_informative() -> None:
    rng = np.random.default_rng(1)
    labels, noise = rng.uniform(-1, 1, (N, 1)), 3 * rng.normal(size=N)
    latents = np.stack([labels[:, 0] + noise, labels[:, 0] - noise], axis=1)[:, None]  # (N, 1, 2)
    measurements = {
        m.metric: m.value for m in concept_information(latents, labels, ["a"], permutations=0)
    }
    assert measurements["mic_best_dim"] < 0.4 < 0.95 < measurements["mic"]


def test_chance_is_the_mean_over_shuffled_labels() -> None:
    latents, labels = samples()
    measurements = {
        m.metric: m for m in concept_information(latents, labels, ["a", "b"], permutations=60)
    }
    for i, name in enumerate("ab"):
        null = permutation_null(latents[:, i].mean(1), labels[:, i], permutations=60, seed=9)
        assert measurements["mic"].parameters["by_chance"][name] == pytest.approx(
            null.mic_null_mean, abs=4 * null.mic_null_std / 60**0.5
        )
        assert measurements["tic"].parameters["by_chance"][name] == pytest.approx(
            null.tic_null_mean, abs=4 * null.tic_null_std / 60**0.5
        )
    chance = measurements["tic"].parameters["by_chance"]
    assert chance["value"] == pytest.approx((chance["a"] + chance["b"]) / 2)


def test_a_matching_is_applied_and_reported() -> None:
    latents, labels = samples()
    latents = latents[:, ::-1, 1:2]  # in the other order, one dim each
    wrong = {m.metric: m for m in concept_information(latents, labels, ["a", "b"], permutations=0)}
    right = {
        m.metric: m
        for m in concept_information(
            latents, labels, ["a", "b"], permutations=0, matching="hungarian-mic"
        )
    }
    assert set(right) == {"mic", "tic"}  # no best of one dim
    assert wrong["mic"].value < 0.4 < 0.95 < right["mic"].value
    assert right["mic"].parameters["matching"] == "hungarian-mic"
    assert right["mic"].parameters["matched"] == {"a": "z1", "b": "z0"}


def test_a_label_without_a_variable_scores_zero() -> None:
    latents, labels = samples()
    measurements = concept_information(
        latents[:, 1:, 1:2], labels, ["a", "b"], permutations=0, matching="hungarian"
    )
    assert measurements[0].per_variable["a"] == 0
    assert measurements[0].per_variable["b"] > 0.95
    with pytest.raises(UsageError, match="1 codes and 2 factors"):
        concept_information(latents[:, 1:], labels, ["a", "b"])


def test_wrong_input_raises() -> None:
    latents, labels = samples()
    for bad in ((latents[:, 0], labels), (latents[:-1], labels), (latents, labels[:, :1])):
        with pytest.raises(DataError, match="paired row by row"):
            concept_information(*bad, ["a", "b"])
    with pytest.raises(UsageError, match="permutations is -1"):
        concept_information(latents, labels, ["a", "b"], permutations=-1)
