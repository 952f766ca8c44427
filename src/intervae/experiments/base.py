"""Experiments: declared data, models, seeds and the paper's numbers; every (job, seed) is independent, kept when done, and redone if not."""

from __future__ import annotations

import functools
import json
import math
import shutil
import statistics
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import intervae
from intervae.data.base import Dataset
from intervae.data.registry import load_data
from intervae.discovery import discover
from intervae.errors import RunError, TrainingError, UsageError, unknown
from intervae.evaluation import METRICS, evaluate, write_evaluation
from intervae.evaluation.subject import Subject
from intervae.experiments.page import markdown, split_parts
from intervae.files import read_json, write_json, write_text
from intervae.models import create
from intervae.models.base import Model
from intervae.models.storage import hardware, load_model, revision, versions
from intervae.report import write_figures
from intervae.training import choose_device, fit
from intervae.training.together import run_together

TOGETHER = 8  # runs at once on a GPU; see benchmarks/together.py
LOADING = threading.Lock()
Numbers = dict[str, float]  # metric, or "metric|part" for one variable's share of it -> value


@dataclass(frozen=True)
class Job(ABC):
    """One row of an experiment's table, run once per seed."""

    data: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)  # of the data
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the model or method
    variant: str = ""
    paper: Mapping[str, float] = field(default_factory=dict)  # metric -> the paper's number
    training: Mapping[str, Any] = field(default_factory=dict)  # options of the training
    seeds: int | None = None  # where not as many as the experiment's

    @property
    def key(self) -> str:
        return "-".join(part for part in (self.data, self.model, self.variant) if part).replace(" ", "-").replace("/", "-")

    def check(self) -> None:  # noqa: B027
        """Refuse what cannot be run here, such as data that are missing."""

    @abstractmethod
    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        """Do it and measure it; `folder` is this job's and seed's own."""


@dataclass(frozen=True)
class Train(Job):
    """Train a model, evaluate it on the test split, draw its pictures. A run that was stopped goes on where it was."""

    metrics: tuple[str, ...] = ()  # entries of METRICS; without any, all that apply

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        model, seconds = self.train(data, seed, device, folder)
        measurements = evaluate(model, data, [name for name in self.metrics if METRICS[name].applies(Subject(model, data))])
        write_evaluation(folder, measurements)
        write_figures(model, data, folder)
        numbers: Numbers = {"train_seconds": seconds}
        for m in measurements:
            numbers[m.metric] = m.value
            if "by_chance" in m.parameters:
                numbers[f"{m.metric}_by_chance"] = m.parameters["by_chance"]["value"]
                numbers[f"{m.metric}_images"] = float(m.n)
            numbers |= {f"{m.metric.removesuffix('_min')}|{name}": value for name, value in m.per_variable.items()}
        return numbers

    def check(self) -> None:
        self.load()

    def load(self) -> Dataset:
        """The data, read once for all jobs that share them."""
        with LOADING:
            return _load(self.data, json.dumps(dict(self.options), sort_keys=True))

    def train(self, data: Dataset, seed: int, device: str, folder: Path) -> tuple[Model, float]:
        """The trained model, as it is loaded from its run, and the seconds that it took."""
        model = create(self.model, data, **self.settings)
        started = (folder / "config.json").is_file()
        options = {"checkpoint_seconds": 60, "tensorboard": False, **self.training}
        result = fit(model, data, seed=seed, out=folder, device=device, resume=started, **options)
        return load_model(folder, device), result.seconds


@functools.lru_cache(maxsize=6)
def _load(name: str, options: str) -> Dataset:
    return load_data(name, **json.loads(options))


@dataclass(frozen=True)
class Discover(Job):
    """Find the graph of the labels alone with one method of `intervae.discovery`; each seed draws its own rows."""

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = load_data(self.data, **{**self.options, "size": 8, "seed": seed})
        assert data.graph is not None
        found = discover(data.train.labels.numpy(), self.model, names=data.names, seed=seed, **self.settings)
        write_json(folder / "graph.json", found.graph.to_json())
        return {"shd": float(data.graph.shd(found.graph)), "seconds": found.seconds}


