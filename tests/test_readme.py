"""What the README and the docs say is true: their Python and their commands run as they stand, only smaller, and what they name is there."""

from __future__ import annotations

import re
import runpy
import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intervae as package
from command import SMALL, contents, intervae, make_folder, succeeded
from intervae import cli, experiments
from intervae.data import datasets
from intervae.discovery import METHODS
from intervae.evaluation import METRICS
from intervae.experiments import EXPERIMENTS, Train
from intervae.models import MODELS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").glob("*.md")])
# The one thing that is changed before an example runs: 96 pictures of 16 x 16 and one epoch of a small network.
TINY = {"channels": (8, 8), "hidden": 32, "batch_size": 16, "epochs": 1}
SMALLER_PYTHON = {
    'load_data("pendulum", size=64': 'load_data("pendulum", size=16, samples=96',
    'create("causal-vae", data': f'create("causal-vae", data, {", ".join(f"{key}={value}" for key, value in TINY.items())}',
}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)  # all of them, as the end of one looks like a beginning
    return [text for name, text in fenced if name == language]


def commands(text: str) -> list[list[str]]:
    """The words of every line that calls intervae; one that ends with a backslash goes on."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    found = [shlex.split(line, comments=True) for line in lines if re.match(r"\s*(\$\(BIN\)/)?intervae\s", line)]
    return [words[1:] for words in found]


def smaller(words: list[str]) -> list[str]:
    """The same command on less: only `train` is changed."""
    if words[0] != "train":
        return words
    less = ["--data-option", "samples=96"] if "pendulum" in words else []
    small = {
        "cmcl": ["--epochs", "1", "--no-pictures", "--set", "batch_size=16", "--set", "channels=4,4"],
        "ct-vae": ["--set", "epochs=1", "--set", "transition_epochs=1", "--no-pictures", "--device", "cpu"],
    }.get(words[1], SMALL)
    return [*(("16" if before == "--size" else word) for before, word in zip(["", *words], words, strict=False)), *less, *small]


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


# ---- Python ---------------------------------------------------------------------------------------------------------
def run_python(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run all Python of a page as one script; returns its variables."""
    monkeypatch.chdir(folder)
    script = "\n".join(blocks(page, "python"))
    for old, new in SMALLER_PYTHON.items():
        script = script.replace(old, new)
    (folder / "example.py").write_text(script, encoding="utf-8")
    return runpy.run_path(str(folder / "example.py"))


def test_the_python_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = blocks(README, "python")
    assert [line for line in first.splitlines() if line and not line.startswith("import")] == first.splitlines()[2:7]  # five lines
    assert all(old in first for old in SMALLER_PYTHON)
    made = run_python(README, tmp_path, monkeypatch)
    assert made["pictures"].shape == (8, 3, 16, 16)
    assert 0 <= made["pictures"].min() <= made["pictures"].max() <= 1
    kept = package.load(tmp_path / "runs" / "pendulum")
    images = made["data"].test.images[:8]
    assert torch.equal(kept.counterfactual(images, do={"light": 100.0}), made["pictures"])  # later, elsewhere
    assert len(second.splitlines()) == 5


@pytest.mark.parametrize("page", [page for page in PAGES if page != README and blocks(page, "python")], ids=ids)
def test_the_python_of_the_docs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run_python(page, tmp_path, monkeypatch)
    shown = capsys.readouterr().out
    for output in blocks(page, "text"):
        assert output in shown


def test_the_folder_of_the_docs_is_large_enough_to_train_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = run_python(ROOT / "docs" / "own-data.md", tmp_path, monkeypatch)
    assert made["model"].settings.epochs == 1
    assert made["pictures"].shape == (4, 1, 32, 32)
    kept: Any = package.load(tmp_path / "runs" / "mine")
    assert kept.latent_names == ("height", "brightness", "side")
    shown = succeeded(intervae("intervene", tmp_path / "runs" / "mine", "--do", "side=right", "--out", tmp_path / "strip.png")).out
    assert re.search(r"^side +[-\d.]+ +1$", shown, re.MULTILINE)


