"""A stack that is captured as one CUDA graph trains each run as it would be trained alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from intervae.data import Dataset
from intervae.training import fit, fit_seeds
from intervae.training import stacked_runs as module
from intervae.training.stacked_stepper import StackedStepper

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("exact_gpu")]
SEEDS = [0, 5, 9, 11]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[StackedStepper]:
    """The stacks that are made, in order."""
    stacks: list[StackedStepper] = []

    class Watched(StackedStepper):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            stacks.append(self)

    monkeypatch.setattr(module, "StackedStepper", Watched)
    return stacks


def check_equal(
    runs: list[Any], make: Any, data: Dataset, tolerance: float, **options: Any
) -> None:
    """Losses of the runs and of single runs, which differ by the rounding of other kernels."""
    for run in runs:
        history = fit(make(), data, seed=run.seed, device="cuda", **options).history
        assert len(run.result.history) == len(history)
        for line, expected in zip(run.result.history, history, strict=True):
            for split in ("train", "validation"):
                if split in expected:
                    assert line[split]["loss"] == pytest.approx(
                        expected[split]["loss"], rel=tolerance
                    )


@pytest.mark.parametrize("captured", [True, False])
@pytest.mark.parametrize("name", ["causal-vae", "condition-vae", "beta-vae", "causal-prior-vae"])
def test_seed_of_a_captured_stack_gives_the_run_of_that_seed(
    name: str, captured: bool, make_model: Any, pendulum: Dataset, made: list[StackedStepper]
) -> None:
    def make() -> Any:
        return make_model(name, pendulum)

    options = {"cuda_graph": captured, "tensorboard": False}
    runs = fit_seeds(
        make(), pendulum, seeds=SEEDS, device="cuda", stack=True, notify=pytest.fail, **options
    )
    assert made
    assert all((stack.graph is not None) == captured for stack in made)
    assert all(run.model.device.type == "cuda" for run in runs)
    check_equal(runs, make, pendulum, 2e-3, **options)


def test_stack_in_bfloat16_is_close_to_single_runs(make_model: Any, pendulum: Dataset) -> None:
    def make() -> Any:
        return make_model("causal-vae", pendulum)

    options = {"precision": "bf16", "tensorboard": False}
    runs = fit_seeds(
        make(), pendulum, seeds=SEEDS, device="cuda", stack=True, notify=pytest.fail, **options
    )
    check_equal(runs, make, pendulum, 5e-2, **options)


def test_runs_of_a_captured_stack_stop_early(
    make_model: Any, pendulum: Dataset, made: list[StackedStepper]
) -> None:
    """Ended runs idle in the graph until half of the stack has ended; then a smaller one is made.

    A rounding may move the end of a run, so each is compared with its own history.
    """
    model = make_model("condition-vae", pendulum, epochs=60, patience=2)
    runs = fit_seeds(model, pendulum, seeds=SEEDS, device="cuda", stack=True, tensorboard=False)
    lengths = sorted(len(run.result.history) for run in runs)
    assert all(stack.graph is not None for stack in made)
    assert len(made[0].trainings) == 4
    if lengths[1] < lengths[2]:  # two runs went on without the others
        assert len(made[1].trainings) == 2
    for run in runs:
        losses = [line["validation"]["loss"] for line in run.result.history]
        best = losses.index(min(losses)) + 1
        assert len(losses) == min(60, best + 2)
        assert all(bool(torch.isfinite(tensor).all()) for tensor in run.model.state_dict().values())


def test_captured_stack_resumes(
    make_model: Any, pendulum: Dataset, tmp_path: Any, interrupt: Any
) -> None:
    def make() -> Any:
        return make_model("causal-vae", pendulum, epochs=4)

    options = {"device": "cuda", "stack": True, "tensorboard": False, "checkpoint_seconds": 0}
    whole = fit_seeds(make(), pendulum, seeds=SEEDS, **options)
    interrupt(len(SEEDS) * 2 + 1)
    with pytest.raises(KeyboardInterrupt):
        fit_seeds(make(), pendulum, seeds=SEEDS, out=tmp_path, **options)
    interrupt(0)
    runs = fit_seeds(make(), pendulum, seeds=SEEDS, out=tmp_path, resume=True, **options)
    for one, other in zip(whole, runs, strict=True):
        for line, expected in zip(other.result.history, one.result.history, strict=True):
            if "train" in line:
                assert line["train"] == pytest.approx(expected["train"], rel=1e-3, abs=1e-3)


def test_model_that_is_no_stack_is_trained_side_by_side(make_model: Any, pendulum: Dataset) -> None:
    notes: list[str] = []
    model = make_model("factor-vae", pendulum)
    runs = fit_seeds(model, pendulum, seeds=3, device="cuda", stack=True, notify=notes.append)
    assert len(notes) == 1
    assert "3 seeds are trained side by side" in notes[0]
    check_equal(runs, lambda: make_model("factor-vae", pendulum), pendulum, 1e-3)
