"""Captures share a GPU, and replayed calls equal plain ones."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intervae import cuda_graphs as module
from intervae.cuda_graphs import MOST_GRAPHS, Replays, capture_stream
from small_mechanisms import batch, make


class Streams:
    """A stand-in for torch.cuda: `current` is what the calling thread works on."""

    def __init__(self) -> None:
        self.default = self.current = object()
        self.made: list[object] = []

    def current_stream(self, device: Any) -> object:
        return self.current

    def default_stream(self, device: Any) -> object:
        return self.default

    def Stream(self, device: Any) -> object:  # noqa: N802
        self.made.append(object())
        return self.made[-1]


def test_capture_uses_the_current_stream_or_one_fixed_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new stream for each capture could be one of another run: torch has a pool of 32."""
    streams, device = Streams(), torch.device("cuda", 0)
    monkeypatch.setattr(module.torch, "cuda", streams)
    monkeypatch.setattr(module, "_CAPTURE_STREAMS", {})
    chosen = [capture_stream(device) for _ in range(40)]
    assert chosen == [streams.made[0]] * 40
    streams.current = own = object()
    assert [capture_stream(device) for _ in range(3)] == [own] * 3
    assert len(streams.made) == 1


class Scale(nn.Module):
    """y = w x, and x + y; counts the calls of the function."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 2.0))
        self.replays, self.calls = Replays(), 0

    def forward(self, x: Tensor, factor: float = 1.0) -> tuple[Tensor, ...]:
        def scaled(x: Tensor) -> tuple[Tensor, ...]:
            self.calls += 1
            y = factor * self.weight * x
            return y, x + y

        return self.replays(self, "scaled", scaled, x, constants=factor)


def test_on_a_cpu_every_call_is_a_plain_one() -> None:
    model, x = Scale(), torch.ones(2, 3)
    for _ in range(3):
        with torch.no_grad():
            y, total = model(x)
        assert torch.equal(y, 2 * x)
        assert torch.equal(total, 3 * x)
    assert model.calls == 3
    assert not model.replays.graphs


def test_gradients_and_functorch_are_left_alone() -> None:
    model = Scale()
    model(torch.ones(2, 3))[0].sum().backward()
    assert model.weight.grad is not None
    with torch.no_grad():
        assert torch.equal(
            torch.func.vmap(lambda x: model(x)[0])(torch.ones(4, 2, 3)), 2 * torch.ones(4, 2, 3)
        )


class Echo:
    """Stands for a captured graph."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def replay(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return self.function(*tensors)


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Captures on a CPU, with stand-ins for graphs; the conditions are the shapes."""
    made: list[Any] = []

    def capture(function: Any, tensors: tuple[Tensor, ...]) -> Any:
        made.append(tensors[0].shape)
        return module._State.PLAIN if len(tensors[0]) == 1 else Echo(function)

    monkeypatch.setattr(module, "_Graph", Echo)
    monkeypatch.setattr(module, "_can_replay", lambda tensors: True)
    monkeypatch.setattr(module, "_conditions", lambda owner, tensors: tensors[0].shape)
    monkeypatch.setattr(module, "_capture", capture)
    return made


@torch.no_grad()
def test_the_second_call_of_a_shape_is_captured_once(captures: list[Any]) -> None:
    model = Scale()
    for _ in range(4):
        assert torch.equal(model(torch.ones(2, 3))[0], 2 * torch.ones(2, 3))
    assert captures == [(2, 3)]
    for _ in range(3):
        model(torch.ones(2, 3), factor=2.0)
    assert len(captures) == 2


@torch.no_grad()
def test_what_cannot_be_captured_is_tried_once(captures: list[Any]) -> None:
    model = Scale()
    for _ in range(4):
        assert torch.equal(model(torch.ones(1, 3))[0], 2 * torch.ones(1, 3))
    assert captures == [(1, 3)]


@torch.no_grad()
def test_the_oldest_graphs_are_dropped(captures: list[Any]) -> None:
    model = Scale()
    for rows in range(2, 2 + 2 * MOST_GRAPHS):
        for _ in range(2):
            model(torch.ones(rows, 3))
    assert len(model.replays.graphs) == MOST_GRAPHS
    model(torch.ones(2 + 2 * MOST_GRAPHS - 1, 3))
    assert len(captures) == 2 * MOST_GRAPHS
    model(torch.ones(2, 3))
    model(torch.ones(2, 3))
    assert len(captures) == 2 * MOST_GRAPHS + 1


def test_a_copy_of_a_module_has_graphs_of_its_own() -> None:
    model = Scale()
    other = copy.deepcopy(model)  # by the protocol of pickle
    assert other.replays.graphs is not model.replays.graphs
    with torch.no_grad():
        assert torch.equal(other(torch.ones(2, 3))[0], 2 * torch.ones(2, 3))


def test_a_module_is_freed_without_a_collection() -> None:
    model = Scale()
    alive = weakref.ref(model)
    gc.disable()
    try:
        del model
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.gpu
@torch.no_grad()
def test_replays_equal_plain_calls() -> None:
    model = Scale().to("cuda")
    for call in range(4):
        x = torch.full((2, 3), float(call), device="cuda")
        y, total = model(x)
        assert torch.equal(y, 2 * x)
        assert torch.equal(total, 3 * x)
    assert model.calls == 3  # a plain one, a warm-up and the capture
    first = model(x)[0]
    model(x + 1)
    assert torch.equal(first, 2 * x)  # an answer is not overwritten


@pytest.mark.gpu
@torch.no_grad()
def test_weights_constants_and_shapes_may_change() -> None:
    model = Scale().to("cuda")
    x = torch.ones(2, 3, device="cuda")

    def check(value: float, **options: Any) -> None:
        for _ in range(3):
            assert torch.equal(model(x, **options)[0], torch.full_like(x, value))

    check(2.0)
    model.weight.fill_(5.0)  # in place
    check(5.0)
    model.weight.data = torch.full((3,), 7.0, device="cuda")
    check(7.0)
    check(14.0, factor=2.0)
    for rows in range(2 * MOST_GRAPHS):
        x = torch.ones(rows + 1, 3, device="cuda")
        check(7.0)
    assert len(model.replays.graphs) == MOST_GRAPHS


@pytest.mark.gpu
def test_under_autocast_and_in_inference_mode_calls_are_plain() -> None:
    """A capture would keep the weights that autocast rounded before."""
    model, x = Scale().to("cuda"), torch.ones(2, 3, device="cuda")
    for value in (2.0, 3.0, 4.0):
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            model.weight.fill_(value)
            assert torch.equal(model(x)[0].float(), value * x)
        with torch.inference_mode():
            assert torch.equal(model(x)[0], value * x)
    assert not model.replays.graphs


@pytest.mark.gpu
@torch.no_grad()
def test_a_function_that_waits_for_the_gpu_is_called_as_it_is() -> None:
    replays, module = Replays(), nn.Linear(1, 1).to("cuda")

    def waiting(x: Tensor) -> tuple[Tensor, ...]:
        return (x + x.sum().item(),)

    for _ in range(4):
        (answer,) = replays(module, "waiting", waiting, torch.ones(2, device="cuda"))
        assert torch.equal(answer.cpu(), torch.full((2,), 3.0))


PICTURES: list[tuple[str, dict[str, Any]]] = [
    ("vae", {}),
    ("hvae", {}),
    ("flow", {"flow_guidance": 2.0, "flow_hidden_classes": 0.1, "classes": [slice(0, 1)]}),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("picture", "options"), PICTURES)
@torch.no_grad()
def test_counterfactuals_of_pictures_are_the_same_when_they_are_replayed(
    picture: str, options: dict[str, Any]
) -> None:
    shape = (1, 28, 28)
    mechanism = make(picture, shape, **options).to("cuda").eval()
    images, own = (tensor.to("cuda") for tensor in batch(shape))
    new = own.flip(0)
    answers = [mechanism.predict(mechanism.abduct(images, own), new, factual=own) for _ in range(4)]
    assert mechanism.replays.graphs
    for answer in answers[1:]:
        torch.testing.assert_close(answer, answers[0], rtol=1e-4, atol=1e-4)
