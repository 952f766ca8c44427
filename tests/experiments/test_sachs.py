"""The Sachs experiment: rows, seeds and checks."""

import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

from intervae.discovery import METHODS
from intervae.errors import UsageError
from intervae.experiments.page import read_notes
from intervae.experiments.sachs import SACHS

# methods with random weights or random rows
RANDOM = ("notears-mlp", "dagma-mlp", "independence", "lagrangian")


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A small table instead of the real one: raf -> erk <- mek in logarithms."""
    logs = np.random.default_rng(0).normal(size=(400, 3))
    logs[:, 2] += logs[:, 0] - logs[:, 1]
    edges = np.array([[0, 0, 1], [0, 0, 1], [0, 0, 0]], dtype=np.uint8)
    (tmp_path / "sachs").mkdir()
    np.savez(
        tmp_path / "sachs" / "sachs.npz",
        observational=np.exp(logs),
        names=np.array(["raf", "mek", "erk"]),
        dag17=edges,
    )
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    return logs


def test_every_method_has_a_row_and_random_ones_five_seeds() -> None:
    assert {job.model for job in SACHS.jobs} == set(METHODS)
    for job in SACHS.jobs:
        assert (job.seeds or SACHS.seeds) == (5 if job.model in RANDOM else 1), job.key
        assert set(job.settings) <= set(inspect.signature(METHODS[job.model]).parameters), job.key


def test_a_job_scores_the_graph_of_logarithms(cells: np.ndarray, tmp_path: Path) -> None:
    ges = next(job for job in SACHS.jobs if job.model == "ges")
    ges.check()
    numbers = ges.run(0, "cpu", tmp_path)
    assert numbers["shd"] == 0
    assert numbers["tpr"] == 1
    assert numbers["edges"] == 2
    assert numbers["ambiguous"] == 0
    assert "raf" in (tmp_path / "graph.json").read_text()


def test_rows_of_missing_causal_learn_are_refused_first(
    cells: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("causallearn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "causallearn", None)
    jobs = [job for job in SACHS.jobs if job.model.startswith("causal-learn")]
    assert len(jobs) == 2
    for job in jobs:
        with pytest.raises(UsageError, match=r"pip install .*causal-learn"):
            job.check()


def test_no_number_is_quoted_from_memory() -> None:
    assert not any(job.paper for job in SACHS.jobs)
    assert "Published numbers on this table are not shown" in read_notes(SACHS)
