"""Start the page: its port, its address with the token, and uvicorn, in front or in a thread."""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intervae.errors import UsageError
from intervae.serve.access import LOOPBACK

if TYPE_CHECKING:
    from intervae.data import Dataset
    from intervae.models.base import Model
    from intervae.serve.served_runs import ServedRuns

FIRST_PORT, PORTS = 8765, 50  # tried in turn unless one is asked for
MISSING = "the page needs fastapi and uvicorn; install them with pip install 'intervae[serve]'."
NOTEBOOK_FRAMES = "http://localhost:* http://127.0.0.1:* https://localhost:* https://127.0.0.1:*"
STARTUP_SECONDS = 20.0


class PageServer:
    """A page: a bound port, a token and an application.

    Arguments:
        runs: the runs to serve.
        host: address to listen on; beyond loopback, everybody who has the token may ask.
        port: that port or an error; None for the first free one.
        results: a folder of result tables.
        allow_hosts: names under which a reverse proxy forwards to this page.
        token: by default a random one.
        frame_ancestors: who may show the page in a frame; nobody by default.
    """

    def __init__(
        self,
        runs: ServedRuns,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        results: Path | None = None,
        allow_hosts: Sequence[str] = (),
        token: str | None = None,
        frame_ancestors: str = "'none'",
    ) -> None:
        try:
            import uvicorn

            from intervae.serve.app import create_app
        except ImportError:
            raise UsageError(MISSING) from None
        self.runs, self.host = runs, host
        self.token = token or secrets.token_urlsafe(24)
        if not re.fullmatch(r"[\w~.-]+", self.token, re.ASCII):
            raise UsageError(
                "the token may only have letters, digits and - . _ ~, as it is part of an address; "
                "see INTERVAE_TOKEN."
            )
        self.socket = bind(host, port)
        self.port = int(self.socket.getsockname()[1])
        self.beyond_loopback = host not in LOOPBACK
        names = [*allow_hosts, *([host, socket.gethostname()] if self.beyond_loopback else [])]
        app = create_app(
            runs,
            self.token,
            results=results,
            hosts=names,
            any_address=self.beyond_loopback,
            frame_ancestors=frame_ancestors,
        )
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            proxy_headers=False,
            timeout_graceful_shutdown=2,
        )
        self.server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The address with the token, which the browser does not send to the server."""
        host = self.host
        if host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        host = f"[{host}]" if ":" in host else host
        return f"http://{host}:{self.port}/#token={self.token}"

    def run(self, *, open_browser: bool | None = None) -> None:
        """Serve until Ctrl-C.

        Arguments:
            open_browser: None opens one where there is a screen.
        """
        if has_screen() if open_browser is None else open_browser:
            threading.Thread(target=webbrowser.open, args=(self.address,), daemon=True).start()
        self.server.run(sockets=[self.socket])

    # ---- in a notebook -------------------------------------------------------------------------
    def start(self) -> PageServer:
        """Serve in a thread; return the page, which a notebook shows."""
        run = self.server.run
        self._thread = threading.Thread(
            target=run, kwargs={"sockets": [self.socket]}, daemon=True, name="page"
        )
        self._thread.start()
        waited = threading.Event()
        for _ in range(int(STARTUP_SECONDS / 0.02)):
            if self.server.started:
                break
            waited.wait(0.02)
        return self

    def stop(self) -> None:
        """Stop a page that `start` began."""
        self.server.should_exit = True
        if self._thread is not None:
            self._thread.join(STARTUP_SECONDS)
        self.socket.close()

    def __repr__(self) -> str:
        return f"PageServer({self.address})"

    def _repr_html_(self) -> str:
        address = escape(self.address, quote=True)
        return (
            f'<iframe src="{address}" width="100%" height="760" title="intervae"></iframe>'
            f'<p><a href="{address}" target="_blank">open the page in a tab</a></p>'
        )


def bind(host: str, port: int | None) -> socket.socket:
    """Return a listening socket on `port`, or on the first free port if it is None."""
    last: OSError | None = None
    for candidate in [port] if port is not None else range(FIRST_PORT, FIRST_PORT + PORTS):
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                host, candidate, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, protocol)
        except OSError as error:
            raise UsageError(f"--host {host}: {error.strerror or error}.") from None
        if sys.platform != "win32":  # there it would share the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(place)
            listener.listen(256)  # a browser may connect while the server starts
            return listener
        except OSError as error:
            listener.close()
            last = error
    if port is None:
        last_port = FIRST_PORT + PORTS - 1
        reason = f"ports {FIRST_PORT} to {last_port} are all in use; choose another with --port"
        raise UsageError(f"{reason}.")
    reason = last.strerror or str(last) if last is not None else "not free"
    raise UsageError(
        f"--port {port} cannot be used ({reason.lower()}); "
        "choose another, or leave it out for the first free one."
    )


def has_screen() -> bool:
    """Whether a browser can be shown here."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def serve_model(
    model: Model, data: Dataset | None = None, *, port: int | None = None, **options: Any
) -> PageServer:
    """Serve a model in memory from a notebook; see `Model.serve`."""
    from intervae.serve.served_runs import ServedRun, ServedRuns

    runs = ServedRuns([ServedRun(0, None, model=model, data=data)])
    options = {"frame_ancestors": NOTEBOOK_FRAMES, **options}
    return PageServer(runs, port=port, **options).start()
