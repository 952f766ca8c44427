"""Generated odd inputs: no traceback, no hang, no lost file."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from pathlib import Path

import pytest

from command import intervae
from odd_inputs import make_case

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here"),
    # what a command prints as a note is an error in tests
    pytest.mark.filterwarnings("default"),
]
SECONDS = 120  # a case takes about 0.2 s
FAST, ALL = 30, 1000


def files(folder: Path) -> dict[str, bytes]:
    """Return path -> bytes of every regular file, links not followed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if stat.S_ISREG(path.lstat().st_mode)
    }


def run_case(seed: int, good_folder: Path, finished: Path, place: Path) -> None:
    """Run the command of a seed on its own copies, and check what it prints and leaves."""
    folder = Path(shutil.copytree(good_folder, place / "mine"))
    run = Path(shutil.copytree(finished, place / "run"))
    text, words = make_case(seed, folder, run, place)
    before = files(place)

    def hang(*_: object) -> None:
        raise TimeoutError(f"seed {seed} hangs: {text}, {words}")

    handler = signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    try:
        output = intervae(*words)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    about = f"seed {seed}: {text}; {words}; {output}"
    assert output.code in (0, 1, 2), about
    assert "Traceback" not in output.out + output.err, about
    assert "this is a bug" not in output.err, about
    assert "hangs" not in output.err, about
    if output.code and words != [""]:
        lines = [line for line in output.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1 or "Usage" in output.out, about
    after = files(place)
    if output.code:
        for name, content in before.items():
            assert content in (after.get(name), after.get(f"{name}.bak")), f"{name} lost; {about}"
    else:  # a command that succeeds may write its run anew, but nothing else
        lost = [name for name in before if name not in after]
        changed = [n for n, content in before.items() if n in after and after[n] != content]
        assert not lost, f"{lost} lost; {about}"
        assert all(name.startswith("run/") for name in changed), f"{changed}; {about}"


def run_cases(seeds: range, good_folder: Path, finished: Path, place: Path) -> None:
    failures = []
    for seed in seeds:
        own = place / str(seed)
        own.mkdir()
        try:
            run_case(seed, good_folder, finished, own)
        except AssertionError as error:
            failures.append(str(error).partition("\nassert")[0][:600])
        shutil.rmtree(own)
    assert not failures, f"{len(failures)} of {len(seeds)}:\n" + "\n".join(failures)


def test_odd_inputs(
    good_folder: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_cases(range(FAST), good_folder, finished, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("tenth", range(10))
def test_a_thousand_odd_inputs(
    tenth: int, good_folder: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    share = ALL // 10
    run_cases(range(tenth * share, (tenth + 1) * share), good_folder, finished, tmp_path)
