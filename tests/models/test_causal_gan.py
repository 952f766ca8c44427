"""CausalGAN: the gradient penalty and do() in closed form, conditioning against Bayes, and that a small game neither diverges nor collapses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, Spec, Variable, build_dataset
from intervae.errors import DataError, QueryError, UsageError
from intervae.metrics.collapse import diversity, mode_shares
from intervae.models import CausalGAN
from intervae.nets.adversarial import gradient_penalty

TINY: dict[str, Any] = {"noise": 4, "channels": (8,), "hidden": 16, "controller_hidden": 8, "critic_hidden": 8}
SIDE_TALL = CausalGraph.from_edges(["side", "tall"], [("side", "tall")])


# ---- the gradient penalty -------------------------------------------------------------------------------------------
def test_the_penalty_of_a_linear_critic_is_closed_form_and_so_is_its_gradient() -> None:
    real, generated = torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(0))
    weight = torch.tensor([3.0, -4.0, 12.0], requires_grad=True)  # of norm 13
    penalty = gradient_penalty(lambda rows: rows @ weight, real, generated, None)
    assert torch.allclose(penalty, torch.full((7,), 12.0**2))
    penalty.mean().backward()
    assert weight.grad is not None
    assert torch.allclose(weight.grad, 2 * 12 * weight.detach() / 13, rtol=1e-5)


def test_the_penalty_is_taken_between_the_real_and_the_generated() -> None:
    """Of the critic |x|^2 / 2 the gradient is x: with both rows the same it is there, else somewhere between, differently each time."""
    rows = torch.tensor([[3.0, 4.0], [0.0, 2.0]])

    def critic(x: Tensor) -> Tensor:
        return x.square().sum(1) / 2

    assert torch.allclose(gradient_penalty(critic, rows, rows, None), torch.tensor([16.0, 1.0]))
    ends = torch.tensor([[1.0]]).expand(2000, 1), torch.tensor([[3.0]]).expand(2000, 1)
    slopes = gradient_penalty(critic, *ends, torch.Generator().manual_seed(0)).sqrt() + 1  # uniform between 1 and 3
    assert 1 <= slopes.min() < 1.05
    assert 2.95 < slopes.max() <= 3
    assert slopes.mean().item() == pytest.approx(2, abs=0.05)


def test_the_penalty_needs_no_recording_and_can_be_vmapped() -> None:
    real, generated, weights = torch.randn(5, 3), torch.randn(5, 3), torch.tensor([[3.0, 0, 0], [0, 0, 5.0]])
    with torch.no_grad():
        assert torch.allclose(gradient_penalty(lambda rows: rows @ weights[0], real, generated, None), torch.full((5,), 4.0))

    def one(weight: Tensor) -> Tensor:
        return gradient_penalty(lambda rows: rows @ weight, real, generated, None)

    assert torch.allclose(vmap(one, randomness="same")(weights), torch.tensor([[4.0], [16.0]]).expand(2, 5))


def test_a_flat_critic_has_a_usable_gradient() -> None:
    weight = torch.zeros(3, requires_grad=True)
    gradient_penalty(lambda rows: rows @ weight, torch.ones(2, 3), torch.zeros(2, 3), None).sum().backward()
    assert weight.grad is not None
    assert torch.isfinite(weight.grad).all()


# ---- do and given on a controller that is known ---------------------------------------------------------------------
def threshold(bias: float, slopes: list[float]) -> nn.Linear:
    """A label's network of no hidden layer: slopes of its parents, 1 for its first noise, 0 for the others."""
    net = nn.Linear(len(slopes) + 10, 1)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[*slopes, 1.0, *[0.0] * 9]]))
        net.bias.fill_(bias)
    return net


@pytest.fixture(scope="module")
def known() -> CausalGAN:
    """rain -> wet, binary: P(rain) = 0.3, P(wet | rain) = 0.8, P(wet | no rain) = 0.3; and rain -> flow, flow = 10 + 2 (rain or not, +-1) + 2 u."""
    variables = (Variable("rain", "binary", categories=("dry", "rainy")), Variable("wet", "binary"), Variable("flow", mean=10.0, std=2.0))
    graph = CausalGraph.from_edges(["rain", "wet", "flow"], [("rain", "wet"), ("rain", "flow")])
    model = CausalGAN(Spec((1, 8, 8), variables), graph=graph, **TINY)
    model.controller.nets = nn.ModuleList([threshold(-0.4, []), threshold(0.1, [0.5]), threshold(0.0, [1.0])])
    return model


