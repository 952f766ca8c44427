"""Write benchmarks/README.md: our numbers beside the peer's or the limit, from results/*.json.

python benchmarks/make_page.py

A row reads its number from a file of benchmarks/results, which the command of the row writes. A
row without such a file says so, with the command. Nothing is typed by hand but the limits, which
are the goals of the issues. A test checks that the page is current.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PAGE = FOLDER / "README.md"
Value = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Row:
    """One line of the page.

    Arguments:
        what: the quantity with its unit.
        source: name of the file in results, without .json.
        ours: our number in its document; None if that run did not measure it.
        bar: what it is compared with, from the document or fixed.
        bar_name: the peer, or "limit" or "goal".
        how: how it was measured.
        more_is_better: what a ratio above 1 means; the ratio is always ours / bar or bar / ours,
            so that above 1 is better.
    """

    what: str
    source: str
    ours: Value
    bar: Value | float
    bar_name: str
    how: Value | str
    more_is_better: bool = False


def startup(case: str) -> Value:
    return lambda document: _only(document["now"]["rows"], case=case)["cpu_seconds"]


def startup_before(case: str) -> Value:
    return lambda document: _only(document["before"]["rows"], case=case)["cpu_seconds"]


def scale(variables: int, key: str, method: str = "independence") -> Value:
    """Mean over the seeds of a number of discovery_scale.json."""

    def mean(document: dict[str, Any]) -> float | None:
        rows = [
            row[key]
            for row in document["rows"]
            if row["variables"] == variables and row["method"] == method
        ]
        return sum(rows) / len(rows) if rows else None

    return mean


def learner(table: str, name: str, key: str) -> Value:
    def value(document: dict[str, Any]) -> float:
        return _only(_only(document["tables"], table=table)["learners"], learner=name)[key]

    return value


def case(key: str, **where: Any) -> Value:
    return lambda document: _only(document["cases"], **where)[key]


def _only(rows: list[dict[str, Any]], **where: Any) -> dict[str, Any]:
    """Return the first row with these entries; an empty one if there is none."""
    fits = (row for row in rows if all(row.get(k) == v for k, v in where.items()))
    return next(fits, dict.fromkeys(("cpu_seconds", "shd"))) if rows else {}


FIRST = "first step of causal-vae, graph learned"
CPU = "CPU seconds (user and system), median of fresh processes"


def seeds(variables: int, what: str) -> Value:
    """How a row of discovery_scale.json was measured, with the number of its seeds."""

    def how(document: dict[str, Any]) -> str:
        count = sum(
            row["variables"] == variables and row["method"] == "independence"
            for row in document["rows"]
        )
        over = f"mean of {count} seeds" if count > 1 else "one seed"
        return f"{what}, {over}; random networks, 1,000 rows"

    return how


DISCOVERY = "CPU seconds, one thread"
SECTIONS: dict[str, list[Row]] = {
    "Start-up": [
        Row("`import intervae`, s", "startup", startup("import intervae"), 1.5, "limit", CPU),
        Row("`intervae --help`, s", "startup", startup("intervae --help"), 0.7, "limit", CPU),
        Row(
            "`intervae models`, s",
            "startup",
            startup("intervae models"),
            startup("import torch"),
            "`import torch`",
            CPU,
        ),
        Row(
            "command to first step, graph learned, s",
            "startup",
            startup(FIRST),
            startup_before(FIRST),
            "before issue 26",
            CPU,
        ),
        Row(
            "command to first step, graph known, s",
            "startup",
            startup("first step of causal-vae, graph known"),
            startup_before("first step of causal-vae, graph known"),
            "before issue 26",
            CPU,
        ),
        Row(
            "first step on an H200, s",
            "gpu_goals",
            lambda document: document["startup"]["total"],
            2.5,
            "goal",
            "wall time of a fresh process, capture included",
        ),
    ],
    "Training on a GPU": [
        Row(
            "Pendulum 96 px to MIC .95 and TIC .82, s",
            "gpu_goals",
            lambda document: document["reached"]["fit_seconds"],
            5.0,
            "goal (authors: 275)",
            "wall time of `fit` in a fresh process, slowest seed",
        ),
        Row(
            "step that fills the GPU, fraction of the roofline",
            "roofline",
            lambda document: document["step"]["fraction"],
            0.4,
            "goal",
            "batch 4,096, 128 px, bf16; counted as roofline.py says",
            more_is_better=True,
        ),
    ],
    "Graph from labels": [
        Row(
            "`independence`, 10 variables, s",
            "discovery_scale",
            scale(10, "cpu_seconds"),
            60,
            "goal (of 20 variables)",
            seeds(10, DISCOVERY),
        ),
        Row(
            "`independence`, 20 variables, s",
            "discovery_scale",
            scale(20, "cpu_seconds"),
            60,
            "goal",
            seeds(20, DISCOVERY),
        ),
        Row(
            "`independence`, 50 variables, s",
            "discovery_scale",
            scale(50, "cpu_seconds"),
            600,
            "goal (of 100 variables)",
            seeds(50, DISCOVERY),
        ),
        Row(
            "`independence`, 100 variables, s",
            "discovery_scale",
            scale(100, "cpu_seconds"),
            600,
            "goal",
            seeds(100, DISCOVERY),
        ),
        *(
            Row(
                f"`independence`, {n} variables, SHD",
                "discovery_scale",
                scale(n, "shd"),
                scale(n, "shd", "empty graph"),
                "empty graph",
                seeds(n, "a reversed edge counts once"),
            )
            for n in (10, 20, 50, 100)
        ),
        Row(
            "`dagma`, 50 variables, linear, s",
            "discovery",
            learner("linear_gauss_ER2_d50_n1000_s0", "dagma", "cpu_seconds"),
            learner("linear_gauss_ER2_d50_n1000_s0", "peer: dagma", "cpu_seconds"),
            "dagma",
            "CPU seconds, one thread, same table",
        ),
        Row(
            "`dagma`, the same, SHD",
            "discovery",
            learner("linear_gauss_ER2_d50_n1000_s0", "dagma", "shd"),
            learner("linear_gauss_ER2_d50_n1000_s0", "peer: dagma", "shd"),
            "dagma",
            "same table",
        ),
        Row(
            "`notears-mlp`, 20 variables, s",
            "discovery",
            learner("nonlinear_mlp_ER2_d20_n1000_s0", "notears-mlp", "cpu_seconds"),
            learner("nonlinear_mlp_ER2_d20_n1000_s0", "peer: gcastle notears-mlp", "cpu_seconds"),
            "gcastle",
            "CPU seconds, one thread, same table",
        ),
        Row(
            "`notears-mlp`, the same, SHD",
            "discovery",
            learner("nonlinear_mlp_ER2_d20_n1000_s0", "notears-mlp", "shd"),
            learner("nonlinear_mlp_ER2_d20_n1000_s0", "peer: gcastle notears-mlp", "shd"),
            "gcastle",
            "same table",
        ),
    ],
    "Parts of models": [
        Row(
            "codebooks, PSNR, dB",
            "quantise",
            case("psnr", codebook="ours"),
            case("psnr", codebook="the library"),
            "vector-quantize-pytorch",
            "same VQ-VAE, 400 steps, one seed",
            more_is_better=True,
        ),
        Row(
            "codebooks, a step, s",
            "quantise",
            case("cpu_seconds", codebook="ours"),
            case("cpu_seconds", codebook="the library"),
            "vector-quantize-pytorch",
            "CPU seconds, one thread",
        ),
        Row(
            "transition layer, causal mode, a step, s",
            "transition",
            case("cpu_seconds", mode="causal"),
            case("authors", mode="causal"),
            "authors' code (scaled to batch 16)",
            "CPU seconds, one thread, batch 16",
        ),
    ],
    "The page of `intervae serve`": [
        Row(
            "first page with all its files, s",
            "page",
            lambda document: document["measured"]["first_page_seconds"],
            3.0,
            "limit",
            "wall time after the command, median of 5 starts",
        ),
        Row(
            "do() to picture in the server, ms",
            "page",
            lambda document: document["measured"]["do_server_ms"],
            50.0,
            "limit",
            "wall time, median of 200",
        ),
        Row(
            "slider to new pixels, ms",
            "page",
            lambda document: document["measured"]["do_pixels_ms"],
            100.0,
            "limit",
            "wall time in Chromium, median of 200",
        ),
    ],
}
COMMANDS = {
    "startup": "python benchmarks/startup.py --out benchmarks/results/startup",
    "gpu_goals": "python benchmarks/gpu_goals.py --out benchmarks/results/gpu_goals",
    "roofline": "python benchmarks/roofline.py --device cuda --out benchmarks/results/roofline",
    "discovery_scale": "python benchmarks/discovery_scale.py --seeds 3 --merge "
    "--out benchmarks/results/discovery_scale",
    "discovery": "python benchmarks/discovery.py --out benchmarks/results/discovery",
    "quantise": "python benchmarks/quantise.py --out benchmarks/results/quantise",
    "transition": "python benchmarks/transition.py --out benchmarks/results/transition",
    "page": "python benchmarks/page.py --run runs/demo --out benchmarks/results/page",
}


def read(results: Path) -> dict[str, dict[str, Any]]:
    """Return the documents that exist, by name."""
    paths = {name: results / f"{name}.json" for name in COMMANDS}
    return {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name, path in paths.items()
        if path.exists()
    }


def render(documents: dict[str, dict[str, Any]]) -> str:
    """Return the text of the page."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `python benchmarks/make_page.py` from `benchmarks/results/*.json`; no edits.",
        "`make bench` measures the rows of the CPU that take minutes and writes the page again.",
        "In every row a ratio above 1 is better than what it is compared with.",
        "CPU seconds grow on a busy machine; its load is given below.",
    ]
    for section, rows in SECTIONS.items():
        lines += [
            "",
            f"## {section}",
            "",
            "| what | ours | compared with | ratio | how measured | run |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_line(row, documents.get(row.source)) for row in rows]
    lines += [
        "",
        "## Runs",
        "",
        "| run | hardware, load at the start, revision, date |",
        "|---|---|",
    ]
    for name, document in documents.items():
        part = document.get("now", document)
        facts = f"{part['machine']}, load {part['load_at_start']}, {part['revision']}"
        lines.append(f"| [{name}](results/{name}.md) | {facts}, {part['date']} |")
    lines += ["", "Commands:", "", "```", *COMMANDS.values(), "```", ""]
    return "\n".join(lines)


def _line(row: Row, document: dict[str, Any] | None) -> str:
    ours = None if document is None else row.ours(document)
    bar = row.bar
    how = row.how
    if callable(how):
        how = "" if document is None else how(document)
    if callable(bar):
        bar = None if document is None else bar(document)
    against = row.bar_name if bar is None else f"{_number(bar)} ({row.bar_name})"
    if ours is None:
        cells = [f"not measured yet: `{COMMANDS[row.source]}`", against, ""]
    else:
        cells = [_number(ours), against, _ratio(ours, bar, row.more_is_better)]
    return f"| {row.what} | {' | '.join(cells)} | {how} | {row.source} |"


def _ratio(ours: float, bar: float | None, more_is_better: bool) -> str:
    numerator, denominator = (ours, bar) if more_is_better else (bar, ours)
    return f"{numerator / denominator:.2f}" if numerator is not None and denominator else ""


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def main() -> None:
    PAGE.write_text(render(read(RESULTS)), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
