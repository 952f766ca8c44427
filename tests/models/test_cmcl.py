"""CMCL: every equation against a closed form, and what the printed ones get wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cross_modal_helpers import QUICK, SMALL, M, batch_of, make, mixed, seeded, with_edges
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from intervae.errors import DataError
from intervae.models.cmcl import CMCL
from intervae.models.cmcl_losses import causal_terms, embedding_terms, exchange_column, graph_terms, moved
from intervae.models.cmcl_schedule import decide, set_warm_up, tighten


# ---- the two modules ------------------------------------------------------------------------------------------------
def test_module_1_is_the_elbo_with_kl_of_q_from_p_outside_the_expectation() -> None:
    """Eqs. 5 and 6, which print KL(p || q) inside the bracket."""
    data, model = mixed(), make()
    batch = batch_of(data)
    seen = model.look(batch["images"], batch["labels"], seeded())
    terms = embedding_terms(model, batch, seen)
    mean, log_variance = model.encoder(batch["images"]).chunk(2, 1)
    q = Normal(mean, torch.exp(log_variance / 2))
    torch.testing.assert_close(seen.z0, mean + q.scale * torch.randn(8, 3, generator=seeded()))
    pixels = functional.binary_cross_entropy_with_logits(model.embedding_decoder(seen.z0), batch["images"], reduction="sum") / 8
    kl = kl_divergence(q, Normal(0.0 * mean, 1.0)).sum(1).mean()
    torch.testing.assert_close(terms["embedding_reconstruction"], pixels)
    torch.testing.assert_close(terms["embedding_kl"], kl)
    torch.testing.assert_close(terms["loss"], pixels + kl)


def test_module_2_is_the_elbo_under_the_conditional_prior_with_the_kl_outside_the_logarithm() -> None:
    """Eq. 19, and the second parameter of Eq. 18 is a variance."""
    data, model = mixed(), make(label_dropout=0.0)
    batch = batch_of(data)
    seen = model.look(batch["images"], batch["labels"], seeded())
    terms = causal_terms(model, batch, seen)
    q, p = (
        Normal(mean, torch.exp(log_variance / 2)) for mean, log_variance in (model.posterior(seen.z0, seen.u, torch.ones(8, 1)), model.prior(seen.u))
    )
    pixels = functional.binary_cross_entropy_with_logits(model.decoder(seen.z), batch["images"], reduction="sum") / 8
    assert torch.equal(causal_terms(model, batch, seen, 2 * model.decoder(seen.z))["kl"], terms["kl"])
    torch.testing.assert_close(terms["kl"], kl_divergence(q, p).sum(1).mean())
    torch.testing.assert_close(terms["loss"], pixels + kl_divergence(q, p).sum(1).mean())
    assert p.loc.std(0)[:3].min() > 0.01  # the prior does depend on u


def test_both_kl_rise_over_the_warm_up() -> None:
    data, model = mixed(), make(warm_up=2, batch_size=10)
    set_warm_up(model, data, 0)
    assert model.warm_up_steps == 2 * (len(data.train) // 10)
    for step, share in ((0.0, 0.0), (float(model.warm_up_steps) / 4, 0.25), (1e9, 1.0)):
        batch = batch_of(data, step=step)
        seen = model.look(batch["images"], batch["labels"], seeded())
        for terms, prefix in ((embedding_terms(model, batch, seen), "embedding_"), (causal_terms(model, batch, seen), "")):
            torch.testing.assert_close(terms["loss"], terms[f"{prefix}reconstruction"] + share * terms[f"{prefix}kl"])


def test_annealing_lets_the_weight_of_the_second_kl_fall_from_where_no_latent_pays_to_one() -> None:
    data, model = mixed(), make(annealing=0.5, epochs=4, batch_size=10, likelihood="gaussian", scale=0.2)
    set_warm_up(model, data, 0)
    steps = 2 * (len(data.train) // 10)
    pixels = (data.train.images.double() / 255).flatten(1)
    first = torch.linalg.eigvalsh(pixels.T.cov(correction=0))[-1].item() / 0.2**2
    assert model.annealing_steps == steps
    assert first > 3
    assert model.first_weight.item() == pytest.approx(first, rel=1e-2)
    first = model.first_weight.item()
    for step, weight in ((0.0, first), (steps / 2, first**0.5), (float(steps), 1.0), (1e9, 1.0)):
        batch = batch_of(data, step=step)
        seen = model.look(batch["images"], batch["labels"], seeded())
        terms = causal_terms(model, batch, seen)
        torch.testing.assert_close(terms["loss"], terms["reconstruction"] + weight * terms["kl"])
    bernoulli = make(annealing=0.5)
    set_warm_up(bernoulli, data, 0)
    assert bernoulli.first_weight.item() == pytest.approx(first * 0.2**2 / 0.5**2, rel=1e-4)


def test_pairing_by_index_shows_each_latent_its_own_column_and_the_last_none() -> None:
    model, u, z0 = make(), torch.randn(5, 5), torch.randn(5, 3)  # inputs: a, b, c = x, y, z
    seen = torch.ones(5, 1)
    for j, own in enumerate(([0], [1], [2, 3, 4], [])):
        for column in range(5):
            changed = u.clone()
            changed[:, column] += 2.0
            for before, after in ((model.prior(u), model.prior(changed)), (model.posterior(z0, u, seen), model.posterior(z0, changed, seen))):
                assert torch.equal(before[0][:, j], after[0][:, j]) == (column not in own)
    assert torch.equal(torch.stack(model.prior(u))[:, :, 3], torch.zeros(2, 5))  # N(0, 1)
    assert not torch.equal(model.posterior(z0)[0][:, 3], model.posterior(z0 + 1)[0][:, 3])


def test_the_other_pairings() -> None:
    u, changed = torch.randn(5, 5), torch.randn(5, 5)
    full, z0, seen = make(pairing="full"), torch.randn(5, 3), torch.ones(5, 1)
    for column in range(5):
        other = u.clone()
        other[:, column] += 2.0
        for before, after in ((full.prior(u), full.prior(other)), (full.posterior(z0, u, seen), full.posterior(z0, other, seen))):
            assert (before[0] - after[0]).abs().amin(0).min() > 1e-6, column  # every latent depends on every column
    learned = make(pairing="learned")
    with torch.no_grad():
        learned.pairing_logits.copy_(torch.tensor([[50.0, 0, 0], [0, 0, 50], [0, 50, 0], [0, 0, 0]]))
    expected = torch.tensor([[1.0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 1, 0, 0, 0], [1 / 3] * 5])
    torch.testing.assert_close(learned.pairing, expected)
    only_b = torch.where(torch.tensor([False, True, False, False, False]), changed, u)
    assert torch.equal(learned.prior(u)[0][:, 0], learned.prior(only_b)[0][:, 0])
    assert not torch.equal(learned.prior(u)[0][:, 2], learned.prior(only_b)[0][:, 2])
    kl = learned.loss(batch_of(mixed()), seeded())["kl"]
    assert torch.autograd.grad(kl, learned.pairing_logits)[0].abs().sum() > 0


def test_more_columns_than_latents_are_refused_unless_latents_may_share_columns() -> None:
    data = mixed()
    refused: list[dict[str, Any]] = [
        {},
        {"pairing": "full"},
        {"pairing": "learned"},
        {"one_each": False},
        {"causal_module": False},
        {"direction": "networks"},
    ]
    for settings in refused:
        with pytest.raises(DataError, match=r"3 columns, more than latents=2.*set latents=3"):
            CMCL(data.spec, **{**SMALL, "latents": 2, **settings}).check(data)
        CMCL(data.spec, **{**SMALL, "latents": 3, **settings}).check(data)
    for settings in ({"pairing": "full", "one_each": False}, {"pairing": "full", "direction": "networks"}):
        CMCL(data.spec, **{**SMALL, "latents": 2, **settings}).check(data)


def test_columns_reach_the_networks_standardised() -> None:
    data = mixed(4000)
    model = make(data)
    u = model.inputs(data.train.labels)
    assert u[:, :2].mean(0).abs().max() < 1e-4
    torch.testing.assert_close(u[:, :2].std(0, correction=0), torch.ones(2), atol=1e-4, rtol=0)
    assert u[:, 2:].var(0, correction=0).sum().item() == pytest.approx(1, abs=0.05)  # the categories together
    assert u[:, 2:].mean(0).abs().max() < 0.1
    labels = torch.tensor([[data.variables[0].mean, 1.0, 2.0]])
    torch.testing.assert_close(model.targets(labels), torch.tensor([[0.0, 1, 0, 0, 1]]), atol=1e-5, rtol=0)


def test_a_table_without_categories_is_read_at_once_and_alike() -> None:
    data = mixed().select(["a", "b"])
    model, labels = make(data), data.train.labels
    assert model.one_input_each
    fast = model.inputs(labels), model.targets(labels)
    model.one_input_each = False
    for found, expected in zip(fast, (model.inputs(labels), model.targets(labels)), strict=True):
        torch.testing.assert_close(found, expected)


def test_l2_reaches_the_first_encoder_unless_z0_is_detached() -> None:
    for detached in (False, True):
        model = make(detach_z0=detached)
        loss = model.causal_loss(batch_of(mixed()), seeded())["loss"]
        gradient = torch.autograd.grad(loss, model.encoder.dense[1].weight, allow_unused=True)[0]
        assert (gradient is None) == detached


# ---- the total ------------------------------------------------------------------------------------------------------
def test_the_total_is_minus_l1_minus_l2_plus_l_dag_minus_l_cr() -> None:
    """Eq. 14; all four are minimised together: the classifier co-operates with the encoders."""
    data = mixed()
    weights = {"embedding_weight": 2.0, "causal_weight": 3.0, "graph_weight": 5.0, "contrast_weight": 7.0}
    model = with_edges(make(**weights, sparsity=0.1, decay=0.2), ("a", "z0"), ("z1", "b"))
    model.contrast_on.fill_(1.0)
    model.multiplier.fill_(1.5)
    model.penalty.fill_(4.0)
    with torch.no_grad():
        model.networks.networks.layer_weights[0][0, M] = 0.4  # a -> z0
        model.networks.networks.layer_weights[0][M, 0] = 0.4  # and back, so that there is a cycle
    terms = model.loss(batch_of(data), seeded())
    assert terms["cycles"] > 0
    assert terms["contrast"] > 0
    graph = terms["fit"] + 0.1 * terms["sparsity"] + 0.2 * model.networks.decay() + 1.5 * terms["cycles"] + 2.0 * terms["cycles"] ** 2
    expected = (
        2 * (terms["embedding_reconstruction"] + terms["embedding_kl"])
        + 3 * (terms["reconstruction"] + terms["kl"])
        + 5 * graph
        + 7 * terms["contrast"]
    )
    torch.testing.assert_close(terms["loss"], expected)
    assert torch.autograd.grad(model.contrast_loss(batch_of(data), seeded())["loss"], model.classifier[0].weight)[0].abs().sum() > 0


def test_without_module_2_z0_is_z() -> None:
    data, model = mixed(), CMCL(mixed().spec, causal_module=False, **SMALL).eval()
    assert model.embed(data.test.images.float() / 255)[0].shape[1] == M
    assert not any(name.startswith(("posterior_nets", "prior_nets", "decoder")) for name, _ in model.named_parameters())
    batch = batch_of(data)
    terms, seen = model.loss(batch, seeded()), model.look(batch["images"], batch["labels"], seeded())
    assert torch.equal(seen.z, seen.z0)
    assert terms["reconstruction"] == terms["embedding_reconstruction"]
    assert "kl" not in terms
    mean = model.encode(data.test.images)[..., 0]
    torch.testing.assert_close(mean, model.embed(data.test.images.float() / 255)[0])
    torch.testing.assert_close(model.decode(mean[..., None]), torch.sigmoid(model.embedding_decoder(mean)))


@pytest.mark.parametrize("causal_module", [True, False])
@pytest.mark.parametrize("contrast", [True, False])
@pytest.mark.parametrize("schedule", ["joint", "alternating"])
def test_every_ablation_and_schedule_is_trained(causal_module: bool, contrast: bool, schedule: Any) -> None:
    data = mixed()
    model = CMCL(data.spec, **QUICK, causal_module=causal_module, contrast=contrast, schedule=schedule, contrast_start=0.0)
    history = model.fit(data).history
    named = [key.split(".")[-1] for key in history[-1]["train"]]
    assert ("contrast" in named) == contrast
    assert ("kl" in named) == causal_module
    assert model.counterfactual(data.test.images, {"a": 3.0}, data.test.labels).shape == data.test.images.shape


def test_alternating_steps_are_those_of_algorithm_1_with_one_for_all_that_shapes_the_latents() -> None:
    model = make(schedule="alternating")
    by_player = {player.name: player.parameters for player in model.phases()[0].players}
    assert list(by_player) == ["embedding", "causal", "graph", "contrast"]
    parts = {name.split(".")[0] for name, parameter in model.named_parameters() if parameter.requires_grad}

    def of(player: str) -> set[str]:
        return {part for part in parts if f"{part}.".startswith(by_player[player])}

    assert of("embedding") == {"encoder", "embedding_decoder"}
    assert of("causal") == {"encoder", "posterior_nets", "prior_nets", "decoder"}
    assert of("graph") == {"networks"}
    assert of("contrast") == {"classifier"}
    (joint,) = make(learning_rate=0.002, graph_rate=0.03).phases()[0].players
    assert {part for part in parts if f"{part}.".startswith(joint.parameters)} == parts
    assert (joint.learning_rate, joint.own_rates) == (0.002, (("networks.", 0.03),))


@pytest.mark.parametrize("causal_module", [True, False])
def test_in_alternating_steps_the_dag_and_the_contrast_reach_the_encoders_beside_the_picture(causal_module: bool) -> None:
    """An Adam step of their own would be as large as one of the picture's loss, though their gradient is a fraction of it."""
    weights = {"embedding_weight": 2.0, "causal_weight": 3.0, "graph_weight": 5.0, "contrast_weight": 7.0}
    settings: dict[str, Any] = {**SMALL, **weights, "schedule": "alternating", "shaping_start": 0.0, "causal_module": causal_module}
    model = with_edges(CMCL(mixed().spec, **settings).eval(), ("a", "z0"), ("z1", "b"))
    model.contrast_on.fill_(1.0)
    players = {player.name: player for player in model.phases()[0].players}
    assert ("causal" in players) == causal_module
    batch, noise = batch_of(mixed()), seeded()
    own = (model.causal_loss, 3.0) if causal_module else (model.embedding_loss, 2.0)
    parts = [weight * loss(batch, noise)["loss"] for loss, weight in (own, (model.graph_loss, 5.0), (model.contrast_loss, 7.0))]
    shaped = players["causal" if causal_module else "embedding"].loss(batch, seeded())["loss"]
    torch.testing.assert_close(shaped, sum(parts))
    assert all(torch.autograd.grad(part, model.encoder.dense[1].weight)[0].any() for part in parts)


