"""Wrong folders, arrays and data options, through the command line: one sentence each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

import intervae as package
from command import cell, few, intervae, succeeded
from refused_training import TRAIN, refuses_to_train


# ---- a folder of images and its table --------------------------------------------------------
def make_constant(folder: Path) -> None:
    lines = (folder / "labels.csv").read_text().splitlines()
    (folder / "labels.csv").write_text(
        "\n".join([lines[0], *(line.rpartition(",")[0] + ",3" for line in lines[1:])])
    )


def remove_columns(folder: Path) -> None:
    lines = (folder / "labels.csv").read_text().splitlines()
    (folder / "labels.csv").write_text("\n".join(line.partition(",")[0] for line in lines))


def write_file(name: str, content: bytes) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes(content)


def truncate_file(name: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:60])


def enlarge_image(folder: Path) -> None:
    Image.fromarray(np.zeros((20, 24), np.uint8)).save(folder / "07.png")


BROKEN_FOLDERS: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "corrupt image": (truncate_file("07.png"), ("'07.png' cannot be read",)),
    "not an image": (write_file("07.png", b"hello"), ("'07.png'",)),
    "missing image": (
        lambda folder: (folder / "07.png").unlink(),
        ("labels.csv, line 9", "'07.png' is not in the folder"),
    ),
    "different sizes": (
        enlarge_image,
        ("'00.png' is 16 x 16", "'07.png' is 24 x 20", "size= (--size)"),
    ),
    "empty image file": (write_file("07.png", b""), ("'07.png'", "empty")),
    "empty table": (write_file("labels.csv", b""), ("labels.csv", "nothing in it")),
    "table of a header": (few(0), ("a header but no rows",)),
    "no table": (
        lambda folder: (folder / "labels.csv").unlink(),
        ("causal-vae learns from labels, but this data has none",),
    ),
    "neither table nor images": (
        lambda folder: [path.unlink() for path in folder.iterdir()],
        ("there is no labels.csv", "no image (.bmp,"),
    ),
    "table of zeros": (write_file("labels.csv", b"\x00\xff\x80"), ("labels.csv",)),
    "NaN label": (cell(5, 1, "NaN"), ("labels.csv, line 5", "'level'")),
    "infinite label": (cell(5, 1, "inf"), ("labels.csv, line 5", "'level'", "finite")),
    "overflowing label": (cell(5, 1, "1e999"), ("labels.csv, line 5", "'level'", "finite")),
    "label without a value": (cell(5, 2, ""), ("labels.csv, line 5", "'width' has no value")),
    "label not a number": (
        cell(5, 2, "wide"),
        ("labels.csv, line 5", "'width' is 'wide'", "not a number"),
    ),
    "constant label": (make_constant, ("column 'width' is '3' in every row",)),
    "no columns": (remove_columns, ("labels.csv",)),
    "missing cell": (cell(5, 2, "1,2,3"), ("labels.csv, line 5", "5 cells for 3 columns")),
    "duplicate column": (cell(1, 2, "level"), ("'level' appears twice",)),
    "duplicate image": (cell(5, 0, "00.png"), ("line 5", "'00.png'", "line 2")),
    "path outside": (cell(5, 0, "../00.png"), ("line 5", "outside the folder")),
    "fewer than one batch": (few(20), ("fewer than one batch of 16", "batch_size=14")),
    "hardly any": (few(2), ("2 rows with an image each", "at least 4 rows are needed")),
    "wrong graph": (
        write_file("graph.json", b'{"variables": ["level"], "edges": []}'),
        ("graph.json", "'width'"),
    ),
    "graph with a cycle": (
        write_file(
            "graph.json",
            b'{"variables": ["level", "width"], "edges": [{"from": "level", "to": "width"}, '
            b'{"from": "width", "to": "level"}]}',
        ),
        ("graph.json has a cycle",),
    ),
}


@pytest.mark.parametrize("case", BROKEN_FOLDERS)
def test_a_broken_folder_is_an_error_before_anything_is_written(
    case: str, folder: Path, run: Path
) -> None:
    change, words = BROKEN_FOLDERS[case]
    change(folder)
    refuses_to_train(run, 1, *words, options=["--data", folder])


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--variables", "level,depth"], 2, ("'depth'", "nown: level, width")),
        (["--variables", "level,level"], 2, ("'level'", "twice")),
        (["--group", "patient"], 2, ("unknown group column 'patient'", "level, width")),
        (["--kind", "width=wide"], 2, ("'wide'", "continuous")),
        (["--kind", "depth=binary"], 2, ("'depth'", "level, width")),
        (["--kind", "width=binary"], 1, ("'width'", "binary", "(--kind)")),
        (["--kind", "width"], 2, ("--kind 'width' is not of the form key=value",)),
        (["--data-option", "chanels=1"], 2, ("'chanels'", "did you mean 'channels'")),
        (["--data-option", "channels=2"], 2, ("channels=2 must be 1 (grey) or 3 (colour)",)),
        (["--data-option", "size=8"], 2, ("--data-option size", "--size")),
        (["--data-option", "kinds=8"], 2, ("--data-option kinds", "--kind")),
        (["--data-option", "test=half"], 2, ("test='half' must be a fraction",)),
        (["--graph", "true"], 2, ("the true graph of mine is not known",)),
    ],
)
def test_wrong_data_options_are_an_error(
    options: list[object], code: int, words: tuple[str, ...], folder: Path, run: Path
) -> None:
    refuses_to_train(run, code, *words, options=["--data", folder, *options])


def test_a_categorical_variable_can_be_left_out(folder: Path, run: Path, tmp_path: Path) -> None:
    lines = (folder / "labels.csv").read_text().splitlines()
    kinds = [("round", "square", "flat")[i % 3] for i in range(80)]
    flags = [str(i % 2) for i in range(80)]
    rows = [
        f"{line},{kind},{flag}" for line, kind, flag in zip(lines[1:], kinds, flags, strict=True)
    ]
    (folder / "labels.csv").write_text("\n".join([lines[0] + ",shape,flag", *rows]))
    layers = ["--data", folder, "--set", "decoder=layers"]
    refuses_to_train(run, 2, "'shape' is categorical", "decoder=joint", options=layers)
    trained = intervae(
        *TRAIN,
        "--no-evaluate",
        "--data",
        folder,
        "--variables",
        "level,width,flag",
        "--out",
        tmp_path / "new",
    )
    assert "flag      binary" in succeeded(trained).out
    assert package.load(tmp_path / "new").spec.variable("flag").kind == "binary"
    answer = json.loads(
        succeeded(
            intervae(
                "intervene",
                tmp_path / "new",
                "--do",
                "flag=1",
                "--out",
                tmp_path / "x.png",
                "--json",
            )
        ).out
    )
    assert next(row["set"] for row in answer if row["variable"] == "flag") == pytest.approx(1)


# ---- files of arrays -------------------------------------------------------------------------
def arrays(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    defaults = {
        "images": rng.integers(2, 256, (80, 16, 16)).astype(np.uint8),
        "labels": rng.normal(size=(80, 2)),
        "names": np.array(["a", "b"]),
    }
    return {key: value for key, value in {**defaults, **changes}.items() if value is not None}


def with_value(value: float) -> np.ndarray:
    labels = arrays()["labels"]
    labels[7, 1] = value
    return labels


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": with_value(np.nan)}, ("sample 7", "'b'")),
        ({"labels": with_value(-np.inf)}, ("sample 7", "'b'", "finite")),
        ({"labels": np.stack([np.arange(80), np.ones(80)], 1)}, ("'b'", "in every row")),
        ({"labels": np.zeros((79, 2))}, ("80 images need labels of shape (80, n)",)),
        ({"labels": None}, ("has no 'labels' or 'factors'", "images, names")),
        ({"images": None}, ("has no 'images'",)),
        ({"images": np.full((80, 16, 16), 7.0)}, ("floats must lie in [0, 1]",)),
        ({"images": np.full((80, 16, 16), np.nan)}, ("floats must lie in [0, 1]",)),
        ({"names": np.array(["a", "a"])}, ("names", "must differ")),
        ({"names": np.array(["a"])}, ("1 entries for 2 labels",)),
    ],
)
@pytest.mark.parametrize("suffix", ["npz", "h5"])
def test_broken_arrays_are_an_error(
    suffix: str, changes: dict[str, Any], words: tuple[str, ...], run: Path, tmp_path: Path
) -> None:
    path = tmp_path / f"mine.{suffix}"
    if suffix == "npz":
        np.savez(path, **arrays(**changes))
    else:
        with h5py.File(path, "w") as file:
            for key, value in arrays(**changes).items():
                file[key] = value.astype("S") if value.dtype.kind == "U" else value
    refuses_to_train(
        run,
        1,
        f"mine.{suffix}" if "in every row" not in words else "column",
        *words,
        options=["--data", path],
    )


@pytest.mark.parametrize("suffix", ["npz", "h5"])
@pytest.mark.parametrize("content", [b"", b"another type of file", "half"])
def test_an_empty_or_truncated_array_file_is_an_error(
    suffix: str, content: bytes | str, run: Path, tmp_path: Path
) -> None:
    path = tmp_path / f"mine.{suffix}"
    if content == "half":
        if suffix == "npz":
            np.savez(path, **arrays())
        else:
            with h5py.File(path, "w") as file:
                file["images"], file["labels"] = arrays()["images"], arrays()["labels"]
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_bytes(bytes(content))  # type: ignore[arg-type]
    refuses_to_train(run, 1, f"mine.{suffix}", options=["--data", path])


def test_unknown_or_missing_data_is_an_error(run: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    refuses_to_train(
        run,
        2,
        "unknown data set 'pendulm'",
        "did you mean 'pendulum'",
        options=["--data", "pendulm"],
    )
    refuses_to_train(
        run, 2, "unknown data set", "no file or folder", options=["--data", tmp_path / "nowhere"]
    )
    refuses_to_train(run, 2, "neither a folder nor", options=["--data", tmp_path / "notes.txt"])
    (tmp_path / "bare").mkdir()
    refuses_to_train(run, 1, "there is no labels.csv", options=["--data", tmp_path / "bare"])
