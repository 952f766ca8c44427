"""SHD and CPU seconds of our discovery methods and of public ones on the same tables.

python benchmarks/discovery.py                      # all tables
python benchmarks/discovery.py --only linear        # tables with this in their name
python benchmarks/discovery.py --ours               # without public implementations
python benchmarks/discovery.py --seeds 5 --ours     # simulated tables with other seeds
python benchmarks/discovery.py --out benchmarks/results/discovery  # also write .json and .md

INTERVAE_ORACLES is the folder with graphs/*.npz (X and the true B); without it, tables are
simulated. Public implementations are used if they are installed in this interpreter; install them
in a virtual environment of their own (`pip install -e . dagma gcastle causal-learn`). Every method
gets the table in raw units, on one thread. gcastle's NotearsNonlinear is its copy of NOTEARS-MLP.
Run it on an idle machine: CPU seconds grow with the load, which the page reports. One set of
settings is used for all tables; ours were options mainly on simulated tables, but the tables of
INTERVAE_ORACLES were known before the last settings were fixed.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy

import argparse
import contextlib
import io
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conditions import conditions, footer, write_results
from discovery_peers import Learner, peers

from intervae.causal.graph import CausalGraph
from intervae.discovery import discover, varsortability
from intervae.metrics.graphs import compare

MLP = ("notears-mlp", "dagma-mlp")
TARGETS = {  # learner -> public implementation, target of the speed-up
    "notears-mlp": ("gcastle notears-mlp", 10),
    "dagma": ("dagma", 3),
    "dagma-mlp": ("dagma-mlp", 3),
}


def ours(method: str, **settings) -> Learner:
    return lambda table: discover(table, method, **settings).pattern


LEARNERS: dict[str, dict[str, Learner]] = {
    "linear": {
        "dagma": ours("dagma", standardise=False),
        "notears": ours("notears", standardise=False),
        "ges": ours("ges"),
    }
    | {f"{m} standardised": ours(m) for m in ("dagma", "notears")},
    "mlp": {m: ours(m, standardise=False) for m in MLP}
    | {f"{m} standardised": ours(m) for m in MLP},
    "ges": {"ges": ours("ges"), "ges-generalised": ours("ges-generalised")},
}


def tables(seeds: int, variables: int = 0) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """Yield (name, kind, table, true adjacency).

    Simulated tables have this many variables, or the four sizes of INTERVAE_ORACLES.
    """
    folder = os.environ.get("INTERVAE_ORACLES", "")
    if folder and not seeds:
        for path in sorted((Path(folder) / "graphs").glob("*.npz")):
            kind = (
                "linear"
                if "linear_gauss" in path.stem
                else "ges"
                if "_ges_" in path.stem
                else "mlp"
            )
            data = np.load(path, allow_pickle=False)
            yield path.stem.removeprefix("graphs_"), kind, data["X"], data["B"].astype(int)
        return
    sizes = (
        [("linear", variables), ("mlp", variables)]
        if variables
        else [("linear", 20), ("linear", 50), ("mlp", 10), ("mlp", 20)]
    )
    for seed in range(seeds or 1):
        for kind, size in sizes:
            yield f"{kind}_d{size}_made_{seed}", kind, *simulate(kind, size, 1000, seed)


def simulate(kind: str, variables: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a table (rows, n) and its true adjacency (n, n), a random DAG of 2 edges per variable.

    Linear weights have size 0.5 to 2; networks have 100 sigmoid units with such weights. Noises
    are N(0, 1).
    """
    rng = np.random.default_rng([seed, variables])
    order = rng.permutation(variables)
    pairs = np.argwhere(np.triu(np.ones((variables, variables), dtype=bool), 1))
    true = np.zeros((variables, variables), dtype=int)
    for early, late in pairs[rng.choice(len(pairs), min(2 * variables, len(pairs)), replace=False)]:
        true[order[early], order[late]] = 1
    table = rng.normal(size=(rows, variables))

    def weights(*shape: int) -> np.ndarray:
        return rng.uniform(0.5, 2.0, shape) * rng.choice([-1, 1], shape)

    for effect in order:
        causes = np.flatnonzero(true[:, effect])
        if kind == "linear":
            table[:, effect] += table[:, causes] @ weights(len(causes))
        elif len(causes):
            table[:, effect] += (
                1 / (1 + np.exp(-table[:, causes] @ weights(len(causes), 100)))
            ) @ weights(100)
    return table, true


def measure(learner: Learner, table: np.ndarray, true: np.ndarray) -> tuple[int, float]:
    """Return SHD and CPU seconds."""
    started = time.process_time()
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        learned = learner(table)
    return compare(true, learned).shd, time.process_time() - started


