"""A structural equation model with additive noise as a density: z_i = f_i(z_1 ... z_{i-1}) + n_i, n_i ~ N(0, sigma_i^2) (causal-prior VAE, Sec. 3).

The variables keep a fixed order and `allowed[j, i]` says whether j -> i may exist at all, only for j < i. Which of these edges exist is
learned by a logit each, sampled as a binary concrete (the paper's Gumbel masks). Nothing asks the host, so a CUDA graph captures it all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from intervae.causal.gaussian import log_normal
from intervae.causal.graph import CausalGraph
from intervae.errors import QueryError, UsageError

Form = Literal["linear", "quadratic", "mlp"]
REFERENCE = 256  # points on which the scale of an MLP's output is measured
SMALLEST_VARIANCE = 1e-8  # of an MLP's output there, so that a constant one divides by something


class SEM(nn.Module):
    """Mechanisms, noise scales and edges over d variables; every method is a pure function of the parameters and its arguments.

    Arguments:
        allowed: (d, d) of 0 and 1, strictly upper triangular: `allowed[j, i]` = whether j -> i may exist.
        form: "linear", f_i = sum_j w_ji e_ji z_j with learned w; "quadratic", f_i = sum_j e_ji z_j^2 without parameters (the paper's
            parabola); "mlp", one net per child, see `Networks`. e is what `edges` holds, 1 for an edge that is there.
        scales: sigma, (d,) positive numbers; ones if not given. They are learned with `learn_scales`.
        learn_edges: whether every allowed edge has a logit, at first `edge_logit`; without it all of them are there.
        temperature: of the binary concrete edges.
        hidden: units of each net of "mlp".

    `edges` of every method is (d, d), edge strengths in the orientation of `allowed`; all allowed edges at strength 1 if not given.
    """

    allowed: Tensor
    levels: Tensor
    log_scales: Tensor

    def __init__(
        self,
        allowed: Tensor,
        *,
        form: Form = "linear",
        scales: Sequence[float] | None = None,
        learn_scales: bool = True,
        learn_edges: bool = True,
        temperature: float = 0.5,
        edge_logit: float = 2.0,
        hidden: int = 32,
    ) -> None:
        super().__init__()
        allowed = _check_allowed(allowed)
        if form not in get_args(Form):
            raise UsageError(f"form={form!r} of a SEM is unknown; use one of {', '.join(map(repr, get_args(Form)))}.")
        if not temperature > 0:
            raise UsageError(f"the temperature of edges must be positive, not {temperature}.")
        if hidden < 1:
            raise UsageError(f"a mechanism needs at least 1 hidden unit, not hidden={hidden}.")
        self.d, self.form, self.temperature, self.learn_edges = len(allowed), form, temperature, learn_edges
        self.register_buffer("allowed", allowed)
        self.register_buffer("levels", _levels(allowed), persistent=False)  # (L, d) bool, what is computed together
        log_scales = _log_scales(scales, self.d)
        if learn_scales:
            self.log_scales = nn.Parameter(log_scales)
        else:
            self.register_buffer("log_scales", log_scales)
        if learn_edges:
            self.edge_logits = nn.Parameter(edge_logit * allowed)
        if form == "linear":
            self.weights = nn.Parameter(0.1 * torch.randn(self.d, self.d) * allowed)
        elif form == "mlp":
            self.networks = Networks(allowed, hidden)

    # ---- edges ------------------------------------------------------------------------------------------------------
    def edge_probabilities(self) -> Tensor:
        """(d, d), sigmoid of the logits where an edge is allowed, else 0."""
        return torch.sigmoid(self.edge_logits) * self.allowed if self.learn_edges else self.allowed

    def sample_edges(self, generator: torch.Generator | None = None) -> Tensor:
        """(d, d) in [0, 1]: sigmoid((logit + log u - log(1 - u)) / temperature), u ~ U(0, 1), through which gradients flow.

        One draw serves a whole batch. Rounded, it is 1 with the edge's probability at every temperature.
        """
        if not self.learn_edges:
            return self.allowed
        uniform = torch.rand(self.allowed.shape, generator=generator, dtype=self.allowed.dtype, device=self.allowed.device)
        return torch.sigmoid((self.edge_logits + torch.logit(uniform, eps=1e-6)) / self.temperature) * self.allowed

    def hard_edges(self, threshold: float = 0.5) -> Tensor:
        """(d, d) of 0 and 1: the edges more probable than `threshold`."""
        return (self.edge_probabilities() > threshold).to(self.allowed.dtype)

    def expected_edges(self) -> Tensor:
        """0-dim, the expected number of edges: the penalty for a dense graph."""
        return self.edge_probabilities().sum()

    def graph(self, names: Sequence[str], threshold: float = 0.5) -> CausalGraph:
        """The edges more probable than `threshold`; weights are the coefficients of a linear SEM, else the probabilities."""
        strengths = self.weights if self.form == "linear" else self.edge_probabilities()
        return CausalGraph(tuple(names), (strengths * self.hard_edges(threshold)).detach().cpu().double().numpy())

    @property
    def coupled(self) -> tuple[int, ...]:
        """The variables that take part in an allowed edge."""
        touched = (self.allowed.sum(0) + self.allowed.sum(1)) > 0
        return tuple(touched.nonzero().flatten().tolist())

    # ---- mechanisms -------------------------------------------------------------------------------------------------
    def mean(self, z: Tensor, edges: Tensor | None = None) -> Tensor:
        """f(z), (..., d) to (..., d): column i depends on the parents of i only; 0 for a variable without parents."""
        strengths = self._strengths(edges)
        if self.form == "linear":
            return _product(z, self.weights * strengths)
        if self.form == "quadratic":
            return _product(z.square(), strengths)
        return self.networks(z, strengths)

    def jacobian(self, z: Tensor, edges: Tensor | None = None) -> Tensor:
        """(..., d, d), [i, j] = d f_i / d z_j at z (..., d): strictly lower triangular, row = child."""
        strengths = self._strengths(edges)
        if self.form == "linear":
            return (self.weights * strengths).mT.expand(*z.shape, self.d)
        if self.form == "quadratic":
            return 2 * z[..., None, :] * strengths.mT
        return self.networks.jacobian(z, strengths)

    def _strengths(self, edges: Tensor | None) -> Tensor:
        return self.allowed if edges is None else edges * self.allowed

    # ---- density and draws ------------------------------------------------------------------------------------------
    def noises(self, z: Tensor, edges: Tensor | None = None) -> Tensor:
        """n = z - f(z), (..., d): abduction."""
        return z - self.mean(z, edges)

    def log_density(self, z: Tensor, edges: Tensor | None = None) -> Tensor:
        """log p(z), (..., d) to (...): exact, as z -> n has determinant 1."""
        return log_normal(self.noises(z, edges), 0.0, 2 * self.log_scales).sum(-1)

    def from_noises(self, noise: Tensor, edges: Tensor | None = None, do: Mapping[int, Tensor | float] | None = None) -> Tensor:
        """Noises (..., d) to variables (..., d), causes before effects; `do` holds variables at a number, or at (...) numbers.

        What an intervention does not reach is bit for bit what it is without it.
        """
        z = self._clamp(noise, do)
        for level in self.levels[1:]:
            z = self._clamp(torch.where(level, noise + self.mean(z, edges), z), do)
        return z

    def intervene(self, z: Tensor, do: Mapping[int, Tensor | float], edges: Tensor | None = None) -> Tensor:
        """What z (..., d) would have been under `do`, with the noises that z has: z_i + f_i(after) - f_i(before).

        Written so, a variable that `do` does not reach keeps its very bits, which z - f(z) + f(z) would round.
        """
        before, after = self.mean(z, edges), self._clamp(z, do)
        for level in self.levels[1:]:
            after = self._clamp(torch.where(level, z + (self.mean(after, edges) - before), after), do)
        return after

    def _clamp(self, z: Tensor, do: Mapping[int, Tensor | float] | None) -> Tensor:
        for i, value in (do or {}).items():
            if not 0 <= i < self.d:
                raise QueryError(f"do() names variable {i} of a SEM over {self.d}; use 0 to {self.d - 1}.")
            target = value if isinstance(value, Tensor) else z.new_full((), value)
            z = torch.where(torch.arange(self.d, device=z.device) == i, target.to(z.dtype)[..., None], z)
        return z

    def draw_noises(self, n: int, generator: torch.Generator | None = None, device: torch.device | str | None = None) -> Tensor:
        """(n, d) draws of N(0, sigma^2), through which sigma gets gradients; `device` is where the generator lives."""
        scales = self.log_scales.exp()
        standard = torch.randn(n, self.d, generator=generator, dtype=scales.dtype, device=device or scales.device)
        return standard.to(scales.device) * scales

    def sample(self, n: int, generator: torch.Generator | None = None, edges: Tensor | None = None) -> Tensor:
        """(n, d) draws of the SEM (ancestral sampling), through which f, sigma and edges get gradients."""
        return self.from_noises(self.draw_noises(n, generator), edges)


class Networks(nn.Module):
    """f_i(z) = (g_i(e_i ∘ z) - g_i(0)) / s_i, g_i(x) = v_i^T tanh(W_i x + b_i): one net for each child, of a fixed output scale.

    The identifiability theorem asks for outputs of a fixed scale, the paper for batch norm. Here s_i is the standard deviation of g_i, all
    allowed edges at 1, over REFERENCE fixed draws of N(0, I): a function of the weights alone, the same in training and evaluation. The
    strengths of edges do not enter s_i (it would undo them), and a child that loses all its edges has f_i = 0, no mechanism.
    """

    allowed: Tensor
    effects: Tensor
    reference: Tensor

    def __init__(self, allowed: Tensor, hidden: int) -> None:
        super().__init__()
        d, effects = len(allowed), allowed.sum(0).nonzero().flatten()
        self.d, self.hidden, self.count = d, hidden, len(effects)
        self.register_buffer("allowed", allowed.clone(), persistent=False)
        self.register_buffer("effects", effects, persistent=False)
        self.register_buffer("reference", torch.randn(REFERENCE, d, generator=torch.Generator().manual_seed(0)), persistent=False)
        bounds = allowed.sum(0)[effects].rsqrt()[:, None]  # one over the square root of the number of parents, (C, 1)
        self.first = nn.Parameter((2 * torch.rand(self.count, d, hidden) - 1) * bounds[..., None] * allowed.mT[effects][..., None])
        self.bias = nn.Parameter((2 * torch.rand(self.count, hidden) - 1) * bounds)
        self.last = nn.Parameter((2 * torch.rand(self.count, hidden) - 1) / math.sqrt(hidden))

    def forward(self, z: Tensor, strengths: Tensor) -> Tensor:
        """z (..., d) and strengths (d, d) to f (..., d)."""
        at_zero = (torch.tanh(self.bias) * self.last).sum(-1)
        out = ((self._units(z, strengths) * self.last).sum(-1) - at_zero) * self._inverse_scale()  # (..., C)
        return z.new_zeros(z.shape).index_copy(-1, self.effects, out)

    def jacobian(self, z: Tensor, strengths: Tensor) -> Tensor:
        """(..., d, d), [i, j] = d f_i / d z_j."""
        slope = (1 - self._units(z, strengths).square()) * self.last * self._inverse_scale()[:, None]  # (..., C, hidden)
        rows = torch.einsum("...ch,cjh->...cj", slope, self._masked(strengths))
        return z.new_zeros(*z.shape, self.d).index_copy(-2, self.effects, rows)

    def _masked(self, strengths: Tensor) -> Tensor:
        return strengths.mT.index_select(0, self.effects)[..., None] * self.first  # (C, d, hidden)

    def _units(self, z: Tensor, strengths: Tensor) -> Tensor:
        """The hidden units of all nets, (..., C, hidden), by one product."""
        weights = self._masked(strengths).movedim(0, 1).reshape(self.d, -1)  # (d, C * hidden)
        return torch.tanh((z @ weights).reshape(*z.shape[:-1], self.count, self.hidden) + self.bias)

    def _inverse_scale(self) -> Tensor:
        """1 / s, (C,)."""
        out = (self._units(self.reference, self.allowed) * self.last).sum(-1)  # (REFERENCE, C)
        return ((out - out.mean(0)).square().mean(0) + SMALLEST_VARIANCE).rsqrt()


def _product(values: Tensor, weights: Tensor) -> Tensor:
    """values (..., d) @ weights (d, d); on a GPU in full precision whatever its matrix units are set to, as densities square the rest."""
    return (values[..., None, :] * weights.mT).sum(-1) if values.is_cuda else values @ weights


def _check_allowed(allowed: Tensor) -> Tensor:
    allowed = torch.as_tensor(allowed).detach().to(torch.get_default_dtype()).clone()
    if allowed.ndim != 2 or allowed.shape[0] != allowed.shape[1] or len(allowed) == 0:
        raise UsageError(f"`allowed` of a SEM must be a square matrix, not of shape {tuple(allowed.shape)}.")
    if not ((allowed == 0) | (allowed == 1)).all():
        raise UsageError("`allowed` of a SEM must hold 0 and 1 only; strengths are learned or passed as `edges`.")
    if allowed.tril().any():
        j, i = allowed.tril().nonzero()[0].tolist()
        raise UsageError(f"`allowed` of a SEM has the edge {j} -> {i}; a cause must come before its effect, so order the variables that way.")
    return allowed


def _log_scales(scales: Sequence[float] | None, d: int) -> Tensor:
    values = torch.ones(d) if scales is None else torch.as_tensor(scales, dtype=torch.get_default_dtype())
    if values.shape != (d,) or not ((values > 0) & values.isfinite()).all():
        raise UsageError(f"a SEM over {d} variables needs {d} positive scales, not {scales}.")
    return values.log()


def _levels(allowed: Tensor) -> Tensor:
    """(L, d) bool: row l holds the variables whose longest path from a root has l edges, so that L - 1 evaluations of f make a sample."""
    depth = [0] * len(allowed)
    for j, i in allowed.mT.nonzero().flip(1).tolist():  # sorted by the effect i
        depth[i] = max(depth[i], depth[j] + 1)
    return torch.tensor(depth) == torch.arange(max(depth) + 1)[:, None]