# ---- the DAG --------------------------------------------------------------------------------------------------------
def test_edges_are_between_latents_and_columns_unless_asked_otherwise() -> None:
    model = make()
    assert model.graph.names == ("z0", "z1", "z2", "z3", "a", "b", "c")
    strengths = model.networks.strengths
    assert not strengths[:M, :M].any()
    assert not strengths[M:, M:].any()
    assert (strengths[M:, :M] > 0).all()
    free = make(bipartite=False).networks.strengths
    assert (free > 0).float().equal(1 - torch.eye(7))


def test_the_dag_fits_standardised_nodes_each_by_its_own_likelihood() -> None:
    data, model = mixed(), make(graph_sees="mean").train()
    batch = batch_of(data, 16)
    seen = model.look(batch["images"], batch["labels"], seeded())
    found = graph_terms(model, seen, batch["labels"], None)["fit"]
    z = model.posterior(seen.z0)[0]
    z = (z - z.mean(0)) / (z.var(0, correction=0) + 1e-5).sqrt()
    outputs = model.networks(torch.cat([z, model.inputs(batch["labels"])], 1))
    expected = 0.5 * (z - outputs[:M, :, 0].T).square().sum(1)  # s^2 starts at 1
    a, b, c = batch["labels"].unbind(1)
    expected = expected + 0.5 * (data.variables[0].normalise(a) - outputs[M, :, 0]) ** 2
    expected = expected + functional.binary_cross_entropy_with_logits(outputs[M + 1, :, 0], b, reduction="none")
    expected = expected + functional.cross_entropy(outputs[M + 2], c.long(), reduction="none")
    torch.testing.assert_close(found, expected.mean())


