"""Capturing a step in a CUDA graph changes nothing but the time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from intervae.data import Dataset, load_data
from intervae.models import create
from intervae.models.phases import Phase, Player
from intervae.training.stepper import Stepper

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("exact_gpu")]


def prepare(make_model: Any, data: Dataset, **settings: Any) -> tuple[Any, Phase]:
    model = make_model("causal-vae", data, **settings)
    model.initialise(0)
    model.to("cuda").train()
    return model, Phase(
        "joint",
        (Player(model.loss, learning_rate=1e-3),),
        epochs=3,
        batch_size=16,
        schedule="cosine",
    )


def stepper_of(model: Any, phase: Phase, data: Dataset, cuda_graph: bool) -> Stepper:
    return Stepper(model, phase, data.train.to("cuda"), 16, cuda_graph=cuda_graph, bf16=False)


@pytest.mark.parametrize("graph", ["joint", "given"])
def test_captured_and_eager_training_have_the_same_losses(
    graph: str, make_model: Any, pendulum: Dataset
) -> None:
    losses: dict[bool, Tensor] = {}
    for captured in (False, True):
        model, phase = prepare(
            make_model, pendulum, graph=pendulum.graph if graph == "given" else graph
        )
        stepper = stepper_of(model, phase, pendulum, captured)
        assert (stepper.graph is not None) == captured
        losses[captured] = torch.cat(
            [stepper.run_epoch(epoch, 3, seed=epoch) for epoch in range(3)]
        )
    assert torch.isfinite(losses[True]).all()
    assert torch.allclose(losses[False], losses[True], rtol=1e-3, atol=1e-3)
    assert not torch.allclose(losses[True][0], losses[True][-1])


def test_captured_ct_vae_step_draws_augmentations_as_an_eager_one() -> None:
    device = "cuda"
    data = load_data("shapes3d-like", size=16, levels=(3, 3, 3, 2, 2, 3), transitions=True)
    data = replace(data, train=data.train.to(device), validation=data.validation.to(device))
    small = {
        "patch": 4,
        "filters": 16,
        "features": 8,
        "codes": 16,
        "width": 16,
        "heads": 2,
        "edge_width": 4,
        "transition_batch": 32,
    }
    losses: dict[bool, Tensor] = {}
    for captured in (False, True):
        model = create("ct-vae", data, **small, mirror=("orientation",), shift=1)
        model.initialise(0)
        model.to(device)
        (phase,) = (phase for phase in model.phases() if phase.name == "transitions")
        assert phase.prepare is not None
        train = phase.prepare(data, 0).train
        model.train()
        stepper = Stepper(model, phase, train, 32, cuda_graph=captured, bf16=False)
        losses[captured] = torch.cat(
            [stepper.run_epoch(epoch, 2, seed=epoch) for epoch in range(2)]
        )
    assert torch.isfinite(losses[True]).all()
    assert torch.allclose(losses[False], losses[True], rtol=1e-3, atol=1e-3)


def test_captured_and_eager_steps_of_muon_are_the_same(make_model: Any, pendulum: Dataset) -> None:
    changes: dict[bool, Tensor] = {}
    for captured in (False, True):
        model, _ = prepare(make_model, pendulum)
        phase = Phase(
            "joint",
            (Player(model.loss, optimiser="muon", learning_rate=0.02, weight_decay=0.5),),
            2,
            16,
            schedule="cosine",
        )
        stepper = stepper_of(model, phase, pendulum, captured)
        assert (stepper.graph is not None) == captured
        (matrices,) = (
            group["params"] for group in stepper.optimisers[0].param_groups if group["matrices"]
        )
        begun = torch.cat([matrix.detach().flatten() for matrix in matrices])
        for epoch in range(2):
            stepper.run_epoch(epoch, 2, seed=epoch)
        changes[captured] = torch.cat([matrix.detach().flatten() for matrix in matrices]) - begun
    assert torch.isfinite(changes[True]).all()
    assert (changes[False] - changes[True]).norm() < 0.02 * changes[
        False
    ].norm()  # a rate that stays as it was captured is off by half


def test_captured_and_eager_averages_of_weights_are_the_same(
    make_model: Any, pendulum: Dataset
) -> None:
    changes: dict[bool, Tensor] = {}
    for captured in (False, True):
        model, phase = prepare(make_model, pendulum)
        stepper = stepper_of(model, replace(phase, averaging=0.5), pendulum, captured)
        assert (stepper.graph is not None) == captured
        average = stepper.average
        assert average is not None
        assert not average.updates
        begun = torch.cat([parameter.detach().flatten() for parameter in average.parameters])
        for epoch in range(3):
            steps = len(stepper.run_epoch(epoch, 3, seed=epoch))
        assert average.updates == 3 * steps
        changes[captured] = torch.cat([weight.flatten() for weight in average.averages]) - begun
        raw = torch.cat([parameter.detach().flatten() for parameter in average.parameters]) - begun
    difference = (changes[False] - changes[True]).norm()
    assert difference < 0.02 * changes[False].norm()
    assert difference < 0.2 * (raw - changes[True]).norm()  # smaller than that to the raw weights


def test_capture_leaves_the_weights_unchanged(make_model: Any, pendulum: Dataset) -> None:
    model, phase = prepare(make_model, pendulum)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    stepper = stepper_of(model, phase, pendulum, True)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(
        not value.any() for value in stepper.state().values()
    )  # the moments and step counts too


def test_captured_run_resumes(
    make_model: Any, pendulum: Dataset, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import intervae.training.loop as loop

    whole = (
        make_model("causal-vae", pendulum, epochs=4).fit(pendulum, seed=1, device="cuda").history
    )
    write, calls = loop.save_checkpoint, 0

    def stop(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        write(*arguments)

    monkeypatch.setattr(loop, "save_checkpoint", stop)
    options = {
        "seed": 1,
        "device": "cuda",
        "out": tmp_path / "run",
        "checkpoint_seconds": 0,
        "tensorboard": False,
    }
    with pytest.raises(KeyboardInterrupt):
        make_model("causal-vae", pendulum, epochs=4).fit(pendulum, **options)
    resumed = (
        make_model("causal-vae", pendulum, epochs=4).fit(pendulum, resume=True, **options).history
    )
    for one, other in zip(whole, resumed, strict=True):
        assert one["train"] == pytest.approx(other["train"], rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_captured_training_learns(precision: str, make_model: Any, pendulum: Dataset) -> None:
    history = (
        make_model("causal-vae", pendulum, epochs=20)
        .fit(pendulum, device="cuda", precision=precision)
        .history
    )
    assert history[-1]["validation"]["loss"] < 0.9 * history[0]["validation"]["loss"]


@pytest.mark.parametrize("optimiser", ["adagrad", "rmsprop", "sgd"])
def test_optimisers_that_cannot_be_captured_run_eagerly(
    optimiser: Any, make_model: Any, pendulum: Dataset
) -> None:
    model, _ = prepare(make_model, pendulum)
    phase = Phase(
        "joint",
        (Player(model.loss, optimiser=optimiser, learning_rate=1e-5),),
        epochs=1,
        batch_size=16,
    )
    stepper = stepper_of(model, phase, pendulum, True)
    assert stepper.graph is None
    assert torch.isfinite(stepper.run_epoch(0, 1, seed=0)).all()
    saved = stepper.state()
    again = stepper_of(model, phase, pendulum, True)
    again.load_state(saved)
    assert all(torch.equal(value, again.state()[key]) for key, value in saved.items())
    again.run_epoch(0, 1, seed=1)
