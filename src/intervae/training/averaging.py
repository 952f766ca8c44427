"""Exponential moving average of the trained parameters of a phase.

    average <- d average + (1 - d) parameter,  d = min(decay, (1 + t) / (10 + t))

t counts earlier updates. While d rises, the average reaches back about a tenth of the steps made
so far, so a short training is not held back by its first weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from intervae.models.base import Model
from intervae.training.optimisers import optimised_parameters


class WeightAverage:
    """Averages of the parameters that `optimisers` train; buffers have none.

    All tensors stay in place and on the device, so that an update can be captured in a CUDA graph.
    """

    def __init__(self, model: Model, optimisers: list[torch.optim.Optimizer], decay: float) -> None:
        trained = {id(p) for optimiser in optimisers for p in optimised_parameters(optimiser)}
        named = {name: p for name, p in model.named_parameters() if id(p) in trained}
        self.names = list(named)
        self.parameters: list[Tensor] = list(named.values())
        self.averages = [parameter.detach().clone() for parameter in self.parameters]
        device = self.parameters[0].device
        self.decay = torch.tensor(decay, device=device)
        self.updates = torch.zeros((), dtype=torch.int64, device=device)

    @torch.no_grad()
    def reset(self) -> None:
        """Start again from the present parameters."""
        torch._foreach_copy_(self.averages, self.parameters)
        self.updates.zero_()

    @torch.no_grad()
    def update(self) -> None:
        """Move the averages towards the parameters, after an optimiser step."""
        weight = 1 - torch.minimum(self.decay, (1 + self.updates) / (10 + self.updates))
        if weight.is_cuda:  # lerp by a tensor launches one kernel per parameter
            changes = torch._foreach_sub(self.parameters, self.averages)
            torch._foreach_mul_(changes, weight)
            torch._foreach_add_(self.averages, changes)
        else:
            torch._foreach_lerp_(self.averages, self.parameters, [weight] * len(self.averages))
        self.updates += 1

    @torch.no_grad()
    def load(self) -> None:
        """Replace the parameters by their averages."""
        torch._foreach_copy_(self.parameters, self.averages)

    @contextlib.contextmanager
    def loaded(self) -> Iterator[None]:
        """Replace the parameters by their averages within a `with` block."""
        before = [parameter.detach().clone() for parameter in self.parameters]
        self.load()
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, before)

    # ---- state in checkpoints -------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        """Return the averages and their number of updates under flat names."""
        averages = {f"weight.{name}": a for name, a in zip(self.names, self.averages, strict=True)}
        return {"updates": self.updates, **averages}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` returned; nothing if `tensors` is empty."""
        for name, tensor in self.state().items() if tensors else ():
            tensor.copy_(tensors[name])
