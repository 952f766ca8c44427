"""Queries of CausalVAE on mechanisms set by hand, and its variants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_causal_vae import chain, make
from torch import Tensor

from batches import batch_of
from intervae.data import Dataset
from intervae.errors import QueryError
from intervae.models import CausalVAE


@pytest.mark.parametrize(
    "settings",
    [
        {"network": "mlp"},
        {"decoder": "per-concept"},
        {"network": "mlp", "decoder": "per-concept"},
        {"mechanism_input": "sum"},
        {"likelihood": "gaussian"},
        {"likelihood": "laplace"},
        {"encode_labels": True},
        {"dims": 1},
        {"mechanism_gradient_to_latents": True},
    ],
    ids=str,
)
def test_every_variant_trains_and_answers_queries(
    settings: dict[str, Any], make_data: Any, tmp_path: Any
) -> None:
    data = make_data((3, 13, 16))
    model = make(data, chain(), epochs=6, **settings)
    history = model.fit(data).history
    assert history[-1]["train"]["loss"] < history[0]["train"]["loss"]
    images = model.counterfactual(data.test.images, {"a": 1.0})
    assert images.shape == data.test.images.shape
    assert not torch.equal(images, model.reconstruct(data.test.images))
    assert model.sample(3, {"b": 0.0}, seed=0).shape == (3, 3, 13, 16)


@pytest.mark.parametrize("graph", ["given", "auto"])
def test_binary_labels_are_set_to_0_or_1(graph: str, make_data: Any) -> None:
    data = make_data(samples=96, kinds=("binary", "continuous", "binary"))
    model = make(data, data.graph if graph == "given" else graph)
    model.fit(data)
    latents = model.encode(data.test.images)
    for value in (0.0, 1.0):
        after = model.intervene(latents, {"a": value})
        assert torch.allclose(after[:, 0], torch.full_like(after[:, 0], 2 * value - 1))
        assert torch.allclose(model.to_units(0, after[:, 0]), torch.full((len(latents),), value))


def test_single_variable_is_enough(make_data: Any) -> None:
    data = make_data(kinds=("continuous",))
    model = make(data, "independence")
    model.fit(data)
    assert model.graph.edges == []
    assert model.counterfactual(data.test.images, {"a": 0.3}).shape == data.test.images.shape


def test_per_concept_decoder_averages_one_decoder_per_concept(make_data: Any) -> None:
    model = make(make_data(), chain(), decoder="per-concept")
    z, moved = torch.randn((2, 4, 3, 2), generator=torch.Generator().manual_seed(0))
    moved[:, (0, 2)] = z[:, (0, 2)]
    with torch.no_grad():
        change = model.decoder(moved.flatten(1)) - model.decoder(z.flatten(1))
        alone = model.decoder.decoders[1](moved[:, 1]) - model.decoder.decoders[1](z[:, 1])
    assert alone.abs().max() > 0
    assert torch.allclose(change, alone / 3, atol=1e-5)


def test_encode_labels_is_optional_at_query_time(make_data: Any) -> None:
    data = make_data()
    model = make(data, chain(), encode_labels=True, epochs=3)
    model.fit(data)
    images, labels = data.test.images, data.test.labels
    without, labelled, changed = (
        model.encode(images),
        model.encode(images, labels),
        model.encode(images, labels + 1),
    )
    assert not torch.equal(without, labelled)
    assert not torch.equal(labelled, changed)
    assert torch.equal(labelled, model.encode(images, labels.numpy()))
    assert torch.allclose(labelled[:1], model.encode(images[0], labels[0]), atol=1e-5)
    assert not torch.equal(
        model.counterfactual(images, {}, labels), model.counterfactual(images, {})
    )
    for wrong, words in (
        (labels[:2], "labels must be"),
        (labels[:, :2], "a, b, c"),
        (labels * math.nan, "NaN"),
        ("far", "not an array of numbers"),
    ):
        with pytest.raises(QueryError, match=words):
            model.encode(images, wrong)
    plain = make(data, chain())
    assert torch.equal(plain.encode(images), plain.encode(images, labels))


def test_labels_are_dropped_for_half_of_the_training_images(make_data: Any) -> None:
    data = make_data(samples=128)
    model = make(data, encode_labels=True)
    masks: list[Tensor] = []
    posterior = model.posterior

    def spy(images: Tensor, labels: Tensor, mask: Tensor) -> Any:
        masks.append(mask)
        return posterior(images, labels, mask)

    model.posterior = spy  # type: ignore[assignment]
    model.loss(batch_of(data, 80), torch.Generator().manual_seed(0))
    assert set(masks[0].unique().tolist()) == {0.0, 1.0}
    assert 25 <= masks[0].sum() <= 55


def by_hand(data: Dataset) -> CausalVAE:
    """A model with b = 2 a + noise and c = -3 b + noise in normalised units.

    The first dim of a parent determines both dims of its child.
    """
    model = make(data, chain())
    with torch.no_grad():
        for weight, bias in zip(
            model.mechanisms.layer_weights, model.mechanisms.layer_biases, strict=True
        ):
            weight.zero_()
            bias.zero_()
        first, second = model.mechanisms.layer_weights
        for child, parent, slope in ((1, 0, 2.0), (2, 1, -3.0)):
            first[child, parent * 2, 0] = 1.0
            second[child, 0] = slope
        model.mechanisms.layer_biases[0][:, :, 0] = 50.0  # ELU is the identity there
        model.mechanisms.layer_biases[1][1] = -100.0
        model.mechanisms.layer_biases[1][2] = 150.0
    return model


def test_do_propagates_along_the_mechanisms(make_data: Any) -> None:
    data = make_data()
    model = by_hand(data)
    latents = model.encode(data.test.images)
    variable = model.spec.variables[0]
    after = model.intervene(latents, {"a": variable.mean + 1.5 * variable.std})
    assert torch.allclose(after[:, 0], torch.full_like(after[:, 0], 1.5), atol=1e-5)
    shift = 2 * (1.5 - latents[:, 0, :1])
    assert torch.allclose(after[:, 1], latents[:, 1] + shift, atol=1e-3)
    assert torch.allclose(after[:, 2], latents[:, 2] - 3 * shift, atol=1e-3)


def test_do_on_an_effect_leaves_its_cause_unchanged(make_data: Any) -> None:
    data = make_data()
    model = by_hand(data)
    latents = model.encode(data.test.images)
    b = model.spec.variables[1]
    after = model.intervene(latents, {"b": lambda value: value + b.std})
    assert torch.equal(after[:, 0], latents[:, 0])
    set_to = latents[:, 1].mean(-1) + 1
    assert torch.allclose(after[:, 1].mean(-1), set_to, atol=1e-4)
    assert torch.allclose(
        after[:, 2], latents[:, 2] - 3 * (after[:, 1, :1] - latents[:, 1, :1]), atol=1e-3
    )


def test_soft_intervention_without_change_is_the_identity(make_data: Any) -> None:
    data = make_data()
    model = make(data, "joint")
    latents = model.encode(data.test.images)
    assert torch.equal(model.intervene(latents, {data.names[0]: lambda value: value}), latents)


def test_several_interventions_in_any_order_and_per_sample(make_data: Any) -> None:
    data = make_data()
    model = by_hand(data)
    images = data.test.images
    values = np.linspace(-1, 1, len(images))
    do = {"a": values, "c": lambda value: 2 * value}
    forwards, backwards = (
        model.counterfactual(images, do),
        model.counterfactual(images, dict(reversed(do.items()))),
    )
    assert torch.equal(forwards, backwards)
    latents = model.intervene(model.encode(images), do)
    assert np.allclose(model.to_units(0, latents[:, 0]).numpy(), values, atol=1e-5)
    alone = model.to_units(2, model.intervene(model.encode(images), {"a": values})[:, 2])
    assert torch.allclose(model.to_units(2, latents[:, 2]), 2 * alone, rtol=1e-3, atol=1e-3)
    each = torch.cat(
        [
            model.counterfactual(images[i], {"a": value, "c": lambda v: 2 * v})
            for i, value in enumerate(values)
        ]
    )
    assert torch.allclose(forwards, each, atol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [{}, {"network": "mlp"}, {"decoder": "per-concept"}, {"encode_labels": True}],
    ids=str,
)
def test_empty_do_is_the_reconstruction_bit_for_bit(
    settings: dict[str, Any], pendulum: Dataset
) -> None:
    model = make(pendulum, pendulum.graph, **settings)
    model.fit(pendulum)
    for images in (pendulum.test.images, pendulum.test.images[:1]):
        assert torch.equal(model.counterfactual(images, {}), model.reconstruct(images))


def latents_of_samples(
    model: CausalVAE, n: int, do: Any, monkeypatch: pytest.MonkeyPatch
) -> Tensor:
    decoded: list[Tensor] = []
    decode = model.decode

    def spy(latents: Tensor) -> Tensor:
        decoded.append(latents)
        return decode(latents)

    monkeypatch.setattr(model, "decode", spy)
    model.sample(n, do, seed=4)
    monkeypatch.undo()
    return torch.cat(decoded)


def test_sampling_under_do_sets_the_variable_in_its_own_units(
    pendulum: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(pendulum, pendulum.graph)
    model.fit(pendulum)
    free = latents_of_samples(model, 300, None, monkeypatch)
    for i, name in enumerate(model.latent_names):
        acted = latents_of_samples(model, 300, {name: 7.5}, monkeypatch)
        assert torch.allclose(model.to_units(i, acted[:, i]), torch.full((300,), 7.5), atol=1e-4)
        reached = {name, *model.graph.descendants(name)}
        for j, name_j in enumerate(model.latent_names):
            assert torch.equal(acted[:, j], free[:, j]) == (name_j not in reached)


def test_samples_use_noises_of_the_training_split(
    pendulum: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(pendulum, pendulum.graph)
    model.fit(pendulum)
    trained = model.encode(pendulum.train.images)
    drawn = latents_of_samples(model, 400, None, monkeypatch)
    mask = torch.as_tensor(pendulum.graph.adjacency, dtype=torch.float32)
    for i, name in enumerate(model.latent_names):
        if pendulum.graph.parents(name):
            with torch.no_grad():
                old, new = (
                    z[:, i] - model.mechanisms.forward_one(i, z, mask) for z in (trained, drawn)
                )
        else:
            old, new = trained[:, i], drawn[:, i]
        nearest = torch.cdist(new, old).argmin(1)
        assert torch.allclose(new, old[nearest], atol=1e-4), name
        assert len(nearest.unique()) > 50  # nearly all of the 65
    first, second = (torch.cdist(drawn[:, i], trained[:, i]).argmin(1) for i in (0, 1))
    assert (first == second).float().mean() < 0.1  # noises of the roots are independent
