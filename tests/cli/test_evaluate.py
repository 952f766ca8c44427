"""`intervae evaluate` and `intervae graph`."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import intervae as package
from command import (
    SMALL,
    image_size,
    intervae,
    make_folder,
    refused,
    succeeded,
    train_tiny,
)
from intervae import evaluation
from intervae.causal import CausalGraph
from intervae.cli import output
from intervae.data.simulators import Pendulum
from intervae.metrics.base import Measurement

EDGES = {
    ("pendulum", "shadow_length"),
    ("pendulum", "shadow_position"),
    ("light", "shadow_length"),
    ("light", "shadow_position"),
}


def test_evaluate_agrees_with_python_and_keeps_earlier_metrics(run: Path) -> None:
    model, data = package.load(run), Pendulum().dataset(size=16, samples=96)
    expected = {m.metric: m for m in package.evaluate(model, data)}
    first = json.loads(succeeded(intervae("evaluate", run, "--metric", "shd", "--json")).out)
    assert {m["metric"]: m["value"] for m in first} == {"shd": 0, "tpr": 1, "fpr": 0, "fdr": 0}
    second = succeeded(intervae("evaluate", run, "--metric", "r2", "--metric", "r2"))
    shown = re.sub(r"[│\s]+", " ", second.out)
    assert f" r2_min {expected['r2_min'].value:.4g} 24 " in shown
    assert " for each variable ┃ pendulum ┃ light ┃ shadow_length ┃ shadow_position " in re.sub(
        r"\s+", " ", second.out
    )
    assert (
        f" r2 {' '.join(f'{value:.4g}' for value in expected['r2_min'].per_variable.values())} "
        in shown
    )
    stored = json.loads((run / "evaluation.json").read_text())
    assert [m["metric"] for m in stored] == ["shd", "tpr", "fpr", "fdr", "r2_min"]
    assert stored[-1]["value"] == pytest.approx(expected["r2_min"].value, rel=1e-5)
    intervae("evaluate", run, "--metric", "shd")
    again = json.loads((run / "evaluation.json").read_text())
    assert [m["metric"] for m in again] == [
        "r2_min",
        "shd",
        "tpr",
        "fpr",
        "fdr",
    ]  # replaced, not added


def test_metric_that_does_not_apply_names_its_requirements(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "mine")
    succeeded(
        intervae(
            "train",
            "causal-vae",
            "--data",
            folder,
            *SMALL,
            "--set",
            "graph=joint",
            "--no-evaluate",
            "--out",
            tmp_path / "run",
        )
    )
    refused(
        intervae("evaluate", tmp_path / "run", "--metric", "counterfactual"),
        2,
        "'counterfactual' does not apply",
        "needs data with a simulator",
    )
    refused(
        intervae("evaluate", tmp_path / "run", "--metric", "shd"),
        2,
        "needs data with a known graph",
    )
    refused(
        intervae("evaluate", tmp_path / "run", "--metric", "r3"),
        2,
        "unknown metric 'r3'",
        "did you mean 'r2'",
    )
    measured = {
        m["metric"] for m in json.loads(intervae("evaluate", tmp_path / "run", "--json").out)
    }
    assert {"r2_min", "reconstruction_pixel_mae", "mic", "tic", "log_likelihood"} <= measured
    assert not {"shd", "tpr", "counterfactual_pixel_mae", "counterfactual_psnr"} & measured


def test_r2_skips_variables_constant_in_the_test_split(tmp_path: Path) -> None:
    split = ["test" if i >= 64 else "validation" if i >= 56 else "train" for i in range(80)]
    rare = [int(i < 20) for i in range(80)]
    folder = make_folder(tmp_path / "mine", columns={"rare": rare, "split": split})
    succeeded(intervae("train", "causal-vae", "--data", folder, *SMALL, "--out", tmp_path / "run"))
    measured = json.loads((tmp_path / "run" / "evaluation.json").read_text())[0]
    assert set(measured["per_variable"]) == {"level", "width"}
    assert measured["parameters"] == {"constant_in_test": ["rare"]}


def test_changed_data_are_detected_but_not_rounding(make_data: Any) -> None:
    spec = make_data().spec
    first = spec.variables[0]

    def changed(**values: Any) -> Any:
        return package.data.Spec(
            spec.image_shape, (type(first)(**{**vars(first), **values}), *spec.variables[1:])
        )

    assert evaluation.same_data(changed(mean=first.mean + 1e-9), spec)
    for other in (
        changed(mean=first.mean + 0.1),
        changed(high=first.high + 0.1),
        changed(name="z"),
        changed(kind="binary"),
    ):
        assert not evaluation.same_data(other, spec)
    assert not evaluation.same_data(package.data.Spec((1, 8, 8), spec.variables), spec)
    assert not evaluation.same_data(package.data.Spec(spec.image_shape, spec.variables[:2]), spec)


def test_measurement_tables_show_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    long = Measurement(
        "r2_min", 0.5, 7, {"a variable with quite a long name indeed": 0.5, "b": 0.75}
    )
    other = Measurement("counterfactual_pixel_mae", 0.01, 7, {"b": 0.0123})
    output.print_measurements([long, other])
    shown = re.sub(r"[│\s]+", " ", capsys.readouterr().out)
    assert "r2_min 0.5 7" in shown
    assert " r2 0.5 0.75 " in shown
    assert " counterfactual_pixel_mae 0.0123 " in shown


def test_graph_has_the_same_edges_in_every_format(finished: Path, tmp_path: Path) -> None:
    shown = [
        line.split("  ")[0].split(" -> ")
        for line in succeeded(intervae("graph", finished)).out.splitlines()
    ]
    assert {tuple(edge) for edge in shown} == EDGES
    printed = CausalGraph.from_json(succeeded(intervae("graph", finished, "--json")).out)
    assert {(a, b) for a, b, _ in printed.edges} == EDGES

    for name in ("g.json", "g.dot", "g.svg", "g.png", "deeper/G.SVG"):
        assert (
            succeeded(intervae("graph", finished, "--out", tmp_path / name)).out
            == f"wrote {tmp_path / name}\n"
        )
    assert CausalGraph.from_json((tmp_path / "g.json").read_text()) == printed
    assert {
        tuple(edge) for edge in re.findall(r'"(\w+)" -> "(\w+)"', (tmp_path / "g.dot").read_text())
    } == EDGES
    texts = {text.strip() for text in ET.parse(tmp_path / "g.svg").getroot().itertext()}
    assert texts >= {"pendulum", "light", "shadow_length", "shadow_position"}
    assert (tmp_path / "deeper" / "G.SVG").read_bytes() == (tmp_path / "g.svg").read_bytes()
    assert min(image_size(tmp_path / "g.png")) > 100
    both = succeeded(intervae("graph", finished, "--json", "--out", tmp_path / "again.json"))
    assert (
        CausalGraph.from_json(both.out)
        == printed
        == CausalGraph.from_json((tmp_path / "again.json").read_text())
    )


def test_graph_without_edges_prints_no_edges(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(
        json.dumps(
            CausalGraph.empty(("light", "pendulum", "shadow_length", "shadow_position")).to_json()
        )
    )
    run = train_tiny(tmp_path / "run", "--graph", tmp_path / "graph.json")
    assert succeeded(intervae("graph", run)).out == "no edges\n"


def test_evaluate_and_graph_do_not_import_matplotlib(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(package, "figures", raising=False)
    monkeypatch.setitem(sys.modules, "intervae.figures", None)  # importing it now fails
    monkeypatch.delitem(sys.modules, "intervae.report", raising=False)
    assert succeeded(intervae("graph", run)).out.count("->") == 4
    succeeded(intervae("evaluate", run))
    refused(intervae("graph", run, "--out", "g.svg"), 1, "ModuleNotFoundError")
