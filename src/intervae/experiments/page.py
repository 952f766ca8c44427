"""Results pages of experiments: Markdown made from the JSON file and the notes of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from intervae.experiments.base import Experiment

Row = dict[str, Any]
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
NOTES = Path(__file__).parent / "notes"  # Markdown files, named by Experiment.notes


class Page(NamedTuple):
    """Markdown of a results page; the long table of all numbers is apart where there is another."""

    summary: str
    all_numbers: str

    @property
    def text(self) -> str:
        return self.summary + self.all_numbers


def read_notes(experiment: Experiment) -> str:
    """Return the text of the experiment's notes, its files joined by empty lines."""
    texts = [(NOTES / f"{name}.md").read_text(encoding="utf-8") for name in experiment.notes]
    return "\n\n".join(text.strip() for text in texts)


def split_parts(experiment: Experiment, rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the rows with `variant` split into the job's own variant and `part`.

    A part is the variable or layer that a number is about; "" for the job as a whole.
    """
    result = []
    for row in rows:
        variants = [
            job.variant
            for job in experiment.jobs
            if (job.data, job.model) == (row["data"], row["model"])
            and _starts_with(row["variant"], job.variant)
        ]
        variant = max(variants, key=len, default=row["variant"])
        part = row["variant"].removeprefix(variant).strip()
        result.append({**row, "variant": variant, "part": part})
    return result


def _starts_with(text: str, variant: str) -> bool:
    """Whether `text` begins with the words of `variant`."""
    return not variant or text == variant or text.startswith(f"{variant} ")


def render_page(
    experiment: Experiment, document: Mapping[str, Any], pictures: Sequence[str] = ()
) -> Page:
    """Return the results page.

    Arguments:
        document: the content of results/NAME.json.
        pictures: names of the experiment's pictures that exist beside the JSON file.
    """
    lines = [f"# {experiment.title}", ""]
    if experiment.notes:
        lines += [read_notes(experiment), ""]
    if experiment.compared:
        lines += ["Mean ± standard deviation over seeds.", ""]
        lines += [*comparison_table(experiment, document), ""]
    elif experiment.columns:
        published = any("paper" in row for row in document["rows"])
        brackets = "; the paper's number in brackets" if published else ""
        lines += [f"Mean ± standard deviation over seeds{brackets}.", ""]
        lines += [*summary_table(experiment, document), "", *_legend(document)]
    if experiment.by_part:
        lines += [f"`{experiment.by_part}`, mean ± standard deviation over seeds.", ""]
        lines += [*part_table(experiment, document), "", *_legend(document)]
    if document.get("missing"):
        lines += [f"Not run yet: {', '.join(document['missing'])}.", ""]
    if rows_to_run := _jobs_without_rows(experiment, document):
        lines += [f"Declared, but not run yet: {', '.join(rows_to_run)}.", ""]
    if experiment.figure is not None:
        lines += [f"![{experiment.title}]({experiment.name}.png)", ""]
    for name in pictures:
        lines += [f"![{name}]({experiment.name}-{name}.png)", ""]
    lines += glossary_table(experiment, document)
    table = [*_all_numbers(experiment, document), "", *_legend(document)]
    counts = sorted({len(row["per_seed"]) for row in document["rows"]})
    seeds = f"{' or '.join(str(count) for count in counts)} seed{'' if counts == [1] else 's'}"
    source = f"{document['hardware']}, revision {document['revision']}, {document['date']}"
    versions = f" {document['versions_note']}" if "versions_note" in document else ""
    table += [f"{seeds}, none dropped; {source}.{versions} Command:", ""]
    table += ["```", document["command"], "```", ""]
    if not (experiment.columns or experiment.glossary or experiment.by_part):
        return Page("\n".join([*lines, *table]), "")
    return Page("\n".join([*lines, ""]), "\n".join(["## All numbers", "", *table]))


def summary_table(experiment: Experiment, document: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table with one line per job and a column per measured metric.

    A last column has the number of seeds where jobs differ in it.
    """
    rows = [row for row in split_parts(experiment, document["rows"]) if not row["part"]]
    metrics = [m for m in experiment.columns if any(row["metric"] == m for row in rows)]
    seeds = {(row["data"], row["model"], row["variant"]): str(len(row["per_seed"])) for row in rows}
    marks = paper_marks(document)
    cells = {
        (row["data"], row["model"], row["variant"], row["metric"]): _cell(row, marks)
        for row in rows
    }
    show_seeds = len(set(seeds.values())) > 1
    header = ["data", "model", "variant", *metrics, *(["seeds"] if show_seeds else [])]
    lines = []
    for job, count in seeds.items():
        values = [cells.get((*job, metric), "") for metric in metrics]
        lines.append([*job, *values, *([count] if show_seeds else [])])
    return _table(header, lines)


def comparison_table(experiment: Experiment, document: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table with a column per variant of `compared`, and the paper's.

    One line per data, model, rest of the variant and metric; "not run" where a number is missing.
    """
    cells: dict[tuple[str, str, str, str], dict[str, str]] = {}
    for row in split_parts(experiment, document["rows"]):
        words = next((w for w in experiment.compared if row["variant"].endswith(w)), None)
        if words is None or row["part"] or row["metric"] not in experiment.columns:
            continue
        rest = row["variant"].removesuffix(words).strip()
        line = cells.setdefault((row["data"], row["model"], rest, row["metric"]), {})
        line[words] = f"{row['mean']:.4g} ± {_deviation(row['std'], 1)}"
        if "paper" in row:
            line["paper"] = f"{row['paper']:g}"
    order = sorted(cells, key=lambda key: experiment.columns.index(key[3]))
    groups = dict.fromkeys(key[:3] for key in cells)
    lines = [
        [
            *key,
            *(cells[key].get(w, "not run") for w in experiment.compared),
            cells[key].get("paper", ""),
        ]
        for group in groups
        for key in order
        if key[:3] == group
    ]
    return _table(("data", "model", "variant", "metric", *experiment.compared, "paper"), lines)


def part_table(experiment: Experiment, document: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table of `by_part`: a line per part, a column per job.

    The last line has the paper's numbers, if there are any.
    """
    cells: dict[str, dict[str, str]] = {}
    jobs: dict[str, str] = {}  # column -> the paper's number
    marks = paper_marks(document)
    for row in split_parts(experiment, document["rows"]):
        if row["metric"] != experiment.by_part or not row["part"]:
            continue
        column = " ".join(word for word in (row["model"], row["variant"]) if word)
        jobs[column] = _paper(row, marks) or jobs.get(column, "")
        value = f"{row['mean']:.3g} ± {_deviation(row['std'], 1)}"
        cells.setdefault(row["part"], {})[column] = value
    lines = [[part, *(line.get(column, "") for column in jobs)] for part, line in cells.items()]
    if any(jobs.values()):
        lines.append(["the paper's number", *jobs.values()])
    return _table(("", *jobs), lines)


def _jobs_without_rows(experiment: Experiment, document: Mapping[str, Any]) -> list[str]:
    """Return the names of declared jobs of which the document has no number and no mention."""
    present = {
        (row["data"], row["model"], row["variant"])
        for row in split_parts(experiment, document["rows"])
    }
    missing = document.get("missing", ())
    return [
        " ".join(word for word in (job.data, job.model, job.variant) if word)
        for job in experiment.jobs
        if (job.data, job.model, job.variant) not in present
        and not any(name.startswith(f"{job.key}-") for name in missing)
    ]


def glossary_table(experiment: Experiment, document: Mapping[str, Any]) -> list[str]:
    """Return the lines of a section that explains the words used on the page, if any."""
    rows = [row for row in document["rows"] if row["metric"] in experiment.shown]
    kinds = ("metric", "data", "model", "variant")
    words = {row[kind] for row in split_parts(experiment, rows) for kind in kinds}
    entries = [(f"`{word}`", text) for word, text in experiment.glossary.items() if word in words]
    return ["## Glossary", "", *_table(("", ""), entries), ""] if entries else []


def _all_numbers(experiment: Experiment, document: Mapping[str, Any]) -> list[str]:
    """Return the lines of the table of all shown metrics, one line per job, metric and part."""
    lines = [
        "| data | model | variant | metric | mean ± std over seeds | min … max | paper |",
        "|---|---|---|---|---|---|---|",
    ]
    marks = paper_marks(document)
    for row in document["rows"]:
        if row["metric"] in experiment.shown:
            values = sorted(row["per_seed"].values())
            extent = f"{values[0]:.4g} … {values[-1]:.4g}"
            paper = _paper(row, marks)
            lines.append(
                f"| {row['data']} | {row['model']} | {row['variant']} | {row['metric']} | "
                f"{row['mean']:.4g} ± {_deviation(row['std'], 2)} | {extent} | {paper} |"
            )
    return lines


def paper_marks(document: Mapping[str, Any]) -> dict[str, str]:
    """Return what a paper measured on instead of the row's data -> the mark of such numbers."""
    texts = dict.fromkeys(row["paper_differs"] for row in document["rows"] if _marked(row))
    return {text: str(number).translate(SUPERSCRIPT) for number, text in enumerate(texts, 1)}


def _marked(row: Mapping[str, Any]) -> bool:
    return "paper" in row and bool(row.get("paper_differs"))


def _legend(document: Mapping[str, Any]) -> list[str]:
    """Return the lines that explain the marks, none without marks."""
    lines = [f"- {mark} {text}." for text, mark in paper_marks(document).items()]
    return ["Marked numbers of the paper were measured on other data:", "", *lines, ""] * bool(
        lines
    )


def _paper(row: Mapping[str, Any], marks: Mapping[str, str]) -> str:
    """Return the paper's number, with a mark where it was measured on other data."""
    if "paper" not in row:
        return ""
    return f"{row['paper']:g}{marks[row['paper_differs']] if _marked(row) else ''}"


def _cell(row: Mapping[str, Any], marks: Mapping[str, str]) -> str:
    paper = f" ({_paper(row, marks)})" if "paper" in row else ""
    return f"{row['mean']:.4g} ± {_deviation(row['std'], 1)}{paper}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


def _deviation(value: float, digits: int) -> str:
    """Return a standard deviation with that many significant digits, large ones as integers."""
    return f"{value:.{digits}g}" if value < 10**digits - 0.5 else f"{value:.0f}"
