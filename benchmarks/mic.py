"""Time of MIC and TIC of a matrix of pairs, compared with minepy.

    python benchmarks/mic.py [--sizes 500 2000 10000] [--repeats 7]

Times are the minimum over the repeats in milliseconds per pair, after a first call that compiles or
loads compiled code. The times of minepy are the constants below; it is also measured if installed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import time
from collections.abc import Callable

import numba
import numpy as np

from intervae.metrics.maximal_information import mine_matrix

# minepy on a similar machine: MIC and TIC, one thread, ms per pair (minimum, maximum over kinds of
# dependence)
QUOTED = {
    (500, "continuous"): (15.0, 22.0),
    (500, "binary"): (3.3, 3.3),
    (2000, "continuous"): (152.0, 227.0),
    (2000, "binary"): (48.0, 48.0),
    (10000, "continuous"): (2240.0, 4400.0),
    (10000, "binary"): (758.0, 758.0),
}


def make(n: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and targets that are noise, linear, quadratic and periodic in a code.

    16 codes and 4 targets for n <= 2000, else 4 and 2. Binary targets are their signs.
    """
    generator = np.random.default_rng(0)
    codes = generator.standard_normal((n, 16 if n <= 2000 else 4))
    noise = generator.standard_normal((n, 4))
    signal = np.stack(
        [0 * codes[:, 0], codes[:, 1], codes[:, 2] ** 2 - 1, np.sin(4 * codes[:, 3])], axis=1
    )
    targets = (signal + 0.5 * noise)[:, : 4 if n <= 2000 else 2]
    return codes, (targets > 0).astype(float) if kind == "binary" else targets


def least_seconds(work: Callable[[], object], repeats: int) -> float:
    """Return the shortest time of several calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def peer_milliseconds(codes: np.ndarray, targets: np.ndarray) -> tuple[float, float] | None:
    """Return minepy's minimum and maximum over the targets; None if it is not installed."""
    try:
        minepy = importlib.import_module("minepy")
    except ImportError:
        return None
    times = []
    for target in targets.T:
        peer = minepy.MINE(alpha=0.6, c=15, est="mic_approx")
        column, values = codes[:, 0].copy(), target.copy()
        times.append(
            1000
            * least_seconds(
                lambda p=peer, a=column, b=values: (p.compute_score(a, b), p.mic(), p.tic()), 3
            )
        )
    return min(times), max(times)


def span(low: float, high: float, digits: int = 0) -> str:
    return (
        f"{low:.{digits}f}"
        if f"{low:.{digits}f}" == f"{high:.{digits}f}"
        else f"{low:.{digits}f}-{high:.{digits}f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 2000, 10000])
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, numba {numba.__version__}; "
        "alpha 0.6, c 15, APPROX-MIC; ms per pair, minimum of runs"
    )
    start = time.perf_counter()
    mine_matrix(np.eye(8), np.eye(8))
    print(f"first call (compiles, or loads compiled code): {time.perf_counter() - start:.2f} s")
    print(
        f"{'n':>6} {'targets':<11} {'pairs':>5} {'1 thread':>9} {'2 threads':>9} "
        f"{'matrix, s':>9}   {'peer':<18} {'ratio, 1':>9} {'ratio, 2':>9}"
    )
    for n in options.sizes:
        for kind in ("continuous", "binary"):
            codes, targets = make(n, kind)
            pairs = codes.shape[1] * targets.shape[1]
            seconds = {
                k: least_seconds(
                    lambda a=codes, b=targets, k=k: mine_matrix(a, b, threads=k), options.repeats
                )
                for k in (1, 2)
            }
            ours = {k: 1000 * s / pairs for k, s in seconds.items()}
            print(
                f"{n:>6} {kind:<11} {pairs:>5} {ours[1]:>9.2f} {ours[2]:>9.2f} {seconds[2]:>9.3f}",
                end="",
            )
            for label, peer in (
                ("quoted", QUOTED.get((n, kind))),
                ("measured", peer_milliseconds(codes, targets)),
            ):
                if peer is not None:
                    ratios = [span(peer[0] / ours[k], peer[1] / ours[k]) for k in (1, 2)]
                    milliseconds = span(*peer, 1 if peer[0] < 10 else 0)
                    line = f"   {milliseconds + ' ' + label:<18} {ratios[0]:>9} {ratios[1]:>9}"
                    print(line, end="")
            print()


if __name__ == "__main__":
    main()
