"""Objectives of NOTEARS and DAGMA, with analytic gradients: every variable from all others.

The parameters are a list of tensors. The first is A (P, n, m), the weights of the P inputs to the
m units of each of the n variables; the strength of the edge j -> i is the norm of the weights from
the inputs of j to the units of i. The loss of a continuous variable is half its mean squared error
(noise "equal") or half the logarithm of that error (noise "free", a Gaussian likelihood with one
variance per variable, independent of units). The loss of a binary or categorical variable is the
cross-entropy. Penalties are l1 |A| and, for networks, l2 / 2 times the squared weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from intervae.discovery.design_matrix import DesignMatrix
from intervae.discovery.knowledge import EdgeConstraints
from intervae.errors import UsageError

NOISES = ("equal", "free")


class Objective(ABC):
    """Function that the solvers minimise over `parameters`; the first is A (P, n, m)."""

    parameters: list[Tensor]
    flat: Tensor  # all parameters in one vector
    input_variables: Tensor  # (P,)

    def __init__(
        self,
        constraints: EdgeConstraints,
        input_variables: np.ndarray,
        noise: str,
        l1: float,
        l2: float,
        device: torch.device,
    ) -> None:
        if noise not in NOISES:
            raise UsageError(f"noise={noise!r} is not one of {', '.join(NOISES)}.")
        self.noise, self.l1, self.l2, self.device = noise, l1, l2, device
        self.n = len(constraints.allowed)
        self.input_variables = torch.from_numpy(input_variables).to(device)
        self.one_input_each = len(input_variables) == self.n
        # (P, n, 1): 1 for allowed edges, and the l1 weight of edges that are not required
        self.mask = self._by_input(constraints.allowed)
        self.l1_weights = self._by_input(constraints.allowed & ~constraints.required) * l1

    def _by_input(self, edges: np.ndarray) -> Tensor:
        """Edges (n, n) between variables to (P, n, 1), one row per input."""
        matrix = torch.from_numpy(edges.astype(np.float64)).to(self.device)
        return matrix[self.input_variables][:, :, None]

    def set_parameters(self, tensors: list[Tensor]) -> None:
        """Store the parameters as views of the vector `flat`, which a solver updates at once."""
        self.flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        views = self.flat.split([tensor.numel() for tensor in tensors])
        self.parameters = [
            view.view(tensor.shape) for view, tensor in zip(views, tensors, strict=True)
        ]

    @abstractmethod
    def fit_gradients(self) -> list[Tensor]:
        """Return the gradients of the loss and the l2 penalty, in the order of `parameters`."""

    @abstractmethod
    def unexplained(self) -> np.ndarray:
        """Return the unexplained fraction of each variable's variance or deviance, (n,)."""

    def gradients(self) -> list[Tensor]:
        """Return the gradients of loss, l1 and l2, in the order of `parameters`."""
        first, *others = self.fit_gradients()
        first = torch.addcmul(first, self.l1_weights, self.parameters[0].sign()).mul_(self.mask)
        return [first, *others]

    def squares(self) -> Tensor:
        """Return M (n, n), the squared strength of each edge j -> i."""
        squares = self.parameters[0].square().sum(-1)
        if self.one_input_each:
            return squares
        return squares.new_zeros(self.n, self.n).index_add_(0, self.input_variables, squares)

    def penalty_gradient(self, slope: Tensor) -> Tensor:
        """Return dh/dA from dh/dM (n, n)."""
        slope = 2 * slope if self.one_input_each else 2 * slope[self.input_variables]
        return slope[:, :, None] * self.parameters[0]

    def strengths(self) -> np.ndarray:
        """Return the weights of the graph, (n, n)."""
        return self.squares().sqrt().cpu().numpy()

    def restrict(self, edges: np.ndarray) -> None:
        """Allow only these edges (n, n) from now on."""
        self.mask = self._by_input(edges)
        self.parameters[0].mul_(self.mask)


