"""Models, data sets and metrics of other packages: registered in Python, or by entry points."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import intervae
from intervae.errors import RunError, UsageError
from intervae.models import MODELS, Model
from intervae.models.beta_vae import BetaVAE
from intervae.registry import PluginWarning, Registry

# The package of docs/own-model.md: one model, one data set, one metric.
PAGE = (Path(__file__).parents[1] / "docs" / "own-model.md").read_text(encoding="utf-8")
PACKAGE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
ENTRY_POINTS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]
ENTRY_POINTS = ENTRY_POINTS.replace("project.entry-points.", "").replace('"', "")


def write_package(folder: Path, name: str, source: str, entry_points: str) -> None:
    """Write a module and the dist-info of an installed package that declares it."""
    (folder / f"{name}.py").write_text(textwrap.dedent(source))
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def command(tmp_path: Path) -> Any:
    """`command(*words)`: the command line, with the packages of `tmp_path`/site installed."""
    site = tmp_path / "site"
    site.mkdir()
    path = os.pathsep.join([str(site), str(Path(intervae.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "intervae", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )

    run.site = site  # type: ignore[attr-defined]
    return run


def test_a_package_adds_a_model_data_and_a_metric_to_the_command_line(
    command: Any, tmp_path: Path
) -> None:
    write_package(command.site, "mean_colour", PACKAGE, ENTRY_POINTS)
    for words, expected in ((("models",), "mean-colour"), (("datasets",), "greys")):
        done = command(*words)
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout
        assert "causal-vae" in done.stdout or "pendulum" in done.stdout
    done = command("train", "mean-colour", "--data", "greys", "--out", "run", "--set", "epochs=1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "model.safetensors").is_file()
    done = command("evaluate", "run", "--json")
    assert done.returncode == 0, done.stderr
    assert "test_images" in done.stdout
    assert "reconstruction" in done.stdout
    script = "import intervae; print(repr(intervae.load('run')))"
    loaded = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(command.site), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert loaded.stdout.startswith("mean-colour: Mean colour of each channel"), loaded.stderr


def test_the_common_checks_pass_for_the_model_of_another_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from intervae.testing import check_model

    (tmp_path / "mean_colour.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import mean_colour  # type: ignore[import-not-found]

    passed = check_model(mean_colour.MeanColour)
    assert len(passed) > 10
    sys.modules.pop("mean_colour")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("import not_installed_anywhere", "ModuleNotFoundError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("Broken = 7", "UsageError: 7 is not a subclass"),
        ("from intervae.models import VAE as Broken", "has the name 'vae', not 'broken'"),
        ("", "AttributeError"),
    ],
)
def test_a_broken_package_is_left_out_with_one_sentence(
    source: str, reason: str, command: Any
) -> None:
    write_package(
        command.site,
        "broken_package",
        source,
        "[intervae.models]\nbroken = broken_package:Broken\n",
    )
    done = command("models")
    assert done.returncode == 0
    assert "causal-vae" in done.stdout
    assert "broken" not in done.stdout
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("note: the model 'broken' of the package 'broken_package' is left out")
    assert reason in line


def test_help_loads_no_plugins(command: Any) -> None:
    write_package(
        command.site, "slow", "raise SystemExit('loaded')", "[intervae.models]\nslow = slow:X\n"
    )
    done = command("--help")
    assert done.returncode == 0
    assert done.stderr == ""


# ---- in Python ----------------------------------------------------------------------------------
@dataclass(frozen=True)
class _Settings:
    latents: int = 3


class Unregistered(BetaVAE):
    name, title = "unregistered", "A model that no registry knows"


def test_an_unregistered_model_is_loaded_by_its_class(make_data: Any, tmp_path: Path) -> None:
    data = make_data()
    model = Unregistered(data.spec, latents=3, channels=(8, 8))
    model.save(tmp_path / "run")
    with pytest.raises(RunError, match="'unregistered', which is not registered; load it with"):
        intervae.load(tmp_path / "run")
    loaded = intervae.load(tmp_path / "run", model=Unregistered)
    assert type(loaded) is Unregistered
    assert torch.equal(loaded.encode(data.test.images), model.encode(data.test.images))
    with pytest.raises(RunError, match="holds a model 'unregistered', not a 'beta-vae'"):
        intervae.load(tmp_path / "run", model=BetaVAE)


def test_register_model_makes_it_known_to_create_and_load(make_data: Any, tmp_path: Path) -> None:
    data = make_data()
    assert intervae.register_model(Unregistered) is Unregistered
    try:
        model = intervae.create("unregistered", data, latents=3, channels=(8, 8))
        model.save(tmp_path)
        assert type(intervae.load(tmp_path)) is Unregistered
        with pytest.raises(UsageError, match="a model called 'unregistered' is already registered"):
            intervae.register_model(Unregistered)
    finally:
        del MODELS["unregistered"]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": "half"}, "Half does not define build, decode"),
        ({"name": "half", "Settings": dict}, "must be a frozen dataclass"),
        ({}, "has no name"),
    ],
)
def test_an_incomplete_model_is_refused(attributes: dict[str, Any], message: str) -> None:
    complete = dict.fromkeys(Model.__abstractmethods__, property(lambda self: None))
    body = {"title": "Half a model", "Settings": _Settings, **attributes}
    body |= {} if "define" in message else complete
    with pytest.raises(UsageError, match=message):
        intervae.register_model(type("Half", (Model,), body))
    with pytest.raises(UsageError, match="not a subclass"):
        intervae.register_model(_Settings)  # type: ignore[arg-type]


def test_register_dataset_takes_a_loader(make_data: Any) -> None:
    from intervae.data.registry import DATASETS

    def load(*, seed: int = 0) -> Any:
        """Ramps of three variables."""
        return make_data(seed=seed)

    intervae.register_dataset("ramps", load)
    try:
        assert intervae.load_data("ramps", seed=3).name == "made"
        assert DATASETS["ramps"].description == "Ramps of three variables."
        with pytest.raises(UsageError, match="already registered"):
            intervae.register_dataset("ramps", load)
        with pytest.raises(UsageError, match="not a function"):
            intervae.register_dataset("seven", 7)  # type: ignore[arg-type]
    finally:
        del DATASETS["ramps"]


def test_entry_points_are_read_at_the_first_lookup_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import sys\nsys.loads = getattr(sys, 'loads', 0) + 1\nentry = 5\n"
    write_package(tmp_path, "counted", source, "[intervae.test]\ncounted = counted:entry\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "loads", 0, raising=False)
    registry: Registry[int] = Registry("number", "intervae.test", {"one": 1})
    assert registry["one"] == 1
    assert sys.loads == 0  # type: ignore[attr-defined]
    assert sorted(registry) == ["counted", "one"]
    assert registry["counted"] == 5
    assert "counted" in registry
    assert len(registry) == 2
    assert sys.loads == 1  # type: ignore[attr-defined]
    sys.modules.pop("counted")


def test_a_plugin_cannot_replace_what_is_built_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path, "greedy", "entry = 5\n", "[intervae.test]\none = greedy:entry\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry: Registry[int] = Registry("number", "intervae.test", {"one": 1})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert dict(registry) == {"one": 1}
    assert [w.category for w in caught] == [PluginWarning]
    assert "'one' is already registered" in str(caught[0].message)
    sys.modules.pop("greedy")
