"""CUDA graphs of the causal layer, forward and backward, replayed with new numbers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from intervae.causal import (
    MaskLayer,
    kl_pushed_forward,
    log_det,
    polynomial,
    to_endogenous,
    to_exogenous,
    trace_exponential,
)
from normal_draws import draw_float32 as draw

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

N, K, BATCH = 6, 3, 16


def weights(seed: int) -> Tensor:
    return 0.3 * draw(N, N, seed=seed)


def latents(seed: int) -> Tensor:
    return draw(BATCH, N, K, seed=seed)


def mask_layer() -> Callable[[Tensor, Tensor], Tensor]:
    torch.manual_seed(0)
    layer = MaskLayer(N, K)
    copies = {"cpu": layer, "cuda": MaskLayer(N, K).cuda()}
    copies["cuda"].load_state_dict(layer.state_dict())
    return lambda z, w: copies[z.device.type](z, w)


CASES: dict[str, tuple[Callable[..., Tensor], list[Callable[[int], Tensor]]]] = {
    "trace_exponential": (trace_exponential, [weights]),
    "polynomial": (polynomial, [weights]),
    "log_det": (log_det, [weights]),
    "to_endogenous": (to_endogenous, [latents, weights]),
    "to_exogenous": (to_exogenous, [latents, weights]),
    "kl_pushed_forward": (
        lambda m, v, w: kl_pushed_forward(m, v, w, 0.1, -0.3),
        [latents, latents, weights],
    ),
}


@pytest.mark.parametrize("name", [*CASES, "mask_layer"])
def test_a_captured_graph_replays_with_other_numbers(name):
    function, makers = CASES[name] if name in CASES else (mask_layer(), [latents, weights])
    inputs = [make(seed).cuda().requires_grad_() for seed, make in enumerate(makers)]

    def step() -> tuple[Tensor, ...]:
        value = function(*inputs)
        return value, *torch.autograd.grad(value.sum(), inputs)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()

    others = [make(seed + 10).requires_grad_() for seed, make in enumerate(makers)]
    with torch.no_grad():
        for here, there in zip(inputs, others, strict=True):
            here.copy_(there)
    graph.replay()
    torch.cuda.synchronize()
    value = function(*others)
    expected = value, *torch.autograd.grad(value.sum(), others)
    for got, wanted in zip(captured, expected, strict=True):
        torch.testing.assert_close(got.cpu(), wanted, rtol=1e-3, atol=1e-4)
