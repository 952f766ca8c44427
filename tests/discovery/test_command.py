"""`intervae discover`: edges, pictures and JSON from a .csv; wrong files and options in one sentence."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from intervae.cli import app
from intervae.errors import IntervaeError


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 200))
    c += a - b
    pd.DataFrame({"a": a, "c": c, "b": b, "town": np.where(c > 0, "east", "west")}).to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def call(*words: object) -> str:
    done = CliRunner().invoke(app, ["discover", *map(str, words)])
    if done.exception is not None:
        raise done.exception
    return done.output


def test_edges_of_chosen_columns_are_printed_and_drawn_with_their_confidence(table: Path) -> None:
    shown = call(table, "--method", "ges", "--columns", "a,b,c", "--bootstrap", "4", "--out", table.with_suffix(".svg"))
    assert "a -> c" in shown
    assert "b -> c" in shown
    assert "100%" in shown
    assert "100%" in table.with_suffix(".svg").read_text()


def test_json_holds_the_graph_its_assumptions_and_prior_knowledge_is_read(table: Path, tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text('{"forbidden": [["a", "c"], ["c", "a"]]}')
    options = ["--method", "dagma", "--columns", "a,b,c", "--knowledge", tmp_path / "known.json", "--set", "steps=200", "--set", "standardise=false"]
    found = json.loads(call(table, *options, "--json"))
    edges = {(edge["from"], edge["to"]) for edge in found["edges"]}
    assert edges
    assert not edges & {("a", "c"), ("c", "a")}
    assert "units" in found["notes"][0]


def test_an_edge_that_was_given_is_not_told_as_found(table: Path, tmp_path: Path) -> None:
    (tmp_path / "known.json").write_text('{"required": [["a", "b"]]}')
    options = [table, "--method", "ges", "--columns", "a,b,c", "--knowledge", tmp_path / "known.json"]
    shown = call(*options, "--bootstrap", "4")
    given = next(line for line in shown.splitlines() if line.startswith("a -> b "))
    assert given.split()[-1] == "given"
    assert "%" not in given
    assert "%" in shown.replace(given, "")
    assert [edge["to"] for edge in json.loads(call(*options, "--json"))["edges"] if edge.get("given")] == ["b"]


def test_a_cell_without_a_value_is_named_by_its_line(table: Path) -> None:
    lines = table.read_text().splitlines()
    lines[3] = lines[3].replace(lines[3].split(",")[1], "", 1)
    table.write_text("\n".join(lines))
    with pytest.raises(IntervaeError, match=r"t\.csv, line 4: 'c' has no value \(1 of 200 rows\); .*--columns"):
        call(table)
    call(table, "--columns", "a,b")


def test_wrong_input_gets_one_sentence(table: Path) -> None:
    for words, message in (
        ([table.with_name("no.csv")], "there is no such file"),
        ([table, "--method", "notear"], "did you mean 'notears'"),
        ([table, "--columns", "a,z"], "unknown column 'z'"),
        ([table, "--kind", "z=binary"], "unknown column of --kind 'z'"),
        ([table, "--out", "g.pdf"], "unknown format of --out '.pdf'"),
        ([table, "--method", "ges", "--set", "prise=1"], "did you mean 'price'"),
    ):
        with pytest.raises(IntervaeError, match=message):
            call(*words)
