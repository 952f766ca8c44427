"""Reliability of the confidence in the direction of an edge: how often is it right?

python benchmarks/directions.py --out benchmarks/results/directions   # simulated and real pairs
python benchmarks/directions.py --fit        # fit the calibration again and print it

The calibration is fitted on some families and seeds and evaluated on other seeds and on families
that it never saw. INTERVAE_DATA is the folder with tuebingen/ (the public pairmeta.txt and
pairNNNN.txt) and sachs/; what is missing is skipped, with the reason in the results.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy

import argparse
import sys
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from conditions import conditions, footer, write_results
from direction_graphs import graph_directions
from direction_pairs import FITTED, HELD_OUT, Pair, morpho_mnist, real_tables, simulated
from sklearn.linear_model import LogisticRegression

from intervae.discovery import discover
from intervae.discovery.base import random_rows
from intervae.discovery.direction_confidence import CALIBRATION, OPEN_BELOW, ROWS, Calibration
from intervae.discovery.direction_evidence import direction_evidence, evidence_features

BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.001)
FIT_SEEDS, TEST_SEEDS = range(200), range(1000, 1100)
WEIGHT_PENALTY = 0.05  # scikit-learn's C


def pair_features(pair: Pair) -> np.ndarray:
    """`FEATURES` of a pair; positive for the true direction."""
    table = random_rows(np.stack(pair, axis=1), ROWS, 0)
    return evidence_features(*direction_evidence(table[:, 0], table[:, 1]))


def fit_calibration(features: np.ndarray, has_direction: np.ndarray) -> Calibration:
    """Fit weights on pairs (P, 9) with a direction, then the logistic map on all of them."""
    directed = features[has_direction]
    scale = directed.std(axis=0)
    both = np.concatenate([directed, -directed]) / scale
    labels = np.repeat([1, 0], len(directed))
    model = LogisticRegression(fit_intercept=False, C=WEIGHT_PENALTY).fit(both, labels)
    weights = model.coef_[0] / scale
    evidence = features @ weights
    right = (evidence > 0) & has_direction  # any direction of a confounded pair is wrong
    line = LogisticRegression(C=100).fit(np.abs(evidence)[:, None], right)
    return Calibration(
        tuple(round(float(w), 3) for w in weights),
        round(float(line.coef_[0, 0]), 3),
        round(float(line.intercept_[0]), 3),
        CALIBRATION.largest,
    )


def reliability(confidences: Iterable[float], has_direction: Iterable[bool]) -> dict[str, Any]:
    """Bins of the confidence in the preferred direction: pairs, mean confidence, fraction right."""
    values = np.array(list(confidences))
    right = np.heaviside(values - 0.5, 0.5) * np.array(list(has_direction))  # 50% is half right
    stated = np.maximum(values, 1 - values)
    bins = []
    for low, high in pairwise(BINS):
        inside = (stated >= low) & (stated < high)
        bins.append(
            {
                "from": low,
                "pairs": int(inside.sum()),
                "confidence": round(float(stated[inside].mean()), 3) if inside.any() else None,
                "right": round(float(right[inside].mean()), 3) if inside.any() else None,
            }
        )
    decided = stated >= OPEN_BELOW
    return {
        "pairs": len(stated),
        "right": round(float(right.mean()), 3),
        "open": round(float((~decided).mean()), 3),
        "right_where_decided": round(float(right[decided].mean()), 3) if decided.any() else None,
        "confidence_where_decided": (
            round(float(stated[decided].mean()), 3) if decided.any() else None
        ),
        "bins": bins,
    }


def evaluate(pairs: Iterable[tuple[str, Pair]]) -> dict[str, list[tuple[float, bool]]]:
    """Return family -> (confidence in the true direction, whether there is one) of each pair."""
    results: dict[str, list[tuple[float, bool]]] = {}
    for name, pair in pairs:
        confidence = CALIBRATION.confidence(pair_features(pair))
        results.setdefault(name, []).append((confidence, name != "confounded"))
    return results


def independence_is_right(pairs: list[tuple[str, Pair]]) -> float:
    """Fraction of pairs that `independence` alone directs rightly; open or no edge counts half."""
    scores = []
    for _, pair in pairs:
        table = random_rows(np.stack(pair, axis=1), ROWS, 0)
        names = ["cause", "effect"]
        result = discover(
            table, names=names, kinds=["continuous"] * 2, samples=400, check_directions=False
        )
        edges = [edge[:2] for edge in result.graph.edges if edge[:2] not in result.ambiguous]
        scores.append(0.5 if not edges else float(edges[0] == ("cause", "effect")))
    return round(float(np.mean(scores)), 3)


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of a document."""
    lines = [
        "# Directions of edges: what the confidence says, and how often it is right",
        "",
        f"A direction is open below {OPEN_BELOW:.0%}. Any direction of a confounded pair is wrong.",
        "",
        "| pairs | number | right, of all | open | right, of the others | their confidence |",
        "|---|---|---|---|---|---|",
    ]
    cell = lambda value: "" if value is None else f"{value:.0%}"  # noqa: E731
    for row in document["rows"]:
        lines.append(
            f"| {row['name']} | {row['pairs']} | {cell(row['right'])} | {cell(row['open'])} | "
            f"{cell(row['right_where_decided'])} | {cell(row['confidence_where_decided'])} |"
        )
    for row in document["rows"]:
        if not row["curve"]:
            continue
        lines += ["", f"## Reliability: {row['name']}", ""]
        lines += ["| confidence from | pairs | mean confidence | right |", "|---|---|---|---|"]
        lines += [
            f"| {b['from']:.0%} | {b['pairs']} | {cell(b['confidence'])} | {cell(b['right'])} |"
            for b in row["bins"]
        ]
    lines += [""]
    for name, value in document["independence_alone"].items():
        lines += [f"`independence` alone directs {value:.0%} of {name} rightly."]
    lines += [f"Skipped: {name}, {why}." for name, why in document["skipped"].items()]
    return "\n".join([*lines, "", *footer(document)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fit", action="store_true", help="fit the calibration and print it")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    options = parser.parse_args()
    if options.fit:
        pairs = list(simulated(FITTED, FIT_SEEDS))
        features = np.array([pair_features(pair) for _, pair in pairs])
        print(fit_calibration(features, np.array([name != "confounded" for name, _ in pairs])))
        return
    started = time.process_time()
    document = conditions(" ".join(["python", "benchmarks/directions.py", *sys.argv[1:]]))
    rows: list[dict[str, Any]] = []

    def add(name: str, values: list[tuple[float, bool]], curve: bool = False) -> None:
        rows.append({"name": name, **reliability(*zip(*values, strict=True)), "curve": curve})
        print({k: v for k, v in rows[-1].items() if k != "bins"}, flush=True)

    for group, families in (("fitted families", FITTED), ("held-out families", HELD_OUT)):
        results = evaluate(simulated(families, TEST_SEEDS))
        for name, values in results.items():
            add(name.replace("_", " "), values)
        add(f"all {group}, new seeds", [v for each in results.values() for v in each], curve=True)
    add("edges of simulated graphs", graph_directions(), curve=True)
    tables, skipped = real_tables()
    for name, pairs in tables.items():
        add(name, [v for each in evaluate(pairs).values() for v in each], curve=True)
    alone = {name: independence_is_right(pairs) for name, pairs in tables.items()}
    morpho = list(simulated((morpho_mnist,), TEST_SEEDS[:20]))
    alone["morpho mnist"] = independence_is_right(morpho)
    document |= {
        "calibration": CALIBRATION._asdict(),
        "rows": rows,
        "independence_alone": alone,
        "skipped": skipped,
        "cpu_seconds": round(time.process_time() - started, 1),
    }
    if options.out is not None:
        write_results(options.out, document, page(document))


if __name__ == "__main__":
    main()
