"""`make demo` as in the Makefile: accuracy of concepts, counterfactuals and graph."""

import json
import re
import time
from pathlib import Path

import pytest

from command import program

MAKEFILE = Path(__file__).parents[1] / "Makefile"


@pytest.mark.slow
def test_demo_reaches_its_accuracy(tmp_path: Path) -> None:
    (line,) = re.findall(r"\$\(BIN\)/intervae (train .*)", MAKEFILE.read_text(encoding="utf-8"))
    start = time.monotonic()
    done = program(*line.split(), cwd=tmp_path, timeout=1800)
    assert done.code == 0, done.err
    measured = {
        row["metric"]: row
        for row in json.loads(
            (tmp_path / "runs" / "demo" / "evaluation.json").read_text(encoding="utf-8")
        )
    }
    assert min(measured["r2_min"]["per_variable"].values()) >= 0.95
    errors = measured["counterfactual_pixel_mae"]["per_variable"]
    untouched = measured["identity_pixel_mae"]["per_variable"]
    assert max(errors["pendulum"], errors["light"]) <= 0.003
    assert all(error < 0.6 * untouched[name] for name, error in errors.items())
    assert measured["shd"]["value"] == 0
    assert len(list((tmp_path / "runs" / "demo" / "figures").iterdir())) >= 8
    print(f"the demo took {time.monotonic() - start:.0f} s")
