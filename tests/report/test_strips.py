"""Strips of images under do() in the report, and edges without an identifiable direction."""

from __future__ import annotations

import base64
import re
from html import unescape
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import TRUE, encode_in_pixels, oracle, simulate
from PIL import Image

from command import intervae, succeeded
from intervae.data import Variable, build_dataset
from intervae.models import load
from intervae.report import write_figures, write_report
from intervae.report.link_figures import column_strip, latent_strip


def rows_of(strip: str) -> dict[str, list[str]]:
    """Rows of a strip: label -> HTML of its cells."""
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', strip)
    return {unescape(label): re.findall(r"<td>(.*?)</td>", cells) for label, cells in rows}


def texts_of(cells: list[str]) -> list[str]:
    return [unescape(re.sub(r"<.*?>", "", cell)) for cell in cells]


def numbers(cells: list[str]) -> np.ndarray:
    return np.array([float(text.replace("−", "-")) for text in texts_of(cells) if text])


def pixels(cell: str) -> np.ndarray:
    match = re.search(r"base64,([^\"]+)", cell)
    assert match
    return np.asarray(Image.open(BytesIO(base64.b64decode(match[1]))).convert("RGB"))


@pytest.fixture(scope="module")
def simulated():
    data = simulate()
    return data, oracle(data, *TRUE)


def test_a_latent_is_varied_over_its_central_range_in_standard_deviations(
    simulated,
) -> None:
    data, model = simulated
    strip = latent_strip(model, data, "z1", ["b"])
    rows = rows_of(strip)
    z = model.encode(data.train.images)[:, 1, 0].numpy()
    low, high = np.quantile(z, [0.05, 0.95])
    expected = (np.linspace(low, high, 7) - z.mean()) / z.std()
    assert np.allclose(numbers(rows["z1 = (standard deviations)"]), expected, atol=0.006)
    caption = unescape(strip[strip.index("<figcaption>") :])
    assert f"that is from {low:.3g} to {high:.3g}" in caption
    assert "the central 90% of the training images" in caption


def test_a_latent_strip_shows_images_under_do_and_the_expected_effect(
    simulated,
) -> None:
    data, model = simulated
    rows = rows_of(latent_strip(model, data, "z1", ["b"]))
    low, high = np.quantile(model.encode(data.train.images)[:, 1, 0].numpy(), [0.05, 0.95])
    originals = {image.numpy().tobytes(): row for row, image in enumerate(data.test.images)}
    for k in (1, 2, 3):
        cells = rows[f"image {k}"]
        row = originals[pixels(cells[0])[..., 0].tobytes()]
        z = model.encode(data.test.images[row : row + 1])
        for cell, value in ((cells[1], low), (cells[-1], high)):
            z[:, 1] = float(value)
            decoded = (255 * model.decode(z)[0, 0]).round().numpy()
            assert np.abs(pixels(cell)[..., 0].astype(float) - decoded).max() <= 1
        own = (
            float(model.encode(data.test.images[row : row + 1])[0, 1, 0])
            - float(model.latent_mean[1])
        ) / float(model.latent_std[1])
        assert float(texts_of(cells)[0].removeprefix("own: ").replace("−", "-")) == pytest.approx(
            own, abs=0.006
        )
    expected = texts_of(rows["b, expected"])[1:]
    probabilities = model.effect_curve("b", {"z1": torch.linspace(float(low), float(high), 7)})
    assert expected[0] == f"no {1 - float(probabilities[0]):.0%}"
    assert expected[-1] == f"yes {float(probabilities[-1]):.0%}"


def test_a_column_strip_states_its_values_and_range() -> None:
    rng = np.random.default_rng(0)
    dose = rng.uniform(100, 900, 400)
    data = build_dataset(
        "dosed",
        encode_in_pixels(np.stack([np.tanh(dose / 300), dose * 0, dose * 0], axis=1)),
        dose[:, None],
        [Variable("dose", unit="mg")],
    )
    model = oracle(data, ("dose", "z0", 0.9))
    strip = column_strip(model, data, "dose")
    values = numbers(rows_of(strip)["dose ="])
    low, high = np.quantile(data.train.labels[:, 0], [0.05, 0.95])
    assert np.allclose(values, np.linspace(low, high, 7), atol=0.6)
    assert f"dose ranges from {low:.3g} to {high:.3g} mg, the central 90% of the training" in strip


def test_the_page_has_a_strip_for_every_cause(simulated, tmp_path: Path) -> None:
    data, model = simulated
    page = write_report(model, data, tmp_path, resamples=2).read_text(encoding="utf-8")
    heads = [unescape(head) for head in re.findall(r'<th scope="row">([^<]*=[^<]*)</th>', page)]
    assert sorted(heads) == ["a =", "c =", "z1 = (standard deviations)"]


def test_a_latent_strip_names_latents_that_move_along() -> None:
    data = simulate(200)
    free = oracle(data, ("z1", "b", 0.9), ("z1", "z0", 0.5), bipartite=False)
    assert "every other latent fixed except z0, which it causes." in latent_strip(
        free, data, "z1", ["b"]
    )


# ---- the graph -----------------------------------------------------------------------------------
def test_the_graph_figure_omits_unidentifiable_arrow_heads(simulated, tmp_path: Path) -> None:
    data, model = simulated
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
    assert "no arrow head: direction unknown (2)" in svg


def test_the_graph_command_and_model_card_mark_undirected_edges(simulated, tmp_path: Path) -> None:
    _, model = simulated
    model.save(tmp_path / "run")
    shown = succeeded(intervae("graph", tmp_path / "run")).out
    assert shown == "z1 -- b  0.950\na -> z0  0.800\nc -- z2  0.900\n"
    succeeded(intervae("graph", tmp_path / "run", "--out", tmp_path / "g.svg"))
    assert "direction unknown (2)" in (tmp_path / "g.svg").read_text(encoding="utf-8")
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "`a` -> `z0`" in card
    assert "`z1` -- `b`" in card
    assert set(load(tmp_path / "run").undirected_edges) == {("z1", "b"), ("c", "z2")}
