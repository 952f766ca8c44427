"""`intervae export`: a run as one zip, or as programs of torch.export or ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from intervae.cli.options import Run
from intervae.cli.output import echo, err, print_notes


def export(
    run: Run,
    to: Annotated[
        str, typer.Option(help="zip (one file to share), torch or onnx.", show_default=False)
    ],
    path: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="File (zip) or folder to write.",
            show_default="RUN.zip, RUN-torch or RUN-onnx",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier export.")
    ] = False,
) -> None:
    """Write a trained run as one zip, or as programs for torch or ONNX."""
    from intervae.export import export_run

    exported = export_run(run, to, path, overwrite=overwrite)
    notes = [f"{query} is not exported: {reason}" for query, reason in exported.left_out.items()]
    print_notes(notes, err)
    echo(f"wrote {exported.path}: {', '.join(exported.files)}")
