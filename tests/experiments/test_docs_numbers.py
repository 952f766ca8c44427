"""Numbers in README, docs and research notes are those of committed results."""

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


# ---- Ladder VAE ----------------------------------------------------------------------------------
def test_docs_of_the_ladder_have_the_bounds_of_both_tables() -> None:
    page, tables = "docs/ladder-vae.md", {n: rows_of(f"lvae-{n}") for n in ("mnist", "omniglot")}

    def mean(data: str, variant: str, metric: str = "log_likelihood") -> float:
        return tables[data][data, "ladder-vae", variant, metric]["mean"]

    lines = table_after(page, "mean of three seeds")
    assert [line[0] for line in lines] == ["VAE", "VAE+BN", "VAE+BN+WU", "LVAE+BN+WU"]
    places = [(data, depth) for data in tables for depth in (1, 5)]
    for name, *cells in lines:
        for cell, (data, depth) in zip(cells, places, strict=True):
            assert (cell == "") == (name.startswith("LVAE") and depth == 1)
            if cell:
                assert_rounded(cell, mean(data, f"{name} {depth}"))
    (best, paper) = numbers_in(page, r"reach (-[\d.]+) nats .*? paper: (-[\d.]+) ")
    long = tables["mnist"]["mnist", "ladder-vae", "LVAE+BN+WU 5 long", "log_likelihood"]
    assert_rounded(best, long["mean"])
    assert_rounded(paper, long["paper"])
    units = numbers_in(
        page, r"layers (\d+) against (\d+) on MNIST, (\d+) against (\d+) on Omniglot"
    )
    order = [(data, name) for data in tables for name in ("LVAE+BN+WU 5", "VAE+BN+WU 5")]
    for text, (data, variant) in zip(units, order, strict=True):
        assert_rounded(text, mean(data, variant, "active_units"))


def test_additions_help_one_layer_on_omniglot_and_not_on_mnist() -> None:
    page = "docs/ladder-vae.md"
    bounds = {
        data: [
            rows_of(f"lvae-{data}")[data, "ladder-vae", f"{name} 1", "log_likelihood"]["mean"]
            for name in ("VAE", "VAE+BN", "VAE+BN+WU")
        ]
        for data in ("mnist", "omniglot")
    }
    assert bounds["mnist"] == sorted(bounds["mnist"], reverse=True)
    assert bounds["omniglot"] == sorted(bounds["omniglot"])
    first, second = numbers_in(page, r"on Omniglot both do, by ([\d.]+) and ([\d.]+) nats")
    assert_rounded(first, bounds["omniglot"][1] - bounds["omniglot"][0])
    assert_rounded(second, bounds["omniglot"][2] - bounds["omniglot"][1])
    ladder = [
        rows_of(f"lvae-{data}")[data, "ladder-vae", "LVAE+BN+WU 5", "log_likelihood"]["mean"]
        - rows_of(f"lvae-{data}")[data, "ladder-vae", "VAE+BN+WU 5", "log_likelihood"]["mean"]
        for data in ("mnist", "omniglot")
    ]
    (most,) = numbers_in(page, r"The ladder adds less than ([\d.]+) nats")
    assert all(0 < gain < float(most) for gain in ladder)
