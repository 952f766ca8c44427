"""CausalVAE's log-weights: their mean is the ELBO, the mean of the weights the evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from intervae.causal.gaussian import kl_pushed_forward, log_normal
from intervae.causal.graph import CausalGraph
from intervae.errors import QueryError
from intervae.metrics.likelihood import likelihood_bounds
from intervae.models import CausalVAE, create
from intervae.nets.likelihood import negative_log_likelihood

SMALL = {
    "dims": 2,
    "channels": (4, 4),
    "hidden": 16,
    "mechanism_hidden": 8,
    "absolute_error_weight": 0.0,
}
CHAIN = CausalGraph.from_edges("abc", [("a", "b", 0.4), ("b", "c", -0.5)])
CYCLE = [
    [0.0, 0.5, 0.0],
    [0.0, 0.0, 0.5],
    [0.5, 0.0, 0.0],
]  # det(I - A^T) = 1 - 0.125: a graph while it is still being learned


DRAWS = 8000


def make(data: Any, graph: Any = CHAIN, **settings: Any) -> CausalVAE:
    return CausalVAE(data.spec, graph=graph, **{**SMALL, "prior_std": 0.9, **settings}).eval()


def with_cycle(model: CausalVAE) -> CausalVAE:
    with torch.no_grad():
        model.adjacency.copy_(torch.tensor(CYCLE))
    return model


def test_the_log_density_equals_torch_distributions() -> None:
    values, mean, log_variance = torch.randn(3, 4, 5)
    expected = torch.distributions.Normal(mean, torch.exp(log_variance / 2)).log_prob(values)
    torch.testing.assert_close(log_normal(values, mean, log_variance), expected)
    torch.testing.assert_close(
        log_normal(values, 0.0, 0.0), torch.distributions.Normal(0.0, 1.0).log_prob(values)
    )


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian", "laplace"])
@pytest.mark.parametrize("cyclic", [False, True])
def test_the_mean_of_log_weights_is_the_elbo(likelihood: Any, cyclic: bool, make_data: Any) -> None:
    """Pixels that do not depend on z make log p(x | z) constant; the rest is minus the KL."""
    data = make_data((1, 8, 8))
    model = make(data, "joint" if cyclic else CHAIN, likelihood=likelihood, scale=0.4)
    model = with_cycle(model) if cyclic else model
    with torch.no_grad():
        model.decoder.dense[0].weight.zero_()
    images, labels = (
        data.test.images[:3],
        model.spec.denormalise(torch.tensor([[0.0, 0.0, 0.0], [0.3, 0.0, -0.2], [-0.1, 0.2, 0.4]])),
    )
    drawn = model.log_weights(images, labels, DRAWS, torch.Generator().manual_seed(0))
    with torch.no_grad():
        x, u = images.float() / 255, model.spec.normalise(labels)
        mean, log_variance = model.posterior(x)
        divergence = kl_pushed_forward(
            mean, log_variance, model.weights, u[..., None].expand_as(mean), 2 * np.log(0.9)
        )
        pixels = -negative_log_likelihood(model.decoder(torch.zeros(3, 6)), x, likelihood, 0.4)
    spread = drawn.std(0) / DRAWS**0.5
    assert spread.max() < 0.06
    assert ((drawn.mean(0) - (pixels - divergence)).abs() < 4 * spread).all()
    # p(z | u) and q(z) are normalised: if pixels do not depend on z, the mean weight is p(x)
    torch.testing.assert_close(torch.logsumexp(drawn, 0) - np.log(DRAWS), pixels, atol=0.08, rtol=0)


def test_the_decoder_and_the_densities_get_the_same_z(make_data: Any) -> None:
    data = make_data((3, 8, 8))
    model = make(data)
    images, labels = data.test.images[:4], data.test.labels[:4]
    drawn = model.log_weights(images, labels, 3, torch.Generator().manual_seed(1))
    assert drawn.shape == (3, 4)
    with torch.no_grad():
        x, u = images.float() / 255, model.spec.normalise(labels)
        mean, log_variance = model.posterior(x)
        generator = torch.Generator().manual_seed(1)
        for k in range(3):
            noise = torch.randn(mean.shape, generator=generator)
            eps = mean + torch.exp(log_variance / 2) * noise
            z = torch.linalg.inv(torch.eye(3) - model.weights.T) @ eps
            pixels = -negative_log_likelihood(model.decoder(z.flatten(1)), x, "bernoulli", 0.1)
            prior = torch.distributions.Normal(u[..., None], 0.9).log_prob(z).sum((1, 2))
            posterior = (
                torch.distributions.Normal(mean, torch.exp(log_variance / 2))
                .log_prob(eps)
                .sum((1, 2))
            )  # |det| = 1 for a DAG
            torch.testing.assert_close(drawn[k], pixels + prior - posterior, rtol=1e-4, atol=1e-3)


def test_bounds_do_not_depend_on_chunks_of_samples(
    make_data: Any,
) -> None:
    data = make_data((1, 8, 8))
    model = make(data)
    images, labels = data.test.images[:3], data.test.labels[:3]
    whole = model.log_weights(images, labels, 5, torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(2)
    in_three_calls = torch.cat([model.log_weights(images, labels, k, generator) for k in (2, 1, 2)])
    torch.testing.assert_close(whole, in_three_calls, rtol=1e-4, atol=1e-3)
    one, other = (
        likelihood_bounds(
            model.log_weights, data.test.images, data.test.labels, samples=9, at_once=size
        )
        for size in (8, 256)
    )
    np.testing.assert_allclose(one.elbo, other.elbo, rtol=1e-4)
    np.testing.assert_allclose(one.importance_weighted, other.importance_weighted, rtol=1e-4)
    assert (one.importance_weighted >= one.elbo).all()


def test_an_encoder_of_labels_uses_them(make_data: Any) -> None:
    data = make_data((1, 8, 8))
    model = make(data, encode_labels=True)
    with torch.no_grad():
        model.decoder.dense[0].weight.zero_()
    images, labels = data.test.images[:2], data.test.labels[:2]
    drawn = model.log_weights(images, labels, DRAWS, torch.Generator().manual_seed(0))
    with torch.no_grad():
        x, u = images.float() / 255, model.spec.normalise(labels)
        pixels = -negative_log_likelihood(model.decoder(torch.zeros(2, 6)), x, "bernoulli", 0.1)
        expected = {}
        for has_labels in (0.0, 1.0):
            mean, log_variance = model.posterior(x, labels, torch.full((2, 1), has_labels))
            expected[has_labels] = pixels - kl_pushed_forward(
                mean, log_variance, model.weights, u[..., None].expand_as(mean), 2 * np.log(0.9)
            )
    error = {key: (drawn.mean(0) - value).abs().max().item() for key, value in expected.items()}
    assert error[1.0] < 4 * drawn.std(0).max() / DRAWS**0.5
    assert error[0.0] > 3 * error[1.0]


def test_wrong_arguments_are_refused(make_data: Any) -> None:
    data = make_data((1, 8, 8))
    model = make(data)
    with pytest.raises(QueryError, match="give log_weights the labels"):
        model.log_weights(data.test.images, None, 1)
    with pytest.raises(QueryError, match="at least one sample"):
        model.log_weights(data.test.images, data.test.labels, 0)
    assert hasattr(CausalVAE, "log_weights")
    with pytest.raises(QueryError, match=r"cannot answer log_weights.*causal-vae"):
        create("pca", data).log_weights(data.test.images, data.test.labels, 1)
