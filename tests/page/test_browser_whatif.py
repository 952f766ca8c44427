"""The page in Chromium: choose a node, slide, and the picture is the model's counterfactual."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import intervae
from command import image_size
from page_browser import as_pixels, pixels, source, wait
from page_pictures import HOSTILE

MODEL = "[data-figure=do] img"
LIGHT = 100.0


def wait_for_answer(page: Any) -> None:
    page.wait_for_function(
        """() => { const grid = document.querySelector("#view .pictures .figures");
        const key = grid && grid.dataset.shown;
        return key && JSON.stringify(JSON.parse(key)[1]) === JSON.stringify(page.state.do) &&
          JSON.parse(key)[0] === page.state.picture; }"""
    )


def slide(page: Any, name: str, value: float) -> None:
    page.eval_on_selector(
        f'[data-control="{name}"] input[type=range]',
        """(slider, value) => { slider.value = value;
        slider.dispatchEvent(new Event("input", {bubbles: true}));
        slider.dispatchEvent(new Event("change", {bubbles: true})); }""",
        value,
    )
    wait_for_answer(page)


@pytest.fixture
def page(view: Callable[..., Any]) -> Any:
    opened = view("run=0&picture=3")
    wait_for_answer(opened)
    return opened


def choose(page: Any, name: str) -> None:
    page.click(f'svg.graph [data-node="{name}"]')


def test_sliding_a_node_shows_the_models_counterfactual(page: Any, runs: dict[str, Path]) -> None:
    before = source(page, MODEL)
    choose(page, "light")
    slide(page, "light", LIGHT)
    after = source(page, MODEL)
    assert after != before
    model, data = (
        intervae.load(runs["pendulum"]),
        intervae.load_data("pendulum", size=16, samples=96),
    )
    expected = model.counterfactual(data.test.images[3:4], {"light": LIGHT})[0]
    np.testing.assert_array_equal(pixels(after), as_pixels(expected))
    truth, _ = data.simulator.counterfactual(
        data.test.fields["exogenous"][3:4], {"light": LIGHT}, size=16
    )
    shown = pixels(source(page, "[data-figure=truth] img"))
    np.testing.assert_allclose(shown.astype(int), truth[0].transpose(1, 2, 0), atol=1)
    error = float(np.abs(expected.numpy() - truth[0] / 255).mean())
    assert f"{error:.4f}" in page.inner_text("[data-figure=do] .under")


def test_set_node_cuts_its_causes_and_lights_its_descendants(page: Any) -> None:
    choose(page, "light")
    slide(page, "light", LIGHT)
    classes = {
        name: page.get_attribute(f'[data-node="{name}"]', "class")
        for name in ("pendulum", "light", "shadow_length", "shadow_position")
    }
    assert "set" in classes["light"].split()
    assert "affected" in classes["shadow_length"].split()
    assert "affected" in classes["shadow_position"].split()
    assert not {"set", "affected"} & set(classes["pendulum"].split())
    assert page.locator(".edge.cut").count() == 0  # light has no causes

    choose(page, "shadow_length")
    slide(page, "shadow_length", 8.0)
    cut = page.locator(".edge.cut")
    edges = {
        (edge.get_attribute("data-cause"), edge.get_attribute("data-effect")) for edge in cut.all()
    }
    assert edges == {("light", "shadow_length"), ("pendulum", "shadow_length")}
    assert cut.first.locator(".scissors circle").is_visible()
    dashes = cut.first.locator("path.line").evaluate(
        "line => getComputedStyle(line).strokeDasharray"
    )
    assert dashes != "none"
    tag = page.inner_text('tr[data-variable="shadow_position"] .tag')
    assert tag == "affected"


def test_several_do_soft_do_and_reset(page: Any) -> None:
    unchanged = source(page, MODEL)
    choose(page, "light")
    slide(page, "light", LIGHT)
    choose(page, "pendulum")
    page.click('[data-control="pendulum"] >> text="Shift by"')
    slide(page, "pendulum", 5.0)
    assert page.evaluate("page.state.do") == {"light": LIGHT, "pendulum": {"add": 5}}
    row = page.locator('tr[data-variable="pendulum"] td').all_inner_texts()
    before, after = (float(text.replace("\u2212", "-")) for text in row[:2])
    assert after - before == pytest.approx(5.0, abs=0.11)
    assert page.locator(".edge.cut").count() == 0  # a soft do() cuts nothing
    page.click('[aria-label="Reset light"]')
    wait_for_answer(page)
    assert page.evaluate("Object.keys(page.state.do)") == ["pendulum"]
    page.click('text="Reset all"')
    wait_for_answer(page)
    assert source(page, MODEL) == unchanged


def test_value_outside_the_training_range_warns_beside_the_control(page: Any) -> None:
    choose(page, "light")
    slide(page, "light", LIGHT)
    assert not page.locator('[data-control="light"] .warning').is_visible()
    page.fill('[aria-label="Value of light"]', "400")
    page.press('[aria-label="Value of light"]', "Enter")
    wait_for_answer(page)
    assert "training range" in page.inner_text('[data-control="light"] .warning')


def test_back_and_forward_walk_through_the_interventions(page: Any) -> None:
    first = source(page, MODEL)
    choose(page, "light")
    slide(page, "light", LIGHT)
    second = source(page, MODEL)
    page.go_back()
    wait_for_answer(page)
    assert source(page, MODEL) == first
    page.go_forward()
    wait_for_answer(page)
    assert source(page, MODEL) == second


def test_link_restores_the_view_without_the_token(page: Any, open_page: Any) -> None:
    choose(page, "light")
    slide(page, "light", LIGHT)
    page.click('text="Copy link"')
    link = page.evaluate("navigator.clipboard.readText()")
    assert "token" not in link
    shown = source(page, MODEL)
    other = page.context.new_page()
    other.goto(link)
    wait_for_answer(other)
    assert source(other, MODEL) == shown


def test_code_of_the_view_is_copied_and_gives_the_same_picture(page: Any) -> None:
    choose(page, "light")
    slide(page, "light", LIGHT)
    wait(page, "document.querySelector('[data-code=python]').textContent.includes('100')")
    page.click('[aria-label="Copy the Python code"]')
    code = page.evaluate("navigator.clipboard.readText()")
    assert code.replace("\r\n", "\n") == page.text_content("[data-code=python]")
    assert "--do light=100" in page.text_content("[data-code=cli]")
    names: dict[str, Any] = {}
    exec(code, names)  # what a reader would paste
    np.testing.assert_array_equal(pixels(source(page, MODEL)), as_pixels(names["pictures"][0]))


def test_downloads_are_a_picture_and_the_answer(page: Any, tmp_path: Path) -> None:
    with page.expect_download() as saved:
        page.click('[aria-label="Download the pictures as PNG"]')
    saved.value.save_as(tmp_path / "view.png")
    assert image_size(tmp_path / "view.png")[0] > 4 * 200
    with page.expect_download() as saved:
        page.click('[aria-label="Download the answer as JSON"]')
    saved.value.save_as(tmp_path / "view.json")
    answer = json.loads((tmp_path / "view.json").read_text())
    assert answer["answers"][0]["values"][0]["name"] == "pendulum"


def test_upload_is_asked_about_like_a_test_picture(page: Any, tmp_path: Path) -> None:
    shown = source(page, MODEL)
    Image.fromarray(pixels(source(page, "[data-figure=factual] img"))).save(tmp_path / "own.png")
    page.set_input_files('[aria-label="Picture file"]', tmp_path / "own.png")
    page.wait_for_selector("text=own.png")
    wait(
        page,
        "JSON.parse(document.querySelector('.pictures .figures').dataset.shown)[0].length > 50",
    )
    np.testing.assert_array_equal(pixels(source(page, MODEL)), pixels(shown))
    assert "not known" in page.inner_text("[data-figure=truth] .missing")
    (tmp_path / "bad.png").write_bytes(b"not a picture at all, but long enough to be read")
    page.set_input_files('[aria-label="Picture file"]', tmp_path / "bad.png")
    page.wait_for_selector(".choice .notice:visible")


def test_picture_can_be_dropped_on_the_page(page: Any) -> None:
    factual = source(page, "[data-figure=factual] img")
    page.evaluate(
        """address => { const [, data] = address.split(",");
        const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
        const files = new DataTransfer();
        files.items.add(new File([bytes], "dropped.png", {type: "image/png"}));
        for (const kind of ["dragover", "drop"]) {
          window.dispatchEvent(new DragEvent(kind, {dataTransfer: files, cancelable: true}));
        } }""",
        factual,
    )
    page.wait_for_selector("text=dropped.png")
    assert page.evaluate("page.state.picture") == "upload"


def test_thumbnails_sweep_and_strip(page: Any) -> None:
    page.click('text="Browse"')
    page.wait_for_selector('.thumbs [data-index="5"] img')
    page.click('.thumbs [data-index="5"]')
    wait_for_answer(page)
    assert page.evaluate("page.state.picture") == 5
    page.select_option('[aria-label="Variable of the sweep"]', "light")
    page.click('section[aria-label="Sweep"] button:has-text("Play")')
    wait(page, "document.querySelectorAll('[aria-label=\"Sweep\"] .film figure').length > 5")
    first = source(page, '[aria-label="Sweep"] .figure.do img')
    wait(page, "document.querySelector('[aria-label=\"Sweep\"] .figure.do img').src !== arg", first)
    wait(page, "document.querySelectorAll('.strip img').length === 24")
    choose(page, "light")
    before = source(page, '.strip img[alt^="Model"]')
    slide(page, "light", LIGHT)
    wait(page, "document.querySelector('.strip img[alt^=Model]').src !== arg", before)


# ---- kinds of variables, and hostile names ------------------------------------------------------
def test_names_of_variables_are_text(view: Callable[..., Any], number: dict[str, int]) -> None:
    page = view(f"run={number['mine']}&picture=0")
    page.wait_for_selector("svg.graph")
    assert page.locator("svg.graph text", has_text=HOSTILE).count() == 1
    page.evaluate("name => page.change({node: name})", HOSTILE)
    page.wait_for_selector("section.control")
    assert HOSTILE in page.inner_text("section.control .name")
    assert page.locator('img[src="x"]').count() == 0


def test_switch_and_list_for_binary_and_categorical(
    view: Callable[..., Any], number: dict[str, int]
) -> None:
    page = view(f"run={number['mine']}&picture=0")
    page.wait_for_selector("svg.graph")
    choose(page, "side")
    options = page.locator('[data-control="side"] option').all_inner_texts()
    assert options[1:] == ["left", "middle", "right"]
    page.select_option('[data-control="side"] select', label="right")
    wait_for_answer(page)
    assert page.evaluate("page.state.do.side") == 2
    choose(page, "on")
    page.click('[data-control="on"] label:has-text("yes")')
    wait_for_answer(page)
    assert page.evaluate("page.state.do.on") == 1
    assert "do(" in page.inner_text(".pictures h2")
