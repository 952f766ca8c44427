"""Deep structural causal model on squares whose side causes their brightness."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intervae
from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Variable, build_dataset
from intervae.data.missing_labels import hide_labels
from intervae.errors import DataError, QueryError, UsageError
from intervae.models.deep_scm import DeepSCM
from intervae.testing.case import first_batch
from lit_squares import GRAPH, GROUNDS, SLOPE, draw_squares, lit_squares

SMALL: dict[str, Any] = {
    "channels": (16, 32),
    "hidden": 128,
    "latents": 8,
    "batch_size": 32,
    "learning_rate": 3e-3,
    "mechanism_hidden": 32,
    "first_kl_weight": 30.0,
    "warm_up": 0.7,
    "clip": 50.0,
}
TINY = {**SMALL, "channels": (8, 8), "hidden": 16, "epochs": 1}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return lit_squares()


@pytest.fixture(scope="module")
def trained(data: Dataset) -> DeepSCM:
    model = DeepSCM(data.spec, graph=GRAPH, **SMALL, epochs=40)
    model.fit(data, seed=0)
    return model


@pytest.fixture
def untrained(data: Dataset) -> DeepSCM:
    return DeepSCM(data.spec, graph=GRAPH, **TINY)


def truth(data: Dataset, **do: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the true images and labels (N, 3) of the test split under do()."""
    labels = data.test.labels.numpy().copy()
    if "side" in do:
        labels[:, 1] += SLOPE * (do["side"] - labels[:, 0])
        labels[:, 0] = do["side"]
    for i, name in enumerate(data.names):
        labels[:, i] = do.get(name, labels[:, i])
    return draw_squares(*labels.T, data.test.fields["place"].numpy()), labels


def error(images: torch.Tensor, expected: Any) -> float:
    """Mean absolute pixel error, 0 to 255."""
    return float(np.abs(255 * images.numpy() - np.asarray(expected, float)).mean())


