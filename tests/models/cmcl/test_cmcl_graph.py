"""CMCL: the DAG's loss, its schedule, the final edges and the contrast."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cross_modal_helpers import (
    M,
    batch_of,
    contrast_loss,
    graph_loss,
    infer_batch,
    make,
    mixed,
    seeded,
    with_edges,
)
from intervae.models.cmcl import schedule
from intervae.models.cmcl.final_graph import decide_directions
from intervae.models.cmcl.losses import counterfactual_latents, graph_terms, swap_column
from intervae.models.cmcl.schedule import update_after_epoch


# ---- the DAG -------------------------------------------------------------------------------------
def test_edges_are_bipartite_by_default() -> None:
    model = make()
    assert model.graph.names == ("z0", "z1", "z2", "z3", "a", "b", "c")
    strengths = model.networks.strengths
    assert not strengths[:M, :M].any()
    assert not strengths[M:, M:].any()
    assert (strengths[M:, :M] > 0).all()
    free = make(bipartite=False).networks.strengths
    assert (free > 0).float().equal(1 - torch.eye(7))


def test_dag_loss_is_the_likelihood_of_each_standardised_node() -> None:
    data, model = mixed(), make().train()
    batch = batch_of(data, 16)
    inferred = infer_batch(model, batch)
    fit = graph_terms(model, inferred, batch["labels"])["fit"]
    z = model.posterior(inferred.z0)[0]
    z = (z - z.mean(0)) / (z.var(0, correction=0) + 1e-5).sqrt()
    outputs = model.networks(torch.cat([z, model.inputs(batch["labels"])], 1))
    expected = 0.5 * (z - outputs[:M, :, 0].T).square().sum(1)  # s^2 starts at 1
    a, b, c = batch["labels"].unbind(1)
    expected = expected + 0.5 * (data.variables[0].normalise(a) - outputs[M, :, 0]) ** 2
    expected = expected + functional.binary_cross_entropy_with_logits(
        outputs[M + 1, :, 0], b, reduction="none"
    )
    expected = expected + functional.cross_entropy(outputs[M + 2], c.long(), reduction="none")
    torch.testing.assert_close(fit, expected.mean())


@pytest.mark.parametrize("loss", ["nll", "mse"])
def test_the_scale_of_the_latents_does_not_change_the_dag(loss: Any) -> None:
    """Latents ten times as large give the same loss and the same steps of the DAG."""
    data, results = mixed(), []
    for factor in (1.0, 10.0):
        model = make(graph_loss=loss).train()
        with torch.no_grad():
            model.posterior_nets.layer_weights[-1][..., 0] *= factor
            model.posterior_nets.layer_biases[-1][..., 0] *= factor
        optimiser = torch.optim.Adam(model.networks.parameters(), lr=0.01)
        for step in range(20):
            optimiser.zero_grad()
            terms = graph_loss(model, batch_of(data, 32), step)
            terms["loss"].backward()
            optimiser.step()
        results.append((terms["fit"].detach(), model.networks.strengths))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=2e-2, atol=2e-2)


def test_dag_loss_reaches_the_encoder_after_dag_gradient_start() -> None:
    batch = batch_of(mixed())
    for shaped in (0.0, 1.0):
        model = make(dag_gradient_start=1.0)
        model.shaping.fill_(shaped)
        gradients = torch.autograd.grad(
            graph_loss(model, batch)["loss"],
            [model.encoder.dense[1].weight, model.networks.log_noise],
        )
        assert bool(gradients[0].any()) == bool(shaped)
        assert gradients[1].any()
    assert make(dag_gradient_start=0.0).shaping == 1  # the paper
    model, started = make(dag_gradient_start=0.5, epochs=4), []
    for _ in range(3):
        update_after_epoch(model, {})
        started.append(float(model.shaping))
    assert started == [0, 1, 1]


def test_cycles_are_penalised_by_an_augmented_lagrangian(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(epochs=10, acyclicity_start=0.2)
    monkeypatch.setattr(schedule, "LARGEST_PENALTY", 100.0)
    values = iter([1.0, 0.5, 0.1, 0.09, 0.08, 0.01])
    model.networks.cycles = lambda: torch.tensor(next(values))  # type: ignore[method-assign]
    state = []
    for _ in range(7):
        update_after_epoch(model, {})
        state.append((round(float(model.multiplier), 4), float(model.penalty)))
    # no change in the first epoch; then alpha += rho h, and rho grows tenfold, to 100 at most,
    # where h has not fallen to a quarter
    assert state == [
        (0.0, 1.0),
        (1.0, 1.0),
        (1.5, 10.0),
        (2.5, 10.0),
        (3.4, 100.0),
        (11.4, 100.0),
        (12.4, 100.0),
    ]


def test_graph_is_thresholded_and_acyclic() -> None:
    model = make(edge_threshold=0.3)
    assert not model.graph.edges
    for cause, effect, share in ((M, 0, 0.6), (0, M, 0.5), (1, M + 1, 0.2), (2, M + 2, 0.4)):
        model.influence[cause, effect] = share
    assert [(a, b, round(w, 3)) for a, b, w in model.graph.edges] == [
        ("z2", "c", 0.4),
        ("a", "z0", 0.6),
    ]


def test_a_latent_that_changes_no_image_has_no_edge() -> None:
    """It may still follow a column: without the decoder's use, it is inferred from u."""
    data, model = mixed(400), make(network="mlp")
    part, rng = data.train, torch.Generator().manual_seed(0)
    z = torch.randn(len(part), M, generator=rng)
    z[:, 1] = torch.tanh(data.variables[0].normalise(part.labels[:, 0])) * 3 + z[:, 1]  # follows a
    z[:, 2] = part.labels[:, 1] * 3 + z[:, 2]  # follows b
    decide_directions(model, z, part)
    assert {edge[:2] for edge in model.graph.edges} >= {("a", "z1"), ("b", "z2")}
    with torch.no_grad():
        next(iter(model.decoder.parameters()))[:, 1:3] = 0
    decide_directions(model, z, part)
    assert not model.influence[:, 1:3].any()
    assert not model.influence[1:3].any()


