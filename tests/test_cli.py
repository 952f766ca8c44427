"""The command line as people and programs meet it: the whole way as the installed program, and every command's small print in this process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import intervae as package
from command import ENVIRONMENT, PENDULUM, PROGRAM, SMALL, Output, contents, intervae, make_folder, program, refused, succeeded, train_tiny
from intervae import cli, evaluation, listing
from intervae.causal import CausalGraph
from intervae.data.simulators import Motion, Pendulum
from intervae.metrics.base import Measurement
from intervae.settings import build_settings

COMMANDS = ("models", "datasets", "metrics", "experiments", "train", "resume", "evaluate", "graph", "intervene", "reproduce")
EDGES = {("pendulum", "shadow_length"), ("pendulum", "shadow_position"), ("light", "shadow_length"), ("light", "shadow_position")}
RUN_FILES = {"README.md", "checkpoints/last.safetensors", "config.json", "graph.json", "metrics.jsonl", "model.safetensors"}
FIGURES = {"adjacency.png", "graph.png", "graph.svg", "interventions.png", "reconstructions.png", "sweep.png", "training.png", "variables.png"}


def size_of(path: Path) -> tuple[int, int]:
    with Image.open(path) as picture:
        picture.load()
        return picture.size


# ---- the installed program, from nothing to a picture ---------------------------------------------------------------
def test_the_installed_program_trains_is_interrupted_resumes_evaluates_draws_and_intervenes(tmp_path: Path) -> None:
    words = ["train", "causal-vae", *PENDULUM, *SMALL, "--epochs", "150", "--set", "patience=none", "--set", "tensorboard=no", "--out", "runs/tiny"]
    run = tmp_path / "runs" / "tiny"
    stopped = interrupt(words, run, cwd=tmp_path)
    assert refused(stopped, 1) == "error: interrupted; go on with `intervae resume runs/tiny` (fit with resume=True)."
    assert plain(stopped.out)
    refused(intervae("graph", run), 1, "no model.safetensors", f"go on with `intervae resume {run}`")
    assert not list(run.rglob("*.tmp"))

    trained = succeeded(program("resume", "runs/tiny", cwd=tmp_path))
    assert {name for name in contents(run) if not name.startswith("tensorboard/")} == RUN_FILES | {"evaluation.json"} | {
        f"figures/{f}" for f in FIGURES
    }
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, 151))
    assert plain(trained.out)
    assert "65/7/24 images of (3, 16, 16)" in stopped.out
    assert json.loads((run / "config.json").read_text())["command"].startswith("intervae train causal-vae --data pendulum")

    first = json.loads((run / "evaluation.json").read_text())
    evaluated = succeeded(program("evaluate", "runs/tiny", "--json", cwd=tmp_path))
    assert json.loads(evaluated.out) == first  # on the same machine, to the last bit
    assert {"r2_min", "reconstruction_pixel_mae", "counterfactual_pixel_mae", "identity_pixel_mae", "shd", "mic", "tic"} <= {
        m["metric"] for m in first
    }
    assert re.search(r"│ mic +│ +[\d.]+ │ +24 │ chance [\d.]+", trained.out)
    assert re.search(r"│ tic +│ +[\d.]+ │ +24 │ chance [\d.]+", trained.out)

    drawn = succeeded(program("graph", "runs/tiny", "--out", "graph.svg", cwd=tmp_path))
    assert drawn.out == "wrote graph.svg\n"
    assert "shadow_length" in "".join(ET.parse(tmp_path / "graph.svg").getroot().itertext())

    changed = succeeded(program("intervene", "runs/tiny", "--do", "light=100", "--index", 3, "--out", "strip.png", cwd=tmp_path))
    assert size_of(tmp_path / "strip.png")[0] > 2 * 16
    assert re.search(r"^light +[-\d.]+ +100$", changed.out, re.MULTILINE)
    assert plain(changed.out)


def interrupt(words: list[str], run: Path, cwd: Path) -> Output:
    """Start the program, press Ctrl-C once it has trained a few epochs, and wait for its end."""
    # The tests may run in the background, where Ctrl-C is ignored.
    listening = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", listening, PROGRAM, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=cwd) as process:
        log = run / "metrics.jsonl"
        while process.poll() is None and (not log.exists() or log.read_text().count("\n") < 3):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    return Output(process.returncode, out, err)


def plain(text: str) -> bool:
    """Neither colours, nor cursor movements, nor bells: as a file or a pipe should get it."""
    return not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)


@pytest.mark.parametrize("place", ["intervae.cli._load_data", "intervae.models.create", "intervae.training.loop.check_phase"])
def test_an_interruption_before_anything_was_written_says_so(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, press_ctrl_c)
    stopped = intervae("train", "vae", *PENDULUM, *SMALL, "--out", tmp_path / "run")
    assert refused(stopped, 1) == "error: interrupted before anything of the run was written; give the same command again."
    assert not (tmp_path / "run").exists()


def test_an_interruption_after_the_training_names_the_run_and_one_of_another_command_that_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "my run"
    with monkeypatch.context() as patched:
        patched.setattr("intervae.evaluation.evaluate", press_ctrl_c)
        refused(intervae("train", "vae", *PENDULUM, *SMALL, "--out", run), 1, f"interrupted; go on with `intervae resume '{run}'`")
        refused(intervae("resume", run), 1, f"interrupted; go on with `intervae resume '{run}'`")
        assert refused(intervae("evaluate", run), 1) == "error: interrupted; give the same command again."
    assert "nothing was left to do" in succeeded(intervae("resume", run)).out


def press_ctrl_c(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_the_package_can_be_run_as_a_module() -> None:
    shown = subprocess.run([sys.executable, "-m", "intervae", "--help"], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert "reproduce" in shown.stdout


# ---- help, quickly --------------------------------------------------------------------------------------------------
def test_help_comes_at_once_and_without_torch(tmp_path: Path) -> None:
    script = (
        "import sys; from intervae.cli import main; sys.argv = ['intervae', '--help']\n"
        "try: main()\n"
        "except SystemExit as end: code = end.code\n"
        "heavy = {'torch', 'numpy', 'pandas', 'scipy', 'sklearn', 'numba', 'matplotlib', 'networkx', 'PIL', 'h5py'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "sys.exit(code)"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, env=ENVIRONMENT, check=True).returncode == 0
    seconds = []
    for _ in range(3):  # the best of three, in time of the processor: other programs share this machine
        before = os.times()
        shown = succeeded(program("--help"))
        after = os.times()
        seconds.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(seconds) < 1
    for command in COMMANDS:
        assert re.search(rf"^│ {command} ", shown.out, re.MULTILINE)
    assert "--debug" in shown.out
    assert plain(shown.out)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_that_names_each_of_its_options(command: str) -> None:
    shown = succeeded(intervae(command, "--help"))
    function: Any = {known.callback.__name__: known.callback for known in cli.app.registered_commands if known.callback}[command]
    assert f"Usage: intervae {command}" in shown.out
    assert function.__doc__.split()[0] in shown.out
    named = {
        "folder": "--out",
        "path": "--out",
        "settings": "--set",
        "as_json": "--json",
        "run": "run",
        "model": "model",
        "name": "name",
        "experiment": "experiment",
    }
    for parameter in function.__annotations__:
        if parameter != "return":
            assert named.get(parameter, "--" + parameter.replace("_", "-")).lower() in shown.out.lower()


def test_no_words_at_all_show_the_help_and_count_as_wrong_usage() -> None:
    shown = intervae()
    assert shown.code == 2
    assert "Usage: intervae" in shown.out
    assert shown.err == ""


def test_version() -> None:
    assert succeeded(intervae("--version")).out == f"intervae {package.__version__}\n" == "intervae 0.1.0\n"
    assert "--version" in intervae("--help").out


# ---- lists ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("command", "hoped"),
    [
        ("models", set(package.MODELS)),
        ("datasets", {entry.name for entry in package.datasets()}),
        ("metrics", set(evaluation.METRICS)),
        ("experiments", {experiment.name for experiment in package.experiments.EXPERIMENTS}),
    ],
)
def test_lists_name_everything_for_people_and_for_programs(command: str, hoped: set[str]) -> None:
    people, programs = succeeded(intervae(command)).out, json.loads(succeeded(intervae(command, "--json")).out)
    assert {row["name"] for row in programs} == hoped
    for row in programs:
        assert row["about"].strip()
        line = next(line for line in people.splitlines() if line.split()[:1] == [row["name"]])
        assert row["about"].split()[0] in line
    assert plain(people)


def test_models_say_what_they_answer() -> None:
    rows = {row["name"]: row["answers"] for row in json.loads(intervae("models", "--json").out)}
    assert {"encode", "decode", "sample", "graph", "counterfactual"} <= set(rows["causal-vae"])
    assert not {"act", "attribute", "extrapolate"} & set(rows["causal-vae"])  # it knows neither actions nor time


@pytest.mark.parametrize("name", list(package.MODELS))
def test_every_setting_of_a_model_has_a_type_a_default_and_a_meaning(name: str) -> None:
    rows = json.loads(succeeded(intervae("models", name, "--json")).out)
    listed = next(row for row in json.loads(intervae("models", "--json").out) if row["name"] == name)["settings"]
    cls: Any = package.MODELS[name].Settings
    assert [row["name"] for row in rows] == [field.name for field in fields(cls)] == list(listed)
    assert {row["name"]: row["default"] for row in rows} == listed
    people = succeeded(intervae("models", name)).out
    for row in rows:
        assert row["type"]
        assert len(row["meaning"].split()) > 1, row["name"]
        assert row["name"] in people
    as_set = {field.name: listing.as_text(field.default) for field in fields(cls)}
    assert build_settings(cls, as_set) == cls()  # what is shown can be given to --set


def test_the_settings_that_are_shown() -> None:
    shown = {row["name"]: row for row in listing.settings("causal-vae")}
    assert shown["patience"]["type"] == "int or none"
    assert shown["decoder"]["type"] == "joint or per-concept"
    assert shown["dims"] == {"name": "dims", "type": "int", "default": 4, "meaning": "dims per concept [k]"}
    assert [listing.as_text(value) for value in (None, True, (32, 64), 0.03, "conv")] == ["none", "true", "32,64", "0.03", "conv"]
    refused(intervae("models", "causal-vea"), 2, "unknown model 'causal-vea'; did you mean 'causal-vae'")


# ---- train ----------------------------------------------------------------------------------------------------------
def test_a_run_goes_where_its_data_model_and_seed_say_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    succeeded(intervae("train", "causal-vae", *PENDULUM, *SMALL, "--graph", "true", "--no-pictures", "--seed", 3))
    config = json.loads((tmp_path / "runs" / "pendulum-causal-vae-3" / "config.json").read_text())
    assert (config["seed"], config["settings"]["dims"], config["settings"]["epochs"]) == (3, 2, 1)
    assert config["data"]["options"]["samples"] == 96


def test_a_setting_reaches_the_model_or_the_training_whichever_has_it(tmp_path: Path) -> None:
    train_tiny(tmp_path / "run", "--set", "checkpoint_seconds=0", "--set", "learning_rate=1e-4", "--set", "tensorboard=no")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["settings"]["learning_rate"] == 1e-4
    assert config["training"]["checkpoint_seconds"] == 0
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_epochs_are_said_once(tmp_path: Path) -> None:
    words = ["train", "causal-vae", *PENDULUM, *SMALL, "--out", tmp_path / "run"]
    refused(intervae(*words, "--set", "epochs=7"), 2, "--epochs 1 and --set epochs=7", "give one of them")
    assert not (tmp_path / "run").exists()


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(finished: Path, tmp_path: Path) -> None:
    same, other = train_tiny(tmp_path / "same"), train_tiny(tmp_path / "other", "--seed", 1)
    weights = [(run / "model.safetensors").read_bytes() for run in (finished, same, other)]
    assert weights[0] == weights[1] != weights[2]


def test_a_known_graph_is_kept_as_it_was_given(tmp_path: Path) -> None:
    given = CausalGraph.from_edges(("pendulum", "light", "shadow_length", "shadow_position"), [("light", "shadow_length", 0.5)])
    (tmp_path / "graph.json").write_text(json.dumps(given.to_json()))
    run = train_tiny(tmp_path / "run", "--graph", tmp_path / "graph.json")
    assert succeeded(intervae("graph", run)).out == "light -> shadow_length  0.500\n"


def test_some_of_the_variables_and_options_of_the_data(tmp_path: Path) -> None:
    shown = intervae(
        *("train", "causal-vae", *PENDULUM, *SMALL, "--no-pictures", "--graph", "true", "--out", tmp_path / "run"),
        *("--variables", "light, shadow_length", "--data-option", "validation=0.3", "--data-option", "seed=4"),
    )
    assert "50/22/24 images of (3, 16, 16), variables light, shadow_length" in succeeded(shown).out
    assert json.loads(intervae("graph", tmp_path / "run", "--json").out)["variables"] == ["light", "shadow_length"]


def test_people_see_what_was_made_of_their_data_and_brackets_in_names_do_no_harm(tmp_path: Path) -> None:
    flags = [("yes", "no")[i % 3 == 0] for i in range(80)]
    folder = make_folder(tmp_path / "my [bold] data", columns={"[/red] flag": flags})
    shown = succeeded(intervae("train", "causal-vae", "--data", folder, *SMALL, "--out", tmp_path / "[run]", "--kind", "width=continuous"))
    assert re.search(r"^\[/red\] flag +binary +no, yes *$", shown.out, re.MULTILINE)
    assert re.search(r"^width +continuous +[\d.]+ to [\d.]+ *$", shown.out, re.MULTILINE)
    assert "note: column '[/red] flag': two values: no = 0, yes = 1" in shown.out
    assert f"into {tmp_path / '[run]'}" in shown.out
    assert f"wrote {tmp_path / '[run]' / 'figures' / 'sweep.png'}" in shown.out
    for command in ("evaluate", "graph"):
        succeeded(intervae(command, tmp_path / "[run]"))
    shown = succeeded(intervae("intervene", tmp_path / "[run]", "--do", "[/red] flag=1", "--out", tmp_path / "[x].png"))
    assert re.search(r"^\[/red\] flag +[-\d.]+ +1$", shown.out, re.MULTILINE)


# ---- evaluate -------------------------------------------------------------------------------------------------------
def test_evaluate_agrees_with_python_and_keeps_what_was_measured_before(run: Path) -> None:
    model, data = package.load(run), Pendulum().dataset(size=16, samples=96)
    hoped = {m.metric: m for m in package.evaluate(model, data)}
    first = json.loads(succeeded(intervae("evaluate", run, "--metric", "shd", "--json")).out)
    assert {m["metric"]: m["value"] for m in first} == {"shd": 0, "tpr": 1, "fpr": 0, "fdr": 0}
    second = succeeded(intervae("evaluate", run, "--metric", "r2", "--metric", "r2"))
    shown = re.sub(r"[│\s]+", " ", second.out)
    assert f" r2_min {hoped['r2_min'].value:.4g} 24 " in shown
    assert " for each variable ┃ pendulum ┃ light ┃ shadow_length ┃ shadow_position " in re.sub(r"\s+", " ", second.out)
    assert f" r2 {' '.join(f'{value:.4g}' for value in hoped['r2_min'].per_variable.values())} " in shown
    kept = json.loads((run / "evaluation.json").read_text())
    assert [m["metric"] for m in kept] == ["shd", "tpr", "fpr", "fdr", "r2_min"]
    assert kept[-1]["value"] == pytest.approx(hoped["r2_min"].value, rel=1e-5)
    intervae("evaluate", run, "--metric", "shd")
    again = json.loads((run / "evaluation.json").read_text())
    assert [m["metric"] for m in again] == ["r2_min", "shd", "tpr", "fpr", "fdr"]  # replaced, not added


def test_a_metric_that_does_not_apply_says_what_it_needs(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "mine")
    succeeded(intervae("train", "causal-vae", "--data", folder, *SMALL, "--set", "graph=joint", "--no-pictures", "--out", tmp_path / "run"))
    refused(intervae("evaluate", tmp_path / "run", "--metric", "counterfactual"), 2, "'counterfactual' does not apply", "needs data with a simulator")
    refused(intervae("evaluate", tmp_path / "run", "--metric", "shd"), 2, "needs data with a known graph")
    refused(intervae("evaluate", tmp_path / "run", "--metric", "r3"), 2, "unknown metric 'r3'", "did you mean 'r2'")
    measured = {m["metric"] for m in json.loads(intervae("evaluate", tmp_path / "run", "--json").out)}
    assert {"r2_min", "reconstruction_pixel_mae", "mic", "tic", "log_likelihood"} <= measured
    assert not {"shd", "tpr", "counterfactual_pixel_mae", "counterfactual_psnr"} & measured


def test_r2_leaves_out_a_variable_that_is_constant_in_the_test_split(tmp_path: Path) -> None:
    split = ["test" if i >= 64 else "validation" if i >= 56 else "train" for i in range(80)]
    rare = [int(i < 20) for i in range(80)]
    folder = make_folder(tmp_path / "mine", columns={"rare": rare, "split": split})
    succeeded(intervae("train", "causal-vae", "--data", folder, *SMALL, "--out", tmp_path / "run"))
    measured = json.loads((tmp_path / "run" / "evaluation.json").read_text())[0]
    assert set(measured["per_variable"]) == {"level", "width"}
    assert measured["parameters"] == {"constant_in_test": ["rare"]}


def test_the_same_data_is_told_from_other_data_but_not_by_rounding(make_data: Any) -> None:
    spec = make_data().spec
    first = spec.variables[0]

    def changed(**values: Any) -> Any:
        return package.data.Spec(spec.image_shape, (type(first)(**{**vars(first), **values}), *spec.variables[1:]))

    assert evaluation.same_data(changed(mean=first.mean + 1e-9), spec)
    for other in (changed(mean=first.mean + 0.1), changed(high=first.high + 0.1), changed(name="z"), changed(kind="binary")):
        assert not evaluation.same_data(other, spec)
    assert not evaluation.same_data(package.data.Spec((1, 8, 8), spec.variables), spec)
    assert not evaluation.same_data(package.data.Spec(spec.image_shape, spec.variables[:2]), spec)


# ---- graph ----------------------------------------------------------------------------------------------------------
def test_the_graph_in_every_form_tells_the_same_edges(finished: Path, tmp_path: Path) -> None:
    shown = [line.split("  ")[0].split(" -> ") for line in succeeded(intervae("graph", finished)).out.splitlines()]
    assert {tuple(edge) for edge in shown} == EDGES
    printed = CausalGraph.from_json(succeeded(intervae("graph", finished, "--json")).out)
    assert {(a, b) for a, b, _ in printed.edges} == EDGES

    for name in ("g.json", "g.dot", "g.svg", "g.png", "deeper/G.SVG"):
        assert succeeded(intervae("graph", finished, "--out", tmp_path / name)).out == f"wrote {tmp_path / name}\n"
    assert CausalGraph.from_json((tmp_path / "g.json").read_text()) == printed
    assert {tuple(edge) for edge in re.findall(r'"(\w+)" -> "(\w+)"', (tmp_path / "g.dot").read_text())} == EDGES
    texts = {text.strip() for text in ET.parse(tmp_path / "g.svg").getroot().itertext()}
    assert texts >= {"pendulum", "light", "shadow_length", "shadow_position"}
    assert (tmp_path / "deeper" / "G.SVG").read_bytes() == (tmp_path / "g.svg").read_bytes()
    assert min(size_of(tmp_path / "g.png")) > 100
    both = succeeded(intervae("graph", finished, "--json", "--out", tmp_path / "again.json"))
    assert CausalGraph.from_json(both.out) == printed == CausalGraph.from_json((tmp_path / "again.json").read_text())


def test_a_graph_without_edges_says_so(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(json.dumps(CausalGraph.empty(("light", "pendulum", "shadow_length", "shadow_position")).to_json()))
    run = train_tiny(tmp_path / "run", "--graph", tmp_path / "graph.json")
    assert succeeded(intervae("graph", run)).out == "no edges\n"


# ---- intervene ------------------------------------------------------------------------------------------------------
def test_intervene_on_a_clip_shows_its_frames_and_those_that_follow(tmp_path: Path) -> None:
    words = ["train", "temporal-causal-prior-vae", "--data", "motion", "--data-option", "samples=64", "--size", "12", "--out", tmp_path / "run"]
    for setting in ("widths=16", "background=given", "refit_epochs=1", "batch_size=16", "epochs=1"):
        words += ["--set", setting]
    succeeded(intervae(*words, "--no-pictures", "--device", "cpu"))
    ask = ["intervene", tmp_path / "run", "--index", 2, "--out", tmp_path / "clip.png"]
    shown = succeeded(intervae(*ask, "--do", "z2_0=1.5", "--steps", 2, "--json"))
    model, data = package.load(tmp_path / "run"), Motion(size=12).dataset(samples=64)
    behind = data.test.fields["background"][2:3]
    before = model.encode(data.test.images[2:3], background=behind)
    after = model.intervene(before, {"z2_0": 1.5})
    rows = {row["variable"]: row for row in json.loads(shown.out)}
    coming = [f"z{t}_{i}" for t in (4, 5) for i in range(4)]
    assert list(rows) == [*model.latent_names[:12], *coming, *model.latent_names[12:]]
    assert [rows[name]["before"] for name in model.latent_names] == pytest.approx(before[0, :, 0].tolist(), abs=1e-5)
    assert [rows[name]["after"] for name in model.latent_names] == pytest.approx(after[0, :, 0].tolist(), abs=1e-5)
    assert {name for name, row in rows.items() if row["changed"]} == {name for name, row in rows.items() if row["before"] != row["after"]}
    assert rows["z2_0"]["changed"]
    assert not rows["z1_0"]["changed"]
    widths = []
    for more in (["--steps", 2], []):
        succeeded(intervae(*ask, "--do", "z2_0=1.5", *more))
        with Image.open(tmp_path / "clip.png") as picture:
            widths.append(picture.width)
    assert widths[0] > widths[1]  # the two that follow take room
    told = succeeded(intervae(*ask, "--do", "z5_0=1.5", "--steps", 2)).out.splitlines()
    assert told[0].split() == ["variable", "before", "after", "change"]
    assert [line.split()[::2][:2] for line in told if len(line.split()) == 4][1:] == [["z5_0", "1.5"]]  # it alone changed: nothing follows
    foreseen = model.latents_over_time(data.test.images[2:3], background=behind, steps=2)
    only = json.loads(succeeded(intervae(*ask, "--steps", 2, "--json")).out)
    assert {row["variable"]: row["before"] for row in only} == pytest.approx({name: float(value) for name, value in foreseen.items()}, abs=1e-5)
    assert not any(row["changed"] for row in only)
    refused(intervae(*ask, "--do", "z5_0=1.5", "--steps", 1), 1, "frame 5 is beyond the 4 frames asked for; raise steps to 2")
    refused(intervae(*ask), 2, "Missing option '--do', or --steps of a clip")
    svg = tmp_path / "clip.svg"
    for words, labels in (([], []), (["--do", "z5_0=1.5"], ["do(z5_0 = 1.5)"])):
        succeeded(intervae(*ask[:-1], svg, "--steps", 2, *words))
        for label in ("original", "without do()", *labels):
            assert label in svg.read_text()
    assert len(list(ET.parse(svg).iter("{http://www.w3.org/2000/svg}image"))) == 3 + 5 + 5  # the clip, and five frames without do() and with it
    refused(intervae(*ask, "--do", "z2_0=1", "--image", tmp_path / "clip.png"), 2, "trained on clips")


def test_intervene_tells_every_variable_before_and_after_as_the_model_does(finished: Path, tmp_path: Path) -> None:
    rows = json.loads(
        succeeded(
            intervae("intervene", finished, "--do", "light=100", "--do", "pendulum=-5", "--index", 3, "--out", tmp_path / "strip.png", "--json")
        ).out
    )
    model, data = package.load(finished), Pendulum().dataset(size=16, samples=96)
    image = data.test.images[3:4]
    before = model.measure(image)[0]  # type: ignore[attr-defined]
    assert [row["variable"] for row in rows] == list(data.names)
    np.testing.assert_allclose([row["before"] for row in rows], before.numpy(), rtol=1e-5)
    after = {row["variable"]: row["after"] for row in rows}
    assert after["light"] == pytest.approx(100)
    assert after["pendulum"] == pytest.approx(-5)
    assert after["shadow_length"] != rows[2]["before"]
    assert size_of(tmp_path / "strip.png")[0] > 100


def test_intervene_draws_strip_png_for_people_and_nothing_unasked_for_programs(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ask = ["intervene", finished, "--do", "light=100"]
    assert len(json.loads(succeeded(intervae(*ask, "--json")).out)) == 4
    assert not contents(tmp_path)
    assert "wrote strip.png\n" in succeeded(intervae(*ask)).out
    assert set(contents(tmp_path)) == {"strip.png"}


def test_an_image_from_a_file_gives_what_the_same_image_of_the_data_gives(finished: Path, tmp_path: Path) -> None:
    image = Pendulum().dataset(size=16, samples=96).test.images[5]
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / "5.png")
    by_index = succeeded(intervae("intervene", finished, "--do", "light=90", "--index", 5, "--out", tmp_path / "a.png", "--json"))
    by_file = succeeded(intervae("intervene", finished, "--do", "light=90", "--image", tmp_path / "5.png", "--out", tmp_path / "b.png", "--json"))
    assert by_file.out == by_index.out
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_an_image_of_another_size_is_resized_and_a_grey_one_coloured_and_that_is_told(finished: Path, tmp_path: Path) -> None:
    Image.fromarray(np.full((40, 30), 90, np.uint8)).save(tmp_path / "grey.png")
    output = intervae("intervene", finished, "--do", "light=90", "--image", tmp_path / "grey.png", "--out", tmp_path / "strip.svg")
    assert output.code == 0
    stretched, coloured = output.err.splitlines()
    assert "is 30 x 40 (width x height) and is stretched to 16 x 16" in stretched
    assert "is grey, and the run's pictures are in colour" in coloured
    assert ET.parse(tmp_path / "strip.svg").getroot().tag.endswith("svg")


def test_a_value_outside_the_training_range_is_noted_and_json_stays_json(finished: Path, tmp_path: Path) -> None:
    output = intervae("intervene", finished, "--do", "light=1000", "--out", tmp_path / "strip.png", "--json")
    assert output.code == 0
    assert re.fullmatch(r"note: light=1000 is outside the training range 54\.21 to 131\.9; the picture extrapolates\.\n", output.err)
    assert json.loads(output.out)[1]["after"] == pytest.approx(1000)


def test_a_binary_variable_of_words_is_set_by_its_word_or_its_code(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "mine", columns={"side": [("left", "right")[i % 2] for i in range(80)]})
    succeeded(intervae("train", "causal-vae", "--data", folder, *SMALL, "--set", "graph=joint", "--no-pictures", "--out", tmp_path / "run"))
    ask = ["intervene", tmp_path / "run", "--index", 2, "--out", tmp_path / "strip.svg", "--json", "--do"]
    by_word, by_code, other = (succeeded(intervae(*ask, f"side={value}")).out for value in ("right", "1", "left"))
    assert by_word == by_code != other
    assert json.loads(by_word)[2]["after"] == pytest.approx(1, abs=1e-5)
    assert "do(side = left)" in (tmp_path / "strip.svg").read_text()
    refused(intervae(*ask, "side=up"), 1, "unknown category of 'side' in do() 'up'", "left, right")
    assert intervae(*ask, "side=0.5").err == "note: side=0.5 is neither 0 nor 1 (left, right); the picture extrapolates.\n"
    model: Any = package.load(tmp_path / "run")
    images = package.load_data(folder).test.images[:3]
    assert torch.equal(model.counterfactual(images, {"side": "right"}), model.counterfactual(images, {"side": 1}))
    assert torch.equal(model.sample(3, {"side": "left"}, seed=0), model.sample(3, {"side": 0.0}, seed=0))
    with pytest.raises(package.IntervaeError, match=r"unknown category of 'side' in do\(\) 'up'; known: left, right"):
        model.sample(3, {"side": "up"})


# ---- errors, in general ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tarin"], "No such command 'tarin'. Did you mean 'train'"),
        (["train"], "issing argument 'model'"),
        (["train", "causal-vae"], "Missing option '--data'"),
        (["train", "causal-vae", "--data", "pendulum", "--sede", "1"], "No such option: --sede"),
        (["train", "causal-vae", "--data", "pendulum", "--seed", "one"], "'--seed'"),
        (["train", "causal-vae", "--data", "pendulum", "--seed", "-1"], "'--seed'"),
        (["train", "causal-vae", "--data", "pendulum", "--epochs", "0"], "'--epochs'"),
        (["train", "causal-vae", "--data", "pendulum", "--size", "0"], "'--size'"),
        (["intervene", "run"], "Missing option '--do'"),
        (["reproduce", "causalvae-pendulum", "--seeds", "0"], "'--seeds'"),
    ],
)
def test_wrong_usage_is_one_sentence_that_points_to_the_help(words: list[str], said: str) -> None:
    sentence = refused(intervae(*words), 2, said)
    command = "intervae" if words == ["tarin"] else f"intervae {words[0]}"
    assert sentence.endswith(f"; see `{command} --help`.")


@pytest.mark.parametrize("words", [["graph", "nowhere", "--debug"], ["--debug", "graph", "nowhere"], ["graph", "--debug", "nowhere"]])
def test_debug_anywhere_shows_the_traceback_above_the_same_sentence(words: list[str]) -> None:
    short, long = intervae("graph", "nowhere"), intervae(*words)
    refused(short, 1, "nowhere is not a run folder")
    assert long.code == 1
    assert "Traceback" in long.err
    assert "storage.py" in long.err
    assert long.err.endswith(short.err)


def test_an_error_that_nobody_foresaw_is_one_sentence_too(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("a bug\nof two lines")

    monkeypatch.setattr(CausalGraph, "to_dot", broken)
    refused(intervae("graph", finished, "--out", tmp_path / "g.dot"), 1, "this should not happen (KeyError:", "--debug")


def test_a_thread_that_fails_shows_its_traceback_only_with_debug(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> str:
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        return "digraph {}"

    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)  # as it is without pytest
    monkeypatch.setattr(CausalGraph, "to_dot", broken)
    succeeded(intervae("graph", finished, "--out", tmp_path / "g.dot"))
    assert "ZeroDivisionError" in intervae("graph", finished, "--out", tmp_path / "g.dot", "--debug").err


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("can't allocate memory: you tried ...")])
def test_too_little_memory_says_what_to_do(error: Exception, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise error

    monkeypatch.setattr(CausalGraph, "to_dot", broken)
    refused(intervae("graph", finished, "--out", tmp_path / "g.dot"), 1, "not enough memory", "--size")


def test_output_that_nobody_can_read_ends_quietly_or_with_a_sentence(tmp_path: Path) -> None:
    """A pipe whose reader has gone, and a full disk behind standard output."""
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run([PROGRAM, "--help"], stdout=writer, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    os.close(writer)
    assert (gone.returncode, gone.stderr) == (1, "")
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        refused(Output(done.returncode, "", done.stderr), 1, "output: No space left on device")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_json_that_did_not_reach_its_file_is_a_failure() -> None:
    with open("/dev/full", "w") as full:
        refused(intervae("datasets", "--json", stdout=full), 1, "output: No space left on device")
        with contextlib.suppress(OSError):
            full.close()


def test_a_terminal_that_knows_only_ascii_gets_what_it_can_show() -> None:
    done = subprocess.run([PROGRAM, "größe"], capture_output=True, env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}, check=False)
    assert done.returncode == 2
    assert done.stderr == b"error: No such command 'gr??e'; see `intervae --help`.\n"


def test_tables_for_people_show_every_number(capsys: pytest.CaptureFixture[str]) -> None:
    long = Measurement("r2_min", 0.5, 7, {"a variable with quite a long name indeed": 0.5, "b": 0.75})
    other = Measurement("counterfactual_pixel_mae", 0.01, 7, {"b": 0.0123})
    listing.print_measurements([long, other])
    shown = re.sub(r"[│\s]+", " ", capsys.readouterr().out)
    assert "r2_min 0.5 7" in shown
    assert " r2 0.5 0.75 " in shown
    assert " counterfactual_pixel_mae 0.0123 " in shown


def test_measuring_or_showing_a_graph_without_drawing_it_does_not_wait_for_matplotlib(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(package, "figures", raising=False)
    monkeypatch.setitem(sys.modules, "intervae.figures", None)  # importing it now fails
    monkeypatch.delitem(sys.modules, "intervae.report", raising=False)
    assert succeeded(intervae("graph", run)).out.count("->") == 4
    succeeded(intervae("evaluate", run))
    refused(intervae("graph", run, "--out", "g.svg"), 1, "ModuleNotFoundError")