def test_labels_follow_the_graph(known: CausalGAN) -> None:
    rain, wet, flow = known.sample_labels(40000, seed=0).T
    assert set(rain.tolist()) == set(wet.tolist()) == {0.0, 1.0}
    assert rain.mean().item() == pytest.approx(0.3, abs=0.01)
    assert wet[rain == 1].mean().item() == pytest.approx(0.8, abs=0.01)
    assert wet[rain == 0].mean().item() == pytest.approx(0.3, abs=0.01)
    assert flow[rain == 1].mean().item() == pytest.approx(12, abs=0.05)
    assert (flow[rain == 0].min().item(), flow[rain == 0].max().item()) == (pytest.approx(6, abs=0.01), pytest.approx(10, abs=0.01))


def test_doing_the_cause_gives_the_effect_given_the_cause_and_doing_the_effect_leaves_the_cause(known: CausalGAN) -> None:
    before = known.sample_labels(40000, seed=0)
    for rain, wet in ((1, 0.8), (0, 0.3)):
        after = known.sample_labels(40000, {"rain": rain}, seed=0)
        assert torch.equal(after[:, 0], torch.full((40000,), float(rain)))
        assert after[:, 1].mean().item() == pytest.approx(wet, abs=0.01)
        unmoved = before[:, 0] == rain  # where it was so anyway, nothing changes
        assert torch.equal(after[unmoved], before[unmoved])
    after = known.sample_labels(40000, {"wet": 1}, seed=0)
    assert torch.equal(after[:, [0, 2]], before[:, [0, 2]])
    assert torch.equal(after[:, 1], torch.ones(40000))


def test_seeing_is_bayes_and_not_doing(known: CausalGAN) -> None:
    seen = known.sample_labels(20000, given={"wet": 1}, seed=0)
    assert torch.equal(seen[:, 1], torch.ones(20000))
    assert seen[:, 0].mean().item() == pytest.approx(0.3 * 0.8 / (0.3 * 0.8 + 0.7 * 0.3), abs=0.015)
    assert known.sample_labels(20000, {"wet": 1}, seed=0)[:, 0].mean().item() == pytest.approx(0.3, abs=0.015)
    high = known.sample_labels(20000, given={"flow": (9.0, 11.0)}, seed=0)  # a quarter of the dry and a quarter of the rainy days
    assert 9 <= high[:, 2].min() <= high[:, 2].max() <= 11
    assert high[:, 0].mean().item() == pytest.approx(0.3, abs=0.015)
    both = known.sample_labels(20000, {"wet": 0}, given={"flow": (10.5, math.inf)}, seed=0)  # in the world after do(wet = 0)
    assert torch.equal(both[:, :2], torch.tensor([1.0, 0.0]).expand(20000, 2))


def test_do_speaks_the_language_of_all_models(known: CausalGAN) -> None:
    flow = known.sample_labels(100, {"rain": "rainy"}, seed=0)
    assert torch.equal(flow, known.sample_labels(100, {"rain": 1.0}, seed=0))
    before, moved = known.sample_labels(100, seed=0), known.sample_labels(100, {"flow": lambda v: v + 5}, seed=0)
    assert torch.equal(moved[:, 2], before[:, 2] + 5)
    values = np.linspace(0, 20, 100)
    assert np.allclose(known.sample_labels(100, {"flow": values}, seed=0)[:, 2].numpy(), values)
    assert torch.equal(known.sample_labels(100, given={"rain": "dry"}, seed=0)[:, 0], torch.zeros(100))


