"""Folders of images with a labels.csv, as tests write them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from intervae.data import Dataset

N = 20


def pixels_of(i: int, mode: str = "RGB", width: int = 6, height: int = 4) -> np.ndarray:
    """Return (H, W) or (H, W, C) uint8, different for every i."""
    shape = (height, width) if mode == "L" else (height, width, len(mode))
    return np.random.default_rng(i).integers(0, 256, shape).astype(np.uint8)


def write_image_folder(folder: Path) -> None:
    """Write 20 colour images of 6 x 4 named by number; the column `number` is i + 0.5."""
    for i in range(N):
        Image.fromarray(pixels_of(i)).save(folder / f"{i}.png")
    rows = [[f"{i}.png", i + 0.5, "fm"[i % 2], f"p{i // 4}"] for i in range(N)]
    write_rows(folder, [["file", "number", "sex", "patient"], *rows])


def write_rows(folder: Path, rows: list[list]) -> None:
    """Write labels.csv."""
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def read_rows(folder: Path) -> list[list[str]]:
    """Return the rows of labels.csv, header first."""
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def change_cell(folder: Path, line: int, column: int, value: str) -> None:
    """Overwrite a cell of labels.csv; lines count from 1 as in an error message."""
    rows = read_rows(folder)
    rows[line - 1][column] = value
    write_rows(folder, rows)


def images_by_number(dataset: Dataset) -> dict[int, np.ndarray]:
    """Return the integer part of the label `number` -> image (C, H, W)."""
    column = dataset.names.index("number")
    return {
        int(row[column]): image.numpy()
        for split in dataset.splits.values()
        for image, row in zip(split.images, split.labels, strict=True)
    }
