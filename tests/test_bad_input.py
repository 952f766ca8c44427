"""Everything a person can get wrong, through the command line: one sentence, exit code 1 or 2, nothing written half, nothing lost."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

import intervae as package
from command import PENDULUM, SMALL, Output, contents, intervae, make_folder, refused, succeeded, train_tiny

TRAIN = ["train", "causal-vae", *SMALL]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, not to be changed."""
    return train_tiny(tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run of the test's own."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="module")
def good_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("good") / "mine")


@pytest.fixture
def folder(good_folder: Path, tmp_path: Path) -> Path:
    """80 pictures with a labels.csv of `level` and `width`, to be broken."""
    return Path(shutil.copytree(good_folder, tmp_path / "mine"))


def refuses_to_train(run: Path, code: int, *words: str, options: list[object]) -> None:
    """Neither a new folder nor an older run that should be replaced is touched."""
    new, before = run.with_name("new"), contents(run)
    sentence = refused(intervae(*TRAIN, "--no-pictures", *options, "--out", new), code, *words)
    assert not new.exists()
    assert refused(intervae(*TRAIN, "--no-pictures", *options, "--out", run, "--overwrite"), code, *words) == sentence
    assert contents(run) == before
    package.load(run)


# ---- a folder of images and its table -------------------------------------------------------------------------------
def cell(line: int, column: int, value: str) -> Callable[[Path], None]:
    """Replace one cell of labels.csv; line 1 is the header."""

    def change(folder: Path) -> None:
        lines = (folder / "labels.csv").read_text().splitlines()
        cells = lines[line - 1].split(",")
        cells[column] = value
        (folder / "labels.csv").write_text("\n".join([*lines[: line - 1], ",".join(cells), *lines[line:]]))

    return change


def constant(folder: Path) -> None:
    lines = (folder / "labels.csv").read_text().splitlines()
    (folder / "labels.csv").write_text("\n".join([lines[0], *(line.rpartition(",")[0] + ",3" for line in lines[1:])]))


def no_columns(folder: Path) -> None:
    lines = (folder / "labels.csv").read_text().splitlines()
    (folder / "labels.csv").write_text("\n".join(line.partition(",")[0] for line in lines))


def few(images: int) -> Callable[[Path], None]:
    def keep(folder: Path) -> None:
        lines = (folder / "labels.csv").read_text().splitlines()
        (folder / "labels.csv").write_text("\n".join(lines[: images + 1]))

    return keep


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
    "different sizes": (larger, ("'00.png' is 16 x 16", "'07.png' is 24 x 20", "size=")),
    "empty image file": (write("07.png", b""), ("'07.png'", "empty")),
    "empty table": (write("labels.csv", b""), ("labels.csv", "nothing in it")),
    "table of a header": (few(0), ("a header but no rows",)),
    "no table": (lambda folder: (folder / "labels.csv").unlink(), ("there is no labels.csv",)),
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
    "hardly any": (few(2), ("leave none for",)),
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
        (["--kind", "width=binary"], 1, ("'width'", "binary")),
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
        (["--data-option", "samples=3"], 2, ("samples=3 is too few",)),
        (["--data-option", "sampels=96"], 2, ("did you mean 'samples'",)),
        (["--data-option", "samples"], 2, ("--data-option 'samples' is not of the form key=value",)),
        (["--data-option", "validation=1.5"], 2, ("validation=1.5 must be a fraction",)),
        (["--size", "4"], 2, ("size=4 is too small",)),
        (["--group", "light"], 2, ("group= does not apply to 'pendulum'",)),
        (["--graph", "nowhere.json"], 2, ("--graph nowhere.json: there is no such file",)),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_written(options: list[object], code: int, words: tuple[str, ...], run: Path) -> None:
    given = options if "--graph" in options else [*options, "--graph", "true"]
    refuses_to_train(run, code, *words, options=[*PENDULUM, *given])


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


