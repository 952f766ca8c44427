import itertools
import math

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intervae.causal.acyclicity import log_det, polynomial, trace_exponential
from intervae.errors import UsageError

PENALTIES = [trace_exponential, polynomial, log_det]
EXACT = [trace_exponential, polynomial]  # without a subtraction, hence exactly 0 on a DAG


def random_dag(
    n: int,
    seed: int,
    *,
    size: float = 2.0,
    density: float = 0.5,
    dtype: torch.dtype = torch.float64,
) -> torch.Tensor:
    """Weights of both signs along a random hidden order."""
    generator = torch.Generator().manual_seed(seed)
    weights = (torch.rand(n, n, generator=generator, dtype=dtype) * 2 - 1) * size
    weights = (weights * (torch.rand(n, n, generator=generator) < density)).triu(1)
    order = torch.randperm(n, generator=generator)
    return weights[order][:, order]


def random_weights(
    n: int, seed: int, *, size: float = 0.5, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    return (
        torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=dtype)
        * size
        / math.sqrt(n)
    )


def has_cycle(adjacency: np.ndarray) -> bool:
    """By definition: some sequence of distinct nodes returns to its start."""
    n = len(adjacency)
    sequences = itertools.chain.from_iterable(
        itertools.permutations(range(n), length) for length in range(1, n + 1)
    )
    return any(
        all(adjacency[a, b] for a, b in zip(s, (*s[1:], s[0]), strict=True)) for s in sequences
    )


def test_two_cycle_has_the_closed_form():
    a, b = 0.7, -0.9
    loop = a * a * b * b  # the gain of the cycle
    weights = torch.tensor([[0.0, a], [b, 0.0]], dtype=torch.float64)
    assert trace_exponential(weights).item() == pytest.approx(
        2 * (math.cosh(math.sqrt(loop)) - 1), rel=1e-14
    )
    for c in (0.5, 1.0, 3.0):  # (I + c/2 M)^2 has c^2/4 * loop twice on its diagonal
        assert polynomial(weights, c).item() == pytest.approx(c * c / 2 * loop, rel=1e-14)
    for s in (0.9, 1.0, 2.0):
        assert log_det(weights, s).item() == pytest.approx(
            -math.log(s * s - loop) + 2 * math.log(s), rel=1e-12
        )


def test_self_loop_has_the_closed_form():
    weights = torch.tensor([[0.6]], dtype=torch.float64)
    assert trace_exponential(weights).item() == pytest.approx(math.expm1(0.36), rel=1e-14)
    assert polynomial(weights, 2.0).item() == pytest.approx(0.72, rel=1e-14)
    assert log_det(weights).item() == pytest.approx(-math.log1p(-0.36), rel=1e-14)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 13, 20])
def test_values_equal_the_definitions(n):
    weights = random_weights(n, n, size=0.8)
    squares = (weights * weights).numpy()
    eye = np.eye(n)
    assert trace_exponential(weights).item() == pytest.approx(
        np.trace(scipy.linalg.expm(squares)) - n, rel=1e-11
    )
    assert polynomial(weights, 1.7).item() == pytest.approx(
        np.trace(np.linalg.matrix_power(eye + 1.7 / n * squares, n)) - n, rel=1e-11
    )
    assert log_det(weights, 1.2).item() == pytest.approx(
        -np.linalg.slogdet(1.2 * eye - squares)[1] + n * math.log(1.2), rel=1e-11
    )


@pytest.mark.parametrize(
    ("dtype", "radius", "tolerance"),
    [(torch.float32, 80.0, 1e-4), (torch.float64, 80.0, 1e-12), (torch.float64, 600.0, 1e-9)],
)
def test_trace_exponential_is_accurate_up_to_overflow(dtype, radius, tolerance):
    n = 10
    weights = torch.full(
        (n, n), math.sqrt(radius / n), dtype=dtype
    )  # W∘W has the one eigenvalue `radius`, so h = e^radius - 1
    assert trace_exponential(weights).item() == pytest.approx(
        math.expm1(radius), rel=tolerance * 10
    )


@pytest.mark.parametrize("penalty", PENALTIES)
def test_zero_exactly_when_no_cycle_by_brute_force(penalty):
    for bits in itertools.product([0.0, 0.6], repeat=6):  # every graph on three nodes
        weights = torch.zeros(3, 3, dtype=torch.float64)
        weights[~torch.eye(3, dtype=torch.bool)] = torch.tensor(bits, dtype=torch.float64)
        value = penalty(weights).item()
        if has_cycle(weights.numpy() != 0):
            assert value > 1e-3
        else:
            assert abs(value) < 1e-14


