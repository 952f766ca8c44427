"""Pictures of the page in a browser, as arrays to compare with a model's."""

from __future__ import annotations

import base64
import io
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from PIL import Image


def source(page: Any, selector: str) -> str:
    """Return the address of the first picture of a selector."""
    return str(page.locator(selector).first.get_attribute("src"))


def pixels(address: str) -> np.ndarray:
    """Return the pixels (H, W, 3) of a data: address."""
    data = base64.b64decode(address.partition("base64,")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def as_pixels(image: Any) -> np.ndarray:
    """Return a picture (C, H, W) in [0, 1] as the page's PNG shows it, (H, W, 3) uint8."""
    array = np.rint(image.permute(1, 2, 0).numpy() * 255).astype(np.uint8)
    return array if array.shape[2] == 3 else np.repeat(array, 3, axis=2)


def wait(page: Any, condition: str, arg: Any = None) -> None:
    """Wait for a condition, JavaScript in which `arg` is the argument."""
    page.wait_for_function(f"arg => {condition}", arg=arg)


@contextmanager
def reverse_proxy(origin: str, prefix: str, name: str) -> Iterator[int]:
    """Forward what is below `prefix` to a page, with `name` as the Host; yield the port."""

    class Forward(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.forward(None)

        def do_POST(self) -> None:
            self.forward(self.rfile.read(int(self.headers["Content-Length"])))

        def forward(self, body: bytes | None) -> None:
            if not self.path.startswith(prefix):
                self.send_error(404)
                return
            passed = ("Content-Type", "X-Intervae-Token")
            headers = {key: self.headers[key] for key in passed if self.headers[key]}
            headers |= {"Host": name, "Origin": f"https://{name}"}
            address = origin + self.path.removeprefix(prefix)
            request = urllib.request.Request(address, data=body, headers=headers)
            try:
                answer = urllib.request.urlopen(request, timeout=60)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                self.send_response(answer.status)
                for key in ("Content-Type", "Content-Security-Policy", "Retry-After"):
                    if answer.headers[key]:
                        self.send_header(key, answer.headers[key])
                self.end_headers()
                self.wfile.write(answer.read())

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Forward) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()