@pytest.mark.parametrize("loss", ["nll", "mse"])
def test_rescaling_the_latents_turns_no_edge(loss: Any) -> None:
    """Latents ten times as large give the same loss and the same step of the DAG; without standardising, least squares would follow the scale."""
    data, found = mixed(), []
    for factor in (1.0, 10.0):
        model = make(graph_loss=loss, graph_sees="mean").train()
        with torch.no_grad():
            model.posterior_nets.layer_weights[-1][..., 0] *= factor
            model.posterior_nets.layer_biases[-1][..., 0] *= factor
        optimiser = torch.optim.Adam(model.networks.parameters(), lr=0.01)
        for step in range(20):
            optimiser.zero_grad()
            terms = model.graph_loss(batch_of(data, 32), seeded(step))
            terms["loss"].backward()
            optimiser.step()
        found.append((terms["fit"].detach(), model.networks.strengths))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=2e-2, atol=2e-2)


def test_the_dag_shapes_the_latents_once_it_is_time_for_it() -> None:
    batch = batch_of(mixed())
    for shaped in (0.0, 1.0):
        model = make(shaping_start=1.0)
        model.shaping.fill_(shaped)
        gradients = torch.autograd.grad(model.graph_loss(batch, seeded())["loss"], [model.encoder.dense[1].weight, model.networks.log_noise])
        assert bool(gradients[0].any()) == bool(shaped)
        assert gradients[1].any()
    assert make(shaping_start=0.0).shaping == 1  # the paper
    model, started = make(shaping_start=0.5, epochs=4), []
    for _ in range(3):
        tighten(model, {})
        started.append(float(model.shaping))
    assert started == [0, 1, 1]


