"""SHD and CPU seconds of discovery methods on simulated tables of 10, 20, 50 and 100 variables.

python benchmarks/discovery_scale.py --seeds 3 --out benchmarks/results/discovery_scale
python benchmarks/discovery_scale.py --variables 10 --seeds 5 --search subsets,screened,local
python benchmarks/discovery_scale.py --variables 100 --merge --out ...   # keeps other rows of OUT

Tables are those of benchmarks/discovery.py: random networks with noise N(0, 1), 1,000 rows, two
edges per variable. One thread; CPU seconds of the process. Two baselines see no data: the graph
without edges, and a random graph with the true number of edges.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conditions import conditions, footer, write_results
from discovery import measure, ours, simulate
from discovery_peers import Learner

METHODS = ("ges", "dagma", "notears", "dagma-mlp")  # beside independence
BASELINES = ("empty graph", "random graph")
ROWS = 1000
KEYS = ("variables", "seed", "method")


def baselines(variables: int, edges: int, seed: int) -> dict[str, Learner]:
    """Return learners that do not look at the table."""
    rng = np.random.default_rng([seed, variables, 1])
    order = rng.permutation(variables)
    pairs = np.argwhere(np.triu(np.ones((variables, variables), dtype=bool), 1))
    random = np.zeros((variables, variables), dtype=int)
    chosen = order[pairs[rng.choice(len(pairs), edges, replace=False)]]
    random[chosen[:, 0], chosen[:, 1]] = 1
    graphs = (np.zeros_like(random), random)
    return {
        name: (lambda table, graph=graph: graph)  # type: ignore[misc]
        for name, graph in zip(BASELINES, graphs, strict=True)
    }


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of a document."""
    lines = [
        "# Discovery methods on more variables",
        "",
        "SHD (a reversed edge counts once) and CPU seconds on one thread; random networks, 1,000",
        "rows, two edges per variable. `independence` without the confidence of directions. The",
        "baselines are the graph without edges and a random one with the true number of edges.",
        "",
        *means(document["rows"]),
        "",
        "| variables | true edges | seed | method | SHD | CPU s |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['variables']} | {row['true_edges']} | {row['seed']} | {row['method']} | "
        f"{row['shd']} | {row['cpu_seconds']:.1f} |"
        for row in document["rows"]
    ]
    return "\n".join([*lines, "", *footer(document)])


def means(rows: list[dict[str, Any]]) -> list[str]:
    """Return the table of means over the seeds, SHD / CPU seconds."""
    sizes = sorted({row["variables"] for row in rows})
    lines = [
        "Means over the seeds, SHD / CPU seconds:",
        "",
        f"| method | {' | '.join(f'{size} variables' for size in sizes)} |",
        "|---" * (len(sizes) + 1) + "|",
    ]
    for method in dict.fromkeys(row["method"] for row in rows):
        cells = []
        for size in sizes:
            same = [r for r in rows if (r["variables"], r["method"]) == (size, method)]
            shd, seconds = ([r[key] for r in same] for key in ("shd", "cpu_seconds"))
            cells.append(f"{np.mean(shd):.1f} / {np.mean(seconds):.1f}" if same else "")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return lines


def _label(search: str) -> str:
    return "independence" if search == "auto" else f"independence ({search})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variables", default="10,20,50,100")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--search", default="auto", help="searches of independence")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--methods", default=",".join(METHODS), help="others; empty for none")
    parser.add_argument("--merge", action="store_true", help="keep the other rows of OUT.json")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md after every table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    command = " ".join(["python", "benchmarks/discovery_scale.py", *sys.argv[1:]])
    document = conditions(command) | {"rows": []}
    earlier = []
    if options.merge and options.out is not None and options.out.with_suffix(".json").exists():
        earlier = json.loads(options.out.with_suffix(".json").read_text(encoding="utf-8"))["rows"]
    learners = {
        _label(search): ours("independence", search=search, check_directions=False)
        for search in filter(None, options.search.split(","))
    }
    learners |= {method: ours(method) for method in filter(None, options.methods.split(","))}
    for variables in map(int, options.variables.split(",")):
        for seed in range(options.first, options.first + options.seeds):
            table, true = simulate("mlp", variables, ROWS, seed)
            others = baselines(variables, int(true.sum()), seed)
            for method, learner in (learners | others).items():
                shd, seconds = measure(learner, table, true)
                row = {
                    "variables": variables,
                    "true_edges": int(true.sum()),
                    "seed": seed,
                    "method": method,
                    "shd": shd,
                    "cpu_seconds": round(seconds, 1),
                }
                document["rows"].append(row | {"revision": document["revision"]})
                print(row, flush=True)
                new = {tuple(row[key] for key in KEYS) for row in document["rows"]}
                rest = [row for row in earlier if tuple(row[key] for key in KEYS) not in new]
                rows = sorted([*document["rows"], *rest], key=lambda r: [r[k] for k in KEYS[:2]])
                if options.out is not None:
                    merged = document | {"rows": rows}
                    write_results(options.out, merged, page(merged))


if __name__ == "__main__":
    main()
