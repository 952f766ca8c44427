"""Unusual tables that are accepted, through `intervae train cmcl --data folder/`: their notes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from command import few, intervae, succeeded
from intervae.causal.graph import CausalGraph
from intervae.data import load_data
from intervae.models import load
from intervae.report.column_dependence import column_dependences
from intervae.report.diagnostics import diagnose
from intervae.report.findings import Findings
from table_changes import (
    TRAIN_CMCL,
    Change,
    add_column,
    add_near,
    random_number,
    read_lines,
    write_lines,
)


def add_equal_categories(folder: Path) -> None:
    for name in ("site", "place"):
        add_column(name, lambda i: "abc"[i % 3])(folder)


def write_only_categories(folder: Path) -> None:
    files = [line.partition(",")[0] for line in read_lines(folder)[1:]]
    rows = [f"{file},{'abc'[i % 3]}" for i, file in enumerate(files)]
    write_lines(folder, ["file,site", *rows])


# change, notes, names of the variables
ACCEPTED: dict[str, tuple[Change, tuple[str, ...], tuple[str, ...]]] = {
    "images without rows": (
        few(60),
        ("images: 20 not in labels.csv and ignored, such as '60.png'",),
        ("level", "width"),
    ),
    "an id for every row": (
        add_column("name", lambda i: f"n{i}"),
        ("column 'name': left out, text with 80 different values",),
        ("level", "width"),
    ),
    "1000 words in 80 rows": (
        add_column("text", lambda i: f"w{i * 7919 % 1000}"),
        ("column 'text': left out",),
        ("level", "width"),
    ),
    "words with some numbers": (
        add_column("grade", lambda i: ("low", "high", "3", "low")[i % 4]),
        ("column 'grade': text with 3 values: 3 = 0, high = 1, low = 2",),
        ("level", "width", "grade"),
    ),
    "a column without a name": (
        add_column("", random_number),
        ("labels: column 4 has no name and was left out",),
        ("level", "width"),
    ),
    "the same categories twice": (
        add_equal_categories,
        ("column 'site': text with 3 values", "column 'place': text with 3 values"),
        ("level", "width", "site", "place"),
    ),
    "a nearly collinear column": (
        add_near,
        ("columns: 'near' follows from 'level' (linear, R^2 above 0.999)",),
        ("level", "width", "near"),
    ),
    "markup in a name": (
        add_column('"<b>&""c"""', random_number),
        (),
        ("level", "width", '<b>&"c"'),
    ),
    "only categories": (
        write_only_categories,
        ("column 'site': text with 3 values: a = 0, b = 1, c = 2",),
        ("site",),
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_an_unusual_table_is_accepted_with_notes(case: str, folder: Path, tmp_path: Path) -> None:
    change, notes, names = ACCEPTED[case]
    change(folder)
    output = succeeded(intervae(*TRAIN_CMCL, "--data", folder, "--out", tmp_path / "run"))
    for note in notes:
        assert f"note: {note}" in output.out
    assert load(tmp_path / "run").spec.names == names


@pytest.mark.parametrize(
    ("change", "pair"), [(add_near, ("level", "near")), (add_equal_categories, ("site", "place"))]
)
def test_dependent_columns_are_a_diagnostic_of_the_report(
    change: Change, pair: tuple[str, str], folder: Path
) -> None:
    change(folder)
    data = load_data(folder)
    graph = CausalGraph.from_edges(("z0", "z1", "z2", "z3", *data.names), [])
    findings = Findings(
        graph, data.variables, (), None, 0, 0, 0.0, (58, 6, 16), 80, np.zeros(4), 0.2
    )
    diagnostics = {
        diagnostic.nodes: diagnostic
        for diagnostic in diagnose(findings, data, column_dependences(data))
        if diagnostic.kind == "dependent columns"
    }
    assert f"{pair[0]} and {pair[1]} depend on each other" in diagnostics[pair].text
    # level and width depend on each other in every such folder
    assert set(diagnostics) <= {pair, ("level", "width"), ("width", "near")}


def test_an_intervention_without_effect_is_noted(folder: Path, tmp_path: Path) -> None:
    """Without edges, do() of a column leaves the image; do() of a latent does not."""
    options = ["--set", "edge_threshold=0.999", "--data", folder, "--out", tmp_path / "run"]
    succeeded(intervae(*TRAIN_CMCL, *options))
    assert load(tmp_path / "run").graph.edges == []
    command = ["intervene", tmp_path / "run", "--out", tmp_path / "strip.png", "--json", "--do"]
    column, latent = intervae(*command, "level=1000"), intervae(*command, "z0=2")
    assert json.loads(column.out) == [{"variable": "picture", "change": 0.0, "changed": False}]
    note = "level has no effect on the image in the run's graph: the figure shows its"
    assert column.err == f"note: {note} reconstruction.\n"
    assert json.loads(latent.out)[0]["changed"] is True
    assert not latent.err