@dataclass(frozen=True)
class Experiment:
    """A table: what is run, on how many seeds, and what of it is shown.

    Arguments:
        shown: metrics of the page, a line for each job and part.
        columns: metrics of a first table that has one line for each job; without any, there is no such table.
        meanings: of metrics, data sets, models and variants; the page tells those that it shows.
        figure: draws NAME.png from a path and the rows, of which each has the job's `variant` and the `part` that it is about.
        pictures: names of figures/*.png in the run of the first job and seed that are copied to NAME-*.png and shown on the page.
        gather: draws such pictures from the runs of the first seed instead, from variant -> run folder (job's key where
            variants are alike) and the path NAME without a suffix.
        quick: jobs of a short form of the same thing, `--quick`, run with one seed and written as NAME-quick.
        runs: the folder of its runs, where not NAME: experiments that name the same one do the jobs that they share only once.
    """

    name: str
    title: str
    jobs: tuple[Job, ...]
    seeds: int
    shown: tuple[str, ...]
    notes: str = ""
    columns: tuple[str, ...] = ()
    meanings: Mapping[str, str] = field(default_factory=dict)
    figure: Callable[[Path, Sequence[Mapping[str, Any]]], None] | None = None
    pictures: tuple[str, ...] = ()
    gather: Callable[[Mapping[str, Path], Path], None] | None = None
    quick: tuple[Job, ...] = ()
    runs: str = ""

    @property
    def quick_form(self) -> Experiment:
        """The experiment that `--quick` runs."""
        if not self.quick:
            raise UsageError(f"{self.name} has no quick form; run it without --quick.")
        title = f"{self.title}: the quick form"
        jobs, runs = tuple(replace(job, seeds=None) for job in self.quick), self.runs and f"{self.runs}-quick"
        return replace(self, name=f"{self.name}-quick", title=title, jobs=jobs, seeds=1, quick=(), runs=runs)


def copy_pictures(figure: str, pictures: Sequence[str], folders: Mapping[str, Path], stem: Path) -> None:
    """A `gather` (with functools.partial): `figure` of each run whose variant, words joined by -, is among `pictures` becomes NAME-PICTURE.png."""
    for variant, folder in folders.items():
        picture, made = variant.replace(" ", "-"), folder / "figures" / figure
        if picture in pictures and made.is_file():
            shutil.copyfile(made, stem.with_name(f"{stem.name}-{picture}.png"))