def measure_table(
    name: str, kind: str, table: np.ndarray, true: np.ndarray, *, method: str, with_peers: bool
) -> dict[str, Any]:
    """Return SHD, CPU seconds and speed-ups of the learners with `method` in their name."""
    sortable = varsortability(table, CausalGraph(tuple(map(str, range(len(true)))), true))
    print(f"\n{name}: {int(true.sum())} true edges, varsortability {sortable:.2f}", flush=True)
    public = {f"peer: {peer}": learner for peer, learner in peers(kind)} if with_peers else {}
    learners: list[dict[str, Any]] = []
    seconds: dict[str, float] = {}
    for label, learner in (LEARNERS[kind] | public).items():
        if method not in label:
            continue
        try:
            shd, seconds[label] = measure(learner, table, true)
        except Exception as error:  # a failure must not stop the others
            learners.append({"learner": label, "failed": f"{type(error).__name__}: {error}"})
            print(f"  {label:28s} failed: {error}", flush=True)
            continue
        learners.append({"learner": label, "shd": shd, "cpu_seconds": round(seconds[label], 3)})
        print(f"  {label:28s} SHD {shd:3d}   {seconds[label]:8.2f} CPU s", flush=True)
    ratios = []
    for label, (peer, target) in TARGETS.items():
        if label in seconds and f"peer: {peer}" in seconds:
            ratio = seconds[f"peer: {peer}"] / seconds[label]
            ratios.append(
                {"learner": label, "peer": peer, "times_as_fast": round(ratio, 2), "wanted": target}
            )
            print(
                f"  {label} is {ratio:.1f} times as fast as {peer} (wanted: {target})", flush=True
            )
    sizes = {
        "rows": len(table),
        "variables": len(true),
        "true_edges": int(true.sum()),
        "varsortability": round(sortable, 4),
    }
    return {"table": name, "kind": kind, **sizes, "learners": learners, "ratios": ratios}


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of a document."""
    lines = ["# Discovery methods compared with public implementations", ""]
    lines += [
        "SHD (a reversed edge counts once, an undirected edge of the true skeleton is correct) and",
        "CPU seconds on one thread; all learners on the same table, in raw units unless marked as",
        "standardised, in one run.",
        "",
    ]
    for table in document["tables"]:
        sizes = (
            f"{table['rows']} rows, {table['variables']} variables, {table['true_edges']} true "
            f"edges, varsortability {table['varsortability']:.2f}"
        )
        lines += [
            f"## {table['table']}",
            "",
            f"{sizes}.",
            "",
            "| learner | SHD | CPU s |",
            "|---|---|---|",
        ]
        for row in table["learners"]:
            numbers = (
                f"{row['shd']} | {row['cpu_seconds']:.2f}"
                if "shd" in row
                else f"failed: {row['failed']} | "
            )
            lines.append(f"| {row['learner']} | {numbers} |")
        lines.append("")
        for ratio in table["ratios"]:
            reached = "reached" if ratio["times_as_fast"] >= ratio["wanted"] else "NOT reached"
            faster = f"{ratio['times_as_fast']:.1f} times as fast as the public {ratio['peer']}"
            lines += [
                f"`{ratio['learner']}` is {faster} (wanted: {ratio['wanted']}; {reached}).",
                "",
            ]
    return "\n".join([*lines, *footer(document)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="tables with this in their name")
    parser.add_argument("--method", default="", help="learners with this in their name")
    parser.add_argument("--ours", action="store_true", help="no public implementations")
    parser.add_argument(
        "--seeds",
        type=int,
        default=0,
        help="simulate this many tables of each kind instead of reading INTERVAE_ORACLES",
    )
    parser.add_argument(
        "--variables",
        type=int,
        default=0,
        help="variables of simulated tables, instead of 20, 50 (linear) and 10, 20 (networks)",
    )
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md after every table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    document = conditions(
        " ".join(["python", "benchmarks/discovery.py", *sys.argv[1:]]),
        ("dagma", "gcastle", "causal-learn"),
    ) | {"tables": []}
    measure(ours("dagma", steps=5), *simulate("linear", 5, 100, 0))  # loads and compiles
    for name, kind, table, true in tables(options.seeds, options.variables):
        if options.only not in name:
            continue
        document["tables"].append(
            measure_table(
                name, kind, table, true, method=options.method, with_peers=not options.ours
            )
        )
        if options.out is not None:
            write_results(options.out, document, page(document))


if __name__ == "__main__":
    main()