# ---- commands -------------------------------------------------------------------------------------------------------
def test_the_commands_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, in one folder; `reproduce` runs its own experiment on less data and one seed."""
    pendulum = next(experiment for experiment in EXPERIMENTS if experiment.name == "causalvae-pendulum")
    job = Train("pendulum", "causal-vae", {"size": 16, "samples": 96}, TINY)
    monkeypatch.setattr(experiments, "EXPERIMENTS", (replace(pendulum, jobs=(job,), seeds=1),))
    monkeypatch.chdir(tmp_path)
    make_folder(tmp_path / "my_folder")
    lines = [words for block in blocks(README, "bash") for words in commands(block)]
    assert [words[0] for words in lines] == ["train", "evaluate", "graph", "intervene", "train", "reproduce"]
    for words in lines:
        succeeded(intervae(*smaller(words)))
    made = set(contents(tmp_path))
    hoped = {"graph.svg", "strip.png", "runs/pendulum/figures/interventions.png", "runs/mine/model.safetensors"}
    assert hoped | {"my_results/causalvae-pendulum.json", "my_results/causalvae-pendulum.md"} <= made


def make_table(folder: Path, page: Path) -> None:
    """`table.csv` and the `known.json` that the page shows."""
    rng = np.random.default_rng(0)
    age = rng.normal(size=200)
    dose = age + rng.normal(size=200)
    rows = np.column_stack([age, dose, age - dose + rng.normal(size=200)])
    np.savetxt(folder / "table.csv", rows, delimiter=",", header="age,dose,level", comments="")
    (known,) = re.findall(r"`known\.json` holds `(\{.*?\})`", text_of(page))
    (folder / "known.json").write_text(known)


@pytest.mark.parametrize("page", [page for page in PAGES if page != README], ids=ids)
def test_the_commands_of_the_docs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In their order, in one folder with `my_folder`; of `reproduce` only the name and the options are checked, and published data are not there."""
    monkeypatch.chdir(tmp_path)
    lines = [words for block in [*blocks(page, "bash"), *blocks(page, "")] for words in commands(block)]
    if any("my_folder/" in words for words in lines):
        make_folder(tmp_path / "my_folder")
    if any("table.csv" in words for words in lines):
        make_table(tmp_path, page)
    if any("discs" in words for words in lines):
        run_python(page, tmp_path, monkeypatch)
    for words in lines:
        if {"cars3d", "runs/cars"} & set(words):
            continue
        if words[0] == "reproduce":
            assert words[1] in {experiment.name for experiment in EXPERIMENTS}
            shown = intervae("reproduce", "--help").out
            assert all(word.partition("=")[0] in shown for word in words if word.startswith("--")), words
        else:
            done = intervae(*smaller(words))  # after so short a training a query may have something to remark
            succeeded(done._replace(err="") if words[0] in ("intervene", "attribute") and done.err.startswith("note: ") else done)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    names = {command.callback.__name__ for command in cli.app.registered_commands if command.callback}
    assert set(re.findall(r"`intervae ([a-z]+)\b", text_of(page))) <= names


def test_the_two_commands_on_a_bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in blocks(README, "bash")[0]
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("make test")
    monkeypatch.chdir(tmp_path)
    (demo,) = commands(makefile.replace("\t", ""))
    assert demo[demo.index("--out") + 1] == "runs/demo"
    assert "`runs/demo`" in text_of(README)
    succeeded(intervae(*smaller(demo)))
    succeeded(intervae(*smaller(demo), "--no-pictures"))  # a second time as well
    assert {"model.safetensors", "config.json", "metrics.jsonl", "graph.json", "README.md"} <= set(contents(tmp_path / "runs" / "demo"))
    assert (tmp_path / "runs" / "demo" / "figures").is_dir()


# ---- what is named is there -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text_of(page)):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_source_file_that_a_page_names_is_there(page: Path) -> None:
    made_up = {"models/your_paper.py"}
    for name in set(re.findall(r"`((?:\w+/)+\w+\.py)\b", text_of(page))) - made_up:
        assert any((root / name).is_file() for root in (ROOT, ROOT / "src" / "intervae")), name


def row(name: str) -> set[str]:
    """The words in code marks of one row of the README's table."""
    line = next(line for line in text_of(README).splitlines() if line.startswith(f"| {name} |"))
    return set(re.findall(r"`([^`]+)`", line))


def test_the_table_of_what_there_is_names_all_of_it_and_nothing_else() -> None:
    assert row("models with causes") | row("models to compare with") == set(MODELS)
    assert row("data") - {".npz", ".h5", "Dataset"} == {entry.name for entry in datasets()}
    assert row("graph from labels") == set(METHODS)
    assert row("metrics") == set(METRICS)
    assert row("experiments") == {experiment.name for experiment in EXPERIMENTS}


def test_the_defaults_that_the_docs_tell_are_the_defaults() -> None:
    """The table of departures in docs/causal-vae.md: setting, paper, default here."""
    table = re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]+?) \|", text_of(ROOT / "docs" / "causal-vae.md"), re.MULTILINE)
    defaults = {field.name: field.default for field in fields(MODELS["causal-vae"].Settings)}
    assert {"prior_std", "sharpness"} <= {name for name, _ in table}
    for name, told in table:
        assert str(defaults[name]).lower().removesuffix(".0") == told, name
