"""MIC and TIC of vector-valued variables: each label with its own variable, mean and best dim, and chance beside them."""

from __future__ import annotations

import numpy as np
import pytest

from intervae.errors import DataError, UsageError
from intervae.metrics.concepts import concept_information
from intervae.metrics.information import mic, permutation_null, tic

N = 300


def samples() -> tuple[np.ndarray, np.ndarray]:
    """Two variables of three dims: the first knows its label in one dim only, the second in all of them, the dims' signs cancelling."""
    rng = np.random.default_rng(0)
    labels = rng.uniform(-1, 1, (N, 2))
    latents = rng.normal(size=(N, 2, 3))
    latents[:, 0, 1] = labels[:, 0] ** 3
    latents[:, 1] = labels[:, 1:] * np.array([1.0, -2.0, 1.0]) + 0.01 * rng.normal(size=(N, 3))
    return latents, labels


def test_each_label_is_compared_with_the_mean_and_with_every_dim_of_its_own_variable() -> None:
    latents, labels = samples()
    found = {m.metric: m for m in concept_information(latents, labels, ["a", "b"], permutations=0)}
    assert set(found) == {"mic", "mic_best_dim", "tic", "tic_best_dim"}
    for key, coefficient in (("mic", mic), ("tic", tic)):
        mean = [coefficient(latents[:, i].mean(1), labels[:, i]) for i in range(2)]
        best = [max(coefficient(latents[:, i, j], labels[:, i]) for j in range(3)) for i in range(2)]
        assert found[key].per_variable == pytest.approx(dict(zip("ab", mean, strict=True)))
        assert found[f"{key}_best_dim"].per_variable == pytest.approx(dict(zip("ab", best, strict=True)))
        assert found[key].value == pytest.approx(np.mean(mean))
        assert found[f"{key}_best_dim"].value == pytest.approx(np.mean(best))
    assert found["mic"].n == N
    assert found["mic_best_dim"].value > 0.95 > 0.5 > found["mic"].value  # the mean hides what the dims know
    assert "by_chance" not in found["mic"].parameters


def test_the_best_dim_is_a_dim_where_only_the_mean_knows_the_label() -> None:
    rng = np.random.default_rng(1)
    labels, noise = rng.uniform(-1, 1, (N, 1)), 3 * rng.normal(size=N)
    latents = np.stack([labels[:, 0] + noise, labels[:, 0] - noise], axis=1)[:, None]  # (N, 1, 2)
    found = {m.metric: m.value for m in concept_information(latents, labels, ["a"], permutations=0)}
    assert found["mic_best_dim"] < 0.4 < 0.95 < found["mic"]


def test_chance_is_what_shuffled_labels_score() -> None:
    latents, labels = samples()
    found = {m.metric: m for m in concept_information(latents, labels, ["a", "b"], permutations=60)}
    for i, name in enumerate("ab"):
        null = permutation_null(latents[:, i].mean(1), labels[:, i], permutations=60, seed=9)
        assert found["mic"].parameters["by_chance"][name] == pytest.approx(null.mic_null_mean, abs=4 * null.mic_null_std / 60**0.5)
        assert found["tic"].parameters["by_chance"][name] == pytest.approx(null.tic_null_mean, abs=4 * null.tic_null_std / 60**0.5)
    chance = found["tic"].parameters["by_chance"]
    assert chance["value"] == pytest.approx((chance["a"] + chance["b"]) / 2)


def test_a_matching_is_used_and_named() -> None:
    latents, labels = samples()
    latents = latents[:, ::-1, 1:2]  # in the other order, one dim each
    wrong = {m.metric: m for m in concept_information(latents, labels, ["a", "b"], permutations=0)}
    right = {m.metric: m for m in concept_information(latents, labels, ["a", "b"], permutations=0, matching="hungarian-mic")}
    assert set(right) == {"mic", "tic"}  # the best of one dim is no news
    assert wrong["mic"].value < 0.4 < 0.95 < right["mic"].value
    assert right["mic"].parameters["matching"] == "hungarian-mic"
    assert right["mic"].parameters["matched"] == {"a": "z1", "b": "z0"}


def test_a_label_that_no_variable_is_left_for_scores_nothing() -> None:
    latents, labels = samples()
    found = concept_information(latents[:, 1:, 1:2], labels, ["a", "b"], permutations=0, matching="hungarian")
    assert found[0].per_variable["a"] == 0
    assert found[0].per_variable["b"] > 0.95
    with pytest.raises(UsageError, match="1 codes and 2 factors"):
        concept_information(latents[:, 1:], labels, ["a", "b"])


def test_wrong_input_is_refused() -> None:
    latents, labels = samples()
    for bad in ((latents[:, 0], labels), (latents[:-1], labels), (latents, labels[:, :1])):
        with pytest.raises(DataError, match="paired row by row"):
            concept_information(*bad, ["a", "b"])
    with pytest.raises(UsageError, match="permutations is -1"):
        concept_information(latents, labels, ["a", "b"], permutations=-1)
