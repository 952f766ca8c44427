"""CausalVAE's graph pre-training on the labels of CelebA, with several l1 penalties (Fig. 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from intervae import figures
from intervae.causal.graph import CausalGraph
from intervae.data import Dataset
from intervae.discovery import discover
from intervae.experiments.base import Experiment, Job, MetricKey, Numbers
from intervae.experiments.jobs import load_shared
from intervae.files import read_json, write_json

THRESHOLD = 0.3
PICTURES = ("smile-eq-11", "smile-l1-0.01")


@dataclass(frozen=True)
class LabelGraph(Job):
    """Pre-train A on the labels of a random training split, without images.

    Arguments:
        rows: number of random training rows; none for all.
    """

    rows: int | None = None

    def load(self, seed: int) -> Dataset:
        return load_shared(self.data, {**self.options, "size": 8, "seed": seed})

    def check(self) -> None:
        self.load(0)

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load(seed)
        table = data.train.labels.cpu().numpy()
        result = discover(
            table,
            "lagrangian",
            names=data.names,
            kinds=[variable.kind for variable in data.variables],
            seed=seed,
            samples=self.rows or len(table),
            threshold=THRESHOLD,
            **self.settings,
        )
        history = [weights.tolist() for weights in result.history]
        graph = None if data.graph is None else data.graph.to_json()
        record = {"names": list(data.names), "history": history, "true_graph": graph}
        write_json(folder / "adjacency.json", record)
        edges = {(cause, effect) for cause, effect, _ in result.graph.edges}
        numbers: Numbers = {
            "edges": float(len(edges)),
            "largest_weight": float(np.abs(result.history[-1]).max()),
            "seconds": result.seconds,
        }
        if data.graph is not None:
            true = {(cause, effect) for cause, effect, _ in data.graph.edges}
            numbers["shd"] = float(data.graph.shd(result.graph))
            numbers["true_edges"] = float(len(edges & true))
            numbers["reversed_edges"] = float(len(edges & {(b, a) for a, b in true}))
        for cause, effect in permutations(data.names, 2):
            key = MetricKey("edge_found", f"{cause} -> {effect}")
            numbers[key] = float((cause, effect) in edges)
        return numbers


def draw_pretraining(folders: Mapping[str, Path], stem: Path) -> None:
    """Draw A over the pre-training of the first seed (Fig. 5) for the jobs of PICTURES."""
    for picture in PICTURES:
        folder = folders.get(_variant(picture))
        if folder is None or not (folder / "adjacency.json").is_file():
            continue
        record = read_json(folder / "adjacency.json", "A over the pre-training")
        history, true_graph = np.array(record["history"]), record["true_graph"]
        figures.adjacency_history(
            stem.with_name(f"{stem.name}-{picture}.png"),
            history,
            record["names"],
            true_graph=true_graph and CausalGraph.from_json(true_graph),
            captions=[f"round {i}" if i else "start" for i in range(len(history))],
            title=f"A over the pre-training, CelebA {_variant(picture)}, seed 0",
        )


def _variant(picture: str) -> str:
    label, _, rest = picture.partition("-")
    return f"{label.upper()} {'Eq. 11' if rest == 'eq-11' else rest.replace('l1-', 'l1=')}"


_PENALTIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("l1=0.1", {"l1": 0.1}),
    ("l1=0.03", {"l1": 0.03}),
    ("l1=0.01", {"l1": 0.01}),
    ("l1=0", {"l1": 0.0}),
    ("Eq. 11", {"l1": 0.0, "intercept": False}),
)

CELEBA_GRAPH = Experiment(
    "causalvae-celeba-graph",
    "CausalVAE's graph pre-training on the labels of CelebA (Fig. 5)",
    tuple(
        LabelGraph(
            "celeba",
            "lagrangian",
            {"labels": labels},
            settings,
            f"{labels.upper()} {penalty}{words}",
            rows=rows,
        )
        for labels in ("smile", "beard")
        for rows, words in ((None, ""), (800, " 800 rows"))
        for penalty, settings in _PENALTIES
    ),
    seeds=5,
    shown=("shd", "edges", "true_edges", "reversed_edges", "largest_weight", "edge_found"),
    notes=("causalvae-celeba-graph",),
    columns=("edges", "true_edges", "reversed_edges", "shd", "largest_weight"),
    pictures=PICTURES,
    gather=draw_pretraining,
    quick=tuple(
        LabelGraph(
            "celeba", "lagrangian", {"labels": "smile"}, settings, f"SMILE {penalty}", rows=800
        )
        for penalty, settings in _PENALTIES
    ),
)
