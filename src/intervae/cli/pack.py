"""`intervae pack`: data larger than memory as a folder of memory-mapped shards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from intervae.cli.data_options import read_data_options
from intervae.cli.options import DataOptions, Group, Kinds, Seed, Size, Variables
from intervae.cli.output import echo, print_data, print_notes
from intervae.cli.signals import interrupted_by_signals
from intervae.errors import DataError, RunError, UsageError


def pack(
    source: Annotated[
        str,
        typer.Argument(
            help="Name from `intervae datasets`, a folder of images, an .npz, .h5, .parquet or "
            ".tar file; with --check a packed folder.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="Folder to write.", show_default=False)
    ] = None,
    size: Size = None,
    variables: Variables = None,
    kinds: Kinds = None,
    group: Group = None,
    validation: Annotated[
        float | None,
        typer.Option(help="Fraction of the rows outside the test split.", show_default="0.1"),
    ] = None,
    test: Annotated[
        float | None, typer.Option(help="Fraction of all rows.", show_default="0.2")
    ] = None,
    seed: Seed = 0,
    data_option: DataOptions = None,
    shard_mb: Annotated[float, typer.Option(help="Size of a shard in MiB.")] = 256,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier packed folder.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Compare a packed folder with its checksums.")
    ] = False,
) -> None:
    """Pack data for training with little memory, or check packed data."""
    if check:
        if folder is not None:
            raise UsageError(f"--check takes one packed folder; leave out {folder}.")
        from intervae.data.packed.read import check_packed

        index = check_packed(source)
        echo(f"{source}: {index.rows} images in {len(index.shards)} shards, all checksums agree")
        return
    if folder is None:
        raise UsageError("pack needs a folder to write: `intervae pack SOURCE OUT`.")
    options = read_data_options(size, variables, kinds, group, data_option)
    echo(f"packing {source}")  # importing torch takes seconds on a busy machine
    from intervae.data import pack as pack_data

    with _explain_interrupt(folder):
        data = pack_data(
            source,
            folder,
            shard_mb=shard_mb,
            overwrite=overwrite,
            validation=validation,
            test=test,
            seed=seed,
            **options,
        )
    print_data(data)
    echo(f"wrote {folder}; train on it with --data {folder}")


@contextlib.contextmanager
def _explain_interrupt(folder: Path) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into an error that says that nothing was written."""
    try:
        with interrupted_by_signals():
            yield
    except KeyboardInterrupt:
        raise RunError(
            f"interrupted, so {folder} was not written; give the same command again."
        ) from None
    except DataError as error:
        print_notes(getattr(error, "__notes__", ()))  # files that were skipped before the error
        raise
