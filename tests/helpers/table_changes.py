"""Changes to the labels.csv of a folder, and the command that trains on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TINY = {
    "latents": 4,
    "embedding": 3,
    "channels": (4,),
    "posterior_widths": (4,),
    "prior_widths": (4,),
    "graph_widths": (4,),
    "epochs": 1,
    "batch_size": 8,
}
WORDS = {
    key: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    for key, value in TINY.items()
}
TRAIN_CMCL = [
    "train",
    "cmcl",
    "--device",
    "cpu",
    "--no-evaluate",
    *(word for key, value in WORDS.items() for word in ("--set", f"{key}={value}")),
]
Change = Callable[[Path], Any]


def read_lines(folder: Path) -> list[str]:
    """Return the lines of labels.csv, header first."""
    return (folder / "labels.csv").read_text().splitlines()


def write_lines(folder: Path, lines: list[str]) -> None:
    """Write labels.csv."""
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")


def add_column(name: str, values: Callable[[int], object]) -> Change:
    """Return a function that adds a column whose cell in row i is values(i)."""

    def add(folder: Path) -> None:
        header, *rows = read_lines(folder)
        cells = [f"{row},{values(i)}" for i, row in enumerate(rows)]
        write_lines(folder, [f"{header},{name}", *cells])

    return add


def add_combination(name: str, combine: Callable[[float, float, int], float]) -> Change:
    """Return a function that adds a column combine(level, width, row number)."""

    def add(folder: Path) -> None:
        rows = [line.split(",") for line in read_lines(folder)[1:]]
        values = [combine(float(row[1]), float(row[2]), i) for i, row in enumerate(rows)]
        add_column(name, lambda i: values[i])(folder)

    return add


def random_number(i: int) -> float:
    """Return a number of N(0, 1) that depends on i only."""
    return float(np.random.default_rng(i).normal())


add_double = add_combination("double", lambda level, width, i: 2 * width + 1)
add_total = add_combination("total", lambda level, width, i: level - width)
add_near = add_combination("near", lambda level, width, i: level + 0.1 * random_number(i))


def write_streets(folder: Path, categories: int, rows: int) -> None:
    """Write a table with a column of so many words, each in equally many rows."""
    picture = (folder / "00.png").read_bytes()
    lines = ["file,width,street"]
    for i in range(rows):
        (folder / f"{i:04}.png").write_bytes(picture)
        lines.append(f"{i:04}.png,{random_number(i)},street{i % categories}")
    write_lines(folder, lines)
