"""What people see of an experiment's numbers: a Markdown page, and tables to quote elsewhere, made from its JSON file alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intervae.experiments.base import Experiment

Row = dict[str, Any]


def split_parts(experiment: Experiment, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows with the job's own `variant`, and what follows it there as `part`: the variable or layer that a number is about, or ""."""
    found = []
    for row in rows:
        own = [j.variant for j in experiment.jobs if (j.data, j.model) == (row["data"], row["model"]) and _starts(row["variant"], j.variant)]
        variant = max(own, key=len, default=row["variant"])
        found.append({**row, "variant": variant, "part": row["variant"].removeprefix(variant).strip()})
    return found


def _starts(words: str, variant: str) -> bool:
    return not variant or words == variant or words.startswith(f"{variant} ")


def markdown(experiment: Experiment, document: Mapping[str, Any], pictures: Sequence[str] = ()) -> str:
    """The page: where the experiment has `columns`, one line for each job; where it has a figure, that, and the `pictures` of its first run that
    are there; what the words mean; then every number that is shown."""
    lines = [f"# {experiment.title}", "", experiment.notes, ""] if experiment.notes else [f"# {experiment.title}", ""]
    if experiment.columns:
        lines += ["Mean ± standard deviation over seeds; the paper's number in brackets.", "", *summary(experiment, document), ""]
    if document.get("missing"):
        lines += [f"Not run yet: {', '.join(document['missing'])}.", ""]
    if experiment.figure is not None:
        lines += [f"![{experiment.title}]({experiment.name}.png)", ""]
    for name in pictures:
        lines += [f"![{name}]({experiment.name}-{name}.png)", ""]
    lines += meanings(experiment, document)
    lines += ["## Every number", ""] if experiment.columns or experiment.meanings else []
    lines += ["| data | model | what | metric | ours (mean ± std over seeds) | lowest seed to highest | paper |", "|---|---|---|---|---|---|---|"]
    for row in document["rows"]:
        if row["metric"] in experiment.shown:
            values = sorted(row["per_seed"].values())
            spread = f"{values[0]:.4g} … {values[-1]:.4g}"
            paper = f"{row['paper']:g}" if "paper" in row else ""
            lines.append(
                f"| {row['data']} | {row['model']} | {row['variant']} | {row['metric']} | "
                f"{row['mean']:.4g} ± {_spread(row['std'], 2)} | {spread} | {paper} |"
            )
    counts = sorted({len(row["per_seed"]) for row in document["rows"]})
    seeds = f"{' or '.join(str(count) for count in counts)} seed{'' if counts == [1] else 's'}"
    lines += ["", f"{seeds}, none dropped; {document['hardware']}, revision {document['revision']}, {document['date']}. Made by:", ""]
    return "\n".join([*lines, "```", document["command"], "```", ""])


def summary(experiment: Experiment, document: Mapping[str, Any]) -> list[str]:
    """The lines of a table with one line for each job, and the experiment's `columns` that were measured; the number of seeds, where jobs differ."""
    whole = [row for row in split_parts(experiment, document["rows"]) if not row["part"]]
    metrics = [metric for metric in experiment.columns if any(row["metric"] == metric for row in whole)]
    seeds = {(row["data"], row["model"], row["variant"]): str(len(row["per_seed"])) for row in whole}
    cells = {(row["data"], row["model"], row["variant"], row["metric"]): _cell(row) for row in whole}
    counted = len(set(seeds.values())) > 1
    heads = ("data", "model", "what", *metrics, *(["seeds"] if counted else []))
    return _table(heads, [(*job, *(cells.get((*job, metric), "") for metric in metrics), *([seeds[job]] if counted else [])) for job in seeds])


def meanings(experiment: Experiment, document: Mapping[str, Any]) -> list[str]:
    """The lines of a table of the experiment's `meanings` of whatever is on the page; none where it has none."""
    whole = split_parts(experiment, [row for row in document["rows"] if row["metric"] in experiment.shown])
    there = {row[kind] for row in whole for kind in ("metric", "data", "model", "variant")}
    told = [(f"`{word}`", meaning) for word, meaning in experiment.meanings.items() if word in there]
    return ["## What the words mean", "", *_table(("", ""), told), ""] if told else []


def across(experiment: Experiment, document: Mapping[str, Any], metric: str) -> list[str]:
    """The lines of a table of one metric: a line for each model, a column for each data set and variant of it."""
    whole = [row for row in split_parts(experiment, document["rows"]) if row["metric"] == metric and not row["part"]]
    models = dict.fromkeys(row["model"] for row in whole)
    data = dict.fromkeys((row["data"], row["variant"]) for row in whole)
    cells = {(row["model"], row["data"], row["variant"]): _cell(row, 3) for row in whole}
    return _table(("model", *(" ".join(one).strip() for one in data)), [(f"`{m}`", *(cells.get((m, *one), "") for one in data)) for m in models])


def _cell(row: Mapping[str, Any], digits: int = 4) -> str:
    return f"{row['mean']:.{digits}g} ± {_spread(row['std'], 1)}" + (f" ({row['paper']:g})" if "paper" in row else "")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


def _spread(value: float, digits: int) -> str:
    return f"{value:.{digits}g}" if value < 10**digits - 0.5 else f"{value:.0f}"
