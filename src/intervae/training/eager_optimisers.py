"""torch's optimisers for eager and captured steps, without the import of torch.compile.

`add_param_group` and `step` of torch's optimisers import torch._dynamo, which takes a second or
two, only to let torch.compile skip them. Here the functions inside these wrappers are called. The
arithmetic is theirs.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

_add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)


class EagerOptimiser(torch.optim.Optimizer):
    """Mixin, to be named before a class of torch.optim."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        _add_param_group(self, param_group)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step."""
        wrapped = super().step
        return inspect.unwrap(wrapped.__func__)(self, closure)  # type: ignore[attr-defined]


class Adam(EagerOptimiser, torch.optim.Adam):
    """torch.optim.Adam."""


class AdamW(EagerOptimiser, torch.optim.AdamW):
    """torch.optim.AdamW."""


class Adagrad(EagerOptimiser, torch.optim.Adagrad):
    """torch.optim.Adagrad."""


class RMSprop(EagerOptimiser, torch.optim.RMSprop):
    """torch.optim.RMSprop."""


class SGD(EagerOptimiser, torch.optim.SGD):
    """torch.optim.SGD."""
