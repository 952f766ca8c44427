"""SHD of the graph of the labels of Pendulum and Flow, for every seed.

python benchmarks/graph_from_labels.py                    # 10 seeds, every method
python benchmarks/graph_from_labels.py --set samples=300  # the default method with other settings
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
    """The published grid; `discover` draws other rows for another seed."""
    table = simulator.simulate(simulator.published_grid()[0])
    return lambda seed: table


def continuous(simulator, rows: int = 2000) -> Callable[[int], np.ndarray]:
    """A continuous sample, another one for every seed."""
    return lambda seed: simulator.simulate(
        simulator.sample_exogenous(rows, np.random.default_rng(seed))
    )


def shuffled(table: np.ndarray, names: list[str], seed: int) -> dict:
    """Table and names with the columns in random order, so that no method profits from it."""
    columns = np.random.default_rng([seed, 1]).permutation(len(names))
    return {"table": table[:, columns], "names": [names[c] for c in columns]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=NUMBER",
        help="setting of the independence method, which then runs alone",
    )
    options = parser.parse_args()
    overrides = {
        key: (int(value) if value.isdigit() else float(value))
        for key, _, value in (text.partition("=") for text in options.set)
    }
    learners = {"independence": {"method": "independence", **overrides}} if overrides else LEARNERS
    seeds = range(options.first, options.first + options.seeds)
    for simulator in (Pendulum(), Flow()):
        names = [v.name for v in simulator.variables]
        for kind, draw in (("grid", grid(simulator)), ("continuous", continuous(simulator))):
            for label, settings in learners.items():
                results = [
                    discover(**shuffled(draw(seed), names, seed), seed=seed, **settings)
                    for seed in seeds
                ]
                shd = [result.graph.shd(simulator.graph) for result in results]
                ambiguous = sum(bool(result.ambiguous) for result in results)
                summary = f"zero in {shd.count(0)}/{len(shd)}, ambiguous in {ambiguous}"
                seconds = np.mean([result.seconds for result in results])
                print(
                    f"{simulator.name:9s} {kind:11s} {label:19s} {overrides or ''} SHD {shd} "
                    f"{summary}, {seconds:.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
