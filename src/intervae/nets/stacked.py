"""Several networks of one shape with stacked parameters, trained in one step.

With an elementwise optimiser (Adam, Adagrad, SGD without clipping), the sum of the losses trains
each network as if it were alone.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap


class Stacked(nn.Module):
    """R networks of one shape; parameters and buffers are stacks (R, ...).

    `select` drops networks, so that only the others are in memory and in files.
    """

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        super().__init__()
        stacks, buffers = stack_module_state(list(networks))
        self.stacks = nn.ParameterDict(
            {_flat(name): nn.Parameter(stack.detach()) for name, stack in stacks.items()}
        )
        self.fixed = nn.Module()
        for name, buffer in buffers.items():
            self.fixed.register_buffer(_flat(name), buffer.clone())
        # in a tuple, so that the template is not registered as a submodule
        self._template = (copy.deepcopy(networks[0]).to("meta"),)

    def __len__(self) -> int:
        return len(next(iter(self.stacks.values())))

    def _tensors(self) -> dict[str, Tensor]:
        return {
            name.replace("/", "."): tensor
            for name, tensor in [*self.stacks.items(), *self.fixed.named_buffers()]
        }

    def forward(self, inputs: Tensor, own: bool = False) -> Any:
        """Return outputs (R, B, ...).

        Arguments:
            inputs: (B, ...), shared by all networks, or with `own` (R, B, ...), one per network.
        """

        def apply(tensors: dict[str, Tensor], network_inputs: Tensor) -> Any:
            return functional_call(self._template[0], tensors, (network_inputs,))

        return vmap(apply, in_dims=(0, 0 if own else None))(self._tensors(), inputs)

    def network_state(self, index: int) -> dict[str, Tensor]:
        """Return the state_dict of one network."""
        return {name: tensor[index].detach() for name, tensor in self._tensors().items()}

    @torch.no_grad()
    def set_network(self, index: int, network: nn.Module) -> None:
        """Copy the tensors of a network of the same shape to position `index`."""
        state = network.state_dict()
        for name, tensor in self._tensors().items():
            tensor[index] = state[name]

    @torch.no_grad()
    def select(self, indices: Sequence[int]) -> None:
        """Keep only these networks, in this order; without any, the stacks are empty."""
        for tensor in self._tensors().values():
            tensor.data = tensor.data[list(indices)].clone()


def _flat(name: str) -> str:
    return name.replace(".", "/")
