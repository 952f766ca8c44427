"""A row of benchmarks/README.md, and the numbers of rows in the documents of results/*.json."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Value = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Row:
    """One line of the page.

    Arguments:
        what: the quantity with its unit.
        source: name of the file in results, without .json.
        ours: our number in its document; None if that run did not measure it.
        bar: what it is compared with, from the document or fixed.
        bar_name: the peer, or "limit" or "goal".
        how: how it was measured.
        more_is_better: what a ratio above 1 means; the ratio is always ours / bar or bar / ours,
            so that above 1 is better.
    """

    what: str
    source: str
    ours: Value
    bar: Value | float
    bar_name: str
    how: Value | str
    more_is_better: bool = False


def startup(case: str) -> Value:
    return lambda document: _only(document["now"]["rows"], case=case)["cpu_seconds"]


def startup_before(case: str) -> Value:
    return lambda document: _only(document["before"]["rows"], case=case)["cpu_seconds"]


def scale(variables: int, key: str, method: str = "independence") -> Value:
    """Mean over the seeds of a number of discovery_scale.json."""

    def mean(document: dict[str, Any]) -> float | None:
        rows = [
            row[key]
            for row in document["rows"]
            if row["variables"] == variables and row["method"] == method
        ]
        return sum(rows) / len(rows) if rows else None

    return mean


def learner(table: str, name: str, key: str) -> Value:
    def value(document: dict[str, Any]) -> float:
        return _only(_only(document["tables"], table=table)["learners"], learner=name)[key]

    return value


def case(key: str, **where: Any) -> Value:
    return lambda document: _only(document["cases"], **where)[key]


def stack(part: str, way: str = "stack") -> Value:
    """CPU seconds of a case of stacks.json."""

    def seconds(document: dict[str, Any]) -> float | None:
        rows = [row for row in document["rows"] if part in row["case"] and row["way"] == way]
        return rows[0]["seconds"] if rows else None

    return seconds


def stack_how(document: dict[str, Any]) -> str:
    row = document["rows"][0]
    return f"CPU seconds of `fit_seeds`, {row['seeds']} seeds, {row['epochs']} epochs, one thread"


def packed(case: str, key: str, where: str = "packed") -> Value:
    """Number of the largest data of packed.json."""
    return lambda document: document["cases"][-1][where][case][key]


def packed_how(what: str) -> Value:
    """How a row of packed.json was measured, with the size of the data."""

    def how(document: dict[str, Any]) -> str:
        largest = document["cases"][-1]
        size = f"{largest['pictures']:,} pictures of 64 x 64, {largest['gigabytes']:.1f} GB"
        return f"{what}; {size}"

    return how


def measured(key: str) -> Value:
    return lambda document: document["measured"][key]


def ranks_how(document: dict[str, Any]) -> str:
    m = document["measured"]
    return f"all terms of {m['epochs']} epochs, {m['ranks']} CPU ranks (gloo), unequal parts"


def killed_how(document: dict[str, Any]) -> str:
    m = document["measured"]
    apart = f"terms within {m['difference_to_no_kill']:.2g} of those without a kill"
    return f"epochs logged once; SIGKILL after epoch {m['killed_after_epoch']}; {apart}"


def grid_how(document: dict[str, Any]) -> str:
    m = document["measured"]
    kills = f"{m['killed']} processes killed, {m['resumed_from_a_checkpoint']} resumed"
    return f"{m['trainings']} trainings on local Ray, {m['workers']} workers, {kills}"


def _only(rows: list[dict[str, Any]], **where: Any) -> dict[str, Any]:
    """Return the first row with these entries; an empty one if there is none."""
    fits = (row for row in rows if all(row.get(k) == v for k, v in where.items()))
    return next(fits, dict.fromkeys(("cpu_seconds", "shd"))) if rows else {}


def seeds(variables: int, what: str) -> Value:
    """How a row of discovery_scale.json was measured, with the number of its seeds."""

    def how(document: dict[str, Any]) -> str:
        rows = [
            row
            for row in document["rows"]
            if row["variables"] == variables and row["method"] == "independence"
        ]
        over = f"mean of {len(rows)} seeds" if len(rows) > 1 else "one seed"
        revisions = ", ".join(sorted({row.get("revision", "unknown") for row in rows}))
        return f"{what}, {over}; random networks, 1,000 rows; revision {revisions}"

    return how
