"""Results files: pages, pictures and overwriting; registered experiments and committed results."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from command import contents, intervae, refused, succeeded
from intervae import experiments
from intervae.data import datasets
from intervae.discovery import METHODS
from intervae.experiments import (
    EXPERIMENTS,
    Discover,
    Experiment,
    Numbers,
    Train,
)
from intervae.experiments import page as pages
from intervae.experiments.base import find_experiment
from intervae.experiments.page import render_page, split_parts
from intervae.models import MODELS
from intervae.models.presets import resolve_preset
from intervae.settings import build_settings
from scripted_experiment import Scripted, check_format, reproduce_in, scripted

ROOT = Path(__file__).parents[2]


RESULTS = sorted((ROOT / "results").glob("*.json"))


def test_every_notes_file_is_used_and_packaged() -> None:
    used = {name for experiment in EXPERIMENTS for name in experiment.notes}
    assert {path.stem for path in pages.NOTES.glob("*.md")} == used
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "experiments/notes/*.md" in project["tool"]["setuptools"]["package-data"]["intervae"]


def test_page_has_notes_and_the_chosen_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "NOTES", tmp_path)
    (tmp_path / "first.md").write_text("What it is.\n")
    (tmp_path / "second.md").write_text("How to read it.\n")
    experiment = replace(scripted(0.5, 0.25), notes=("first", "second"))
    document = reproduce_in(experiment, tmp_path)
    page = (tmp_path / "results" / "scripted.md").read_text()
    assert page == render_page(experiment, document).text
    notes, _, rest = page.removeprefix("# Scripted\n\n").partition("\n\n| data | model | variant |")
    assert notes == "What it is.\n\nHow to read it."
    assert rest.startswith(" metric | mean ± std over seeds | min … max | paper |\n")
    assert "| made | method | a | score | 0.375 ± 0.18 | 0.25 … 0.5 | 4.5 |" in page
    assert "| made | method | a part | score | 0.75 ± 0.35 | 0.5 … 1 |  |" in page
    source = f"{document['hardware']}, revision {document['revision']}, {document['date']}"
    assert f"2 seeds, none dropped; {source}." in page
    assert page.endswith("```\nintervae reproduce scripted --seeds 2\n```\n")
    hidden = render_page(replace(scripted(0.5, 0.25), shown=()), document).text
    assert "| made |" not in hidden


def test_reproduce_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "EXPERIMENTS", (scripted(1.0, 2.0),))
    words = [
        "reproduce",
        "scripted",
        "--runs",
        tmp_path / "runs",
        "--results",
        tmp_path / "results",
        "--device",
        "cpu",
    ]
    shown = succeeded(intervae(*words)).out
    assert "made-method-a seed 1: score 2\n" in shown
    assert "| made | method | a | score | 1.5 ± 0.71 |" in shown
    assert f"wrote {tmp_path / 'results' / 'scripted'}.json and .md" in shown
    check_format(json.loads((tmp_path / "results" / "scripted.json").read_text()))
    monkeypatch.setattr(experiments, "EXPERIMENTS", (scripted(1.0, 5.0),))
    before = contents(tmp_path)
    refused(intervae(*words), 2, "holds the numbers of other settings")
    assert contents(tmp_path) == before


def test_fewer_seeds_do_not_replace_more_without_overwrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "EXPERIMENTS", (scripted(1.0, 2.0, 3.0),))
    words = ["reproduce", "scripted", "--device", "cpu", "--runs", tmp_path / "runs", "--results"]
    succeeded(intervae(*words, tmp_path / "results"))
    before = contents(tmp_path)
    words[words.index(tmp_path / "runs")] = tmp_path / "fresh"
    messages = (
        "scripted.json has 3 seeds and would be replaced by 2",
        "another --results folder",
        "--overwrite",
    )
    refused(intervae(*words, tmp_path / "results", "--seeds", 2), 2, *messages)
    assert contents(tmp_path) == before  # nothing was run either
    succeeded(intervae(*words, tmp_path / "other", "--seeds", 2))
    succeeded(intervae(*words, tmp_path / "results", "--seeds", 2, "--overwrite"))
    assert (tmp_path / "results" / "scripted.md").read_text().count("2 seeds, none dropped") == 1
    succeeded(intervae(*words, tmp_path / "results", "--seeds", 3))
    (tmp_path / "results" / "scripted.json").write_text("{")  # holds nothing that could be lost
    succeeded(intervae(*words, tmp_path / "results", "--seeds", 1))


def test_table_option_writes_the_page_from_the_json_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiments, "EXPERIMENTS", (scripted(1.0, 2.0),))
    reproduce_in(scripted(1.0, 2.0), tmp_path)
    stored = contents(tmp_path)
    (tmp_path / "results" / "scripted.md").write_text("typed by hand")
    monkeypatch.setattr(Scripted, "run", lambda *_: pytest.fail("nothing is run"))
    words = ["reproduce", "scripted", "--table", "--results", tmp_path / "results"]
    assert f"wrote {tmp_path / 'results' / 'scripted'}.md\n" in succeeded(intervae(*words)).out
    assert contents(tmp_path) == stored
    path = tmp_path / "results" / "scripted.json"
    for text, messages in (
        ("{", "cannot be read"),
        ("[]", "does not hold the numbers"),
        ('{"experiment": "other"}', "does not hold the numbers"),
    ):
        path.write_text(text)
        refused(intervae(*words), 1, "scripted.json", messages)
    path.unlink()
    refused(intervae(*words), 1, "there is no", "intervae reproduce scripted")
    assert (tmp_path / "results" / "scripted.md").read_bytes() == stored["results/scripted.md"]


def test_quick_form_has_its_own_jobs_and_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(scripted(7.0).jobs[0], variant="short")
    experiment = replace(scripted(1.0, 2.0, seeds=2), quick=(short,))
    monkeypatch.setattr(experiments, "EXPERIMENTS", (experiment,))
    words = [
        "reproduce",
        "scripted",
        "--runs",
        tmp_path / "runs",
        "--results",
        tmp_path / "results",
        "--device",
        "cpu",
    ]
    succeeded(intervae(*words))
    shown = succeeded(intervae(*words, "--quick")).out
    assert f"wrote {tmp_path / 'results' / 'scripted-quick'}.json and .md" in shown
    whole, quick = (
        json.loads((tmp_path / "results" / f"{name}.json").read_text())
        for name in ("scripted", "scripted-quick")
    )
    check_format(quick)
    assert [list(row["per_seed"].values()) for row in quick["rows"]] == [[7.0], [14.0]]
    assert [list(row["per_seed"].values()) for row in whole["rows"]] == [[1.0, 2.0], [2.0, 4.0]]
    assert quick["command"] == "intervae reproduce scripted --quick"
    assert (tmp_path / "runs" / "scripted-quick" / "made-method-short-0" / "numbers.json").is_file()
    (tmp_path / "results" / "scripted-quick.md").unlink()
    succeeded(intervae(*words, "--quick", "--table"))
    assert "Scripted: the quick form" in (tmp_path / "results" / "scripted-quick.md").read_text()
    monkeypatch.setattr(experiments, "EXPERIMENTS", (scripted(1.0),))
    refused(intervae(*words, "--quick"), 2, "scripted has no quick form")


def test_pictures_of_the_first_run_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = replace(scripted(1.0, 2.0), pictures=("graph", "absent"))
    plain = Scripted.run

    def run(job: Scripted, seed: int, device: str, folder: Path) -> Numbers:
        (folder / "figures").mkdir(parents=True)
        (folder / "figures" / "graph.png").write_bytes(b"picture %d" % seed)
        return plain(job, seed, device, folder)

    monkeypatch.setattr(Scripted, "run", run)
    reproduce_in(experiment, tmp_path)
    assert (tmp_path / "results" / "scripted-graph.png").read_bytes() == b"picture 0"
    page = (tmp_path / "results" / "scripted.md").read_text()
    assert "![graph](scripted-graph.png)" in page
    assert "absent" not in page


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_registered_experiment_is_consistent(experiment: Experiment) -> None:
    assert find_experiment(experiment.name, EXPERIMENTS) is experiment
    assert len({job.key for job in experiment.jobs}) == len(
        experiment.jobs
    )  # each has folders of its own
    assert experiment.title.strip()
    assert experiment.seeds >= (
        1 if experiment.name in ("sachs", "ctvae-fig4") else 3
    )  # one table and learners without chance; counts
    for job in experiment.jobs:
        assert job.data in {entry.name for entry in datasets()} | {
            "sachs"
        }  # a table without images
        if isinstance(job, Train) and job.model != "ground-truth":
            assert ("r2" in experiment.shown) == (
                "r2_min" in experiment.shown
            )  # the parts with the whole
            cls = MODELS[job.model]
            build_settings(cls.Settings, resolve_preset(cls, job.settings))
        elif isinstance(job, Discover):
            assert job.model in METHODS


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_committed_results_have_all_seeds_and_their_page(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    check_format(document)
    assert document["experiment"] == path.stem
    assert re.fullmatch(r"[0-9a-f]{7,}(, [0-9a-f]{7,})*", document["revision"]), (
        "made from a tree with uncommitted changes, or from none"
    )
    whole = find_experiment(path.stem.removesuffix("-quick"), EXPERIMENTS)
    experiment = whole.quick_form if path.stem.endswith("-quick") else whole
    left_out = document.get("missing", [])
    assert set(left_out) <= {
        f"{job.key}-{seed}"
        for job in experiment.jobs
        for seed in range(job.seeds or experiment.seeds)
    }
    jobs = {(job.data, job.model, job.variant): job for job in experiment.jobs}
    for row in split_parts(
        experiment, document["rows"]
    ):  # every seed is there, or it is named as missing
        job = jobs[row["data"], row["model"], row["variant"]]
        seeds = range(job.seeds or experiment.seeds)
        assert {*row["per_seed"]} >= {
            str(seed) for seed in seeds if f"{job.key}-{seed}" not in left_out
        }
    declared = [job.seeds or experiment.seeds for job in experiment.jobs]
    assert max(len(row["per_seed"]) for row in document["rows"]) >= min(declared)
    pictures = [
        name for name in experiment.pictures if path.with_name(f"{path.stem}-{name}.png").is_file()
    ]
    assert (
        path.with_suffix(".md").read_text(encoding="utf-8")
        == render_page(experiment, document, pictures).text
    )  # intervae reproduce NAME --table
