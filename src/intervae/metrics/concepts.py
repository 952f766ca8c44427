"""MIC and TIC of a model's variables with the labels they stand for, as the CausalVAE paper reports them, and what chance scores beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from intervae.errors import DataError, UsageError
from intervae.metrics.base import Measurement
from intervae.metrics.information import mine_matrix
from intervae.metrics.matching import match


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
    """For each label u_i and the variable z_i that stands for it: MIC and normalised TIC of u_i with the mean over z_i's dims, and with its best dim.

    Arguments:
        latents: (N, n, k), n variables of k dims.
        labels: (N, m), none of them constant. MIC and TIC depend on N: use 2,000 or more, and compare equal N only.
        names: of the m labels.
        matching: which variable stands for which label, see `match`; a matching that looks at the samples is found on the means over dims.
        permutations: shuffles of each label, which tell what unrelated data of this size score; 0 for none.
        alpha, c, estimator, threads: as in `mine_matrix`.

    Returns:
        mic, mic_best_dim, tic, tic_best_dim (the best_dim ones only where k > 1): per_variable for each label, the headline the mean over
        them. The best dim is chosen on the same samples, which flatters it a little. The parameters hold `by_chance`, the mean over the
        shuffles: per label and their mean under "value".
    """
    codes, table = np.asarray(latents, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if codes.ndim != 3 or table.ndim != 2 or len(codes) != len(table) or table.shape[1] != len(names):
        raise DataError(f"latents must be (N, variables, dims) and labels (N, {len(names)}), paired row by row, not {codes.shape} and {table.shape}.")
    if permutations < 0:
        raise UsageError(f"permutations is {permutations}; give 0 or more.")
    means = codes.mean(2)
    matched = match(means, table, method=matching, names=names)
    settings: dict[str, Any] = {"alpha": alpha, "c": c, "estimator": estimator, "threads": threads}
    rng = np.random.default_rng(seed)
    found: dict[str, list[float]] = {key: [] for key in ("mic", "mic_best_dim", "mic_null", "tic", "tic_best_dim", "tic_null")}
    for i, column in enumerate(matched.columns):
        own = codes[:, column] if column is not None else np.zeros((len(codes), 1))  # a label that no variable is left for scores 0
        mean, label = own.mean(1, keepdims=True), table[:, i : i + 1]
        shuffled = np.stack([rng.permutation(table[:, i]) for _ in range(permutations)], axis=1) if permutations else label[:, :0]
        ours = mine_matrix(np.hstack([mean, own]), label, **settings)
        null = mine_matrix(mean, shuffled, **settings) if permutations else None
        for key in ("mic", "tic"):
            values = getattr(ours, key)  # (1 + k, 1)
            found[key].append(float(values[0, 0]))
            found[f"{key}_best_dim"].append(float(values[1:].max()))
            found[f"{key}_null"].append(float(getattr(null, key).mean()) if null is not None else 0.0)
    parameters = {"alpha": alpha, "c": c, "estimator": estimator, "permutations": permutations, "matching": matching, "matched": matched.pairs}
    results = []
    for key in ("mic", "mic_best_dim", "tic", "tic_best_dim"):
        if key.endswith("dim") and codes.shape[2] == 1:
            continue
        beside = found[f"{key[:3]}_null"]
        chance: dict[str, Any] = {"by_chance": {"value": float(np.mean(beside)), **dict(zip(names, beside, strict=True))}} if permutations else {}
        per_variable = dict(zip(names, found[key], strict=True))
        results.append(Measurement(key, float(np.mean(found[key])), len(codes), per_variable, None, {**parameters, **chance}, True))
    return results
