"""The page in Chromium: the verbs of each kind of model, several runs, and the results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import intervae
from page_browser import as_pixels, pixels, source, wait

View = Callable[..., Any]
ROW = '[data-row="Model under do()"]'


# ---- transitions --------------------------------------------------------------------------------
def test_act_shows_the_models_pictures(
    view: View, number: dict[str, int], runs: dict[str, Path], test_data: Callable[..., Any]
) -> None:
    page = view(f"run={number['ct-vae']}&picture=2&times=3")
    wait(page, "document.querySelectorAll('.actions-film figure').length === 4")
    model, data = intervae.load(runs["ct-vae"]), test_data("ct-vae")
    for action in model.spec.actions[1:3]:
        page.click(f'[data-action="{action}"]')
        wait(page, "document.querySelector('.actions-film').textContent.includes(arg)", action)
        expected = model.act_repeatedly(data.test.images[2:3], action, 3)[0]
        for k in range(3):
            shown = source(page, f".actions-film figure:nth-child({k + 2}) img")
            np.testing.assert_array_equal(pixels(shown), as_pixels(expected[k]))


def test_attribute_lists_the_models_probabilities(
    view: View, number: dict[str, int], runs: dict[str, Path], test_data: Callable[..., Any]
) -> None:
    page = view(f"run={number['ct-vae']}")
    page.wait_for_selector('[data-pair="1"]')
    page.click('[data-pair="1"]')
    page.wait_for_selector('[data-pair="1"][aria-pressed=true]')
    model, data = intervae.load(runs["ct-vae"]), test_data("ct-vae")
    pairs = data.transitions.test
    before, after = (int(rows[1]) for rows in (pairs.before, pairs.after))
    images = data.test.images
    probabilities = model.attribute(images[before : before + 1], images[after : after + 1])[0]
    best = model.spec.actions[int(probabilities.argmax())]
    wait(
        page,
        "document.querySelector('.bars .numeric')?.textContent === arg",
        f"{float(probabilities.max()):.3f}",
    )
    assert page.inner_text(".bars .best") == best
    assert page.locator(".bars .meter").count() == len(model.spec.actions)


def test_attribute_of_two_uploads(view: View, number: dict[str, int], tmp_path: Path) -> None:
    page = view(f"run={number['ct-vae']}")
    page.wait_for_selector('[data-pair="0"] img')
    for side, k in (("before", 0), ("after", 1)):
        image = pixels(str(page.locator('[data-pair="0"] img').nth(k).get_attribute("src")))
        Image.fromarray(image).save(tmp_path / f"{side}.png")
    first = page.inner_text(".bars")
    page.click('[data-pair="1"]')
    page.set_input_files('[aria-label="Picture before"]', tmp_path / "before.png")
    page.wait_for_selector("text=Now upload the picture after the action.")
    page.set_input_files('[aria-label="Picture after"]', tmp_path / "after.png")
    wait(page, "document.querySelector('.bars').innerText === arg", first)


# ---- clips --------------------------------------------------------------------------------------
def test_clip_is_extrapolated_under_do_at_a_frame(
    view: View, number: dict[str, int], runs: dict[str, Path], test_data: Callable[..., Any]
) -> None:
    page = view(f"run={number['clips']}&picture=1&steps=2")
    wait(page, "document.querySelector('[data-row=Model]')")
    page.click('[data-node="z2_0"]')
    page.fill('[aria-label="Value of z2_0"]', "1.5")
    page.press('[aria-label="Value of z2_0"]', "Enter")
    page.wait_for_selector(f"{ROW} img")
    model, data = intervae.load(runs["clips"]), test_data("clips")
    rows = data.test[1:2]
    expected = model.counterfactual(
        rows.images, {"z2_0": 1.5}, background=rows.fields["background"], steps=2
    )[0]
    frames = page.locator(f"{ROW} img")
    assert frames.count() == len(expected) == data.spec.frames + 2
    for k, frame in enumerate(expected):
        shown = str(frames.nth(k).get_attribute("src"))
        np.testing.assert_array_equal(pixels(shown), as_pixels(frame))
    assert page.locator(f"{ROW} .later").count() == 2
    assert page.inner_text('tr[data-variable="z2_0"] .tag') == "set"
    before = source(page, "[data-figure=factual] img")
    page.click('text="Play"')
    wait(page, "document.querySelector('[data-figure=factual] img').src !== arg", before)


# ---- table and latents --------------------------------------------------------------------------
def test_findings_and_heat_maps(view: View, number: dict[str, int]) -> None:
    page = view(f"run={number['cmcl']}&view=findings")
    page.set_default_timeout(90_000)
    wait(page, "/resamples|no link/.test(document.querySelector('[aria-label=Links]').textContent)")
    wait(page, "document.querySelectorAll('[aria-label=\"Heat maps\"] img').length === 16")
    before = source(page, '[aria-label="Heat maps"] img[alt^="Heat map"]')
    page.select_option('[aria-label="Heat maps"] select', index=1)
    wait(
        page,
        'document.querySelector(\'[aria-label="Heat maps"] img[alt^="Heat map"]\').src !== arg',
        before,
    )


def test_model_without_graph_shows_traversals(
    view: View, number: dict[str, int], runs: dict[str, Path], test_data: Callable[..., Any]
) -> None:
    page = view(f"run={number['vae']}&picture=4&latent=z1")
    assert page.locator("#tabs a").first.inner_text() == "Latents"
    wait(page, "document.querySelectorAll('[aria-label=Traversal] .film img').length === 11")
    assert "no causal graph" in page.inner_text("#view")
    model, data = intervae.load(runs["vae"]), test_data("vae")
    images = data.test.images[4:5]
    shown = source(page, "[aria-label=Traversal] [data-figure=model] img")
    np.testing.assert_array_equal(pixels(shown), as_pixels(model.decode(model.encode(images))[0]))
    wait(page, "document.querySelectorAll('.samples img').length === 24")


# ---- several runs -------------------------------------------------------------------------------
def test_runs_side_by_side_with_their_spread(
    view: View, number: dict[str, int], runs: dict[str, Path], test_data: Callable[..., Any]
) -> None:
    page = view("run=0&view=compare&picture=3&do.light=100&node=light")
    wait(page, "document.querySelectorAll('[aria-label=\"Each run\"] figure').length === 2")
    data = test_data("pendulum")
    pictures = [
        intervae.load(runs[name]).counterfactual(data.test.images[3:4], {"light": 100.0})[0]
        for name in ("pendulum", "seed1")
    ]
    for k, picture in enumerate(pictures):
        shown = source(page, f'[aria-label="Each run"] figure:nth-child({k + 1}) img')
        np.testing.assert_array_equal(pixels(shown), as_pixels(picture))
    mean = pixels(source(page, '[aria-label="Over the runs"] [data-figure=do] img'))
    np.testing.assert_allclose(mean, as_pixels(sum(pictures) / 2).astype(int), atol=1)
    assert page.locator("[data-figure=spread] img").count() == 1
    page.uncheck(f'input[value="{number["seed1"]}"]')
    wait(page, "document.querySelectorAll('[aria-label=\"Each run\"] figure').length === 1")
    assert page.locator("[data-figure=spread]").count() == 0


# ---- results ------------------------------------------------------------------------------------
@pytest.fixture
def results(view: View) -> Any:
    page = view("view=results")
    page.wait_for_selector(".result-list a")
    return page


def test_results_are_sorted_and_stand_beside_the_papers(results: Any, tmp_path: Path) -> None:
    results.click('.result-list a:has-text("causalvae-table1")')
    results.wait_for_selector("td .paper")
    column = 'th button:text-is("mic")'
    order = []
    for direction in ("descending", "ascending"):
        results.click(column)
        results.wait_for_selector(f'th[aria-sort="{direction}"]')
        cells = results.locator("tbody tr td:nth-child(4) > span").all_inner_texts()
        order.append([float(text.split()[0]) for text in cells])
    assert order[0] == sorted(order[0], reverse=True)
    assert order[1] == sorted(order[1])
    assert len(set(order[0])) > 3
    assert "paper 0.951" in results.inner_text("table")
    rows = results.locator("tbody tr").count()
    results.fill('[aria-label="Filter rows"]', "flow ladder")
    assert 0 < results.locator("tbody tr").count() < rows
    results.wait_for_selector(".result-figures img")
    size = results.evaluate("document.querySelector('.result-figures img').naturalWidth")
    assert size > 100
    with results.expect_download() as saved:
        results.click('[aria-label="Download the numbers as CSV"]')
    saved.value.save_as(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text().startswith("data,model,variant,metric,mean")
