"""Ordered categories: how kinds= says them, their codes, JSON, descriptions, and every error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_folders import write_image_folder, write_rows

from command import intervae, refused, succeeded
from intervae.data import (
    Dataset,
    Spec,
    Variable,
    build_dataset,
    describe_columns,
    load_data,
    pack,
    reload,
)
from intervae.data.column_kinds import Columns, decide_columns
from intervae.errors import DataError, UsageError

SIZES = ("small", "medium", "large")
ORDER = "small < medium < large"
BANDS = ("<5", "5-10", ">10")


def decide(values: list[Any], kind: str, **options: Any) -> Columns:
    dtype = float if isinstance(values[0], float) else object
    table = {"x": np.array(values, dtype=dtype)}
    return decide_columns(
        table, rows=len(values), where=lambda row: f"row {row}", kinds={"x": kind}, **options
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """20 pictures with `number`, `size` (small, medium, large) and `grade` (1, 2, 5)."""
    path = tmp_path / "shirts"
    path.mkdir()
    write_image_folder(path)
    rows = [[f"{i}.png", i + 0.5, SIZES[i % 3], (1, 2, 5)[i // 2 % 3]] for i in range(20)]
    write_rows(path, [["file", "number", "size", "grade"], *rows])
    return path


# ---- what is read --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "kind", "codes", "categories"),
    [
        (["10", "2", "9", "2.0"], "ordinal", [2, 0, 1, 0], ("2", "9", "10")),
        ([5.0, 1.0, 2.0, 1.0], "ordinal", [2, 0, 1, 0], ("1", "2", "5")),
        ([5.0, np.nan, 2.0, 1.0], "ordinal", [2, np.nan, 1, 0], ("1", "2", "5")),
        (["0.5", "-1", "3", "-1"], "ordinal", [1, 0, 2, 0], ("-1", "0.5", "3")),
        (["1", "2", "3", "1.0"], "3 < 2.0 < 1", [2, 1, 0, 2], ("3", "2", "1")),
        (["large", "small", "medium", "small"], ORDER, [2, 0, 1, 0], SIZES),
        (["large", "small", "medium", ""], "small<medium<large", [2, 0, 1, np.nan], SIZES),
        ([">10", "<5", "5-10", "<5"], "<5 < 5-10 < >10", [2, 0, 1, 0], BANDS),
        (["1", "2", "3+", "1"], "1 < 2 < 3+", [0, 1, 2, 0], ("1", "2", "3+")),
    ],
)
def test_codes_follow_the_order(values, kind, codes, categories):
    columns = decide(values, kind)
    (variable,) = columns.variables
    assert (variable.kind, variable.ordered) == ("categorical", True)
    assert variable.categories == categories
    np.testing.assert_array_equal(columns.labels[:, 0], codes)
    shown = ", ".join(f"{word} = {code}" for code, word in enumerate(categories))
    assert columns.notes[0].text == f"column 'x': given in kinds: {shown}"


def test_other_columns_are_not_ordered():
    columns = decide(["b", "a", "c", "b", "a", "c"], "categorical")
    assert not columns.variables[0].ordered


def test_a_trained_model_reads_its_order_from_other_data(folder: Path):
    data = load_data(folder, kinds={"size": ORDER, "grade": "ordinal"})
    other = load_data(folder, like=data.spec, test=1.0)
    assert other.variables == data.variables
    rows = [int(row[0]) for row in other.test.labels]
    assert other.test.labels[:, 1].tolist() == [i % 3 for i in rows]
    assert other.test.labels[:, 2].tolist() == [i // 2 % 3 for i in rows]


def test_a_folder_is_read_and_reloaded_with_its_order(folder: Path):
    data = load_data(folder, kinds={"size": ORDER, "grade": "ordinal"})
    assert data.spec.variable("size").categories == SIZES
    assert data.spec.variable("grade").categories == ("1", "2", "5")
    assert [v.ordered for v in data.variables] == [False, True, True]
    again = reload(json.loads(json.dumps(data.source)))
    assert again.variables == data.variables


def test_arrays_store_the_order_in_kinds(tmp_path: Path):
    rng = np.random.default_rng(0)
    labels = np.array([[SIZES[i % 3], str(i % 4)] for i in range(20)])
    images = rng.integers(0, 256, (20, 4, 4), dtype=np.uint8)
    path = tmp_path / "mine.npz"
    np.savez(path, images=images, labels=labels, names=["size", "grade"], kinds=[ORDER, "ordinal"])
    assert [v.describe_values() for v in load_data(path).variables] == [ORDER, "0 < 1 < 2 < 3"]


def test_packed_data_know_their_order(folder: Path, tmp_path: Path):
    memory = load_data(folder, kinds={"size": ORDER})
    packed = pack(folder, tmp_path / "packed", kinds={"size": ORDER})
    assert packed.variables == memory.variables
    for kind in ("ordinal", ORDER, "small<medium<large"):
        assert load_data(tmp_path / "packed", kinds={"size": kind}).variables == memory.variables
    for kind, option in (
        ("categorical", "size=categorical"),
        ("large < medium < small", "'size=large < medium < small'"),
    ):
        with pytest.raises(UsageError, match=rf"was packed as {ORDER}; .* --kind {option}\."):
            load_data(tmp_path / "packed", kinds={"size": kind})
    with pytest.raises(UsageError, match=r"'number' .* was packed as continuous; .*=ordinal"):
        load_data(tmp_path / "packed", kinds={"number": "ordinal"})
    index = json.loads((tmp_path / "packed" / "packed.json").read_text())
    index["variables"][1]["ordered"] = "yes"
    (tmp_path / "packed" / "packed.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match="'size'"):
        load_data(tmp_path / "packed")


# ---- JSON and descriptions -----------------------------------------------------------------------
def test_json_keeps_the_order_and_older_json_has_none():
    spec = Spec((1, 4, 4), (Variable("size", "categorical", categories=SIZES, ordered=True),))
    stored = json.loads(json.dumps(spec.to_json()))
    assert stored["variables"][0]["ordered"] is True
    assert Spec.from_json(stored) == spec
    del stored["variables"][0]["ordered"]
    assert Spec.from_json(stored).variables[0].ordered is False


@pytest.mark.parametrize("kind", ["continuous", "binary"])
def test_only_categories_are_ordered(kind):
    with pytest.raises(DataError, match=f"'x' is {kind} and cannot be ordered; make it categor"):
        Variable("x", kind, ordered=True)


def described() -> Dataset:
    columns = decide([SIZES[i % 3] for i in range(60)], ORDER)
    images = np.zeros((60, 1, 2, 2), np.uint8)
    return build_dataset("d", images, columns.labels, columns.variables)


def test_descriptions_show_the_order():
    data = described()
    assert [row.values for row in describe_columns(data)] == [ORDER]
    assert "small &lt; medium &lt; large" in data._repr_html_()
    many = Variable("x", "categorical", high=8.0, ordered=True)
    assert many.describe_values() == "0 < 1 < 2 < 3 < 4 < 5 < ... (9 in all)"


# ---- errors --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "kind", "error", "message"),
    [
        (
            ["small", "large", "medium", "small"],
            "ordinal",
            DataError,
            "row 0: 'x' is 'small', a text, whose order must be written; pass the values (large, "
            'medium, small) from the lowest to the highest, as in kinds={"x": "a < b < c"} '
            '(--kind "x=a < b < c").',
        ),
        (["1", "2", "3+", "1"], "ordinal", DataError, "row 2: 'x' is '3+', a text, whose order"),
        (
            ["small", "large", "medium", "huge"],
            ORDER,
            DataError,
            "row 3: 'x' is 'huge', which the order 'small < medium < large' of column 'x' lacks; "
            "add it in kinds= (--kind), or correct the cell.",
        ),
        (["1", "2", "3", "4"], "1 < 2 < 3", DataError, "row 3: 'x' is '4', which the order"),
        (["a", "b", "c", "a"], "a < b", DataError, "row 2: 'x' is 'c', which the order 'a < b' of"),
        (
            ["small", "large", "medium", "small"],
            "tiny < small < medium < large",
            DataError,
            "the order 'tiny < small < medium < large' of column 'x' names 'tiny', which is in no "
            "row, so nothing can be learned about it; take it out of the order, or correct it.",
        ),
        (
            ["1", "2", "3"],
            "low < mid < high",
            DataError,
            'order them by size with kinds={"x": "ord',
        ),
        (["1", "2", "3", ""], "1 < 2 < 3 < 4", DataError, "names '4', which is in no row"),
        (
            ["small", "large", "medium", "small"],
            "small < medium < small < large",
            UsageError,
            "the order 'small < medium < small < large' of column 'x' names 'small' twice; give "
            "each class once.",
        ),
        (["1", "2", "3", "1"], "1 < 2 < 1.0 < 3", UsageError, "of column 'x' names '1' twice"),
        (
            ["small", "large", "medium", "small"],
            "small < < large",
            UsageError,
            "the order 'small < < large' of column 'x' has a class without a name; write it as in "
            "'a < b < c'.",
        ),
        (["a", "b", "c", "a"], "a < b < c <", UsageError, "has a class without a name"),
        (
            ["small", "large", "large", "small"],
            "small < large",
            DataError,
            "column 'x' has two values, large and small, so it is binary, not ordinal; pass "
            'kinds={"x": "binary"} (--kind x=binary).',
        ),
        (["2", "1", "2.0", "1"], "ordinal", DataError, "'x' has two values, 1 and 2, so it is bin"),
        (["a", "a", "a"], "a < b < c", DataError, "column 'x' is 'a' in every row"),
    ],
)
def test_an_order_that_does_not_fit_is_an_error(values, kind, error, message):
    with pytest.raises(error) as raised:
        decide(values, kind)
    assert message in str(raised.value)
    assert type(raised.value) is error


def test_an_unknown_kind_names_ordinal():
    with pytest.raises(UsageError, match="unknown kind for 'x' 'ordinale'; did you mean 'ordinal'"):
        decide(["1", "2", "3"], "ordinale")


# ---- command line --------------------------------------------------------------------------------
def test_pack_and_discover_take_the_order(folder: Path, tmp_path: Path):
    words = ["pack", folder, tmp_path / "packed", "--kind", f"size={ORDER}"]
    succeeded(intervae(*words, "--kind", "grade=ordinal"))
    data = load_data(tmp_path / "packed")
    assert [v.describe_values() for v in data.variables[1:]] == [ORDER, "1 < 2 < 5"]
    shown = intervae("pack", folder, tmp_path / "other", "--kind", "size=ordinal")
    refused(shown, 1, "labels.csv, line 2: 'size' is 'small', a text, whose order must be written")
    shown = intervae("pack", folder, tmp_path / "other", "--kind", "size=small<small")
    refused(shown, 2, "names 'small' twice")


def test_discover_takes_ordered_columns_of_a_table_as_categories(tmp_path: Path):
    rng = np.random.default_rng(0)
    table = tmp_path / "table.csv"
    rows = [f"{x:.3f},{SIZES[i % 3]},{i % 4}" for i, x in enumerate(rng.normal(size=80))]
    table.write_text("\n".join(["height,size,grade", *rows]) + "\n")
    words = ["discover", table, "--kind", "size=small<medium<large", "--kind", "grade=ordinal"]
    succeeded(intervae(*words, "--method", "ges-generalised"))
    refused(intervae(*words, "--method", "ges"), 1, "the categorical column 'size'")
