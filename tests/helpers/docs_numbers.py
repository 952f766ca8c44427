"""Numbers in pages beside those of committed results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def rows_of(name: str) -> dict[tuple[str, str, str, str], dict[str, Any]]:
    """Return (data, model, variant, metric) -> row of results/NAME.json."""
    document = json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return {(r["data"], r["model"], r["variant"], r["metric"]): r for r in document["rows"]}


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def table_after(page: str, start: str) -> list[list[str]]:
    """Return the cells of the first table after a text, without its head."""
    table = re.search(r"(?:^\|.*\|\n)+", text_of(page).split(start, 1)[1], re.MULTILINE)
    assert table, f"{page} has no table after {start!r}"
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]
    ]


def assert_rounded(text: str, value: float) -> None:
    """Check that the text is the value, rounded to the digits of the text."""
    digits = len(text.partition(".")[2])
    number = float(text.replace(",", ""))
    assert abs(number - value) <= 0.5000001 * 10**-digits, (text, value)


def numbers_in(page: str, pattern: str) -> tuple[str, ...]:
    """Return the groups of the only match of a pattern, whose spaces match line breaks too."""
    (match,) = re.finditer(pattern.replace(" ", r"\s+"), text_of(page))
    return match.groups()
