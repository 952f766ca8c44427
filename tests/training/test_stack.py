"""Runs of a stack stop, fail and are resumed by themselves; what is no stack says why."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from intervae.data import Dataset
from intervae.errors import RunError, UsageError
from intervae.models.phases import Phase, Player
from intervae.training import Result, fit, fit_seeds
from intervae.training.draws import StackError
from intervae.training.seeds import SeedRun, fit_stack
from intervae.training.stack import Stack
from stacked_models import SEEDS, difference, lines, same_weights, stacked


# ---- early stopping and failures ----------------------------------------------------------------
def test_runs_stop_early_by_themselves_with_their_best_weights(toy: Any, toy_data: Dataset) -> None:
    def make() -> Any:
        return toy(epochs=30, patience=2, keep_best=True, player={"learning_rate": 0.3})

    runs = fit_stack([make() for _ in range(6)], toy_data, range(6), [None] * 6, **stacked())
    ends = {len(run.result.history) for run in runs}
    assert len(ends) > 1  # they end in different epochs
    assert max(ends) < 30
    for run in runs:
        alone = make()
        assert lines(run.result.history) == lines(
            fit(alone, toy_data, seed=run.seed, device="cpu").history
        )
        assert same_weights(alone, run.model)


def test_failing_run_does_not_stop_the_others(toy: Any, toy_data: Dataset, tmp_path: Path) -> None:
    def make(broken: bool) -> Any:
        player = {"learning_rate": 1e30 if broken else 0.05, "optimiser": "sgd"}
        return toy(epochs=4, player=player)

    folders = [tmp_path / str(seed) for seed in range(3)]
    models = [make(seed == 1) for seed in range(3)]
    with pytest.raises(RunError, match=r"1 of 3 runs of toy failed \(seed 1\).*stopped being fin"):
        fit_stack(models, toy_data, range(3), folders, **stacked())
    for seed in (0, 2):
        alone = make(False)
        fit(alone, toy_data, seed=seed, device="cpu")
        assert same_weights(alone, models[seed])
        assert (folders[seed] / "model.safetensors").is_file()
    assert not (folders[1] / "model.safetensors").exists()


# ---- folders and resume -------------------------------------------------------------------------
def interrupt_stack(model: Any, data: Dataset, out: Path) -> list[int]:
    """Return the number of lines in metrics.jsonl of each run of an interrupted stack."""
    with pytest.raises(KeyboardInterrupt):
        fit_seeds(model, data, seeds=SEEDS, out=out, **stacked(checkpoint_seconds=0))
    folders = [out / f"seed-{seed}" for seed in SEEDS]
    assert not any((folder / "model.safetensors").exists() for folder in folders)
    return [len((folder / "metrics.jsonl").read_text().splitlines()) for folder in folders]


@pytest.mark.parametrize("at", [7, 10])
def test_resumed_stack_is_bit_equal_to_an_uninterrupted_one(
    at: int, make_model: Any, pendulum: Dataset, tmp_path: Path, interrupt: Any
) -> None:
    def make() -> Any:
        return make_model("condition-vae", pendulum, epochs=5)

    whole = fit_seeds(make(), pendulum, seeds=SEEDS, **stacked())
    interrupt(at)  # after three checkpoints before the first epoch
    interrupt_stack(make(), pendulum, tmp_path)
    interrupt(0)
    options = stacked(checkpoint_seconds=0, out=tmp_path, resume=True)
    runs = fit_seeds(make(), pendulum, seeds=SEEDS, **options)
    for one, other in zip(whole, runs, strict=True):
        assert lines(one.result.history) == lines(other.result.history)
        assert same_weights(one.model, other.model)


@pytest.mark.parametrize("at", [5, 6, 8, 9])
def test_runs_left_in_different_epochs_are_resumed_as_one_stack(
    at: int, toy: Any, toy_data: Dataset, tmp_path: Path, interrupt: Any
) -> None:
    """The process ends between the checkpoints of the runs of an epoch."""

    def make() -> list[Any]:
        return [toy(epochs=4, schedule="cosine") for _ in SEEDS]

    folders = [tmp_path / str(seed) for seed in SEEDS]
    interrupt(at)
    with pytest.raises(KeyboardInterrupt):
        fit_stack(make(), toy_data, SEEDS, folders, **stacked(checkpoint_seconds=0))
    interrupt(0)
    runs = fit_stack(make(), toy_data, SEEDS, folders, **stacked(resume=True))
    for run in runs:
        alone = toy(epochs=4, schedule="cosine")
        history = fit(alone, toy_data, seed=run.seed, device="cpu").history
        assert lines(run.result.history) == lines(history)
        assert same_weights(alone, run.model)


def test_one_run_of_a_stack_is_resumed_alone(
    make_model: Any, pendulum: Dataset, tmp_path: Path, interrupt: Any
) -> None:
    def make() -> Any:
        return make_model("causal-vae", pendulum, epochs=5)

    interrupt(10)
    assert interrupt_stack(make(), pendulum, tmp_path) == [3, 2, 2]
    interrupt(0)
    alone, resumed = make(), make()
    fit(alone, pendulum, seed=0, device="cpu")
    result = fit(resumed, pendulum, seed=0, out=tmp_path / "seed-0", device="cpu", resume=True)
    assert 0 < result.seconds_before_resume < result.seconds
    assert [line.get("epoch") for line in result.history] == [1, 2, 3, 4, 5]
    assert difference(alone, resumed) < 1e-3
    assert (tmp_path / "seed-0" / "model.safetensors").is_file()
    assert not (tmp_path / "seed-3" / "model.safetensors").exists()


def test_every_run_has_its_own_complete_folder(toy: Any, toy_data: Dataset, tmp_path: Path) -> None:
    names = {"config.json", "metrics.jsonl", "model.safetensors", "README.md", "checkpoints"}
    models = [toy() for _ in SEEDS]
    folders = [tmp_path / f"seed-{seed}" for seed in SEEDS]
    fit_stack(models, toy_data, SEEDS, folders, **stacked())
    for seed, folder in zip(SEEDS, folders, strict=True):
        assert names <= {path.name for path in folder.iterdir()}
        config = json.loads((folder / "config.json").read_text())
        assert (config["seed"], config["stack"]) == (seed, 3)
        assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3
    with pytest.raises(RunError, match="already holds a run"):
        fit_stack([toy() for _ in SEEDS], toy_data, SEEDS, folders, **stacked())
    again = fit_stack([toy() for _ in SEEDS], toy_data, SEEDS, folders, **stacked(resume=True))
    assert all(same_weights(a, b.model) for a, b in zip(models, again, strict=True))


def test_finished_and_new_runs_are_resumed_with_the_interrupted_ones(
    toy: Any, toy_data: Dataset, tmp_path: Path, interrupt: Any
) -> None:
    folders = [tmp_path / f"seed-{seed}" for seed in range(3)]
    fit(toy(), toy_data, seed=0, out=folders[0], device="cpu", tensorboard=False)
    interrupt(3)
    with pytest.raises(KeyboardInterrupt):
        fit(toy(), toy_data, seed=1, out=folders[1], device="cpu", checkpoint_seconds=0)
    interrupt(0)
    models = [toy() for _ in range(3)]
    fit_stack(models, toy_data, range(3), folders, **stacked(resume=True))
    for seed, model in enumerate(models):
        alone = toy()
        fit(alone, toy_data, seed=seed, device="cpu")
        assert same_weights(alone, model)


# ---- what is no stack, and says so --------------------------------------------------------------
def two_players(m: Any) -> list[Phase]:
    players = (Player(m.loss, ("first",), "one"), Player(m.loss, ("second",), "two"))
    return [Phase("main", players, 2, 10)]


def depends_on_values(m: Any) -> list[Phase]:
    def loss(batch: Any, generator: Any) -> dict[str, Tensor]:
        terms = m.loss(batch, generator)
        return terms if terms["loss"].item() > -1 else {}

    return [Phase("main", (Player(loss),), 2, 10)]


def draws_by_values(m: Any) -> list[Phase]:
    def loss(batch: Any, generator: Any) -> dict[str, Tensor]:
        noise = torch.bernoulli(torch.sigmoid(m.second.detach()), generator=generator)
        return {"loss": (m.second - noise).square()}

    return [Phase("main", (Player(loss),), 2, 10)]


def own_data(m: Any) -> list[Phase]:
    def prepare(data: Dataset, seed: int) -> Dataset:
        return replace(data, train=data.train[torch.randperm(50)[:40].sort().values * 0 + seed])

    return [Phase("main", (Player(m.loss),), 2, 10, prepare=prepare, replaces_data=True)]


def keeps_tensors(m: Any) -> list[Phase]:
    def loss(batch: Any, generator: Any) -> dict[str, Tensor]:
        m.last = batch["labels"].mean()
        return dict(m.loss(batch, generator))

    def after_step() -> None:
        m.count.copy_(m.last)

    return [Phase("main", (Player(loss),), 2, 10, after_step=after_step)]


def own_number(m: Any) -> list[Phase]:
    """A plain number that `prepare` makes from the seed: vmap would use that of the first run."""

    def prepare(data: Dataset, seed: int) -> None:
        m.scale = float(1 + seed)

    def loss(batch: Any, generator: Any) -> dict[str, Tensor]:
        return {"loss": m.scale * m.loss(batch, generator)["loss"]}

    return [Phase("main", (Player(loss),), 2, 10, prepare=prepare)]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (two_players, "it has 2 players that take turns"),
        (depends_on_values, r"torch cannot vmap its loss \(.*item"),
        (draws_by_values, "its loss draws noise with bernoulli, which depends on other tensors"),
        (own_data, "it makes its own data for each seed"),
        (keeps_tensors, "its loss leaves tensors in last"),
        (own_number, "its loss term 'loss' differs under vmap"),
    ],
)
def test_phase_that_is_no_stack_says_why_and_is_trained_run_by_run(
    plan: Any, reason: str, toy: Any, toy_data: Dataset
) -> None:
    notes: list[str] = []
    runs = fit_stack([toy(plan) for _ in SEEDS], toy_data, SEEDS, [None] * 3, **stacked(notes))
    assert len(notes) == 1
    text = r"^toy: 3 seeds are trained one after the other in phase 'main', because "
    assert re.match(text + reason, notes[0]), notes
    assert "\n" not in notes[0]
    for run in runs:
        alone = toy(plan)
        fit(alone, toy_data, seed=run.seed, device="cpu")
        assert same_weights(alone, run.model)


@pytest.mark.parametrize("last", [two_players, own_data])
def test_a_later_phase_that_is_no_stack_is_said_before_the_first_step(
    last: Any, toy: Any, toy_data: Dataset
) -> None:
    def plan(m: Any) -> list[Phase]:
        return [Phase("stacked", (Player(m.loss),), 2, 10), *last(m)]

    models = [toy(plan) for _ in SEEDS]
    before = [model.state_dict()["first"].clone() for model in models]
    notes: list[str] = []
    arguments = (models, toy_data, SEEDS, [None] * 3)
    with pytest.raises(StackError):
        fit_stack(*arguments, required=True, **stacked(notes))
    assert notes == []
    for model, weight in zip(models, before, strict=True):
        assert torch.equal(model.state_dict()["first"], weight)  # nothing was trained
    runs = fit_stack(*arguments, **stacked(notes))
    assert len(notes) == 1
    assert len(runs) == 3


def test_stack_that_does_not_fit_is_tried_with_fewer_runs(
    toy: Any, toy_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms, sizes = Stack.terms, []

    def limited(self: Stack, *arguments: Any) -> Any:
        sizes.append(len(self.models))
        if len(self.models) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return terms(self, *arguments)

    monkeypatch.setattr(Stack, "terms", limited)
    notes: list[str] = []
    runs = fit_stack([toy() for _ in range(5)], toy_data, range(5), [None] * 5, **stacked(notes))
    assert notes == [
        "toy: a stack of 5 seeds does not fit into the memory of cpu; 3 are tried at once.",
        "toy: a stack of 3 seeds does not fit into the memory of cpu; 2 are tried at once.",
    ]
    assert sizes.count(5) == sizes.count(3) == 1
    for run in runs:
        alone = toy()
        fit(alone, toy_data, seed=run.seed, device="cpu")
        assert same_weights(alone, run.model)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"seeds": 0}, "seeds=0 must be a number from 1 to 10000, or a list of seeds"),
        ({"seeds": [1, 1]}, "names a seed twice"),
        ({"seeds": "3"}, "seeds='3' must be a number or a list"),
        ({"stack": -1}, "stack=-1 must be True, False or a number"),
        ({"stack": "all"}, "stack='all' must be True, False or a number"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    arguments: dict[str, Any], text: str, toy: Any, toy_data: Dataset
) -> None:
    with pytest.raises(UsageError, match=text):
        fit_seeds(toy(), toy_data, **{"seeds": 2, "device": "cpu", **arguments})


def test_stack_is_off_on_a_cpu_unless_asked_for(
    toy: Any, toy_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stack, "__init__", lambda *_: pytest.fail("a stack was made"))
    runs: list[SeedRun] = fit_stack([toy(), toy()], toy_data, [0, 1], [None] * 2, device="cpu")
    assert [run.seed for run in runs] == [0, 1]
    assert all(isinstance(run.result, Result) for run in runs)
