"""How often the graph of the labels is found from nothing on Pendulum and Flow, seed by seed.

python benchmarks/graph_from_labels.py                                         # 10 seeds, every method
python benchmarks/graph_from_labels.py --set samples=300 --set resolution=0.02 # the default method with other settings
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from intervae.data.simulators.flow import Flow
from intervae.data.simulators.pendulum import Pendulum
from intervae.discovery import discover

LEARNERS: dict[str, dict] = {
    "independence": {"method": "independence"},
    "lagrangian, linear": {"method": "lagrangian"},
    "lagrangian, mlp": {"method": "lagrangian", "mechanism": "mlp"},
}


def grid(simulator) -> Callable[[int], np.ndarray]:
    """The published grid, of which `discover` draws other rows for another seed."""
    table = simulator.simulate(simulator.published_grid()[0])
    return lambda seed: table


def continuous(simulator, rows: int = 2000) -> Callable[[int], np.ndarray]:
    """Another continuous draw for another seed."""
    return lambda seed: simulator.simulate(simulator.sample_exogenous(rows, np.random.default_rng(seed)))


def shuffled(table: np.ndarray, names: list[str], seed: int) -> dict:
    """The columns in another order for every seed, so that no learner gains from finding causes first."""
    columns = np.random.default_rng([seed, 1]).permutation(len(names))
    return {"table": table[:, columns], "names": [names[c] for c in columns]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=NUMBER", help="a setting of the independence method, which then runs alone"
    )
    chosen = parser.parse_args()
    changed = {key: (int(value) if value.isdigit() else float(value)) for key, _, value in (text.partition("=") for text in chosen.set)}
    learners = {"independence": {"method": "independence", **changed}} if changed else LEARNERS
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    for simulator in (Pendulum(), Flow()):
        names = [v.name for v in simulator.variables]
        for kind, draw in (("grid", grid(simulator)), ("continuous", continuous(simulator))):
            for label, settings in learners.items():
                found = [discover(**shuffled(draw(seed), names, seed), seed=seed, **settings) for seed in seeds]
                shd = [f.graph.shd(simulator.graph) for f in found]
                summary = f"zero in {sum(d == 0 for d in shd)}/{len(shd)}, ambiguous in {sum(bool(f.ambiguous) for f in found)}"
                seconds = np.mean([f.seconds for f in found])
                print(f"{simulator.name:9s} {kind:11s} {label:19s} {changed or ''} SHD {shd} {summary}, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
