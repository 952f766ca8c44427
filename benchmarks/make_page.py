"""Write benchmarks/README.md: our numbers beside the peer's or the limit, from results/*.json.

python benchmarks/make_page.py

A row reads its number from a file of benchmarks/results, which the command of the row writes. A
row without such a file says so, with the command. Nothing is typed by hand but the limits, which
are the goals of the issues. A test checks that the page is current.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from page_sections import COMMANDS, SECTIONS
from page_values import Row

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"
PAGE = FOLDER / "README.md"


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
