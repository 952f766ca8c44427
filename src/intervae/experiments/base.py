"""Experiments as declarations: jobs (data, model, settings), seeds, the paper's numbers, metrics.

Each job and seed is an independent run. Its numbers are stored in its folder, so that only missing
runs are executed later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from intervae.errors import UsageError, unknown


@dataclass(frozen=True)
class MetricKey:
    """A metric and the variable, layer or step that the number is about; "" for the whole."""

    metric: str
    part: str = ""

    @classmethod
    def parse(cls, key: str | MetricKey) -> MetricKey:
        """Return the key of its stored text, `metric` or `metric|part`; keys stay as they are."""
        if isinstance(key, MetricKey):
            return key
        metric, _, part = key.partition("|")
        return cls(metric, part)

    def __str__(self) -> str:
        """Return the text under which the number is stored in numbers.json."""
        return f"{self.metric}|{self.part}" if self.part else self.metric


Numbers = dict[str | MetricKey, float]  # a plain metric name is the key of the whole


@dataclass(frozen=True)
class Job(ABC):
    """One row of an experiment's table, run once per seed.

    Arguments:
        options: options of the data set.
        settings: settings of the model or of the discovery method.
        variant: text that distinguishes jobs of the same data and model.
        paper: metric, or `metric|part` -> the paper's number.
        training: options of the training.
        seeds: number of seeds; without it, that of the experiment.
        paper_differs: what the paper's numbers were measured on instead of this data, for the mark
            beside them; "" for the same data.
    """

    data: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""
    paper: Mapping[str, float] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    seeds: int | None = None
    paper_differs: str = field(default="", kw_only=True)

    @property
    def key(self) -> str:
        """The name of the job in folder names."""
        words = [word for word in (self.data, self.model, self.variant) if word]
        return "-".join(words).replace(" ", "-").replace("/", "-")

    def check(self) -> None:  # noqa: B027
        """Raise an error if the job cannot be run here, for example for missing data."""

    def paper_entries(self, key: MetricKey) -> dict[str, Any]:
        """Return the entries of a row about the paper's number, none where it has none."""
        if str(key) not in self.paper:
            return {}
        number = {"paper": self.paper[str(key)]}
        return number | ({"paper_differs": self.paper_differs} if self.paper_differs else {})

    @property
    def trains_stacks(self) -> bool:
        """Whether `train_stack` may be called before `run`."""
        return False

    def train_stack(  # noqa: B027
        self, runs: Mapping[int, Path], device: str, notify: Callable[[str], None]
    ) -> None:
        """Train seeds, each into its folder, as one stack; `run` then finds them trained.

        A job whose seeds are no stack raises a StackError, and `run` trains them.
        """

    @abstractmethod
    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        """Return the numbers of one seed; `folder` belongs to this job and seed alone."""


@dataclass(frozen=True)
class Experiment:
    """A table of jobs and what its page shows.

    Arguments:
        seeds: number of seeds of each job that does not have its own.
        shown: metrics of the page, one line for each job and part.
        notes: names of Markdown files in experiments/notes, without .md, that open the page.
        columns: metrics of a summary table with one line per job; no such table without them.
        compared: last words of variants that become columns of a table of `columns`, beside the
            paper's numbers, with one line per data, model and metric.
        by_part: a metric with a table of its own: a line per part, a column per job.
        glossary: word -> meaning, for metrics, data sets, models and variants; the page has those
            that it uses.
        figure: draws NAME.png from a path and the rows, each with the job's `variant` and `part`.
        pictures: names of pictures NAME-*.png on the page; without `gather` they are copied from
            figures/*.png of the first run.
        gather: makes the pictures from the runs of the first seed: variant -> run folder (the key
            of the job where variants are not unique), and the path NAME without a suffix.
        quick: jobs of a short form, `--quick`, run with one seed and written as NAME-quick.
        runs: name of the folder of the runs, if not NAME; experiments with the same folder share
            the runs of equal jobs.
    """

    name: str
    title: str
    jobs: tuple[Job, ...]
    seeds: int
    shown: tuple[str, ...]
    notes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    by_part: str = ""
    glossary: Mapping[str, str] = field(default_factory=dict)
    figure: Callable[[Path, Sequence[Mapping[str, Any]]], None] | None = None
    pictures: tuple[str, ...] = ()
    gather: Callable[[Mapping[str, Path], Path], None] | None = None
    quick: tuple[Job, ...] = ()
    runs: str = ""

    @property
    def runs_name(self) -> str:
        """The name of the folder that holds the runs."""
        return self.runs or self.name

    @property
    def quick_form(self) -> Experiment:
        """The experiment that `--quick` runs."""
        if not self.quick:
            raise UsageError(f"{self.name} has no quick form; run it without --quick.")
        return replace(
            self,
            name=f"{self.name}-quick",
            title=f"{self.title}: the quick form",
            jobs=tuple(replace(job, seeds=None) for job in self.quick),
            seeds=1,
            quick=(),
            runs=self.runs and f"{self.runs}-quick",
        )


def find_experiment(name: str, experiments: Sequence[Experiment]) -> Experiment:
    """Return the experiment of that name; an unknown name raises a UsageError."""
    for experiment in experiments:
        if experiment.name == name:
            return experiment
    raise unknown("experiment", name, [e.name for e in experiments])
