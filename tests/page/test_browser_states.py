"""The page in Chromium: widths, themes, keyboard, failures, and the export without a server."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import intervae.serve as serve_package
from command import SMALL, intervae, make_folder, program, succeeded
from page_browser import reverse_proxy

SHOWN = "() => document.querySelector('#view .pictures .figures')?.dataset.shown"
SHOWN_LIGHT = """light => { const key = document.querySelector(".pictures .figures")?.dataset.shown;
  return key && JSON.parse(key)[1].light === light; }"""
CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (rgb) => { const [r, g, b] = rgb.map((v) => { const c = v / 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (node) => { for (let n = node; n; n = n.parentElement) {
    const c = parse(getComputedStyle(n).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c.slice(0, 3); } return [255, 255, 255]; };
  const words = (node) => [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  const low = [];
  for (const node of document.querySelectorAll("body *:not(svg *)")) {
    const style = getComputedStyle(node);
    if (!words(node) || !node.offsetParent || node.closest(":disabled, .offscreen")) continue;
    const [a, b] = [light(parse(style.color).slice(0, 3)), light(ground(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${node.tagName} ${node.className}: ${ratio.toFixed(2)}`);
  }
  return low; }"""
UNNAMED = """() => [...document.querySelectorAll("button, input, select, a, [role=button], img")]
  .filter((node) => node.checkVisibility() && !(node.getAttribute("aria-label") ||
    node.textContent.trim() || node.labels?.length ||
    node.tagName === "IMG" && node.hasAttribute("alt")))
  .map((node) => node.outerHTML.slice(0, 120))"""


def is_shown(page: Any) -> None:
    page.wait_for_function(SHOWN)


# ---- widths, themes, keyboard -------------------------------------------------------------------
@pytest.mark.parametrize(
    "state", ["run=0&node=light&do.light=100", "run=2", "run=3", "view=results"]
)
def test_phone_width_does_not_scroll_sideways(view: Callable[..., Any], state: str) -> None:
    page = view(state, width=390)
    page.wait_for_selector("#view .card")
    page.wait_for_timeout(800)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_phone_shows_the_picture_beside_the_slider(view: Callable[..., Any]) -> None:
    page = view("run=0&node=light&do.light=100", width=390)
    is_shown(page)
    page.locator('[data-control="light"] input[type=range]').scroll_into_view_if_needed()
    box = page.locator("[data-figure=do] img").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 900


@pytest.mark.parametrize("dark", [False, True])
def test_contrast_and_names_of_controls(view: Callable[..., Any], dark: bool) -> None:
    page = view("run=0&node=light&do.light=400", dark=dark)
    is_shown(page)
    page.click('section[aria-label="Sweep"] button:has-text("Play")')
    page.wait_for_selector('[aria-label="Sweep"] .film img')
    brightness = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert (int(brightness) < 60) == dark
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate(UNNAMED) == []
    page.click("#theme")
    after = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
    assert (int(after) < 60) != dark


def test_keyboard_alone_sets_a_variable(view: Callable[..., Any]) -> None:
    page = view("run=0&picture=3")
    is_shown(page)
    before = page.get_attribute("[data-figure=do] img", "src")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.hasAttribute('data-node')"):
            break
    page.keyboard.press("ArrowRight")
    name = page.evaluate("document.activeElement.dataset.node")
    page.keyboard.press("Enter")  # opens the control and moves the focus to its slider
    assert page.evaluate("document.activeElement.type") == "range"
    for _ in range(5):
        page.keyboard.press("PageUp")
    page.wait_for_function(
        "before => document.querySelector('[data-figure=do] img').src !== before", arg=before
    )
    assert page.evaluate("Object.keys(page.state.do)") == [name]


# ---- failures -----------------------------------------------------------------------------------
def test_page_asks_for_its_token(served: Any, open_page: Callable[..., Any]) -> None:
    page = open_page(served.origin)
    page.fill('[aria-label="Address or token"]', served.address)
    page.click('text="Open"')
    is_shown(page)
    assert "token" not in page.url


