"""Tables that people have, through `intervae train cmcl --data folder/`: one sentence and nothing written, or what docs/own-data.md says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from command import cell, few, intervae, refused, succeeded
from intervae.causal.graph import CausalGraph
from intervae.data import load_data
from intervae.data.columns import decide_columns
from intervae.errors import DataError
from intervae.models import create, load
from intervae.report.doubts import column_dependences, doubts
from intervae.report.findings import Findings

TINY = {
    "latents": 4,
    "embedding": 3,
    "channels": (4,),
    "posterior_widths": (4,),
    "prior_widths": (4,),
    "graph_widths": (4,),
    "epochs": 1,
    "batch_size": 8,
}
WORDS = {key: ",".join(map(str, value)) if isinstance(value, tuple) else str(value) for key, value in TINY.items()}
TRAIN = ["train", "cmcl", "--device", "cpu", "--no-pictures", *(word for key, value in WORDS.items() for word in ("--set", f"{key}={value}"))]
Spoil = Callable[[Path], Any]


def lines_of(folder: Path) -> list[str]:
    return (folder / "labels.csv").read_text().splitlines()


def write(folder: Path, lines: list[str]) -> None:
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")


def column(name: str, values: Callable[[int], object]) -> Spoil:
    """Add a column whose cell in row i is values(i)."""

    def add(folder: Path) -> None:
        lines = lines_of(folder)
        write(folder, [f"{lines[0]},{name}", *(f"{line},{values(i)}" for i, line in enumerate(lines[1:]))])

    return add


def without_images(folder: Path) -> None:
    for path in folder.glob("*.png"):
        path.unlink()


def without_table_columns(folder: Path) -> None:
    write(folder, [line.partition(",")[0] for line in lines_of(folder)])


def numbers(i: int) -> float:
    return float(np.random.default_rng(i).normal())


def twice(folder: Path) -> None:
    """A column that is 2 width + 1."""
    lines = lines_of(folder)
    write(folder, [f"{lines[0]},double", *(f"{line},{2 * float(line.rpartition(',')[2]) + 1}" for line in lines[1:])])


def total(folder: Path) -> None:
    """A column that is level - width, of which no pair is collinear."""
    lines = lines_of(folder)
    rows = [line.split(",") for line in lines[1:]]
    write(folder, [f"{lines[0]},total", *(f"{line},{float(row[1]) - float(row[2])}" for line, row in zip(lines[1:], rows, strict=True))])


def near(folder: Path) -> None:
    """A column that is level and a little noise: not refused, but a doubt in the report."""
    lines = lines_of(folder)
    write(folder, [f"{lines[0]},near", *(f"{line},{float(line.split(',')[1]) + 0.1 * numbers(i)}" for i, line in enumerate(lines[1:]))])


def many(folder: Path, categories: int, rows: int) -> None:
    """So many words, each in equally many rows, and so many pictures."""
    picture = (folder / "00.png").read_bytes()
    lines = ["file,width,street"]
    for i in range(rows):
        (folder / f"{i:04}.png").write_bytes(picture)
        lines.append(f"{i:04}.png,{numbers(i)},street{i % categories}")
    write(folder, lines)


REFUSED: dict[str, tuple[Spoil, tuple[str, ...]]] = {
    "a row without its image": (lambda f: (f / "07.png").unlink(), ("labels.csv, line 9", "'07.png' is not in the folder", "remove the row")),
    "no row has an image": (without_images, ("labels.csv, line 2", "'00.png' is not in the folder")),
    "names without their suffix": (cell(5, 0, "03"), ("labels.csv, line 5", "did you mean '03.png'?")),
    "a row without a name": (cell(5, 0, ""), ("labels.csv, line 5", "no file name")),
    "two rows for one image": (cell(5, 0, "00.png"), ("labels.csv, line 5", "already stands on line 2")),
    "an empty file": (lambda f: (f / "labels.csv").write_bytes(b""), ("nothing in it",)),
    "a header alone": (few(0), ("a header but no rows",)),
    "a single row": (few(1), ("labels.csv has a single row with an image and 79 images without a row", "4 rows are the least", "hundreds")),
    "three rows": (few(3), ("labels.csv has 3 rows with an image each and 77 images without a row", "4 rows are the least", "add rows")),
    "three rows, all alike": (lambda f: [column("site", lambda i: "A")(f), few(3)(f)], ("labels.csv has 3 rows", "4 rows are the least")),
    "a single row to train on": (
        column("split", lambda i: "train" if i == 0 else "validation" if i < 9 else "test"),
        ("80 samples leave a single one for the training split",),
    ),
    "fewer rows than a batch": (few(9), ("fewer than one batch of 8", "batch_size=")),
    "no table": (lambda f: (f / "labels.csv").unlink(), ("cmcl learns from labels, but this data has none",)),
    "names alone": (without_table_columns, ("cmcl learns from labels, but this data has none",)),
    "a constant column": (column("site", lambda i: "A"), ("column 'site' is 'A' in every row", "variables= (--variables)")),
    "a constant number": (column("dose", lambda i: "1" if i % 2 else "1.0"), ("column 'dose' is '1", "in every row")),
    "a column without any value": (column("dose", lambda i: ""), ("column 'dose' has no value in any row", "variables= (--variables)")),
    "a column of NaN": (column("dose", lambda i: "NaN"), ("column 'dose' has no value in any row",)),
    "some cells missing": (column("dose", lambda i: "" if i % 10 == 3 else numbers(i)), ("labels.csv, line 5", "'dose' has no value (8 of 80 rows)")),
    "some words missing": (column("site", lambda i: "n/a" if i == 6 else "ab"[i % 2]), ("labels.csv, line 8", "'site' has no value", "fill it in")),
    "an infinite number": (column("dose", lambda i: "inf" if i == 4 else numbers(i)), ("labels.csv, line 6", "'dose' is inf", "finite")),
    "a number too large": (column("dose", lambda i: "1e999" if i == 4 else numbers(i)), ("labels.csv, line 6", "'dose'", "finite")),
    "a word among numbers": (column("dose", lambda i: "high" if i == 4 else numbers(i)), ("line 6", "'dose' is 'high', which is not a number")),
    "numbers with a comma": (column("dose", lambda i: f'"{i},5"'), ("line 2", "'dose' is '0,5', a number with a decimal comma", "'0.5'")),
    "1000 categories": (lambda f: many(f, 1000, 2000), ("column 'street' has 1000 categories, more than 50", "leave it out")),
    "51 categories": (lambda f: many(f, 51, 204), ("column 'street' has 51 categories",)),
    "a column twice under one name": (column("width", numbers), ("'width' appears twice in the header",)),
    "a multiple of another column": (twice, ("column 'double' is a linear combination of 'width'; leave it out",)),
    "a sum of two others": (total, ("column 'total' is a linear combination of 'level', 'width'",)),
    "more columns than latents": (
        lambda f: [column(f"more{k}", lambda i, k=k: numbers(100 * k + i))(f) for k in range(1, 4)],
        ("the table has 5 columns, more than latents=4", "set latents=5 or more", "pairing=full one_each=false"),
    ),
    "a column called like a latent": (column("z1", numbers), ("the column 'z1' has the name of a latent; rename it",)),
    "a corrupt image": (lambda f: (f / "07.png").write_bytes((f / "07.png").read_bytes()[:60]), ("image '07.png' cannot be read",)),
    "an image that is none": (lambda f: (f / "07.png").write_bytes(b"hello"), ("'07.png'",)),
    "an empty image": (lambda f: (f / "07.png").write_bytes(b""), ("'07.png'", "empty")),
    "images of two sizes": (lambda f: Image.fromarray(np.zeros((8, 8), np.uint8)).save(f / "07.png"), ("images differ in size", "size= (--size)")),
    "a row with a cell too many": (cell(5, 2, "1,2"), ("labels.csv, line 5", "4 cells for 3 columns")),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_learned_from_is_refused_in_one_sentence(case: str, folder: Path, tmp_path: Path) -> None:
    spoil, words = REFUSED[case]
    spoil(folder)
    refused(intervae(*TRAIN, "--data", folder, "--out", tmp_path / "run"), 1, *words)
    assert not (tmp_path / "run").exists()


TAKEN: dict[str, tuple[Spoil, tuple[str, ...], tuple[str, ...]]] = {  # what is done, the notes, the variables
    "images without rows": (few(60), ("images: 20 not in labels.csv and ignored, such as '60.png'",), ("level", "width")),
    "an id for every row": (column("name", lambda i: f"n{i}"), ("column 'name': left out, text with 80 different values",), ("level", "width")),
    "1000 words in 80 rows": (column("text", lambda i: f"w{i * 7919 % 1000}"), ("column 'text': left out",), ("level", "width")),
    "words with some numbers": (
        column("grade", lambda i: ("low", "high", "3", "low")[i % 4]),
        ("column 'grade': text with 3 values: 3 = 0, high = 1, low = 2",),
        ("level", "width", "grade"),
    ),
    "a column without a name": (column("", numbers), ("labels: column 4 has no name and was left out",), ("level", "width")),
    "the same categories twice": (
        lambda f: [column(name, lambda i: "abc"[i % 3])(f) for name in ("site", "place")],
        ("column 'site': text with 3 values", "column 'place': text with 3 values"),
        ("level", "width", "site", "place"),
    ),
    "a column that nearly follows another": (near, ("columns: 'near' follows from 'level' (linear, R^2 above 0.999)",), ("level", "width", "near")),
    "markup in a name": (column('"<b>&""c"""', numbers), ("column '<b>&\"c\"': numbers",), ("level", "width", '<b>&"c"')),
    "only categories": (
        lambda f: write(f, ["file,site", *(f"{line.partition(',')[0]},{'abc'[i % 3]}" for i, line in enumerate(lines_of(f)[1:]))]),
        ("column 'site': text with 3 values: a = 0, b = 1, c = 2",),
        ("site",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TAKEN)
def test_what_is_taken_is_said(case: str, folder: Path, tmp_path: Path) -> None:
    spoil, notes, names = TAKEN[case]
    spoil(folder)
    done = succeeded(intervae(*TRAIN, "--data", folder, "--out", tmp_path / "run"))
    for note in notes:
        assert f"note: {note}" in done.out
    assert load(tmp_path / "run").spec.names == names


@pytest.mark.parametrize(
    ("case", "pair"), [("a column that nearly follows another", ("level", "near")), ("the same categories twice", ("site", "place"))]
)
def test_columns_that_follow_each_other_are_a_doubt_in_the_report(case: str, pair: tuple[str, str], folder: Path) -> None:
    TAKEN[case][0](folder)
    data = load_data(folder)
    graph = CausalGraph.from_edges(("z0", "z1", "z2", "z3", *data.names), [])
    found = Findings(graph, data.variables, (), None, 0, 0, 0.0, (58, 6, 16), 80, np.zeros(4), 0.2)
    said = {doubt.about: doubt for doubt in doubts(found, data, column_dependences(data)) if doubt.kind == "dependent columns"}
    assert f"{pair[0]} and {pair[1]} depend on each other" in said[pair].text
    assert set(said) <= {pair, ("level", "width"), ("width", "near")}  # level and width do so in every such folder


def test_a_value_that_only_the_test_split_has_is_refused_where_training_cannot_know_it(folder: Path, tmp_path: Path) -> None:
    """A column that varies, but not among the training images."""
    lines = lines_of(folder)
    rows = [f"{line},{'test' if i >= 60 else 'validation' if i >= 50 else 'train'},{0 if i < 60 else i}" for i, line in enumerate(lines[1:])]
    write(folder, [f"{lines[0]},split,late", *rows])
    refused(intervae(*TRAIN, "--data", folder, "--out", tmp_path / "run"), 1, "'late' is constant", "in the training split", "leave it out")


@pytest.mark.parametrize("case", ["three rows", "constant where rows are few"])
def test_images_without_rows_are_told_before_what_follows_from_them(case: str, folder: Path, tmp_path: Path) -> None:
    rows = {"three rows": 3, "constant where rows are few": 6}[case]
    few(rows)(folder)
    if rows > 3:
        column("site", lambda i: "A")(folder)
    done = intervae(*TRAIN, "--data", folder, "--out", tmp_path / "run")
    refused(done, 1, "4 rows are the least" if rows == 3 else "column 'site' is 'A' in every row")
    assert done.out == f"note: images: {80 - rows} not in labels.csv and ignored, such as '0{rows}.png'\n"


def test_a_thousand_categories_take_no_more_than_a_line(folder: Path, tmp_path: Path) -> None:
    many(folder, 1000, 2000)
    done = intervae(*TRAIN, "--data", folder, "--out", tmp_path / "run")
    refused(done, 1, "1000 categories")
    assert "... (1000 in all)" in done.out
    assert len(done.out.splitlines()) < 12
    assert max(map(len, done.out.splitlines())) < 300


def follow(labels: dict[str, Any], **options: Any) -> list[tuple[str, ...]]:
    """Which columns are said to follow from which: the names in the notes of an array."""
    n = len(next(iter(labels.values())))
    table = decide_columns({k: np.asarray(v) for k, v in labels.items()}, rows=n, where=str, **options)
    told = [note.partition("(linear")[0] for note in table.notes if note.startswith("columns: ")]
    return [tuple(note.split("'")[1::2]) for note in told]


def test_columns_that_rounding_alone_tells_apart_are_told_once_each() -> None:
    rng = np.random.default_rng(0)
    x, y, z = 10 * rng.normal(size=(3, 200))
    celsius = x.round(1)
    fahrenheit = (1.8 * x + 32).round(1)
    assert follow({"c": celsius, "y": y, "f": fahrenheit}) == [("f", "c")]
    assert follow({"x": x, "double": np.round(2 * x + 1)}) == [("double", "x")]
    assert follow({"x": x, "double": 2 * x + 1}) == [("double", "x")]  # those that cmcl refuses, for models that take them
    assert follow({"sum": (x + y).round(1), "x": x, "z": z, "y": y}) == [("y", "sum", "x")]
    assert follow({"c": celsius, "f": fahrenheit, "k": (x + 273.15).round(1), "y": y, "twice": (2 * y).round(1)}) == [
        ("f", "c"),
        ("k", "f"),
        ("twice", "y"),
    ]
    assert follow({"small": 0.1 * y, "x": x, "sum": x + 0.1 * y + 0.01 * z}) == [("sum", "small", "x")]
    assert follow({"c": celsius, "f": fahrenheit}, variables=["c"]) == []


def test_what_is_no_line_or_little_data_is_not_told_to_follow() -> None:
    rng = np.random.default_rng(0)
    x, y = 10 * rng.normal(size=(2, 200))
    assert follow({"x": x, "near": x + 0.5 * y, "cube": x**3, "sign": x > 0}) == []
    assert follow({"x": x, "copy": x.round().astype(int)}, kinds={"copy": "categorical"}) == []  # its codes are no quantity
    assert follow({"x": x, "tiny": 1e-200 * y}) == []
    assert follow({f"u{i}": column for i, column in enumerate(rng.normal(size=(20, 21)))}) == []  # anything explains anything


@pytest.mark.parametrize("name", ["pendulum", "flow", "cross-modal", "xray-like"])
def test_simulators_have_no_column_that_follows(name: str) -> None:
    """Their effects are noisy or curved; and what is simulated passes no such test."""
    data = load_data(name, samples=300)
    assert follow(dict(zip(data.names, data.train.labels.double().numpy().T, strict=True))) == []
    assert not any(note.startswith("columns: ") for note in data.notes)


def test_leaving_the_column_out_is_the_way_on(folder: Path, tmp_path: Path) -> None:
    for spoil in (twice, column("z1", numbers), column("site", lambda i: "A"), column("dose", lambda i: "")):
        spoil(folder)
    succeeded(intervae(*TRAIN, "--data", folder, "--variables", "level,width", "--out", tmp_path / "run"))
    assert load(tmp_path / "run").spec.names == ("level", "width")


def test_acting_on_what_causes_nothing_says_so(folder: Path, tmp_path: Path) -> None:
    """Where no column is linked, do() of one leaves the picture; do() of a latent does not."""
    succeeded(intervae(*TRAIN, "--set", "edge_threshold=0.999", "--data", folder, "--out", tmp_path / "run"))
    ask = ["intervene", tmp_path / "run", "--out", tmp_path / "strip.png", "--json", "--do"]
    assert load(tmp_path / "run").graph.edges == []
    idle, acted = (intervae(*ask, words) for words in ("level=1000", "z0=2"))
    assert json.loads(idle.out) == [{"variable": "picture", "change": 0.0, "changed": False}]
    assert idle.err == "note: level changes nothing that the picture shows, by the run's graph: what is drawn is its reconstruction.\n"
    assert json.loads(acted.out)[0]["changed"] is True
    assert not acted.err


def test_python_hears_the_same_sentences_with_its_own_words(folder: Path) -> None:
    column("dose", lambda i: "")(folder)
    with pytest.raises(DataError, match=r"column 'dose' has no value in any row.*variables= \(--variables\)"):
        load_data(folder)
    data = load_data(folder, variables=["level", "width"])
    model = create("cmcl", data, **TINY)
    data.train.labels[:, 1] = 2 * data.train.labels[:, 0]
    with pytest.raises(DataError, match="linear combination of 'level'"):
        model.fit(data)