@settings(deadline=None, max_examples=40)
@given(n=st.integers(2, 12), seed=st.integers(0, 10**6))
def test_zero_on_permuted_dags_and_positive_with_one_more_edge(n, seed):
    weights = random_dag(n, seed)
    for penalty in EXACT:
        assert penalty(weights).item() == 0.0
        assert penalty(weights.float()).item() == 0.0
    assert log_det(weights * 0.5).item() < 1e-12
    causes, effects = torch.nonzero(weights, as_tuple=True)
    if len(causes):
        weights[effects[0], causes[0]] = 1e-3  # turn one edge into a cycle of two
        for penalty in EXACT:
            assert penalty(weights).item() > 0
            assert penalty(weights.float()).item() > 0


def test_a_tiny_cycle_is_measured_to_full_precision_in_float32():
    """tr(exp) - n in float32 is 0 below 1e-5 here; solvers use a tolerance of 1e-8."""
    weights = random_dag(50, 3, dtype=torch.float32, size=1.0)
    causes, effects = torch.nonzero(weights, as_tuple=True)
    weights[effects[0], causes[0]] = 1e-5
    exact = trace_exponential(weights.double())
    assert 0 < exact.item() < 1e-8
    torch.testing.assert_close(trace_exponential(weights).double(), exact, rtol=1e-5, atol=0)
    torch.testing.assert_close(
        polynomial(weights).double(), polynomial(weights.double()), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("penalty", PENALTIES)
def test_gradients_and_second_derivatives(penalty):
    weights = random_weights(5, 1, size=0.9).requires_grad_()
    assert torch.autograd.gradcheck(penalty, weights)
    assert torch.autograd.gradgradcheck(penalty, weights)
    batch = (
        torch.stack([random_weights(3, seed) for seed in range(4)])
        .reshape(2, 2, 3, 3)
        .requires_grad_()
    )
    assert torch.autograd.gradcheck(penalty, batch)
    assert torch.autograd.gradgradcheck(penalty, batch)


def test_gradients_with_settings():
    weights = random_weights(4, 2).requires_grad_()
    for function in (lambda w: polynomial(w, 2.5), lambda w: log_det(w, 1.7)):
        assert torch.autograd.gradcheck(function, weights)
        assert torch.autograd.gradgradcheck(function, weights)
    alone = torch.tensor([[0.7]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(polynomial, alone)


def test_gradient_is_that_of_plain_autograd_through_matrix_exp():
    weights = random_weights(30, 4, size=2.0).requires_grad_()
    (ours,) = torch.autograd.grad(trace_exponential(weights), weights)
    (plain,) = torch.autograd.grad(torch.matrix_exp(weights * weights).trace(), weights)
    torch.testing.assert_close(ours, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_batch_and_vmap_equal_single_calls(penalty):
    batch = torch.stack([random_weights(6, seed) for seed in range(6)]).reshape(2, 3, 6, 6)
    one_by_one = torch.stack([penalty(w) for w in batch.reshape(6, 6, 6)])
    assert penalty(batch).shape == (2, 3)
    torch.testing.assert_close(penalty(batch).flatten(), one_by_one, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(
        torch.func.vmap(torch.func.vmap(penalty))(batch).flatten(),
        one_by_one,
        rtol=1e-12,
        atol=1e-15,
    )
    torch.testing.assert_close(
        torch.func.vmap(penalty, in_dims=2)(batch[0].permute(1, 2, 0)),
        one_by_one[:3],
        rtol=1e-12,
        atol=1e-15,
    )
    gradients = torch.stack([torch.func.grad(penalty)(w) for w in batch[0]])
    torch.testing.assert_close(
        torch.func.vmap(torch.func.grad(penalty))(batch[0]), gradients, rtol=1e-12, atol=1e-15
    )
    through = torch.func.grad(lambda b: torch.func.vmap(penalty)(b).sum())(batch[0])
    torch.testing.assert_close(through, gradients, rtol=1e-12, atol=1e-15)
    hessian = torch.func.jacrev(torch.func.grad(penalty))(batch[0, 0])
    torch.testing.assert_close(
        hessian, torch.autograd.functional.hessian(penalty, batch[0, 0]), rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize("penalty", EXACT)
def test_overflow_is_inf_and_never_nan(penalty):
    n = 100
    cyclic = torch.full((n, n), 30.0, requires_grad=True)  # float32; e^90000
    value = penalty(cyclic)
    assert value.item() == math.inf
    assert not torch.autograd.grad(value, cyclic)[0].isnan().any()

    dag = (
        torch.full((n, n), 30.0).triu(1).flip(0).flip(1).requires_grad_()
    )  # 900^99 paths overflow, yet there is no cycle
    value = penalty(dag)
    assert value.item() == 0.0
    assert (torch.autograd.grad(value, dag)[0] == 0).all()

    back = dag.detach().clone()
    back[0, -1] = 1e-15  # a cycle: an overflowed number of paths times a tiny edge
    assert penalty(back).item() == math.inf
    mixed = torch.stack([back, dag.detach(), torch.zeros(n, n)])
    assert penalty(mixed).tolist() == [math.inf, 0.0, 0.0]


@pytest.mark.parametrize("penalty", EXACT)
def test_an_overflow_inside_a_moderate_cycle_is_not_hidden(penalty):
    """The path 0 -> 1 -> 2 (10^40) overflows float32; the tiny edge back must not hide it."""
    weights = torch.zeros(3, 3)
    weights[0, 1] = weights[1, 2] = 1e10
    weights[2, 0] = 3e-20
    assert penalty(weights).item() == math.inf
    assert 0 < penalty(weights.double()).item() < 10


@pytest.mark.parametrize("penalty", EXACT)
def test_hundred_float32_variables_agree_with_double(penalty):
    weights = random_weights(100, 0, size=3.0, dtype=torch.float32).requires_grad_()
    double = weights.detach().double().requires_grad_()
    value, exact = penalty(weights), penalty(double)
    torch.testing.assert_close(value.double(), exact, rtol=1e-4, atol=0)
    torch.testing.assert_close(
        torch.autograd.grad(value, weights)[0].double(),
        torch.autograd.grad(exact, double)[0],
        rtol=1e-4,
        atol=1e-30,
    )


@pytest.mark.parametrize("penalty", PENALTIES)
def test_nan_weights_are_not_hidden(penalty):
    weights = random_weights(4, 0)
    weights[0, 1] = math.nan
    assert not math.isfinite(penalty(weights).item())


def test_log_det_is_inf_outside_its_domain():
    """det(sI - M) can be positive outside too: two cycles of gain above s give two negatives."""
    weights = torch.zeros(4, 4, dtype=torch.float64)
    weights[0, 1] = weights[1, 0] = weights[2, 3] = weights[3, 2] = 1.5
    assert torch.linalg.det(torch.eye(4) - weights * weights) > 0
    weights.requires_grad_()
    value = log_det(weights)
    assert value.item() == math.inf
    assert torch.autograd.grad(value, weights)[0].isnan().any()
    assert log_det(weights, s=2.3).isfinite()  # the spectral radius of W∘W is 2.25
    assert log_det(weights, s=2.2).item() == math.inf


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(2, 8),
    seed=st.integers(0, 10**6),
    factor=st.sampled_from([0.5, 0.9, 0.999, 1.001, 1.1, 3.0, 30.0]),
)
def test_log_det_domain_is_the_spectral_radius(n, seed, factor):
    weights = random_weights(n, seed, size=1.0)
    radius = float(np.abs(np.linalg.eigvals((weights * weights).numpy())).max())
    assert bool(log_det(weights, s=radius / factor).isfinite()) == (factor < 1)


def test_log_det_in_a_batch_keeps_the_rows_apart():
    inside, outside = random_weights(4, 0), random_weights(4, 0) * 20
    batch = torch.stack([inside, outside]).requires_grad_()
    value = log_det(batch)
    (gradient,) = torch.autograd.grad(value.sum(), batch)
    assert value[0].item() == pytest.approx(log_det(inside).item(), rel=1e-12)
    assert value[1].item() == math.inf
    assert gradient[0].isfinite().all()


def test_settings_and_shapes_are_checked():
    square = torch.zeros(3, 3)
    with pytest.raises(UsageError, match="c must be positive"):
        polynomial(square, c=0.0)
    with pytest.raises(UsageError, match="s must be positive"):
        log_det(square, s=-1.0)
    for penalty in PENALTIES:
        with pytest.raises(UsageError, match=r"\(\.\.\., n, n\)"):
            penalty(torch.zeros(2, 3))
        with pytest.raises(UsageError, match="float"):
            penalty(torch.zeros(2, 2, dtype=torch.int64))


def test_autocast_does_not_change_penalties():
    weights = random_weights(10, 0, dtype=torch.float32)
    for penalty in PENALTIES:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = penalty(weights)
        assert inside.dtype == torch.float32
        assert inside.item() == penalty(weights).item()
