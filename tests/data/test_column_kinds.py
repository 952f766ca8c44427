"""Kinds of columns: what the rule decides, how values are coded, and what is an error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from intervae.data import build_dataset, describe_columns
from intervae.data.column_kinds import decide_columns
from intervae.errors import DataError, UsageError

NAN = float("nan")


def decide(table: dict, **options):
    columns = {
        name: np.array(values)
        if isinstance(values[0], int | float)
        else np.array(values, dtype=object)
        for name, values in table.items()
    }
    rows = len(next(iter(table.values()))) if table else 0
    return decide_columns(columns, rows=rows, where=lambda row: f"row {row}", **options)


@pytest.mark.parametrize(
    ("values", "kind", "codes", "categories"),
    [
        (["1.5", "2", "-3e1", "2"], "continuous", [1.5, 2, -30, 2], ()),
        ([1, 2, 3, 1], "continuous", [1, 2, 3, 1], ()),
        (["3", "1", "2", "3"], "continuous", [3, 1, 2, 3], ()),
        (["0", "1", "1", "0"], "binary", [0, 1, 1, 0], ()),
        (["1", "1.0", "0", "0"], "binary", [1, 1, 0, 0], ()),
        ([True, False, True, False], "binary", [1, 0, 1, 0], ()),
        ([-1, 1, 1, -1], "binary", [0, 1, 1, 0], ("-1", "1")),
        (["40", "20", "20", "40"], "binary", [1, 0, 0, 1], ("20", "40")),
        (["yes", "No", "YES", "no"], "binary", [1, 0, 1, 0], ("no", "yes")),
        (["True", "false", "TRUE", "False"], "binary", [1, 0, 1, 0], ("false", "true")),
        (["male", "female", "male", "male"], "binary", [1, 0, 1, 1], ("female", "male")),
        (["b", "a", "C", "a", "b", "C"], "categorical", [1, 0, 2, 0, 1, 2], ("a", "b", "C")),
        (
            ["none", "mild", "severe", "none", "mild", "severe"],
            "categorical",
            [1, 0, 2, 1, 0, 2],
            ("mild", "none", "severe"),
        ),
    ],
)
def test_kind_is_inferred_and_values_are_coded(values, kind, codes, categories):
    columns = decide({"x": values})
    assert columns.variables[0].kind == kind
    assert columns.variables[0].categories == categories
    np.testing.assert_array_equal(columns.labels[:, 0], codes)


def test_kinds_override_the_rule():
    columns = decide(
        {"grade": ["10", "2", "2", "9"], "sex": ["0", "1", "0", "1"], "id": ["a", "b", "c", "d"]},
        kinds={"grade": "categorical", "sex": "continuous", "id": "categorical"},
    )
    assert [v.kind for v in columns.variables] == ["categorical", "continuous", "categorical"]
    assert columns.variables[0].categories == ("2", "9", "10")  # by number, not by letter
    np.testing.assert_array_equal(columns.labels[:, 0], [2, 0, 0, 1])
    assert columns.notes[0].text == "column 'grade': given in kinds: 2 = 0, 9 = 1, 10 = 2"


def test_an_id_is_left_out_with_a_note_unless_selected():
    table = {"id": ["p1", "p2", "p3", "p3"], "x": ["1", "2", "3", "4"]}
    columns = decide(table)
    assert [v.name for v in columns.variables] == ["x"]
    assert (
        columns.notes[0].text
        == "column 'id': left out, text with 3 different values in 4 rows, so an id or free text"
    )
    with pytest.raises(
        DataError,
        match=r"column 'id' is text with 3 different values.*kinds=\{\"id\": \"categorical\"\}",
    ):
        decide(table, variables=["id", "x"])


def test_variables_select_and_order_the_columns():
    table = {"a": ["1", "2", "3"], "b": ["4", "", "6"], "c": ["7", "8", "9"]}
    columns = decide(table, variables=["c", "a"])  # the missing value in b does not matter
    assert [v.name for v in columns.variables] == ["c", "a"]
    np.testing.assert_array_equal(columns.labels, [[7, 1], [8, 2], [9, 3]])
    assert decide(table, variables=[]).labels.shape == (3, 0)


@pytest.mark.parametrize("missing", ["", "  ", "NaN", "NA", "n/a", "null"])
def test_a_missing_value_is_nan_and_a_note_names_its_row_and_column(missing):
    columns = decide({"age": ["1", "2", missing, "4"]})
    np.testing.assert_array_equal(columns.labels[:, 0], [1, 2, np.nan, 4])
    assert [note.text for note in columns.notes] == [
        "column 'age': numbers",
        "row 2: 'age' has no value",
    ]


@pytest.mark.parametrize(
    ("values", "kind", "codes", "categories"),
    [
        (["yes", "", "No", "YES"], "binary", [1, NAN, 0, 1], ("no", "yes")),
        ([1.0, NAN, 0.0, NAN], "binary", [1, NAN, 0, NAN], ()),
        ([20.0, NAN, 40.0, NAN], "binary", [0, NAN, 1, NAN], ("20", "40")),
        ([3.0, NAN, 1.0, 2.0], "continuous", [3, NAN, 1, 2], ()),
        (["b", "na", "c", "a", "b", "a", "c"], "categorical", [1, NAN, 2, 0, 1, 0, 2], None),
        (["5", "", "", "", "", "7", "six and more"], "error", [], ()),
    ],
)
def test_kinds_are_inferred_from_the_cells_that_have_a_value(values, kind, codes, categories):
    if kind == "error":  # two of three values are numbers
        with pytest.raises(DataError, match="row 6: 'x' is 'six and more', which is not a number"):
            decide({"x": values})
        return
    columns = decide({"x": values})
    (variable,) = columns.variables
    assert variable.kind == kind
    assert variable.categories == (("a", "b", "c") if categories is None else categories)
    np.testing.assert_array_equal(columns.labels[:, 0], codes)


def test_words_with_missing_cells_may_be_an_id_or_constant():
    table = {"id": ["u", "", "v", "w", "", ""], "x": ["1", "2", "3", "4", "5", "6"]}
    columns = decide(table)  # three words in three rows that have one
    assert [v.name for v in columns.variables] == ["x"]
    assert "3 different values in 3 rows" in columns.notes[0].text
    with pytest.raises(DataError, match="'x' is '1' in every row that has a value, so nothing"):
        decide({"x": ["1", "", "1"]})


def test_numbers_that_are_infinite_are_an_error():
    for infinite in ("inf", "-Infinity", "1e300"):
        with pytest.raises(
            DataError, match=rf"row 1: 'age' is {infinite}; every label must be a finite number"
        ):
            decide({"age": ["1", infinite, "3", "4"]})


def test_a_text_in_a_column_of_numbers_names_its_row_and_value():
    with pytest.raises(
        DataError, match=r"row 2: 'age' is 'old', which is not a number.*categorical"
    ):
        decide({"age": ["1", "2", "old", "4"]})
    assert decide({"age": ["1", "2", "old", "4"]}, kinds={"age": "categorical"}).variables[
        0
    ].categories == ("1", "2", "4", "old")
    with pytest.raises(DataError, match=r"row 0: 'x' is '1_000', which is not a number"):
        decide({"x": ["1_000", "5", "7", "8"]})


@pytest.mark.parametrize("values", [["7", "7.0", "7"], ["a", "a", "a"], [2.5, 2.5, 2.5]])
def test_a_constant_column_is_an_error(values):
    with pytest.raises(
        DataError,
        match=r"column 'x' is '.*' in every row, so nothing can be learned from it; leave it out",
    ):
        decide({"x": values})


def test_a_kind_that_does_not_fit_is_an_error():
    with pytest.raises(
        DataError, match="column 'x' has 3 different values, so it cannot be binary"
    ):
        decide({"x": ["1", "2", "3"]}, kinds={"x": "binary"})
    with pytest.raises(DataError, match="row 0: 'x' is 'a', which is not a number"):
        decide({"x": ["a", "b", "a"]}, kinds={"x": "continuous"})


def test_wrong_names_are_an_error_with_suggestions():
    table = {"age": ["1", "2", "3"], "sex": ["m", "f", "m"]}
    with pytest.raises(UsageError, match="unknown variable 'agee'; did you mean 'age'"):
        decide(table, variables=["agee"])
    with pytest.raises(
        UsageError, match=r"unknown variable in kinds= \(--kind\) 'sexe'; did you mean 'sex'"
    ):
        decide(table, kinds={"sexe": "binary"})
    with pytest.raises(
        UsageError, match="unknown kind for 'sex' 'categoric'; did you mean 'categorical'"
    ):
        decide(table, kinds={"sex": "categoric"})
    with pytest.raises(UsageError, match=r"variables='age' must be a list of names"):
        decide(table, variables="age")
    with pytest.raises(UsageError, match="names one twice"):
        decide(table, variables=["age", "age"])


def test_describe_columns_shows_kind_values_and_reason():
    rng = np.random.default_rng(0)
    columns = decide(
        {
            "age": [str(x) for x in rng.permutation(60)],
            "sex": ["female", "male"] * 30,
            "stage": ["I", "II", "III"] * 20,
            "ill": ["0", "1"] * 30,
            "site": [f"s{i % 9}" for i in range(60)],
        },
        kinds={"stage": "categorical"},
    )
    dataset = build_dataset(
        "d", np.zeros((60, 1, 2, 2), np.uint8), columns.labels, columns.variables
    )
    rows = describe_columns(dataset)  # without notes the reason is unknown
    assert {row.reason for row in rows} == {"given by the data set"}
    shown = {row.name: row for row in describe_columns(replace(dataset, notes=columns.notes))}
    low, high = dataset.spec.variable("age").low, dataset.spec.variable("age").high
    assert (shown["age"].kind, shown["age"].values, shown["age"].reason) == (
        "continuous",
        f"{low:g} to {high:g}",
        "numbers",
    )
    assert (shown["sex"].kind, shown["sex"].values) == ("binary", "female, male")
    assert shown["sex"].reason == "two values: female = 0, male = 1"
    assert shown["stage"].reason == "given in kinds: I = 0, II = 1, III = 2"
    assert (shown["ill"].values, shown["ill"].reason) == ("0, 1", "two values")
    assert shown["site"].values == "s0, s1, s2, s3, s4, s5, ... (9 in all)"
