"""Times of the page: first page after the command, do() to a picture, many connections, memory.

    python benchmarks/page.py
    python benchmarks/page.py --out benchmarks/results/page      # also .json and .md

Trains the demo's networks on Pendulum (64 x 64) for one epoch, as the weights do not matter for
time, and serves that run with `intervae serve` in a process of its own. `--run` serves another.
With Playwright and Chromium, the time from a change of a slider to the new pixels is measured too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
from conditions import conditions, footer, write_results

from intervae.serve.app import static_files

PROGRAM = str(Path(sysconfig.get_path("scripts")) / "intervae")
DEMO = "--data pendulum --size 64 --set decoder=layers --set channels=16,16,32,32 --epochs 1"
STARTS, CHANGES, REQUESTS, CONNECTIONS, FLOODS = 5, 200, 1000, 50, 2
BARS = {
    "first_page_seconds": 3.0,
    "do_server_ms": 50.0,
    "do_pixels_ms": 100.0,
    "asset_bytes": 300_000,
}


class Server:
    """`intervae serve` in a process of its own."""

    def __init__(self, run: Path) -> None:
        self.start = time.perf_counter()
        self.process = subprocess.Popen(
            [PROGRAM, "serve", str(run), "--no-open"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = re.search(r"(http://\S+/)#token=(\S+)", line)
        assert match, line
        self.base, self.token = match[1], match[2]

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def wait_until_loaded(self) -> float:
        """Return the seconds from the command until the model answers."""
        while json.loads(read(self.base + "api/status"))["loading"]:
            time.sleep(0.02)
        self.do(httpx2.Client(), 0)  # behind the warm-up
        return time.perf_counter() - self.start

    def do(self, client: httpx2.Client, light: float) -> Any:
        answer = client.post(self.base + "api/runs/0/do", **self.request(light), timeout=60)
        answer.raise_for_status()
        return answer.json()

    def request(self, light: float) -> dict[str, Any]:
        body = {"pictures": [{"index": 3}], "do": {"light": light}}
        return {"json": body, "headers": {"X-Intervae-Token": self.token}}

    def megabytes(self) -> float:
        """Resident memory of the server."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+)", text)
        return int(match[1]) / 1024 if match else float("nan")