def brightness(images: Any, labels: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Mean grey level of the inner pixels of squares of at least 4 pixels."""
    rows = np.arange(len(labels))[:, None, None]
    inner = place[:, :, None].astype(int) + np.arange(1, 3)
    return np.asarray(images)[rows, 0, inner[:, 0, :, None], inner[:, 1, None, :]].mean((1, 2))


# ---- a world with known truth --------------------------------------------------------------------
def test_do_moves_effects_as_the_mechanism_says_and_no_others(
    trained: DeepSCM, data: Dataset
) -> None:
    _, expected = truth(data, side=7.5)
    before = trained.encode(data.test.images, data.test.labels)
    after = trained.intervene(before, {"side": 7.5})
    values = torch.stack([trained.to_units(i, after[:, i]) for i in range(3)], 1).numpy()
    assert np.allclose(values[:, 0], 7.5, atol=1e-4)
    assert np.abs(values[:, 1] - expected[:, 1]).mean() < 6  # doing nothing: 18
    assert np.array_equal(values[:, 2], expected[:, 2])


@pytest.mark.parametrize("labelled", [True, False])
def test_counterfactual_pictures_approach_the_truth(
    trained: DeepSCM, data: Dataset, labelled: bool
) -> None:
    labels = data.test.labels if labelled else None
    cases = (({"side": 7.5}, 0.55), ({"light": 120.0}, 0.8), ({"ground": 2.0}, 0.4))
    for do, largest_share in cases:
        images, _ = truth(data, **do)
        after = trained.counterfactual(data.test.images, do, labels)
        doing_nothing = error(data.test.images / 255, images)
        assert error(after, images) < largest_share * doing_nothing, do


def test_do_side_moves_the_brightness_and_leaves_the_place(trained: DeepSCM, data: Dataset) -> None:
    place = data.test.fields["place"].numpy()
    images, labels = truth(data, side=7.5)
    after = 255 * trained.counterfactual(data.test.images, {"side": 7.5}).numpy()
    changes = [
        brightness(pictures, labels, place) - brightness(data.test.images, labels, place)
        for pictures in (after, images)
    ]
    assert np.polyfit(changes[1], changes[0], 1)[0] == pytest.approx(1, abs=0.35)
    background = np.median(after, axis=(2, 3), keepdims=True)
    bright = np.clip(after - background - 50, 0, None)[:, 0]
    for axis in (0, 1):
        profile = bright.sum(2 - axis)
        centre = (profile * np.arange(16)).sum(1) / profile.sum(1)
        # the place varies by 3 pixels and more
        assert np.abs(centre - place[:, axis] - 3.25).mean() < 0.8


def test_measure_reads_labels_of_pictures(trained: DeepSCM, data: Dataset) -> None:
    values, labels = trained.measure(data.test.images).numpy(), data.test.labels.numpy()
    assert np.abs(values[:, 0] - labels[:, 0]).mean() < 0.2
    assert np.abs(values[:, 1] - labels[:, 1]).mean() < 6
    assert (values[:, 2] == labels[:, 2]).mean() > 0.97


def test_samples_under_do_have_the_values_of_the_mechanism(trained: DeepSCM) -> None:
    pictures = trained.sample(300, {"side": 5.0, "ground": "grey"}, seed=0)
    values = trained.measure(pictures).numpy()
    assert np.median(values[:, 0]) == pytest.approx(5, abs=0.5)
    assert np.median(values[:, 1]) == pytest.approx(90 + 5 * SLOPE, abs=20)  # they are dim
    brightest = (255 * pictures.flatten(1)).sort(dim=1).values[:, -12:].mean(1)  # of 25 pixels
    assert np.median(values[:, 1]) == pytest.approx(brightest.median().item(), abs=5)
    assert (values[:, 2] == GROUNDS.index("grey")).mean() > 0.9


# ---- do() ----------------------------------------------------------------------------------------
def test_empty_do_is_the_reconstruction_or_the_picture(untrained: DeepSCM, data: Dataset) -> None:
    images = data.test.images[:5]
    assert torch.equal(untrained.counterfactual(images, {}), untrained.reconstruct(images))
    exact = untrained.counterfactual(images, {}, pixel_temperature=1.0)
    torch.testing.assert_close(exact, images / 255, rtol=0, atol=1e-5)
    same = untrained.counterfactual(images, {"side": lambda v: v}, pixel_temperature=1.0)
    torch.testing.assert_close(same, images / 255, rtol=0, atol=1e-5)
    noise = untrained.abduct_picture(images)
    again = untrained.decode(untrained.encode(images), **noise)
    torch.testing.assert_close(again, untrained.reconstruct(images))


def test_categories_are_set_by_name_code_and_per_picture(untrained: DeepSCM, data: Dataset) -> None:
    images, labels = data.test.images[:4], data.test.labels[:4]
    by_name = untrained.counterfactual(images, {"ground": "Striped", "side": lambda v: v + 1})
    by_code = untrained.counterfactual(images, {"ground": [2, 2, 2, 2], "side": lambda v: v + 1})
    assert torch.equal(by_name, by_code)
    latents = untrained.encode(images, labels)
    after = untrained.intervene(
        latents, {"ground": np.array([0, 1, 2, 0]), "side": lambda v: v + 1}
    )
    assert after[:, 2, 0].tolist() == [0, 1, 2, 0]
    sides = untrained.to_units(0, after[:, 0])
    torch.testing.assert_close(sides, labels[:, 0] + 1, rtol=0, atol=1e-4)


def test_latents_drawn_with_a_temperature_repeat(untrained: DeepSCM, data: Dataset) -> None:
    images = data.test.images[:4]
    first, second = (untrained.counterfactual(images, {}, latent_temperature=1.0) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, untrained.counterfactual(images, {}))


@pytest.mark.parametrize(
    ("do", "words"),
    [
        ({"ground": "purple"}, "purple.*black"),
        ({"ground": 3.0}, "ground = 3 was never seen in training; give one of black, grey"),
        ({"ground": 0.5}, "ground = 0.5 was never seen"),
        ({"ground": lambda v: v + 1.5}, "never seen"),
        ({"image": 1.0}, "image"),
    ],
)
def test_do_of_no_class_is_refused(
    untrained: DeepSCM, data: Dataset, do: dict[str, Any], words: str
) -> None:
    with pytest.raises(QueryError, match=words):
        untrained.counterfactual(data.test.images[:3], do)


def test_class_without_a_training_row_is_refused(data: Dataset) -> None:
    train = data.train[data.train.labels[:, 2] != 1]
    part = replace(data, train=train)
    model = DeepSCM(part.spec, graph=GRAPH, **TINY)
    model.fit(part)
    with pytest.raises(QueryError, match=r"ground = grey was never seen.*black, striped"):
        model.counterfactual(data.test.images[:2], {"ground": "grey"})
    with pytest.raises(QueryError, match="labels: ground = grey"):
        model.counterfactual(data.test.images[:1], {}, torch.tensor([[5.0, 150.0, 1.0]]))


# ---- averaged weights ----------------------------------------------------------------------------
def test_queries_use_averaged_weights(data: Dataset) -> None:
    """The decay stays below 0.999 in a training this short, so both decays average the same."""
    models = [DeepSCM(data.spec, graph=GRAPH, averaging=d, **TINY) for d in (0.0, 0.999, 0.9999)]
    losses = [model.fit(data, seed=0, device="cpu").history[-1] for model in models]
    assert losses[0]["train"] == losses[1]["train"] == losses[2]["train"]
    raw, averaged, slower = (model.state_dict() for model in models)
    assert all(torch.equal(tensor, slower[name]) for name, tensor in averaged.items())
    name = "predictor." + next(iter(dict(models[0].predictor.named_parameters())))
    assert not torch.equal(raw[name], averaged[name])


def test_short_training_does_not_suffer_from_averaging(data: Dataset) -> None:
    """Validation losses after 81 steps, whose learning rate falls to nearly zero."""
    raw, averaged = (
        DeepSCM(data.spec, graph=GRAPH, **{**TINY, "epochs": 3}, averaging=decay)
        .fit(data, seed=0)
        .history
        for decay in (0.0, 0.999)
    )
    gain = raw[0]["validation"]["loss"] - raw[-1]["validation"]["loss"]
    assert averaged[-1]["validation"]["loss"] < raw[-1]["validation"]["loss"] + 0.05 * gain


@pytest.mark.parametrize("value", [-0.1, 1.0, 2.0])
def test_averaging_outside_its_range_is_refused(data: Dataset, value: float) -> None:
    with pytest.raises(UsageError, match=r"averaging=.* must be at least 0 and below 1\.$"):
        DeepSCM(data.spec, graph=GRAPH, averaging=value, **TINY)


# ---- variables -----------------------------------------------------------------------------------
def test_likelihood_of_a_variable_is_a_density_in_its_own_units(trained: DeepSCM) -> None:
    side = torch.linspace(0, 12, 4001)
    labels = torch.stack([side, torch.full_like(side, 150), torch.ones_like(side)], dim=1)
    density = trained.log_likelihood(labels).exp()
    assert torch.trapezoid(density[:, 0], side).item() == pytest.approx(1, abs=0.02)
    assert density[2000, 0].item() == pytest.approx(1 / 4, rel=0.3)  # uniform from 4 to 8
    assert density[0, 2].item() == pytest.approx(1 / 3, rel=0.2)
    labels[:, 0] = torch.nan
    assert not trained.log_likelihood(labels)[:, :2].any()  # light depends on side


def test_graph_is_learned_without_categories_and_saved(data: Dataset, tmp_path: Path) -> None:
    model = intervae.create("deep-scm", data, **TINY)
    assert model.settings.graph == "independence"
    assert [note.subject for note in model.notes(data)] == ["ground"]
    model.fit(data, out=tmp_path / "run", tensorboard=False)
    assert [edge[:2] for edge in model.graph.edges] == [("side", "light")]
    loaded = intervae.load(tmp_path / "run")
    assert loaded.graph == model.graph
    do = {"side": 7.0, "ground": "grey"}
    images = [m.counterfactual(data.test.images, do) for m in (model, loaded)]
    assert torch.equal(*images)


def test_figures_show_categories(untrained: DeepSCM, data: Dataset, tmp_path: Path) -> None:
    for name, draw in untrained.figures(data).items():
        draw(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000, name


@pytest.mark.parametrize("picture", ["hvae", "flow"])
def test_other_pictures_answer_the_same_queries(
    picture: str, data: Dataset, tmp_path: Path
) -> None:
    settings = {**TINY, "widths": (4, 8), "layers": (1,), "encoder_blocks": (1,)}
    model = DeepSCM(
        data.spec, graph=GRAPH, picture=picture, flow_widths=(8,), flow_steps=4, **settings
    )
    model.fit(data, out=tmp_path / "run", tensorboard=False)
    images, labels = data.test.images[:3], data.test.labels[:3]
    exact = model.counterfactual(images, {}, pixel_temperature=1.0)
    torch.testing.assert_close(exact, images / 255, rtol=0, atol=1e-5)
    after = model.counterfactual(images, {"side": 5.0}, labels)
    assert after.shape == (3, 1, 16, 16)
    loaded = intervae.load(tmp_path / "run")
    assert torch.equal(loaded.counterfactual(images, {"side": 5.0}, labels), after)
    noise = model.abduct_picture(images, labels)
    again = model.decode(model.encode(images, labels), **noise)
    torch.testing.assert_close(again, model.counterfactual(images, {}, labels))
    assert torch.equal(model.sample(3, seed=1), model.sample(3, seed=1))


def test_flow_draws_the_truth_and_an_empty_do_is_exact(data: Dataset) -> None:
    """do(side) is left out: 864 pictures and 8 s of training are too few for new shapes."""
    settings = {**SMALL, "flow_widths": (16, 32), "patch": 2, "epochs": 25}
    model = DeepSCM(data.spec, graph=GRAPH, picture="flow", **settings)
    model.fit(data, seed=0)
    originals = data.test.images / 255
    for name, value in (("light", 100.0), ("ground", 1.0)):
        images, _ = truth(data, **{name: value})
        after = model.counterfactual(data.test.images, {name: value}, data.test.labels)
        assert error(after, images) < 0.5 * error(originals, images), name
    unchanged = model.counterfactual(data.test.images, {}, data.test.labels)
    torch.testing.assert_close(unchanged, originals, rtol=0, atol=1e-4)


def test_counterfactual_training_of_a_flow_is_refused(data: Dataset) -> None:
    with pytest.raises(UsageError, match=r"counterfactual_weight=3 needs picture=vae or hvae"):
        DeepSCM(data.spec, graph=GRAPH, picture="flow", counterfactual_weight=3.0, **TINY)


def test_picture_depends_on_named_parents_only(data: Dataset) -> None:
    model = DeepSCM(data.spec, graph=GRAPH, picture_parents=("light", "ground"), **TINY)
    latents = torch.zeros(2, 3, 1)
    latents[1, 0] = 2.0
    first, second = model.decode(latents)
    assert torch.equal(first, second)
    latents[1, 1] = 2.0
    first, second = model.decode(latents)
    assert not torch.equal(first, second)
    with pytest.raises(UsageError, match=r"picture_parents.*lihgt"):
        DeepSCM(data.spec, graph=GRAPH, picture_parents=("lihgt",), **TINY)


# ---- missing labels ------------------------------------------------------------------------------
def test_a_tenth_of_the_labels_still_trains(data: Dataset) -> None:
    part = hide_labels(data, 0.1, seed=0)
    model = DeepSCM(part.spec, graph=GRAPH, **SMALL, epochs=15)
    model.fit(part, seed=0)
    values, labels = model.measure(data.test.images).numpy(), data.test.labels.numpy()
    assert np.abs(values[:, 0] - labels[:, 0]).mean() < 0.6  # the mean: 1.0
    images, _ = truth(data, ground=2.0)
    after = model.counterfactual(data.test.images, {"ground": "striped"})
    assert error(after, images) < error(data.test.images / 255, images)


def test_missing_labels_have_no_terms_and_finite_gradients(
    untrained: DeepSCM, data: Dataset
) -> None:
    batch = first_batch(data)
    batch["images"] = batch["images"].float()
    batch["labels"] = torch.full_like(batch["labels"], torch.nan)
    terms = untrained.loss(batch, torch.Generator().manual_seed(0))
    assert terms["variables"] == 0
    assert terms["prediction"] == 0
    batch["labels"][::2, 1] = 150.0
    untrained.loss(batch, torch.Generator().manual_seed(0))["loss"].backward()
    gradients = [p.grad for p in untrained.parameters() if p.grad is not None]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_labels_fill_in_for_the_predictor_where_they_are(untrained: DeepSCM, data: Dataset) -> None:
    images, labels = data.test.images[:3], data.test.labels[:3].clone()
    labels[:, 1] = torch.nan
    mixed = untrained.encode(images, labels)
    assert torch.equal(mixed[:, 1], untrained.encode(images)[:, 1])
    assert torch.equal(mixed[:, 2, 0], labels[:, 2])


# ---- bad input -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("names", "edges", "words"),
    [
        (
            ("side", "light", "ground", "image"),
            [("side", "image")],
            "'image', which is no labelled",
        ),
        (("side", "light", "ground", "shade"), [], "'shade', which is no labelled column"),
        (("side", "light"), [], "does not name the column 'ground'"),
        (("side", "light", "ground"), [("side", "light"), ("light", "side")], "cycle"),
    ],
)
def test_wrong_graphs_are_refused(data: Dataset, names: Any, edges: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        DeepSCM(data.spec, graph=CausalGraph.from_edges(names, edges), **TINY)


def test_continuous_column_with_two_values_is_refused() -> None:
    rng = np.random.default_rng(0)
    labels = np.stack([rng.normal(size=100), rng.integers(0, 2, 100) * 20.0], axis=1)
    images = rng.integers(0, 255, (100, 1, 16, 16)).astype(np.uint8)
    data = build_dataset("two", images, labels, [Variable("a"), Variable("b")])
    model = DeepSCM(data.spec, **TINY)
    with pytest.raises(DataError, match=r"'b' has only the values 0, 20.*binary"):
        model.fit(data)


def test_data_without_labels_is_refused(data: Dataset) -> None:
    with pytest.raises(DataError, match="deep-scm learns from labels"):
        DeepSCM(data.select([]).spec, **TINY)


def test_variables_with_too_many_dims_are_refused(untrained: DeepSCM) -> None:
    with pytest.raises(QueryError, match="one dim each, not 2"):
        untrained.decode(torch.zeros(1, 3, 2))
