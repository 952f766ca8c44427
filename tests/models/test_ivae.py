"""iVAE: loss and log-weights against closed forms, labels in the encoder, identifiability."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from batches import batch_of
from intervae.data import Dataset, Spec, Variable, build_dataset
from intervae.errors import DataError, QueryError, UsageError
from intervae.metrics import likelihood_bounds, mcc
from intervae.models import IVAE, VAE
from intervae.nets.likelihood import negative_log_likelihood

SMALL: dict[str, Any] = {
    "latents": 3,
    "dims": 2,
    "channels": (8, 8),
    "hidden": 32,
    "prior_widths": (16,),
    "epochs": 1,
    "batch_size": 16,
}
DRAWS = 8000


def mixed(samples: int = 60, size: int = 8) -> Dataset:
    """Random images with a continuous, a binary and a categorical label."""
    rng = np.random.default_rng(0)
    table = np.stack(
        [rng.normal(5, 3, samples), rng.integers(2, size=samples), rng.integers(3, size=samples)],
        axis=1,
    )
    images = rng.integers(0, 256, (samples, 1, size, size), dtype=np.uint8)
    return build_dataset(
        "mixed",
        images,
        table,
        [
            Variable("a"),
            Variable("b", "binary"),
            Variable("c", "categorical", categories=("x", "y", "z")),
        ],
    )


def spread_posteriors(model: IVAE) -> IVAE:
    """Scale weights, so that posteriors and priors differ between samples."""
    with torch.no_grad():
        model.encoder.dense[-1].weight.mul_(8)
        model.prior_net[-1].weight.mul_(2)
    return model.eval()


# ---- loss ----------------------------------------------------------------------------------
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
@pytest.mark.parametrize("label_dropout", [0.0, 0.4, 1.0])
def test_the_loss_is_the_elbo_under_the_conditional_prior(
    likelihood: Any, label_dropout: float
) -> None:
    data = mixed()
    model = spread_posteriors(
        IVAE(data.spec, likelihood=likelihood, scale=0.3, label_dropout=label_dropout, **SMALL)
    )
    batch = batch_of(data)
    terms = model.loss(batch, torch.Generator().manual_seed(4))
    generator = torch.Generator().manual_seed(4)
    hidden = torch.rand(8, 1, generator=generator) < label_dropout
    with torch.no_grad():
        u = model.encode_labels(batch["labels"])
        visible = (~hidden).float()
        mean, log_variance = (
            model.encoder(batch["images"], torch.cat([u * visible, visible], 1))
            .reshape(8, 2, 3, 2)
            .unbind(1)
        )
        q, p = (
            Normal(mean, torch.exp(log_variance / 2)),
            Normal(torch.zeros(8, 3, 2), torch.exp(model.prior_net(u).reshape(8, 3, 2) / 2)),
        )
        z = mean + q.scale * torch.randn((8, 3, 2), generator=generator)
        pixels = negative_log_likelihood(
            model.decoder(z.flatten(1)), batch["images"], likelihood, 0.3
        )
    torch.testing.assert_close(
        terms["kl"], kl_divergence(q, p).sum((1, 2)).mean(), rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(terms["reconstruction"], pixels.mean(), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(terms["loss"], terms["kl"] + terms["reconstruction"])
    assert p.scale.std(0).min() > 0.01  # the prior depends on u


def test_labels_are_standardised_or_one_hot() -> None:
    data = mixed()
    model = IVAE(data.spec, **SMALL)
    first = data.variables[0]
    labels = torch.tensor(
        [
            [first.mean + 2 * first.std, 1.0, 0.0],
            [first.mean, 0.0, 2.0],
            [first.mean - first.std, 1.0, 1.0],
        ]
    )
    expected = torch.tensor([[2.0, 1, 1, 0, 0], [0.0, -1, 0, 0, 1], [-1.0, 1, 0, 1, 0]])
    torch.testing.assert_close(model.encode_labels(labels), expected, atol=1e-5, rtol=0)
    bare = Spec((1, 8, 8), (Variable("c", "categorical", high=3.0),))  # codes without names
    assert IVAE(bare, **SMALL).encode_labels(torch.tensor([[3.0], [1.0], [7.0]])).tolist() == [
        [0, 0, 0, 1],
        [0, 1, 0, 0],
        [0, 0, 0, 0],
    ]


def test_labels_enter_the_dense_layers() -> None:
    spec = mixed().spec
    conv = IVAE(spec, **SMALL)
    maps = conv.encoder.convolutions(torch.zeros(1, 1, 8, 8)).numel()
    assert conv.encoder.dense[0].in_features == maps + 5 + 1
    paper = IVAE(
        spec, **{**SMALL, "widths": (50, 40), "prior_widths": (50, 50), "activation": "xtanh"}
    )
    sizes = [
        [layer.out_features for layer in net.modules() if isinstance(layer, nn.Linear)]
        for net in (paper.encoder, paper.decoder, paper.prior_net)
    ]
    assert sizes == [[50, 40, 12], [50, 40, 64], [50, 50, 6]]
    assert paper.encoder.dense[0].in_features == 64 + 5 + 1
    values = torch.linspace(-3, 3, 7)
    for net in (paper.encoder.dense, paper.prior_net):
        torch.testing.assert_close(net[1](values), torch.tanh(values) + 0.1 * values)
    torch.testing.assert_close(
        conv.prior_net[1](values), torch.where(values > 0, values, 0.1 * values)
    )


# ---- queries -------------------------------------------------------------------------------
def test_labels_change_codes_and_are_optional() -> None:
    data = mixed()
    images, labels = data.test.images, data.test.labels
    model = spread_posteriors(IVAE(data.spec, **SMALL))
    with_labels, without = model.encode(images, labels), model.encode(images)
    assert (with_labels - without).abs().max() > 0.05
    assert (model.encode(images, labels.roll(1, 0)) - with_labels).abs().max() > 0.05
    x = images.float() / 255
    with torch.no_grad():
        torch.testing.assert_close(
            without, model.posterior(x, model.encode_labels(labels), torch.zeros(len(x), 1))[0]
        )
    needs = IVAE(data.spec, label_dropout=0.0, **SMALL)
    assert needs.encode(images, labels).shape == without.shape
    with pytest.raises(QueryError, match="label_dropout=0, so its encoder needs labels"):
        needs.encode(images)
    blind = spread_posteriors(IVAE(data.spec, label_dropout=1.0, **SMALL))
    assert torch.equal(blind.encode(images, labels), blind.encode(images))


def test_the_mean_log_weight_is_the_conditional_elbo() -> None:
    """The pixels do not depend on z, so that the remainder is minus the KL."""
    data = mixed()
    model = spread_posteriors(IVAE(data.spec, **SMALL))
    with torch.no_grad():
        model.decoder.dense[0].weight.zero_()
    images, labels = data.test.images[:3], data.test.labels[:3]
    drawn = model.log_weights(images, labels, DRAWS, torch.Generator().manual_seed(0))
    with torch.no_grad():
        x, u = images.float() / 255, model.encode_labels(labels)
        mean, log_variance = model.posterior(x, u, torch.ones(3, 1))
        divergence = kl_divergence(
            Normal(mean, torch.exp(log_variance / 2)),
            Normal(0.0 * mean, torch.exp(model.prior(u) / 2)),
        ).sum((1, 2))
        pixels = -model.reconstruction_loss(torch.zeros(3, 3, 2), x)
    error = drawn.std(0) / DRAWS**0.5
    assert error.max() < 0.1
    assert ((drawn.mean(0) - (pixels - divergence)).abs() < 4 * error).all()
    bounds = likelihood_bounds(model.log_weights, images, labels, samples=64)
    assert (bounds.importance_weighted >= bounds.elbo).all()
    with pytest.raises(QueryError, match="give log_weights the labels"):
        model.log_weights(images, None, 1)
    with pytest.raises(QueryError, match="at least one sample"):
        model.log_weights(images, labels, 0)


def test_samples_use_labels_of_the_training_split() -> None:
    """With a prior set by hand, only category y of the third label has non-zero latents."""
    data = mixed()
    model = IVAE(data.spec, **{**SMALL, "latents": 1, "dims": 1, "prior_widths": ()})
    model.fit(data)
    rows = {tuple(row) for row in model.encode_labels(data.train.labels).tolist()}
    assert {
        tuple(row) for row in model.label_bank.tolist()
    } == rows  # all of them, as the bank is larger
    with torch.no_grad():
        model.prior_net[0].weight.zero_()
        model.prior_net[0].bias.fill_(-12)
        model.prior_net[0].weight[0, 3] = 12  # u = a, b, c=x, c=y, c=z
    drawn = torch.zeros(0)

    def record(latents: Tensor) -> Tensor:
        nonlocal drawn
        drawn = latents
        return latents

    model.decode = record
    model.sample(4000, seed=0)
    large = (drawn.abs() > 0.02).float().mean().item()
    share = (data.train.labels[:, 2] == 1).float().mean().item()
    assert large == pytest.approx(share, abs=0.04)
    assert drawn[drawn.abs() > 0.02].std().item() == pytest.approx(1, abs=0.1)
    with pytest.raises(QueryError, match="knows no causes"):
        model.sample(2, {"a": 1.0})


def test_wrong_data_and_settings_are_refused() -> None:
    with pytest.raises(DataError, match=r"ivae learns from labels, but this data has none; .*\.$"):
        IVAE(Spec((1, 8, 8)))
    for wrong in (
        {"label_dropout": 1.5},
        {"widths": (50, 0)},
        {"prior_widths": (0,)},
        {"activation": "relu"},
    ):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            IVAE(mixed().spec, **wrong)


# ---- identifiability -----------------------------------------------------------------------
def segments(
    sources: int = 3, count: int = 10, per_segment: int = 200, size: int = 5, seed: int = 0
) -> Dataset:
    """Gaussian sources with one variance per segment, mixed into `size`^2 pixels."""
    rng = np.random.default_rng(seed)
    segment = np.repeat(np.arange(count), per_segment)
    z = (
        rng.normal(size=(len(segment), sources))
        * np.exp(rng.uniform(np.log(0.1), 0, (count, sources)))[segment]
    )
    mixed = z / z.std(0)
    for _ in range(2):
        mixed = mixed @ np.linalg.qr(rng.normal(size=(sources, sources)))[0]
        mixed = mixed + 0.5 * np.tanh(2 * mixed)
        mixed = (mixed - mixed.mean(0)) / mixed.std(0)
    pixels = (
        mixed
        @ np.linalg.qr(rng.normal(size=(size * size, sources)))[0].T
        * np.sqrt(size * size / sources)
    )
    images = (255 / (1 + np.exp(-pixels))).round().astype(np.uint8).reshape(-1, 1, size, size)
    names = tuple(f"s{i}" for i in range(count))
    return build_dataset(
        "segments",
        images,
        segment[:, None],
        [Variable("segment", "categorical", categories=names)],
        fields={"sources": z},
    )


def test_it_recovers_nonstationary_sources() -> None:
    """The same networks with shuffled labels, and a VAE, do not recover them."""
    data = segments(seed=2)
    common: dict[str, Any] = {
        "latents": 3,
        "likelihood": "gaussian",
        "scale": 0.15,
        "batch_size": 128,
        "learning_rate": 1e-2,
    }
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))
    shuffled = replace(
        data, train=type(data.train)(images=data.train.images, labels=data.train.labels[order])
    )
    scores = {}
    for name, trained_on in (("labels", data), ("shuffled", shuffled)):
        model = IVAE(data.spec, widths=(50, 50), epochs=70, **common)
        model.fit(trained_on, seed=2)
        scores[name] = mcc(
            model.encode(data.test.images)[..., 0], data.test.fields["sources"]
        ).value
    plain = VAE(data.spec, channels=(8,), hidden=50, epochs=25, **common)
    plain.fit(data, seed=2)
    scores["vae"] = mcc(plain.encode(data.test.images)[..., 0], data.test.fields["sources"]).value
    assert scores["labels"] > 0.95
    assert max(scores["shuffled"], scores["vae"]) < scores["labels"] - 0.12, scores
