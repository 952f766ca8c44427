"""Marks of the paper's numbers on other data, and versions of the machines that ran a table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from intervae.experiments import EXPERIMENTS, Experiment, find_experiment
from intervae.experiments.cmcl_jobs import LearnGraph, TrainOnSimulation
from intervae.experiments.collect import versions_entries
from intervae.experiments.page import paper_marks, render_page, split_parts, summary_table
from intervae.experiments.records import Record, Task, read_record, write_record
from intervae.experiments.write import with_declared_paper, write_table
from scripted_experiment import reproduce_in, scripted, two_jobs

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "results").glob("*.json"))


def marked(**changes: Any) -> Experiment:
    """Return jobs a, on other data than the paper, and b, on the paper's."""
    experiment = two_jobs([1.0], [2.0], paper_differs="the original; ours is drawn", **changes)
    return replace(experiment, columns=("score",))


def committed(path: Path) -> tuple[Experiment, dict[str, Any]]:
    whole = find_experiment(path.stem.removesuffix("-quick"), EXPERIMENTS)
    experiment = whole.quick_form if path.stem.endswith("-quick") else whole
    return experiment, json.loads(path.read_text(encoding="utf-8"))


# ---- marks ---------------------------------------------------------------------------------------
def test_numbers_of_other_data_are_marked_in_the_tables(tmp_path: Path) -> None:
    experiment = marked()
    document = reproduce_in(experiment, tmp_path)
    rows = {(row["variant"], row["metric"]): row for row in document["rows"]}
    assert rows["a", "score"]["paper_differs"] == "the original; ours is drawn"
    assert "paper_differs" not in rows["b", "score"]
    assert "paper_differs" not in rows["a part", "score"]  # has no number of the paper
    lines = summary_table(experiment, document)
    assert lines[2:] == [
        "| made | method | a | 1 ± 0 (4.5¹) |",
        "| made | method | b | 2 ± 0 (4.5) |",
    ]
    page = (tmp_path / "results" / "scripted.md").read_text()
    assert "| made | method | a | score | 1 ± 0 | 1 … 1 | 4.5¹ |" in page
    assert "| made | method | b | score | 2 ± 0 | 2 … 2 | 4.5 |" in page
    summary, below = page.split("## All numbers")
    for part in (summary, below):
        assert part.count("- ¹ the original; ours is drawn.") == 1


def test_each_kind_of_other_data_has_one_mark(tmp_path: Path) -> None:
    document = reproduce_in(marked(), tmp_path)
    (row,) = [row for row in document["rows"] if "paper_differs" in row]
    texts = [*(f"kind {i}" for i in range(12)), "kind 3"]
    rows = [{**row, "paper_differs": text} for text in texts]
    marks = paper_marks({"rows": rows})
    assert list(marks) == [f"kind {i}" for i in range(12)]
    assert (marks["kind 0"], marks["kind 3"], marks["kind 11"]) == ("¹", "⁴", "¹²")


def test_a_page_without_papers_numbers_explains_no_brackets(tmp_path: Path) -> None:
    experiment = replace(scripted(1.0, paper={}), columns=("score",))
    reproduce_in(experiment, tmp_path)
    assert "in brackets" not in (tmp_path / "results" / "scripted.md").read_text()
    reproduce_in(marked(), tmp_path / "with")
    assert "in brackets" in (tmp_path / "with" / "results" / "scripted.md").read_text()


def test_remarks_do_not_invalidate_stored_numbers(tmp_path: Path) -> None:
    job = scripted(1.0).jobs[0]
    write_record(Task(job, 0, tmp_path), {"score": 1.0}, "cpu")
    assert read_record(Task(replace(job, paper_differs="drawn"), 0, tmp_path)) is not None
    training = TrainOnSimulation("made", "method")
    learner = LearnGraph("made", "learner", training_job=training)
    write_record(Task(learner, 0, tmp_path / "b"), {"score": 1.0}, "cpu")
    again = replace(learner, training_job=replace(training, paper_differs="drawn"))
    assert read_record(Task(again, 0, tmp_path / "b")) is not None


def test_table_brings_declared_numbers_of_the_paper_up_to_date(tmp_path: Path) -> None:
    before = reproduce_in(two_jobs([1.0], [2.0], paper={"score": 9.0}), tmp_path)
    experiment, path = marked(), tmp_path / "results" / "scripted.json"
    write_table(experiment, tmp_path / "results")
    document = json.loads(path.read_text())
    assert document["rows"][0]["paper"] == 4.5
    assert document["rows"][0]["paper_differs"] == "the original; ours is drawn"
    measured = ("per_seed", "mean", "std", "metric", "variant")
    for old, new in zip(before["rows"], document["rows"], strict=True):
        assert {key: old[key] for key in measured} == {key: new[key] for key in measured}
    assert {k: v for k, v in before.items() if k != "rows"} == {
        k: v for k, v in document.items() if k != "rows"
    }
    write_table(two_jobs([1.0], [2.0], paper={}), tmp_path / "results")
    assert "paper" not in json.loads(path.read_text())["rows"][0]


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_committed_results_have_the_declared_numbers_of_the_paper(path: Path) -> None:
    experiment, document = committed(path)
    assert with_declared_paper(experiment, document["rows"]) == document["rows"]


def test_rows_on_our_own_pictures_are_marked() -> None:
    """Every number of a paper beside data that we draw, simulate or render again."""
    own = {
        "pendulum",
        "flow",
        "shapes3d-like",
        "dsprites",
        "motion",
        "cross-modal",
        "sprites-frames",
    }
    count = 0
    for path in RESULTS:
        experiment, document = committed(path)
        for row in split_parts(experiment, document["rows"]):
            if "paper" in row and row["data"] in own:
                assert row.get("paper_differs"), (path.stem, row["data"], row["model"])
                count += 1
        page = render_page(experiment, document).text
        assert all(f"- {mark} {text}." in page for text, mark in paper_marks(document).items())
    assert count > 50


# ---- versions ------------------------------------------------------------------------------------
def record(hardware: str, **versions: str) -> Record:
    return Record({}, hardware, "0", versions)


def test_versions_are_those_of_the_machines_that_ran_the_records() -> None:
    one = record("GPU", intervae="0.1.0", python="3.12.3", torch="2.11.0+cu130", numpy="2.5.2")
    two = record("CPU", intervae="0.1.0", python="3.11.7", torch="2.13.0+cpu", numpy="2.5.2")
    assert versions_entries([one, two, one]) == {
        "versions": {
            "intervae": "0.1.0",
            "python": "3.12.3, 3.11.7",
            "torch": "2.11.0+cu130, 2.13.0+cpu",
            "numpy": "2.5.2",
        }
    }


def test_versions_are_never_those_of_the_machine_that_writes_the_table() -> None:
    old, new = record("GPU"), record("CPU", intervae="0.1.0", python="3.1", torch="9", numpy="8")
    entries = versions_entries([old, old])
    assert list(entries["versions"]) == ["intervae"]
    assert entries["versions_note"].startswith("2 of 2 runs, on GPU, did not record")
    entries = versions_entries([old, new])
    assert entries["versions"]["torch"] == "9"
    assert entries["versions_note"].startswith("1 of 2 runs, on GPU, did not record")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_no_committed_result_names_a_cpu_build_for_runs_on_a_gpu(path: Path) -> None:
    experiment, document = committed(path)
    torch = document["versions"].get("torch", "")
    if "CPU" not in document["hardware"]:
        assert "+cpu" not in torch
    if not torch:
        page = render_page(experiment, document).text
        assert document["versions_note"] in page
