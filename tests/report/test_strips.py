"""Strips of pictures under do() tell the values they are at; a latent that causes a column has one; edges without a direction have no arrow head."""

from __future__ import annotations

import base64
import re
from html import unescape
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import TRUE, drawn, oracle, world
from PIL import Image

from command import intervae, succeeded
from intervae.data.base import Variable, build_dataset
from intervae.models import load
from intervae.report import write_figures, write_report
from intervae.report.links import latent_strip, link_strip


def lines_of(strip: str) -> dict[str, list[str]]:
    """The cells of each line of a strip: label -> HTML of its cells."""
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', strip)
    return {unescape(label): re.findall(r"<td>(.*?)</td>", cells) for label, cells in rows}


def told(cells: list[str]) -> list[str]:
    return [unescape(re.sub(r"<.*?>", "", cell)) for cell in cells]


def numbers(cells: list[str]) -> np.ndarray:
    return np.array([float(text.replace("−", "-")) for text in told(cells) if text])


def pixels(cell: str) -> np.ndarray:
    found = re.search(r"base64,([^\"]+)", cell)
    assert found
    return np.asarray(Image.open(BytesIO(base64.b64decode(found[1]))).convert("RGB"))


@pytest.fixture(scope="module")
def known():
    data = world()
    return data, oracle(data, *TRUE)


def test_a_latent_that_causes_a_column_is_swept_over_its_usual_range_in_standard_units(known) -> None:
    data, model = known
    strip = latent_strip(model, data, "z1", ["b"])
    lines = lines_of(strip)
    z = model.encode(data.train.images)[:, 1, 0].numpy()
    low, high = np.quantile(z, [0.05, 0.95])
    wanted = (np.linspace(low, high, 7) - z.mean()) / z.std()
    assert np.allclose(numbers(lines["z1 = (standard units)"]), wanted, atol=0.006)
    caption = unescape(strip[strip.index("<figcaption>") :])
    assert f"own units, from {low:.3g} to {high:.3g}" in caption
    assert "between which nine tenths of the training images lie" in caption


def test_the_pictures_of_a_swept_latent_are_those_of_do_and_its_effect_is_told_beside(known) -> None:
    data, model = known
    lines = lines_of(latent_strip(model, data, "z1", ["b"]))
    low, high = np.quantile(model.encode(data.train.images)[:, 1, 0].numpy(), [0.05, 0.95])
    originals = {picture.numpy().tobytes(): row for row, picture in enumerate(data.test.images)}
    for k in (1, 2, 3):
        cells = lines[f"image {k}"]
        row = originals[pixels(cells[0])[..., 0].tobytes()]
        z = model.encode(data.test.images[row : row + 1])
        for cell, value in ((cells[1], low), (cells[-1], high)):
            z[:, 1] = float(value)
            made = (255 * model.decode(z)[0, 0]).round().numpy()
            assert np.abs(pixels(cell)[..., 0].astype(float) - made).max() <= 1
        own = (float(model.encode(data.test.images[row : row + 1])[0, 1, 0]) - float(model.centre[1])) / float(model.spread[1])
        assert float(told(cells)[0].removeprefix("own: ").replace("−", "-")) == pytest.approx(own, abs=0.006)
    expected = told(lines["b, expected"])[1:]
    chances = model.mechanism("b", {"z1": torch.linspace(float(low), float(high), 7)})
    assert expected[0] == f"no {1 - float(chances[0]):.0%}"
    assert expected[-1] == f"yes {float(chances[-1]):.0%}"


def test_the_strip_of_a_column_tells_its_values_and_from_where_to_where_they_go() -> None:
    rng = np.random.default_rng(0)
    dose = rng.uniform(100, 900, 400)
    data = build_dataset("dosed", drawn(np.stack([np.tanh(dose / 300), dose * 0, dose * 0], axis=1)), dose[:, None], [Variable("dose", unit="mg")])
    model = oracle(data, ("dose", "z0", 0.9))
    strip = link_strip(model, data, "dose")
    values = numbers(lines_of(strip)["dose ="])
    low, high = np.quantile(data.train.labels[:, 0], [0.05, 0.95])
    assert np.allclose(values, np.linspace(low, high, 7), atol=0.6)
    assert f"dose goes from {low:.3g} to {high:.3g} mg, between which nine tenths of the training images lie" in strip


def test_the_page_has_a_strip_for_every_column_that_acts_and_every_latent_that_is_a_cause(known, tmp_path: Path) -> None:
    data, model = known
    page = write_report(model, data, tmp_path, resamples=2).read_text(encoding="utf-8")
    heads = [unescape(head) for head in re.findall(r'<th scope="row">([^<]*=[^<]*)</th>', page)]
    assert sorted(heads) == ["a =", "c =", "z1 = (standard units)"]


def test_a_latent_that_causes_another_one_does_not_keep_it() -> None:
    data = world(200)
    free = oracle(data, ("z1", "b", 0.9), ("z1", "z0", 0.5), bipartite=False)
    assert "every other latent kept but z0, which it causes." in latent_strip(free, data, "z1", ["b"])


# ---- the graph ------------------------------------------------------------------------------------------------------
def test_the_figure_of_the_graph_has_no_arrow_head_where_the_direction_cannot_be_told(known, tmp_path: Path) -> None:
    data, model = known
    write_figures(model, data, tmp_path)
    svg = (tmp_path / "figures" / "graph.svg").read_text(encoding="utf-8")
    groups = dict(re.findall(r'<g id="edge-(\d+-\d+)">(.*?)</g>', svg, re.DOTALL))
    names = model.node_names
    paths = {tuple(names[int(k)] for k in edge.split("-")): group for edge, group in groups.items()}
    assert set(paths) == {("a", "z0"), ("z1", "b"), ("c", "z2")}
    for edge, group in paths.items():
        directed = edge == ("a", "z0")
        assert group.count("<path") == (2 if directed else 1)  # a head is a path of its own
        assert ("stroke-dasharray" in group) is not directed
    assert "no arrow head: direction cannot be told (2)" in svg


def test_the_command_and_the_model_card_tell_edges_without_a_direction(known, tmp_path: Path) -> None:
    _, model = known
    model.save(tmp_path / "run")
    shown = succeeded(intervae("graph", tmp_path / "run")).out
    assert shown == "z1 -- b  0.950\na -> z0  0.800\nc -- z2  0.900\n"
    succeeded(intervae("graph", tmp_path / "run", "--out", tmp_path / "g.svg"))
    assert "direction cannot be told (2)" in (tmp_path / "g.svg").read_text(encoding="utf-8")
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "`a` -> `z0`" in card
    assert "`z1` -- `b`" in card
    assert set(load(tmp_path / "run").undirected_edges) == {("z1", "b"), ("c", "z2")}
