"""The causal layer (Eq. 1), the mask layer on top of it (Eq. 2) and the mechanism fit l_m (Eq. 12).

Base class of CausalVAE and CausalVAE-unsup. Eq. 1 itself is `causal/linear.py`. Of Eq. 2, the
networks g_i are `causal/mask_layer.py: MaskLayer` and `models/causal.py: CausalModel` adds eps_i.
Equations are those of Yang et al., CVPR 2021.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from intervae.causal.graph import CausalGraph
from intervae.causal.linear import inverse_and_log_det, structural_matrix, to_endogenous
from intervae.causal.mask_layer import MaskLayer
from intervae.models.causal_vae.concepts import ConceptModel
from intervae.models.causal_vae.settings import CausalLayerSettings


class CausalLayer(ConceptModel):
    """Concepts with causal effects on each other: z = (I - A^T)^-1 eps with A (n, n) on `support`.

    A subclass sets `mechanisms` and calls `make_adjacency` in `build`. With `mechanisms = None`
    effects follow the linear layer alone.
    """

    settings: CausalLayerSettings
    mechanisms: MaskLayer | None
    support: Tensor

    def make_mechanisms(self) -> MaskLayer:
        settings = self.settings
        return MaskLayer(
            len(self.latent_names),
            self.dims,
            hidden=settings.mechanism_hidden,
            parents=settings.mechanism_input,
        )

    def make_adjacency(self) -> None:
        n = len(self.latent_names)
        self.adjacency = nn.Parameter(torch.zeros(n, n))  # A[j, i], strength of j -> i
        self.register_buffer("support", 1 - torch.eye(n))

    # ---- model ---------------------------------------------------------------------------------
    @property
    def weights(self) -> Tensor:
        """A (n, n) on its support, which excludes the diagonal."""
        return self.adjacency * self.support

    @property
    def mask(self) -> Tensor:
        """Edge weights (n, n) of the mask layer, Eq. 2: A."""
        return self.weights

    def endogenous(self, exogenous: Tensor) -> Tensor:
        """z = (I - A^T)^-1 eps, Eq. 1."""
        return to_endogenous(exogenous, self.weights)

    def log_det(self) -> Tensor:
        """log |det (I - A^T)|; 0 for a DAG, not for a graph with cycles during training."""
        return inverse_and_log_det(structural_matrix(self.weights))[1]

    def mechanism_fit(self, z: Tensor) -> Tensor:
        """l_m, Eq. 12: squared error of the mask layer's prediction of z (B, n, k).

        Concepts without parents are left out. z is detached unless `mechanism_gradient_to_latents`.
        """
        assert self.mechanisms is not None
        z = z if self.settings.mechanism_gradient_to_latents else z.detach()
        has_parents = (self.support.sum(0) > 0).to(z.dtype)  # (n,)
        return ((z - self.mechanisms(z, self.mask)).square().sum(2) * has_parents).sum(1).mean()

    def state_to_log(self) -> dict[str, Any]:
        return {"adjacency": self.weights.detach().cpu().tolist()}

    # ---- queries -------------------------------------------------------------------------------
    @property
    def graph(self) -> CausalGraph:
        """A above `edge_threshold`; the weakest edge of each cycle is removed."""
        return (
            CausalGraph(self.latent_names, self.weights.detach().double().cpu().numpy())
            .threshold(self.settings.edge_threshold)
            .to_acyclic()
        )

    @property
    def graph_mask(self) -> Tensor:
        """Adjacency of `graph`, (n, n) of 0 and 1."""
        return torch.as_tensor(self.graph.adjacency, dtype=self.adjacency.dtype, device=self.device)

    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        """g_i of the parents in `graph`, (B, k); A_i^T z without a mask layer; 0 for a root."""
        if not self.graph.parents(self.latent_names[index]):
            return torch.zeros_like(latents[:, index])
        edges = self.graph_mask
        if self.mechanisms is None:
            return torch.einsum("j,bjk->bk", self.weights[:, index] * edges[:, index], latents)
        return self.mechanisms.forward_one(index, latents, self.mask * edges)
