"""CMCL: every equation against a closed form, what the printed ones get wrong, and do() in both directions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from intervae.data.base import Dataset, Spec, Variable, build_dataset
from intervae.errors import DataError, QueryError, UsageError
from intervae.metrics import mic_matrix
from intervae.models.cmcl import CMCL
from intervae.models.cmcl_queries import LABEL_BANK

SMALL: dict[str, Any] = {"latents": 4, "embedding": 3, "channels": (4, 4), "posterior_widths": (8,), "prior_widths": (8,), "graph_widths": (4,)}
QUICK: dict[str, Any] = {**SMALL, "epochs": 2, "batch_size": 16}
M = SMALL["latents"]


def mixed(samples: int = 60, size: int = 8) -> Dataset:
    """Random pictures with a continuous, a binary and a categorical column."""
    rng = np.random.default_rng(0)
    table = np.stack([rng.normal(5, 3, samples), rng.random(samples) < 0.3, rng.integers(3, size=samples)], axis=1)
    images = rng.integers(0, 256, (samples, 1, size, size), dtype=np.uint8)
    return build_dataset("mixed", images, table, [Variable("a"), Variable("b", "binary"), Variable("c", "categorical", categories=("x", "y", "z"))])


def batch_of(data: Dataset, n: int = 8, step: float = 1e9) -> dict[str, Tensor]:
    return {**data.train.batch(torch.arange(n)), "step": torch.tensor(step)}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def vivid(model: CMCL) -> CMCL:
    """Untrained networks hardly depend on what they see; let them."""
    with torch.no_grad():
        for nets in (model.posterior_nets, model.prior_nets, model.networks.networks):
            for weight in nets.layer_weights:
                weight.mul_(3)
    return model.eval()


def make(data: Dataset | None = None, **settings: Any) -> CMCL:
    return vivid(CMCL((data or mixed()).spec, **{**SMALL, **settings}))


def with_edges(model: CMCL, *edges: tuple[str, str]) -> CMCL:
    """Leave strengths on these edges only."""
    wanted = torch.zeros_like(model.edges)
    for cause, effect in edges:
        wanted[model.node_names.index(cause), model.node_names.index(effect)] = 1
    with torch.no_grad():
        first = model.networks.networks.layer_weights[0]
        first.copy_(first.sign() * first.abs().clamp(min=0.5) * model.networks.spread(wanted))
        model.edges.copy_(wanted)
        model.influence.copy_(wanted)
    return model


# ---- the two modules ------------------------------------------------------------------------------------------------
def test_module_1_is_the_elbo_with_kl_of_q_from_p_outside_the_expectation() -> None:
    """Eqs. 5 and 6, which print KL(p || q) inside the bracket."""
    data, model = mixed(), make()
    batch = batch_of(data)
    seen = model.look(batch["images"], batch["labels"], seeded())
    terms = model.embedding_terms(batch, seen)
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
    terms, output = model.causal_terms(batch, seen)
    q, p = (
        Normal(mean, torch.exp(log_variance / 2)) for mean, log_variance in (model.posterior(seen.z0, seen.u, torch.ones(8, 1)), model.prior(seen.u))
    )
    pixels = functional.binary_cross_entropy_with_logits(model.decoder(seen.z), batch["images"], reduction="sum") / 8
    torch.testing.assert_close(output, model.decoder(seen.z))
    torch.testing.assert_close(terms["kl"], kl_divergence(q, p).sum(1).mean())
    torch.testing.assert_close(terms["loss"], pixels + kl_divergence(q, p).sum(1).mean())
    assert p.loc.std(0)[:3].min() > 0.01  # the prior does depend on u


def test_both_kl_rise_over_the_warm_up() -> None:
    data, model = mixed(), make(warm_up=2, batch_size=10)
    model.set_warm_up(data, 0)
    assert model.warm_up_steps == 2 * (len(data.train) // 10)
    for step, share in ((0.0, 0.0), (float(model.warm_up_steps) / 4, 0.25), (1e9, 1.0)):
        batch = batch_of(data, step=step)
        seen = model.look(batch["images"], batch["labels"], seeded())
        for terms, prefix in ((model.embedding_terms(batch, seen), "embedding_"), (model.causal_terms(batch, seen)[0], "")):
            torch.testing.assert_close(terms["loss"], terms[f"{prefix}reconstruction"] + share * terms[f"{prefix}kl"])


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
    full = make(pairing="full")
    assert (full.prior(u)[0] - full.prior(changed)[0]).abs().min(0).values.max() > 0
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


def test_alternating_steps_move_what_algorithm_1_says() -> None:
    model = make(schedule="alternating")
    moved = {player.name: player.parameters for player in model.phases()[0].players}
    assert list(moved) == ["embedding", "causal", "graph", "contrast"]
    parts = {name.split(".")[0] for name, parameter in model.named_parameters() if parameter.requires_grad}

    def of(player: str) -> set[str]:
        return {part for part in parts if f"{part}.".startswith(moved[player])}

    assert of("embedding") == {"encoder", "embedding_decoder"}
    assert of("causal") == {"encoder", "posterior_nets", "prior_nets", "decoder"}
    assert of("graph") == {"encoder", "posterior_nets", "networks"}  # the DAG shapes the representation
    assert of("contrast") == {"encoder", "posterior_nets", "classifier"}
    joint = {player.name: player.parameters for player in make().phases()[0].players}
    assert {part for part in parts if f"{part}.".startswith(joint["model"] + joint["graph"])} == parts


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
    found = model.graph_terms(seen, batch["labels"], None)["fit"]
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
        model.tighten({})
        started.append(float(model.shaping))
    assert started == [0, 1, 1]


def test_cycles_are_held_down_by_an_augmented_lagrangian() -> None:
    model = make(epochs=10, acyclicity_start=0.2, largest_penalty=100.0)
    values = iter([1.0, 1.0, 0.5, 0.1, 0.09, 0.08, 0.01])
    model.networks.cycles = lambda: torch.tensor(next(values))  # type: ignore[method-assign]
    state = []
    for _ in range(7):
        model.tighten({})
        state.append((round(float(model.multiplier), 4), float(model.penalty)))
    # nothing in the first epoch; then alpha += rho h, and rho grows tenfold, to 100 at most, where h has not fallen to a quarter
    assert state == [(0.0, 1.0), (1.0, 1.0), (1.5, 10.0), (2.5, 10.0), (3.4, 100.0), (11.4, 100.0), (12.4, 100.0)]


def test_the_graph_is_what_explains_enough_and_has_no_cycle() -> None:
    model = make(edge_threshold=0.3)
    assert not model.graph.edges
    for cause, effect, share in ((M, 0, 0.6), (0, M, 0.5), (1, M + 1, 0.2), (2, M + 2, 0.4)):
        model.influence[cause, effect] = share
    assert [(a, b, round(w, 3)) for a, b, w in model.graph.edges] == [("z2", "c", 0.4), ("a", "z0", 0.6)]


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
        model.tighten({})
        started.append(float(model.contrast_on))
    assert started == [0.0, 1.0, 1.0]
    assert torch.equal(model.edges, (model.networks.strengths >= 0.5 * model.networks.strengths.max()).float())


def test_a_column_is_replaced_by_that_of_another_sample_which_differs() -> None:
    data, model = mixed(400), make()
    u = model.inputs(data.train.labels[:200])
    for among, own in (([0.0, 1, 0], [1]), ([0.0, 0, 1], [2, 3, 4]), ([1.0, 0, 0], [0])):
        after = model.replace_column(u, torch.tensor(among), seeded())
        others = [c for c in range(5) if c not in own]
        assert torch.equal(after[:, others], u[:, others])
        assert (after[:, own] != u[:, own]).any(1).float().mean() > 0.85  # ties are resampled; 0.42 of the binary ones would differ without
        rows = {tuple(row) for row in u[:, own].tolist()}
        assert {tuple(row) for row in after[:, own].tolist()} <= rows
    after = model.replace_column(u, torch.tensor([1.0, 0, 1]), seeded())
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
    assert torch.equal(model.moved(z, u, u), z)
    after = u.clone()
    after[:, :2] = u[:, :2].roll(1, 0)  # a and b
    moved = model.moved(z, u, after)
    assert torch.equal(moved[:, 1:], z[:, 1:])
    f = [model.mechanism("z0", {"a": data.variables[0].denormalise(column[:, 0])}) for column in (u, after)]
    torch.testing.assert_close(moved[:, 0], f[1] + (z[:, 0] - f[0]), rtol=1e-4, atol=1e-4)
    assert (moved[:, 0] - z[:, 0]).abs().max() > 1e-3


def test_the_classifier_may_see_the_change_instead() -> None:
    inputs: list[Tensor] = []
    batch = batch_of(mixed())
    for kind in ("latents", "delta"):
        model = with_edges(make(contrast_input=kind), ("a", "z0"), ("z1", "b"))
        model.classifier.register_forward_hook(lambda *call: inputs.append(call[1][0]))
        model.contrast_loss(batch, seeded())
        z = model.look(batch["images"], batch["labels"], seeded()).z
    torch.testing.assert_close(inputs[0] - z.repeat(2, 1), inputs[1])


# ---- do -------------------------------------------------------------------------------------------------------------
def test_do_of_an_effect_leaves_the_picture_bit_for_bit_and_do_of_a_cause_does_not() -> None:
    """Eq. 16 prints p(x | do(u)) = p(x | u) for z -> u; it must be p(x)."""
    data, model = mixed(), with_edges(make(), ("a", "z0"), ("z1", "b"))
    images, labels = data.test.images, data.test.labels
    for rows in (None, labels):
        plain = model.reconstruct(images, rows)
        for do in ({"b": 1.0}, {"b": 0.0}, {"c": "y"}, {"b": 1, "c": 2}, {}):
            assert torch.equal(model.counterfactual(images, do, rows), plain)
        assert not torch.equal(model.counterfactual(images, {"a": 12.0}, rows), plain)
        latents = model.encode(images, rows)
        after = model.intervene(latents, {"a": 12.0, "b": 1.0}, rows)
        assert torch.equal(after[:, 1:], latents[:, 1:])
        assert (after[:, 0] != latents[:, 0]).all()
    assert torch.equal(model.sample(6, {"b": 1.0}, seed=0), model.sample(6, seed=0))
    assert not torch.equal(model.sample(6, {"a": 12.0}, seed=0), model.sample(6, seed=0))


def test_do_of_a_cause_sets_the_effect_to_its_mechanism_or_keeps_the_residual() -> None:
    """App. B, Eq. 15: decode after setting z_j = f_j(u')."""
    data, model = mixed(), with_edges(make(), ("a", "z0"), ("z1", "b"))
    images, labels = data.test.images, data.test.labels
    latents = model.encode(images)
    set_to = model.mechanism("z0", {"a": 7.0})
    torch.testing.assert_close(model.intervene(latents, {"a": 7.0})[:, 0, 0], set_to.expand(len(images)))
    torch.testing.assert_close(model.intervene(latents, {"a": 7.0}, labels, keep_noise=False)[:, 0, 0], set_to.expand(len(images)))
    kept = model.intervene(latents, {"a": 7.0}, labels)[:, 0, 0]
    torch.testing.assert_close(kept, set_to + latents[:, 0, 0] - model.mechanism("z0", {"a": labels[:, 0]}))
    unchanged = model.intervene(latents, {"a": lambda value: value}, labels)
    torch.testing.assert_close(unchanged, latents)
    moved = model.intervene(latents, {"z2": 1.5})
    assert (moved[:, 2] == 1.5).all()
    with pytest.raises(QueryError, match="give labels"):
        model.intervene(latents, {"a": lambda value: value + 1})
    with pytest.raises(QueryError, match="give labels"):
        model.intervene(latents, {"a": 1.0}, keep_noise=True)
    with pytest.raises(QueryError, match="unknown variable in do"):
        model.counterfactual(images, {"z9": 1.0})


def test_an_effect_of_an_effect_follows() -> None:
    data, model = mixed(), with_edges(make(), ("z1", "a"), ("a", "z0"))
    latents, labels = model.encode(data.test.images), data.test.labels
    after = model.intervene(latents, {"z1": 3.0}, labels)
    a = labels[:, 0] + model.mechanism("a", {"z1": 3.0}) - model.mechanism("a", {"z1": latents[:, 1, 0]})
    expected = latents[:, 0, 0] + model.mechanism("z0", {"a": a}) - model.mechanism("z0", {"a": labels[:, 0]})
    torch.testing.assert_close(after[:, 0, 0], expected, rtol=1e-4, atol=1e-4)
    assert not torch.equal(model.intervene(latents, {"z1": 3.0})[:, 0], latents[:, 0])  # the column need not be known


def test_mechanisms_answer_in_own_units_and_probabilities() -> None:
    data, model = mixed(), with_edges(make(), ("z0", "a"), ("z1", "b"), ("z2", "c"))
    values = torch.linspace(-2, 2, 5)
    a, b, c = (model.mechanism(name, {cause: values}) for name, cause in (("a", "z0"), ("b", "z1"), ("c", "z2")))
    first = model.networks(torch.cat([values[:, None], torch.zeros(5, 8)], 1), model.edges)[M, :, 0]  # latents of mean 0 and variance 1
    torch.testing.assert_close(a, data.variables[0].denormalise(first), rtol=1e-4, atol=1e-4)
    assert ((b > 0) & (b < 1)).all()
    assert c.shape == (5, 3)
    torch.testing.assert_close(c.sum(1), torch.ones(5))
    assert model.mechanism("a", {"z1": values}).std() < 1e-6  # no cause of it
    with pytest.raises(QueryError, match="unknown variable"):
        model.mechanism("a", {"z7": 0.0})
    with pytest.raises(QueryError, match="give as many"):
        model.mechanism("a", {"z0": values, "z1": values[:2]})


# ---- copying u ------------------------------------------------------------------------------------------------------
def test_the_dag_never_sees_latents_that_have_seen_u() -> None:
    data, model = mixed(), make(graph_sees="mean", label_dropout=0.3)
    batch = batch_of(data)
    views = [model.graph_view(model.look(batch["images"], labels, seeded()), None) for labels in (batch["labels"], batch["labels"].roll(1, 0))]
    assert torch.equal(*views)
    literal = make(graph_sees="mean", label_dropout=0.0)  # the paper
    views = [literal.graph_view(literal.look(batch["images"], labels, seeded()), None) for labels in (batch["labels"], batch["labels"].roll(1, 0))]
    assert not torch.equal(*views)


def test_label_influence_tells_copies_from_readings() -> None:
    data, model = mixed(400), make(label_dropout=0.0)
    images, labels = data.train.images, data.train.labels
    assert torch.equal(make(data, label_dropout=1.0).label_influence(images, labels), torch.zeros(M))
    with torch.no_grad():
        first = model.posterior_nets.layer_weights[0]
        first.zero_()
        first[0, 4] = 1.0  # z0 sees its own column alone (after z0 of size 3 and the flag)
        first[1, 0] = 1.0  # z1 sees the image alone
    influence = model.label_influence(images, labels)
    assert influence[0].item() == pytest.approx(1, abs=0.15)
    assert influence[1].item() == 0


def test_queries_go_without_labels_unless_the_encoder_never_learned_to() -> None:
    data = mixed()
    assert not make().needs_labels
    literal = make(label_dropout=0.0)
    assert literal.needs_labels
    with pytest.raises(QueryError, match="label_dropout=0, so its encoder needs the labels"):
        literal.encode(data.test.images)
    assert literal.encode(data.test.images, data.test.labels).shape == (len(data.test), M, 1)


# ---- likelihood and samples -----------------------------------------------------------------------------------------
def test_the_mean_log_weight_is_the_elbo_given_the_labels() -> None:
    """The pixels are made not to depend on z, so that the rest is minus the mean KL over z0, estimated beside it."""
    data, model = mixed(), make(label_dropout=0.0, network="conv", hidden=16)
    with torch.no_grad():
        model.decoder.dense[0].weight.zero_()
    images, labels = data.test.images[:3], data.test.labels[:3]
    drawn = model.log_weights(images, labels, 4000, seeded())
    with torch.no_grad():
        x, u = images.float() / 255, model.inputs(labels)
        mean, log_variance = model.embed(x)
        z0 = (mean + torch.exp(log_variance / 2) * torch.randn(4000, 3, 3, generator=seeded(1))).flatten(0, 1)
        u = u.repeat(4000, 1)
        q, p = (Normal(m, torch.exp(v / 2)) for m, v in (model.posterior(z0, u, torch.ones(len(u), 1)), model.prior(u)))
        kl = kl_divergence(q, p).sum(1).unflatten(0, (4000, 3))
        pixels = -functional.binary_cross_entropy_with_logits(model.decoder(torch.zeros(3, M)), x, reduction="none").flatten(1).sum(1)
    error = (drawn.var(0) + kl.var(0)).sqrt() / 4000**0.5
    assert ((drawn.mean(0) - (pixels - kl.mean(0))).abs() < 4 * error).all()
    with pytest.raises(QueryError, match="give log_weights the labels"):
        model.log_weights(images, None, 1)
    assert CMCL(data.spec, causal_module=False, **SMALL).eval().log_weights(images, None, 2, seeded()).shape == (2, 3)


def test_samples_come_from_rows_of_the_table() -> None:
    data = mixed()
    model = CMCL(data.spec, **QUICK)
    model.fit(data)
    assert len(model.label_bank) == LABEL_BANK
    assert {tuple(row) for row in model.label_bank.tolist()} == {tuple(row) for row in data.train.labels.tolist()}


# ---- bad input ------------------------------------------------------------------------------------------------------
def test_what_it_cannot_learn_from_is_refused_in_a_sentence() -> None:
    with pytest.raises(DataError, match=r"cmcl learns from labels, but this data has none; .*\.$"):
        CMCL(Spec((1, 8, 8)))
    with pytest.raises(DataError, match=r"'site' has 1000 categories, more than 50; merge"):
        CMCL(Spec((1, 8, 8), (Variable("site", "categorical", high=999.0),)))
    with pytest.raises(DataError, match="'z3' has the name of a latent"):
        CMCL(Spec((1, 8, 8), (Variable("z3"),)))
    for wrong in ({"label_dropout": 1.5}, {"graph_widths": ()}, {"pairing": "best"}, {"latents": 0}, {"contrast_start": -0.1}, {"scale": 0.0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            CMCL(mixed().spec, **wrong)
    data = mixed()
    twice = [Variable("a"), Variable("twice")]
    table = np.repeat(data.train.labels[:, :1].numpy(), 2, axis=1) * [1.0, 2.0]
    collinear = build_dataset("collinear", data.train.images.numpy(), table, twice)
    with pytest.raises(DataError, match="'twice' is a linear combination of 'a'"):
        CMCL(collinear.spec, **QUICK).fit(collinear)
    with pytest.raises(DataError, match="differs"):
        CMCL(data.spec, **QUICK).fit(replace(collinear))


# ---- recovery -------------------------------------------------------------------------------------------------------
def small_world(samples: int = 900, size: int = 6, seed: int = 0) -> Dataset:
    """Two bright spots of sizes z: `cause` bends the first, the second bends `effect`; noises and roots are Gaussian. The field `latents` is z."""
    rng = np.random.default_rng(seed)
    cause, second, *noise = rng.normal(size=(4, samples))
    first = 1.5 * np.tanh(2 * cause) + 0.4 * noise[0]
    effect = 1.5 * np.tanh(2 * second) + 0.4 * noise[1]
    pixels = np.zeros((samples, size, size))
    pixels[:, : size // 2] = np.tanh(0.5 * first)[:, None, None]
    pixels[:, size // 2 :] = np.tanh(0.5 * second)[:, None, None]
    images = np.rint(255 * (0.5 + 0.5 * pixels)).astype(np.uint8)[:, None]
    variables = [Variable("cause"), Variable("effect")]
    return build_dataset("small", images, np.stack([cause, effect], 1), variables, fields={"latents": np.stack([first, second], 1)})


def test_one_cause_and_one_effect_are_found_with_their_directions_and_are_not_copied() -> None:
    data = small_world()
    model = CMCL(
        data.spec, latents=2, embedding=4, network="conv", channels=(8,), hidden=32, likelihood="gaussian", scale=0.05, graph_sees="mean",
        contrast=False, epochs=50, batch_size=64, warm_up=5, learning_rate=2e-3,
    )  # fmt: skip
    model.fit(data, seed=0)
    assert {(a, b) for a, b, _ in model.graph.edges} == {("cause", "z0"), ("z1", "effect")}
    images, labels, true = data.test.images, data.test.labels, data.test.fields["latents"]
    z = model.encode(images)[..., 0]
    correlation = np.abs(np.corrcoef(z.T, true.T)[:2, 2:])
    assert correlation.diagonal().min() > 0.9
    assert mic_matrix(z.numpy(), true.numpy()).diagonal().min() > mic_matrix(z.numpy(), labels.numpy()).diagonal().max()
    shuffled = model.encode(images, labels.roll(7, 0))[..., 0]  # with the rows of other pictures the latents still follow the picture
    assert min(abs(np.corrcoef(shuffled[:, j], true[:, j])[0, 1]) for j in range(2)) > 0.7
    brightness = [model.counterfactual(images, {"cause": value}, labels)[:, :, :3].mean().item() for value in (-1.5, -0.5, 0.5, 1.5)]
    assert brightness == sorted(brightness)
    assert brightness[-1] - brightness[0] > 0.3
    assert torch.equal(model.counterfactual(images, {"effect": 2.0}, labels), model.reconstruct(images, labels))
