"""q(variables | picture) of deep-scm: its loss against torch's distributions."""

from __future__ import annotations

import torch
from torch.distributions import Bernoulli, Categorical, Normal

from intervae.causal.variable_types import VariableType
from intervae.data import Variable
from intervae.models.deep_scm.predictor import VariablePredictor

VARIABLES = [
    Variable("size"),
    Variable("lit", kind="binary"),
    Variable("shape", kind="categorical", categories=("a", "b", "c")),
]


def test_loss_is_the_negative_log_likelihood_of_each_kind() -> None:
    types = [VariableType.of(variable) for variable in VARIABLES]
    predictor = VariablePredictor((1, 8, 8), types, (4,), 8)
    with torch.no_grad():
        predictor.log_std.copy_(torch.tensor([-0.7, 3.0, 3.0]))  # those of classes are not used
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(6, 5, generator=generator)
    values = torch.tensor([[0.3, 1, 0], [-1, -1, 1], [2, 1, 2], [0, -1, 0], [1, 1, 1], [1, -1, 2]])
    known = torch.ones(6, 3, dtype=torch.bool)
    known[1, 0] = False
    size = -Normal(outputs[:, 0], torch.tensor(-0.7).exp()).log_prob(values[:, 0])
    size = size - 0.5 * torch.log(torch.tensor(2 * torch.pi))  # up to this constant
    lit = -Bernoulli(logits=outputs[:, 1]).log_prob((values[:, 1] > 0).float())
    codes = types[2].codes(values[:, 2])
    shape = -Categorical(logits=outputs[:, 2:]).log_prob(codes)
    expected = torch.where(known, torch.stack([size, lit, shape], dim=1), 0.0)
    torch.testing.assert_close(predictor.loss(outputs, values, known), expected)


def test_standard_deviation_is_learned() -> None:
    """Its optimum is the root mean square error of the predictions."""
    types = [VariableType.of(VARIABLES[0])]
    predictor = VariablePredictor((1, 8, 8), types, (4,), 8)
    values = 0.2 * torch.randn(500, 1, generator=torch.Generator().manual_seed(0))
    outputs, known = torch.zeros(500, 1), torch.ones(500, 1, dtype=torch.bool)
    optimiser = torch.optim.Adam([predictor.log_std], lr=0.05)
    for _ in range(200):
        optimiser.zero_grad()
        predictor.loss(outputs, values, known).mean().backward()
        optimiser.step()
    expected = values.square().mean().sqrt()
    torch.testing.assert_close(predictor.log_std.exp()[0], expected, rtol=1e-2, atol=0)
