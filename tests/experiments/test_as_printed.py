"""Tables "as printed | ours | paper": declared rows, the comparison, pages of rows not run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from intervae.experiments import EXPERIMENTS, run_experiment
from intervae.experiments.as_printed import AS_PRINTED, OURS, PRINTED, variants_of
from intervae.experiments.base import Experiment
from intervae.experiments.page import comparison_table, render_page
from intervae.models import MODELS
from intervae.models.presets import find_preset, resolve_preset
from scripted_experiment import scripted


@pytest.mark.parametrize("experiment", AS_PRINTED, ids=lambda e: e.name)
def test_every_row_as_printed_has_one_of_ours_and_five_seeds(experiment: Experiment) -> None:
    assert experiment.seeds == 5
    keys = {(job.data, job.model, job.variant): job for job in experiment.jobs}
    printed = [key for key in keys if key[2].endswith(PRINTED)]
    assert printed
    for data, model, variant in printed:
        ours = keys[data, model, variant.removesuffix(PRINTED) + OURS]
        job = keys[data, model, variant]
        assert (job.options, job.paper, job.seeds) == (ours.options, ours.paper, None)
        assert job.settings["preset"] == "paper"
        settings = resolve_preset(MODELS[model], job.settings)
        own = job.settings.keys() - {"preset"}
        for name, value in find_preset(MODELS[model], "paper").settings.items():
            assert settings[name] == value or name in own
    assert experiment.quick, "runs on two cores"


def test_single_changes_differ_from_ours_in_what_they_name() -> None:
    job = scripted(1.0).jobs[0]
    job = replace(job, settings={"a": 1}, variant="")
    printed, ours, changed = variants_of(job, {"preset": "paper"}, {"b=2": {"b": 2}})
    assert (printed.variant, ours.variant) == ("as printed", "ours")
    assert (changed.variant, changed.settings) == ("ours, b=2", {"a": 1, "b": 2})


def document(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    made = {"hardware": "CPU", "revision": "abc1234", "date": "2026-11-18", "command": "x"}
    return {**made, "rows": rows, **more}


def row(variant: str, mean: float, **more: Any) -> dict[str, Any]:
    named = {"data": "made", "model": "method", "variant": variant, "metric": "score"}
    return {**named, "per_seed": {"0": mean}, "mean": mean, "std": 0.5, **more}


def comparison(*variants: str) -> Experiment:
    job = scripted(1.0).jobs[0]
    jobs = tuple(replace(job, variant=variant) for variant in variants)
    return replace(scripted(1.0), jobs=jobs, columns=("score",), compared=(PRINTED, OURS), notes=())


def test_comparison_has_a_column_per_variant_and_the_papers() -> None:
    experiment = comparison("x as printed", "x ours", "x ours, b=2", "y as printed", "y ours")
    rows = [row("x as printed", 1.0, paper=3.0), row("x ours", 2.0), row("x ours, b=2", 9.0)]
    rows += [row("y ours", 4.0)]
    assert comparison_table(experiment, document(rows)) == [
        "| data | model | variant | metric | as printed | ours | paper |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| made | method | x | score | 1 ± 0.5 | 2 ± 0.5 | 3 |",
        "| made | method | y | score | not run | 4 ± 0.5 |  |",
    ]


def test_page_names_declared_rows_that_have_not_been_run() -> None:
    experiment = comparison("as printed", "ours")
    page = render_page(experiment, document([row("ours", 2.0)])).text
    assert "Declared, but not run yet: made method as printed." in page
    whole = [row("ours", 2.0), row("as printed", 1.0)]
    assert "not run yet" not in render_page(experiment, document(whole)).text


@pytest.mark.slow
@pytest.mark.parametrize("experiment", AS_PRINTED, ids=lambda e: e.name)
def test_quick_form_runs(experiment: Experiment, tmp_path: Path) -> None:
    result = run_experiment(
        experiment, quick=True, device="cpu", runs=tmp_path / "runs", results=tmp_path
    )
    variants = {row["variant"].split(" as printed")[0] for row in result["rows"]}
    assert variants
    page = (tmp_path / f"{experiment.name}-quick.md").read_text()
    assert "| as printed | ours | paper |" in page
    assert experiment in EXPERIMENTS
