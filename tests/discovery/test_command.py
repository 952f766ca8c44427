"""`intervae discover`: edges, figures and JSON from a .csv; errors."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from intervae.cli.app import app
from intervae.errors import IntervaeError


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 200))
    c += a - b
    pd.DataFrame({"a": a, "c": c, "b": b, "town": np.where(c > 0, "east", "west")}).to_csv(
        tmp_path / "t.csv", index=False
    )
    return tmp_path / "t.csv"


def call(*words: object) -> str:
    done = CliRunner().invoke(app, ["discover", *map(str, words)])
    if done.exception is not None:
        raise done.exception
    return done.output


def test_edges_are_printed_and_drawn_with_confidence(table: Path) -> None:
    output = call(
        table,
        "--method",
        "ges",
        "--columns",
        "a,b,c",
        "--bootstrap",
        "4",
        "--out",
        table.with_suffix(".svg"),
    )
    assert "a -> c" in output
    assert "b -> c" in output
    assert "100%" in output
    assert "100%" in table.with_suffix(".svg").read_text()


def test_json_output_with_prior_knowledge(table: Path, tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text('{"forbidden": [["a", "c"], ["c", "a"]]}')
    options = [
        "--method",
        "dagma",
        "--columns",
        "a,b,c",
        "--knowledge",
        tmp_path / "known.json",
        "--set",
        "steps=200",
        "--set",
        "standardise=false",
    ]
    document = json.loads(call(table, *options, "--json"))
    edges = {(edge["from"], edge["to"]) for edge in document["edges"]}
    assert edges
    assert not edges & {("a", "c"), ("c", "a")}
    assert "units" in document["notes"][0]


def test_required_edges_are_marked_as_given(table: Path, tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text('{"required": [["a", "b"]]}')
    options = [
        table,
        "--method",
        "ges",
        "--columns",
        "a,b,c",
        "--knowledge",
        tmp_path / "known.json",
    ]
    output = call(*options, "--bootstrap", "4")
    line = next(line for line in output.splitlines() if line.startswith("a -> b "))
    assert line.split()[-1] == "given"
    assert "%" not in line
    assert "%" in output.replace(line, "")
    assert [
        edge["to"] for edge in json.loads(call(*options, "--json"))["edges"] if edge.get("given")
    ] == ["b"]


def test_missing_value_error_names_the_line(table: Path) -> None:
    lines = table.read_text().splitlines()
    lines[3] = lines[3].replace(lines[3].split(",")[1], "", 1)
    table.write_text("\n".join(lines))
    with pytest.raises(
        IntervaeError, match=r"t\.csv, line 4: 'c' has no value \(1 of 200 rows\); .*--columns"
    ):
        call(table)
    call(table, "--columns", "a,b")


def test_wrong_input_is_refused(table: Path) -> None:
    for words, message in (
        ([table.with_name("no.csv")], "there is no such file"),
        ([table, "--method", "notear"], "did you mean 'notears'"),
        ([table, "--columns", "a,z"], "unknown column 'z'"),
        ([table, "--kind", "z=binary"], "unknown column of --kind 'z'"),
        ([table, "--out", "g.pdf"], "unknown format of --out '.pdf'"),
        ([table, "--method", "ges", "--set", "penelty=1"], "did you mean 'penalty'"),
    ):
        with pytest.raises(IntervaeError, match=message):
            call(*words)


def test_folder_and_its_labels_csv_are_tables_without_the_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=200)
    frame = pd.DataFrame(
        {
            "file": [f"{i}.png" for i in range(200)],
            "a": a,
            "b": a + rng.uniform(-1, 1, 200),
            "side": np.where(a > 0, "left", "right"),
            "name": [f"patient {i}" for i in range(200)],
            "split": ["train"] * 150 + ["test"] * 50,
        }
    )
    frame.to_csv(tmp_path / "labels.csv", index=False, sep=";")
    words = ["--method", "ges", "--json"]
    results = []
    for table in (tmp_path, tmp_path / "labels.csv"):
        output = call(table, *words)
        results.append(json.loads(output[output.index("{") :]))
        assert "column 'name': left out" in output
    assert results[0]["variables"] == ["a", "b", "side"]
    assert results[0]["edges"] == results[1]["edges"]
    pairs = {frozenset((edge["from"], edge["to"])) for edge in results[0]["edges"]}
    assert frozenset("ab") in pairs