def read(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read()


def measure_first_page(run: Path) -> dict[str, Any]:
    """Seconds from the command to the page with all its files, and until the model answers."""
    pages, loaded = [], []
    for _ in range(STARTS):
        with Server(run) as server:
            page = read(server.base).decode()
            for name in re.findall(r'(?:src|href)="(static/[^"]+)"', page):
                read(server.base + name)
            pages.append(time.perf_counter() - server.start)
            loaded.append(server.wait_until_loaded())
    return {
        "first_page_seconds": statistics.median(pages),
        "first_page_seconds_worst": max(pages),
        "model_answers_seconds": statistics.median(loaded),
    }


def measure_do(server: Server) -> dict[str, Any]:
    """Milliseconds of do() in the server and over HTTP, over CHANGES different values."""
    rng, inside, outside = random.Random(0), [], []
    with httpx2.Client() as client:
        for _ in range(CHANGES):
            start = time.perf_counter()
            inside.append(server.do(client, rng.uniform(60, 130))["milliseconds"])
            outside.append(1000 * (time.perf_counter() - start))
    return {
        "do_server_ms": statistics.median(inside),
        "do_server_ms_p95": sorted(inside)[int(0.95 * CHANGES)],
        "do_http_ms": statistics.median(outside),
    }


async def flood(server: Server) -> Counter[str]:
    """Send REQUESTS from CONNECTIONS clients, again after a 503; return the answers by status."""
    statuses: Counter[str] = Counter()
    left = iter(range(REQUESTS))

    async def send(session: httpx2.AsyncClient, light: float) -> None:
        while True:
            answer = await session.post(server.base + "api/runs/0/do", **server.request(light))
            honest = answer.status_code == 503 and "retry-after" in answer.headers
            statuses["503 with Retry-After" if honest else str(answer.status_code)] += 1
            if not honest:
                return
            await asyncio.sleep(float(answer.headers["retry-after"]))

    async def client() -> None:
        async with httpx2.AsyncClient(timeout=120) as session:
            for i in left:
                try:
                    await send(session, 60 + i % 70)
                except httpx2.HTTPError as error:
                    statuses[type(error).__name__] += 1

    await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
    return statuses


def measure_load(server: Server) -> dict[str, Any]:
    """Statuses and memory over FLOODS floods; one more at first fills caches."""
    memory, statuses, seconds = [], Counter[str](), 0.0
    for repeat in range(FLOODS + 1):
        start = time.perf_counter()
        answers = asyncio.run(flood(server))
        memory.append(server.megabytes())
        if repeat:
            statuses += answers
            seconds += time.perf_counter() - start
    return {
        "load_statuses": dict(statuses),
        "load_seconds": seconds,
        "memory_mb": memory,
        "memory_growth_mb_per_1000": (memory[-1] - memory[0]) / FLOODS,
    }


OPENED = """() => document.querySelector("[data-control=light] input[type=range]") &&
  document.querySelector(".pictures .figures")?.dataset.shown"""
CHANGE = """async (changes) => {
  const slider = document.querySelector("[data-control=light] input[type=range]");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const times = [];
  for (let k = 0; k < changes; k += 1) {
    const value = 60 + (k * 37) % 70;
    const start = performance.now();
    slider.value = value;
    slider.dispatchEvent(new Event("input", {bubbles: true}));
    for (;;) {
      const shown = document.querySelector(".pictures .figures")?.dataset.shown;
      if (shown && JSON.parse(shown)[1].light === Number(slider.value)) break;
      await new Promise((done) => setTimeout(done, 1));
    }
    await document.querySelector("[data-figure=do] img").decode();
    await frame();
    times.push(performance.now() - start);
  }
  return times;
}"""


def measure_pixels(server: Server, browser: str) -> dict[str, Any]:
    """Milliseconds from a change of the light's slider until the new picture is decoded."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page()
        page.goto(f"{server.base}#token={server.token}&run=0&picture=3&node=light")
        page.wait_for_function(OPENED, timeout=60_000)
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
        first_paint = page.evaluate(paint)
        times = page.evaluate(CHANGE, CHANGES)
        chromium.close()
    return {"do_pixels_ms": statistics.median(times), "first_contentful_paint_ms": first_paint}


def page_lines(document: dict[str, Any]) -> list[str]:
    """Return a table of what was measured beside its bar."""
    measured = document["measured"]
    rows = [("what", "measured", "bar"), ("---", "---:", "---:")]
    names = {
        "first_page_seconds": ("first page with all its files after the command, s", "{:.2f}"),
        "model_answers_seconds": ("the model answers after the command, s", "{:.2f}"),
        "do_server_ms": ("do() to picture in the server, median, ms", "{:.1f}"),
        "do_server_ms_p95": ("the same, 95th percentile, ms", "{:.1f}"),
        "do_http_ms": ("the same over HTTP, median, ms", "{:.1f}"),
        "do_pixels_ms": ("slider to new pixels in Chromium, median, ms", "{:.1f}"),
        "asset_bytes": ("files of the page, bytes", "{:,.0f}"),
        "memory_growth_mb_per_1000": ("memory grown per 1,000 requests, MB", "{:.2f}"),
    }
    for name, (text, form) in names.items():
        if measured.get(name) is not None:
            bar = f"{BARS[name]:,g}" if name in BARS else ""
            rows.append((text, form.format(measured[name]), bar))
    return [f"| {' | '.join(row)} |" for row in rows]


def page_text(document: dict[str, Any]) -> str:
    measured = document["measured"]
    statuses = ", ".join(f"{n} x {s}" for s, n in sorted(measured["load_statuses"].items()))
    memory = ", ".join(f"{size:.1f}" for size in measured["memory_mb"])
    lines = ["# Times of the page", "", *page_lines(document), ""]
    lines += [
        f"Pendulum, 64 x 64; torch uses one thread. {CHANGES} changes of a value; the first "
        f"page is the median of {STARTS} starts.",
        f"{FLOODS * REQUESTS:,} requests of {CONNECTIONS} connections: {statuses}. A client that "
        "gets 503 sends its request again after a second.",
        f"Memory after each {REQUESTS:,}: {memory} MB.",
        "",
    ]
    return "\n".join([*lines, *footer(document)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--run", type=Path, help="run to serve; by default one is trained")
    parser.add_argument("--browser", default="", help="path of Chromium, to measure pixels")
    parser.add_argument("--out", type=Path, help="write OUT.json and OUT.md")
    arguments = parser.parse_args()
    command = " ".join(["python", "benchmarks/page.py", *sys.argv[1:]])
    document = conditions(command, ["fastapi", "uvicorn"])
    document["machine"] = document["machine"].replace(", one thread used", "")
    measured: dict[str, Any] = {}
    document["measured"] = measured
    with tempfile.TemporaryDirectory() as folder:
        run = arguments.run
        if run is None:
            run = Path(folder) / "run"
            words = [PROGRAM, "train", "causal-vae", *DEMO.split(), "--no-evaluate", "--out", run]
            subprocess.run([str(word) for word in words], check=True, capture_output=True)
        measured["asset_bytes"] = sum(path.stat().st_size for path in static_files().values())
        measured |= measure_first_page(run)
        with Server(run) as server:
            server.wait_until_loaded()
            measured |= measure_do(server)
            if arguments.browser:
                measured |= measure_pixels(server, arguments.browser)
            measured |= measure_load(server)
    print("\n".join(page_lines(document)))
    print(measured["load_statuses"], [round(m, 1) for m in measured["memory_mb"]])
    if arguments.out is not None:
        write_results(arguments.out, document, page_text(document))


if __name__ == "__main__":
    main()
