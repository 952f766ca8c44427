"""A real Chromium, tiny runs of each kind of model, and `intervae serve` on them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from command import ENVIRONMENT, PROGRAM, SMALL, intervae, make_folder, train_tiny
from intervae import load_data
from page_pictures import HOSTILE

CT_VAE = (
    "features=4 codes=8 blocks=1 width=8 heads=2 edge_width=4 transition_epochs=1 "
    "transition_batch=16 epochs=1 batch_size=16 patch=4 filters=8"
)
DEEP_SCM = "graph=empty channels=8,8 hidden=16 batch_size=16 epochs=1"
CLIPS = "batch_size=32 widths=16 background_size=2 warm_up=4 refit_epochs=1 epochs=1"
CMCL = (
    "batch_size=32 latents=5 embedding=4 posterior_widths=8 prior_widths=8 graph_widths=4 epochs=1"
)


@dataclass(frozen=True)
class Server:
    """A running `intervae serve`."""

    address: str  # with the token
    process: subprocess.Popen[str]

    @property
    def origin(self) -> str:
        return self.address.partition("#")[0]


def settings(text: str) -> list[str]:
    return [word for pair in text.split() for word in ("--set", pair)]


def train(out: Path, model: str, data: list[str], options: list[str]) -> Path:
    words = ["train", model, *data, *options, "--no-evaluate", "--device", "cpu", "--out", out]
    output = intervae(*words)
    assert output.code == 0, output.err  # notes about the tiny data are expected
    return out


# ---- browser ------------------------------------------------------------------------------------
@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium of the system, driven by Playwright; skips with a reason where there is none."""
    program = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if program is None:
        pytest.skip("no Chromium here; `make page-test` says what to install")
    api = pytest.importorskip(
        "playwright.sync_api", reason="no playwright here; `make page-test` says what to install"
    )
    with api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """`open_page(url, width=, dark=)`: a page whose errors and foreign requests fail the test."""
    problems: list[str] = []
    contexts = []

    def watch(request: Any) -> None:
        local = ("http://127.0.0.1:", "file:", "data:", "blob:")
        if not request.url.startswith(local):
            problems.append(f"a request left the machine: {request.url}")

    def open_address(address: str, *, width: int = 1280, dark: bool = False) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            accept_downloads=True,
        )
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("request", watch)
        page.on("pageerror", lambda error: problems.append(f"page error: {error}"))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.on(
            "console",
            lambda message: (
                problems.append(f"console: {message.text}")
                if "Content Security Policy" in message.text
                else None
            ),
        )
        page.goto(address)
        return page

    yield open_address
    for context in contexts:
        context.close()
    assert not problems


# ---- runs and servers ---------------------------------------------------------------------------
@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> dict[str, Path]:
    """Tiny runs of each kind of model; `mine` has a variable with a hostile name."""
    folder = tmp_path_factory.mktemp("runs")
    pendulum = ["--data", "pendulum", "--data-option", "samples=96", "--size", "16"]
    grid = ["--data", "shapes3d-like", "--size", "16", "--data-option", "levels=2,2,2,2,2,3"]
    categories = {"side": ["left", "middle", "right"] * 30, "on": ["no", "yes"] * 45}
    table = make_folder(
        folder / "pictures",
        images=90,
        columns={**categories, HOSTILE: [float(i % 7) for i in range(90)]},
    )
    mine = ["--data", str(table), "--size", "16"]
    return {
        "pendulum": train_tiny(folder / "pendulum"),
        "seed1": train_tiny(folder / "seed1", "--seed", "1"),
        "ct-vae": train(
            folder / "ct-vae",
            "ct-vae",
            [*grid, "--data-option", "transitions=true"],
            settings(CT_VAE),
        ),
        "clips": train(
            folder / "clips",
            "temporal-causal-prior-vae",
            ["--data", "motion", "--data-option", "samples=96"],
            settings(CLIPS),
        ),
        "cmcl": train(
            folder / "cmcl",
            "cmcl",
            ["--data", "cross-modal", "--data-option", "samples=200"],
            settings(CMCL),
        ),
        "vae": train(folder / "vae", "vae", pendulum, [*SMALL[:2], "--epochs", "1"]),
        "mine": train(folder / "mine", "deep-scm", mine, settings(DEEP_SCM)),
    }


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., Server]]:
    """`serve(run, ...)` starts the command and returns when the page can be fetched."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: object, token: str = "") -> Server:
        process = subprocess.Popen(
            [PROGRAM, "serve", *map(str, words), "--no-open"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**ENVIRONMENT, **({"INTERVAE_TOKEN": token} if token else {})},
        )
        started.append(process)
        lines = []
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            address = re.search(r"http://\S+#token=[\w~.-]+", line)
            if address:
                return Server(address[0], process)
        raise AssertionError("".join(lines))

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(20)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(scope="session")
def served(runs: dict[str, Path], serve: Callable[..., Server]) -> Server:
    """One server with all runs, in the order of `runs`."""
    return serve(*runs.values())


@pytest.fixture(scope="session")
def test_data(runs: dict[str, Path]) -> Callable[[str], Any]:
    """`test_data("vae")`: the data that a run was trained on."""

    def load(name: str) -> Any:
        source = json.loads((runs[name] / "config.json").read_text())["data"]
        return load_data(source["name"], **source["options"])

    return load


@pytest.fixture(scope="session")
def number(runs: dict[str, Path]) -> dict[str, int]:
    """Name of a run -> its number on the page."""
    return {name: k for k, name in enumerate(runs)}


@pytest.fixture
def view(served: Server, open_page: Callable[..., Any]) -> Callable[..., Any]:
    """`view("run=0&view=whatif")`: the page of the server at this view."""

    def show(state: str, **options: Any) -> Any:
        return open_page(f"{served.address}&{state}", **options)

    return show
