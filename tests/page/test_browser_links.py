"""The page in Chromium: links while runs load, an upload and another run, a frame of a notebook."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import intervae
from page_browser import as_pixels, pixels, source, wait

MODEL = "[data-figure=do] img"
SHOWN = "document.querySelector('#view .pictures .figures')?.dataset.shown"


def test_link_to_a_run_that_still_loads_keeps_its_do(
    runs: dict[str, Path], serve: Callable[..., Any], open_page: Callable[..., Any]
) -> None:
    """The first run is there earlier, and has no variable of this name."""
    server = serve(runs["pendulum"], runs["mine"])
    page = open_page(f"{server.address}&run=1&picture=2&do.side=2")
    wait(page, SHOWN)
    state = page.evaluate("page.state")
    assert (state["run"], state["picture"], state["do"]) == (1, 2, {"side": 2})


def test_upload_is_read_again_for_another_run(
    view: Callable[..., Any], number: dict[str, int], runs: dict[str, Path], tmp_path: Path
) -> None:
    page = view("run=0&picture=3")
    wait(page, SHOWN)
    own = np.random.default_rng(0).integers(0, 255, (16, 16, 3)).astype(np.uint8)
    Image.fromarray(own).save(tmp_path / "own.png")
    page.set_input_files('[aria-label="Picture file"]', tmp_path / "own.png")
    wait(page, f"JSON.parse({SHOWN})[0].length > 50")
    before = source(page, MODEL)
    page.select_option("#run", str(number["seed1"]))
    wait(page, "document.querySelector('[data-figure=do] img')?.src !== arg", before)
    wait(page, f"{SHOWN} && JSON.parse({SHOWN})[0].length > 50")
    np.testing.assert_array_equal(pixels(source(page, "[data-figure=factual] img")), own)
    images = own.transpose(2, 0, 1)[None]
    expected = intervae.load(runs["seed1"]).counterfactual(images, {})[0]
    np.testing.assert_array_equal(pixels(source(page, MODEL)), as_pixels(expected))
    page.select_option("#run", str(number["clips"]))  # which reads no uploads
    page.wait_for_selector("text=reads no uploads")
    assert page.evaluate("page.state.picture") == 0


def test_link_of_an_upload_says_that_it_is_not_stored(view: Callable[..., Any]) -> None:
    page = view("run=0&picture=upload")
    page.wait_for_selector("text=is not stored")
    wait(page, SHOWN)
    assert page.evaluate("page.state.picture") == 0


def test_clips_without_their_data_say_why_there_are_none(
    runs: dict[str, Path], serve: Callable[..., Any], open_page: Callable[..., Any], tmp_path: Path
) -> None:
    moved = Path(shutil.copytree(runs["clips"], tmp_path / "moved"))
    config = json.loads((moved / "config.json").read_text())
    config["data"] = {"path": str(tmp_path / "gone")}
    (moved / "config.json").write_text(json.dumps(config))
    page = open_page(serve(moved).address)
    page.wait_for_selector("text=There are no test pictures.")
    assert "no longer at" in page.inner_text("#view .notice.warn")
    wait(page, "document.querySelectorAll('.samples img').length === 24")


def test_variables_are_read_on_the_models_picture(
    view: Callable[..., Any], runs: dict[str, Path], test_data: Callable[..., Any]
) -> None:
    page = view("run=0&picture=3&do.light=100")
    wait(page, SHOWN)
    model, images = intervae.load(runs["pendulum"]), test_data("pendulum").test.images[3:4]
    reading = model.measure(model.counterfactual(images, {"light": 100.0}))[0]
    for name, value in zip(model.latent_names, reading.tolist(), strict=True):
        text = page.inner_text(f'tr[data-variable="{name}"] td:nth-of-type(3)')
        assert abs(float(text.replace("\u2212", "-")) - value) < 0.06, name


def test_page_works_in_the_frame_of_a_notebook(
    browser: Any, runs: dict[str, Path], test_data: Callable[..., Any]
) -> None:
    """A notebook is another site: its page shows ours in a frame, under another port."""
    served = intervae.load(runs["pendulum"]).serve(test_data("pendulum"))

    class Notebook(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(served._repr_html_().encode())

        def log_message(self, *args: Any) -> None:
            pass

    notebook = ThreadingHTTPServer(("127.0.0.1", 0), Notebook)
    threading.Thread(target=notebook.serve_forever, daemon=True).start()
    page = browser.new_page()
    try:
        page.goto(f"http://localhost:{notebook.server_port}/")
        frame = page.frame_locator("iframe")
        frame.locator(f"{MODEL}[src^='data:image/png']").wait_for(timeout=90_000)
        frame.locator('[data-node="light"]').click()
        frame.locator('[aria-label="Value of light"]').fill("100")
        frame.locator('[aria-label="Value of light"]').press("Enter")
        frame.locator("h2:has-text('do(light = 100.0)')").wait_for(timeout=60_000)
    finally:
        page.close()
        served.stop()
        notebook.shutdown()
        notebook.server_close()
