"""All discovery methods on the Sachs proteins (853 observational cells, 17 edges)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intervae.data.readers.sachs import load_sachs
from intervae.discovery import UnitsWarning, discover
from intervae.discovery.causal_learn import require_causal_learn
from intervae.experiments.base import Experiment, Job, Numbers
from intervae.files import write_json
from intervae.metrics.graphs import graph_metrics

CAUSAL_LEARN = ("causal-learn-pc", "causal-learn-ges")  # methods of an optional package


@dataclass(frozen=True)
class SachsJob(Job):
    """One discovery method on log concentrations."""

    def check(self) -> None:
        load_sachs()
        if self.model in CAUSAL_LEARN:
            require_causal_learn()

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        table = load_sachs()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnitsWarning)  # the variant names raw units
            result = discover(
                np.log(table.columns), self.model, names=table.names, seed=seed, **self.settings
            )
        write_json(folder / "graph.json", result.graph.to_json())
        score = graph_metrics(table.graph.adjacency, result.pattern)
        numbers: Numbers = {
            "shd": float(score.shd),
            "tpr": score.tpr,
            "fdr": score.fdr,
            "edges": float(result.graph.adjacency.sum()),
        }
        return numbers | {"ambiguous": float(len(result.ambiguous)), "seconds": result.seconds}


def _job(model: str, variant: str = "", seeds: int = 1, **settings: object) -> SachsJob:
    return SachsJob("sachs", model, settings=settings, variant=variant, seeds=seeds)


SACHS = Experiment(
    name="sachs",
    title="Graph learners on the Sachs proteins",
    jobs=(
        _job("notears"),
        _job("notears", variant="raw units", standardise=False),
        _job("notears-mlp", seeds=5),
        _job("notears-mlp", variant="raw units", seeds=5, standardise=False),
        _job("dagma"),
        _job("dagma", variant="raw units", standardise=False),
        _job("dagma-mlp", seeds=5),
        _job("dagma-mlp", variant="raw units", seeds=5, standardise=False),
        _job("ges"),
        _job("ges-generalised"),
        _job("independence", variant="400 cells", seeds=5, samples=400),
        _job("lagrangian", variant="800 cells", seeds=5, samples=800),
        *map(_job, CAUSAL_LEARN),
    ),
    seeds=1,
    shown=("shd", "tpr", "fdr", "edges", "ambiguous", "seconds"),
    columns=("shd", "tpr", "fdr", "edges", "ambiguous"),
    notes=("sachs",),
    quick=(
        _job("notears"),
        _job("dagma"),
        _job("ges"),
        _job("independence", variant="200 cells", samples=200),
    ),
)
