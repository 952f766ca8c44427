"""Noise of a loss under vmap: its draws are recorded once, then made outside and passed in.

vmap has no generator per run. A loss draws the same sequence of shapes in every step, so each run
makes these draws from its own generator, in the order in which its loss alone would make them, and
the vmapped loss receives them as an input with a leading axis of runs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


class StackError(Exception):
    """A loss that cannot be vmapped over runs; the text says why, as the end of a sentence."""


# functions whose result depends on the generator and on plain arguments only
FUNCTIONS = (torch.randn, torch.rand, torch.randint, torch.randperm)


class Draw(NamedTuple):
    """A call of a random function, without its generator."""

    function: Callable[..., Tensor]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def make(self, generator: torch.Generator) -> Tensor:
        return self.function(*self.args, generator=generator, **self.kwargs)


class _Draws(TorchFunctionMode):
    """Passes the random calls with `generator` to `draw`, and all others on."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    @abstractmethod
    def draw(self, call: Draw) -> Tensor:
        """Return what the loss gets for one draw of noise."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("generator") is not self.generator:
            return func(*args, **kwargs)
        others = {name: value for name, value in kwargs.items() if name != "generator"}
        tensors = [leaf for leaf in pytree.tree_leaves((args, others)) if isinstance(leaf, Tensor)]
        if func not in FUNCTIONS or tensors:
            name = getattr(func, "__name__", str(func))
            raise StackError(f"its loss draws noise with {name}, which depends on other tensors")
        return self.draw(Draw(func, args, others))


class RecordedDraws(_Draws):
    """Records the draws made in a `with` block in `calls`."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__(generator)
        self.calls: list[Draw] = []

    def draw(self, call: Draw) -> Tensor:
        self.calls.append(call)
        return call.make(self.generator)


class ReplayedDraws(_Draws):
    """Answers the draws of a `with` block with `values`, in the order of `calls`."""

    def __init__(
        self, generator: torch.Generator, calls: Sequence[Draw], values: Sequence[Tensor]
    ) -> None:
        super().__init__(generator)
        self.left = list(zip(calls, values, strict=True))

    def draw(self, call: Draw) -> Tensor:
        if not self.left or self.left[0][0] != call:
            raise StackError("its loss draws other noise from step to step")
        return self.left.pop(0)[1]


def draw_for_runs(calls: Sequence[Draw], generators: Sequence[torch.Generator]) -> list[Tensor]:
    """Return for each call the draws of all runs (R, ...), each run from its own generator."""
    runs = [[call.make(generator) for call in calls] for generator in generators]
    return [torch.stack(values) for values in zip(*runs, strict=True)]
