"""Variables of a deep structural causal model whose graph is set after construction.

The shapes of the networks do not depend on the graph: every mechanism takes the features of all
variables, and a buffer masks those that are no parents. A graph can thus be learned in training and
is stored with the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from intervae.causal.graph import CausalGraph
from intervae.causal.structural_causal_model import Noises, StructuralCausalModel
from intervae.causal.variable_mechanisms import make_mechanism
from intervae.causal.variable_types import NamedVariable, encode_values


class GraphVariables(StructuralCausalModel):
    """A `StructuralCausalModel` without edges until `set_graph` sets them.

    Arguments:
        variables: the columns of the values; those with `ordered` have ordinal mechanisms.
        options: bins, hidden and depth of `StructuralCausalModel`.
    """

    edges: Tensor
    feature_owner: Tensor

    def __init__(self, variables: Sequence[NamedVariable], **options: int) -> None:
        names = [variable.name for variable in variables]
        super().__init__(CausalGraph.empty(names), variables, **options)
        widths = [self.types[name].width for name in names]
        self.mechanisms = nn.ModuleList(
            make_mechanism(self.types[name], sum(widths), **options) for name in names
        )
        # weights of the edges, cause x effect; 0 is no edge
        self.register_buffer("edges", torch.zeros(len(names), len(names)))
        owners = torch.repeat_interleave(torch.arange(len(names)), torch.tensor(widths))
        self.register_buffer("feature_owner", owners, persistent=False)
        self.register_load_state_dict_post_hook(_read_edges)

    def set_graph(self, graph: CausalGraph) -> None:
        """Set the edges; `graph` is acyclic, over the same names in any order."""
        weights = torch.tensor(graph.subgraph(self.names).weights, dtype=self.edges.dtype)
        with torch.no_grad():
            self.edges.copy_(weights)
        self.read_edges()

    def read_edges(self) -> None:
        """Update `graph`, `parents` and `order`, which queries use, from the buffer."""
        self.graph = CausalGraph(self.names, self.edges.double().cpu().numpy())
        self.order = tuple(self.graph.topological_order)  # raises an error for a cycle
        self.parents = {name: tuple(self.graph.parents(name)) for name in self.names}

    # ---- what the loss uses reads the buffer, so that models can be stacked ---------------------
    def scored(self, mask: Tensor) -> Tensor:
        """Return where a variable and all its parents are known, (B, n), of where each is."""
        missing_parents = (~mask).to(self.edges.dtype) @ (self.edges != 0).to(self.edges.dtype)
        return mask & (missing_parents == 0)

    def _features(self, name: str, values: Mapping[str, Tensor], rows: int) -> Tensor:
        """Return the features (rows, f) of all variables, 0 where they are no parents."""
        like = next(iter(values.values())) if values else self.edges
        zeros = torch.zeros(rows, dtype=self.edges.dtype, device=like.device)
        columns = torch.stack([values.get(each, zeros) for each in self.names], dim=1)
        features = encode_values(columns, [self.types[each] for each in self.names])
        is_parent = (self.edges[:, self.names.index(name)] != 0)[self.feature_owner]
        return torch.where(is_parent, features, 0.0)

    # ---- noises --------------------------------------------------------------------------------
    def median(self, name: str, values: Tensor) -> Tensor:
        """Return the median of a variable given its parents, (B,).

        Of classes without an order it is the most probable one.
        """
        columns = dict(zip(self.names, values.unbind(1), strict=True))
        noise = values.new_zeros(values.shape[0], *self._noise_shape(name))
        return self.mechanism(name).predict(noise, self._features(name, columns, values.shape[0]))

    def pack(self, noises: Noises) -> Tensor:
        """Return noises as one tensor (B, n, k), filled up with 0."""
        columns = [noises[name].reshape(len(noises[name]), -1) for name in self.names]
        k = max(column.shape[1] for column in columns)
        return torch.stack([pad(column, (0, k - column.shape[1])) for column in columns], dim=1)

    def unpack(self, packed: Tensor) -> Noises:
        """Return the noises of a tensor (B, n, k) from `pack`."""
        noises = {}
        for name, column in zip(self.names, packed.unbind(1), strict=True):
            shape = self._noise_shape(name)
            noises[name] = column[:, : shape[0]] if shape else column[:, 0]
        return noises

    def _noise_shape(self, name: str) -> tuple[int, ...]:
        kind = self.types[name]
        return (kind.classes,) if kind.kind in ("binary", "categorical") else ()


def _read_edges(module: Any, _: Any) -> None:
    """Read the edges after the weights were loaded."""
    module.read_edges()
