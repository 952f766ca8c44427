"""Models on disk: contents of a run folder, and errors for damaged ones."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import intervae
from intervae.causal.graph import CausalGraph
from intervae.errors import RunError
from intervae.models import MODELS, environment
from intervae.models.environment import revision
from intervae.models.storage import load_model


@pytest.fixture(scope="module")
def trained(make_model: Any, pendulum: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    make_model("causal-vae", pendulum).fit(pendulum, seed=11, out=folder, tensorboard=False)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A run of one's own, to be damaged."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def refuse(folder: Path, words: str) -> None:
    with pytest.raises(RunError, match=words) as caught:
        load_model(folder)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert str(folder) in text


def change_config(folder: Path, change: Callable[[Any], Any]) -> None:
    config = json.loads((folder / "config.json").read_text())
    changed = change(config)
    (folder / "config.json").write_text(json.dumps(config if changed is None else changed))


# ---- contents -----------------------------------------------------------------------------------
def test_the_config_describes_the_model_and_its_training(trained: Path, pendulum: Any) -> None:
    config = json.loads((trained / "config.json").read_text())
    assert (config["model"], config["seed"], config["format"], config["intervae"]) == (
        "causal-vae",
        11,
        1,
        intervae.__version__,
    )
    assert config["data"] == pendulum.source
    assert config["data"]["name"] == "pendulum"
    assert config["versions"]["torch"] == torch.__version__
    assert config["versions"]["numpy"] == np.__version__
    assert set(config["versions"]) >= {"python", "intervae"}
    assert config["revision"] == revision()
    assert re.fullmatch(r"([0-9a-f]{12}\+?)?", config["revision"])
    assert config["settings"]["dims"] == 2
    assert (
        config["settings"]["learning_rate"] == MODELS["causal-vae"].Settings().learning_rate
    )  # defaults are spelt out, so that a later version cannot change them
    assert config["training"]["precision"] == "float32"
    assert config["seconds"] >= 0
    assert config["hardware"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", config["date"])
    assert [v["name"] for v in config["spec"]["variables"]] == list(pendulum.names)


def test_the_graph_is_written_for_other_programs(trained: Path) -> None:
    graph = CausalGraph.from_json((trained / "graph.json").read_text())
    assert graph == load_model(trained).graph
    assert [(a, b) for a, b, _ in graph.edges] == [
        (a, b) for a, b, _ in load_model(trained).graph.edges
    ]
    assert len(graph.edges) == 4


def test_the_card_lists_variables_ranges_graph_and_example(trained: Path, pendulum: Any) -> None:
    card = (trained / "README.md").read_text()
    assert card.startswith(f"# {MODELS['causal-vae'].title}")
    for variable in pendulum.variables:
        values = f"{variable.low:.4g} to {variable.high:.4g}"
        assert f"| {variable.name} | {variable.kind} | {variable.unit} | {values} |" in card
    for cause, effect, weight in load_model(trained).graph.edges:
        assert f"`{cause}` -> `{effect}` ({weight:.2f})" in card
    assert "seed 11" in card
    assert "`pendulum`" in card
    assert "3 x 16 x 16" in card
    code = card.split("```python")[1].split("```")[0]
    compile(code, "card", "exec")
    assert 'intervae.load(".")' in code
    first = pendulum.variables[0]
    assert (
        f'model.counterfactual(images, {{"{first.name}": {(first.low + first.high) / 2:.4g}}})'
        in code
    )


def test_the_example_of_the_card_names_latents_without_labels(
    make_model: Any, pendulum: Any, tmp_path: Path
) -> None:
    model = make_model("causal-vae-unsup", pendulum)
    model.save(tmp_path)
    code = (tmp_path / "README.md").read_text().split("```python")[1].split("```")[0]
    assert 'model.counterfactual(images, {"z0": 0})' in code
    assert torch.isfinite(model.counterfactual(pendulum.test.images[:2], {"z0": 0})).all()


def test_saving_alone_needs_no_training_data(
    make_model: Any, pendulum: Any, tmp_path: Path
) -> None:
    model = make_model("causal-vae", pendulum)
    model.save(tmp_path / "deep" / "folder")
    assert {path.name for path in (tmp_path / "deep" / "folder").iterdir()} == {
        "config.json",
        "model.safetensors",
        "graph.json",
        "README.md",
    }
    load_model(str(tmp_path / "deep" / "folder"))


def test_a_loaded_model_can_be_trained_further(trained: Path, pendulum: Any) -> None:
    model = load_model(trained)
    before = model.adjacency.detach().clone()
    model.fit(pendulum)
    assert not torch.equal(before, model.adjacency)


# ---- revision -----------------------------------------------------------------------------------
def git(folder: Path, *words: str) -> str:
    command = [
        "git",
        "-C",
        str(folder),
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@example.org",
        "-c",
        "commit.gpgsign=false",
        *words,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit that ignores the folder `build`."""
    if shutil.which("git") is None:
        pytest.skip("there is no git here")
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("build/\n")
    git(folder, "add", ".gitignore")
    git(folder, "commit", "-q", "-m", "Begin")
    return folder


