"""Every variable fitted from all others at once, with gradients written out: linear by the covariance alone, or one network each in one product.

Both are a list of tensors of which the first, (P, n, m), holds what the inputs of each variable have to do with each other variable: edge j -> i
is the norm of the inputs of j into i. The loss of a continuous variable is half its mean squared error ("equal" noises) or half its logarithm
("free": the Gaussian likelihood with a noise variance of its own, which does not depend on units); of a binary or categorical one, the
cross-entropy. To it come l1 |A| and, for networks, l2 / 2 of all weights squared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from intervae.discovery.design import Design
from intervae.discovery.knowledge import Allowed
from intervae.errors import UsageError

NOISES = ("equal", "free")


class Problem(ABC):
    """What the solvers minimise, over `parameters`; the first is A (P, n, m)."""

    parameters: list[Tensor]
    flat: Tensor  # all of them in one vector
    owner: Tensor  # (P,) the variable of each row of A

    def __init__(self, allowed: Allowed, owner: np.ndarray, noise: str, l1: float, l2: float, device: torch.device) -> None:
        if noise not in NOISES:
            raise UsageError(f"noise={noise!r} is not one of {', '.join(NOISES)}.")
        self.noise, self.l1, self.l2, self.device = noise, l1, l2, device
        self.n = len(allowed.edges)
        self.owner = torch.from_numpy(owner).to(device)
        self.plain = len(owner) == self.n  # each variable is one column
        self.free = self._spread(allowed.edges)  # (P, n, 1) of 0 and 1
        self.taxed = self._spread(allowed.edges & ~allowed.required) * l1

    def _spread(self, edges: np.ndarray) -> Tensor:
        """(n, n) by variables to (P, n, 1) by inputs."""
        return torch.from_numpy(edges.astype(np.float64)).to(self.device)[self.owner][:, :, None]

    def pack(self, tensors: list[Tensor]) -> None:
        """Make these the parameters, as views of one vector `flat`, so that a step is taken on all of them at once."""
        self.flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        parts = self.flat.split([tensor.numel() for tensor in tensors])
        self.parameters = [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    @abstractmethod
    def fit_gradients(self) -> list[Tensor]:
        """The gradients of the loss and of l2 / 2 |.|^2, in the order of `parameters`."""

    @abstractmethod
    def unexplained(self) -> np.ndarray:
        """(n,) share of each variable's variance (deviance, where it is discrete) that its causes leave."""

    def gradients(self) -> list[Tensor]:
        first, *others = self.fit_gradients()
        return [torch.addcmul(first, self.taxed, self.parameters[0].sign()).mul_(self.free), *others]

    def squares(self) -> Tensor:
        """(n, n) M: the squared strength of j -> i."""
        squares = self.parameters[0].square().sum(-1)
        return squares if self.plain else squares.new_zeros(self.n, self.n).index_add_(0, self.owner, squares)

    def penalty_gradient(self, slope: Tensor) -> Tensor:
        """dh/dA from dh/dM (n, n)."""
        return (2 * slope if self.plain else 2 * slope[self.owner])[:, :, None] * self.parameters[0]

    def strengths(self) -> np.ndarray:
        """(n, n) what the graph's weights are."""
        return self.squares().sqrt().cpu().numpy()

    def restrict(self, edges: np.ndarray) -> None:
        """From now on only these edges (n, n) may be there."""
        self.free = self._spread(edges)
        self.parameters[0].mul_(self.free)


class Linear(Problem):
    """x_i = sum_j W[j, i] x_j + noise, over continuous or 0 / 1 columns, through their covariance (n, n)."""

    def __init__(self, table: Design, allowed: Allowed, *, noise: str, l1: float, device: torch.device) -> None:
        super().__init__(allowed, table.owner, noise, l1, 0.0, device)
        self.covariance = torch.from_numpy(table.inputs.T @ table.inputs / len(table.inputs)).to(device)
        self.pack([torch.zeros(self.n, self.n, 1, dtype=torch.float64, device=device)])

    def fit_gradients(self) -> list[Tensor]:
        weights = self.parameters[0][:, :, 0]
        slope = self.covariance @ weights - self.covariance  # -S (I - W)
        if self.noise == "free":
            slope = slope / self._errors(weights, slope)
        return [slope[:, :, None]]

    def _errors(self, weights: Tensor, slope: Tensor) -> Tensor:
        """(n,) mean squared errors: the diagonal of (I - W)^T S (I - W)."""
        return (weights * slope).sum(0) - slope.diagonal()

    def unexplained(self) -> np.ndarray:
        weights = self.parameters[0][:, :, 0]
        errors = self._errors(weights, self.covariance @ weights - self.covariance)
        return (errors / self.covariance.diagonal()).cpu().numpy()

    def strengths(self) -> np.ndarray:
        return self.parameters[0][:, :, 0].cpu().numpy()


