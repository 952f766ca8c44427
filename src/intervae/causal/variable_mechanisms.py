"""Mechanisms of single variables with noise that can be abducted, as in DeepSCM.

Pawlowski et al. 2020, sec. 3: a continuous variable is an invertible flow of N(0, 1) noise, a class
the argmax of logits plus Gumbel noise (Oberst and Sontag 2019), an ordinal class an interval of a
location plus logistic noise. All depend on the parents through a small network.
Shapes: values (B,), features of the parents (B, f) of `encode_values`; f = 0 for a root.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.gaussian import log_normal
from intervae.causal.splines import (
    SplineKnots,
    apply_spline,
    invert_spline,
    parameter_count,
    spline_knots,
)
from intervae.causal.variable_types import VariableType
from intervae.errors import QueryError

BOUND = 4.0  # half-width of the interval of a spline, in standard deviations
LOG_SCALE_LIMIT = 7.0  # |log scale| of a flow; a deterministic variable has no finite density
LOWEST_LOGIT = -40.0  # of a class in abduction, so that rounding stays below TIE_MARGIN
TIE_MARGIN = 3e-5  # smallest distance of an abducted maximum from the other classes
SMALLEST_GAP = 1e-3  # between the thresholds of ordinal classes
LARGEST_LOCATION = 50.0  # of an ordinal class; sigmoid(-50) is above the smallest float
OUTERMOST = 1e4  # stands for infinity in the intervals of the first and last ordinal class


class ParentNetwork(nn.Module):
    """Parameters (B, outputs) of a mechanism from the features of its parents.

    They start at 0 for every input. A root has free parameters.
    """

    def __init__(self, inputs: int, outputs: int, hidden: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(outputs))
        layers: list[nn.Module] = []
        for layer in range(depth if inputs else 0):
            layers += [nn.Linear(hidden if layer else inputs, hidden), nn.SiLU()]
        if inputs:
            last = nn.Linear(hidden if depth else inputs, outputs, bias=False)
            nn.init.zeros_(last.weight)
            layers.append(last)
        self.layers = nn.Sequential(*layers) if layers else None

    def forward(self, parents: Tensor) -> Tensor:
        if self.layers is None:
            return self.bias.expand(*parents.shape[:-1], -1)
        # in bfloat16 a value would be known to three digits only
        with torch.autocast(parents.device.type, enabled=False):
            return self.layers(parents) + self.bias


class VariableMechanism(nn.Module, ABC):
    """value = f(noise; parents) of one variable; `forward` is `log_prob`."""

    @abstractmethod
    def log_prob(self, value: Tensor, parents: Tensor) -> Tensor:
        """Return log p(value | parents), (B,): a density, or the probability of a class."""

    @abstractmethod
    def abduct(
        self, value: Tensor, parents: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return the noise (B, ...) that gives `value`, or a draw of it where many do."""

    @abstractmethod
    def predict(self, noise: Tensor, parents: Tensor) -> Tensor:
        """Return the value (B,) of noise (B, ...)."""

    @abstractmethod
    def draw_noise(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw noise (n, ...) of its prior."""

    def forward(self, value: Tensor, parents: Tensor) -> Tensor:
        return self.log_prob(value, parents)


class ContinuousMechanism(VariableMechanism):
    """A flow: noise = spline((value - shift) / scale), noise ~ N(0, 1).

    Shift, scale and spline depend on the parents.

    Arguments:
        inputs: features of the parents.
        bins: bins of the spline.
        hidden, depth: units of each hidden layer and number of hidden layers of the network.
    """

    def __init__(self, inputs: int, bins: int = 8, hidden: int = 64, depth: int = 2) -> None:
        super().__init__()
        self.network = ParentNetwork(inputs, 2 + parameter_count(bins), hidden, depth)

    def log_prob(self, value: Tensor, parents: Tensor) -> Tensor:
        noise, log_slope = self._noise(value, parents)
        return log_normal(noise, 0.0, 0.0) + log_slope

    def abduct(
        self, value: Tensor, parents: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        return self._noise(value, parents)[0]

    def predict(self, noise: Tensor, parents: Tensor) -> Tensor:
        shift, log_scale, knots = self._flow(parents)
        return invert_spline(noise, knots)[0] * log_scale.exp() + shift

    def draw_noise(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        return _draw(torch.randn, (n,), self.network.bias, generator)

    def _noise(self, value: Tensor, parents: Tensor) -> tuple[Tensor, Tensor]:
        """Return the noise and its log-derivative by the value, (B,) each."""
        shift, log_scale, knots = self._flow(parents)
        noise, log_slope = apply_spline((value - shift) * torch.exp(-log_scale), knots)
        return noise, log_slope - log_scale

    def _flow(self, parents: Tensor) -> tuple[Tensor, Tensor, SplineKnots]:
        """Return shift (B,), log scale (B,) and knots (B, K + 1)."""
        parameters = self.network(parents)
        log_scale = LOG_SCALE_LIMIT * torch.tanh(parameters[..., 1] / LOG_SCALE_LIMIT)
        return parameters[..., 0], log_scale, spline_knots(parameters[..., 2:], BOUND)


class GumbelMaxMechanism(VariableMechanism):
    """A binary or categorical variable: class = argmax(logits of the parents + Gumbel noise).

    The noise is (B, K). Given the observed class, abduction draws the maximum, whose distribution
    is Gumbel(log sum exp logits), then the other classes truncated at it (Maddison et al. 2014).
    """

    def __init__(
        self, inputs: int, variable: VariableType, hidden: int = 64, depth: int = 2
    ) -> None:
        super().__init__()
        self.variable = variable
        self.network = ParentNetwork(inputs, variable.classes, hidden, depth)

    def log_probabilities(self, parents: Tensor) -> Tensor:
        """Return the log-probabilities (B, K) of the classes."""
        return self.network(parents).log_softmax(-1)

    def log_prob(self, value: Tensor, parents: Tensor) -> Tensor:
        codes = self.variable.codes(value)[..., None]
        return self.log_probabilities(parents).gather(-1, codes).squeeze(-1)

    def abduct(
        self, value: Tensor, parents: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        logits = self._logits(parents)  # their log sum exp is 0
        draws = _gumbel(logits.shape, logits, generator)
        codes = self.variable.codes(value)[..., None]
        highest = draws.gather(-1, codes)  # a Gumbel(0) draw for the maximum
        others = -torch.logaddexp(-highest, -(logits + draws))
        others = torch.minimum(others, highest - TIE_MARGIN)
        classes = torch.arange(self.variable.classes, device=value.device)
        return torch.where(codes == classes, highest, others) - logits

    def predict(self, noise: Tensor, parents: Tensor) -> Tensor:
        codes = (self._logits(parents) + noise).argmax(-1)
        return self.variable.values(codes, noise.dtype)

    def draw_noise(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        return _gumbel((n, self.variable.classes), self.network.bias, generator)

    def _logits(self, parents: Tensor) -> Tensor:
        return self.log_probabilities(parents).clamp(min=LOWEST_LOGIT)


class OrdinalMechanism(VariableMechanism):
    """Ordered classes: the number of thresholds below location(parents) + logistic noise.

    The thresholds are free and increasing. A higher location never lowers the class.
    """

    def __init__(
        self, inputs: int, variable: VariableType, hidden: int = 64, depth: int = 2
    ) -> None:
        super().__init__()
        self.variable = variable
        self.network = ParentNetwork(inputs, 1, hidden, depth)
        thresholds = torch.logit(torch.arange(1, variable.classes) / variable.classes)
        self.first = nn.Parameter(thresholds[:1].clone())
        gaps = thresholds.diff() - SMALLEST_GAP
        self.gaps = nn.Parameter(gaps.expm1().log())  # softplus of it is the gap

    def log_prob(self, value: Tensor, parents: Tensor) -> Tensor:
        low, high = self._interval(value, self._edges(parents))
        # log(sigmoid(high) - sigmoid(low)) without cancellation
        gap = torch.log(-torch.expm1(low - high))
        return functional.logsigmoid(high) + functional.logsigmoid(-low) + gap

    def abduct(
        self, value: Tensor, parents: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        low, high = self._interval(value, self._edges(parents))
        upper_tail = low + high > 0  # is mirrored: sigmoid is precise near 0, not near 1
        start, end = torch.where(upper_tail, -high, low), torch.where(upper_tail, -low, high)
        uniform = _uniform(value.shape, value, generator)
        noise = torch.logit(torch.lerp(start.sigmoid(), end.sigmoid(), uniform))
        noise = torch.where(upper_tail, -noise, noise)
        # inside the interval after rounding too
        return torch.minimum(torch.maximum(noise, low + 1e-6 * (1 + low.abs())), high)

    def predict(self, noise: Tensor, parents: Tensor) -> Tensor:
        codes = (noise[..., None] > self._edges(parents)).sum(-1)
        return self.variable.values(codes, noise.dtype)

    def draw_noise(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        return torch.logit(_uniform((n,), self.first, generator))

    def _edges(self, parents: Tensor) -> Tensor:
        """Return the noises (B, K - 1) at which the class changes."""
        gaps = SMALLEST_GAP + functional.softplus(self.gaps)
        thresholds = torch.cat([self.first, self.first + gaps.cumsum(0)])
        location = LARGEST_LOCATION * torch.tanh(self.network(parents) / LARGEST_LOCATION)
        return thresholds - location

    def _interval(self, value: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ends of the noises of the observed class, (B,) each."""
        edges = functional.pad(edges, (1, 0), "constant", -OUTERMOST)
        edges = functional.pad(edges, (0, 1), "constant", OUTERMOST)
        codes = self.variable.codes(value)[..., None]
        return edges.gather(-1, codes).squeeze(-1), edges.gather(-1, codes + 1).squeeze(-1)


def make_mechanism(
    variable: VariableType, inputs: int, *, bins: int = 8, hidden: int = 64, depth: int = 2
) -> VariableMechanism:
    """Return the mechanism of a variable with that many features of its parents."""
    if variable.kind == "continuous":
        return ContinuousMechanism(inputs, bins, hidden, depth)
    mechanism = OrdinalMechanism if variable.kind == "ordinal" else GumbelMaxMechanism
    return mechanism(inputs, variable, hidden, depth)


# ---- draws -------------------------------------------------------------------------------------
def _draw(
    source: Callable[..., Tensor],
    shape: Sequence[int],
    like: Tensor,
    generator: torch.Generator | None,
) -> Tensor:
    """Draw on the generator's device, so that a CPU generator gives the same numbers on a GPU."""
    if torch.compiler.is_compiling():
        raise QueryError(
            "the abduction of a binary, categorical or ordinal effect draws noise, which a traced "
            "program cannot."
        )
    device = like.device if generator is None else generator.device
    return source(shape, generator=generator, dtype=like.dtype, device=device).to(like.device)


def _uniform(shape: Sequence[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw uniform numbers between 0 and 1, neither of them included."""
    limits = torch.finfo(like.dtype)
    return _draw(torch.rand, shape, like, generator).clamp(limits.tiny, 1 - limits.eps)


def _gumbel(shape: Sequence[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    return -torch.log(-torch.log(_uniform(shape, like, generator)))
