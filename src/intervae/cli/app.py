"""The command line program `intervae`: its commands, lists and errors.

Exit codes: 0 success, 1 failure, 2 wrong usage. Errors are one sentence on standard error;
`--debug` adds the traceback. The commands import torch and other large packages when they are
called, so that `intervae --help` is fast.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
import warnings
from typing import Annotated, Any

import typer
from rich.markup import escape

import intervae
from intervae.cli import (
    attribute,
    discover,
    evaluate,
    export,
    intervene,
    output,
    pack,
    reproduce,
    serve,
    settings_tables,
    train,
    tune,
    with_ranks,
)
from intervae.cli.lists import listed
from intervae.cli.options import AsJson, Preset
from intervae.cli.output import echo, err, print_rows
from intervae.errors import DataWarning, IntervaeError, UsageError
from intervae.memory import check_address_limit, is_out_of_memory, out_of_memory
from intervae.registry import PluginWarning

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")
INTERRUPTED = 130


def _print_version(requested: bool) -> None:
    if requested:
        print(f"intervae {intervae.__version__}")
        raise typer.Exit


@app.callback()
def common(
    debug: Annotated[  # read by `main`; declared here for --help
        bool,
        typer.Option("--debug", help="Show tracebacks; may appear anywhere on the command line."),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Learn causal variables from images and video, and ask what if."""
    check_address_limit()


# ---- lists --------------------------------------------------------------------------------------
@app.command()
def models(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show the settings of this model, for --set of `train`.", show_default=False
        ),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show advanced settings too.")] = False,
    preset: Preset = None,
    as_json: AsJson = False,
) -> None:
    """List the models, the settings of one model, or one of its presets."""
    if preset is not None and name is None:
        raise UsageError("--preset belongs to one model; name it: intervae models NAME --preset.")
    if name is not None and preset is not None:
        settings_tables.print_preset(name, preset, as_json)
    elif name is None:
        print_rows(listed("models"), ("name", "description"), as_json)
    elif as_json:
        print(json.dumps(settings_tables.list_settings(name), indent=2))
    else:
        settings_tables.print_settings(name, show_all)


@app.command()
def datasets(as_json: AsJson = False) -> None:
    """List the named data sets."""
    print_rows(listed("datasets"), ("name", "description"), as_json)
    if not as_json:
        echo("\nOr a path: a folder of images, with a labels.csv if they have labels;", "dim")
        echo(".npz; .h5; packed data; a saved Hugging Face data set or .parquet; .tar.", "dim")


@app.command()
def metrics(as_json: AsJson = False) -> None:
    """List the metrics of `evaluate`."""
    print_rows(listed("metrics"), ("name", "description"), as_json)


@app.command()
def experiments(as_json: AsJson = False) -> None:
    """List the experiments of `reproduce`."""
    print_rows(listed("experiments"), ("name", "description"), as_json)


for command in (
    train.train,
    train.resume,
    discover.discover,
    evaluate.evaluate,
    evaluate.report,
    evaluate.graph,
    intervene.intervene,
    attribute.attribute,
    export.export,
    pack.pack,
    serve.serve,
    reproduce.reproduce,
    tune.tune,
):
    app.command()(command)


# ---- entry point and errors ---------------------------------------------------------------------
def main() -> None:
    """Run a command; turn errors into one sentence and an exit code."""
    warnings.showwarning = _show_warning
    debug = "--debug" in sys.argv
    if not debug:  # errors in threads, such as TensorBoard's on a full disk, are raised here too
        threading.excepthook = lambda _: None
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # for names that this terminal cannot show
    try:
        words = [word for word in sys.argv[1:] if word != "--debug"]
        with_ranks.check_command(words)
        code = app(words, prog_name="intervae", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception as error:
        code = INTERRUPTED if isinstance(error, typer.Abort) else _print_error(error, debug)
    if code == INTERRUPTED:  # recent versions of typer return it, older ones abort
        code = _fail("interrupted; give the same command again.", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _show_warning(
    message: Warning | str, category: type[Warning], *place: Any, **more: Any
) -> None:
    """Print a warning about data or a plugin as a note, all others as Python does."""
    if issubclass(category, (DataWarning, PluginWarning)):
        output.print_notes([str(message)], err)
    else:
        _python_showwarning(message, category, *place, **more)


_python_showwarning = warnings.showwarning


def _print_error(error: Exception, debug: bool) -> int:
    """Print an error as one sentence and return the exit code."""
    if isinstance(error, BrokenPipeError):  # the reader of the pipe is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if type(error).__name__ == "NoArgsIsHelpError":  # `intervae` alone has printed the help
        return 2
    if debug:
        err.print_exception()
    if isinstance(error, IntervaeError):
        return _fail(str(error), error.exit_code)
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # typer's own errors
        path = getattr(getattr(error, "ctx", None), "command_path", "intervae")
        message = error.format_message().rstrip(".?")
        return _fail(f"{message}; see `{path} --help`.", error.exit_code)
    if isinstance(error, OSError) and not is_out_of_memory(error):
        wrong_path = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
        advice = "; check that path" if isinstance(error, wrong_path) else ""
        return _fail(f"{error.filename or 'output'}: {error.strerror or error}{advice}.", 1)
    if is_out_of_memory(error):
        return _fail(out_of_memory(), 1)
    return _fail(
        f"this is a bug ({type(error).__name__}: {error}); please report it with the output of "
        "--debug.",
        1,
    )


def _fail(sentence: str, code: int) -> int:
    """Print an error message and return the exit code."""
    with contextlib.suppress(OSError):  # the terminal is gone
        err.print(
            f"{with_ranks.before_error()}[bold red]error:[/] {escape(' '.join(sentence.split()))}",
            highlight=False,
        )
    return code


if __name__ == "__main__":
    main()
