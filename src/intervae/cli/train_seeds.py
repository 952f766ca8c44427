"""`intervae train --seeds N`: one model with several seeds, each with its own run folder."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from intervae.cli.evaluate import draw_figures, evaluate_run
from intervae.cli.output import echo, out, print_notes
from intervae.cli.signals import interrupted_by_signals
from intervae.errors import RunError

if TYPE_CHECKING:
    from intervae.data import Dataset
    from intervae.metrics.base import Measurement
    from intervae.models.base import Model


def train_seeds(
    model: Model,
    data: Dataset,
    seeds: Sequence[int],
    folder: Path,
    evaluate: bool,
    options: dict[str, Any],
) -> None:
    """Train the seeds into FOLDER/seed-N, then evaluate each run and print the mean over seeds."""
    from intervae.training import fit_seeds

    with _explain_interrupt(folder):
        runs = fit_seeds(
            model,
            data,
            seeds=seeds,
            out=folder,
            notify=lambda text: print_notes([text]),
            **options,
        )
        longest = max(run.result.seconds for run in runs)
        echo(f"trained {len(runs)} seeds; the last ended after {longest:.0f} s")
        if not evaluate:
            return
        results = {}
        for run in runs:
            path = folder / f"seed-{run.seed}"
            results[run.seed] = evaluate_run(run.model, data, path, None, False, quiet=True)
            draw_figures(run.model, data, path)
        _print_means(results)


@contextlib.contextmanager
def _explain_interrupt(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C and the signals that end a process into an error that says how to resume."""
    try:
        with interrupted_by_signals():
            yield
    except KeyboardInterrupt:
        path = shlex.quote(str(folder))
        raise RunError(
            "interrupted; go on with the same command and --resume, or with one run alone: "
            f"`intervae resume {path}/seed-N`."
        ) from None


def _print_means(results: dict[int, list[Measurement]]) -> None:
    """Print each metric with its mean, standard deviation and range over the seeds."""
    from rich.table import Table
    from rich.text import Text

    grid = Table("metric", box=None, pad_edge=False, header_style="dim")
    for column in ("mean", "std", "lowest", "highest", "seeds"):
        grid.add_column(column, justify="right")
    values: dict[str, list[float]] = {}
    for measurements in results.values():
        for measurement in measurements:
            values.setdefault(measurement.metric, []).append(measurement.value)
    for name, numbers in values.items():
        spread = f"{stdev(numbers):.3g}" if len(numbers) > 1 else ""
        cells = (f"{mean(numbers):.4g}", spread, f"{min(numbers):.4g}", f"{max(numbers):.4g}")
        grid.add_row(Text(name), *cells, str(len(numbers)))
    out.print(grid)
