"""Files of results: NAME.json, the page NAME.md, the figure NAME.png and pictures NAME-*.png."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intervae.errors import RunError
from intervae.experiments.base import Experiment, MetricKey
from intervae.experiments.page import Page, render_page, split_parts
from intervae.experiments.plan import Plan
from intervae.files import read_json, write_json, write_text


def write_results(plan: Plan, document: Mapping[str, Any], results: Path) -> None:
    """Write the JSON file, the pictures, the page and the figure of an experiment."""
    stem = results / plan.experiment.name
    write_json(stem.with_name(f"{stem.name}.json"), document)
    _write_pictures(plan, stem)
    write_table(plan.experiment, results)


def write_table(experiment: Experiment, results: str | Path = "results") -> None:
    """Write NAME.md, and NAME.png if there is a figure, from NAME.json alone.

    In NAME.json only what the experiment declares about the paper's numbers is brought up to date.
    """
    stored, path = _read_document(experiment, results), Path(results) / experiment.name
    document = {**stored, "rows": with_declared_paper(experiment, stored["rows"])}
    if document != stored:
        write_json(path.with_name(f"{path.name}.json"), document)
    page = results_page(experiment, results)
    write_text(path.with_name(f"{path.name}.md"), page.text)
    if experiment.figure is not None:
        rows = split_parts(experiment, document["rows"])
        experiment.figure(path.with_name(f"{path.name}.png"), rows)


def with_declared_paper(
    experiment: Experiment, rows: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows with the paper's numbers and their remarks as the experiment declares them.

    Rows of jobs that the experiment no longer has stay as they are.
    """
    jobs = {(job.data, job.model, job.variant): job for job in experiment.jobs}
    result = []
    for row, split in zip(rows, split_parts(experiment, rows), strict=True):
        job = jobs.get((split["data"], split["model"], split["variant"]))
        if job is None:
            result.append(dict(row))
            continue
        measured = {k: v for k, v in row.items() if k not in ("paper", "paper_differs")}
        result.append(measured | job.paper_entries(MetricKey(row["metric"], split["part"])))
    return result


def results_page(experiment: Experiment, results: str | Path = "results") -> Page:
    """Return the page of NAME.json and of the pictures beside it."""
    pictures = [
        name
        for name in experiment.pictures
        if (Path(results) / f"{experiment.name}-{name}.png").is_file()
    ]
    return render_page(experiment, _read_document(experiment, results), pictures)


def _read_document(experiment: Experiment, results: str | Path) -> dict[str, Any]:
    path = Path(results) / f"{experiment.name}.json"
    command = f"intervae reproduce {experiment.name}"
    if not path.is_file():
        raise RunError(f"there is no {path}; make it with `{command}`.")
    document = read_json(path, "the numbers of the experiment")
    if (
        not isinstance(document, dict)
        or document.get("experiment") != experiment.name
        or not document.get("rows")
    ):
        raise RunError(
            f"{path} does not hold the numbers of {experiment.name}; make it again with "
            f"`{command}`."
        )
    return document


def copy_pictures(
    figure: str, pictures: Sequence[str], folders: Mapping[str, Path], stem: Path
) -> None:
    """Copy `figure` of the runs of the variants `pictures` to NAME-VARIANT.png.

    An `Experiment.gather`, with functools.partial. Spaces in variants become hyphens.
    """
    for variant, folder in folders.items():
        picture, source = variant.replace(" ", "-"), folder / "figures" / figure
        if picture in pictures and source.is_file():
            shutil.copyfile(source, stem.with_name(f"{stem.name}-{picture}.png"))


def _write_pictures(plan: Plan, stem: Path) -> None:
    experiment = plan.experiment
    if experiment.gather is not None:
        unique = len({job.variant for job in plan.jobs}) == len(plan.jobs)
        folders = {
            task.job.variant if unique else task.job.key: task.folder
            for task in plan.tasks
            if task.seed == 0
        }
        experiment.gather(folders, stem)
    for name in experiment.pictures:
        source = plan.tasks[0].folder / "figures" / f"{name}.png"
        if source.is_file():  # not where only the numbers were copied from another machine
            shutil.copyfile(source, stem.with_name(f"{stem.name}-{name}.png"))
