"""The cross-modal simulator against its equations: mechanisms, transforms, images and do()."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from intervae.causal.graph import CausalGraph
from intervae.data import load_data, reload
from intervae.data.simulators import CrossModal
from intervae.data.simulators.cross_modal_graph import draw_edges
from intervae.data.simulators.random_functions import GaussianProcessTransform, SigmoidMechanism
from intervae.errors import DataError, QueryError, UsageError

SIMULATOR = CrossModal(graph="4/10", world=3, weakest=1.0)
NOISES = SIMULATOR.sample_exogenous(400, np.random.default_rng(7))
VALUES = SIMULATOR.simulate(NOISES)
COLUMN = {name: i for i, name in enumerate(SIMULATOR.graph.names)}


@pytest.mark.parametrize(
    ("text", "latents", "structured"),
    [("1/10", 9, 1), ("3/10", 7, 3), ("5/10", 5, 5), ("10/20", 10, 10), ("20/40", 20, 20)],
)
def test_graph_n_of_t_has_n_columns_n_edges_and_t_nodes(text, latents, structured):
    simulator = CrossModal(graph=text, world=1)
    assert simulator.graph.names == tuple(f"z{i + 1}" for i in range(latents)) + tuple(
        f"u{i + 1}" for i in range(structured)
    )
    assert len(simulator.graph.edges) == structured
    adjacency = simulator.graph.adjacency
    assert (adjacency.sum(0) + adjacency.sum(1)).max() == 1
    assert all({cause[0], effect[0]} == {"z", "u"} for cause, effect, _ in simulator.graph.edges)


def test_directions_are_random_or_as_requested():
    causal = [cause[0] == "u" for world in range(40) for cause, _, _ in _edges("8/16", world)]
    assert 0.4 < np.mean(causal) < 0.6  # 320 fair coins: three standard deviations are 0.08
    assert all(cause[0] == "u" for cause, _, _ in CrossModal(directions="causal").graph.edges)
    assert all(cause[0] == "z" for cause, _, _ in CrossModal(directions="anti-causal").graph.edges)


def test_half_of_the_directions_are_causal():
    for world, (graph, causal) in enumerate((("4/8", 2), ("5/10", 3), ("1/4", 1))):
        edges = CrossModal(graph=graph, directions="half", world=world).graph.edges
        assert sum(cause[0] == "u" for cause, _, _ in edges) == causal


def test_columns_that_are_no_effects_have_the_correlation():
    simulator = CrossModal(graph="6/12", directions="half", correlation=0.7, world=1)
    noises = simulator.sample_exogenous(40_000, np.random.default_rng(0))
    roots = [u for u in simulator.structured_names if not simulator.graph.parents(u)]
    index = [simulator.graph.names.index(u) for u in roots]
    assert len(index) == 3
    expected = np.eye(noises.shape[1])
    expected[np.ix_(index, index)] += 0.7 * (1 - np.eye(3))
    assert np.abs(np.corrcoef(noises.T) - expected).max() < 0.02
    np.testing.assert_allclose(noises[:, index].std(0), 1, rtol=0.02)
    plain = CrossModal(graph="6/12", directions="half", world=1)
    assert plain.graph == simulator.graph
    other = [k for k in range(noises.shape[1]) if k not in index]
    drawn = plain.sample_exogenous(50, np.random.default_rng(0))
    again = simulator.sample_exogenous(50, np.random.default_rng(0))
    np.testing.assert_array_equal(drawn[:, other], again[:, other])
    data = load_data("cross-modal", graph="6/12", directions="half", correlation=0.7, samples=3000)
    assert reload(data.source).simulator.correlation == 0.7


def _edges(graph: str, world: int) -> list[tuple[str, str, float]]:

    z, u, pairs = draw_edges(graph, None, "random", np.random.default_rng([world, 0]))
    return CausalGraph.from_edges((*z, *u), pairs).edges


def test_the_panels_of_figure_3():
    assert {(a, b) for a, b, _ in CrossModal(graph="c").graph.edges} == {
        ("z1", "u1"),
        ("z3", "u2"),
        ("z4", "u3"),
        ("z5", "u4"),
        ("z2", "u5"),
    }
    assert {(a, b) for a, b, _ in CrossModal(graph="b").graph.edges} == {
        ("u1", "z1"),
        ("u2", "z2"),
        ("u3", "z3"),
    }


def test_nodes_are_the_mechanism_of_their_cause_plus_noise():
    for name, column in COLUMN.items():
        parents = SIMULATOR.graph.parents(name)
        expected = NOISES[:, column]
        if parents:
            f, x = SIMULATOR.mechanisms[name], VALUES[:, COLUMN[parents[0]]]
            expected = expected + sum(
                b / (1 + np.exp(-a * x)) for a, b in zip(f.inner, f.outer, strict=True)
            )
            assert f.inner.shape == f.outer.shape == (100,)
            for weights in (f.inner, f.outer):
                assert np.abs(weights).min() >= 0.5
                assert np.abs(weights).max() <= 2
                assert 20 < (weights < 0).sum() < 80
        np.testing.assert_allclose(VALUES[:, column], expected, rtol=1e-10)


def test_standard_deviations_of_the_noises():
    noises = SIMULATOR.sample_exogenous(40_000, np.random.default_rng(0))
    np.testing.assert_allclose(noises.std(0), [1.0] * 10 + [0.1] * 6, rtol=0.02)
    assert np.abs(np.corrcoef(noises.T) - np.eye(16)).max() < 0.02


def test_weakest_is_the_minimum_signal():
    x = np.random.default_rng(0).normal(size=20_000)
    assert min(f(x).std() for f in SIMULATOR.mechanisms.values()) > 0.98
    rng = np.random.default_rng(0)
    weak = np.mean([SigmoidMechanism.draw(rng)(x[:500]).std() < 1 for _ in range(400)])
    assert 0.16 < weak < 0.34  # without, about one in four is below the noise


def test_recorded_variances_are_those_of_the_nodes():
    values = SIMULATOR.simulate(SIMULATOR.sample_exogenous(20_000, np.random.default_rng(1)))
    np.testing.assert_allclose(values.var(0), list(SIMULATOR.variances.values()), rtol=0.06)


def test_latents_are_standardised_before_the_transform():
    values = SIMULATOR.simulate(SIMULATOR.sample_exogenous(20_000, np.random.default_rng(1)))
    for j, transform in enumerate(SIMULATOR.transforms):
        s = (values[:, j] - transform.mean) / transform.std
        assert abs(s.mean()) < 0.05
        assert abs(s.std() - 1) < 0.03


@pytest.mark.parametrize("world", [0, 1, 2])
def test_monotone_transform_has_slope_1_plus_softplus_of_the_process(world):
    for transform in CrossModal(graph="8/16", world=world).transforms:
        s = np.linspace(-12, 12, 20_001)
        transformed = transform(s * transform.std + transform.mean)
        slope = np.diff(transformed) / np.diff(s)
        assert slope.min() > 1  # injective
        inside = np.abs(s[:-1]) < 7.9
        middle = (s[1:] + s[:-1]) / 2
        np.testing.assert_allclose(
            slope[inside], 1 + np.log1p(np.exp(transform.process(middle[inside]))), atol=0.02
        )
        assert transform(np.array([transform.mean]))[0] == pytest.approx(0, abs=1e-12)
        np.testing.assert_allclose(
            transform.invert(transformed), s * transform.std + transform.mean, atol=1e-9
        )


def test_free_transform_is_a_gaussian_process_and_not_injective():
    rng, s = np.random.default_rng(0), np.linspace(-3, 3, 7)
    transforms = [GaussianProcessTransform.draw(rng, 1.0, 2.0, monotone=False) for _ in range(150)]
    samples = np.array([transform(2 * s + 1) for transform in transforms])  # (150, 7)
    kernel = np.exp(-((s[:, None] - s) ** 2) / (2 * 2.0**2))
    np.testing.assert_allclose(samples.T @ samples / len(samples), kernel, atol=0.3)
    beyond_table = transforms[0](np.array([1.0 + 2 * 9.0]))
    np.testing.assert_allclose(beyond_table, transforms[0].process(np.array([9.0])))
    fine = np.linspace(-2, 2, 101)
    turns = [
        len(np.unique(np.sign(np.diff(transform(2 * fine + 1))))) > 1 for transform in transforms
    ]
    assert np.mean(turns) > 0.3


def test_the_transform_changes_the_images_only():
    free = CrossModal(graph="4/10", world=3, weakest=1.0, gp="free")
    assert free.graph == SIMULATOR.graph
    np.testing.assert_array_equal(free.simulate(NOISES), VALUES)
    np.testing.assert_array_equal(free.cells, SIMULATOR.cells)
    with pytest.raises(QueryError, match=r'gp="free" does not determine its latents'):
        free.read_latents(free.render(VALUES))


@pytest.mark.parametrize("size", [8, 32, 50])
def test_images_are_the_interpolated_matrix(size):
    cells = np.tile(SIMULATOR.background, (400, 1))
    cells[:, SIMULATOR.cells] = (
        np.stack([transform(VALUES[:, j]) for j, transform in enumerate(SIMULATOR.transforms)], 1)
        + NOISES[:, 10:]
    )
    grey = (
        ((cells - SIMULATOR.black) / (SIMULATOR.white - SIMULATOR.black))
        .clip(0, 1)
        .reshape(-1, 1, 5, 5)
    )
    expected = (
        interpolate(torch.tensor(grey), (size, size), mode="bilinear", align_corners=False).numpy()
        * 255
    )
    np.testing.assert_allclose(SIMULATOR.render(VALUES, NOISES, size=size), expected, atol=0.51)
    assert len(set(SIMULATOR.cells.tolist())) == 6


def test_cells_of_folded_images_are_the_transformed_latents_with_their_noise():
    free = CrossModal(graph="4/10", world=3, weakest=1.0, gp="free")
    shown = np.stack([t(VALUES[:, j]) for j, t in enumerate(free.transforms)], 1) + NOISES[:, 10:]
    cells = free.read_cells(free.render(VALUES, NOISES))
    # 256 greys, and at most a few rows beyond black and white
    assert np.quantile(np.abs(cells - shown), 0.99) < 0.03


@pytest.mark.parametrize("size", [16, 32])
def test_latents_can_be_read_from_the_images(size):
    latents = SIMULATOR.read_latents(SIMULATOR.render(VALUES, size=size))
    assert np.abs(latents - VALUES[:, :6]).max() < 0.25  # rounded to 256 greys
    noisy = SIMULATOR.read_latents(
        torch.tensor(SIMULATOR.render(VALUES, NOISES, size=size)).float() / 255
    )
    assert min(np.corrcoef(noisy[:, j], VALUES[:, j])[0, 1] for j in range(6)) > 0.99


def test_do_of_a_cause_moves_its_latent_only_and_of_an_effect_nothing():
    before = SIMULATOR.render(VALUES, NOISES)
    for name in SIMULATOR.structured_names:
        images, values = SIMULATOR.counterfactual(NOISES, {name: 1.5})
        children = SIMULATOR.graph.children(name)
        assert (values[:, COLUMN[name]] == 1.5).all()
        if not children:
            np.testing.assert_array_equal(images, before)
            continue
        z = COLUMN[children[0]]
        f = SIMULATOR.mechanisms[children[0]]
        np.testing.assert_allclose(values[:, z], f(np.array([1.5]))[0] + NOISES[:, z])
        others = [j for j in range(6) if j != z]
        np.testing.assert_array_equal(values[:, others], VALUES[:, others])
        moved = SIMULATOR.read_latents(images) - SIMULATOR.read_latents(before)
        assert np.abs(moved[:, others]).max() < 0.25
        np.testing.assert_allclose(moved[:, z], values[:, z] - VALUES[:, z], atol=0.5)
    causes = [name for name in SIMULATOR.graph.names if SIMULATOR.graph.children(name)]
    assert {name[0] for name in causes} == {"u", "z"}  # both directions occur


def test_the_spec_has_columns_only_and_fields_have_the_truth():
    data = load_data("cross-modal", graph="3/10", samples=200, size=16, world=2)
    assert data.names == ("u1", "u2", "u3")
    assert "z1" not in json.dumps(data.spec.to_json())
    assert data.spec.image_shape == (1, 16, 16)
    assert data.graph == data.simulator.graph
    assert len(data.graph) == 10
    exogenous = data.test.fields["exogenous"].numpy()
    values = data.simulator.simulate(exogenous)
    np.testing.assert_allclose(data.test.fields["latents"], values[:, :7], rtol=1e-5)
    np.testing.assert_allclose(data.test.labels, values[:, 7:], rtol=1e-5)
    np.testing.assert_array_equal(
        data.test.images, data.simulator.render(values, exogenous, size=16)
    )
    assert data.notes[0].text.startswith("variances of the nodes: z1 ")


def test_selecting_columns_keeps_the_latents_in_the_true_graph():
    data = load_data("cross-modal", graph="3/10", samples=100, size=16, variables=["u3", "u1"])
    assert data.names == ("u3", "u1")
    assert data.graph.names == (*(f"z{i}" for i in range(1, 8)), "u3", "u1")


def test_the_world_and_the_samples_have_separate_seeds():
    first, second = (
        load_data("cross-modal", samples=50, size=8, world=4, seed=seed) for seed in (0, 1)
    )
    assert first.graph == second.graph
    assert not torch.equal(first.train.labels, second.train.labels)
    second_simulator = load_data("cross-modal", samples=50, size=8, world=5)
    assert second_simulator.graph != first.graph
    again = reload(json.loads(json.dumps(first.source)))
    assert torch.equal(again.train.images, first.train.images)
    assert torch.equal(again.test.labels, first.test.labels)
    default = load_data("cross-modal", graph="1/10")
    assert (
        len(default.train),
        len(default.validation),
        len(default.test),
        default.spec.image_shape,
    ) == (
        1440,
        160,
        400,
        (1, 32, 32),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graph": "five"}, 'graph=\'five\' must be "edges/nodes", such as "5/10", or a panel'),
        ({"graph": "10/10"}, "has 10 structured variables and 0 latents"),
        ({"graph": "4/40"}, "and 36 latents; 1 or more and 1 to 25"),
        ({"graph": "7/10"}, "has room for 0 to 3 one-to-one edges, not edges=7"),
        ({"edges": 6}, "has room for 0 to 5 one-to-one edges, not edges=6"),
        ({"graph": "a", "edges": 2}, "is a panel with edges of its own"),
        ({"gp": "linear"}, "gp"),
        ({"directions": "up"}, "directions"),
        ({"noise": -1}, "noise=-1 must be a number, 0 or more"),
        ({"world": -1}, "world=-1 must be a whole number"),
        ({"samples": 3}, "samples=3 must be a whole number, 8 or more"),
        ({"weakest": 90.0}, "none of 10000 random mechanisms is that strong"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        load_data("cross-modal", **options)


def test_images_of_another_shape_are_refused():
    with pytest.raises(DataError, match=r"images must be \(N, 1, H, H\), not shape \(2, 3, 8, 8\)"):
        SIMULATOR.read_latents(np.zeros((2, 3, 8, 8), np.uint8))