def test_cycles_are_held_down_by_an_augmented_lagrangian() -> None:
    model = make(epochs=10, acyclicity_start=0.2, largest_penalty=100.0)
    values = iter([1.0, 1.0, 0.5, 0.1, 0.09, 0.08, 0.01])
    model.networks.cycles = lambda: torch.tensor(next(values))  # type: ignore[method-assign]
    state = []
    for _ in range(7):
        tighten(model, {})
        state.append((round(float(model.multiplier), 4), float(model.penalty)))
    # nothing in the first epoch; then alpha += rho h, and rho grows tenfold, to 100 at most, where h has not fallen to a quarter
    assert state == [(0.0, 1.0), (1.0, 1.0), (1.5, 10.0), (2.5, 10.0), (3.4, 100.0), (11.4, 100.0), (12.4, 100.0)]


def test_the_graph_is_what_explains_enough_and_has_no_cycle() -> None:
    model = make(edge_threshold=0.3)
    assert not model.graph.edges
    for cause, effect, share in ((M, 0, 0.6), (0, M, 0.5), (1, M + 1, 0.2), (2, M + 2, 0.4)):
        model.influence[cause, effect] = share
    assert [(a, b, round(w, 3)) for a, b, w in model.graph.edges] == [("z2", "c", 0.4), ("a", "z0", 0.6)]


