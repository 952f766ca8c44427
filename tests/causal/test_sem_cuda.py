"""A CUDA graph captures a SEM and its divergences, forward and backward, and replays them with new numbers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from intervae.causal.sem import SEM
from intervae.causal.sem_divergence import kl_local_min, kl_local_mix, kl_monte_carlo, kl_monte_carlo_mix, kl_tangent

pytestmark = pytest.mark.gpu

B, D = 6, 5


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def build(form: str) -> SEM:
    torch.manual_seed(0)
    return SEM(torch.ones(D, D).triu(1), form=form, scales=[0.5, 0.4, 0.6, 0.5, 0.7])


@pytest.mark.usefixtures("exact_gpu")
@pytest.mark.parametrize("form", ["linear", "quadratic", "mlp"])
def test_a_cuda_graph_captures_all_of_it_and_replays_it_with_other_numbers(form):
    sems = {"cpu": build(form), "cuda": build(form).cuda()}

    def inputs(seed: int, device: str) -> list[Tensor]:
        factor = 0.4 * draw(B, D, D, seed=seed).tril(-1) + torch.diag_embed((0.5 * draw(B, D, seed=seed + 1) - 0.5).exp())
        values = (draw(B, D, seed=seed + 2), factor, draw(B, D, seed=seed + 3), 0.3 * draw(9, D, seed=seed + 4))
        return [value.to(device).requires_grad_() for value in values]

    def step(mean: Tensor, factor: Tensor, noise: Tensor, pivot_noise: Tensor) -> list[Tensor]:
        sem = sems[mean.device.type]
        edges, z = sem.edge_probabilities(), mean + (factor * noise[:, None]).sum(-1)
        pivots = sem.from_noises(pivot_noise, edges, do={2: 0.1})
        parts = [kl_tangent(mean, factor, sem, edges), kl_local_min(mean, factor, sem, pivots, edges, double=True)]
        parts += [kl_local_mix(mean, factor, sem, pivots, edges, double=True), kl_monte_carlo(z, mean, factor, sem, edges)]
        parts += [kl_monte_carlo_mix(z, mean, factor, sem, pivots, edges), sem.intervene(z, {1: 0.5}, edges).sum(1)]
        value = torch.stack(parts)
        gradients = torch.autograd.grad(value.mean(), [mean, factor, *sem.parameters()], allow_unused=True)
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
    others = inputs(25, "cpu")
    with torch.no_grad():
        for here, there in zip(static, others, strict=True):
            here.copy_(there)
    graph.replay()
    torch.cuda.synchronize()
    first = drawn.clone()
    for got, wanted in zip(captured, step(*others), strict=True):
        torch.testing.assert_close(got.cpu(), wanted, rtol=1e-3, atol=1e-3 * max(1.0, wanted.abs().max().item()))
    graph.replay()
    torch.cuda.synchronize()
    assert not torch.equal(first, drawn)  # new edges and new noise every time
