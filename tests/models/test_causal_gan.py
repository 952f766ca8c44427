"""CausalGAN: do() and evidence on a known controller, losses, gradients, wrong input."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intervae.causal.graph import CausalGraph
from intervae.data import Spec, Variable
from intervae.errors import DataError, QueryError, UsageError
from intervae.models import CausalGAN
from intervae.models.causal_gan.labels import label_inputs, label_loss

TINY: dict[str, Any] = {
    "noise": 4,
    "channels": (8,),
    "hidden": 16,
    "controller_hidden": 8,
    "critic_hidden": 8,
}
SIDE_TALL = CausalGraph.from_edges(["side", "tall"], [("side", "tall")])


# ---- do and evidence on a known controller -------------------------------------------------
def threshold(bias: float, slopes: list[float]) -> nn.Linear:
    """A linear label network: slopes of the parents, 1 for the first noise, 0 for the others."""
    net = nn.Linear(len(slopes) + 10, 1)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[*slopes, 1.0, *[0.0] * 9]]))
        net.bias.fill_(bias)
    return net


@pytest.fixture(scope="module")
def known() -> CausalGAN:
    """rain -> wet, P(rain) = 0.3, P(wet | rain) = 0.8, P(wet | no rain) = 0.3; rain -> flow.

    flow = 10 + 2 (+1 with rain, else -1) + 2 u.
    """
    variables = (
        Variable("rain", "binary", categories=("dry", "rainy")),
        Variable("wet", "binary"),
        Variable("flow", mean=10.0, std=2.0),
    )
    graph = CausalGraph.from_edges(["rain", "wet", "flow"], [("rain", "wet"), ("rain", "flow")])
    model = CausalGAN(Spec((1, 8, 8), variables), graph=graph, **TINY)
    model.controller.nets = nn.ModuleList(
        [threshold(-0.4, []), threshold(0.1, [0.5]), threshold(0.0, [1.0])]
    )
    return model


def test_labels_follow_the_graph(known: CausalGAN) -> None:
    rain, wet, flow = known.sample_labels(40000, seed=0).T
    assert set(rain.tolist()) == set(wet.tolist()) == {0.0, 1.0}
    assert rain.mean().item() == pytest.approx(0.3, abs=0.01)
    assert wet[rain == 1].mean().item() == pytest.approx(0.8, abs=0.01)
    assert wet[rain == 0].mean().item() == pytest.approx(0.3, abs=0.01)
    assert flow[rain == 1].mean().item() == pytest.approx(12, abs=0.05)
    assert (flow[rain == 0].min().item(), flow[rain == 0].max().item()) == (
        pytest.approx(6, abs=0.01),
        pytest.approx(10, abs=0.01),
    )


def test_do_changes_descendants_only(
    known: CausalGAN,
) -> None:
    before = known.sample_labels(40000, seed=0)
    for rain, wet in ((1, 0.8), (0, 0.3)):
        after = known.sample_labels(40000, {"rain": rain}, seed=0)
        assert torch.equal(after[:, 0], torch.full((40000,), float(rain)))
        assert after[:, 1].mean().item() == pytest.approx(wet, abs=0.01)
        unmoved = before[:, 0] == rain  # unchanged where the value was the same
        assert torch.equal(after[unmoved], before[unmoved])
    after = known.sample_labels(40000, {"wet": 1}, seed=0)
    assert torch.equal(after[:, [0, 2]], before[:, [0, 2]])
    assert torch.equal(after[:, 1], torch.ones(40000))


def test_evidence_follows_bayes_unlike_do(known: CausalGAN) -> None:
    observed = known.sample_labels(20000, evidence={"wet": 1}, seed=0)
    assert torch.equal(observed[:, 1], torch.ones(20000))
    assert observed[:, 0].mean().item() == pytest.approx(
        0.3 * 0.8 / (0.3 * 0.8 + 0.7 * 0.3), abs=0.015
    )
    assert known.sample_labels(20000, {"wet": 1}, seed=0)[:, 0].mean().item() == pytest.approx(
        0.3, abs=0.015
    )
    high = known.sample_labels(
        20000, evidence={"flow": (9.0, 11.0)}, seed=0
    )  # a quarter of both kinds of days
    assert 9 <= high[:, 2].min() <= high[:, 2].max() <= 11
    assert high[:, 0].mean().item() == pytest.approx(0.3, abs=0.015)
    both = known.sample_labels(
        20000, {"wet": 0}, evidence={"flow": (10.5, math.inf)}, seed=0
    )  # after do(wet = 0)
    assert torch.equal(both[:, :2], torch.tensor([1.0, 0.0]).expand(20000, 2))


def test_do_takes_categories_callables_and_arrays(known: CausalGAN) -> None:
    flow = known.sample_labels(100, {"rain": "rainy"}, seed=0)
    assert torch.equal(flow, known.sample_labels(100, {"rain": 1.0}, seed=0))
    before, moved = (
        known.sample_labels(100, seed=0),
        known.sample_labels(100, {"flow": lambda v: v + 5}, seed=0),
    )
    assert torch.equal(moved[:, 2], before[:, 2] + 5)
    values = np.linspace(0, 20, 100)
    assert np.allclose(known.sample_labels(100, {"flow": values}, seed=0)[:, 2].numpy(), values)
    assert torch.equal(
        known.sample_labels(100, evidence={"rain": "dry"}, seed=0)[:, 0], torch.zeros(100)
    )


def test_wrong_queries_are_refused(known: CausalGAN) -> None:
    for arguments, message in (
        ({"do": {"rian": 1}}, "rian.*rain"),
        ({"do": {"flow": math.nan}}, "finite"),
        ({"do": {"flow": [1.0, 2.0]}}, "2 values for 3"),
        ({"evidence": {"rian": 1}}, "rian.*rain"),
        ({"evidence": {"rain": 0.5}}, "0 or 1"),
        ({"evidence": {"rain": "snowy"}}, "snowy.*dry"),
        ({"evidence": {"flow": 9.0}}, "interval"),
        ({"evidence": {"flow": (11.0, 9.0)}}, "low below high"),
        ({"evidence": {"flow": (50.0, 60.0)}}, r"held in 0 of \d+ samples.*less rare"),
        ({"evidence": {"rain": 1}, "do": {"flow": [1.0, 2.0, 3.0]}}, "cannot be combined"),
    ):
        for query in (known.sample, known.sample_labels):
            with pytest.raises(QueryError, match=message):
                query(3, **arguments)  # type: ignore[operator]
    with pytest.raises(QueryError, match="one at least"):
        known.sample_labels(0)
    with pytest.raises(QueryError, match=r"causal-gan cannot answer counterfactual.*causal-vae"):
        known.counterfactual(torch.zeros(1, 1, 8, 8), {"rain": 1})
    with pytest.raises(QueryError, match="one dim each"):
        known.decode(torch.zeros(2, 3, 2))


def test_images_keep_their_noise_under_do(known: CausalGAN) -> None:
    rain = known.sample_labels(6, seed=0)[:, 0]
    assert torch.equal(known.sample(6, {"rain": rain}, seed=0), known.sample(6, seed=0))
    assert not torch.equal(known.sample(6, {"rain": 1 - rain}, seed=0), known.sample(6, seed=0))


def test_missing_graphs_and_wrong_labels_are_refused() -> None:
    side, kind = (
        Variable("side", "binary"),
        Variable("kind", "categorical", categories=("a", "b", "c")),
    )
    cycle = CausalGraph.from_edges(["side", "tall"], [("side", "tall"), ("tall", "side")])
    two = (side, Variable("tall", "binary"))
    for error, message, spec, graph in (
        (UsageError, "needs a known graph.*--graph", Spec((1, 8, 8), two), None),
        (UsageError, "needs a known graph", Spec((1, 8, 8), two), "independence"),
        (DataError, "has none", Spec((1, 8, 8)), SIDE_TALL),
        (DataError, "'kind' is categorical", Spec((1, 8, 8), (side, kind)), SIDE_TALL),
        (DataError, "cycle", Spec((1, 8, 8), two), cycle),
        (DataError, "unknown variable", Spec((1, 8, 8), (side, Variable("wide"))), SIDE_TALL),
        (DataError, "not clips", Spec((1, 8, 8), two, frames=3), SIDE_TALL),
    ):
        with pytest.raises(error, match=message):
            CausalGAN(spec, graph=graph, **TINY)  # type: ignore[arg-type]
    for changes, message in (
        ({"critic_steps": 0}, "critic_steps=0"),
        ({"penalty_weight": -1.0}, "penalty_weight"),
        ({"hidden": 0}, "hidden"),
    ):
        with pytest.raises(UsageError, match=message):
            CausalGAN(Spec((1, 8, 8), two), graph=SIDE_TALL, **{**TINY, **changes})


# ---- losses --------------------------------------------------------------------------------
def batch_of(labels: list[list[float]], step: float = 0.0) -> dict[str, Tensor]:
    return {
        "images": torch.rand(len(labels), 1, 8, 8),
        "labels": torch.tensor(labels),
        "step": torch.tensor(step),
    }


def test_label_loss_is_cross_entropy_or_squared_error(
    known: CausalGAN,
) -> None:
    outputs, labels = torch.tensor([[0.7, -2.0, 1.5]]), torch.tensor([[1.0, 1.0, 0.5]])
    expected = -math.log(1 / (1 + math.exp(-0.7))) - math.log(1 / (1 + math.exp(2.0))) + 1.0
    assert label_loss(outputs, labels, known.is_binary).item() == pytest.approx(expected, rel=1e-6)


def test_the_weight_of_the_anti_labeler_decays(known: CausalGAN) -> None:
    for step, weight in ((0.0, 1.0), (3000.0, math.exp(-1)), (math.inf, 0.0)):
        terms = known.loss(batch_of([[0.0, 1.0, 9.0]] * 4, step), torch.Generator().manual_seed(0))
        expected = terms["adversarial"] + terms["labeler"] - weight * terms["anti_labeler"]
        assert terms["loss"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_binary_labels_become_logits_with_noise(
    known: CausalGAN,
) -> None:
    labels = torch.tensor([[1.0, -1.0, 0.3]]).expand(20000, 3)
    inputs = label_inputs(
        labels, known.is_binary, torch.rand(20000, 3, generator=torch.Generator().manual_seed(0))
    )
    yes, no = torch.sigmoid(inputs[:, 0]), torch.sigmoid(inputs[:, 1])
    assert 0.7 <= yes.min() < 0.701
    assert 0.94 < yes.max() <= 0.95
    assert no.min() >= 0.05
    assert no.max() <= 0.3 + 1e-6
    assert torch.equal(inputs[:, 2], labels[:, 2])
    rate, limit = 10.0, 0.25  # the mean of a truncated exponential
    mean = 1 / rate - limit / (math.exp(rate * limit) - 1)
    assert (yes - 0.7).mean().item() == pytest.approx(mean, abs=0.002)
    assert torch.sigmoid(label_inputs(labels[:1], known.is_binary))[0, 0].item() == pytest.approx(
        0.7 + mean, rel=1e-5
    )


def test_each_loss_trains_its_own_networks(known: CausalGAN) -> None:
    batch, all_losses = batch_of([[0.0, 1.0, 9.0], [1.0, 0.0, 12.0]] * 4), {}
    known.train()
    for loss in (known.critic_loss, known.controller_loss, known.discriminators_loss, known.loss):
        known.zero_grad(set_to_none=True)
        loss(batch, torch.Generator().manual_seed(0))["loss"].backward()
        all_losses[loss.__name__] = {
            n.split(".")[0]
            for n, p in known.named_parameters()
            if p.grad is not None and bool(p.grad.abs().sum() > 0)
        }
    known.eval()
    assert all_losses["critic_loss"] == {"critic"}
    assert all_losses["controller_loss"] == {"controller", "critic"}
    assert all_losses["discriminators_loss"] == {"discriminator", "labeler", "anti_labeler"}
    assert all_losses["loss"] == {"generator", "discriminator", "labeler", "anti_labeler"}
    for phase, prefixes in zip(
        known.phases(),
        ({"critic.", "controller."}, {"generator.", "discriminator.", "labeler.", "anti_labeler."}),
        strict=True,
    ):
        assert {prefix for player in phase.players for prefix in player.parameters} == prefixes