def test_a_latent_that_no_picture_shows_has_no_edge() -> None:
    """It may follow a column closely: what is left of it when the decoder does not use it comes from u."""
    data, model = mixed(400), make(network="mlp")
    part, rng = data.train, torch.Generator().manual_seed(0)
    z = torch.randn(len(part), M, generator=rng)
    z[:, 1] = torch.tanh(data.variables[0].normalise(part.labels[:, 0])) * 3 + z[:, 1]  # follows a
    z[:, 2] = part.labels[:, 1] * 3 + z[:, 2]  # follows b
    decide(model, z, part)
    assert {edge[:2] for edge in model.graph.edges} >= {("a", "z1"), ("b", "z2")}
    with torch.no_grad():
        next(iter(model.decoder.parameters()))[:, 1:3] = 0
    decide(model, z, part)
    assert not model.influence[:, 1:3].any()
    assert not model.influence[1:3].any()


# ---- the contrast ---------------------------------------------------------------------------------------------------
def test_the_contrast_is_a_cross_entropy_with_label_1_for_causal_counterfactuals() -> None:
    """Eq. 13, which prints D and 1 - D without logarithms."""
    data, model = mixed(), with_edges(make(label_dropout=0.0), ("a", "z0"), ("z1", "b"))
    model.contrast_on.fill_(1.0)
    logits: list[Tensor] = []
    model.classifier.register_forward_hook(lambda *call: logits.append(call[2][:, 0]))
    batch = batch_of(data)
    found = model.contrast_loss(batch, seeded())["contrast"]
    causal, anti = torch.sigmoid(logits[0]).chunk(2)
    torch.testing.assert_close(found, -torch.log(causal).mean() - torch.log(1 - anti).mean())


