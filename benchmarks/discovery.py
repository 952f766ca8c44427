"""Our graph learners and, where they are installed, the public ones on the same tables in one run: SHD, CPU seconds and ratios.

python benchmarks/discovery.py                       # linear d = 20 and 50, networks d = 10 and 20, GES d = 10
python benchmarks/discovery.py --only linear         # the tables with this in their name
python benchmarks/discovery.py --ours                # without the peers
python benchmarks/discovery.py --seeds 5 --ours      # tables of the same family that were made here, with other seeds
python benchmarks/discovery.py --out benchmarks/results/discovery    # also write discovery.json and the page discovery.md there

INTERVAE_ORACLES names the folder that holds graphs/*.npz (X and the true B); without it, tables are made here. The peers are looked for in this
interpreter: make a virtual environment of its own for them (`pip install -e . dagma gcastle causal-learn`) and run this file with its Python.
Every learner gets the table in its own units, as the peers take it, on one thread. gcastle's NotearsNonlinear is its copy of NOTEARS-MLP.
Run it on an idle machine: CPU seconds grow where others use the same caches, and the page tells the load that there was.
Settings are one set for all tables; ours were chosen mainly on tables made here, but those of INTERVAE_ORACLES were seen before the last were fixed.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy

import argparse
import contextlib
import importlib.util
import io
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conditions import conditions, told

from intervae.causal.graph import CausalGraph
from intervae.discovery import discover, varsortability
from intervae.discovery.bridges import pattern_from_marks
from intervae.files import write_json, write_text
from intervae.metrics.graphs import compare

Learner = Callable[[np.ndarray], np.ndarray]  # (N, n) -> (n, n) of 0, 1 and -1
MLP = ("notears-mlp", "dagma-mlp")
BARS = {"notears-mlp": ("gcastle notears-mlp", 10), "dagma": ("dagma", 3), "dagma-mlp": ("dagma-mlp", 3)}


def ours(method: str, **settings) -> Learner:
    return lambda table: discover(table, method, **settings).pattern


def peers(kind: str) -> Iterator[tuple[str, Learner]]:
    """The public learners for this kind of table that can be imported here, with the settings of their own examples."""
    has = {name: importlib.util.find_spec(name) is not None for name in ("dagma", "castle", "causallearn")}
    if kind == "linear" and has["dagma"]:
        yield "dagma", _peer_dagma
    if kind == "linear" and has["castle"]:
        yield "gcastle notears", _peer_notears
    if kind == "mlp" and has["castle"]:
        yield "gcastle notears-mlp", _peer_notears_mlp
    if kind == "mlp" and has["dagma"]:
        yield "dagma-mlp", _peer_dagma_mlp
    if kind == "ges" and has["causallearn"]:
        yield "causal-learn ges", _peer_ges


def _peer_dagma(table: np.ndarray) -> np.ndarray:
    from dagma.linear import DagmaLinear

    return (DagmaLinear(loss_type="l2").fit(table, lambda1=0.03, w_threshold=0.3) != 0).astype(int)


def _peer_dagma_mlp(table: np.ndarray) -> np.ndarray:
    """The shortened schedule of graphs/peers_results.json: the library's own takes 230,000 steps."""
    from dagma.nonlinear import DagmaMLP, DagmaNonlinear

    torch.manual_seed(0)
    model = DagmaNonlinear(DagmaMLP(dims=[table.shape[1], 10, 1], bias=True, dtype=torch.double), dtype=torch.double)
    short = {"warm_iter": 7000, "max_iter": 8000} if table.shape[1] > 10 else {"warm_iter": 50_000, "max_iter": 80_000}
    return (model.fit(table, lambda1=0.02, lambda2=0.005, w_threshold=0.3, **short) != 0).astype(int)


def _peer_notears(table: np.ndarray) -> np.ndarray:
    from castle.algorithms import Notears

    model = Notears(lambda1=0.1, w_threshold=0.3)
    model.learn(table)
    return np.asarray(model.causal_matrix).astype(int)


def _peer_notears_mlp(table: np.ndarray) -> np.ndarray:
    from castle.algorithms import NotearsNonlinear

    torch.manual_seed(0)
    model = NotearsNonlinear(hidden_layers=(10, 1), lambda1=0.01, lambda2=0.01, w_threshold=0.3, device_type="cpu")
    model.learn(table)
    return np.asarray(model.causal_matrix).astype(int)


def _peer_ges(table: np.ndarray) -> np.ndarray:
    from causallearn.search.ScoreBased.GES import ges

    pattern = pattern_from_marks(ges(table, "local_score_BIC")["G"].graph)
    return np.where(pattern & pattern.T, -1, pattern.astype(int))


LEARNERS: dict[str, dict[str, Learner]] = {
    "linear": {"dagma": ours("dagma", standardise=False), "notears": ours("notears", standardise=False), "ges": ours("ges")}
    | {f"{m} standardised": ours(m) for m in ("dagma", "notears")},
    "mlp": {m: ours(m, standardise=False) for m in MLP} | {f"{m} standardised": ours(m) for m in MLP},
    "ges": {"ges": ours("ges"), "ges-generalised": ours("ges-generalised")},
}


