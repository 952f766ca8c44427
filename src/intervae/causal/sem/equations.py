"""A structural equation model (SEM) with additive Gaussian noise as a prior density.

z_i = f_i(z_1 ... z_{i-1}) + n_i, n_i ~ N(0, sigma_i^2): Eq. 5 and 6 of the causal-prior VAE.
The variables have a fixed order; `allowed[j, i]` is 1 where the edge j -> i may exist, only for
j < i. Learned edges have one logit each and are sampled as binary concrete variables (the paper's
Gumbel masks, sec. 4.5). No method synchronises with the host, so a CUDA graph captures them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from intervae.causal.gaussian import log_normal
from intervae.causal.graph import CausalGraph
from intervae.causal.sem.networks import MechanismNetworks
from intervae.errors import UsageError

Form = Literal["linear", "quadratic", "mlp"]


class SEM(nn.Module):
    """Mechanisms f, noise scales sigma and edges over d variables.

    Every method is a pure function of the parameters and its arguments. Their argument `edges` is
    (d, d), edge strengths in the orientation of `allowed`; None is all allowed edges at strength 1.

    Arguments:
        allowed: (d, d) of 0 and 1, strictly upper triangular; `allowed[j, i]` allows j -> i.
        form: "linear", f_i = b_i + sum_j w_ji e_ji z_j with learned w, and b = 0 without
            `intercepts`;
            "quadratic", f_i = sum_j e_ji z_j^2 without parameters (the paper's parabola);
            "mlp", one network per child, see `MechanismNetworks`. e are the edge strengths.
        scales: (d,) initial sigma, positive; None is 1.
        learn_scales: whether sigma is learned.
        learn_edges: whether each allowed edge has a logit; without it all of them exist.
        intercepts: whether linear equations have learned constants b.
        temperature: temperature of the binary concrete edges.
        edge_logit: initial logit of each edge.
        hidden: hidden units of each network of "mlp".
    """

    allowed: Tensor
    levels: Tensor
    log_scales: Tensor
    intercepts: Tensor | None

    def __init__(
        self,
        allowed: Tensor,
        *,
        form: Form = "linear",
        scales: Sequence[float] | None = None,
        learn_scales: bool = True,
        learn_edges: bool = True,
        intercepts: bool = False,
        temperature: float = 0.5,
        edge_logit: float = 2.0,
        hidden: int = 32,
    ) -> None:
        super().__init__()
        allowed = _check_allowed(allowed)
        if form not in get_args(Form):
            forms = ", ".join(map(repr, get_args(Form)))
            raise UsageError(f"form={form!r} of a SEM is unknown; use one of {forms}.")
        if not temperature > 0:
            raise UsageError(f"the temperature of edges must be positive, not {temperature}.")
        if hidden < 1:
            raise UsageError(f"a mechanism needs at least 1 hidden unit, not hidden={hidden}.")
        if intercepts and form != "linear":
            raise UsageError(f"intercepts need linear equations, not form={form!r}.")
        self.d, self.form = len(allowed), form
        self.temperature, self.learn_edges = temperature, learn_edges
        self.intercepts = None
        self.register_buffer("allowed", allowed)
        self.register_buffer("levels", _levels(allowed), persistent=False)  # (L, d) bool
        log_scales = _log_scales(scales, self.d)
        if learn_scales:
            self.log_scales = nn.Parameter(log_scales)
        else:
            self.register_buffer("log_scales", log_scales)
        if learn_edges:
            self.edge_logits = nn.Parameter(edge_logit * allowed)
        if form == "linear":
            self.weights = nn.Parameter(0.1 * torch.randn(self.d, self.d) * allowed)
            if intercepts:
                self.intercepts = nn.Parameter(torch.zeros(self.d))
        elif form == "mlp":
            self.networks = MechanismNetworks(allowed, hidden)

    # ---- edges ---------------------------------------------------------------------------------
    def edge_probabilities(self) -> Tensor:
        """(d, d): sigmoid of the logits where an edge is allowed, else 0."""
        return torch.sigmoid(self.edge_logits) * self.allowed if self.learn_edges else self.allowed

    def sample_edges(self, generator: torch.Generator | None = None) -> Tensor:
        """(d, d) in [0, 1]: one relaxed Bernoulli draw per edge, shared by the batch.

        sigmoid((logit + log u - log(1 - u)) / temperature) with u ~ U(0, 1), differentiable in the
        logits. Rounded, it is 1 with the probability of the edge at every temperature.
        """
        if not self.learn_edges:
            return self.allowed
        like = self.allowed
        uniform = torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)
        logits = self.edge_logits + torch.logit(uniform, eps=1e-6)
        return torch.sigmoid(logits / self.temperature) * self.allowed

    def hard_edges(self, threshold: float = 0.5) -> Tensor:
        """(d, d) of 0 and 1: the edges more probable than `threshold`."""
        return (self.edge_probabilities() > threshold).to(self.allowed.dtype)

    def expected_edges(self) -> Tensor:
        """0-dim: the expected number of edges, the sparsity penalty |G(f)|."""
        return self.edge_probabilities().sum()

    def graph(self, names: Sequence[str], threshold: float = 0.5) -> CausalGraph:
        """The graph of the edges more probable than `threshold`.

        Its weights are the coefficients of a linear SEM, and the edge probabilities of others.
        """
        strengths = self.weights if self.form == "linear" else self.edge_probabilities()
        weights = (strengths * self.hard_edges(threshold)).detach().cpu().double().numpy()
        return CausalGraph(tuple(names), weights)

    @property
    def coupled(self) -> tuple[int, ...]:
        """Indices of the variables with an allowed edge, in or out."""
        has_edge = (self.allowed.sum(0) + self.allowed.sum(1)) > 0
        return tuple(has_edge.nonzero().flatten().tolist())

    # ---- mechanisms ----------------------------------------------------------------------------
    def mean(self, z: Tensor, edges: Tensor | None = None) -> Tensor:
        """f(z), (..., d) to (..., d); column i depends on the parents of i, b_i or 0 for a root."""
        strengths = self._strengths(edges)
        if self.form == "linear":
            linear = _product(z, self.weights * strengths)
            return linear if self.intercepts is None else linear + self.intercepts
        if self.form == "quadratic":
            return _product(z.square(), strengths)
        return self.networks(z, strengths)

    def jacobian(self, z: Tensor, edges: Tensor | None = None) -> Tensor:
        """(..., d, d): [i, j] = d f_i / d z_j at z (..., d), strictly lower triangular."""
        strengths = self._strengths(edges)
        if self.form == "linear":
            return (self.weights * strengths).mT.expand(*z.shape, self.d)
        if self.form == "quadratic":
            return 2 * z[..., None, :] * strengths.mT
        return self.networks.jacobian(z, strengths)

    def _strengths(self, edges: Tensor | None) -> Tensor:
        return self.allowed if edges is None else edges * self.allowed

    # ---- density and draws ---------------------------------------------------------------------
    def noises(self, z: Tensor, edges: Tensor | None = None) -> Tensor:
        """n = z - f(z), (..., d): abduction."""
        return z - self.mean(z, edges)

    def log_density(self, z: Tensor, edges: Tensor | None = None) -> Tensor:
        """log p(z), (..., d) to (...), Eq. 6; exact, since z -> n has determinant 1."""
        return log_normal(self.noises(z, edges), 0.0, 2 * self.log_scales).sum(-1)

    def from_noises(self, noise: Tensor, edges: Tensor | None = None) -> Tensor:
        """Noises (..., d) to variables (..., d), causes before effects."""
        z = noise if self.intercepts is None else noise + self.intercepts
        for level in self.levels[1:]:
            z = torch.where(level, noise + self.mean(z, edges), z)
        return z

    def draw_noises(
        self,
        n: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
    ) -> Tensor:
        """(n, d) draws of N(0, sigma^2), differentiable in sigma; `device` is the generator's."""
        scales = self.log_scales.exp()
        standard = torch.randn(
            n, self.d, generator=generator, dtype=scales.dtype, device=device or scales.device
        )
        return standard.to(scales.device) * scales

    def sample(
        self, n: int, generator: torch.Generator | None = None, edges: Tensor | None = None
    ) -> Tensor:
        """(n, d) draws of the SEM by ancestral sampling, differentiable in f, sigma and edges."""
        return self.from_noises(self.draw_noises(n, generator), edges)


def _product(values: Tensor, weights: Tensor) -> Tensor:
    """values (..., d) @ weights (d, d); on a GPU always in full precision, without TF32."""
    return (values[..., None, :] * weights.mT).sum(-1) if values.is_cuda else values @ weights


def _check_allowed(allowed: Tensor) -> Tensor:
    allowed = torch.as_tensor(allowed).detach().to(torch.get_default_dtype()).clone()
    if allowed.ndim != 2 or allowed.shape[0] != allowed.shape[1] or len(allowed) == 0:
        raise UsageError(
            f"`allowed` of a SEM must be a square matrix, not of shape {tuple(allowed.shape)}."
        )
    if not ((allowed == 0) | (allowed == 1)).all():
        raise UsageError("`allowed` of a SEM must hold 0 and 1 only; pass strengths as `edges`.")
    if allowed.tril().any():
        j, i = allowed.tril().nonzero()[0].tolist()
        raise UsageError(
            f"`allowed` of a SEM has the edge {j} -> {i}, but a cause must come before its effect; "
            "reorder the variables."
        )
    return allowed


def _log_scales(scales: Sequence[float] | None, d: int) -> Tensor:
    values = (
        torch.ones(d)
        if scales is None
        else torch.as_tensor(scales, dtype=torch.get_default_dtype())
    )
    if values.shape != (d,) or not ((values > 0) & values.isfinite()).all():
        raise UsageError(f"a SEM over {d} variables needs {d} positive scales, not {scales}.")
    return values.log()


def _levels(allowed: Tensor) -> Tensor:
    """(L, d) bool: row l marks the variables whose longest path from a root has l edges.

    The variables of a level are computed together, so a sample takes L - 1 evaluations of f.
    """
    depth = [0] * len(allowed)
    for j, i in allowed.mT.nonzero().flip(1).tolist():  # sorted by the effect i
        depth[i] = max(depth[i], depth[j] + 1)
    return torch.tensor(depth) == torch.arange(max(depth) + 1)[:, None]
