"""CMCL's Table 1: the paper's numbers are beside the rows with the paper's transform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from intervae.experiments import write_table
from intervae.experiments.cmcl import CMCL_FIG2, CMCL_TABLE1, FREE, TABLE1
from intervae.experiments.cmcl_jobs import with_unmeasured
from intervae.experiments.page import read_notes, split_parts
from intervae.figures.canvas import Canvas

ROOT = Path(__file__).parents[2]


def test_papers_numbers_are_those_of_folded_images() -> None:
    expected = {
        (model, f"{graph} {FREE}"): value / 100
        for graph, values in TABLE1.items()
        for model, value in values.items()
    }
    declared = {
        (job.model, job.variant): job.paper["mic_linked"] for job in CMCL_TABLE1.jobs if job.paper
    }
    assert declared == pytest.approx(expected)
    for job in CMCL_TABLE1.jobs:
        assert bool(job.paper) == (job.options.get("gp") == "free")
    assert not any("mic_linked" in job.paper for job in CMCL_FIG2.jobs)


def test_notes_have_the_papers_table() -> None:
    lines = [line.strip("|").split("|") for line in read_notes(CMCL_TABLE1).splitlines()]
    table = {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines if cells[1:]}
    models = table["the paper's MIC, %"]
    for graph, values in TABLE1.items():
        assert dict(zip(models, map(float, table[graph]), strict=True)) == values


def test_rows_that_were_not_run_have_the_papers_number_alone() -> None:
    document = json.loads((ROOT / "results" / "cmcl-table1.json").read_text(encoding="utf-8"))
    rows = split_parts(CMCL_TABLE1, document["rows"])
    drawn = with_unmeasured(rows, CMCL_TABLE1.jobs)
    assert [row for row in drawn if "mean" in row] == sorted(rows, key=drawn.index)
    papers = {(row["model"], row["variant"]) for row in drawn if row["metric"] == "mic_linked"} & {
        (row["model"], row["variant"]) for row in drawn if "paper" in row
    }
    assert len(papers) == sum(len(values) for values in TABLE1.values())
    other = [{**row, "variant": "2/4"} for row in rows[:1]]
    assert with_unmeasured(other, CMCL_TABLE1.jobs) == other  # a quick form


def test_diamonds_stand_at_folded_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canvases: list[Any] = []
    monkeypatch.setattr(Canvas, "save", lambda canvas, path: canvases.append(canvas))
    name = "cmcl-table1.json"
    (tmp_path / name).write_bytes((ROOT / "results" / name).read_bytes())
    write_table(CMCL_TABLE1, tmp_path)
    axes = next(
        panel
        for panel in canvases[0].figure.axes[1:]
        if any(line.get_marker() == "D" for line in panel.lines)
    )
    names = [label.get_text().replace("\n", " ") for label in axes.get_xticklabels()]
    (line,) = (line for line in axes.lines if line.get_marker() == "D")
    groups = [names[round(x)] for x in line.get_xdata()]
    assert {*groups} == {f"{graph} {FREE}" for graph in TABLE1}
    assert sorted(line.get_ydata()) == pytest.approx(
        sorted(value / 100 for values in TABLE1.values() for value in values.values())
    )