def test_a_copy_in_a_checkout_takes_its_revision_from_the_variable(checkout: Path) -> None:
    """It must not take the checkout's, whose code it need not be."""
    source = Path(intervae.__file__).parent
    shutil.copytree(
        source,
        checkout / "build" / "src" / "intervae",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    script = """import intervae, os
from intervae.models.environment import revision
print(intervae.__file__)
print(repr(revision()))
os.environ.pop('INTERVAE_REVISION')
print(repr(revision()))"""
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout / "build" / "src"),
        "INTERVAE_REVISION": "0123456789ab",
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    where, from_variable, without = done.stdout.splitlines()
    assert Path(where).is_relative_to(checkout)
    assert from_variable == "'0123456789ab'"
    assert without == "''"


def test_the_revision_is_the_commit_and_a_plus_for_changes(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = checkout / "src" / "storage.py"
    code.parent.mkdir()
    code.write_text("first\n")
    monkeypatch.setattr(environment, "__file__", str(code))
    monkeypatch.setenv("INTERVAE_REVISION", "variable")
    assert revision() == "variable"  # not part of any commit yet
    git(checkout, "add", "src")
    git(checkout, "commit", "-q", "-m", "Add code")
    head = git(checkout, "rev-parse", "HEAD")[:12]
    assert revision() == head
    (checkout / "notes.txt").write_text("of no matter")
    assert revision() == head
    code.write_text("second\n")
    assert revision() == f"{head}+"
    monkeypatch.setenv("PATH", "")  # without git
    assert revision() == "variable"
    monkeypatch.delenv("INTERVAE_REVISION")
    assert revision() == ""


# ---- damaged runs -------------------------------------------------------------------------------
def test_no_folder_no_run(tmp_path: Path) -> None:
    refuse(tmp_path / "nowhere", "not a run folder")
    (tmp_path / "file").write_text("x")
    refuse(tmp_path / "file", "not a run folder")
    refuse(tmp_path, r"has no config\.json \(the run's settings\)")


def test_an_unfinished_run_says_how_to_continue(run: Path) -> None:
    (run / "model.safetensors").unlink()
    refuse(run, rf"has no model\.safetensors.*not finished: go on with `intervae resume {run}`")
    shutil.rmtree(run / "checkpoints")
    refuse(
        run, r"has no model\.safetensors \(the weights\); put the file back, or train it again\.$"
    )


@pytest.mark.parametrize("content", ["", "{", "model: causal-vae", "\x00"])
def test_a_config_that_is_not_json(content: str, run: Path) -> None:
    (run / "config.json").write_text(content)
    refuse(run, r"config\.json \(the run's settings\) cannot be read")


@pytest.mark.parametrize("content", [[], 3, None, "causal-vae", {}, {"model": "causal-vae"}])
def test_a_config_of_another_program(content: Any, run: Path) -> None:
    (run / "config.json").write_text(json.dumps(content))
    refuse(run, "is not the config of an intervae run")


@pytest.mark.parametrize("number", [0, 2, "1", None])
def test_another_format_number(number: Any, run: Path) -> None:
    change_config(run, lambda config: {**config, "format": number})
    refuse(run, rf"has format {number!r}; this version of intervae reads format 1")


@pytest.mark.parametrize(
    "model",
    ["other-vae", "os.system", "__import__('os').abort()", "../../evil"],
)
def test_an_unknown_model_is_named_and_never_executed(model: str, run: Path) -> None:
    change_config(run, lambda config: {**config, "model": model})
    refuse(run, "which is not registered; load it with .*registered: .*causal-vae")


def test_nothing_in_a_run_folder_is_executed(run: Path, tmp_path: Path) -> None:
    evil = tmp_path / "executed"
    code = f"__import__('pathlib').Path({str(evil)!r}).touch()"
    (run / "__init__.py").write_text(code)
    (run / "model.py").write_text(code)
    (run / "README.md").write_text(f"```python\n{code}\n```")
    (run / "graph.json").write_text(code)

    def poison(config: dict[str, Any]) -> None:
        config["command"] = config["revision"] = config["hardware"] = code
        config["data"] = {"name": code, "__class__": code}
        config["spec"]["variables"][0]["unit"] = code

    change_config(run, poison)
    load_model(run)
    assert not evil.exists()
    (run / "model.safetensors").write_bytes(
        b"cos\nsystem\n(S'touch " + str(evil).encode() + b"'\ntR."
    )  # what an unpickler would run
    refuse(run, "not a readable safetensors file")
    change_config(
        run, lambda config: {**config, "settings": {**config["settings"], "network": code}}
    )
    refuse(run, "is not a choice")
    assert not evil.exists()


def damages() -> dict[str, Callable[[dict[str, Any]], Any]]:
    """Ways to break a config that is valid JSON."""

    def at(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
        def change(config: dict[str, Any]) -> None:
            for key in path[:-1]:
                config = config[key]
            config[path[-1]] = copy.deepcopy(value)

        return change

    return {
        "unknown setting": at("settings", "dimz", value=3),
        "wrong type": at("settings", "dims", value="many"),
        "settings are a list": at("settings", value=[1]),
        "spec is a list": at("spec", value=[1]),
        "no image shape": lambda config: config["spec"].pop("image_shape") and None,
        "short image shape": at("spec", "image_shape", value=[3, 16]),
        "negative image shape": at("spec", "image_shape", value=[-3, 16, 16]),
        "text image shape": at("spec", "image_shape", value=["a", "b", "c"]),
        "endless image shape": at("spec", "image_shape", value=[3, 10**9, 10**9]),
        "variables are numbers": at("spec", "variables", value=[1, 2]),
        "unknown key of a variable": at("spec", "variables", 0, "colour", value="red"),
        "no variables": at("spec", "variables", value=[]),
        "no channels": at("settings", "channels", value=[]),
        "no dims": at("settings", "dims", value=0),
        "seed among the settings": at("settings", "spec", value=0),
    }


@pytest.mark.parametrize("damage", damages())
def test_a_config_that_describes_no_model(damage: str, run: Path) -> None:
    change_config(run, damages()[damage])
    refuse(run, "config.json")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda tensors: {key: value for key, value in tensors.items() if key != "adjacency"},
            "lacks the tensor 'adjacency'",
        ),
        (lambda tensors: {**tensors, "extra": torch.zeros(1)}, "unknown tensor 'extra'"),
        (
            lambda tensors: {**tensors, "adjacency": torch.zeros(3, 4)},
            r"'adjacency' is torch.float32 \(3, 4\) where the config says torch.float32 \(4, 4\)",
        ),
        (lambda tensors: {**tensors, "adjacency": tensors["adjacency"].double()}, "torch.float64"),
        (lambda tensors: {}, "lacks the tensor"),
    ],
)
def test_weights_of_another_model(change: Any, words: str, run: Path) -> None:
    save_file(change(load_file(run / "model.safetensors")), run / "model.safetensors")
    refuse(run, words)


def test_weights_and_config_that_do_not_belong_together(run: Path) -> None:
    change_config(run, lambda config: {**config, "settings": {**config["settings"], "dims": 3}})
    refuse(run, "do not belong together")


@pytest.mark.parametrize("keep", [0, 7, 100, 0.5, -1])
def test_weights_that_were_cut_off(keep: float, run: Path) -> None:
    whole = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(
        whole[: int(keep * len(whole)) if isinstance(keep, float) else keep]
    )
    refuse(run, "not a readable safetensors file")


def test_a_saved_model_survives_a_full_disk(
    make_model: Any, pendulum: Any, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (run / "model.safetensors").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="no space left"):
        make_model("causal-vae", pendulum).save(run)
    assert (run / "model.safetensors").read_bytes() == before
    load_model(run)
