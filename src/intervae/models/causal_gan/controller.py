"""Causal controller of CausalGAN (sec. 4): one network per label on the known graph."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from intervae.causal.graph import CausalGraph
from intervae.data import Spec
from intervae.models.causal_gan.settings import CausalGANSettings
from intervae.nets.adversarial import leaky_mlp


class CausalController(nn.Module):
    """Mechanisms of the labels: each is a network of its parents' labels and its own noise.

    Labels are normalised: binary ones are -1 or +1 (in between unless `hard`), continuous ones
    standardised.
    """

    def __init__(self, spec: Spec, graph: CausalGraph, settings: CausalGANSettings) -> None:
        super().__init__()
        self.binary = [v.kind == "binary" for v in spec.variables]
        self.order = [graph.index(name) for name in graph.topological_order]
        self.parents = [
            [graph.index(parent) for parent in graph.parents(name)] for name in graph.names
        ]
        hidden, layers = settings.controller_hidden, settings.controller_layers
        self.nets = nn.ModuleList(
            leaky_mlp(len(parents) + settings.controller_noise, hidden, layers, 1)
            for parents in self.parents
        )

    def mechanism(self, i: int, labels: Mapping[int, Tensor], noise: Tensor, hard: bool) -> Tensor:
        """Return label i (B,) from its parents' labels (B,) and the noises (B, n, d).

        A `hard` binary label is -1 or +1.
        """
        parents = [labels[j][:, None] for j in self.parents[i]]
        output = self.nets[i](torch.cat([*parents, noise[:, i]], dim=1)).squeeze(1)
        if not self.binary[i]:
            return output
        return 2 * (output > 0).to(output.dtype) - 1 if hard else 2 * torch.sigmoid(output) - 1

    def forward(self, noise: Tensor, hard: bool = False) -> Tensor:
        """Noises (B, n, d) to labels (B, n), in topological order."""
        labels: dict[int, Tensor] = {}
        for i in self.order:
            labels[i] = self.mechanism(i, labels, noise, hard)
        return torch.stack([labels[i] for i in range(len(labels))], dim=1)
