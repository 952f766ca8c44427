"""SHD and CPU seconds of discovery methods on simulated tables of 10, 20, 50 and 100 variables.

python benchmarks/discovery_scale.py --out benchmarks/results/discovery_scale
python benchmarks/discovery_scale.py --variables 10 --seeds 5 --search subsets,screened,local

Tables are those of benchmarks/discovery.py: random networks with noise N(0, 1), 1,000 rows, two
edges per variable. One thread; CPU seconds of the process.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from conditions import conditions, footer, write_results
from discovery import measure, ours, simulate

METHODS = ("ges", "dagma", "notears")  # beside independence
ROWS = 1000


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of a document."""
    lines = [
        "# Discovery methods on more variables",
        "",
        "SHD (a reversed edge counts once) and CPU seconds on one thread; random networks, 1,000",
        "rows, two edges per variable. `independence` without the confidence of directions.",
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variables", default="10,20,50,100")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--search", default="auto", help="searches of independence")
    parser.add_argument("--independence", action="store_true", help="no other methods")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md after every table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    command = " ".join(["python", "benchmarks/discovery_scale.py", *sys.argv[1:]])
    document = conditions(command) | {"rows": []}
    learners = {
        f"independence ({search})": ours("independence", search=search, check_directions=False)
        for search in options.search.split(",")
    }
    if not options.independence:
        learners |= {method: ours(method) for method in METHODS}
    for variables in map(int, options.variables.split(",")):
        for seed in range(options.seeds):
            table, true = simulate("mlp", variables, ROWS, seed)
            for method, learner in learners.items():
                shd, seconds = measure(learner, table, true)
                row = {
                    "variables": variables,
                    "true_edges": int(true.sum()),
                    "seed": seed,
                    "method": method,
                    "shd": shd,
                    "cpu_seconds": round(seconds, 1),
                }
                document["rows"].append(row)
                print(row, flush=True)
                if options.out is not None:
                    write_results(options.out, document, page(document))


if __name__ == "__main__":
    main()