# ---- questions to a run ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("do", "words"),
    [
        (["ligth=40"], ("unknown variable in do() 'ligth'", "did you mean 'light'", "shadow_position")),
        (["light=bright"], ("--do 'light=bright'", "'bright' is not a number")),
        (["light=nan"], ("--do 'light=nan'", "finite")),
        (["light=-inf"], ("finite",)),
        (["light="], ("is not a number",)),
        (["light"], ("not of the form name=value",)),
        (["=3"], ("not of the form name=value",)),
        (["light=3", "light=4"], ("'light' twice",)),
    ],
)
def test_a_wrong_intervention_is_refused_and_draws_nothing(do: list[str], words: tuple[str, ...], finished: Path, tmp_path: Path) -> None:
    before = contents(finished)
    options = [word for text in do for word in ("--do", text)]
    refused(intervae("intervene", finished, *options, "--out", tmp_path / "strip.png"), 1, *words)
    assert not (tmp_path / "strip.png").exists()
    assert contents(finished) == before


def test_a_wrong_picture_to_intervene_on(finished: Path, tmp_path: Path) -> None:
    ask = ["intervene", finished, "--do", "light=100", "--out", tmp_path / "strip.png"]
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.png").write_text("hello")
    Image.fromarray(np.zeros((30, 30), np.uint8)).save(tmp_path / "half.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "half.png").read_bytes()[:50])
    for name in ("empty.png", "text.png", "half.png", "nowhere.png"):
        refused(intervae(*ask, "--image", tmp_path / name), 1, name)
    refused(intervae(*ask, "--image", tmp_path), 1, tmp_path.name)
    refused(intervae(*ask, "--index", 24), 1, "--index 24", "24 images, numbered from 0")
    refused(intervae(*ask, "--index", -1), 2, "'--index'")
    assert not (tmp_path / "strip.png").exists()


def test_a_picture_that_cannot_be_written(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused(intervae("intervene", finished, "--do", "light=100", "--out", tmp_path / "file" / "strip.png"), 1, "is not a folder")
    refused(intervae("intervene", finished, "--do", "light=100", "--out", tmp_path / "strip.pdf"), 2, "'.pdf'", ".png, .svg")
    refused(intervae("graph", finished, "--out", tmp_path / "file" / "g.svg"), 1, "is not a folder")
    refused(intervae("graph", finished, "--out", tmp_path / "g.pdf"), 2, "'.pdf'", ".dot, .json, .png, .svg")
    refused(intervae("graph", finished, "--out", tmp_path / "g"), 2, ".dot, .json, .png, .svg")
    assert contents(tmp_path) == {"file": b"x"}


# ---- run folders ----------------------------------------------------------------------------------------------------
QUESTIONS: dict[str, list[object]] = {"evaluate": [], "graph": [], "intervene": ["--do", "light=100"]}


def all_refuse(run: Path, *words: str) -> None:
    """evaluate, graph and intervene answer with one sentence and leave the folder as it is."""
    before = contents(run) if run.is_dir() else None
    for command, options in QUESTIONS.items():
        out = ["--out", run.with_name("strip.png")] if command == "intervene" else []
        refused(intervae(command, run, *options, *out), 1, *words)
    assert not run.with_name("strip.png").exists()
    assert before == (contents(run) if run.is_dir() else None)


def test_a_run_folder_that_is_not_there_not_a_folder_or_not_ours(tmp_path: Path) -> None:
    all_refuse(tmp_path / "nowhere", "nowhere is not a run folder")
    (tmp_path / "file").write_text("x")
    all_refuse(tmp_path / "file", "file is not a run folder")
    (tmp_path / "empty").mkdir()
    all_refuse(tmp_path / "empty", "has no config.json", "not a complete run folder")
    (tmp_path / "other").mkdir()
    for text in ('{"name": "somebody else\'s"}', "[1, 2]", "3", "null"):
        (tmp_path / "other" / "config.json").write_text(text)
        all_refuse(tmp_path / "other", "config.json is not the config of an intervae run")
    for text in ("", '{"model": ', "\x00"):
        (tmp_path / "other" / "config.json").write_text(text)
        all_refuse(tmp_path / "other", "config.json", "cannot be read")


def rewrite(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    config = json.loads((run / "config.json").read_text())
    change(config)
    (run / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda config: config.update(format=99), ("format 99",)),
        (lambda config: config.update(model="dall-e"), ("'dall-e'", "causal-vae")),
        (lambda config: config["settings"].update(dims="many"), ("config.json", "dims")),
        (lambda config: config["settings"].update(colour=3), ("config.json", "unknown setting 'colour'")),
        (lambda config: config["settings"].update(dims=3), ("model.safetensors", "tensor", "do not belong together")),
        (lambda config: config["spec"].update(image_shape=[3, 32, 32]), ("model.safetensors", "do not belong together")),
        (lambda config: config["spec"].update(image_shape="large"), ("config.json",)),
        (lambda config: config.pop("spec"), ("is not the config of an intervae run",)),
    ],
)
def test_a_config_that_was_changed(change: Callable[[dict[str, Any]], Any], words: tuple[str, ...], run: Path) -> None:
    rewrite(run, change)
    all_refuse(run, *words)


def test_weights_that_are_missing_damaged_or_of_another_shape(run: Path) -> None:
    path = run / "model.safetensors"
    good = path.read_bytes()
    tensors = load_file(path)
    first = next(name for name, tensor in tensors.items() if tensor.ndim == 4)
    for broken in (b"", good[:100], good[:-100], b"x" * 1000, (2**60).to_bytes(8, "little") + good[8:]):
        path.write_bytes(broken)
        all_refuse(run, "model.safetensors is not a readable safetensors file")
    save_file({**tensors, first: tensors[first][:1].copy()}, path)
    all_refuse(run, f"tensor '{first}'", "do not belong together")
    save_file({**tensors, first: tensors[first].astype(np.float64)}, path)
    all_refuse(run, f"tensor '{first}'", "torch.float64")
    save_file({name: tensor for name, tensor in tensors.items() if name != first}, path)
    all_refuse(run, f"lacks the tensor '{first}'")
    save_file({**tensors, "more": np.zeros(3)}, path)
    all_refuse(run, "unknown tensor 'more'")
    path.unlink()
    all_refuse(run, "has no model.safetensors", "--resume")
    path.write_bytes(good)
    succeeded(intervae("graph", run))


@pytest.mark.parametrize("text", ["", "[{", "{}", "[3]"])
def test_measurements_that_were_damaged_are_not_overwritten(text: str, run: Path) -> None:
    (run / "evaluation.json").write_text(text)
    refused(intervae("evaluate", run), 1, "evaluation.json")
    assert (run / "evaluation.json").read_text() == text


def test_data_that_is_gone_or_has_changed_since_training(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    succeeded(intervae(*TRAIN, "--data", folder, "--set", "graph=joint", "--no-pictures", "--out", run))
    kept = tmp_path / "kept"
    shutil.copytree(folder, kept)
    for spoil, words in (
        (few(79), ("had 80 samples and has 79 now",)),
        (cell(1, 2, "breadth"), ("mine has changed since",)),
        (cell(2, 2, "4711"), ("mine has changed since",)),
        (shutil.rmtree, ("the data is no longer at",)),
    ):
        spoil(folder)
        before = contents(run)
        refused(intervae("evaluate", run), 1, *words)
        refused(intervae("intervene", run, "--do", "level=100", "--out", tmp_path / "strip.png"), 1, *words)
        assert contents(run) == before
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept, folder)
    succeeded(intervae("evaluate", run))
    shutil.rmtree(folder)
    succeeded(intervae("graph", run))  # needs no data
    succeeded(intervae("intervene", run, "--do", "level=100", "--image", kept / "00.png", "--out", tmp_path / "strip.png"))
    for source in ({}, None, {"object": "TensorDataset"}, 3):
        rewrite(run, lambda config, source=source: config.update(data=source))  # type: ignore[misc]
        refused(intervae("evaluate", run), 1, "loaded again")


# ---- where a run is written -----------------------------------------------------------------------------------------
def test_what_stands_in_the_way_of_a_new_run_is_left_alone(run: Path, tmp_path: Path) -> None:
    train = [*TRAIN, *PENDULUM, "--graph", "true", "--no-pictures", "--out"]
    (tmp_path / "file").write_text("x")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("once upon a time")
    before = contents(tmp_path)
    refused(intervae(*train, run), 1, "already holds a run", "--resume", "--overwrite")
    for more in ([], ["--overwrite"]):
        refused(intervae(*train, tmp_path / "thesis", *more), 1, "not empty and not a run of intervae")
        refused(intervae(*train, tmp_path / "file", *more), 1, "not a run of intervae")
        refused(intervae(*train, tmp_path / "file" / "run", *more), 1, "is not a folder")
    assert contents(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root; a path below a file is tested instead")
def test_a_folder_without_permission_to_write(run: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked").chmod(0o500)
    run.chmod(0o500)
    try:
        refused(intervae(*TRAIN, *PENDULUM, "--no-pictures", "--out", tmp_path / "locked" / "run"), 1, "cannot be written to")
        refused(intervae("evaluate", run), 1, "cannot be written to")
        refused(intervae("graph", run, "--out", tmp_path / "locked" / "g.svg"), 1, "cannot be written to")
    finally:
        for path in (tmp_path / "locked", run):
            path.chmod(0o700)
    assert contents(tmp_path / "locked") == {}


def test_what_cannot_be_resumed_is_left_as_it_is(run: Path, tmp_path: Path) -> None:
    train = [*TRAIN, *PENDULUM, "--graph", "true", "--no-pictures", "--resume", "--out"]
    before = contents(run)
    refused(intervae(*train, tmp_path / "nowhere"), 1, "has no config.json")
    assert not (tmp_path / "nowhere").exists()
    refused(intervae(*train, run, "--seed", 1), 1, "was started otherwise", "seed was 0, now 1")
    refused(intervae(*train, run, "--set", "dims=3"), 1, "was started otherwise", "settings.dims was 2, now 3")
    refused(intervae(*train, run, "--size", "24"), 1, "was started otherwise", "image_shape")
    assert contents(run) == before
    (run / "checkpoints" / "last.safetensors").write_bytes(b"x" * 100)
    before = contents(run)
    refused(intervae(*train, run), 1, "last.safetensors", "is damaged")
    assert contents(run) == before
    package.load(run)


# ---- no space left --------------------------------------------------------------------------------------------------
@pytest.fixture
def full_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """`full_after(n)`: the disk takes n more files, and then none; None makes room again."""
    real, left = os.fsync, [None]

    def fsync(*arguments: Any) -> None:
        if left[0] is not None:
            if left[0] == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left[0] -= 1
        real(*arguments)

    def set_left(n: int | None) -> None:
        left[0] = n  # type: ignore[call-overload]

    monkeypatch.setattr(os, "fsync", fsync)
    return set_left


@pytest.mark.parametrize("files", [0, 1, 2, 4, 6])
def test_a_disk_that_fills_while_training_leaves_a_run_that_goes_on(
    files: int, finished: Path, tmp_path: Path, full_after: Callable[[int | None], None]
) -> None:
    train = [*TRAIN, *PENDULUM, "--graph", "true", "--no-pictures", "--out", tmp_path / "run"]
    full_after(files)
    refused(intervae(*train), 1, "no space left to write", str(tmp_path / "run"), "--resume")
    assert not list(tmp_path.rglob("*.tmp"))
    full_after(None)
    succeeded(intervae(*train, *(["--resume"] if files else [])))
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()


def test_a_disk_that_is_full_when_a_run_is_measured_or_drawn(run: Path, tmp_path: Path, full_after: Callable[[int | None], None]) -> None:
    succeeded(intervae("evaluate", run, "--metric", "shd"))
    before = contents(run)
    full_after(0)
    refused(intervae("evaluate", run), 1, "no space left to write", "evaluation.json")
    refused(intervae("graph", run, "--out", tmp_path / "g.svg"), 1, "no space left", "g.svg")
    refused(intervae("intervene", run, "--do", "light=100", "--out", tmp_path / "strip.png"), 1, "no space left", "strip.png")
    assert contents(run) == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.fixture(params=[40, 132, 300, 560])  # full at the first checkpoint, at the log, at the weights, at a picture
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of so many KiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={request.param}k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_is_really_full(small_disk: Path, tmp_path: Path) -> None:
    train = [*TRAIN, *PENDULUM, "--graph", "true", "--out", small_disk / "run"]
    stopped = intervae(*train)
    refused(stopped, 1, "no space left to write")
    assert not list(small_disk.rglob("*.tmp"))
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    succeeded(intervae(*train, "--resume"))
    package.load(small_disk / "run")
    package.load(Path(shutil.copytree(small_disk / "run", tmp_path / "copy")))


# ---- reproduce ------------------------------------------------------------------------------------------------------
def test_an_unknown_experiment_names_the_near_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output: Output = intervae("reproduce", "causalvae-pendulm")
    refused(output, 2, "unknown experiment 'causalvae-pendulm'", "did you mean 'causalvae-pendulum'")
    assert list(tmp_path.iterdir()) == []