class Networks(Problem):
    """One hidden layer of m sigmoid units per variable, every variable's in the same matrix product.

    Arguments:
        table: of any kinds of columns.
        hidden: m.
    """

    def __init__(self, table: Design, allowed: Allowed, *, noise: str, l1: float, l2: float, hidden: int, seed: int, device: torch.device) -> None:
        super().__init__(allowed, table.owner, noise, l1, l2, device)
        self.inputs = torch.from_numpy(np.ascontiguousarray(table.inputs.T)).to(device)  # (P, N): rows last, so that every sum runs along memory
        self.targets = torch.from_numpy(np.ascontiguousarray(table.targets.T)).to(device)  # (O, N)
        self.node = torch.from_numpy(table.node).to(device)
        kind = np.array(table.kinds)[table.node]
        self.continuous, self.binary, self.categorical = (torch.from_numpy(kind == k).to(device) for k in ("continuous", "binary", "categorical"))
        self.mixed, self.scalar = bool((kind != "continuous").any()), "categorical" not in table.kinds
        (columns, rows), outputs = self.inputs.shape, len(table.node)
        self.shape = (self.n, hidden, rows)
        generator = torch.Generator().manual_seed(seed)

        def uniform(*shape: int, scale: float) -> Tensor:
            return ((2 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1) * scale).to(device)

        first = uniform(columns, self.n, hidden, scale=min(0.05, (0.9 / (columns * hidden)) ** 0.5)) * self.free  # well inside the domain of log_det
        start = uniform(self.n * hidden, 1, scale=columns**-0.5)
        self.pack([first, start, uniform(outputs, hidden, scale=hidden**-0.5), torch.zeros(outputs, 1, dtype=torch.float64, device=device)])

    def forward(self) -> tuple[Tensor, Tensor]:
        """Hidden units (n, m, N) and outputs (O, N)."""
        first, start, last, intercept = self.parameters
        units = torch.addmm(start, first.view(len(first), -1).T, self.inputs).sigmoid_().view(self.shape)
        return units, torch.bmm(last[:, None, :], self._of_outputs(units))[:, 0] + intercept

    def _of_outputs(self, units: Tensor) -> Tensor:
        """(O, m, N): the units that each output reads."""
        return units if self.scalar else units[self.node]

    def fit_gradients(self) -> list[Tensor]:
        first, _, last, _ = self.parameters
        units, outputs = self.forward()
        wrong = self._predicted(outputs) - self.targets if self.mixed else outputs - self.targets  # (O, N)
        slope = wrong / wrong.shape[1]
        if self.noise == "free":
            slope = slope / torch.where(self.continuous[:, None], wrong.square().mean(1, keepdim=True), 1.0)
        felt = self._of_outputs(units) * slope[:, None, :]  # (O, m, N)
        to_last = felt.sum(-1)
        if self.scalar:  # units (1 - units) slope last
            back = torch.addcmul(felt, felt, units, value=-1).mul_(last[:, :, None])
        else:
            felt = torch.zeros_like(units).index_add_(0, self.node, slope[:, None, :] * last[:, :, None])
            back = felt.mul_(torch.addcmul(units, units, units, value=-1))
        back = back.view(-1, self.shape[2])
        to_first = (self.inputs @ back.T).view_as(first)
        to_start = back.sum(1, keepdim=True)
        return [to_first.add_(first, alpha=self.l2), to_start, to_last.add_(last, alpha=self.l2), slope.sum(1, keepdim=True)]

    def _predicted(self, outputs: Tensor) -> Tensor:
        """Means (O, N): a continuous value, or the probability of 1 or of each category."""
        means = torch.where(self.binary[:, None], torch.sigmoid(outputs), outputs)
        if self.scalar:
            return means
        categorical = self.categorical[:, None]
        rising = torch.where(categorical, outputs, -torch.inf)
        highest = rising.new_full((self.n, outputs.shape[1]), -torch.inf).scatter_reduce_(0, self.node[:, None].expand_as(rising), rising, "amax")
        grown = torch.where(categorical, outputs - highest.detach()[self.node], -torch.inf).exp()
        total = torch.zeros_like(highest).index_add_(0, self.node, grown)
        return torch.where(categorical, grown / total[self.node].clamp_min(1e-300), means)

    def losses(self) -> Tensor:
        """(n,) the loss of every variable."""
        return self._losses(self._predicted(self.forward()[1]))

    def _losses(self, means: Tensor) -> Tensor:
        squared = 0.5 * (means - self.targets).square().mean(1)
        squared = 0.5 * (2 * squared).log() if self.noise == "free" else squared
        sure = torch.where(self.continuous[:, None], 0.5, means).clamp(1e-300, 1.0)
        cross = -(self.targets * sure.log()).mean(1)
        cross = torch.where(self.binary, cross - ((1 - self.targets) * (1 - sure).clamp_min(1e-300).log()).mean(1), cross)
        return squared.new_zeros(self.n).index_add_(0, self.node, torch.where(self.continuous, squared, cross))

    def unexplained(self) -> np.ndarray:
        now, chance = self.losses(), self._losses(self.targets.mean(1, keepdim=True).expand_as(self.targets))
        share = now / chance
        if self.noise == "free":
            continuous = torch.zeros(self.n, dtype=torch.bool, device=self.device).index_fill_(0, self.node[self.continuous], True)
            share = torch.where(continuous, torch.exp(2 * (now - chance)), share)
        return share.cpu().numpy()
