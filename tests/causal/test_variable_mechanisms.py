"""Mechanisms of single variables: densities, abduction and prediction."""

import math

import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from intervae.causal.variable_mechanisms import (
    ContinuousMechanism,
    GumbelMaxMechanism,
    OrdinalMechanism,
    VariableMechanism,
    make_mechanism,
)
from intervae.causal.variable_types import VariableType, encode_values, feature_slices
from intervae.errors import UsageError
from normal_draws import draw_float32 as draw

THREE = VariableType("categorical", 3)
FIVE_LEVELS = VariableType("ordinal", 5)
BINARY = VariableType("binary")


@pytest.fixture(autouse=True)
def _fixed_weights():
    torch.manual_seed(0)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randomised(mechanism: VariableMechanism, scale: float = 0.7) -> VariableMechanism:
    """Return the mechanism with random parameters, which start at zero."""
    with torch.no_grad():
        for seed, parameter in enumerate(mechanism.parameters()):
            parameter += scale * draw(*parameter.shape, seed=seed) / math.sqrt(parameter.shape[-1])
    return mechanism


def observe(mechanism: VariableMechanism, parents: Tensor, seed: int = 5) -> Tensor:
    with torch.no_grad():
        return mechanism.predict(mechanism.draw_noise(len(parents), seeded(seed)), parents)


# ---- encoding -----------------------------------------------------------------------------------
def test_features_are_numbers_signs_and_one_hot_classes():
    types = [VariableType(), BINARY, THREE, VariableType()]
    values = torch.tensor([[0.5, -1.0, 2.0, -3.0], [1.5, 1.0, 0.0, 4.0]])
    expected = [[0.5, -1, 0, 0, 1, -3], [1.5, 1, 1, 0, 0, 4]]
    features = encode_values(values, types)
    assert features.tolist() == expected
    slices = feature_slices(types)
    for each, variable, column in zip(slices, types, values.T, strict=True):
        assert torch.equal(features[:, each], variable.encode(column))


def test_codes_and_values_are_inverse():
    for variable in (BINARY, THREE, FIVE_LEVELS):
        codes = torch.arange(variable.classes)
        assert torch.equal(variable.codes(variable.values(codes, torch.float32)), codes)


@pytest.mark.parametrize(("kind", "classes"), [("colour", 0), ("categorical", 1)])
def test_an_impossible_type_is_refused(kind, classes):
    with pytest.raises(UsageError, match=kind):
        VariableType(kind, classes)


# ---- continuous ---------------------------------------------------------------------------------
@pytest.mark.parametrize("inputs", [0, 3])
def test_density_integrates_to_one_and_matches_the_quantiles(inputs):
    flow = randomised(ContinuousMechanism(inputs)).double()
    grid = torch.linspace(-30, 30, 100_001, dtype=torch.float64)
    for parents in draw(3, inputs, dtype=torch.float64):
        with torch.no_grad():
            rows = parents.expand(len(grid), inputs)
            density = flow.log_prob(grid, rows).exp()
            assert torch.trapezoid(density, grid).item() == pytest.approx(1, abs=1e-5)
            noise = torch.tensor([-1.5, 0.0, 0.8], dtype=torch.float64)
            quantiles = flow.predict(noise, rows[:3])
        mass = torch.cumulative_trapezoid(density, grid)
        below = mass[torch.searchsorted(grid, quantiles) - 1]
        torch.testing.assert_close(below, torch.tensor(norm.cdf(noise)), rtol=0, atol=1e-3)


def test_a_new_flow_is_a_standard_normal():
    flow, values = ContinuousMechanism(2), 2 * draw(100)
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(values)
    torch.testing.assert_close(flow(values, draw(100, 2)), expected, rtol=0, atol=1e-5)


def test_abduction_inverts_prediction_of_a_flow():
    flow = randomised(ContinuousMechanism(3))
    parents, noise = draw(2000, 3), 1.5 * draw(2000, seed=1)
    with torch.no_grad():
        value = flow.predict(noise, parents)
        torch.testing.assert_close(flow.abduct(value, parents), noise, rtol=0, atol=1e-5)
        again = flow.predict(flow.abduct(value, parents), parents)
        torch.testing.assert_close(again, value, rtol=1e-5, atol=1e-5)


def test_flow_ignores_autocast_to_half_precision():
    flow, parents, values = randomised(ContinuousMechanism(3)), draw(50, 3), draw(50)
    expected = flow.log_prob(values, parents)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(flow.log_prob(values, parents), expected)


# ---- Gumbel-max ---------------------------------------------------------------------------------
@pytest.mark.parametrize("variable", [BINARY, THREE, VariableType("categorical", 10)])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])  # of the logits; 30: very improbable classes
def test_abducted_gumbels_give_the_observed_class(variable, scale):
    mechanism = randomised(GumbelMaxMechanism(2, variable), scale)
    parents = 3 * draw(20_000, 2)
    codes = torch.randint(variable.classes, (20_000,), generator=seeded())  # any, however rare
    value = variable.values(codes, torch.float32)
    with torch.no_grad():
        noise = mechanism.abduct(value, parents, seeded(1))
        assert noise.isfinite().all()
        assert torch.equal(mechanism.predict(noise, parents), value)


