"""Categorical labels of CausalVAE and ConditionVAE: one-hot inside, one name outside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intervae
from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, build_dataset
from intervae.errors import QueryError, UsageError
from intervae.models import CausalVAE
from lit_squares import GRAPH, GROUNDS, draw_squares, lit_squares

SMALL: dict[str, Any] = {
    "rest": 4,
    "rest_width": 16,
    "channels": (16, 32),
    "hidden": 64,
    "batch_size": 32,
}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return lit_squares()


@pytest.fixture(scope="module")
def trained(data: Dataset) -> CausalVAE:
    model = CausalVAE(data.spec, graph=GRAPH, epochs=20, **SMALL)
    model.fit(data, seed=0, device="cpu")
    return model


# ---- latents -------------------------------------------------------------------------------------
def test_prior_means_are_signs_of_classes_and_repeated_numbers(data: Dataset) -> None:
    model = CausalVAE(data.spec, graph=GRAPH, dims=2, **SMALL)
    assert model.dims == 3  # the three grounds
    mean = model.prior_mean(torch.tensor([[0.5, -1.5, 2.0]]))
    expected = [[0.5, 0.5, 0.5], [-1.5, -1.5, -1.5], [-1.0, -1.0, 1.0]]
    assert mean.tolist() == [expected]
    wide = CausalVAE(data.spec, graph=GRAPH, dims=5, **SMALL)
    assert wide.prior_mean(torch.tensor([[0.5, 1.0, 0.0]]))[0, 2].tolist() == [1, -1, -1, 0, 0]


def test_codes_and_latents_are_inverse(data: Dataset) -> None:
    model = CausalVAE(data.spec, graph=GRAPH, **SMALL)
    codes = torch.tensor([0.0, 1.0, 2.0, 1.0])
    latents = model.from_units(2, codes, torch.zeros(4, model.dims))
    assert torch.equal(model.to_units(2, latents), codes)
    noisy = latents + 0.4 * torch.randn(latents.shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.to_units(2, noisy.clamp(-1.9, 1.9)), codes)


def test_label_fit_is_the_mean_over_dims_of_a_linear_fit(data: Dataset) -> None:
    """With A = 0 it is the mean over dims of the squared label, summed over variables."""
    model = CausalVAE(data.spec, graph="joint", **SMALL)
    u = torch.tensor([[0.5, -1.5, 2.0]])
    assert model.dims == 4
    assert float(model.label_fit(u).detach()) == pytest.approx(0.5**2 + 1.5**2 + 3 / 4)
    with torch.no_grad():
        model.adjacency[0, 1] = -1.0  # side -> light
    assert float(model.label_fit(u).detach()) == pytest.approx(0.5**2 + 1.0**2 + 3 / 4)


# ---- queries -------------------------------------------------------------------------------------
def true_pictures(data: Dataset, **changes: Any) -> torch.Tensor:
    """Test pictures with columns of their labels replaced."""
    columns = dict(zip(data.names, data.test.labels.double().numpy().T, strict=True))
    columns |= {name: np.full(len(data.test), value) for name, value in changes.items()}
    place = data.test.fields["place"].numpy()
    return torch.tensor(draw_squares(**columns, place=place)) / 255


def test_classes_are_measured_and_set_by_name(trained: CausalVAE, data: Dataset) -> None:
    images, labels = data.test.images, data.test.labels
    assert (trained.measure(images)[:, 2] == labels[:, 2]).float().mean() > 0.98
    for code, name in enumerate(GROUNDS):
        truth = true_pictures(data, ground=code)
        answer = trained.counterfactual(images, {"ground": name})
        assert torch.equal(answer, trained.counterfactual(images, {"ground": float(code)}))
        changed = labels[:, 2] != code
        error = (answer - truth)[changed].abs().mean()
        nothing = (images / 255 - truth)[changed].abs().mean()
        assert error < 0.5 * nothing
        assert (trained.measure(answer)[:, 2] == code).float().mean() > 0.95


def test_do_on_a_class_leaves_other_variables_bit_for_bit(
    trained: CausalVAE, data: Dataset
) -> None:
    latents = trained.encode(data.test.images)
    after = trained.intervene(latents, {"ground": "striped"})
    assert torch.equal(after[:, :2], latents[:, :2])
    moved = trained.intervene(latents, {"side": 5.0})
    assert torch.equal(moved[:, 2], latents[:, 2])
    assert not torch.equal(moved[:, 1], latents[:, 1])  # light is an effect of the side


def test_an_effect_of_a_category_follows_it() -> None:
    """light = 60, 120 or 180 by the ground, of which it is an effect, plus noise."""
    rng = np.random.default_rng(1)
    side, ground = rng.uniform(4, 8, 1000), rng.integers(0, 3, 1000)
    light = 60 + 60 * ground + rng.normal(0, 5, 1000)
    images = draw_squares(side, light, ground, 3 * rng.integers(0, 3, (1000, 2)))
    columns = [side, light, ground]
    variables = lit_squares(60).variables
    data = build_dataset("effects", images, np.stack(columns, axis=1), variables)
    graph = CausalGraph.from_edges(data.names, [("ground", "light")])
    model = CausalVAE(data.spec, graph=graph, epochs=20, **SMALL)
    model.fit(data, seed=0, device="cpu")
    latents = model.encode(data.test.images)
    for code, name in enumerate(GROUNDS):
        after = model.intervene(latents, {"ground": name})
        light = model.to_units(1, after[:, 1])
        assert float(light.mean()) == pytest.approx(60 + 60 * code, abs=12)


def test_samples_and_weights_have_categories(trained: CausalVAE, data: Dataset) -> None:
    samples = trained.sample(6, {"ground": "grey"}, seed=0)
    assert samples.shape == (6, 1, 16, 16)
    images, labels = data.test.images[:4], data.test.labels[:4]
    right = trained.log_weights(images, labels, 8).mean(0)
    wrong = labels.clone()
    wrong[:, 2] = (wrong[:, 2] + 1) % 3
    assert (right > trained.log_weights(images, wrong, 8).mean(0)).all()


def test_a_loaded_model_answers_the_same(trained: CausalVAE, data: Dataset, tmp_path: Path) -> None:
    trained.save(tmp_path / "run")
    loaded = intervae.load(tmp_path / "run")
    images = data.test.images[:4]
    query = {"ground": "grey", "side": 5.0}
    assert torch.equal(loaded.counterfactual(images, query), trained.counterfactual(images, query))


# ---- graph, other models and refusals ------------------------------------------------------------
def test_a_learned_graph_has_no_edge_at_a_category_and_says_so(data: Dataset) -> None:
    model = CausalVAE(data.spec, epochs=1, **SMALL)
    assert model.settings.graph == "independence"
    notes = [note.text for note in model.notes(data)]
    assert notes == [
        "graph: ground without edges, as independence takes no categories; "
        "give a known graph (graph=, --graph)"
    ]
    model.fit(data, seed=0, device="cpu")
    assert {edge[:2] for edge in model.graph.edges} == {("side", "light")}


def test_condition_vae_takes_categories(data: Dataset) -> None:
    model = intervae.create("condition-vae", data, epochs=20, **SMALL, encode_labels=True)
    model.fit(data, seed=0, device="cpu")
    images, labels = data.test.images, data.test.labels
    assert (model.measure(images)[:, 2] == labels[:, 2]).float().mean() > 0.95
    assert model.encode(images, labels).shape == (len(images), 3, 4)


def test_classes_outside_training_are_refused(data: Dataset) -> None:
    rows = torch.nonzero(data.train.labels[:, 2] != 1)[:, 0]
    fewer = replace(data, train=data.train[rows])
    model = CausalVAE(data.spec, graph=GRAPH, epochs=1, **SMALL)
    model.fit(fewer, seed=0, device="cpu")
    with pytest.raises(QueryError, match="ground = grey was never seen in training; give one of"):
        model.counterfactual(data.test.images[:2], {"ground": "grey"})
    with pytest.raises(QueryError, match="category of 'ground'"):
        model.counterfactual(data.test.images[:2], {"ground": "blue"})
    with pytest.raises(QueryError, match=r"ground = 1\.5 was never seen"):
        model.counterfactual(data.test.images[:2], {"ground": 1.5})


def test_layers_refuse_categories(data: Dataset) -> None:
    with pytest.raises(UsageError, match="decoder=layers takes continuous and binary variables"):
        CausalVAE(data.spec, graph=GRAPH, decoder="layers")
