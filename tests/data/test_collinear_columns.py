"""Notes on columns that are linear combinations of others, up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intervae.data import load_data
from intervae.data.column_kinds import decide_columns


def collinear(table: dict[str, Any], **options: Any) -> list[tuple[str, ...]]:
    """Return the names in each note: the collinear column, then those that explain it."""
    arrays = {name: np.asarray(values) for name, values in table.items()}
    rows = len(next(iter(arrays.values())))
    notes = decide_columns(arrays, rows=rows, where=str, **options).notes
    texts = [note.text for note in notes if note.kind == "collinear-column"]
    return [tuple(text.partition("(linear")[0].split("'")[1::2]) for text in texts]


def test_columns_that_differ_by_rounding_are_noted_once_each() -> None:
    rng = np.random.default_rng(0)
    x, y, z = 10 * rng.normal(size=(3, 200))
    celsius = x.round(1)
    fahrenheit = (1.8 * x + 32).round(1)
    assert collinear({"c": celsius, "y": y, "f": fahrenheit}) == [("f", "c")]
    assert collinear({"x": x, "double": np.round(2 * x + 1)}) == [("double", "x")]
    assert collinear({"x": x, "double": 2 * x + 1}) == [("double", "x")]
    assert collinear({"sum": (x + y).round(1), "x": x, "z": z, "y": y}) == [("y", "sum", "x")]
    five = {
        "c": celsius,
        "f": fahrenheit,
        "k": (x + 273.15).round(1),
        "y": y,
        "twice": (2 * y).round(1),
    }
    assert collinear(five) == [("f", "c"), ("k", "f"), ("twice", "y")]
    three = {"small": 0.1 * y, "x": x, "sum": x + 0.1 * y + 0.01 * z}
    assert collinear(three) == [("sum", "small", "x")]
    assert collinear({"c": celsius, "f": fahrenheit}, variables=["c"]) == []


def test_curved_or_noisy_relations_and_few_rows_are_not_noted() -> None:
    rng = np.random.default_rng(0)
    x, y = 10 * rng.normal(size=(2, 200))
    assert collinear({"x": x, "near": x + 0.5 * y, "cube": x**3, "sign": x > 0}) == []
    assert collinear({"x": x, "tiny": 1e-200 * y}) == []
    # codes of categories are no quantity
    copy = x.round().astype(int)
    assert collinear({"x": x, "copy": copy}, kinds={"copy": "categorical"}) == []
    # with as many columns as rows, any column is a combination of the others
    few_rows = {f"u{i}": column for i, column in enumerate(rng.normal(size=(20, 21)))}
    assert collinear(few_rows) == []


@pytest.mark.parametrize("name", ["pendulum", "flow", "cross-modal", "xray-like"])
def test_simulators_have_no_collinear_column(name: str) -> None:
    data = load_data(name, samples=300)
    table = dict(zip(data.names, data.train.labels.double().numpy().T, strict=True))
    assert collinear(table) == []
    assert not any(note.kind == "collinear-column" for note in data.notes)
