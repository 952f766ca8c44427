"""Wrong data, settings and names, through the command line: one sentence, exit code 1 or 2, nothing written half, nothing lost."""

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
from command import PENDULUM, SMALL, cell, contents, few, intervae, refused, succeeded
from intervae.errors import UsageError

TRAIN = ["train", "causal-vae", *SMALL]


def refuses_to_train(run: Path, code: int, *words: str, options: list[object]) -> None:
    """Neither a new folder nor an older run that should be replaced is touched."""
    new, before = run.with_name("new"), contents(run)
    sentence = refused(intervae(*TRAIN, "--no-pictures", *options, "--out", new), code, *words)
    assert not new.exists()
    assert refused(intervae(*TRAIN, "--no-pictures", *options, "--out", run, "--overwrite"), code, *words) == sentence
    assert contents(run) == before
    package.load(run)


# ---- a folder of images and its table -------------------------------------------------------------------------------
def constant(folder: Path) -> None:
    lines = (folder / "labels.csv").read_text().splitlines()
    (folder / "labels.csv").write_text("\n".join([lines[0], *(line.rpartition(",")[0] + ",3" for line in lines[1:])]))


def no_columns(folder: Path) -> None:
    lines = (folder / "labels.csv").read_text().splitlines()
    (folder / "labels.csv").write_text("\n".join(line.partition(",")[0] for line in lines))


def write(name: str, content: bytes) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes(content)


def truncate(name: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:60])


def larger(folder: Path) -> None:
    Image.fromarray(np.zeros((20, 24), np.uint8)).save(folder / "07.png")


BROKEN_FOLDERS: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "corrupt image": (truncate("07.png"), ("'07.png' cannot be read",)),
    "not an image": (write("07.png", b"hello"), ("'07.png'",)),
    "missing image": (lambda folder: (folder / "07.png").unlink(), ("labels.csv, line 9", "'07.png' is not in the folder")),
    "different sizes": (larger, ("'00.png' is 16 x 16", "'07.png' is 24 x 20", "size= (--size)")),
    "empty image file": (write("07.png", b""), ("'07.png'", "empty")),
    "empty table": (write("labels.csv", b""), ("labels.csv", "nothing in it")),
    "table of a header": (few(0), ("a header but no rows",)),
    "no table": (lambda folder: (folder / "labels.csv").unlink(), ("causal-vae learns from labels, but this data has none",)),
    "neither table nor images": (lambda folder: [path.unlink() for path in folder.iterdir()], ("there is no labels.csv", "no image (.bmp,")),
    "table of zeros": (write("labels.csv", b"\x00\xff\x80"), ("labels.csv",)),
    "NaN label": (cell(5, 1, "NaN"), ("labels.csv, line 5", "'level'")),
    "infinite label": (cell(5, 1, "inf"), ("labels.csv, line 5", "'level'", "finite")),
    "overflowing label": (cell(5, 1, "1e999"), ("labels.csv, line 5", "'level'", "finite")),
    "label without a value": (cell(5, 2, ""), ("labels.csv, line 5", "'width' has no value")),
    "label not a number": (cell(5, 2, "wide"), ("labels.csv, line 5", "'width' is 'wide'", "not a number")),
    "constant label": (constant, ("column 'width' is '3' in every row",)),
    "no columns": (no_columns, ("labels.csv",)),
    "missing cell": (cell(5, 2, "1,2,3"), ("labels.csv, line 5", "5 cells for 3 columns")),
    "duplicate column": (cell(1, 2, "level"), ("'level' appears twice",)),
    "duplicate image": (cell(5, 0, "00.png"), ("line 5", "'00.png'", "line 2")),
    "path outside": (cell(5, 0, "../00.png"), ("line 5", "outside the folder")),
    "fewer than one batch": (few(20), ("fewer than one batch of 16", "batch_size=14")),
    "hardly any": (few(2), ("2 rows with an image each", "4 rows are the least")),
    "wrong graph": (write("graph.json", b'{"variables": ["level"], "edges": []}'), ("graph.json", "'width'")),
    "graph with a cycle": (
        write("graph.json", b'{"variables": ["level", "width"], "edges": [{"from": "level", "to": "width"}, {"from": "width", "to": "level"}]}'),
        ("graph.json has a cycle",),
    ),
}


@pytest.mark.parametrize("case", BROKEN_FOLDERS)
def test_a_broken_folder_is_refused_before_anything_is_written(case: str, folder: Path, run: Path) -> None:
    spoil, words = BROKEN_FOLDERS[case]
    spoil(folder)
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
def test_a_wrong_choice_of_columns_or_options_of_the_data(options: list[object], code: int, words: tuple[str, ...], folder: Path, run: Path) -> None:
    refuses_to_train(run, code, *words, options=["--data", folder, *options])


