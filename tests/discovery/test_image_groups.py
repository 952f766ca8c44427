"""Sets of variables that determine parts of pictures, on pictures whose painter is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from intervae.causal.graph import CausalGraph
from intervae.data.simulators import Flow, Garden, Pendulum
from intervae.data.simulators.base import Simulator
from intervae.discovery import discover
from intervae.discovery.image_groups import find_image_groups
from intervae.errors import UsageError
from picture_worlds import WORLDS, make_world

NAMES = ("a", "b", "c", "d", "hidden")


def squares(n: int = 1500, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of a bar at `a`, a bar at `b` and a square at (`c`, `d`); `hidden` is not shown."""
    rng = np.random.default_rng(seed)
    labels = rng.uniform(-1, 1, size=(n, 5))
    images = np.zeros((n, 1, 32, 32), dtype=np.uint8)
    columns = np.round((labels + 1) * 12).astype(int)  # 0 .. 24
    for image, (a, b, c, d, _) in zip(images[:, 0], columns, strict=True):
        image[0:4, a : a + 6] = 200
        image[28:32, b : b + 6] = 150
        image[6 + d * 2 // 3 : 11 + d * 2 // 3, c : c + 5] = 250
    return torch.from_numpy(images), torch.from_numpy(labels / labels.std(0)).float()


def names_of(groups: list) -> set[str]:
    return {str(group) for group in groups}


def test_each_object_is_painted_by_the_smallest_set_that_determines_it() -> None:
    images, labels = squares()
    groups = find_image_groups(images, labels, NAMES)
    assert names_of(groups) == {"a", "b", "c+d"}
    assert all(0 < group.explained < 1 for group in groups)
    assert 0.8 < sum(group.explained for group in groups) <= 1


def test_a_gain_map_is_where_the_object_is() -> None:
    images, labels = squares()
    maps = {str(g): g.gain_map for g in find_image_groups(images, labels, NAMES)}
    rows = torch.arange(16.0)

    def centre(name: str) -> float:
        mass = maps[name].sum(1)
        return float((mass * rows).sum() / mass.sum())

    assert centre("a") < 3
    assert centre("b") > 12
    assert 4 < centre("c+d") < 12


@pytest.mark.parametrize("samples", [None, 1480], ids=["grid", "1000"])
@pytest.mark.parametrize("simulator", [Pendulum(), Flow(), Garden()], ids=lambda s: s.name)
def test_the_groups_are_those_that_the_simulator_draws(
    simulator: Simulator, samples: int | None
) -> None:
    """With the graph that the labels show, and 0.9 * 0.75 of the samples for training."""
    data = simulator.dataset(size=48, samples=samples)
    graph = discover(data.train.labels.numpy(), "independence", names=data.names).graph
    labels = data.spec.normalise(data.train.labels)
    groups = find_image_groups(data.train.images, labels, data.names, graph=graph)
    objects = [[n for n in data.names if n in names] for names in simulator.objects.values()]
    assert names_of(groups) == {"+".join(names) for names in objects}


@pytest.mark.parametrize("noise", [0.0, 20.0], ids=["clean", "noisy"])
@pytest.mark.parametrize("name", WORLDS)
def test_the_groups_are_those_that_a_drawn_world_uses(name: str, noise: float) -> None:
    world = make_world(name, noise=noise)
    groups = find_image_groups(
        world.images, world.labels, world.names, kinds=world.kinds, graph=world.graph
    )
    assert names_of(groups) == world.objects


def test_noise_alone_shows_no_variable() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (600, 1, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randn(600, 4, generator=generator)
    assert find_image_groups(images, labels, "abcd") == []


def test_twenty_variables_are_searched_and_too_many_are_an_error() -> None:
    """Eighteen squares slide in their own cells, and one is at (x, y) below them."""
    rng = np.random.default_rng(0)
    labels = rng.uniform(-1, 1, size=(1500, 20))
    images = np.full((1500, 1, 48, 48), 80, dtype=np.uint8)
    places = (1.5 + 1.5 * labels).astype(int)
    for image, place, (x, y) in zip(images[:, 0], places, labels[:, 18:], strict=True):
        for j in range(18):
            top, left = 6 * (j // 8), 6 * (j % 8) + place[j]
            image[top : top + 5, left : left + 3] = 250
        column, row = int(21 + 21 * x), int(29 + 10 * y)
        image[row : row + 5, column : column + 5] = 240
    names = tuple(f"v{i}" for i in range(20))
    table = torch.from_numpy(labels / labels.std(0)).float()
    groups = find_image_groups(torch.from_numpy(images), table, names)
    assert names_of(groups) == {*names[:18], "v18+v19"}
    with pytest.raises(UsageError, match=r"45 variables have 1035 sets .* layers=a,b\+c"):
        find_image_groups(torch.zeros(20, 1, 8, 8), torch.zeros(20, 45), list(map(str, range(45))))


def test_effects_decide_between_sets_that_determine_each_other() -> None:
    """e and f follow from c and d, so that both pairs determine the square."""
    images, labels = squares()
    c, d = labels[:, 2], labels[:, 3]
    table = torch.stack([c, d, c + d, c - d], 1) / torch.tensor([1, 1, 2**0.5, 2**0.5])
    names = ("c", "d", "e", "f")
    edges = [("c", "e"), ("d", "e"), ("c", "f"), ("d", "f")]
    graph = CausalGraph.from_edges(names, edges)
    square = images.clone()
    square[:, :, :5] = 0
    square[:, :, 28:] = 0
    assert "e+f" in names_of(find_image_groups(square, table, names, graph=graph))


def test_known_groups_are_measured_and_wrong_ones_are_errors() -> None:
    images, labels = squares(400)
    groups = find_image_groups(images, labels, NAMES, groups=[["d", "c"], ["hidden"]])
    assert [str(group) for group in groups] == ["c+d", "hidden"]
    assert groups[0].explained > 0.2 > 0.02 > groups[1].explained
    with pytest.raises(UsageError, match="unknown variable in a layer 'x'"):
        find_image_groups(images, labels, NAMES, groups=[["x"]])
    with pytest.raises(UsageError, match="needs distinct variables"):
        find_image_groups(images, labels, NAMES, groups=[["a", "a"]])
    with pytest.raises(UsageError, match="labels"):
        find_image_groups(images, labels[:, :2], NAMES)


def test_categories_are_compared_for_equality() -> None:
    """A square whose place is a code without order."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 5, 600)
    images = np.zeros((600, 1, 32, 32), dtype=np.uint8)
    for image, place in zip(images[:, 0], np.array([20, 2, 14, 26, 8])[codes], strict=True):
        image[10:16, place : place + 5] = 255
    table = torch.from_numpy(np.stack([codes, rng.normal(size=600)], 1)).float()
    groups = find_image_groups(
        torch.from_numpy(images), table, ("code", "x"), kinds=("categorical", "continuous")
    )
    assert names_of(groups) == {"code"}
