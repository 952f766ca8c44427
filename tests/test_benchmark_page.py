"""benchmarks/README.md is current, its ratios say what they claim; the GPU scripts run tiny."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "benchmarks"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")  # scripts set them; restored afterwards
    monkeypatch.syspath_prepend(FOLDER)
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # for dataclasses
    spec.loader.exec_module(module)
    return module


def test_page_is_current_with_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    page = load("make_page", monkeypatch)
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert text == page.render(page.read(FOLDER / "results")), "run benchmarks/make_page.py"


def test_every_row_shows_a_number_or_the_command_that_measures_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = load("make_page", monkeypatch)
    rows = [row for section in page.SECTIONS.values() for row in section]
    lines = page.render(page.read(FOLDER / "results")).splitlines()
    for row in rows:
        (line,) = [line for line in lines if line.startswith(f"| {row.what} |")]
        ours = line.split(" | ")[1]
        has_file = (FOLDER / "results" / f"{row.source}.json").exists()
        number = re.fullmatch(r"[\d.,e+-]+", ours)
        assert number if has_file else ours == f"not measured yet: `{page.COMMANDS[row.source]}`"
        script = page.COMMANDS[row.source].split()[1]
        assert (FOLDER.parent / script).is_file()


@pytest.mark.parametrize(("more_is_better", "ratio"), [(False, "2.00"), (True, "0.50")])
def test_a_ratio_above_one_is_better(
    monkeypatch: pytest.MonkeyPatch, more_is_better: bool, ratio: str
) -> None:
    page = load("make_page", monkeypatch)
    row = page.Row(
        "x", "startup", lambda d: d["ours"], lambda d: d["peer"], "peer", "", more_is_better
    )
    line = page._line(row, {"ours": 3.0, "peer": 6.0})
    assert f"| 3 | 6 (peer) | {ratio} |" in line
    missing = page._line(row, None)
    assert "not measured yet: `python benchmarks/startup.py" in missing
    assert "| peer |" in missing


def test_traffic_counts_what_operators_read_and_write(monkeypatch: pytest.MonkeyPatch) -> None:
    roofline = load("roofline", monkeypatch)
    a, b = torch.ones(8, 16), torch.ones(16, 4)
    with roofline.TrafficCounter() as traffic:
        _ = (a @ b).T.reshape(8, 4)  # the copy of the transposed product is traffic too
    product = 8 * 16 + 16 * 4 + 8 * 4
    copy = 2 * 8 * 4
    assert traffic.bytes == 4 * (product + copy)


def test_roofline_counts_a_whole_step_and_names_the_binding_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roofline = load("roofline", monkeypatch)
    small, large = (
        roofline.count(roofline.make_stepper(n, 16, (4, 8), "cpu", capture=False)) for n in (4, 8)
    )
    # operations of products and convolutions grow as the batch, but for those of the parameters
    assert small[0] < large[0] <= 2 * small[0]
    assert large[0] > 1.8 * small[0]
    monkeypatch.setattr(roofline, "measured_peaks", lambda device: (1e15, 1.0))
    monkeypatch.setattr(roofline, "seconds_of", lambda *_: 2.0)
    parser = ["roofline.py", "--batch", "4", "--size", "16", "--channels", "4,8"]
    monkeypatch.setattr(sys, "argv", parser)
    options = roofline.argparse.Namespace(
        device="cpu", batch=4, size=16, channels=(4, 8), steps=1, out=None
    )
    step = roofline.measure(options)
    assert step["binding"] == "memory"
    assert step["fraction"] == pytest.approx(step["bytes"] / 2.0)
    assert step["operations"] == small[0]


def test_fewest_epochs_needs_every_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    goals = load("gpu_goals", monkeypatch)

    def row(epochs: int, mic: float, seconds: float) -> dict:
        return {"epochs": epochs, "mic": mic, "tic": 0.9, "fit_seconds": seconds}

    rows = [row(2, 0.99, 1.0), row(2, 0.94, 1.0), row(4, 0.96, 3.0), row(4, 0.97, 4.0)]
    assert goals.fewest_epochs(rows)["fit_seconds"] == 4.0
    assert goals.fewest_epochs(rows[:2])["epochs"] is None


def test_gpu_goals_run_in_a_tiny_form_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "goals"
    words = ["--device", "cpu", "--size", "8", "--epochs", "1", "--seeds", "1", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "gpu_goals.py"), *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(out.with_suffix(".json").read_text())
    (row,) = document["rows"]
    assert 0 < row["fit_seconds"] < row["process_seconds"]
    assert document["reached"]["epochs"] is None  # one epoch at 8 pixels does not reach the paper
    stages = dict(document["startup"])
    assert stages.pop("total") >= sum(stages.values()) > 0
    assert "| 1 | 0 |" in out.with_suffix(".md").read_text()