def test_a_variable_of_words_says_what_to_do_and_without_it_training_goes(folder: Path, run: Path, tmp_path: Path) -> None:
    lines = (folder / "labels.csv").read_text().splitlines()
    kinds = [("round", "square", "flat")[i % 3] for i in range(80)]
    flags = [str(i % 2) for i in range(80)]
    rows = [f"{line},{kind},{flag}" for line, kind, flag in zip(lines[1:], kinds, flags, strict=True)]
    (folder / "labels.csv").write_text("\n".join([lines[0] + ",shape,flag", *rows]))
    refuses_to_train(run, 1, "'shape' is categorical", "--variables", options=["--data", folder])
    trained = intervae(*TRAIN, "--no-pictures", "--data", folder, "--variables", "level,width,flag", "--out", tmp_path / "new")
    assert "flag      binary" in succeeded(trained).out
    assert package.load(tmp_path / "new").spec.variable("flag").kind == "binary"
    answer = json.loads(succeeded(intervae("intervene", tmp_path / "new", "--do", "flag=1", "--out", tmp_path / "x.png", "--json")).out)
    assert next(row["after"] for row in answer if row["variable"] == "flag") == pytest.approx(1)


# ---- files of arrays ------------------------------------------------------------------------------------------------
def arrays(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    good = {"images": rng.integers(2, 256, (80, 16, 16)).astype(np.uint8), "labels": rng.normal(size=(80, 2)), "names": np.array(["a", "b"])}
    return {key: value for key, value in {**good, **changes}.items() if value is not None}


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
def test_broken_arrays_are_refused(suffix: str, changes: dict[str, Any], words: tuple[str, ...], run: Path, tmp_path: Path) -> None:
    path = tmp_path / f"mine.{suffix}"
    if suffix == "npz":
        np.savez(path, **arrays(**changes))
    else:
        with h5py.File(path, "w") as file:
            for key, value in arrays(**changes).items():
                file[key] = value.astype("S") if value.dtype.kind == "U" else value
    refuses_to_train(run, 1, f"mine.{suffix}" if "in every row" not in words else "column", *words, options=["--data", path])


@pytest.mark.parametrize("suffix", ["npz", "h5"])
@pytest.mark.parametrize("content", [b"", b"not what its name says", "half"])
def test_a_file_of_arrays_that_is_empty_or_cut_off(suffix: str, content: bytes | str, run: Path, tmp_path: Path) -> None:
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


def test_data_that_is_nowhere_or_of_no_known_kind(run: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    refuses_to_train(run, 2, "unknown data set 'pendulm'", "did you mean 'pendulum'", options=["--data", "pendulm"])
    refuses_to_train(run, 2, "unknown data set", "no file or folder", options=["--data", tmp_path / "nowhere"])
    refuses_to_train(run, 2, "neither a folder nor", options=["--data", tmp_path / "notes.txt"])
    (tmp_path / "bare").mkdir()
    refuses_to_train(run, 1, "there is no labels.csv", options=["--data", tmp_path / "bare"])


# ---- settings -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--set", "learning_rat=1"], 2, ("unknown setting 'learning_rat'", "did you mean 'learning_rate'", "batch_size")),
        (["--set", "chekpoint_seconds=1"], 2, ("did you mean 'checkpoint_seconds'",)),
        (["--set", "qqq=1"], 2, ("unknown setting 'qqq'", "known: ", "dims")),
        (["--set", "dims"], 2, ("--set 'dims' is not of the form key=value",)),
        (["--set", "=3"], 2, ("not of the form key=value",)),
        (["--set", "dims=two"], 2, ("dims='two' is not a number",)),
        (["--set", "dims=1.5"], 2, ("dims='1.5' must be a whole number",)),
        (["--set", "dims=0"], 2, ("dims=0",)),
        (["--set", "prior_std=0"], 2, ("prior_std=0.0 must be larger than 0",)),
        (["--set", "scale=-1"], 2, ("scale=-1.0 must be larger than 0",)),
        (["--set", "influence_step=0"], 2, ("influence_step=0.0 must be larger than 0",)),
        (["--set", "channels=8,x"], 2, ("channels='x' is not a number",)),
        (["--set", "learning_rate=nan"], 2, ("learning_rate='nan' must be finite",)),
        (["--set", "learning_rate=0"], 2, ("learning_rate=0", "positive")),
        (["--set", "network=transformer"], 2, ("network='transformer' is not a choice", "conv")),
        (["--set", "tensorboard=maybe"], 2, ("tensorboard='maybe' is not true or false",)),
        (["--set", "batch_size=0"], 2, ("batch_size=0", "at least 1")),
        (["--set", "batch_size=66"], 1, ("65 samples, fewer than one batch of 66", "batch_size=65")),
        (["--set", "dims=1000000000000"], 1, ("not enough memory",)),
        (["--device", "tpu"], 2, ("device 'tpu' is not known",)),
        (["--device", "cuda:99"], 2, ("cuda",)),
        (["--device", "meta"], 2, ("device 'meta' cannot train",)),
        (["--data-option", "samples=abc"], 2, ("samples='abc' is not a whole number",)),
        (["--data-option", "samples=3"], 2, ("samples=3 is too few",)),
        (["--data-option", "sampels=96"], 2, ("did you mean 'samples'",)),
        (["--data-option", "samples"], 2, ("--data-option 'samples' is not of the form key=value",)),
        (["--data-option", "validation=1.5"], 2, ("validation=1.5 must be a fraction",)),
        (["--size", "4"], 2, ("size=4 is too small",)),
        (["--group", "light"], 2, ("group= (--group) does not apply to 'pendulum'",)),
        (["--graph", "nowhere.json"], 2, ("--graph nowhere.json: there is no such file",)),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_written(options: list[object], code: int, words: tuple[str, ...], run: Path) -> None:
    given = options if "--graph" in options else [*options, "--graph", "true"]
    refuses_to_train(run, code, *words, options=[*PENDULUM, *given])


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("causal-vae-unsup", ["--graph", "true"], "causal-vae-unsup takes no graph (graph=, --graph); models that do: causal-vae, causal-gan."),
        ("vae", ["--graph", "nowhere.json"], "vae takes no graph (graph=, --graph); models that do: causal-vae, causal-gan."),
        ("pca", ["--epochs", "5"], "pca makes no passes over the data, so it takes no epochs; leave epochs=5 out."),
        ("raw-pixels", ["--set", "epochs=5"], "raw-pixels makes no passes over the data, so it takes no epochs; leave epochs=5 out."),
        (
            "causal-gan",
            [],
            "causal-gan needs a known graph of the labels: pass graph= (a CausalGraph); on the command line --graph FILE, or --graph true for data "
            "with a known graph.",
        ),
    ],
)
def test_what_a_model_has_no_use_for_or_lacks_is_said_in_those_words(model: str, options: list[str], said: str, tmp_path: Path) -> None:
    assert refused(intervae("train", model, *PENDULUM, *options, "--out", tmp_path / "run"), 2) == f"error: {said}"
    assert not (tmp_path / "run").exists()


