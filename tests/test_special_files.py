"""Pipes, sockets, devices and folders in the place of files: one sentence at once, no waiting."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from command import SMALL, Output, contents, intervae, refused
from intervae.data.cache import read_cached
from intervae.files import check_regular, open_regular, read_text

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
SECONDS = 60  # far more than an error takes


@pytest.fixture(autouse=True)
def time_limit() -> Iterator[None]:
    """A test that waits for a pipe fails."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def fail(*_: object) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)  # the name of a socket has at most 108 characters
        server.bind(path.name)


KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "a named pipe"),
    "link to a pipe": (
        lambda path: (os.mkfifo(f"{path}.real"), path.symlink_to(f"{path}.real")),
        "a named pipe",
    ),
    "socket": (make_socket, "a socket"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a device"),
    "folder": (lambda path: path.mkdir(), "a folder"),
}


def replace_by(kind: str, path: Path) -> str:
    """Put a pipe, ... in the place of a file; return its name in errors."""
    path.unlink(missing_ok=True)
    make, name = KINDS[kind]
    make(path)
    return name


@pytest.fixture(autouse=True)
def same_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path.cwd())  # `make_socket` changes it


@pytest.mark.parametrize("kind", KINDS)
def test_special_files_are_never_opened(kind: str, tmp_path: Path) -> None:
    name = replace_by(kind, tmp_path / "x")
    for call in (check_regular, open_regular, read_text):
        with pytest.raises(OSError, match=f"it is {name}, not a file"):
            call(tmp_path / "x")


def test_a_path_that_becomes_a_pipe_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "x")
    monkeypatch.setattr("intervae.files.check_regular", lambda path: None)
    with pytest.raises(OSError, match="a named pipe"):
        open_regular(tmp_path / "x")


def train(folder: Path, *more: object) -> Output:
    words = ["train", "causal-vae", *SMALL, "--no-evaluate", "--data", folder]
    return intervae(*words, "--out", folder.parent / "new", *more)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
@pytest.mark.parametrize("name", ["labels.csv", "graph.json", "07.png"])
def test_special_file_in_a_data_folder(kind: str, name: str, folder: Path) -> None:
    replace_by(kind, folder / name)
    refused(train(folder), 1, name)
    assert not (folder.parent / "new").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_special_file_as_an_option(kind: str, folder: Path, finished: Path) -> None:
    special = folder.parent / "special.png"
    name = replace_by(kind, special)
    ask = ["intervene", finished, "--do", "light=100", "--out", folder / "strip.png"]
    refused(intervae(*ask, "--image", special), 1, "special.png")
    refused(train(folder, "--graph", special), 2, "special.png")
    if kind == "folder":  # of images, perhaps
        refused(intervae("discover", special), 1, "no labels.csv", "special.png")
    else:
        refused(intervae("discover", special), 2, "special.png", name)
    known = ["discover", folder / "labels.csv", "--columns", "level,width", "--knowledge", special]
    refused(intervae(*known), 1, "special.png", name)


@pytest.mark.parametrize("suffix", [".npz", ".h5"])
def test_pipe_as_arrays(suffix: str, folder: Path) -> None:
    pipe = folder.parent / f"arrays{suffix}"
    os.mkfifo(pipe)
    refused(train(pipe), 2, pipe.name)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_special_file_in_a_run(kind: str, name: str, run: Path) -> None:
    text = replace_by(kind, run / name)
    before = contents(run)
    refused(intervae("graph", run), 1, name, text)
    refused(intervae("evaluate", run), 1, name, text)
    assert contents(run) == before


@pytest.mark.parametrize("name", ["checkpoints/last.safetensors", "metrics.jsonl"])
def test_special_file_in_a_resumed_run(name: str, run: Path) -> None:
    replace_by("pipe", run / name)
    before = contents(run)
    refused(intervae("resume", run), 1, Path(name).name, "a named pipe")
    assert {key: value for key, value in contents(run).items() if ".bak" not in key} == before


def test_pipe_in_the_cache_is_not_used(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npz")
    assert read_cached(tmp_path / "x.npz", {}) == (None, "cannot be read")