class LinearObjective(Objective):
    """x_i = sum_j W[j, i] x_j + noise, for continuous or 0 / 1 columns, from their covariance."""

    def __init__(
        self,
        design: DesignMatrix,
        constraints: EdgeConstraints,
        *,
        noise: str,
        l1: float,
        device: torch.device,
    ) -> None:
        super().__init__(constraints, design.input_variables, noise, l1, 0.0, device)
        covariance = design.inputs.T @ design.inputs / len(design.inputs)
        self.covariance = torch.from_numpy(covariance).to(device)
        self.set_parameters([torch.zeros(self.n, self.n, 1, dtype=torch.float64, device=device)])

    def fit_gradients(self) -> list[Tensor]:
        weights = self.parameters[0][:, :, 0]
        slope = self.covariance @ weights - self.covariance  # -S (I - W)
        if self.noise == "free":
            slope = slope / self._squared_errors(weights, slope)
        return [slope[:, :, None]]

    def _squared_errors(self, weights: Tensor, slope: Tensor) -> Tensor:
        """Return the mean squared errors (n,): the diagonal of (I - W)^T S (I - W)."""
        return (weights * slope).sum(0) - slope.diagonal()

    def unexplained(self) -> np.ndarray:
        weights = self.parameters[0][:, :, 0]
        errors = self._squared_errors(weights, self.covariance @ weights - self.covariance)
        return (errors / self.covariance.diagonal()).cpu().numpy()

    def strengths(self) -> np.ndarray:
        """Return the regression weights W, (n, n)."""
        return self.parameters[0][:, :, 0].cpu().numpy()


