"""`intervae serve`: the page on which one asks trained runs what if, and its static export."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from intervae.cli.options import Device
from intervae.cli.output import echo, err, print_notes
from intervae.errors import UsageError


def serve(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of trained runs.", show_default=False)
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond loopback others can connect.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="Port.", show_default="8765, or the next free one"),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Name under which a reverse proxy serves the page.", show_default=False),
    ] = None,
    results: Annotated[
        Path, typer.Option(help="Folder of result tables, shown if it exists.")
    ] = Path("results"),
    export: Annotated[
        Path | None,
        typer.Option(help="Write a static site to this folder instead.", show_default=False),
    ] = None,
    open_browser: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open", help="Open a browser.", show_default="where there is a screen"
        ),
    ] = None,
    device: Device = "cpu",
) -> None:
    """Open a page to set variables of trained models and see the pictures change.

    The token of the page is random, or that of the environment variable INTERVAE_TOKEN.
    """
    # a picture is too small for a second thread: on a busy machine two are many times slower
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from intervae.serve.launch import MISSING, PageServer

    try:
        from intervae.serve.served_runs import open_folders
    except ImportError:
        raise UsageError(MISSING) from None
    served = open_folders(runs, device)
    if export is not None:
        from intervae.serve.export import export_site

        count = export_site(served, export, results)
        failed = [run.description.error for run in served.runs if run.state == "failed"]
        print_notes([sentence for sentence in failed if sentence], err)
        echo(f"wrote {count} files to {export}; open {export / 'index.html'}")
        return
    page = PageServer(
        served,
        host=host,
        port=port,
        results=results,
        allow_hosts=allow_host or (),
        token=os.environ.get("INTERVAE_TOKEN"),
    )
    if page.beyond_loopback:
        note = (
            f"others who reach {host}:{page.port} and have the token can see the test pictures and "
            "ask the models; the connection is not encrypted."
        )
        print_notes([note], err)
    echo(f"the page is at {page.address}\nCtrl-C stops it.")
    try:
        page.run(open_browser=open_browser)
    except KeyboardInterrupt:
        echo("stopped")
