"""`benchmarks/discovery.py --out` writes a JSON file and a page."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "discovery.py"


def test_the_script_writes_the_numbers_and_a_page(tmp_path: Path) -> None:
    words = [
        "--seeds",
        "1",
        "--variables",
        "4",
        "--ours",
        "--only",
        "linear",
        "--method",
        "dagma",
        "--out",
        str(tmp_path / "some" / "discovery"),
    ]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "some" / "discovery.json").read_text())
    (table,) = document["tables"]
    assert table["table"] == "linear_d4_made_0"
    assert (table["rows"], table["variables"], table["true_edges"]) == (1000, 4, 6)
    raw, standardised = table["learners"]
    assert raw["learner"] == "dagma"
    assert raw["shd"] == 0  # in raw units of equal noises
    assert raw["cpu_seconds"] > 0
    assert standardised["learner"] == "dagma standardised"
    assert {"revision", "date", "machine", "load_at_start", "versions", "command"} <= set(document)
    page = (tmp_path / "some" / "discovery.md").read_text()
    assert f"| dagma | 0 | {raw['cpu_seconds']:.2f} |" in page
    assert "--variables 4" in page


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # the script sets them; restored afterwards
    monkeypatch.syspath_prepend(SCRIPT.parent)  # as when the script is run
    spec = importlib.util.spec_from_file_location("discovery_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_speed_ratios_and_failed_learners_are_reported(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, true = script.simulate("linear", 4, 200, 0)

    def fails(_: object) -> object:
        raise RuntimeError("no solution")

    seconds = {"dagma": 2.0, "peer: dagma": 5.0}
    learners = {"dagma": "dagma", "notears": fails}
    monkeypatch.setitem(script.LEARNERS, "linear", learners)
    monkeypatch.setattr(script, "peers", lambda kind: [("dagma", "peer: dagma")])
    monkeypatch.setattr(
        script,
        "measure",
        lambda learner, *_: (3, seconds[learner]) if isinstance(learner, str) else learner(table),
    )
    result = script.measure_table("t", "linear", table, true, method="", with_peers=True)
    assert result["ratios"] == [
        {"learner": "dagma", "peer": "dagma", "times_as_fast": 2.5, "wanted": 3}
    ]
    assert result["learners"][1] == {"learner": "notears", "failed": "RuntimeError: no solution"}
    page = script.page(script.conditions("python x") | {"tables": [result]})
    assert "`dagma` is 2.5 times as fast as the public dagma (wanted: 3; NOT reached)" in page
    assert "| notears | failed: RuntimeError: no solution |  |" in page


def test_every_target_names_an_existing_learner_and_peer(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    offered = {peer for kind in script.LEARNERS for peer, _ in script.peers(kind)}
    measured = {label for learners in script.LEARNERS.values() for label in learners}
    for label, (peer, target) in script.TARGETS.items():
        assert label in measured
        assert peer in offered
        assert target > 1
