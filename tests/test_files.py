"""Writing and reading files: atomic, and with one sentence for everything that can go wrong."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from intervae.errors import RunError
from intervae.files import leftovers, read_json, write_bytes, write_json, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def failing(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


def test_a_file_is_read_back_and_its_folders_are_created(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a" / "b" / "c.bin", b"\0\xff")
    write_text(tmp_path / "text", "grün\n")
    write_json(tmp_path / "x.json", {"x": [1, None, "é"]})
    assert (tmp_path / "a" / "b" / "c.bin").read_bytes() == b"\0\xff"
    assert (tmp_path / "text").read_bytes() == "grün\n".encode()
    assert read_json(tmp_path / "x.json", "a test") == {"x": [1, None, "é"]}
    assert names(tmp_path) == ["a", "text", "x.json"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "stored.json"
    write_json(path, {"old": 1})
    monkeypatch.setattr(os, call, failing(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(RunError, match=r"no space left to write .*stored\.json.*--resume"):
        write_json(path, {"new": 2})
    assert names(tmp_path) == ["stored.json"]
    assert json.loads(path.read_text()) == {"old": 1}


def test_ctrl_c_while_writing_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path / "stored", "old")
    monkeypatch.setattr(os, "fsync", failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "stored", "new")
    assert names(tmp_path) == ["stored"]
    assert (tmp_path / "stored").read_text() == "old"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "cannot be written to.*another folder"),
        (errno.EROFS, "cannot be written to"),
        (errno.EDQUOT, "no space left"),
        (errno.EIO, "could not be"),
    ],
)
def test_each_failure_has_its_own_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    monkeypatch.setattr(os, "replace", failing(OSError(number, os.strerror(number))))
    with pytest.raises(RunError, match=words) as caught:
        write_text(tmp_path / "file", "x")
    assert "\n" not in str(caught.value)


def test_a_file_where_a_folder_is_needed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "config.json", tmp_path / "file" / "deeper" / "config.json"):
        with pytest.raises(RunError, match="is not a folder"):
            write_text(path, "x")
    assert (tmp_path / "file").read_text() == "x"


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() == 0, reason="the administrator may write everywhere"
)
def test_a_folder_without_write_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunError, match="cannot be written to"):
        write_text(tmp_path / "file", "x")
    tmp_path.chmod(0o700)


def test_json_with_nan_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "x.json", {"loss": float("nan")})
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"{'a': 1}"])
def test_a_file_that_is_not_json_is_named_with_its_role(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(RunError, match=r"config\.json \(the settings\) cannot be read"):
        read_json(tmp_path / "config.json", "the settings")


def test_a_missing_json_file_makes_the_folder_incomplete(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"has no config\.json \(the settings\)"):
        read_json(tmp_path / "config.json", "the settings")


def test_leftovers_are_only_our_own_temporary_files(tmp_path: Path) -> None:
    for name in (
        ".last.safetensors.123.tmp",
        ".hidden",
        "a.tmp",
        ".editor.tmp",
        "last.safetensors",
    ):
        (tmp_path / name).write_text("")
    assert [path.name for path in leftovers(tmp_path)] == [".last.safetensors.123.tmp"]
    assert leftovers(tmp_path / "nowhere") == []
