"""MIC and TIC of a model's variables with the labels, as in the CausalVAE paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intervae.errors import DataError, UsageError
from intervae.metrics.base import Measurement
from intervae.metrics.matching import match
from intervae.metrics.maximal_information import mine_matrix


def concept_information(
    latents: Any,
    labels: Any,
    names: Sequence[str],
    *,
    matching: str = "identity",
    permutations: int = 20,
    alpha: float = 0.6,
    c: float = 15,
    estimator: str = "approx",
    seed: int = 0,
    threads: int | None = None,
) -> list[Measurement]:
    """Return MIC and normalised TIC of each label with its variable.

    Arguments:
        latents: (N, n, k), n variables of k dims.
        labels: (N, m), none of them constant. MIC and TIC depend on N: use at least 2,000 rows,
            and compare only equal N.
        names: of the m labels.
        matching: which variable belongs to which label, see `match`; it is computed on the means
            over dims.
        permutations: shuffles of each label, which estimate the value of unrelated data.
        alpha, c, estimator, threads: as in `mine_matrix`.

    Returns:
        mic, tic: with the mean over the dims of the variable.
        mic_best_dim, tic_best_dim: with its best dim, only where k > 1. The dim is chosen on the
            same samples, which is slightly optimistic.
        Each has a value per label, and the mean over labels as headline. The parameter `by_chance`
        holds the mean over the shuffles, per label and, under "value", over labels.
    """
    codes, table = np.asarray(latents, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if (
        codes.ndim != 3
        or table.ndim != 2
        or len(codes) != len(table)
        or table.shape[1] != len(names)
    ):
        raise DataError(
            f"latents must be (N, variables, dims) and labels (N, {len(names)}), paired row by "
            f"row, not {codes.shape} and {table.shape}."
        )
    if permutations < 0:
        raise UsageError(f"permutations is {permutations}; give 0 or more.")
    matched = match(codes.mean(2), table, method=matching, names=names)
    settings: dict[str, Any] = {"alpha": alpha, "c": c, "estimator": estimator, "threads": threads}
    rng = np.random.default_rng(seed)
    values: dict[str, list[float]] = {
        key: [] for key in ("mic", "mic_best_dim", "mic_null", "tic", "tic_best_dim", "tic_null")
    }
    for i, column in enumerate(matched.columns):
        # a label without a variable scores 0
        variable = codes[:, column] if column is not None else np.zeros((len(codes), 1))
        mean, label = variable.mean(1, keepdims=True), table[:, i : i + 1]
        shuffled = (
            np.stack([rng.permutation(table[:, i]) for _ in range(permutations)], axis=1)
            if permutations
            else label[:, :0]
        )
        observed = mine_matrix(np.hstack([mean, variable]), label, **settings)
        null = mine_matrix(mean, shuffled, **settings) if permutations else None
        for key in ("mic", "tic"):
            scores = getattr(observed, key)  # (1 + k, 1)
            values[key].append(float(scores[0, 0]))
            values[f"{key}_best_dim"].append(float(scores[1:].max()))
            values[f"{key}_null"].append(
                float(getattr(null, key).mean()) if null is not None else 0.0
            )
    parameters = {
        "alpha": alpha,
        "c": c,
        "estimator": estimator,
        "permutations": permutations,
        "matching": matching,
        "matched": matched.pairs,
    }
    measurements = []
    for key in ("mic", "tic"):
        null_values = values[f"{key}_null"]
        chance = {
            "value": float(np.mean(null_values)),
            **dict(zip(names, null_values, strict=True)),
        }
        for metric in (key, f"{key}_best_dim") if codes.shape[2] > 1 else (key,):
            measurements.append(
                Measurement(
                    metric,
                    float(np.mean(values[metric])),
                    len(codes),
                    dict(zip(names, values[metric], strict=True)),
                    parameters={**parameters, **({"by_chance": chance} if permutations else {})},
                    higher_is_better=True,
                )
            )
    return measurements
