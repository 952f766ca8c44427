"""The cross-modal pipeline against its equations: mechanisms, directions, standardisation, what the picture tells of z, and do()."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from intervae.data import load_data, reload
from intervae.data.simulators import CrossModal
from intervae.data.simulators.cross_modal import Mechanism, Warp
from intervae.errors import DataError, QueryError, UsageError

WORLD = CrossModal(graph="4/10", world=3, weakest=1.0)
NOISES = WORLD.sample_exogenous(400, np.random.default_rng(7))
VALUES = WORLD.simulate(NOISES)
COLUMN = {name: i for i, name in enumerate(WORLD.graph.names)}


@pytest.mark.parametrize(("text", "latents", "structured"), [("1/10", 9, 1), ("3/10", 7, 3), ("5/10", 5, 5), ("10/20", 10, 10), ("20/40", 20, 20)])
def test_n_of_t_means_n_structured_variables_and_edges_of_t_nodes_latents_first(text, latents, structured):
    world = CrossModal(graph=text, world=1)
    assert world.graph.names == tuple(f"z{i + 1}" for i in range(latents)) + tuple(f"u{i + 1}" for i in range(structured))
    assert len(world.graph.edges) == structured
    adjacency = world.graph.adjacency
    assert (adjacency.sum(0) + adjacency.sum(1)).max() == 1  # one edge a node at most
    assert all({cause[0], effect[0]} == {"z", "u"} for cause, effect, _ in world.graph.edges)


def test_both_directions_occur_equally_often_and_can_be_asked_for():
    causal = [cause[0] == "u" for world in range(40) for cause, _, _ in _edges("8/16", world)]
    assert 0.4 < np.mean(causal) < 0.6  # 320 draws of a fair coin: three standard deviations are 0.08
    assert all(cause[0] == "u" for cause, _, _ in CrossModal(directions="causal").graph.edges)
    assert all(cause[0] == "z" for cause, _, _ in CrossModal(directions="anti-causal").graph.edges)


def _edges(graph: str, world: int) -> list[tuple[str, str, float]]:
    from intervae.causal.graph import CausalGraph
    from intervae.data.simulators.cross_modal import _nodes

    z, u, pairs = _nodes(graph, None, "random", np.random.default_rng([world, 0]))
    return CausalGraph.from_edges((*z, *u), pairs).edges


def test_the_panels_of_figure_3():
    assert {(a, b) for a, b, _ in CrossModal(graph="c").graph.edges} == {("z1", "u1"), ("z3", "u2"), ("z4", "u3"), ("z5", "u4"), ("z2", "u5")}
    assert {(a, b) for a, b, _ in CrossModal(graph="b").graph.edges} == {("u1", "z1"), ("u2", "z2"), ("u3", "z3")}


def test_an_effect_is_the_network_of_its_cause_plus_its_noise_and_a_root_is_its_noise():
    for name, column in COLUMN.items():
        parents = WORLD.graph.parents(name)
        expected = NOISES[:, column]
        if parents:
            f, x = WORLD.mechanisms[name], VALUES[:, COLUMN[parents[0]]]
            expected = expected + sum(b / (1 + np.exp(-a * x)) for a, b in zip(f.inner, f.outer, strict=True))
            assert f.inner.shape == f.outer.shape == (100,)
            for weights in (f.inner, f.outer):
                assert np.abs(weights).min() >= 0.5
                assert np.abs(weights).max() <= 2
                assert 20 < (weights < 0).sum() < 80
        np.testing.assert_allclose(VALUES[:, column], expected, rtol=1e-10)


def test_noises_are_standard_normal_and_those_of_the_picture_a_tenth():
    noises = WORLD.sample_exogenous(40_000, np.random.default_rng(0))
    np.testing.assert_allclose(noises.std(0), [1.0] * 10 + [0.1] * 6, rtol=0.02)
    assert np.abs(np.corrcoef(noises.T) - np.eye(16)).max() < 0.02


def test_signals_are_as_strong_as_asked_for():
    x = np.random.default_rng(0).normal(size=20_000)
    assert min(f(x).std() for f in WORLD.mechanisms.values()) > 0.98
    rng = np.random.default_rng(0)
    weak = np.mean([Mechanism.draw(rng)(x[:500]).std() < 1 for _ in range(400)])
    assert 0.16 < weak < 0.34  # without, about one in four is below the noise


def test_recorded_variances_are_those_of_the_nodes():
    values = WORLD.simulate(WORLD.sample_exogenous(20_000, np.random.default_rng(1)))
    np.testing.assert_allclose(values.var(0), list(WORLD.variances.values()), rtol=0.06)


def test_latents_are_standardised_before_they_are_bent():
    values = WORLD.simulate(WORLD.sample_exogenous(20_000, np.random.default_rng(1)))
    for j, warp in enumerate(WORLD.warps):
        s = (values[:, j] - warp.mean) / warp.std
        assert abs(s.mean()) < 0.05
        assert abs(s.std() - 1) < 0.03


@pytest.mark.parametrize("world", [0, 1, 2])
def test_the_monotone_transform_is_s_plus_an_integral_so_it_rises_by_more_than_its_argument(world):
    for warp in CrossModal(graph="8/16", world=world).warps:
        s = np.linspace(-12, 12, 20_001)
        shown = warp(s * warp.std + warp.mean)
        slope = np.diff(shown) / np.diff(s)
        assert slope.min() > 1  # injective
        inside = np.abs(s[:-1]) < 7.9
        middle = (s[1:] + s[:-1]) / 2
        np.testing.assert_allclose(slope[inside], 1 + np.log1p(np.exp(warp.process(middle[inside]))), atol=0.02)
        assert warp(np.array([warp.mean]))[0] == pytest.approx(0, abs=1e-12)
        np.testing.assert_allclose(warp.invert(shown), s * warp.std + warp.mean, atol=1e-9)


def test_the_free_transform_is_a_draw_of_a_gaussian_process_and_folds_some_latents():
    rng, s = np.random.default_rng(0), np.linspace(-3, 3, 7)
    warps = [Warp.draw(rng, 1.0, 2.0, monotone=False) for _ in range(150)]
    drawn = np.array([warp(2 * s + 1) for warp in warps])  # (150, 7)
    kernel = np.exp(-((s[:, None] - s) ** 2) / (2 * 2.0**2))
    np.testing.assert_allclose(drawn.T @ drawn / len(drawn), kernel, atol=0.3)
    np.testing.assert_allclose(warps[0](np.array([1.0 + 2 * 9.0])), warps[0].process(np.array([9.0])))  # beyond the table
    fine = np.linspace(-2, 2, 101)
    turns = [len(np.unique(np.sign(np.diff(warp(2 * fine + 1))))) > 1 for warp in warps]
    assert np.mean(turns) > 0.3


def test_the_transform_changes_nothing_but_the_picture():
    free = CrossModal(graph="4/10", world=3, weakest=1.0, gp="free")
    assert free.graph == WORLD.graph
    np.testing.assert_array_equal(free.simulate(NOISES), VALUES)
    np.testing.assert_array_equal(free.cells, WORLD.cells)
    with pytest.raises(QueryError, match=r'gp="free" does not tell its latents'):
        free.read(free.render(VALUES))


@pytest.mark.parametrize("size", [8, 32, 50])
def test_a_picture_is_the_interpolated_matrix(size):
    cells = np.tile(WORLD.background, (400, 1))
    cells[:, WORLD.cells] = np.stack([warp(VALUES[:, j]) for j, warp in enumerate(WORLD.warps)], 1) + NOISES[:, 10:]
    grey = ((cells - WORLD.black) / (WORLD.white - WORLD.black)).clip(0, 1).reshape(-1, 1, 5, 5)
    expected = interpolate(torch.tensor(grey), (size, size), mode="bilinear", align_corners=False).numpy() * 255
    np.testing.assert_allclose(WORLD.render(VALUES, NOISES, size=size), expected, atol=0.51)
    assert len(set(WORLD.cells.tolist())) == 6


@pytest.mark.parametrize("size", [16, 32])
def test_a_picture_tells_every_latent(size):
    read = WORLD.read(WORLD.render(VALUES, size=size))
    assert np.abs(read - VALUES[:, :6]).max() < 0.25  # rounded to 256 greys
    noisy = WORLD.read(torch.tensor(WORLD.render(VALUES, NOISES, size=size)).float() / 255)
    assert min(np.corrcoef(noisy[:, j], VALUES[:, j])[0, 1] for j in range(6)) > 0.99


def test_do_on_a_cause_moves_its_latent_alone_and_on_an_effect_nothing_of_the_picture():
    before = WORLD.render(VALUES, NOISES)
    for name in WORLD.structured_names:
        images, values = WORLD.counterfactual(NOISES, {name: 1.5})
        children = WORLD.graph.children(name)
        assert (values[:, COLUMN[name]] == 1.5).all()
        if not children:
            np.testing.assert_array_equal(images, before)
            continue
        z = COLUMN[children[0]]
        f = WORLD.mechanisms[children[0]]
        np.testing.assert_allclose(values[:, z], f(np.array([1.5]))[0] + NOISES[:, z])
        others = [j for j in range(6) if j != z]
        np.testing.assert_array_equal(values[:, others], VALUES[:, others])
        moved = WORLD.read(images) - WORLD.read(before)
        assert np.abs(moved[:, others]).max() < 0.25
        np.testing.assert_allclose(moved[:, z], values[:, z] - VALUES[:, z], atol=0.5)
    assert {name[0] for name in WORLD.graph.names if WORLD.graph.children(name)} == {"u", "z"}  # both kinds were tried


def test_a_model_is_told_of_u_alone_and_evaluation_of_everything():
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
    np.testing.assert_array_equal(data.test.images, data.simulator.render(values, exogenous, size=16))
    assert data.notes[0].startswith("variances of the nodes: z1 ")


def test_fewer_variables_leave_the_latents_in_the_true_graph():
    data = load_data("cross-modal", graph="3/10", samples=100, size=16, variables=["u3", "u1"])
    assert data.names == ("u3", "u1")
    assert data.graph.names == (*(f"z{i}" for i in range(1, 8)), "u3", "u1")


def test_the_world_and_the_samples_have_seeds_of_their_own():
    first, second = (load_data("cross-modal", samples=50, size=8, world=4, seed=seed) for seed in (0, 1))
    assert first.graph == second.graph
    assert not torch.equal(first.train.labels, second.train.labels)
    other = load_data("cross-modal", samples=50, size=8, world=5)
    assert other.graph != first.graph
    again = reload(json.loads(json.dumps(first.source)))
    assert torch.equal(again.train.images, first.train.images)
    assert torch.equal(again.test.labels, first.test.labels)
    usual = load_data("cross-modal", graph="1/10")
    assert (len(usual.train), len(usual.validation), len(usual.test), usual.spec.image_shape) == (1440, 160, 400, (1, 32, 32))


@pytest.mark.parametrize(
    ("options", "said"),
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
def test_an_impossible_world_is_refused(options, said):
    with pytest.raises(UsageError, match=said):
        load_data("cross-modal", **options)


def test_pictures_of_another_shape_are_not_read():
    with pytest.raises(DataError, match=r"pictures must be \(N, 1, H, H\), not shape \(2, 3, 8, 8\)"):
        WORLD.read(np.zeros((2, 3, 8, 8), np.uint8))
