"""Time of every disentanglement metric at its default settings.

    python benchmarks/disentanglement.py [--peer] [--repeats 3]

10 codes and 5 factors of 2 to 8 values: each factor has a noisy code, the other five codes are
mixtures. 10,000 samples, and 5,000 test samples for metrics that fit a predictor. Seconds are the
minimum over the repeats, after a first call that compiles or loads compiled code. --peer also times
DCI with scikit-learn's gradient boosting.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable

import numpy as np
import sklearn

from intervae.metrics import (
    Measurement,
    beta_vae_score,
    dci,
    explicitness,
    factor_vae_score,
    irs,
    mcc,
    mig,
    modularity,
    sap,
)

LIMIT = 60  # seconds per metric on 2 cores


def make(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes (n, 10) and factors (n, 5)."""
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, [2, 3, 5, 6, 8], (n, 5))
    standard = (factors - factors.mean(0)) / factors.std(0)
    mixing = np.random.default_rng(0).normal(size=(5, 5))
    return np.hstack(
        [standard + 0.3 * rng.normal(size=(n, 5)), standard @ mixing + rng.normal(size=(n, 5))]
    ), factors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    codes, factors = make(10_000, 1)
    test = make(5_000, 2)
    metrics: dict[str, Callable[[], Measurement]] = {
        "mig": lambda: mig(codes, factors),
        "dci": lambda: dci(codes, factors, test=test),
        "sap": lambda: sap(codes, factors, test=test),
        "factor_vae_score": lambda: factor_vae_score(codes, factors),
        "beta_vae_score": lambda: beta_vae_score(codes, factors),
        "irs": lambda: irs(codes, factors),
        "modularity": lambda: modularity(codes, factors),
        "explicitness": lambda: explicitness(codes, factors, test=test),
        "mcc": lambda: mcc(codes, factors),
    }
    if options.peer:
        metrics["dci (scikit-learn)"] = lambda: dci(
            codes, factors, test=test, booster="scikit-learn"
        )
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, scikit-learn {sklearn.__version__}; "
        f"10,000 samples, 10 codes, 5 factors; limit {LIMIT} s each"
    )
    start = time.perf_counter()
    dci(codes[:60], factors[:60])
    print(
        f"first call of dci (compiles, or loads compiled code): {time.perf_counter() - start:.2f} s"
    )
    print(f"{'metric':<20} {'seconds':>8} {'value':>7}   within the limit")
    for name, measure in metrics.items():
        seconds = []
        for _ in range(1 if "scikit-learn" in name else options.repeats):
            start = time.perf_counter()
            value = float(measure())
            seconds.append(time.perf_counter() - start)
        within = "yes" if min(seconds) < LIMIT else "NO"
        print(f"{name:<20} {min(seconds):>8.2f} {value:>7.3f}   {within}", flush=True)


if __name__ == "__main__":
    main()
