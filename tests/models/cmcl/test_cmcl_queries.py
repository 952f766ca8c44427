"""CMCL: do() in both directions, effect curves, label copying, likelihood and bad input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from cross_modal_helpers import (
    QUICK,
    SMALL,
    M,
    batch_of,
    infer_batch,
    make,
    mixed,
    seeded,
    with_edges,
)
from intervae.data import Spec, Variable, build_dataset
from intervae.errors import DataError, QueryError, UsageError
from intervae.models.cmcl.losses import dag_latents
from intervae.models.cmcl.model import CMCL
from intervae.models.cmcl.networks import LABEL_BANK


# ---- do ------------------------------------------------------------------------------------------
def test_do_of_an_effect_leaves_the_image_bit_for_bit_the_same() -> None:
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


def test_do_of_a_cause_sets_the_effect_with_or_without_its_residual() -> None:
    """App. B, Eq. 15: decode after setting z_j = f_j(u')."""
    data, model = mixed(), with_edges(make(), ("a", "z0"), ("z1", "b"))
    images, labels = data.test.images, data.test.labels
    latents = model.encode(images)
    set_to = model.effect_curve("z0", {"a": 7.0})
    torch.testing.assert_close(
        model.intervene(latents, {"a": 7.0})[:, 0, 0], set_to.expand(len(images))
    )
    torch.testing.assert_close(
        model.intervene(latents, {"a": 7.0}, labels, keep_noise=False)[:, 0, 0],
        set_to.expand(len(images)),
    )
    with_residual = model.intervene(latents, {"a": 7.0}, labels)[:, 0, 0]
    torch.testing.assert_close(
        with_residual, set_to + latents[:, 0, 0] - model.effect_curve("z0", {"a": labels[:, 0]})
    )
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


def test_do_reaches_indirect_effects() -> None:
    data, model = mixed(), with_edges(make(), ("z1", "a"), ("a", "z0"))
    latents, labels = model.encode(data.test.images), data.test.labels
    after = model.intervene(latents, {"z1": 3.0}, labels)
    a = (
        labels[:, 0]
        + model.effect_curve("a", {"z1": 3.0})
        - model.effect_curve("a", {"z1": latents[:, 1, 0]})
    )
    expected = (
        latents[:, 0, 0]
        + model.effect_curve("z0", {"a": a})
        - model.effect_curve("z0", {"a": labels[:, 0]})
    )
    torch.testing.assert_close(after[:, 0, 0], expected, rtol=1e-4, atol=1e-4)
    without_labels = model.intervene(latents, {"z1": 3.0})
    assert not torch.equal(without_labels[:, 0], latents[:, 0])


def test_effect_curves_are_in_own_units_or_probabilities() -> None:
    data, model = mixed(), with_edges(make(), ("z0", "a"), ("z1", "b"), ("z2", "c"))
    values = torch.linspace(-2, 2, 5)
    a, b, c = (
        model.effect_curve(name, {cause: values})
        for name, cause in (("a", "z0"), ("b", "z1"), ("c", "z2"))
    )
    inputs = torch.cat([values[:, None], torch.zeros(5, 8)], 1)  # latents have mean 0, variance 1
    first = model.networks(inputs, model.edges)[M, :, 0]
    torch.testing.assert_close(a, data.variables[0].denormalise(first), rtol=1e-4, atol=1e-4)
    assert ((b > 0) & (b < 1)).all()
    assert c.shape == (5, 3)
    torch.testing.assert_close(c.sum(1), torch.ones(5))
    assert model.effect_curve("a", {"z1": values}).std() < 1e-6  # no cause of it
    with pytest.raises(QueryError, match="unknown variable"):
        model.effect_curve("a", {"z7": 0.0})
    with pytest.raises(QueryError, match="give as many"):
        model.effect_curve("a", {"z0": values, "z1": values[:2]})


# ---- copying u -----------------------------------------------------------------------------------
def test_the_dag_is_fitted_to_latents_inferred_without_labels() -> None:
    data, model = mixed(), make(label_dropout=0.3)
    batch = batch_of(data)
    swapped = {**batch, "labels": batch["labels"].roll(1, 0)}
    latents = [dag_latents(model, infer_batch(model, each)) for each in (batch, swapped)]
    assert torch.equal(*latents)
    literal = make(label_dropout=0.0)  # the paper
    latents = [dag_latents(literal, infer_batch(literal, each)) for each in (batch, swapped)]
    assert not torch.equal(*latents)


def test_label_influence_is_1_for_copied_and_0_for_inferred_latents() -> None:
    data, model = mixed(400), make(label_dropout=0.0)
    images, labels = data.train.images, data.train.labels
    assert torch.equal(
        make(data, label_dropout=1.0).label_influence(images, labels), torch.zeros(M)
    )
    with torch.no_grad():
        first = model.posterior_nets.layer_weights[0]
        first.zero_()
        first[0, 4] = 1.0  # z0 depends on its own column alone (after z0 of size 3 and the flag)
        first[1, 0] = 1.0  # z1 depends on the image alone
    influence = model.label_influence(images, labels)
    assert influence[0].item() == pytest.approx(1, abs=0.15)
    assert influence[1].item() == 0


def test_queries_need_labels_only_without_label_dropout() -> None:
    data = mixed()
    assert not make().needs_labels
    literal = make(label_dropout=0.0)
    assert literal.needs_labels
    with pytest.raises(QueryError, match="label_dropout=0, so its encoder needs the labels"):
        literal.encode(data.test.images)
    assert literal.encode(data.test.images, data.test.labels).shape == (len(data.test), M, 1)


# ---- likelihood and samples ----------------------------------------------------------------------
def test_mean_log_weight_is_the_elbo_given_the_labels() -> None:
    """The pixels are made independent of z, so the rest is minus the mean KL over z0."""
    data, model = mixed(), make(label_dropout=0.0, network="conv", hidden=16)
    with torch.no_grad():
        model.decoder.dense[0].weight.zero_()
    images, labels = data.test.images[:3], data.test.labels[:3]
    log_weights = model.log_weights(images, labels, 4000, seeded())
    with torch.no_grad():
        x, u = images.float() / 255, model.inputs(labels)
        mean, log_variance = model.embed(x)
        z0 = (
            mean + torch.exp(log_variance / 2) * torch.randn(4000, 3, 3, generator=seeded(1))
        ).flatten(0, 1)
        u = u.repeat(4000, 1)
        q, p = (
            Normal(m, torch.exp(v / 2))
            for m, v in (model.posterior(z0, u, torch.ones(len(u), 1)), model.prior(u))
        )
        kl = kl_divergence(q, p).sum(1).unflatten(0, (4000, 3))
        pixels = (
            -functional.binary_cross_entropy_with_logits(
                model.decoder(torch.zeros(3, M)), x, reduction="none"
            )
            .flatten(1)
            .sum(1)
        )
    error = (log_weights.var(0) + kl.var(0)).sqrt() / 4000**0.5
    assert ((log_weights.mean(0) - (pixels - kl.mean(0))).abs() < 4 * error).all()
    with pytest.raises(QueryError, match="give log_weights the labels"):
        model.log_weights(images, None, 1)
    assert CMCL(data.spec, causal_module=False, **SMALL).eval().log_weights(
        images, None, 2, seeded()
    ).shape == (2, 3)


def test_label_bank_holds_rows_of_the_training_table() -> None:
    data = mixed()
    model = CMCL(data.spec, **QUICK)
    model.fit(data)
    assert len(model.label_bank) == LABEL_BANK
    assert {tuple(row) for row in model.label_bank.tolist()} == {
        tuple(row) for row in data.train.labels.tolist()
    }


# ---- bad input -----------------------------------------------------------------------------------
def test_unsuitable_data_and_settings_are_refused() -> None:
    with pytest.raises(DataError, match=r"cmcl learns from labels, but this data has none; .*\.$"):
        CMCL(Spec((1, 8, 8)))
    with pytest.raises(DataError, match=r"'site' has 1000 categories, more than 50; merge"):
        CMCL(Spec((1, 8, 8), (Variable("site", "categorical", high=999.0),)))
    with pytest.raises(DataError, match="'z3' has the name of a latent"):
        CMCL(Spec((1, 8, 8), (Variable("z3"),)))
    for wrong in (
        {"label_dropout": 1.5},
        {"graph_widths": ()},
        {"pairing": "best"},
        {"latents": 0},
        {"contrast_start": -0.1},
        {"scale": 0.0},
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            CMCL(mixed().spec, **wrong)
    data = mixed()
    twice = [Variable("a"), Variable("twice")]
    table = np.repeat(data.train.labels[:, :1].numpy(), 2, axis=1) * [1.0, 2.0]
    collinear = build_dataset("collinear", data.train.images.numpy(), table, twice)
    with pytest.raises(DataError, match="'twice' is a linear combination of 'a'"):
        CMCL(collinear.spec, **QUICK).fit(collinear)
    with pytest.raises(DataError, match="created for other data: variables was a, b, c"):
        CMCL(data.spec, **QUICK).fit(replace(collinear))
