"""Calls of the command line in tests, in this process or as the installed program."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TextIO
from unittest import mock

import numpy as np
from PIL import Image

from intervae import cli

PROGRAM = str(Path(sysconfig.get_path("scripts")) / "intervae")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
OPEN_DIRECTION = "note: the direction of "  # before training; tiny tables leave directions open
SMALL = [
    "--set",
    "channels=8,8",
    "--set",
    "dims=2",
    "--set",
    "hidden=32",
    "--set",
    "batch_size=16",
    "--epochs",
    "1",
    "--device",
    "cpu",
]
PENDULUM = ["--data", "pendulum", "--data-option", "samples=96", "--size", "16"]


class Output(NamedTuple):
    """Exit code and printed output of a command."""

    code: int
    out: str
    err: str


def intervae(*words: object, stdout: TextIO | None = None) -> Output:
    """Run a command in this process; standard output may go to a file."""
    out, err = io.StringIO(), io.StringIO()
    argv = mock.patch.object(sys, "argv", ["intervae", *map(str, words)])
    hook = mock.patch.object(
        threading, "excepthook", threading.excepthook
    )  # which the command sets for the whole process
    with (
        argv,
        hook,
        own_signals(),
        contextlib.redirect_stdout(stdout or out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return Output(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def own_signals() -> Iterator[None]:
    """Restore the handler of Ctrl-C, which the program sets for the whole process."""
    before, traced = signal.getsignal(signal.SIGINT), faulthandler.is_enabled()
    yield
    if not traced:
        faulthandler.disable()
    signal.signal(signal.SIGINT, before)


def program(*words: object, **options: object) -> Output:
    """Run the installed program."""
    arguments = {"timeout": 300, **options}
    done = subprocess.run(
        [PROGRAM, *map(str, words)], capture_output=True, text=True, env=ENVIRONMENT, **arguments
    )  # type: ignore[call-overload]
    return Output(done.returncode, done.stdout, done.stderr)


def messages(output: Output) -> list[str]:
    """Return the lines of standard error, without the notes on open directions."""
    return [line for line in output.err.splitlines() if not line.startswith(OPEN_DIRECTION)]


def succeeded(output: Output) -> Output:
    """Assert exit code 0 and no message but open directions on standard error."""
    assert (output.code, messages(output)) == (0, []), (output.code, output.err)
    return output


def refused(output: Output, code: int, *words: str) -> str:
    """Assert an exit code and one sentence on standard error with these words; return it."""
    lines = messages(output)
    assert len(lines) == 1, output
    assert lines[0].startswith("error: "), lines[0]
    assert lines[0][-1] in ".?", lines[0]
    assert "Traceback" not in output.out
    for word in words:
        assert word in lines[0], lines[0]
    assert output.code == code, output
    return lines[0]


def is_plain_text(text: str) -> bool:
    """Whether text has no control characters such as colours and cursor movements."""
    return not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)


def image_size(path: Path) -> tuple[int, int]:
    """Return (width, height) of an image file that can be decoded."""
    with Image.open(path) as image:
        image.load()
        return image.size


def contents(folder: Path) -> dict[str, bytes]:
    """Return path -> bytes of every file in a folder and its subfolders."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def train_tiny(out: Path, *more: object) -> Path:
    """Train one epoch on 96 Pendulum images of 16 x 16 with the true graph; return the run."""
    succeeded(
        intervae(
            "train",
            "causal-vae",
            *PENDULUM,
            *SMALL,
            "--graph",
            "true",
            "--no-evaluate",
            "--out",
            out,
            *more,
        )
    )
    return out


def make_folder(folder: Path, *, images: int = 80, columns: dict[str, list] | None = None) -> Path:
    """Write grey images of 16 x 16 and a labels.csv in which `level` causes `width`.

    `columns` adds columns or replaces them.
    """
    rng = np.random.default_rng(0)
    level = rng.uniform(40, 200, images).round(2)
    width = (2 + level / 20 + rng.uniform(0, 2, images)).round(2)
    table = {"level": level.tolist(), "width": width.tolist(), **(columns or {})}
    folder.mkdir(parents=True)
    for i in range(images):
        pixels = np.zeros((16, 16), np.uint8)
        pixels[4:12, : int(width[i])] = int(level[i])
        Image.fromarray(pixels).save(folder / f"{i:02}.png")
    rows = [
        f"{i:02}.png," + ",".join(str(values[i]) for values in table.values())
        for i in range(images)
    ]
    (folder / "labels.csv").write_text("\n".join(["file," + ",".join(table), *rows]) + "\n")
    return folder


def cell(line: int, column: int, value: str) -> Callable[[Path], None]:
    """Return a function that replaces one cell of labels.csv; line 1 is the header."""

    def change(folder: Path) -> None:
        lines = (folder / "labels.csv").read_text().splitlines()
        cells = lines[line - 1].split(",")
        cells[column] = value
        (folder / "labels.csv").write_text(
            "\n".join([*lines[: line - 1], ",".join(cells), *lines[line:]])
        )

    return change


def few(images: int) -> Callable[[Path], None]:
    """Return a function that keeps only the first rows of labels.csv."""

    def keep(folder: Path) -> None:
        lines = (folder / "labels.csv").read_text().splitlines()
        (folder / "labels.csv").write_text("\n".join(lines[: images + 1]))

    return keep
