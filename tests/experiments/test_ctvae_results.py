"""CT-VAE's committed table: what it must reach, and that the page of the docs says what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BARS = {"cars3d": (0.80, 0.95), "shapes3d-like": (0.93, 0.97), "sprites-frames": (0.60, 0.88), "dsprites": (0.65, 0.80)}
ROWS = {  # how the lines of the docs' tables begin -> data, variant
    "Cars3D": ("cars3d", ""),
    "3D Shapes": ("shapes3d-like", ""),
    "Sprites, seven": ("sprites-frames", ""),
    "Sprites (last": ("sprites-frames", ""),
    "dSprites": ("dsprites", ""),
    "Sprites with 256": ("sprites-frames", "four codebooks"),
    "CelebA": ("celeba", "ten attributes"),
}
REACHED = (  # the columns of the first table: the numbers of each, and the paper's
    ("action_accuracy", "paper"),
    ("factor_accuracy", "paper"),
    ("majority_accuracy", "factor_majority_accuracy"),
    ("action_psnr", "reconstruction_psnr"),
    ("others_worse",),
    ("acted_error_after_action", "acted_error_reconstructed"),
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str, str], dict[str, float]]:
    found = json.loads((ROOT / "results" / "ctvae-table1.json").read_text(encoding="utf-8"))["rows"]
    return {(row["data"], row["variant"], row["metric"]): row for row in found if row["model"] == "ct-vae"}


def tables() -> list[list[list[str]]]:
    """The tables of the section: lines of cells, without the head."""
    section = (ROOT / "docs" / "ct-vae.md").read_text(encoding="utf-8").split("## What it reached")[1]
    blocks = re.findall(r"(?:^\|.*\|\n)+", section, re.MULTILINE)
    return [[[cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines()[2:]] for block in blocks]


def known(label: str) -> tuple[str, str]:
    (found,) = [row for start, row in ROWS.items() if label.startswith(start)]
    return found


def assert_says(text: str, value: float) -> None:
    """The text is the value, rounded to as many digits as it has."""
    digits = len(text.partition(".")[2])
    assert abs(float(text) - value) <= 0.5000001 * 10**-digits, (text, value)


@pytest.mark.parametrize("data", BARS)
def test_the_table_reaches_what_it_must(data: str, rows: dict[tuple[str, str, str], dict[str, float]]) -> None:
    for metric, bar in zip(("action_accuracy", "factor_accuracy"), BARS[data], strict=True):
        row = rows[data, "", metric]
        assert len(row["per_seed"]) == 3  # type: ignore[arg-type]
        assert min(row["per_seed"].values()) >= bar  # type: ignore[attr-defined]
    assert max(rows[data, "", "others_worse"]["per_seed"].values()) <= 2  # type: ignore[attr-defined]


def test_the_docs_say_what_the_table_says(rows: dict[tuple[str, str, str], dict[str, float]]) -> None:
    first = tables()[0]
    assert len(first) == 6
    for label, *cells in first:
        data, variant = known(label)
        for cell, metrics in zip(cells, REACHED, strict=False):
            numbers = NUMBER.findall(cell)
            assert len(numbers) == (len(metrics) if (data, variant, metrics[0]) in rows else 0) or metrics[-1] == "paper"
            for text, metric in zip(numbers, metrics, strict=False):
                assert_says(text, rows[data, variant, metrics[0]]["paper"] if metric == "paper" else rows[data, variant, metric]["mean"])


def test_the_docs_say_what_repeated_actions_come_to(rows: dict[tuple[str, str, str], dict[str, float]]) -> None:
    second = tables()[1]
    assert len(second) == 4
    for label, *cells in second:
        data, _ = known(label)
        for times, cell in zip((1, 2, 4, 7 if "7" in label else 8), cells, strict=True):
            for text, metric in zip(NUMBER.findall(cell), ("action_psnr", "unchanged_psnr"), strict=True):
                assert_says(text, rows[data, f"{times} times", metric]["mean"])
