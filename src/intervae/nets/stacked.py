"""Several networks of one shape in one: their parameters are stacks, so that a step of all of them costs the launches of one step.

With an optimiser that treats every number on its own (Adam, Adagrad, SGD without clipping) the sum of their losses trains each as if it were alone.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap


class Stacked(nn.Module):
    """R networks with parameters of their own, shapes (R, ...); networks with buffers are not for this.

    Once one of them was chosen, `clear` leaves nothing of the others, in memory and in what is stored.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        stacks, buffers = stack_module_state(list(networks))
        assert not buffers
        self.stacks = nn.ParameterDict({name.replace(".", "/"): nn.Parameter(stack.detach()) for name, stack in stacks.items()})
        self._shape = (copy.deepcopy(networks[0]).to("meta"),)  # in a tuple, so that it is no part of this module

    def __len__(self) -> int:
        return len(next(iter(self.stacks.values())))

    def forward(self, inputs: Tensor, own: bool = False) -> Tensor:
        """Outputs (R, B, ...) of inputs (B, ...) that all networks share or, with `own`, (R, B, ...)."""

        def one(parameters: dict[str, Tensor], some: Tensor) -> Any:
            return functional_call(self._shape[0], parameters, (some,))

        stacks = {name.replace("/", "."): stack for name, stack in self.stacks.items()}
        return vmap(one, in_dims=(0, 0 if own else None))(stacks, inputs)

    def network(self, index: int) -> dict[str, Tensor]:
        """The parameters of one of them, as its `load_state_dict` takes them."""
        return {name.replace("/", "."): stack[index].detach() for name, stack in self.stacks.items()}

    @torch.no_grad()
    def clear(self) -> None:
        """Leave stacks of no networks."""
        for stack in self.stacks.values():
            stack.data = stack.data[:0].clone()