def test_the_contrast_waits_for_its_time_and_for_edges_of_both_kinds() -> None:
    batch = batch_of(mixed())
    both = (("a", "z0"), ("z1", "b"))
    for edges, on, active in ((both, 1.0, True), (both, 0.0, False), (both[:1], 1.0, False), (both[1:], 1.0, False), ((), 1.0, False)):
        model = with_edges(make(), *edges)
        model.contrast_on.fill_(on)
        terms = model.contrast_loss(batch, seeded())
        assert bool(terms["contrast"] > 0) == active
        terms["loss"].backward()
        assert bool(model.classifier[0].weight.grad.any()) == active
    model = with_edges(make(epochs=10, contrast_start=0.2, contrast_threshold=0.5), *both)
    model.edges.zero_()
    started = []
    for _ in range(3):
        tighten(model, {})
        started.append(float(model.contrast_on))
    assert started == [0.0, 1.0, 1.0]
    assert torch.equal(model.edges, (model.networks.strengths >= 0.5 * model.networks.strengths.max()).float())


def test_a_column_is_replaced_by_that_of_another_sample_which_differs() -> None:
    data, model = mixed(400), make()
    u = model.inputs(data.train.labels[:200])
    for among, own in (([0.0, 1, 0], [1]), ([0.0, 0, 1], [2, 3, 4]), ([1.0, 0, 0], [0])):
        after = exchange_column(u, torch.tensor(among), model.owner, seeded())
        others = [c for c in range(5) if c not in own]
        assert torch.equal(after[:, others], u[:, others])
        assert (after[:, own] != u[:, own]).any(1).float().mean() > 0.85  # ties are resampled; 0.42 of the binary ones would differ without
        rows = {tuple(row) for row in u[:, own].tolist()}
        assert {tuple(row) for row in after[:, own].tolist()} <= rows
    after = exchange_column(u, torch.tensor([1.0, 0, 1]), model.owner, seeded())
    changed = torch.stack([(after != u)[:, c].any(1) for c in ([0], [1], [2, 3, 4])], 1)
    assert changed.sum(1).max() == 1
    assert changed.float().mean(0)[[0, 2]].min() > 0.35
    assert not changed[:, 1].any()


def test_abduction_keeps_each_residual_and_moves_effects_only() -> None:
    data, model = mixed(), with_edges(make(), ("a", "z0"), ("z1", "b"))
    with torch.no_grad():
        model.standardiser.mean.copy_(torch.tensor([1.0, 2, 3, 4]))
        model.standardiser.variance.copy_(torch.tensor([4.0, 1, 1, 9]))
    u, z = model.inputs(data.train.labels[:6]), torch.randn(6, M)
    assert torch.equal(moved(model, z, u, u), z)
    after = u.clone()
    after[:, :2] = u[:, :2].roll(1, 0)  # a and b
    acted = moved(model, z, u, after)
    assert torch.equal(acted[:, 1:], z[:, 1:])
    f = [model.mechanism("z0", {"a": data.variables[0].denormalise(column[:, 0])}) for column in (u, after)]
    torch.testing.assert_close(acted[:, 0], f[1] + (z[:, 0] - f[0]), rtol=1e-4, atol=1e-4)
    assert (acted[:, 0] - z[:, 0]).abs().max() > 1e-3


def test_the_classifier_may_see_the_change_instead() -> None:
    inputs: list[Tensor] = []
    batch = batch_of(mixed())
    for kind in ("latents", "delta"):
        model = with_edges(make(contrast_input=kind), ("a", "z0"), ("z1", "b"))
        model.classifier.register_forward_hook(lambda *call: inputs.append(call[1][0]))
        model.contrast_loss(batch, seeded())
        z = model.look(batch["images"], batch["labels"], seeded()).z
    torch.testing.assert_close(inputs[0] - z.repeat(2, 1), inputs[1])
