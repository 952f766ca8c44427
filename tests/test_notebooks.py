"""The notebooks of the tutorials run, on less data and for an epoch; they have stored outputs."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from intervae.models import MODELS

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SMALLER = {  # pattern -> replacement
    r"samples=\d+": "samples=160",
    r"\b((?:transition_|refit_)?epochs)=\d+": r"\1=1",
    r'"epochs": \d+': '"epochs": 1',
    r"range\(3\)": "range(2)",
}


def cells(notebook: Path, kind: str) -> list[dict[str, Any]]:
    parsed = json.loads(notebook.read_text(encoding="utf-8"))
    return [cell for cell in parsed["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::UserWarning")  # hardly trained models
def test_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    script = "\n".join("".join(cell["source"]) for cell in cells(notebook, "code"))
    for pattern, replacement in SMALLER.items():
        script = re.sub(pattern, replacement, script)
    (tmp_path / "notebook.py").write_text(script, encoding="utf-8")
    names = set(MODELS)
    try:
        runpy.run_path(str(tmp_path / "notebook.py"))
    finally:
        for name in set(MODELS) - names:
            del MODELS[name]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_shows_its_outputs(notebook: Path) -> None:
    """Made by `jupyter execute --inplace docs/tutorials/*.ipynb`."""
    code = cells(notebook, "code")
    assert all(cell["execution_count"] for cell in code)
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_of_a_notebook_lead_to_files(notebook: Path) -> None:
    text = "\n".join("".join(cell["source"]) for cell in cells(notebook, "markdown"))
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        assert (FOLDER / target).exists(), target
