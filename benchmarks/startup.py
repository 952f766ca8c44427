"""CPU seconds and wall time of fresh processes: imports, commands, and a training's first step.

python benchmarks/startup.py --out benchmarks/results/startup
python benchmarks/startup.py --label before --out benchmarks/results/startup  # older revision

Every measurement is a new Python process. CPU seconds are user and system time of that process,
which other programs on the machine change little; wall time they do change. `--label` keeps the
other label's rows in the file, so that two revisions measured by this script stand side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from conditions import conditions, footer, write_results

FIRST_STEP = Path(__file__).parent / "first_step.py"
LIMITS = {"import intervae": 1.5, "intervae --help": 0.7}  # CPU seconds, of issue 26
CASES: dict[str, list[str]] = {
    "python": ["-c", "pass"],
    "import torch": ["-c", "import torch"],
    "import intervae": ["-c", "import intervae"],
    "import intervae, with all it exports": [
        "-c",
        "import intervae; [getattr(intervae, name) for name in intervae.__all__]",
    ],
    "intervae --help": ["-m", "intervae", "--help"],
    "intervae train --help": ["-m", "intervae", "train", "--help"],
    "intervae models": ["-m", "intervae", "models"],
    "intervae datasets": ["-m", "intervae", "datasets"],
    "intervae metrics": ["-m", "intervae", "metrics"],
    "intervae experiments": ["-m", "intervae", "experiments"],
    "first step of causal-vae, graph learned": [str(FIRST_STEP)],
    "first step of causal-vae, graph known": [str(FIRST_STEP), "--graph", "true"],
}


def run(arguments: list[str]) -> tuple[float, float, dict[str, float]]:
    """Return CPU seconds and wall seconds of a process, and the stages that it printed."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    started, before = time.perf_counter(), os.times()
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    after = os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    last = done.stdout.strip().rpartition("\n")[2]
    stages = json.loads(last) if last.startswith("{") else {}
    return cpu, time.perf_counter() - started, stages


def measure(name: str, repeats: int) -> dict[str, Any]:
    """Return the medians of a case; its first run, which warms the disk, does not count."""
    run(CASES[name])
    runs = [run(CASES[name]) for _ in range(repeats)]
    stages = {
        stage: round(statistics.median(each[2][stage] for each in runs), 2) for stage in runs[0][2]
    }
    row: dict[str, Any] = {
        "case": name,
        "cpu_seconds": round(statistics.median(each[0] for each in runs), 3),
        "wall_seconds": round(statistics.median(each[1] for each in runs), 3),
        "repeats": repeats,
    }
    if name in LIMITS:
        row["limit"] = LIMITS[name]
    return row | ({"stages_cpu_seconds": stages} if stages else {})


def page(document: dict[str, Any]) -> str:
    """Return the Markdown page of a document."""
    labels = [label for label in ("before", "now") if label in document]
    columns = [f"{label}, {unit}" for unit in ("CPU s", "wall s") for label in labels]
    lines = [
        "# Start-up",
        "",
        "Medians of fresh processes, one thread; CPU seconds are user and system time. A first",
        "step is that of CausalVAE on Pendulum, 64 x 64, from the start of the process to its end.",
        "Other programs change wall time most, so compare it only at equal loads (given below);",
        "they also lengthen CPU seconds, as `import torch`, which is not ours, shows.",
        "",
        f"| what | {' | '.join(columns)} | limit, CPU s |",
        "|---" * (len(columns) + 2) + "|",
    ]
    rows = {label: {row["case"]: row for row in document[label]["rows"]} for label in labels}
    for case in CASES:
        cells = [
            f"{rows[label][case][key]:.2f}" if case in rows[label] else ""
            for key in ("cpu_seconds", "wall_seconds")
            for label in labels
        ]
        lines.append(f"| {case} | {' | '.join(cells)} | {LIMITS.get(case, '')} |")
    lines += ["", "CPU seconds of the stages up to the first step, graph learned:", ""]
    stages = {label: rows[label].get(list(CASES)[-2], {}) for label in labels}
    lines += [f"| stage | {' | '.join(labels)} |", "|---" * (len(labels) + 1) + "|"]
    for stage in stages[labels[-1]].get("stages_cpu_seconds", {}):
        cells = [f"{stages[label]['stages_cpu_seconds'][stage]:.2f}" for label in labels]
        lines.append(f"| {stage} | {' | '.join(cells)} |")
    for label in labels:
        lines += ["", f"{label.capitalize()}:", "", *footer(document[label])]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--label", choices=("before", "now"), default="now")
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    options = parser.parse_args()
    command = " ".join(["python", "benchmarks/startup.py", *sys.argv[1:]])
    part = conditions(command) | {"rows": []}
    for name in CASES:
        if options.only in name:
            part["rows"].append(measure(name, options.repeats))
            print(part["rows"][-1], flush=True)
    if options.out is None:
        return
    path = options.out.with_suffix(".json")
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    document = {label: earlier[label] for label in ("before", "now") if label in earlier}
    document[options.label] = part
    write_results(options.out, document, page(document))


if __name__ == "__main__":
    main()