def tables(seeds: int, variables: int = 0) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """(name, kind, table, true adjacency); made tables are of this many variables, or of the four sizes of INTERVAE_ORACLES."""
    folder = os.environ.get("INTERVAE_ORACLES", "")
    if folder and not seeds:
        for path in sorted((Path(folder) / "graphs").glob("*.npz")):
            kind = "linear" if "linear_gauss" in path.stem else "ges" if "_ges_" in path.stem else "mlp"
            data = np.load(path, allow_pickle=False)
            yield path.stem.removeprefix("graphs_"), kind, data["X"], data["B"].astype(int)
        return
    sizes = [("linear", variables), ("mlp", variables)] if variables else [("linear", 20), ("linear", 50), ("mlp", 10), ("mlp", 20)]
    for seed in range(seeds or 1):
        for kind, size in sizes:
            yield f"{kind}_d{size}_made_{seed}", kind, *simulate(kind, size, 1000, seed)


def simulate(kind: str, variables: int, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random DAG with 2 edges per variable; linear weights of size 0.5 to 2, or networks of 100 sigmoid units with such weights; noises N(0, 1)."""
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
            table[:, effect] += (1 / (1 + np.exp(-table[:, causes] @ weights(len(causes), 100)))) @ weights(100)
    return table, true


def measure(learner: Learner, table: np.ndarray, true: np.ndarray) -> tuple[int, float]:
    """SHD and CPU seconds."""
    started = time.process_time()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        found = learner(table)
    return compare(true, found).shd, time.process_time() - started


def measure_table(name: str, kind: str, table: np.ndarray, true: np.ndarray, *, method: str, with_peers: bool) -> dict[str, Any]:
    """Every learner for this kind of table with `method` in its name: SHD, CPU seconds, and how many times as fast as its peer ours is."""
    sortable = varsortability(table, CausalGraph(tuple(map(str, range(len(true)))), true))
    print(f"\n{name}: {int(true.sum())} true edges, varsortability {sortable:.2f}", flush=True)
    theirs = {f"peer: {peer}": learner for peer, learner in peers(kind)} if with_peers else {}
    learners: list[dict[str, Any]] = []
    took: dict[str, float] = {}
    for label, learner in (LEARNERS[kind] | theirs).items():
        if method not in label:
            continue
        try:
            shd, took[label] = measure(learner, table, true)
        except Exception as error:  # one learner that fails must not cost the others' hour
            learners.append({"learner": label, "failed": f"{type(error).__name__}: {error}"})
            print(f"  {label:28s} failed: {error}", flush=True)
            continue
        learners.append({"learner": label, "shd": shd, "cpu_seconds": round(took[label], 3)})
        print(f"  {label:28s} SHD {shd:3d}   {took[label]:8.2f} CPU s", flush=True)
    ratios = []
    for label, (peer, bar) in BARS.items():
        if label in took and f"peer: {peer}" in took:
            ratio = took[f"peer: {peer}"] / took[label]
            ratios.append({"learner": label, "peer": peer, "times_as_fast": round(ratio, 2), "wanted": bar})
            print(f"  {label} is {ratio:.1f} times as fast as {peer} (wanted: {bar})", flush=True)
    sizes = {"rows": len(table), "variables": len(true), "true_edges": int(true.sum()), "varsortability": round(sortable, 4)}
    return {"table": name, "kind": kind, **sizes, "learners": learners, "ratios": ratios}


def page(document: dict[str, Any]) -> str:
    """The markdown of a measured document; every number in it comes from there."""
    lines = ["# Graph learners beside the public ones", ""]
    lines += [
        "SHD (a reversed edge counts once, an undirected one on the true skeleton is right) and CPU seconds of one thread, every learner on the"
    ]
    lines += ["same table in its own units but where it says standardised, in one run.", ""]
    for table in document["tables"]:
        sizes = (
            f"{table['rows']} rows, {table['variables']} variables, {table['true_edges']} true edges, varsortability {table['varsortability']:.2f}"
        )
        lines += [f"## {table['table']}", "", f"{sizes}.", "", "| learner | SHD | CPU s |", "|---|---|---|"]
        for found in table["learners"]:
            numbers = f"{found['shd']} | {found['cpu_seconds']:.2f}" if "shd" in found else f"failed: {found['failed']} | "
            lines.append(f"| {found['learner']} | {numbers} |")
        lines.append("")
        for ratio in table["ratios"]:
            reached = "reached" if ratio["times_as_fast"] >= ratio["wanted"] else "NOT reached"
            faster = f"{ratio['times_as_fast']:.1f} times as fast as the public {ratio['peer']}"
            lines += [f"`{ratio['learner']}` is {faster} (wanted: {ratio['wanted']}; {reached}).", ""]
    return "\n".join([*lines, *told(document)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="tables with this in their name")
    parser.add_argument("--method", default="", help="learners with this in their name")
    parser.add_argument("--ours", action="store_true", help="no peers")
    parser.add_argument("--seeds", type=int, default=0, help="make this many tables of each kind instead of reading INTERVAE_ORACLES")
    parser.add_argument("--variables", type=int, default=0, help="of made tables, instead of 20 and 50 (linear) and 10 and 20 (networks)")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md, anew after every table")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    document = conditions(" ".join(["python", "benchmarks/discovery.py", *sys.argv[1:]]), ("dagma", "gcastle", "causal-learn")) | {"tables": []}
    measure(ours("dagma", steps=5), *simulate("linear", 5, 100, 0))  # what is loaded or compiled at first use
    for name, kind, table, true in tables(chosen.seeds, chosen.variables):
        if chosen.only not in name:
            continue
        document["tables"].append(measure_table(name, kind, table, true, method=chosen.method, with_peers=not chosen.ours))
        if chosen.out is not None:
            write_json(chosen.out.with_suffix(".json"), document)
            write_text(chosen.out.with_suffix(".md"), page(document))


if __name__ == "__main__":
    main()
