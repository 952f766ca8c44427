"""CMCL: do() in both directions, mechanisms, guards against copying the table, likelihood, bad input, and a small world recovered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from cross_modal_helpers import QUICK, SMALL, M, batch_of, make, mixed, seeded, with_edges
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

from intervae.data.base import Dataset, Spec, Variable, build_dataset
from intervae.errors import DataError, QueryError, UsageError
from intervae.metrics import mic_matrix
from intervae.models.cmcl import CMCL
from intervae.models.cmcl_losses import graph_view
from intervae.models.cmcl_queries import LABEL_BANK


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
    views = [graph_view(model, model.look(batch["images"], labels, seeded()), None) for labels in (batch["labels"], batch["labels"].roll(1, 0))]
    assert torch.equal(*views)
    literal = make(graph_sees="mean", label_dropout=0.0)  # the paper
    views = [graph_view(literal, literal.look(batch["images"], labels, seeded()), None) for labels in (batch["labels"], batch["labels"].roll(1, 0))]
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
    return spots(np.stack([first, second], 1), np.stack([cause, effect], 1), [Variable("cause"), Variable("effect")], size)


def spots(latents: np.ndarray, table: np.ndarray, variables: list[Variable], size: int = 6) -> Dataset:
    """The upper and the lower half of a picture are as bright as two latents (N, 2) are large."""
    pixels = np.repeat(np.repeat(np.tanh(0.5 * latents)[:, :, None], size // 2, axis=1), size, axis=2)
    images = np.rint(255 * (0.5 + 0.5 * pixels)).astype(np.uint8)[:, None]
    return build_dataset("small", images, table, variables, fields={"latents": latents})


def small_groups(samples: int = 900, seed: int = 0) -> Dataset:
    """A binary column moves the first latent, one of three words, in no order, the second."""
    rng = np.random.default_rng(seed)
    ill, site = rng.integers(2, size=samples), rng.integers(3, size=samples)
    latents = np.stack([2.0 * ill - 1 + 0.4 * rng.normal(size=samples), np.array([-1.2, 1.2, 0.0])[site] + 0.3 * rng.normal(size=samples)], 1)
    return spots(latents, np.stack([ill, site], 1), [Variable("ill", "binary"), Variable("site", "categorical", categories=("a", "b", "c"))])


TRAINED: dict[str, Any] = {
    "latents": 2, "embedding": 4, "network": "conv", "channels": (8,), "hidden": 32, "likelihood": "gaussian", "scale": 0.05,
    "graph_sees": "mean", "contrast": False, "epochs": 50, "batch_size": 64, "warm_up": 5, "learning_rate": 2e-3,
}  # fmt: skip


def own_correlations(model: CMCL, data: Dataset) -> np.ndarray:
    """(latents, true latents), absolute, on test pictures."""
    return np.abs(np.corrcoef(model.encode(data.test.images)[..., 0].T, data.test.fields["latents"].T)[:2, 2:])


ANNEALED: dict[str, Any] = {"annealing": 0.7, "rate_schedule": "cosine", "learning_rate": 3e-3}
VARIANTS: dict[str, dict[str, Any]] = {  # as in docs/own-data.md: the paper's networks with the contrast, and the other pairings and schedule
    "pairs of convolutions, contrast, annealing": {"network": "pairs", "contrast": True, **ANNEALED},
    "contrast, annealing": {"contrast": True, **ANNEALED},
    "every latent sees the whole table": {"pairing": "full"},
    "learned pairing, annealing": {"pairing": "learned", **ANNEALED},
    "alternating steps": {"schedule": "alternating"},
    "alternating steps, contrast, annealing": {"schedule": "alternating", "contrast": True, **ANNEALED},
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_one_cause_and_one_effect_are_found_by(variant: str) -> None:
    data = small_world()
    model = CMCL(data.spec, **{**TRAINED, **VARIANTS[variant]})
    model.fit(data, seed=0)
    correlations = own_correlations(model, data)
    first, second = (f"z{j}" for j in correlations.argmax(0))
    assert {edge[:2] for edge in model.graph.edges} == {("cause", first), (second, "effect")}
    assert correlations.max(0).min() > 0.95
    if VARIANTS[variant].get("pairing", "index") == "index":
        assert (first, second) == ("z0", "z1")


def test_columns_of_categories_find_their_latents_and_move_the_picture() -> None:
    data = small_groups()
    model = CMCL(data.spec, **TRAINED)
    model.fit(data, seed=0)
    linked = {frozenset(edge[:2]) for edge in model.graph.edges}  # which way cannot be told
    assert linked == {frozenset({"ill", "z0"}), frozenset({"site", "z1"})}
    assert not model.margins.any()
    assert own_correlations(model, data).diagonal().min() > 0.9
    if "z0" in model.graph.children("ill"):
        upper = [model.counterfactual(data.test.images, {"ill": value}, data.test.labels)[:, :, :3].mean().item() for value in (0, 1)]
        assert upper[1] - upper[0] > 0.2
    if "z1" in model.graph.children("site"):
        lower = [model.counterfactual(data.test.images, {"site": word}, data.test.labels)[:, :, 3:].mean().item() for word in "acb"]
        assert lower == sorted(lower)


def test_one_cause_and_one_effect_are_found_with_their_directions_and_are_not_copied() -> None:
    data = small_world()
    model = CMCL(data.spec, **TRAINED)
    model.fit(data, seed=0)
    assert {(a, b) for a, b, _ in model.graph.edges} == {("cause", "z0"), ("z1", "effect")}
    images, labels, true = data.test.images, data.test.labels, data.test.fields["latents"]
    z = model.encode(images)[..., 0]
    assert own_correlations(model, data).diagonal().min() > 0.9
    assert mic_matrix(z.numpy(), true.numpy()).diagonal().min() > mic_matrix(z.numpy(), labels.numpy()).diagonal().max()
    shuffled = model.encode(images, labels.roll(7, 0))[..., 0]  # with the rows of other pictures the latents still follow the picture
    assert min(abs(np.corrcoef(shuffled[:, j], true[:, j])[0, 1]) for j in range(2)) > 0.7
    brightness = [model.counterfactual(images, {"cause": value}, labels)[:, :, :3].mean().item() for value in (-1.5, -0.5, 0.5, 1.5)]
    assert brightness == sorted(brightness)
    assert brightness[-1] - brightness[0] > 0.3
    assert torch.equal(model.counterfactual(images, {"effect": 2.0}, labels), model.reconstruct(images, labels))
