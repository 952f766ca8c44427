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
    """R networks with parameters and buffers of their own, shapes (R, ...).

    `keep` leaves some of them, or none, in memory and in what is stored.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        stacks, buffers = stack_module_state(list(networks))
        self.stacks = nn.ParameterDict({_flat(name): nn.Parameter(stack.detach()) for name, stack in stacks.items()})
        self.fixed = nn.Module()
        for name, buffer in buffers.items():
            self.fixed.register_buffer(_flat(name), buffer.clone())
        self._shape = (copy.deepcopy(networks[0]).to("meta"),)  # in a tuple, so that it is no part of this module

    def __len__(self) -> int:
        return len(next(iter(self.stacks.values())))

    def _tensors(self) -> dict[str, Tensor]:
        return {name.replace("/", "."): tensor for name, tensor in [*self.stacks.items(), *self.fixed.named_buffers()]}

    def forward(self, inputs: Tensor, own: bool = False) -> Any:
        """Outputs (R, B, ...) of inputs (B, ...) that all networks share or, with `own`, (R, B, ...)."""

        def one(tensors: dict[str, Tensor], some: Tensor) -> Any:
            return functional_call(self._shape[0], tensors, (some,))

        return vmap(one, in_dims=(0, 0 if own else None))(self._tensors(), inputs)

    def network(self, index: int) -> dict[str, Tensor]:
        """The tensors of one of them, as its `load_state_dict` takes them."""
        return {name: tensor[index].detach() for name, tensor in self._tensors().items()}

    @torch.no_grad()
    def put(self, index: int, network: nn.Module) -> None:
        """Take the tensors of a network of the same shape in the place of one of them."""
        state = network.state_dict()
        for name, tensor in self._tensors().items():
            tensor[index] = state[name]

    @torch.no_grad()
    def keep(self, indices: Sequence[int]) -> None:
        """Leave these networks alone, in this order; with none of them the stacks are empty."""
        for tensor in self._tensors().values():
            tensor.data = tensor.data[list(indices)].clone()


def _flat(name: str) -> str:
    return name.replace(".", "/")
