import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intervae.causal.linear import structural_matrix, to_endogenous, to_exogenous
from normal_draws import draw


def test_weights_row_is_the_cause_and_column_the_effect():
    """Chain 0 -(2)-> 1 -(3)-> 2: noise of 1 at 0 adds 2 at 1 and 6 at 2; noise at 2 stays."""
    weights = torch.zeros(3, 3, dtype=torch.float64)
    weights[0, 1], weights[1, 2] = 2.0, 3.0
    at_first = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)[:, None]
    at_last = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)[:, None]
    assert to_endogenous(at_first, weights).flatten().tolist() == [1.0, 2.0, 6.0]
    assert to_endogenous(at_last, weights).flatten().tolist() == [0.0, 0.0, 1.0]
    assert to_exogenous(
        torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64), weights
    ).flatten().tolist() == [1.0, 0.0, 0.0]


def test_solution_satisfies_the_structural_equation_variable_by_variable():
    n, k = 5, 3
    weights = draw(n, n, seed=1).triu(1)
    exogenous = draw(7, n, k)
    z = torch.zeros_like(exogenous)
    for i in range(n):  # causes first
        z[:, i] = exogenous[:, i] + sum(
            (weights[j, i] * z[:, j] for j in range(i)),
            start=torch.zeros(7, k, dtype=torch.float64),
        )
    torch.testing.assert_close(to_endogenous(exogenous, weights), z, rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 8),
    k=st.integers(1, 4),
    batch=st.lists(st.integers(1, 3), max_size=2),
    seed=st.integers(0, 10**6),
)
def test_round_trips_for_any_batch_shape_and_cyclic_weights(n, k, batch, seed):
    weights = 0.4 * draw(n, n, seed=seed) / n**0.5  # cycles allowed, gain below 1
    exogenous = draw(*batch, n, k, seed=seed + 1)
    endogenous = to_endogenous(exogenous, weights)
    assert endogenous.shape == exogenous.shape
    torch.testing.assert_close(to_exogenous(endogenous, weights), exogenous, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        to_endogenous(to_exogenous(exogenous, weights), weights), exogenous, rtol=1e-10, atol=1e-10
    )


def test_equals_the_inverse_matrix_in_both_precisions():
    weights = 0.3 * draw(4, 4, seed=2)
    exogenous = draw(6, 4, 2)
    inverse = torch.linalg.inv(torch.eye(4, dtype=torch.float64) - weights.T)
    torch.testing.assert_close(
        to_endogenous(exogenous, weights), inverse @ exogenous, rtol=1e-12, atol=1e-12
    )
    single = to_endogenous(exogenous.float(), weights.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), inverse @ exogenous, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(structural_matrix(weights), torch.linalg.inv(inverse))


def test_no_edges_change_nothing():
    exogenous = draw(3, 4, 2)
    assert torch.equal(to_endogenous(exogenous, torch.zeros(4, 4, dtype=torch.float64)), exogenous)
    assert torch.equal(to_exogenous(exogenous, torch.zeros(4, 4, dtype=torch.float64)), exogenous)


def test_latent_dims_do_not_mix():
    weights = draw(4, 4, seed=3).triu(1)
    exogenous = draw(5, 4, 3)
    per_dim = torch.cat([to_endogenous(exogenous[..., [d]], weights) for d in range(3)], dim=-1)
    torch.testing.assert_close(to_endogenous(exogenous, weights), per_dim, rtol=1e-12, atol=1e-12)


def test_gradients():
    weights = (0.3 * draw(3, 3, seed=4)).requires_grad_()
    values = draw(2, 3, 2, seed=5).requires_grad_()
    assert torch.autograd.gradcheck(to_endogenous, (values, weights))
    assert torch.autograd.gradcheck(to_exogenous, (values, weights))
    assert torch.autograd.gradgradcheck(to_endogenous, (values, weights))


def test_many_models_at_once_under_vmap():
    weights = 0.3 * draw(5, 4, 4, seed=6)
    exogenous = draw(5, 7, 4, 2, seed=7)
    for function in (to_endogenous, to_exogenous):
        one_by_one = torch.stack([function(e, w) for e, w in zip(exogenous, weights, strict=True)])
        torch.testing.assert_close(
            torch.func.vmap(function)(exogenous, weights), one_by_one, rtol=1e-10, atol=1e-12
        )


def test_half_precision_noise_is_solved_in_the_precision_of_the_weights():
    weights = draw(4, 4, seed=8, dtype=torch.float32).triu(1)
    exogenous = draw(3, 4, 2, dtype=torch.float32).bfloat16()
    z = to_endogenous(exogenous, weights)
    assert z.dtype == torch.float32
    torch.testing.assert_close(z, to_endogenous(exogenous.float(), weights))


def test_a_cycle_of_gain_one_gives_inf_or_nan():
    weights = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert not to_endogenous(torch.ones(2, 1), weights).isfinite().all()


@pytest.mark.parametrize("function", [to_endogenous, to_exogenous])
def test_inputs_are_not_modified(function):
    values, weights = draw(3, 4, 2), draw(4, 4).triu(1)
    before = values.clone(), weights.clone()
    function(values, weights)
    assert torch.equal(values, before[0])
    assert torch.equal(weights, before[1])
