"""Elimination without pivoting, which CUDA graphs need, against LAPACK."""

import numpy as np
import torch

from intervae.causal.linear import eliminate, inverse_and_log_det, structural_matrix


def random_dag(n: int, seed: int) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    weights = np.triu(rng.normal(size=(n, n)), 1)
    return torch.tensor(weights[np.ix_(order, order)])


def test_elimination_inverts_the_structural_matrix_of_a_shuffled_dag():
    for seed in range(10):
        system = structural_matrix(random_dag(12, seed))
        inverse, log_det = eliminate(system)
        torch.testing.assert_close(
            inverse @ system, torch.eye(12, dtype=torch.float64), atol=1e-9, rtol=0
        )
        assert abs(log_det) < 1e-12  # a DAG has determinant 1


def test_elimination_agrees_with_lapack_on_weak_cycles():
    weights = 0.2 * torch.randn(
        6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    system = structural_matrix(weights.fill_diagonal_(0))
    inverse, log_det = eliminate(system)
    torch.testing.assert_close(inverse, torch.linalg.inv(system))
    torch.testing.assert_close(log_det, torch.linalg.slogdet(system).logabsdet)


def test_gradients_of_inverse_and_log_det():
    system = structural_matrix(
        0.3 * torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ).requires_grad_()
    assert torch.autograd.gradcheck(inverse_and_log_det, system)


def test_many_graphs_at_once_under_vmap():
    systems = torch.stack([structural_matrix(random_dag(5, seed)) for seed in range(3)])
    together = torch.func.vmap(inverse_and_log_det)(systems)[0]
    for one, system in zip(together, systems, strict=True):
        torch.testing.assert_close(one, torch.linalg.inv(system))