class MLPObjective(Objective):
    """One hidden layer of m sigmoid units per variable; all variables in one matrix product.

    Arguments:
        design: columns of any kind.
        hidden: m.
    """

    def __init__(
        self,
        design: DesignMatrix,
        constraints: EdgeConstraints,
        *,
        noise: str,
        l1: float,
        l2: float,
        hidden: int,
        seed: int,
        device: torch.device,
    ) -> None:
        super().__init__(constraints, design.input_variables, noise, l1, l2, device)
        # (P, N) and (O, N): samples last, so that sums run along memory
        self.inputs = torch.from_numpy(np.ascontiguousarray(design.inputs.T)).to(device)
        self.targets = torch.from_numpy(np.ascontiguousarray(design.targets.T)).to(device)
        self.output_variables = torch.from_numpy(design.output_variables).to(device)
        kinds = np.array(design.kinds)[design.output_variables]  # (O,)
        self.continuous, self.binary, self.categorical = (
            torch.from_numpy(kinds == kind).to(device)
            for kind in ("continuous", "binary", "categorical")
        )
        self.all_continuous = bool((kinds == "continuous").all())
        self.one_output_each = "categorical" not in design.kinds
        (columns, samples), outputs = self.inputs.shape, len(design.output_variables)
        self.units_shape = (self.n, hidden, samples)
        self.set_parameters(self._initial_parameters(columns, outputs, hidden, seed))

    def _initial_parameters(
        self, columns: int, outputs: int, hidden: int, seed: int
    ) -> list[Tensor]:
        """Return A (P, n, m), hidden biases (n m, 1), output weights (O, m) and biases (O, 1)."""
        generator = torch.Generator().manual_seed(seed)

        def uniform(*shape: int, scale: float) -> Tensor:
            draws = torch.rand(*shape, generator=generator, dtype=torch.float64)
            return ((2 * draws - 1) * scale).to(self.device)

        # small enough for A to be inside the domain of log_det
        scale = min(0.05, (0.9 / (columns * hidden)) ** 0.5)
        return [
            uniform(columns, self.n, hidden, scale=scale) * self.mask,
            uniform(self.n * hidden, 1, scale=columns**-0.5),
            uniform(outputs, hidden, scale=hidden**-0.5),
            torch.zeros(outputs, 1, dtype=torch.float64, device=self.device),
        ]

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return hidden units (n, m, N) and outputs (O, N)."""
        first, bias, last, intercept = self.parameters
        units = (
            torch.addmm(bias, first.view(len(first), -1).T, self.inputs)
            .sigmoid_()
            .view(self.units_shape)
        )
        return units, torch.bmm(last[:, None, :], self._units_by_output(units))[:, 0] + intercept

    def _units_by_output(self, units: Tensor) -> Tensor:
        """Return the hidden units of each output, (O, m, N)."""
        return units if self.one_output_each else units[self.output_variables]

    def fit_gradients(self) -> list[Tensor]:
        first, _, last, _ = self.parameters
        units, outputs = self.forward()
        means = outputs if self.all_continuous else self._means(outputs)
        residuals = means - self.targets  # (O, N)
        slope = residuals / residuals.shape[1]
        if self.noise == "free":
            slope = slope / torch.where(
                self.continuous[:, None], residuals.square().mean(1, keepdim=True), 1.0
            )
        products = self._units_by_output(units) * slope[:, None, :]  # (O, m, N)
        to_last = products.sum(-1)
        if self.one_output_each:  # units (1 - units) slope last
            back = torch.addcmul(products, products, units, value=-1).mul_(last[:, :, None])
        else:
            back = torch.zeros_like(units).index_add_(
                0, self.output_variables, slope[:, None, :] * last[:, :, None]
            )
            back = back.mul_(torch.addcmul(units, units, units, value=-1))
        back = back.view(-1, self.units_shape[2])
        to_first = (self.inputs @ back.T).view_as(first)
        to_bias = back.sum(1, keepdim=True)
        return [
            to_first.add_(first, alpha=self.l2),
            to_bias,
            to_last.add_(last, alpha=self.l2),
            slope.sum(1, keepdim=True),
        ]

    def _means(self, outputs: Tensor) -> Tensor:
        """Outputs (O, N) to means: values, or probabilities of 1 or of each category."""
        means = torch.where(self.binary[:, None], torch.sigmoid(outputs), outputs)
        if self.one_output_each:
            return means
        categorical, variables = self.categorical[:, None], self.output_variables
        logits = torch.where(categorical, outputs, -torch.inf)
        highest = logits.new_full((self.n, outputs.shape[1]), -torch.inf).scatter_reduce_(
            0, variables[:, None].expand_as(logits), logits, "amax"
        )
        shifted = torch.where(categorical, outputs - highest.detach()[variables], -torch.inf)
        exponentials = shifted.exp()
        total = torch.zeros_like(highest).index_add_(0, variables, exponentials)
        softmax = exponentials / total[variables].clamp_min(1e-300)
        return torch.where(categorical, softmax, means)

    def losses(self) -> Tensor:
        """Return the loss of every variable, (n,)."""
        return self._losses(self._means(self.forward()[1]))

    def _losses(self, means: Tensor) -> Tensor:
        squared = 0.5 * (means - self.targets).square().mean(1)
        squared = 0.5 * (2 * squared).log() if self.noise == "free" else squared
        probability = torch.where(self.continuous[:, None], 0.5, means).clamp(1e-300, 1.0)
        cross = -(self.targets * probability.log()).mean(1)
        complement = ((1 - self.targets) * (1 - probability).clamp_min(1e-300).log()).mean(1)
        cross = torch.where(self.binary, cross - complement, cross)
        return squared.new_zeros(self.n).index_add_(
            0, self.output_variables, torch.where(self.continuous, squared, cross)
        )

    def unexplained(self) -> np.ndarray:
        losses = self.losses()
        constant = self._losses(self.targets.mean(1, keepdim=True).expand_as(self.targets))
        fraction = losses / constant
        if self.noise == "free":
            continuous = torch.zeros(self.n, dtype=torch.bool, device=self.device).index_fill_(
                0, self.output_variables[self.continuous], True
            )
            fraction = torch.where(continuous, torch.exp(2 * (losses - constant)), fraction)
        return fraction.cpu().numpy()