def test_wrong_questions_are_refused(known: CausalGAN) -> None:
    for arguments, words in (
        ({"do": {"rian": 1}}, "rian.*rain"),
        ({"do": {"flow": math.nan}}, "finite"),
        ({"do": {"flow": [1.0, 2.0]}}, "2 values for 3"),
        ({"given": {"rian": 1}}, "rian.*rain"),
        ({"given": {"rain": 0.5}}, "0 or 1"),
        ({"given": {"rain": "snowy"}}, "snowy.*dry"),
        ({"given": {"flow": 9.0}}, "interval"),
        ({"given": {"flow": (11.0, 9.0)}}, "low below high"),
        ({"given": {"flow": (50.0, 60.0)}}, r"held in 0 of \d+ draws.*less rare"),
        ({"given": {"rain": 1}, "do": {"flow": [1.0, 2.0, 3.0]}}, "cannot be combined"),
    ):
        for ask in (known.sample, known.sample_labels):
            with pytest.raises(QueryError, match=words):
                ask(3, **arguments)  # type: ignore[operator]
    with pytest.raises(QueryError, match="one at least"):
        known.sample_labels(0)
    with pytest.raises(QueryError, match=r"causal-gan cannot answer counterfactual.*causal-vae"):
        known.counterfactual(torch.zeros(1, 1, 8, 8), {"rain": 1})
    with pytest.raises(QueryError, match="one dim each"):
        known.decode(torch.zeros(2, 3, 2))


def test_pictures_keep_their_noise_under_do(known: CausalGAN) -> None:
    rain = known.sample_labels(6, seed=0)[:, 0]
    assert torch.equal(known.sample(6, {"rain": rain}, seed=0), known.sample(6, seed=0))
    assert not torch.equal(known.sample(6, {"rain": 1 - rain}, seed=0), known.sample(6, seed=0))


def test_a_graph_and_fitting_labels_are_needed() -> None:
    side, kind = Variable("side", "binary"), Variable("kind", "categorical", categories=("a", "b", "c"))
    cycle = CausalGraph.from_edges(["side", "tall"], [("side", "tall"), ("tall", "side")])
    two = (side, Variable("tall", "binary"))
    for error, words, spec, graph in (
        (UsageError, "needs a known graph.*--graph", Spec((1, 8, 8), two), None),
        (UsageError, "needs a known graph", Spec((1, 8, 8), two), "independence"),
        (DataError, "has none", Spec((1, 8, 8)), SIDE_TALL),
        (DataError, "'kind' is categorical", Spec((1, 8, 8), (side, kind)), SIDE_TALL),
        (DataError, "cycle", Spec((1, 8, 8), two), cycle),
        (DataError, "unknown variable", Spec((1, 8, 8), (side, Variable("wide"))), SIDE_TALL),
        (DataError, "not clips", Spec((1, 8, 8), two, frames=3), SIDE_TALL),
    ):
        with pytest.raises(error, match=words):
            CausalGAN(spec, graph=graph, **TINY)  # type: ignore[arg-type]
    for changes, words in (({"critic_steps": 0}, "critic_steps=0"), ({"penalty_weight": -1.0}, "penalty_weight"), ({"hidden": 0}, "hidden")):
        with pytest.raises(UsageError, match=words):
            CausalGAN(Spec((1, 8, 8), two), graph=SIDE_TALL, **{**TINY, **changes})


# ---- the losses -----------------------------------------------------------------------------------------------------
def batch_of(labels: list[list[float]], step: float = 0.0) -> dict[str, Tensor]:
    return {"images": torch.rand(len(labels), 1, 8, 8), "labels": torch.tensor(labels), "step": torch.tensor(step)}


def test_labelers_pay_cross_entropy_for_binary_and_squared_error_for_continuous_labels(known: CausalGAN) -> None:
    outputs, labels = torch.tensor([[0.7, -2.0, 1.5]]), torch.tensor([[1.0, 1.0, 0.5]])
    expected = -math.log(1 / (1 + math.exp(-0.7))) - math.log(1 / (1 + math.exp(2.0))) + 1.0
    assert known.misfit(outputs, labels).item() == pytest.approx(expected, rel=1e-6)


