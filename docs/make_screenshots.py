"""Make the pictures of docs/page.md: `intervae serve` in Chromium, at the views of SHOTS.

    python docs/make_screenshots.py runs/demo --clips runs/clips --transitions runs/ct-vae

Needs Playwright (the extra page-test) and Chromium. A run that is not named leaves its pictures as
they are.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

IMAGES = Path(__file__).parent / "images"
PROGRAM = str(Path(sysconfig.get_path("scripts")) / "intervae")
SHOWN = "() => document.querySelector('.pictures .figures')?.dataset.shown"
PLAY = 'section[aria-label="Sweep"] button:has-text("Play")'


class Shot(NamedTuple):
    """A view of the page and how it is photographed."""

    run: str  # which run it shows
    state: str  # the part of the address after #
    wait: str  # selector of what must be there
    click: str = ""
    width: int = 1280
    height: int = 1060
    dark: bool = False


SHOTS = {
    "page": Shot("do", "picture=456&do.light=110&node=light", "[data-variable] .tag"),
    "page-several": Shot(
        "do",
        "picture=228&do.light=130&add.pendulum=12&do.shadow_length=8&node=light",
        '[aria-label="Sweep"] .film img',
        click=PLAY,
        height=1300,
        dark=True,
    ),
    "page-narrow": Shot(
        "do",
        "picture=456&do.light=140&node=light",
        "[data-variable] .tag",
        width=390,
        height=844,
    ),
    "page-results": Shot("do", "view=results", "td .paper", height=900),
    "page-actions": Shot("transitions", "picture=3&times=4", ".bars .meter", height=1420),
    "page-clip": Shot(
        "clips", "picture=1&steps=4&do.z2_0=1&node=z2_0", ".clip-rows img", height=1480
    ),
}


def take(browser: Any, address: str, shot: Shot, path: Path) -> None:
    page = browser.new_page(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme="dark" if shot.dark else "light",
    )
    page.set_default_timeout(60_000)
    page.goto(f"{address}&{shot.state}")
    if shot.state == "view=results":
        page.click('.result-list a:has-text("causalvae-table1")')
    if shot.click:
        page.wait_for_function(SHOWN)
        page.click(shot.click)
    page.wait_for_selector(shot.wait)
    page.wait_for_timeout(1500)  # the strip of eight comes last
    page.evaluate("scrollTo(0, 0)")
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    page.close()
    print(f"wrote {path.name}, {path.stat().st_size / 1024:.0f} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", type=Path, help="run with do(), such as that of `make demo`")
    parser.add_argument("--transitions", type=Path, help="run of a ct-vae")
    parser.add_argument("--clips", type=Path, help="run of a temporal-causal-prior-vae")
    parser.add_argument("--browser", default=shutil.which("chromium"), help="path of Chromium")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    for kind in ("do", "transitions", "clips"):
        run = getattr(arguments, kind)
        if run is None:
            continue
        server = subprocess.Popen(
            [PROGRAM, "serve", str(run), "--no-open"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            match = re.search(r"http://\S+", server.stdout.readline())
            assert match, "the server did not start"
            with sync_playwright() as driver:
                browser = driver.chromium.launch(
                    executable_path=arguments.browser, args=["--no-sandbox"]
                )
                for name, shot in SHOTS.items():
                    if shot.run == kind:
                        take(browser, match[0], shot, IMAGES / f"{name}.png")
                browser.close()
        finally:
            server.terminate()
            server.wait(20)


if __name__ == "__main__":
    main()
