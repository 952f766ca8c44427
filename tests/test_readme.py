"""README and docs: their Python and commands run, on less data; links, files and defaults exist."""

from __future__ import annotations

import glob
import importlib.util
import re
import runpy
import shlex
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intervae as package
from command import SMALL, contents, intervae, make_folder, succeeded
from intervae import experiments
from intervae.cli.app import app
from intervae.data import datasets
from intervae.data.registry import DATASETS
from intervae.discovery import METHODS
from intervae.evaluation import METRICS
from intervae.experiments import EXPERIMENTS, Train
from intervae.models import MODELS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").glob("*.md")]
)
# examples run on 96 images of 16 x 16, with one epoch of a small network
TINY = {"channels": (8, 8), "hidden": 32, "batch_size": 16, "epochs": 1}
SMALLER_PYTHON = {
    'load_data("pendulum", size=64': 'load_data("pendulum", size=16, samples=96',
    'create("causal-vae", data': 'create("causal-vae", data, '
    + ", ".join(f"{key}={value}" for key, value in TINY.items()),
}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    # all blocks are matched, because the end of one looks like the start of the next
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", text_of(page), re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def commands(text: str) -> list[list[str]]:
    """Return the arguments of every line that calls intervae, continued lines joined."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    calls = [
        shlex.split(line, comments=True)
        for line in lines
        if re.match(r"\s*(\$\(BIN\)/)?intervae\s", line)
    ]
    return [words[1:] for words in calls]


def smaller(words: list[str]) -> list[str]:
    """Return the command on less data; only `train` and `tune` are changed."""
    if words[0] not in ("train", "tune"):
        return words
    if words[0] == "tune":
        words = ["2" if before == "--budget" else w for before, w in pairwise(["", *words])]
    less = ["--data-option", "samples=96"] if "pendulum" in words else []
    few_steps = [
        "--epochs",
        "1",
        "--no-evaluate",
        "--set",
        "batch_size=16",
        "--set",
        "channels=4,4",
    ]
    small = {
        "cmcl": few_steps,
        "deep-scm": few_steps,
        "ct-vae": [
            "--set",
            "epochs=1",
            "--set",
            "transition_epochs=1",
            "--no-evaluate",
            "--device",
            "cpu",
        ],
    }.get(words[1], SMALL)
    return [
        *(
            ("16" if before == "--size" else word)
            for before, word in zip(["", *words], words, strict=False)
        ),
        *less,
        *small,
    ]


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


# ---- Python -------------------------------------------------------------------------------------
def run_python(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run all Python of a page as one script; return its variables."""
    monkeypatch.chdir(folder)
    script = "\n".join(blocks(page, "python"))
    for old, new in SMALLER_PYTHON.items():
        script = script.replace(old, new)
    script = re.sub(r", epochs=1(?=,[^)]*\bepochs=)", "", script)  # the page has its own number
    (folder / "example.py").write_text(script, encoding="utf-8")
    before = [(registry, set(registry)) for registry in (MODELS, DATASETS, METRICS)]
    try:
        return runpy.run_path(str(folder / "example.py"))
    finally:
        for registry, names in before:
            for name in set(registry) - names:
                del registry[name]


def test_python_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = blocks(README, "python")
    assert [
        line for line in first.splitlines() if line and not line.startswith("import")
    ] == first.splitlines()[2:7]  # five lines
    assert all(old in first for old in SMALLER_PYTHON)
    variables = run_python(README, tmp_path, monkeypatch)
    assert variables["pictures"].shape == (8, 3, 16, 16)
    assert 0 <= variables["pictures"].min() <= variables["pictures"].max() <= 1
    model = package.load(tmp_path / "runs" / "pendulum")
    images = variables["data"].test.images[:8]
    assert torch.equal(
        model.counterfactual(images, do={"light": 100.0}), variables["pictures"]
    )  # later, elsewhere
    assert len(second.splitlines()) == 5


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != README and blocks(page, "python")], ids=ids
)
def test_python_of_the_docs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_python(page, tmp_path, monkeypatch)
    shown = capsys.readouterr().out
    for output in blocks(page, "text"):
        assert output in shown


def test_folder_of_the_docs_is_large_enough_to_train_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = run_python(ROOT / "docs" / "own-data.md", tmp_path, monkeypatch)
    assert variables["model"].settings.epochs == 1
    assert variables["pictures"].shape == (4, 1, 32, 32)
    model: Any = package.load(tmp_path / "runs" / "mine")
    assert model.latent_names == ("height", "brightness", "side")
    shown = intervae(  # with a note: one epoch does not paint it
        "intervene",
        tmp_path / "runs" / "mine",
        "--do",
        "side=right",
        "--out",
        tmp_path / "strip.png",
    )
    assert shown.code == 0
    assert re.search(r"^side +[-\d.]+ +right +[-\d.]+$", shown.out, re.MULTILINE)


