"""results/README.md: every table, figure, experiment and file is listed, and every link exists."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from intervae.experiments import EXPERIMENTS
from intervae.experiments.published import PUBLISHED, STATES, Published
from intervae.experiments.results_index import pictures_of, results_index, shown_state
from scripted_experiment import scripted

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
ENTRIES = [entry for group in PUBLISHED.values() for entry in group]
# all that the papers' texts have; of the last two we have lecture slides
LABELS = {
    "CausalVAE": {*(f"Figure {i}" for i in range(1, 7)), "Table 1", "Appendix D"},
    "CT-VAE": {*(f"Figure {i}" for i in range(1, 7)), "Table 1", "Appendix"},
    "CMCL": {*(f"Figure {i}" for i in range(1, 8)), *(f"Table {i}" for i in range(1, 4))},
    "Causal-prior VAE": {f"Figure {i}" for i in range(1, 12)},
    "beta-VAE": {
        "Table of the slides",
        "Figure 6, left",
        "Figure 6, right",
        "Pictures of the slides",
    },
    "Ladder VAE": {
        "Figure 2",
        "Figure 3",
        "Figure 4, unnumbered",
        "Figure 5",
        "Figure 6",
        "Table of MNIST",
        "Table of Omniglot and NORB: Omniglot",
        "Table of Omniglot and NORB: NORB",
    },
}


def page() -> str:
    return (RESULTS / "README.md").read_text(encoding="utf-8")


def test_the_page_is_up_to_date() -> None:
    """Remade by `make inventory`."""
    assert page() == results_index(EXPERIMENTS, RESULTS)


def test_every_table_and_figure_of_the_papers_has_one_entry() -> None:
    declared = {
        paper.partition(" (")[0]: [entry.label for entry in group]
        for paper, group in PUBLISHED.items()
    }
    assert {paper: set(labels) for paper, labels in declared.items()} == LABELS
    assert all(len(set(labels)) == len(labels) for labels in declared.values())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.label}: {e.shows}"[:60])
def test_entries_name_experiments_files_and_reasons_that_exist(entry: Published) -> None:
    names = {form.name for e in EXPERIMENTS for form in (e, e.quick_form)}
    assert entry.state in STATES
    assert set(entry.experiments) <= names
    assert all((ROOT / link).is_file() for link in entry.links), entry.links
    if entry.state not in ("diagram", "missing"):
        assert entry.experiments
    if entry.state in ("missing", "ours, on other data"):
        assert entry.why


def test_every_experiment_and_every_file_is_listed() -> None:
    text = page()
    listed = set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE))
    assert {experiment.name for experiment in EXPERIMENTS} <= listed
    links = set(re.findall(r"\]\(([^)]+)\)", text))
    files = {path.name for path in RESULTS.iterdir()} - {"README.md"}
    assert files <= links
    for link in links:
        assert (RESULTS / link).is_file(), link


def test_states_are_those_of_the_files(tmp_path: Path) -> None:
    made = Published("Figure 1", "a thing", "ours", ("scripted",))
    lost = Published("Figure 2", "another", "missing", ("scripted",), why="no time")
    drawn = Published("Figure 3", "a sketch", "diagram", links=("docs/cmcl.md",))
    experiment = replace(scripted(1.0), pictures=("a",), quick=scripted(1.0).jobs)
    other = replace(experiment, name="other", title="Other")
    group = {"A paper": (made, lost, drawn)}
    assert shown_state(made, tmp_path) == "not run"
    text = results_index((experiment, other), tmp_path, group)
    assert "| Figure 1 | a thing | not run | `scripted` |  |  |" in text
    assert "| `scripted` | Scripted | a paper's | not run |  |  |  |" in text
    assert "| `other` | Other | ours | not run |  |  |  |" in text
    document = {"hardware": "a machine", "date": "2026-01-01"}
    for name in ("scripted", "scripted-quick"):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
        (tmp_path / f"{name}.md").write_text("")
    for name in ("scripted.png", "scripted-a.png", "scripted-b.png"):
        (tmp_path / name).write_bytes(b"")
    assert [path.name for path in pictures_of(experiment, tmp_path)] == [
        "scripted.png",
        "scripted-a.png",
    ]
    text = results_index((experiment, other), tmp_path, group)
    assert "| Figure 1 | a thing | ours | [scripted](scripted.md) |  |  |" in text
    assert "| Figure 2 | another | missing | [scripted](scripted.md) |  | no time |" in text
    assert "| Figure 3 | a sketch | diagram |  | [cmcl.md](../docs/cmcl.md) |  |" in text
    assert "[figure](scripted.png), [a](scripted-a.png)" in text
    assert "| `scripted-quick` | Scripted: the quick form | quick | [page]" in text
    assert "| ours | 1 |" in text
    assert "| not run | 0 |" in text