def test_a_graph_for_a_model_without_one_is_refused_in_python_too(pendulum: Any) -> None:
    with pytest.raises(UsageError, match=r"vae takes no graph .*causal-vae, causal-gan"):
        package.create("vae", pendulum, graph=pendulum.graph)


def test_too_few_labels_for_a_graph_are_refused_before_anything_is_written(run: Path) -> None:
    options = ["--data", "pendulum", "--data-option", "samples=64", "--size", "16"]
    refuses_to_train(run, 1, "43 training samples are too few to learn a graph", "--graph", options=options)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ("graph.json", "cannot be read")),
        ("[]", ("this is not a graph",)),
        ('{"variables": ["light"], "edges": []}', ("unknown variable 'pendulum'",)),
        ('{"variables": ["light"], "edges": [{"from": "light", "to": "moon"}]}', ("'moon'",)),
        (
            '{"variables": ["pendulum", "light", "shadow_length", "shadow_position"],'
            ' "edges": [{"from": "light", "to": "pendulum"}, {"from": "pendulum", "to": "light"}]}',
            ("cycle",),
        ),
    ],
)
def test_a_given_graph_that_is_none_or_of_other_variables(text: str, words: tuple[str, ...], run: Path, tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(text)
    refuses_to_train(run, 1, *words, options=[*PENDULUM, "--graph", tmp_path / "graph.json"])


def test_an_unknown_model_names_the_near_ones(tmp_path: Path) -> None:
    refused(intervae("train", "causalvae", *PENDULUM, "--out", tmp_path / "new"), 2, "unknown model 'causalvae'", "did you mean 'causal-vae'")
    assert not (tmp_path / "new").exists()


# ---- reproduce ------------------------------------------------------------------------------------------------------
def test_an_unknown_experiment_names_the_near_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused(intervae("reproduce", "causalvae-pendulm"), 2, "unknown experiment 'causalvae-pendulm'", "did you mean 'causalvae-pendulum'")
    assert list(tmp_path.iterdir()) == []