def test_the_anti_labeler_fades_out_of_the_generators_loss(known: CausalGAN) -> None:
    for step, weight in ((0.0, 1.0), (3000.0, math.exp(-1)), (math.inf, 0.0)):
        terms = known.loss(batch_of([[0.0, 1.0, 9.0]] * 4, step), torch.Generator().manual_seed(0))
        expected = terms["adversarial"] + terms["labeler"] - weight * terms["anti_labeler"]
        assert terms["loss"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_binary_labels_become_logits_on_their_side_and_continuous_ones_stay(known: CausalGAN) -> None:
    labels = torch.tensor([[1.0, -1.0, 0.3]]).expand(20000, 3)
    inputs = known.label_inputs(labels, torch.rand(20000, 3, generator=torch.Generator().manual_seed(0)))
    yes, no = torch.sigmoid(inputs[:, 0]), torch.sigmoid(inputs[:, 1])
    assert 0.7 <= yes.min() < 0.701
    assert 0.94 < yes.max() <= 0.95
    assert no.min() >= 0.05
    assert no.max() <= 0.3 + 1e-6
    assert torch.equal(inputs[:, 2], labels[:, 2])
    rate, limit = 10.0, 0.25  # the mean of a truncated exponential
    mean = 1 / rate - limit / (math.exp(rate * limit) - 1)
    assert (yes - 0.7).mean().item() == pytest.approx(mean, abs=0.002)
    assert torch.sigmoid(known.label_inputs(labels[:1]))[0, 0].item() == pytest.approx(0.7 + mean, rel=1e-5)


def test_who_learns_what(known: CausalGAN) -> None:
    batch, all_losses = batch_of([[0.0, 1.0, 9.0], [1.0, 0.0, 12.0]] * 4), {}
    known.train()
    for loss in (known.critic_loss, known.controller_loss, known.readers_loss, known.loss):
        known.zero_grad(set_to_none=True)
        loss(batch, torch.Generator().manual_seed(0))["loss"].backward()
        all_losses[loss.__name__] = {n.split(".")[0] for n, p in known.named_parameters() if p.grad is not None and bool(p.grad.abs().sum() > 0)}
    known.eval()
    assert all_losses["critic_loss"] == {"critic"}
    assert all_losses["controller_loss"] == {"controller", "critic"}
    assert all_losses["readers_loss"] == {"discriminator", "labeler", "anti_labeler"}
    assert all_losses["loss"] == {"generator", "discriminator", "labeler", "anti_labeler"}
    for phase, moving in zip(
        known.phases(), ({"critic.", "controller."}, {"generator.", "discriminator.", "labeler.", "anti_labeler."}), strict=True
    ):
        assert {prefix for player in phase.players for prefix in player.parameters} == moving


# ---- a small game ---------------------------------------------------------------------------------------------------
MODES = np.zeros((4, 1, 8, 8))  # short and tall on the left, short and tall on the right
MODES[0, :, 5:, :4], MODES[1, :, 1:, :4], MODES[2, :, 5:, 4:], MODES[3, :, 1:, 4:] = 0.8, 0.8, 0.8, 0.8


@pytest.fixture(scope="module")
def blocks() -> Dataset:
    """400 pictures of a block, 8 x 8: side -> tall with P(side) = 0.4, P(tall | side) = 0.8 or 0.2, and a brightness of its own."""
    rng = np.random.default_rng(0)
    side = (rng.random(400) < 0.4).astype(int)
    tall = (rng.random(400) < np.where(side, 0.8, 0.2)).astype(int)
    pictures = MODES[2 * side + tall] * rng.uniform(0.75, 1.25, size=(400, 1, 1, 1))
    labels = np.stack([side, tall], axis=1).astype(float)
    return build_dataset("blocks", (255 * pictures).astype(np.uint8), labels, [Variable("side", "binary"), Variable("tall", "binary")], test=0.1)


@pytest.fixture(scope="module")
def trained(blocks: Dataset) -> tuple[CausalGAN, list[dict[str, Any]]]:
    settings = {
        "noise": 8,
        "channels": (16,),
        "hidden": 64,
        "epochs": 60,
        "controller_epochs": 12,
        "controller_batches": 16,
        "anti_labeler_steps": 300.0,
    }
    model = CausalGAN(blocks.spec, graph=SIDE_TALL, **settings)
    return model, model.fit(blocks, seed=3).history


def cells(labels: Tensor) -> np.ndarray:
    """Shares of the four values of (side, tall)."""
    return np.bincount((labels @ torch.tensor([2.0, 1.0])).long().numpy(), minlength=4) / len(labels)


def check_not_collapsed(pictures: Tensor, data: Dataset) -> None:
    """No collapse: pictures differ at least 70% as much as data do, and each of the four modes has at least a third of its share of the data."""
    assert float(diversity(pictures.numpy(), data.train.images.numpy() / 255)) > 0.7
    shares = np.array(list(mode_shares(pictures.numpy(), MODES).per_variable.values()))
    assert (shares > cells(data.train.labels) / 3).all()


def test_the_losses_of_all_players_stay_finite(trained: Any) -> None:
    """Every single step is checked by the loop itself, which stops at the first term that is not finite; here the means that it logs."""
    _, history = trained
    assert [line["phase"] for line in history] == ["labels"] * 12 + ["pictures"] * 60
    for line in history:
        assert np.isfinite([*line["train"].values(), *line["validation"].values()]).all()
    assert {"critic.penalty", "controller.loss"} <= set(history[0]["train"])
    assert {"readers.labeler", "readers.anti_labeler", "generator.labeler", "generator.anti_labeler"} <= set(history[-1]["train"])


def test_the_controller_learns_the_distribution_of_the_labels(trained: Any, blocks: Dataset) -> None:
    """Total variation to the training labels below 0.05; that of an untrained controller is far above."""
    model, _ = trained

    def total_variation(model: CausalGAN) -> float:
        return float(np.abs(cells(model.sample_labels(20000, seed=0)) - cells(blocks.train.labels)).sum() / 2)

    assert total_variation(model) < 0.05
    assert total_variation(CausalGAN(blocks.spec, graph=SIDE_TALL, **TINY)) > 0.2


def test_the_learned_controller_does_what_the_data_say(trained: Any, blocks: Dataset) -> None:
    model, labels = trained[0], blocks.train.labels
    before = model.sample_labels(10000, seed=0)
    for side in (0, 1):
        expected = labels[labels[:, 0] == side, 1].mean().item()  # P(tall | side), which is P(tall | do(side)) on this graph
        assert model.sample_labels(10000, {"side": side}, seed=0)[:, 1].mean().item() == pytest.approx(expected, abs=0.08)
    assert torch.equal(model.sample_labels(10000, {"tall": 1}, seed=0)[:, 0], before[:, 0])
    seen = model.sample_labels(10000, given={"tall": 1}, seed=0)[:, 0].mean().item()
    assert seen == pytest.approx(before[before[:, 1] == 1, 0].mean().item(), abs=0.03)  # Bayes on the controller's own joint distribution


def test_the_generator_does_not_collapse(trained: Any, blocks: Dataset) -> None:
    check_not_collapsed(trained[0].sample(400, seed=0), blocks)


def test_a_collapsed_generator_fails_the_check(trained: Any, blocks: Dataset) -> None:
    pictures = trained[0].sample(400, seed=0)
    tall_on_the_left = trained[0].sample_labels(400, seed=0) @ torch.tensor([2.0, 1.0]) == 1
    for collapsed in (pictures[:1].expand(400, -1, -1, -1), pictures[~tall_on_the_left]):  # one picture; a mode left out
        with pytest.raises(AssertionError):
            check_not_collapsed(collapsed, blocks)


def test_pictures_obey_their_labels_under_do_and_the_labeler_reads_real_ones(trained: Any, blocks: Dataset) -> None:
    """What a picture shows (its nearest mode) is what its labels say, at least nine times in ten; chance is at most a half."""
    model, _ = trained
    for do in ({}, {"side": 1}, {"side": 0, "tall": 1}):
        shown = ((model.sample(400, do, seed=3)[:, None] - torch.as_tensor(MODES)) ** 2).sum((2, 3, 4)).argmin(1)
        asked = model.sample_labels(400, do, seed=3) @ torch.tensor([2.0, 1.0])
        assert (shown == asked).float().mean() > 0.9, do
    read = model.encode(blocks.test.images)[..., 0]
    assert read.abs().max() <= 1
    assert ((read > 0) == (blocks.test.labels > 0.5)).float().mean() > 0.95


def test_the_pictures_leave_the_controller_as_it_is(blocks: Dataset) -> None:
    states = []
    for epochs in (0, 1):
        model = CausalGAN(blocks.spec, graph=SIDE_TALL, **TINY, epochs=epochs, controller_epochs=1, controller_batches=2)
        model.fit(blocks, seed=0)
        states.append(model.controller.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
