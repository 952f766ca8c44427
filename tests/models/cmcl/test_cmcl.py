"""CMCL: modules 1 and 2 and the total loss against closed forms."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from cross_modal_helpers import (
    QUICK,
    SMALL,
    M,
    batch_of,
    contrast_loss,
    infer_batch,
    make,
    mixed,
    seeded,
    with_edges,
)
from intervae.errors import DataError, UsageError
from intervae.models.cmcl.losses import causal_terms, embedding_terms
from intervae.models.cmcl.model import CMCL
from intervae.models.cmcl.schedule import set_kl_schedule
from intervae.models.cmcl.settings import CMCLSettings
from intervae.settings import upgrade_settings


# ---- modules 1 and 2 -----------------------------------------------------------------------------
def test_module_1_is_the_elbo_with_the_kl_outside_the_expectation() -> None:
    """Eqs. 5 and 6, which print KL(p || q) inside the bracket."""
    data, model = mixed(), make()
    batch = batch_of(data)
    inferred = infer_batch(model, batch)
    terms = embedding_terms(model, batch, inferred)
    mean, log_variance = model.encoder(batch["images"]).chunk(2, 1)
    q = Normal(mean, torch.exp(log_variance / 2))
    torch.testing.assert_close(inferred.z0, mean + q.scale * torch.randn(8, 3, generator=seeded()))
    pixels = (
        functional.binary_cross_entropy_with_logits(
            model.embedding_decoder(inferred.z0), batch["images"], reduction="sum"
        )
        / 8
    )
    kl = kl_divergence(q, Normal(0.0 * mean, 1.0)).sum(1).mean()
    torch.testing.assert_close(terms["embedding_reconstruction"], pixels)
    torch.testing.assert_close(terms["embedding_kl"], kl)
    torch.testing.assert_close(terms["loss"], pixels + kl)


def test_module_2_is_the_elbo_under_the_conditional_prior() -> None:
    """Eq. 19, and the second parameter of Eq. 18 is a variance."""
    data, model = mixed(), make(label_dropout=0.0)
    batch = batch_of(data)
    inferred = infer_batch(model, batch)
    terms = causal_terms(model, batch, inferred)
    q, p = (
        Normal(mean, torch.exp(log_variance / 2))
        for mean, log_variance in (
            model.posterior(inferred.z0, inferred.u, torch.ones(8, 1)),
            model.prior(inferred.u),
        )
    )
    pixels = (
        functional.binary_cross_entropy_with_logits(
            model.decoder(inferred.z), batch["images"], reduction="sum"
        )
        / 8
    )
    assert torch.equal(
        causal_terms(model, batch, inferred, 2 * model.decoder(inferred.z))["kl"], terms["kl"]
    )
    torch.testing.assert_close(terms["kl"], kl_divergence(q, p).sum(1).mean())
    torch.testing.assert_close(terms["loss"], pixels + kl_divergence(q, p).sum(1).mean())
    assert p.loc.std(0)[:3].min() > 0.01  # the prior does depend on u


def test_kl_weights_rise_during_warm_up() -> None:
    data, model = mixed(), make(annealing=0.0, warm_up=2, batch_size=10)
    set_kl_schedule(model, data, 0)
    assert model.warm_up_steps == 2 * (len(data.train) // 10)
    for step, share in ((0.0, 0.0), (float(model.warm_up_steps) / 4, 0.25), (1e9, 1.0)):
        batch = batch_of(data, step=step)
        inferred = infer_batch(model, batch)
        for terms, prefix in (
            (embedding_terms(model, batch, inferred), "embedding_"),
            (causal_terms(model, batch, inferred), ""),
        ):
            torch.testing.assert_close(
                terms["loss"], terms[f"{prefix}reconstruction"] + share * terms[f"{prefix}kl"]
            )


def test_annealing_lowers_the_kl_weight_of_module_2_to_one() -> None:
    data, model = (
        mixed(),
        make(annealing=0.5, epochs=4, batch_size=10, likelihood="gaussian", scale=0.2),
    )
    set_kl_schedule(model, data, 0)
    steps = 2 * (len(data.train) // 10)
    pixels = (data.train.images.double() / 255).flatten(1)
    first = torch.linalg.eigvalsh(pixels.T.cov(correction=0))[-1].item() / 0.2**2
    assert model.annealing_steps == steps
    assert first > 3
    assert model.first_weight.item() == pytest.approx(first, rel=1e-2)
    first = model.first_weight.item()
    for step, weight in ((0.0, first), (steps / 2, first**0.5), (float(steps), 1.0), (1e9, 1.0)):
        batch = batch_of(data, step=step)
        inferred = infer_batch(model, batch)
        terms = causal_terms(model, batch, inferred)
        torch.testing.assert_close(terms["loss"], terms["reconstruction"] + weight * terms["kl"])
    bernoulli = make(annealing=0.5)
    set_kl_schedule(bernoulli, data, 0)
    assert bernoulli.first_weight.item() == pytest.approx(first * 0.2**2 / 0.5**2, rel=1e-4)


def test_index_pairing_gives_each_latent_its_own_column() -> None:
    model, u, z0 = make(), torch.randn(5, 5), torch.randn(5, 3)  # inputs: a, b, c = x, y, z
    visible = torch.ones(5, 1)
    for j, own in enumerate(([0], [1], [2, 3, 4], [])):
        for column in range(5):
            changed = u.clone()
            changed[:, column] += 2.0
            for before, after in (
                (model.prior(u), model.prior(changed)),
                (model.posterior(z0, u, visible), model.posterior(z0, changed, visible)),
            ):
                assert torch.equal(before[0][:, j], after[0][:, j]) == (column not in own)
    assert torch.equal(torch.stack(model.prior(u))[:, :, 3], torch.zeros(2, 5))  # N(0, 1)
    assert not torch.equal(model.posterior(z0)[0][:, 3], model.posterior(z0 + 1)[0][:, 3])


def test_full_and_learned_pairing() -> None:
    u, changed = torch.randn(5, 5), torch.randn(5, 5)
    full, z0, visible = make(pairing="full"), torch.randn(5, 3), torch.ones(5, 1)
    for column in range(5):
        other = u.clone()
        other[:, column] += 2.0
        for before, after in (
            (full.prior(u), full.prior(other)),
            (full.posterior(z0, u, visible), full.posterior(z0, other, visible)),
        ):
            # every latent depends on every column
            assert (before[0] - after[0]).abs().amin(0).min() > 1e-6, column
    learned = make(pairing="learned")
    with torch.no_grad():
        learned.pairing_logits.copy_(
            torch.tensor([[50.0, 0, 0], [0, 0, 50], [0, 50, 0], [0, 0, 0]])
        )
    expected = torch.tensor([[1.0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [0, 1, 0, 0, 0], [1 / 3] * 5])
    torch.testing.assert_close(learned.pairing, expected)
    only_b = torch.where(torch.tensor([False, True, False, False, False]), changed, u)
    assert torch.equal(learned.prior(u)[0][:, 0], learned.prior(only_b)[0][:, 0])
    assert not torch.equal(learned.prior(u)[0][:, 2], learned.prior(only_b)[0][:, 2])
    kl = learned.loss(batch_of(mixed()), seeded())["kl"]
    assert torch.autograd.grad(kl, learned.pairing_logits)[0].abs().sum() > 0


def test_more_columns_than_latents_are_refused_unless_they_may_share() -> None:
    data = mixed()
    refused: list[dict[str, Any]] = [
        {},
        {"pairing": "full"},
        {"pairing": "learned"},
        {"one_edge_per_node": False},
        {"causal_module": False},
        {"direction": "networks"},
    ]
    for settings in refused:
        with pytest.raises(DataError, match=r"3 columns, more than latents=2.*set latents=3"):
            CMCL(data.spec, **{**SMALL, "latents": 2, **settings}).check(data)
        CMCL(data.spec, **{**SMALL, "latents": 3, **settings}).check(data)
    for settings in (
        {"pairing": "full", "one_edge_per_node": False},
        {"pairing": "full", "direction": "networks"},
    ):
        CMCL(data.spec, **{**SMALL, "latents": 2, **settings}).check(data)


def test_columns_are_standardised_for_the_networks() -> None:
    data = mixed(4000)
    model = make(data)
    u = model.inputs(data.train.labels)
    assert u[:, :2].mean(0).abs().max() < 1e-4
    torch.testing.assert_close(u[:, :2].std(0, correction=0), torch.ones(2), atol=1e-4, rtol=0)
    assert u[:, 2:].var(0, correction=0).sum().item() == pytest.approx(
        1, abs=0.05
    )  # the categories together
    assert u[:, 2:].mean(0).abs().max() < 0.1
    labels = torch.tensor([[data.variables[0].mean, 1.0, 2.0]])
    torch.testing.assert_close(
        model.targets(labels), torch.tensor([[0.0, 1, 0, 0, 1]]), atol=1e-5, rtol=0
    )


def test_fast_path_without_categories_gives_the_same_inputs() -> None:
    data = mixed().select(["a", "b"])
    model, labels = make(data), data.train.labels
    assert model.one_input_per_column
    fast = model.inputs(labels), model.targets(labels)
    model.one_input_per_column = False
    for values, expected in zip(fast, (model.inputs(labels), model.targets(labels)), strict=True):
        torch.testing.assert_close(values, expected)


def test_l2_trains_the_encoder_of_module_1() -> None:
    model, batch = make(), batch_of(mixed())
    loss = causal_terms(model, batch, infer_batch(model, batch))["loss"]
    assert torch.autograd.grad(loss, model.encoder.dense[1].weight)[0].any()


# ---- the total loss ------------------------------------------------------------------------------
def test_total_loss_is_the_weighted_sum_of_eq_14() -> None:
    """Eq. 14; the classifier co-operates with the encoders, so all four are minimised."""
    data = mixed()
    weights = {
        "embedding_weight": 2.0,
        "causal_weight": 3.0,
        "graph_weight": 5.0,
        "contrast_weight": 7.0,
    }
    model = with_edges(make(**weights, sparsity=0.1, decay=0.2), ("a", "z0"), ("z1", "b"))
    model.contrast_on.fill_(1.0)
    model.multiplier.fill_(1.5)
    model.penalty.fill_(4.0)
    with torch.no_grad():
        model.networks.networks.layer_weights[0][0, M] = 0.4  # a -> z0
        model.networks.networks.layer_weights[0][M, 0] = 0.4  # z0 -> a closes a cycle
    terms = model.loss(batch_of(data), seeded())
    assert terms["cycles"] > 0
    assert terms["contrast"] > 0
    graph = (
        terms["fit"]
        + 0.1 * terms["sparsity"]
        + 0.2 * model.networks.decay()
        + 1.5 * terms["cycles"]
        + 2.0 * terms["cycles"] ** 2
    )
    expected = (
        2 * (terms["embedding_reconstruction"] + terms["embedding_kl"])
        + 3 * (terms["reconstruction"] + terms["kl"])
        + 5 * graph
        + 7 * terms["contrast"]
    )
    torch.testing.assert_close(terms["loss"], expected)
    contrast = contrast_loss(model, batch_of(data))["loss"]
    assert torch.autograd.grad(contrast, model.classifier[0].weight)[0].abs().sum() > 0


def test_without_module_2_the_embedding_is_the_latent() -> None:
    data, model = mixed(), CMCL(mixed().spec, causal_module=False, **SMALL).eval()
    assert model.embed(data.test.images.float() / 255)[0].shape[1] == M
    assert not any(
        name.startswith(("posterior_nets", "prior_nets", "decoder"))
        for name, _ in model.named_parameters()
    )
    batch = batch_of(data)
    terms, inferred = model.loss(batch, seeded()), infer_batch(model, batch)
    assert torch.equal(inferred.z, inferred.z0)
    assert terms["reconstruction"] == terms["embedding_reconstruction"]
    assert "kl" not in terms
    mean = model.encode(data.test.images)[..., 0]
    torch.testing.assert_close(mean, model.embed(data.test.images.float() / 255)[0])
    torch.testing.assert_close(
        model.decode(mean[..., None]), torch.sigmoid(model.embedding_decoder(mean))
    )


@pytest.mark.parametrize("causal_module", [True, False])
@pytest.mark.parametrize("contrast", [True, False])
def test_every_ablation_trains(causal_module: bool, contrast: bool) -> None:
    data = mixed()
    ablation = {"causal_module": causal_module, "contrast": contrast}
    model = CMCL(data.spec, **QUICK, **ablation, contrast_start=0.0)
    history = model.fit(data).history
    terms = [key.split(".")[-1] for key in history[-1]["train"]]
    assert ("contrast" in terms) == contrast
    assert ("kl" in terms) == causal_module
    images = model.counterfactual(data.test.images, {"a": 3.0}, data.test.labels)
    assert images.shape == data.test.images.shape


def test_one_player_trains_all_parameters_and_the_dag_at_its_own_rate() -> None:
    model = make(learning_rate=0.002, graph_rate=0.03)
    (player,) = model.phases()[0].players
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert name.startswith(player.parameters)
    assert (player.learning_rate, player.prefix_rates) == (0.002, (("networks.", 0.03),))


def test_settings_of_earlier_versions_load_where_the_code_still_does_the_same() -> None:
    earlier = {"schedule": "joint", "graph_sees": "mean", "latents": 3}
    assert upgrade_settings(CMCLSettings, earlier) == {"latents": 3}
    words = r"schedule='alternating' of an earlier version is no longer available"
    with pytest.warns(UserWarning, match=words):
        assert upgrade_settings(CMCLSettings, {"schedule": "alternating"}) == {}
    with pytest.raises(UsageError, match=words):
        upgrade_settings(CMCLSettings, {"schedule": "alternating"}, strict=True)
    with pytest.raises(UsageError, match="'detach_z0' was removed"):
        CMCL(mixed().spec, detach_z0=True)
