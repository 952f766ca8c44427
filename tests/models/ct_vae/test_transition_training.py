"""Training of the causal transition layer: gradients, memory, a known graph, the GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from intervae.models.ct_vae import transition
from intervae.models.ct_vae.graph import NO_ACTION, GraphNoise
from intervae.models.ct_vae.transition import CausalTransition
from transition_layers import ACTION, ACTIONS, BATCH, CODES, POSITIONS, codes, generator, layer


def test_chunks_change_neither_values_nor_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network, x, y = layer(), codes(), codes(1)
    results = []
    for max_weights in (2**26, 1):
        monkeypatch.setitem(transition.MAX_WEIGHTS, "cpu", max_weights)
        network.zero_grad()
        modes = network.score_modes(
            x, y, ACTION.clamp(min=0), network.draw_noise(BATCH, generator(), x.device)
        )
        sum(part.sum() for part in modes).backward()  # type: ignore[union-attr]
        results.append(
            [*modes, *(p.grad.clone() for p in network.parameters() if p.grad is not None)]
        )
    for whole, chunked in zip(*results, strict=True):
        assert torch.allclose(whole, chunked, rtol=1e-3, atol=1e-3)


def test_every_weight_has_a_gradient() -> None:
    network, x, y = layer(noise=1), codes(), codes(1)
    noise = network.draw_noise(BATCH, generator(), x.device)
    (
        network.score(x, y, None, noise).log_likelihood.sum()
        + network.score(x, x, torch.full((BATCH,), NO_ACTION), noise).log_likelihood.sum()
    ).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_vmap_over_layers_equals_each_layer() -> None:
    layers = [layer(), layer()]
    layers[1].action.data += 1
    x, y = codes(), codes(1)
    noise = layers[0].draw_noise(BATCH, generator(), x.device)

    def score(parameters: Any, buffers: Any) -> Any:
        return functional_call(
            _Scores(layers[0]),
            ({f"layer.{k}": v for k, v in parameters.items()}, buffers),
            (x, y, noise),
        )

    scores = vmap(score, in_dims=(0, 0))(*stack_module_state(layers))  # type: ignore[arg-type]
    for i, each in enumerate(layers):
        assert torch.allclose(scores[i], each.score(x, y, None, noise).log_likelihood, atol=1e-4)


class _Scores(torch.nn.Module):
    def __init__(self, layer: CausalTransition) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, y: Tensor, noise: GraphNoise) -> Tensor:
        return self.layer.score(x, y, None, noise).log_likelihood


@pytest.mark.parametrize(("mode", "max_floats"), [("action", 155), ("causal", 90), ("modes", 80)])
def test_memory_grows_at_most_quadratically_with_positions(mode: str, max_floats: int) -> None:
    """Floats saved for the gradient per image, question and pair of positions."""
    questions = {"action": 1, "causal": 6, "modes": 6 + 2}[mode]
    floats: dict[int, float] = {}
    for positions in (64, 128, 256):
        network = CausalTransition(positions, 1, 64, 6)
        before, after = (
            torch.randint(64, (2, positions), generator=generator(seed)) for seed in (0, 1)
        )
        action, noise = torch.tensor([0, 3]), network.draw_noise(2, generator(), before.device)
        saved: dict[int, int] = {}

        def record(tensor: Tensor, saved: dict[int, int] = saved) -> Tensor:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
            if mode == "modes":
                scores = network.score_modes(before, after, action, noise).actions
            else:
                number = action if mode == "action" else None
                scores = network.score(before, after, number, noise).log_likelihood
        assert scores.shape == (2, 1 if mode == "action" else 6)
        weights = {p.untyped_storage().data_ptr() for p in network.parameters()}
        floats[positions] = sum(
            size for storage, size in saved.items() if storage not in weights
        ) / (4 * 2 * questions * positions**2)
    assert floats[64] <= max_floats
    assert floats[256] < floats[128] < floats[64]


# ---- simulated codes with a known graph ----------------------------------------------------------
def simulate_pairs(batch: int, rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes before and after, and actions, of a simulator with a known graph.

    Action 0 rotates the codes to the right, action 1 to the left; action 2 swaps the values 0 and 1
    at the first position.
    """
    x = torch.randint(CODES, (batch, POSITIONS), generator=rng)
    action = torch.randint(ACTIONS, (batch,), generator=rng)
    swapped = x.clone()
    swapped[:, 0] = torch.tensor([1, 0, 2, 3, 4])[x[:, 0]]
    outcomes = torch.stack([x.roll(1, 1), x.roll(-1, 1), swapped])
    return x, outcomes[action, torch.arange(batch)], action


def trained_layer(seed: int) -> tuple[CausalTransition, torch.Generator]:
    network, rng = layer(seed=seed, width=32, edge_width=16), generator(seed)
    optimiser = torch.optim.Adam(network.parameters(), 5e-3)
    for _ in range(300):
        x, y, action = simulate_pairs(64, rng)
        score = network.score(x, y, action, network.draw_noise(64, rng, x.device))
        loss = (-score.log_likelihood + 0.2 * score.norm + 0.02 * score.dependency).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network, rng


def test_training_recovers_a_known_graph() -> None:
    """The median of three seeds, as rounding decides which superfluous edges remain."""
    right = torch.eye(POSITIONS).roll(1, 0)  # y_i = x_(i-1)
    results = []
    for seed in range(3):
        network, rng = trained_layer(seed)
        x, y, action = simulate_pairs(512, rng)
        nodes = network.nodes(x)
        graph = network.graph(nodes, None)
        after = network.logits(x, nodes, graph.edges, None).argmax(-1)[torch.arange(512), action]
        distinct = (x.roll(1, 1) != x.roll(-1, 1)).any(1)
        guessed = network.score(x, y, None).log_likelihood.argmax(1)
        parents = torch.sigmoid(graph.edge_logits[:, :2]).mean(0)
        true = torch.stack([right, right.T]) == 1
        results.append(
            torch.stack(
                [
                    (after == y).float().mean(),
                    (guessed == action)[distinct].float().mean(),
                    parents[true].min(),
                    1 - parents[~true].mean(),
                ]
            ).detach()
        )
    median = torch.stack(results).median(0).values.tolist()
    code_accuracy, action_accuracy, true_edges, absent_edges = median
    assert code_accuracy > 0.99
    assert action_accuracy > 0.97
    assert true_edges > 0.9
    assert absent_edges > 0.4  # 0.05 before training


# ---- the GPU -------------------------------------------------------------------------------------
@pytest.mark.gpu
def test_cpu_and_gpu_agree_and_a_step_can_be_captured(exact_gpu: None) -> None:
    network, x, y = layer(), codes(), codes(1)
    noise = network.draw_noise(BATCH, generator(), x.device)
    expected = network.score(x, y, None, noise).log_likelihood
    network, x, y = network.to("cuda"), x.to("cuda"), y.to("cuda")
    noise = GraphNoise(*(part.to("cuda") for part in noise))
    assert torch.allclose(
        network.score(x, y, None, noise).log_likelihood.cpu(), expected, atol=1e-3
    )
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            network.score(x, y, None, noise).log_likelihood.sum().backward()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        captured = network.score(x, y, None, noise).log_likelihood
        captured.sum().backward()
    graph.replay()
    assert torch.allclose(captured.cpu(), expected, atol=1e-3)