def reproduce(
    experiment: Experiment,
    *,
    seeds: int | None = None,
    device: str = "auto",
    runs: str | Path = "runs",
    results: str | Path = "results",
    overwrite: bool = False,
    only: str = "",
    shard: tuple[int, int] = (1, 1),
    together: int | None = None,
    command: str = "",
    quick: bool = False,
    finished: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run every job on every seed, skipping what `runs` already holds, and write `results`/NAME.json, NAME.md and NAME.png.

    Arguments:
        seeds: 0 .. seeds - 1; the experiment's own number without it.
        overwrite: also replace a NAME.json that has more seeds than these.
        only: run the jobs whose key has this in it, and write no table: to spread a grid over machines, each with its part. Bring their
            `runs` together, and the same command without `only` makes the table.
        shard: (k, n) runs every n-th job and seed from the k-th on, and writes no table either: the same for a grid of jobs like each other.
        together: runs at once, on streams of their own; without it, TOGETHER on a GPU and 1 elsewhere.
        quick: run the quick form, and write NAME-quick.*.
        finished: run nothing; the table is of what `runs` holds, and names what is missing.
        tell: called with a line after each job and seed.

    Returns:
        What the JSON file holds; with `only` or `shard`, just its rows.
    """
    if seeds is not None and seeds < 1:
        raise UsageError(f"--seeds {seeds}: at least one seed is needed.")
    if quick:
        command = command or f"intervae reproduce {experiment.name} --quick{f' --seeds {seeds}' if seeds else ''}"
        experiment = experiment.quick_form
    if not 1 <= shard[0] <= shard[1]:
        raise UsageError(f"shard {shard[0]}/{shard[1]}: the first number must be from 1 to the second.")
    jobs = [job for job in experiment.jobs if only in job.key]
    if not jobs:
        raise UsageError(f"--only {only}: no job of {experiment.name} has that in its name; they are {', '.join(j.key for j in experiment.jobs)}.")
    counts = [seeds or job.seeds or experiment.seeds for job in jobs]
    count = max(counts)
    part = bool(only) or shard[1] > 1
    before = 0 if overwrite or part else _seeds_in(Path(results) / f"{experiment.name}.json")
    if before > count:
        raise UsageError(
            f"{Path(results) / experiment.name}.json has {before} seeds and would be replaced by {count}; choose another --results folder, or pass "
            "--overwrite."
        )
    where = str(choose_device(device))
    workers = together if together is not None else TOGETHER if where.startswith("cuda") else 1
    todo = [(job, seed) for job, own in zip(jobs, counts, strict=True) for seed in range(own)][shard[0] - 1 :: shard[1]]
    folders = [Path(runs) / (experiment.runs or experiment.name) / f"{job.key}-{seed}" for job, seed in todo]
    there = [_kept(job, seed, folder) is not None for (job, seed), folder in zip(todo, folders, strict=True)]
    missing = [job for (job, _), done in zip(todo, there, strict=True) if not done]
    left_out = [folder.name for folder, done in zip(folders, there, strict=True) if not done] if finished else []
    if finished:
        todo = [one for one, done in zip(todo, there, strict=True) if done]
        folders = [folder for folder, done in zip(folders, there, strict=True) if done]
        if not todo:
            raise RunError(
                f"{Path(runs) / (experiment.runs or experiment.name)} holds no finished run of {experiment.name}; run it without --finished."
            )
    else:
        for job in missing:  # what cannot be run is refused before anything is
            job.check()
    tasks = [functools.partial(_once, job, seed, where, folder) for (job, seed), folder in zip(todo, folders, strict=True)]
    found: dict[int, dict[str, Any]] = {}
    failed: list[Exception] = []
    for number, kept in _in_precision(missing, run_together([_caught(task) for task in tasks], workers, where)):
        job, seed = todo[number]
        if isinstance(kept, Exception):  # the other jobs are independent of it
            failed.append(kept)
            tell(f"{job.key} seed {seed} failed: {kept}")
            continue
        found[number] = kept
        shown = [f"{m} {kept['numbers'][m]:.4g}" for m in experiment.shown if m in kept["numbers"]]
        tell(f"{job.key} seed {seed}: " + ", ".join(shown))
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise RunError(
            f"{len(failed)} of {len(todo)} runs of {experiment.name} failed, the first with: {failed[0]}{' The others are kept.' if found else ''}"
        )
    made: dict[str, list[str]] = {"revision": [], "hardware": []}  # of every number, those kept from earlier included
    for number in sorted(found):
        for key, values in made.items():
            values += [found[number][key]] if found[number][key] not in values else []
    rows: list[dict[str, Any]] = []
    for job in jobs:
        per_seed = {seed: found[number]["numbers"] for number, (other, seed) in enumerate(todo) if other is job}
        rows += _rows(job, per_seed) if per_seed else []
    if part:
        return {"rows": rows}
    document = {
        "experiment": experiment.name,
        "command": command or f"intervae reproduce {experiment.name}{f' --seeds {count}' if len(set(counts)) == 1 else ''}",
        **{key: ", ".join(values) for key, values in made.items()},
        "versions": _versions(found.values()),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        **({"missing": left_out} if left_out else {}),
        "rows": rows,
    }
    write_json(Path(results) / f"{experiment.name}.json", document)
    if experiment.gather is not None:
        alike = len({job.variant for job in jobs}) < len(jobs)  # then a variant does not tell which job it is
        firsts = {job.key if alike else job.variant: folder for (job, seed), folder in zip(todo, folders, strict=True) if seed == 0}
        experiment.gather(firsts, Path(results) / experiment.name)
    for name in experiment.pictures:
        made_picture = folders[0] / "figures" / f"{name}.png"
        if made_picture.is_file():  # not where only the numbers of a run were brought from another machine
            shutil.copyfile(made_picture, Path(results) / f"{experiment.name}-{name}.png")
    write_table(experiment, results)
    return document


def _versions(kept: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What the numbers were made with: each program's versions; numbers of before this was kept with them say nothing."""
    known = [one["versions"] for one in kept if "versions" in one] or [versions()]
    return {name: ", ".join(dict.fromkeys(one[name] for one in known)) for name in known[0]}


def _seeds_in(path: Path) -> int:
    """How many seeds a results file has in its fullest row; 0 where there is no such file or it holds no results."""
    try:
        document = read_json(path, "the numbers of the experiment") if path.is_file() else {}
    except RunError:
        return 0
    rows = document.get("rows", []) if isinstance(document, dict) else []
    return max((len(row.get("per_seed", {})) for row in rows), default=0)


def write_table(experiment: Experiment, results: str | Path = "results") -> None:
    """`results`/NAME.md, and NAME.png where there is a figure, from `results`/NAME.json, which alone holds the numbers."""
    path = Path(results) / f"{experiment.name}.json"
    if not path.is_file():
        raise RunError(f"there is no {path}; make it with `intervae reproduce {experiment.name}`.")
    document = read_json(path, "the numbers of the experiment")
    if not isinstance(document, dict) or document.get("experiment") != experiment.name or not document.get("rows"):
        raise RunError(f"{path} does not hold the numbers of {experiment.name}; make it again with `intervae reproduce {experiment.name}`.")
    drawn = [name for name in experiment.pictures if path.with_name(f"{experiment.name}-{name}.png").is_file()]
    write_text(path.with_suffix(".md"), markdown(experiment, document, drawn))
    if experiment.figure is not None:
        experiment.figure(path.with_suffix(".png"), split_parts(experiment, document["rows"]))


def _record(job: Job, seed: int) -> dict[str, Any]:
    """What the numbers of a job and seed depend on."""
    return {"job": json.loads(json.dumps(asdict(job))), "seed": seed, "intervae": intervae.__version__}


def _kept(job: Job, seed: int, folder: Path) -> dict[str, Any] | None:
    """The numbers of a finished job and seed, and where they were made; those of other settings are refused."""
    path, record = folder / "numbers.json", _record(job, seed)
    if not path.is_file():
        return None
    kept = read_json(path, "the numbers of a finished job")
    if isinstance(kept, dict) and {k: kept.get(k) for k in record} == record and {"numbers", "hardware", "revision"} <= kept.keys():
        return kept
    raise UsageError(f"{folder} holds the numbers of other settings; remove it or choose another --runs folder.")


def _once(job: Job, seed: int, device: str, folder: Path) -> dict[str, Any]:
    """The numbers of one job and seed: read where they are from the same settings, made where not."""
    kept = _kept(job, seed, folder)
    if kept is not None:
        return kept
    numbers = job.run(seed, device, folder)
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise TrainingError(f"{job.key}, seed {seed}: {name} is {value}, so the table would say nothing; the run is in {folder}.")
    made = {**_record(job, seed), "numbers": numbers, "hardware": hardware(device), "revision": revision(), "versions": versions()}
    write_json(folder / "numbers.json", made)
    return made


def _in_precision(jobs: Sequence[Job], results: Iterator[Any]) -> Iterator[Any]:
    """The results, made with matrix products on a GPU's TF32 units where every job asks for that: in training and in measuring alike."""
    before = torch.get_float32_matmul_precision()
    if jobs and all(job.training.get("precision") == "tf32" for job in jobs):
        torch.set_float32_matmul_precision("high")
    try:
        yield from results
    finally:
        torch.set_float32_matmul_precision(before)


def _caught(task: Callable[[], Any]) -> Callable[[], Any]:
    """The same task, an error of which is its result."""

    def run() -> Any:
        try:
            return task()
        except Exception as error:
            return error

    return run


def _rows(job: Job, per_seed: dict[int, Numbers]) -> list[dict[str, Any]]:
    rows = []
    names = next(iter(per_seed.values())).keys()
    for seed, numbers in per_seed.items():
        if numbers.keys() != names:
            odd = ", ".join(sorted(numbers.keys() ^ names))
            raise RunError(f"{job.key}: seed {seed} was measured otherwise than the first ({odd}); remove the older of the two from --runs.")
    for key in names:
        metric, _, part = key.partition("|")
        values = {str(seed): numbers[key] for seed, numbers in per_seed.items()}
        variant = " ".join(text for text in (job.variant, part) if text)
        row: dict[str, Any] = {"data": job.data, "model": job.model, "variant": variant, "metric": metric, "per_seed": values}
        row |= {"mean": statistics.fmean(values.values()), "std": statistics.stdev(values.values()) if len(values) > 1 else 0.0}
        rows.append({**row, "paper": job.paper[key]} if key in job.paper else row)
    return rows


def find(name: str, experiments: Sequence[Experiment]) -> Experiment:
    for experiment in experiments:
        if experiment.name == name:
            return experiment
    raise unknown("experiment", name, [e.name for e in experiments])