def test_busy_server_is_asked_again(view: Callable[..., Any]) -> None:
    page = view("run=0")
    is_shown(page)
    refused = []

    def busy(route: Any) -> None:
        if len(refused) < 2:
            refused.append(route)
            route.fulfill(
                status=503,
                headers={"Retry-After": "1", "Content-Type": "application/json"},
                body='{"error": "the queue is full."}',
            )
        else:
            route.continue_()

    page.route("**/api/runs/0/do", busy)
    page.evaluate("page.change({do: {light: 90}})")
    page.wait_for_selector("[data-notice=busy]")
    page.wait_for_function(SHOWN_LIGHT, arg=90)
    assert len(refused) == 2
    assert page.locator("[data-notice=busy]").count() == 0


def test_lost_server_is_found_again(
    runs: dict[str, Path], serve: Callable[..., Any], open_page: Callable[..., Any]
) -> None:
    server = serve(runs["pendulum"])
    page = open_page(server.address)
    is_shown(page)
    server.process.terminate()
    server.process.wait(20)
    page.evaluate("page.change({do: {light: 90}})")
    page.wait_for_selector("[data-notice=lost]")
    port, token = (
        server.origin.rstrip("/").rpartition(":")[2],
        server.address.partition("token=")[2],
    )
    serve(runs["pendulum"], "--port", port, token=token)
    page.wait_for_selector("[data-notice=lost]", state="detached")
    page.wait_for_function(SHOWN_LIGHT, arg=90)


def test_damaged_run_is_named_and_the_others_open(
    runs: dict[str, Path], serve: Callable[..., Any], open_page: Callable[..., Any], tmp_path: Path
) -> None:
    damaged = Path(shutil.copytree(runs["vae"], tmp_path / "<b>damaged</b>"))
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    page = open_page(serve(damaged, runs["pendulum"]).address)
    is_shown(page)
    notice = page.inner_text("#notices .bad")
    assert "<b>damaged</b> could not be opened" in notice
    assert page.locator("#run option").count() == 1


def test_without_data_the_page_says_why_and_uploads_work(
    serve: Callable[..., Any], open_page: Callable[..., Any], tmp_path: Path
) -> None:
    folder = make_folder(tmp_path / "mine")
    run = tmp_path / "run"
    words = ["train", "causal-vae", "--data", folder, "--size", "16", *SMALL, "--no-evaluate"]
    assert intervae(*words, "--out", run).code == 0
    picture = shutil.copy(folder / "00.png", tmp_path / "own.png")
    shutil.rmtree(folder)
    page = open_page(serve(run).address)
    page.wait_for_selector("text=There are no test pictures.")
    page.set_input_files('[aria-label="Picture file"]', picture)
    is_shown(page)
    assert str(page.get_attribute("[data-figure=do] img", "src")).startswith("data:image/png")


def test_page_lives_under_a_path_of_a_reverse_proxy(
    runs: dict[str, Path], serve: Callable[..., Any], open_page: Callable[..., Any]
) -> None:
    server = serve(runs["pendulum"], "--allow-host", "lab.example.org")
    token = server.address.partition("#")[2]
    with reverse_proxy(server.origin, "/what-if/", "lab.example.org") as port:
        page = open_page(f"http://127.0.0.1:{port}/what-if/#{token}")
        is_shown(page)
        page.close()


# ---- export -------------------------------------------------------------------------------------
def test_export_is_opened_from_disk_without_a_server(
    runs: dict[str, Path], open_page: Callable[..., Any], tmp_path: Path
) -> None:
    site = tmp_path / "site"
    succeeded(program("serve", runs["pendulum"], runs["ct-vae"], "--export", site))
    page = open_page((site / "index.html").as_uri())
    page.context.set_offline(True)
    is_shown(page)
    before = page.get_attribute("[data-figure=do] img", "src")
    page.click('[data-node="light"]')
    slider = page.locator('[data-control="light"] input[type=range]')
    slider.focus()
    page.keyboard.press("End")
    page.wait_for_function(
        "before => document.querySelector('[data-figure=do] img').src !== before", arg=before
    )
    grid = page.evaluate("page.api.grid[0].light")
    assert page.evaluate("page.state.do.light") == grid[-1]
    page.click('section[aria-label="Sweep"] button:has-text("Play")')
    page.wait_for_selector('[aria-label="Sweep"] .film img')
    assert page.locator('[aria-label="Sweep"] .film img').count() == len(grid)
    page.select_option("#run", "1")
    page.wait_for_selector(".actions-film img")
    page.wait_for_selector(".bars .meter")


def test_files_of_the_page_are_small() -> None:
    files = Path(str(serve_package.__file__)).parent.joinpath("static").iterdir()
    assert sum(file.stat().st_size for file in files) < 300_000