# ---- the contrast --------------------------------------------------------------------------------
def test_contrast_is_a_cross_entropy_with_label_1_for_do_of_a_cause() -> None:
    """Eq. 13, which prints D and 1 - D without logarithms."""
    data, model = mixed(), with_edges(make(label_dropout=0.0), ("a", "z0"), ("z1", "b"))
    model.contrast_on.fill_(1.0)
    logits: list[Tensor] = []
    model.classifier.register_forward_hook(lambda *call: logits.append(call[2][:, 0]))
    batch = batch_of(data)
    contrast = contrast_loss(model, batch)["contrast"]
    causal, anti = torch.sigmoid(logits[0]).chunk(2)
    torch.testing.assert_close(contrast, -torch.log(causal).mean() - torch.log(1 - anti).mean())


def test_contrast_waits_for_its_start_and_for_edges_of_both_kinds() -> None:
    batch = batch_of(mixed())
    both = (("a", "z0"), ("z1", "b"))
    for edges, on, active in (
        (both, 1.0, True),
        (both, 0.0, False),
        (both[:1], 1.0, False),
        (both[1:], 1.0, False),
        ((), 1.0, False),
    ):
        model = with_edges(make(), *edges)
        model.contrast_on.fill_(on)
        terms = contrast_loss(model, batch)
        assert bool(terms["contrast"] > 0) == active
        terms["loss"].backward()
        assert bool(model.classifier[0].weight.grad.any()) == active
    model = with_edges(make(epochs=10, contrast_start=0.2, contrast_threshold=0.5), *both)
    model.edges.zero_()
    started = []
    for _ in range(3):
        update_after_epoch(model, {})
        started.append(float(model.contrast_on))
    assert started == [0.0, 1.0, 1.0]
    assert torch.equal(
        model.edges, (model.networks.strengths >= 0.5 * model.networks.strengths.max()).float()
    )


def test_swap_column_takes_a_different_value_from_another_row() -> None:
    data, model = mixed(400), make()
    u = model.inputs(data.train.labels[:200])
    for among, own in (([0.0, 1, 0], [1]), ([0.0, 0, 1], [2, 3, 4]), ([1.0, 0, 0], [0])):
        after = swap_column(u, torch.tensor(among), model.owner, seeded())
        others = [c for c in range(5) if c not in own]
        assert torch.equal(after[:, others], u[:, others])
        changed = (after[:, own] != u[:, own]).any(1).float().mean()
        assert changed > 0.85  # equal values are redrawn; 0.42 of the binary ones differ at once
        rows = {tuple(row) for row in u[:, own].tolist()}
        assert {tuple(row) for row in after[:, own].tolist()} <= rows
    after = swap_column(u, torch.tensor([1.0, 0, 1]), model.owner, seeded())
    changed = torch.stack([(after != u)[:, c].any(1) for c in ([0], [1], [2, 3, 4])], 1)
    assert changed.sum(1).max() == 1
    assert changed.float().mean(0)[[0, 2]].min() > 0.35
    assert not changed[:, 1].any()


def test_counterfactual_latents_keep_residuals_and_move_effects_only() -> None:
    data, model = mixed(), with_edges(make(), ("a", "z0"), ("z1", "b"))
    with torch.no_grad():
        model.standardiser.mean.copy_(torch.tensor([1.0, 2, 3, 4]))
        model.standardiser.variance.copy_(torch.tensor([4.0, 1, 1, 9]))
    u, z = model.inputs(data.train.labels[:6]), torch.randn(6, M)
    assert torch.equal(counterfactual_latents(model, z, u, u), z)
    after = u.clone()
    after[:, :2] = u[:, :2].roll(1, 0)  # a and b
    acted = counterfactual_latents(model, z, u, after)
    assert torch.equal(acted[:, 1:], z[:, 1:])
    f = [
        model.effect_curve("z0", {"a": data.variables[0].denormalise(column[:, 0])})
        for column in (u, after)
    ]
    torch.testing.assert_close(acted[:, 0], f[1] + (z[:, 0] - f[0]), rtol=1e-4, atol=1e-4)
    assert (acted[:, 0] - z[:, 0]).abs().max() > 1e-3