# ---- commands -----------------------------------------------------------------------------------
def test_commands_of_the_readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one folder; `reproduce` has less data and one seed."""
    pendulum = next(
        experiment for experiment in EXPERIMENTS if experiment.name == "causalvae-pendulum"
    )
    job = Train("pendulum", "causal-vae", {"size": 16, "samples": 96}, TINY)
    monkeypatch.setattr(experiments, "EXPERIMENTS", (replace(pendulum, jobs=(job,), seeds=1),))
    monkeypatch.chdir(tmp_path)
    make_folder(tmp_path / "my_folder")
    lines = [words for block in blocks(README, "bash") for words in commands(block)]
    assert [words[0] for words in lines] == [
        "train",
        "evaluate",
        "graph",
        "intervene",
        "train",
        "reproduce",
    ]
    for words in lines:
        succeeded(intervae(*smaller(words)))
    expected = {
        "graph.svg",
        "strip.png",
        "runs/pendulum/figures/interventions.png",
        "runs/mine/model.safetensors",
        "my_results/causalvae-pendulum.json",
        "my_results/causalvae-pendulum.md",
    }
    assert expected <= set(contents(tmp_path))


def make_table(folder: Path, page: Path) -> None:
    """Write `table.csv`, and `known.json` as the page shows it."""
    rng = np.random.default_rng(0)
    age = rng.normal(size=200)
    dose = age + rng.normal(size=200)
    rows = np.column_stack([age, dose, age - dose + rng.normal(size=200)])
    np.savetxt(folder / "table.csv", rows, delimiter=",", header="age,dose,level", comments="")
    (known,) = re.findall(r"`known\.json`:\n\n```json\n(.*?)\n```", text_of(page), re.DOTALL)
    (folder / "known.json").write_text(known)


@pytest.mark.parametrize("page", [page for page in PAGES if page != README], ids=ids)
def test_commands_of_the_docs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one folder; of `reproduce` and a server only name and options are checked."""
    monkeypatch.chdir(tmp_path)
    lines = [
        words for block in [*blocks(page, "bash"), *blocks(page, "")] for words in commands(block)
    ]
    if any("my_folder/" in words for words in lines):
        make_folder(tmp_path / "my_folder")
    if any("table.csv" in words for words in lines):
        make_table(tmp_path, page)
    if any({"discs", "shapes"} & set(words) for words in lines):  # which the page draws
        run_python(page, tmp_path, monkeypatch)
    for line in lines:
        words = [name for word in line for name in sorted(glob.glob(word)) or [word]]
        if {"cars3d", "runs/cars"} & set(words):
            continue
        if words[0] == "reproduce":
            assert words[1] in {"all", *(experiment.name for experiment in EXPERIMENTS)}
        without_optuna = words[0] == "tune" and importlib.util.find_spec("optuna") is None
        if (
            without_optuna
            or words[0] == "reproduce"
            or (words[0] == "serve" and "--export" not in words)
        ):
            shown = intervae(words[0], "--help").out
            assert all(
                word.partition("=")[0] in shown for word in words if word.startswith("--")
            ), words
        else:
            done = intervae(*smaller(words))  # queries to a hardly trained run may have notes
            succeeded(
                done._replace(err="")
                if words[0] in ("intervene", "attribute", "tune") and done.err.startswith("note: ")
                else done
            )


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_on_a_page_exists(page: Path) -> None:
    names = {command.callback.__name__ for command in app.registered_commands if command.callback}
    assert set(re.findall(r"`intervae ([a-z]+)\b", text_of(page))) <= names


def test_make_demo_and_make_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in blocks(README, "bash")[0]
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("make test")
    monkeypatch.chdir(tmp_path)
    demo, serve = commands(makefile.replace("\t", ""))
    assert serve[0] == "serve"
    assert demo[demo.index("--out") + 1] == "runs/demo"
    assert "`runs/demo`" in text_of(README)
    # as many images as show every variable
    words = [word.replace("samples=96", "samples=800") for word in smaller(demo)]
    succeeded(intervae(*words))
    succeeded(intervae(*words, "--no-evaluate"))  # a second time as well
    assert {"model.safetensors", "config.json", "metrics.jsonl", "graph.json", "README.md"} <= set(
        contents(tmp_path / "runs" / "demo")
    )
    assert (tmp_path / "runs" / "demo" / "figures").is_dir()


# ---- links, files and defaults ------------------------------------------------------------------
@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_leads_to_a_file(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text_of(page)):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target


def headings(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them of its headings."""
    titles = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_to_a_section_leads_to_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text_of(page)):
        assert anchor in headings(page.parent / target if target else page), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_source_file_on_a_page_exists(page: Path) -> None:
    examples = {"models/your_paper.py"}
    for name in set(re.findall(r"`((?:\w+/)+\w+\.py)\b", text_of(page))) - examples:
        assert any((root / name).is_file() for root in (ROOT, ROOT / "src" / "intervae")), name


def test_generated_pages_are_up_to_date() -> None:
    """Remade by `make inventory`."""
    for page, text in runpy.run_path(str(ROOT / "docs" / "make_inventory.py"))["pages"]().items():
        assert page.read_text(encoding="utf-8") == text, page.name


def test_inventory_names_everything_registered() -> None:
    names = set(re.findall(r"^\| `([^`]+)` \|", text_of(ROOT / "docs" / "inventory.md"), re.M))
    experiment_names = {experiment.name for experiment in EXPERIMENTS}
    data_sets = {entry.name for entry in datasets()}
    assert names == {*MODELS, *data_sets, *METHODS, *METRICS, *experiment_names}


def test_defaults_in_the_docs_are_correct() -> None:
    """The table of departures in docs/causal-vae.md: setting, paper, default here."""
    table = re.findall(
        r"^\| `(\w+)` \| [^|]* \| ([^|]+?) \|",
        text_of(ROOT / "docs" / "causal-vae.md"),
        re.MULTILINE,
    )
    defaults = {field.name: field.default for field in fields(MODELS["causal-vae"].Settings)}
    assert {"prior_std", "absolute_error_weight"} <= {name for name, _ in table}
    for name, default in table:
        assert str(defaults[name]).lower().removesuffix(".0") == default, name
