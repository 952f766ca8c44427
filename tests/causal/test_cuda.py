"""CUDA graphs of the causal layer, forward and backward, replayed with new numbers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from intervae.causal import (
    CausalGraph,
    MaskLayer,
    kl_pushed_forward,
    log_det,
    polynomial,
    to_endogenous,
    to_exogenous,
    trace_exponential,
)
from intervae.causal.splines import apply_spline, invert_spline, parameter_count, spline_knots
from intervae.causal.structural_causal_model import StructuralCausalModel
from intervae.data import Variable
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


def spline_parameters(seed: int) -> Tensor:
    return draw(BATCH, N, K, parameter_count(8), seed=seed)


def there_and_back(z: Tensor, parameters: Tensor) -> Tensor:
    """A spline of z plus the inverse of another spline."""
    knots = spline_knots(parameters, 4.0)
    return apply_spline(z, knots)[0] + invert_spline(z, spline_knots(-parameters, 4.0))[0]


def structural_causal_model() -> Callable[[Tensor, Tensor], Tensor]:
    """Log-density of values (B, N) that are sums over k; the weights enter as an offset."""
    torch.manual_seed(0)
    names = "abcdef"
    graph = CausalGraph.from_edges(names, [("a", "b"), ("b", "c"), ("a", "c"), ("d", "e")])
    variables = [Variable(name) for name in names]
    copies = {
        "cpu": StructuralCausalModel(graph, variables),
        "cuda": StructuralCausalModel(graph, variables).cuda(),
    }
    with torch.no_grad():
        for parameter in copies["cpu"].parameters():
            parameter += 0.1 * torch.randn(parameter.shape)
    copies["cuda"].load_state_dict(copies["cpu"].state_dict())
    return lambda z, w: copies[z.device.type](z.sum(2) + w.sum(0))


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
    "splines": (there_and_back, [latents, spline_parameters]),
}
MODULES = {"mask_layer": mask_layer, "structural_causal_model": structural_causal_model}


@pytest.mark.parametrize("name", [*CASES, *MODULES])
def test_a_captured_graph_replays_with_other_numbers(name):
    function, makers = CASES[name] if name in CASES else (MODULES[name](), [latents, weights])
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
