"""The Sachs table: read as stored; a missing or broken file is an error."""

from pathlib import Path

import numpy as np
import pytest

from intervae.data.readers.sachs import load_sachs
from intervae.errors import DataError, UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    (tmp_path / "sachs").mkdir()
    return tmp_path / "sachs" / "sachs.npz"


def test_columns_names_and_graph_are_read_as_stored(home: Path) -> None:
    cells = np.random.default_rng(0).normal(size=(60, 3))
    edges = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=np.uint8)
    np.savez(
        home,
        observational=cells,
        all_conditions=np.tile(cells, (2, 1)),
        names=np.array(["raf", "mek", "erk"]),
        dag17=edges,
        graph20=edges.T,
    )
    table = load_sachs()
    np.testing.assert_array_equal(table.columns, cells)
    assert [edge[:2] for edge in table.graph.edges] == [("raf", "mek"), ("mek", "erk")]
    assert len(load_sachs("all_conditions").columns) == 120
    assert [edge[:2] for edge in load_sachs(graph="graph20").graph.edges] == [
        ("mek", "raf"),
        ("erk", "mek"),
    ]


def test_a_missing_or_wrong_file_is_an_error(home: Path) -> None:
    with pytest.raises(DataError, match=r"no sachs.npz"):
        load_sachs()
    np.savez(home, observational=np.zeros((4, 2)))
    with pytest.raises(DataError, match="cannot be read as the Sachs table"):
        load_sachs()
    with pytest.raises(UsageError, match="observational, all_conditions"):
        load_sachs("some")
    with pytest.raises(UsageError, match="dag17, graph20"):
        load_sachs(graph="dag")


def test_the_real_table_has_853_cells_and_17_edges() -> None:
    try:
        table = load_sachs()
    except DataError:
        pytest.skip("INTERVAE_DATA names no folder with sachs/sachs.npz")
    assert table.columns.shape == (853, 11)
    assert len(table.graph.edges) == 17
    assert table.graph.is_acyclic
