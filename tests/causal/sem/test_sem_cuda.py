"""CUDA graphs of a SEM and its divergences, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from intervae.causal.sem.divergence import (
    kl_local_min,
    kl_local_mix,
    kl_monte_carlo,
    kl_monte_carlo_mix,
    kl_tangent,
)
from intervae.causal.sem.equations import SEM
from normal_draws import draw_float32 as draw

pytestmark = pytest.mark.gpu

B, D = 6, 5


def build(form: str) -> SEM:
    torch.manual_seed(0)
    return SEM(torch.ones(D, D).triu(1), form=form, scales=[0.5, 0.4, 0.6, 0.5, 0.7])


@pytest.mark.usefixtures("exact_gpu")
@pytest.mark.parametrize("form", ["linear", "quadratic", "mlp"])
def test_cuda_graph_replays_a_sem_and_its_divergences_with_new_inputs(form):
    sems = {"cpu": build(form), "cuda": build(form).cuda()}

    def inputs(seed: int, device: str) -> list[Tensor]:
        factor = 0.4 * draw(B, D, D, seed=seed).tril(-1) + torch.diag_embed(
            (0.5 * draw(B, D, seed=seed + 1) - 0.5).exp()
        )
        values = (
            draw(B, D, seed=seed + 2),
            factor,
            draw(B, D, seed=seed + 3),
            0.3 * draw(9, D, seed=seed + 4),
        )
        return [value.to(device).requires_grad_() for value in values]

    def step(mean: Tensor, factor: Tensor, noise: Tensor, pivot_noise: Tensor) -> list[Tensor]:
        sem = sems[mean.device.type]
        edges, z = sem.edge_probabilities(), mean + (factor * noise[:, None]).sum(-1)
        pivots = sem.from_noises(pivot_noise, edges)
        terms = [
            kl_tangent(mean, factor, sem, edges),
            kl_local_min(mean, factor, sem, pivots, edges, double=True),
        ]
        terms += [
            kl_local_mix(mean, factor, sem, pivots, edges, double=True),
            kl_monte_carlo(z, mean, factor, sem, edges),
        ]
        terms += [
            kl_monte_carlo_mix(z, mean, factor, sem, pivots, edges),
            sem.noises(z, edges).sum(1),
        ]
        value = torch.stack(terms)
        gradients = torch.autograd.grad(
            value.mean(), [mean, factor, *sem.parameters()], allow_unused=True
        )
        return [value, *(gradient for gradient in gradients if gradient is not None)]

    static = inputs(5, "cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step(*static)
            sems["cuda"].sample(4, edges=sems["cuda"].sample_edges())
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(*static)
        drawn = sems["cuda"].sample(4, edges=sems["cuda"].sample_edges())
    new_inputs = inputs(25, "cpu")
    with torch.no_grad():
        for target, source in zip(static, new_inputs, strict=True):
            target.copy_(source)
    graph.replay()
    torch.cuda.synchronize()
    first = drawn.clone()
    for result, expected in zip(captured, step(*new_inputs), strict=True):
        torch.testing.assert_close(
            result.cpu(), expected, rtol=1e-3, atol=1e-3 * max(1.0, expected.abs().max().item())
        )
    graph.replay()
    torch.cuda.synchronize()
    assert not torch.equal(first, drawn)  # new edges and new noise in each replay
