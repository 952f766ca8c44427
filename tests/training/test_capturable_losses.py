"""Losses that a GPU runs in a captured step read nothing from the host, shown without a GPU.

While a CUDA graph is captured, a tensor made of Python numbers, such as the list in `x[[0, 1]]`,
is a copy from the host, and a size or number that depends on values, such as `nonzero`, waits for
the device. Both are errors there, and pass unnoticed on a CPU.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from intervae.data import Batch
from intervae.models import MODELS
from intervae.models.phases import Terms
from intervae.testing import ModelCase, ramps
from intervae.training.optimisers import CAPTURABLE
from intervae.training.stepper import Stepper
from quick_settings import QUICK

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "repeat_interleave.Tensor")


class HostReads(TorchDispatchMode):
    """Collects the lines of code that a captured step could not run."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        name = str(function)
        # a tensor without axes stays on the host and is read as a number
        copies = "lift_fresh" in name and result.ndim > 0
        if copies or any(wait in name for wait in WAITS) or _has_mask(name, args):
            frames = [f for f in traceback.extract_stack() if "/intervae/" in f.filename]
            line = (frames[-1].line if frames else "") or ""
            if "one_hot(" not in line:  # it reads its argument on a CPU only
                self.lines.append(f"{name}: {line}")
        return result


def _has_mask(name: str, args: Any) -> bool:
    """Whether an operation is an index by booleans, the size of which depends on values."""
    if "aten.index.Tensor" not in name:
        return False
    return any(index is not None and index.dtype == torch.bool for index in args[1])


def record_losses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Watch the losses of captured steps from their second call on; return the list of faults."""
    faults: list[str] = []
    make = Stepper.__init__

    def watched(loss: Callable[..., Terms]) -> Callable[..., Terms]:
        calls = 0

        def run(batch: Batch, generator: torch.Generator | None = None) -> Terms:
            nonlocal calls
            calls += 1
            if calls == 1:  # eager steps before the capture may fill caches
                return loss(batch, generator)
            with HostReads() as reads:
                terms = loss(batch, generator)
            faults.extend(reads.lines)
            return terms

        return run

    def make_watched(self: Stepper, model: Any, phase: Any, *args: Any, **options: Any) -> None:
        if all(player.optimiser in CAPTURABLE for player in phase.players):
            players = [dataclasses.replace(p, loss=watched(p.loss)) for p in phase.players]
            phase = dataclasses.replace(phase, players=tuple(players))
        make(self, model, phase, *args, **options)

    monkeypatch.setattr(Stepper, "__init__", make_watched)
    return faults


@pytest.mark.parametrize("name", list(MODELS))
def test_losses_read_nothing_from_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = record_losses(monkeypatch)
    case = ModelCase(MODELS[name], QUICK.get(name, lambda data: {}), frozenset())
    data = case.data()
    case.model(data, **case.epochs(1)).fit(data)
    assert not faults


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "layers": ("causal-vae", {"decoder": "layers", "layers": "a+b,c", "layer_pixels": 32}),
    "layers, all pixels": ("causal-vae", {"decoder": "layers", "layers": "a,b", "layer_hidden": 8}),
    "layers, rest": ("causal-vae", {"decoder": "layers", "layers": "a,b", "rest": 2}),
    "rest": ("causal-vae", {"rest": 2}),
    "flow": ("deep-scm", {"picture": "flow", "flow_widths": (8,), "mirrored": True}),
    "flow, hidden classes": (
        "deep-scm",
        {"picture": "flow", "flow_widths": (8,), "flow_hidden_classes": 0.1},
    ),
    "hvae": ("deep-scm", {"picture": "hvae", "widths": (4, 8), "layers": (1,)}),
    "counterfactual training": ("deep-scm", {"counterfactual_weight": 1.0}),
}


@pytest.mark.parametrize("option", list(OPTIONS))
def test_losses_with_options_read_nothing_from_the_host(
    option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = record_losses(monkeypatch)
    name, settings = OPTIONS[option]
    kinds = ("continuous", "binary", "categorical" if name == "deep-scm" else "continuous")
    data = ramps(kinds=kinds)
    small = {"channels": (8, 8), "hidden": 16, "batch_size": 16, "epochs": 1}
    MODELS[name](data.spec, graph=data.graph, **small, **settings).fit(data)
    assert not faults


def test_a_list_as_index_and_a_read_number_are_found() -> None:
    x = torch.arange(6.0).reshape(3, 2)

    def faults(function: Callable[[], Any]) -> int:
        with HostReads() as reads:
            function()
        return len(reads.lines)

    assert faults(lambda: x[[0, 1]]) == 1
    assert faults(lambda: x[0, 0].item()) == 1
    assert faults(lambda: x[x > 1]) == 1

    def harmless() -> Tensor:
        y = x[1] * 2.0
        y[0] = 3.0
        return torch.where(y > 0, y, 0.0)

    assert faults(harmless) == 0
