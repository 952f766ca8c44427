"""A resumed run keeps the files that it rewrites until the new ones are complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import intervae.training.loop as loop
from command import contents, intervae, refused, succeeded
from intervae.files import backup_path, keep_until_complete, write_text

DAMAGED = b'{"phase": "joint", "epo'


def backups(run: Path) -> dict[str, bytes]:
    return {name: value for name, value in contents(run).items() if name.endswith(".bak")}


def test_copies_stay_after_an_error_and_go_at_the_end(tmp_path: Path) -> None:
    first, log, absent = (tmp_path / name for name in ("a.json", "log.jsonl", "absent"))
    first.write_text("old")
    log.write_text("1\n")

    def rewrite(fail: bool) -> None:
        with keep_until_complete([first, log, absent]):
            write_text(first, "new")
            with open(log, "a") as file:
                file.write("2\n")
            if fail:
                raise KeyboardInterrupt

    for _ in range(2):  # a second attempt keeps what was there before the first
        with pytest.raises(KeyboardInterrupt):
            rewrite(fail=True)
        assert backup_path(first).read_text() == "old"
        assert backup_path(log).read_text() == "1\n"
    rewrite(fail=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "log.jsonl"]
    assert (first.read_text(), log.read_text()) == ("new", "1\n2\n2\n2\n")


def test_resume_that_fails_keeps_every_file(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(DAMAGED)
    before = contents(run)
    refused(intervae("resume", run), 1, "metrics.jsonl", "damaged")
    assert contents(run) == before
    (run / "metrics.jsonl").write_bytes(lines)
    succeeded(intervae("resume", run, "--no-evaluate"))
    assert not backups(run)


def test_resume_killed_while_it_writes_keeps_every_file(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "model.safetensors").write_bytes(b"damaged")
    (run / "README.md").write_bytes(b"my own notes")
    before = contents(run)

    def write_half(model: Any, folder: Path, **_: Any) -> None:
        write_text(folder / "README.md", "new")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loop, "save_model", write_half)
        refused(intervae("resume", run), 1, "interrupted")
    copies = backups(run)
    assert copies["README.md.bak"] == before["README.md"]
    assert "model.safetensors.bak" not in copies  # not rewritten yet
    assert contents(run)["model.safetensors"] == before["model.safetensors"]
    succeeded(intervae("resume", run, "--no-evaluate"))
    assert not backups(run)