def test_classes_are_drawn_with_their_probabilities():
    mechanism = GumbelMaxMechanism(0, THREE)
    probabilities = torch.tensor([0.6, 0.3, 0.1])
    with torch.no_grad():
        mechanism.network.bias.copy_(probabilities.log() + 2.0)
    drawn = observe(mechanism, torch.zeros(100_000, 0))
    frequencies = torch.bincount(drawn.long()) / len(drawn)
    torch.testing.assert_close(frequencies, probabilities, rtol=0, atol=0.006)
    log_prob = mechanism.log_prob(torch.arange(3.0), torch.zeros(3, 0))
    torch.testing.assert_close(log_prob.exp(), probabilities)


def test_abducted_gumbels_mixed_over_classes_are_gumbels_again():
    """Drawing a class and then its posterior noise must give the prior of the noise."""
    mechanism = randomised(GumbelMaxMechanism(2, THREE))
    parents = draw(1, 2).expand(100_000, 2)
    noise = mechanism.abduct(observe(mechanism, parents), parents, seeded(1)).detach()
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
    expected = -torch.log(-torch.log(levels))
    for column in noise.T:
        below = (column[:, None] < expected).float().mean(0)
        torch.testing.assert_close(below, levels, rtol=0, atol=0.006)
    correlation = torch.corrcoef(noise.T) - torch.eye(3)
    assert correlation.abs().max() < 0.015


@pytest.mark.parametrize("variable", [BINARY, THREE, FIVE_LEVELS])
def test_counterfactual_classes_match_rejection_sampling(variable):
    """P(class under other parents | observed class): draw prior noise, keep what agrees."""
    n = 200_000
    mechanism = randomised(make_mechanism(variable, 2, depth=0), 1.0)
    before, after = (torch.tensor([row]).expand(n, 2) for row in ([1.0, -1.0], [-0.5, 1.0]))
    with torch.no_grad():
        prior = mechanism.draw_noise(n, seeded(0))
        observed = variable.codes(mechanism.predict(prior, before))
        changed = variable.codes(mechanism.predict(prior, after))
        assert (observed != changed).float().mean() > 0.1  # the question is not trivial
        for code in range(variable.classes):
            agreeing = changed[observed == code]
            if len(agreeing) < 5000:
                continue
            value = variable.values(torch.full((n,), code), torch.float32)
            noise = mechanism.abduct(value, before, seeded(1 + code))
            answer = variable.codes(mechanism.predict(noise, after))
            size = variable.classes
            expected = torch.bincount(agreeing, minlength=size) / len(agreeing)
            got = torch.bincount(answer, minlength=size) / n
            torch.testing.assert_close(got, expected, rtol=0, atol=4 * 0.5 / len(agreeing) ** 0.5)


# ---- ordinal ------------------------------------------------------------------------------------
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_abducted_ordinal_noise_gives_the_observed_class(scale):
    mechanism = OrdinalMechanism(2, FIVE_LEVELS)
    randomised(mechanism.network, scale)
    parents = 3 * draw(20_000, 2)
    value = torch.randint(5, (20_000,), generator=seeded()).float()
    with torch.no_grad():
        noise = mechanism.abduct(value, parents, seeded(1))
        assert noise.isfinite().all()
        assert torch.equal(mechanism.predict(noise, parents), value)


def test_ordinal_probabilities_match_draws_and_sum_to_one():
    mechanism = randomised(OrdinalMechanism(2, FIVE_LEVELS))
    parents = draw(1, 2).expand(100_000, 2)
    drawn = observe(mechanism, parents)
    with torch.no_grad():
        probabilities = mechanism.log_prob(torch.arange(5.0), parents[:5]).exp()
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-6)
    frequencies = torch.bincount(drawn.long(), minlength=5) / len(drawn)
    torch.testing.assert_close(frequencies, probabilities, rtol=0, atol=0.006)


def test_new_ordinal_classes_are_equally_likely():
    log_prob = OrdinalMechanism(0, FIVE_LEVELS).log_prob(torch.arange(5.0), torch.zeros(5, 0))
    torch.testing.assert_close(log_prob.exp(), torch.full((5,), 0.2), rtol=0, atol=1e-6)


def test_a_higher_location_never_lowers_an_ordinal_class():
    mechanism = OrdinalMechanism(1, FIVE_LEVELS, depth=0)
    with torch.no_grad():
        mechanism.network.layers[0].weight.fill_(1.0)
        low = draw(5000, 1)
        high = low + 2 * torch.rand(5000, 1, generator=seeded())
        value = observe(mechanism, low)
        after = mechanism.predict(mechanism.abduct(value, low, seeded(2)), high)
    assert (after >= value).all()
    assert (after > value).any()


@pytest.mark.parametrize("variable", [VariableType(), BINARY, THREE, FIVE_LEVELS])
def test_the_same_seed_gives_the_same_draws(variable):
    mechanism, parents = randomised(make_mechanism(variable, 2)), draw(100, 2)
    value = observe(mechanism, parents)
    draws = [mechanism.abduct(value, parents, seeded(seed)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert torch.equal(draws[0], draws[2]) == (variable.kind == "continuous")
    prior = [mechanism.draw_noise(100, seeded(seed)) for seed in (1, 1, 2)]
    assert torch.equal(prior[0], prior[1])
    assert not torch.equal(prior[0], prior[2])
