"""Export of a trained run: one zip to share, or programs of torch.export or ONNX to deploy.

export_run("runs/pendulum", "zip", "pendulum.zip")
export_run("runs/pendulum", "torch", "pendulum-torch")
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from intervae.errors import RunError, unknown
from intervae.export.programs import MANIFEST, export_programs
from intervae.files import write_bytes, write_folder
from intervae.models.archive import read_run, to_zip
from intervae.models.storage import load_model

FORMATS = ("zip", "torch", "onnx")

__all__ = ["FORMATS", "Exported", "default_path", "export_run"]


class Exported(NamedTuple):
    """What an export wrote.

    Arguments:
        path: the zip, or the folder of the programs.
        files: names of the files inside it.
        left_out: query -> why it could not be exported.
    """

    path: Path
    files: tuple[str, ...]
    left_out: dict[str, str]


def default_path(run: Path, to: str) -> Path:
    """Return the path of an export that names none: NAME.zip, NAME-torch or NAME-onnx."""
    name = run.resolve().name.removesuffix(".zip")
    return Path(f"{name}.zip" if to == "zip" else f"{name}-{to}")


def export_run(
    run: str | Path, to: str, out: str | Path | None = None, *, overwrite: bool = False
) -> Exported:
    """Write a trained run in another format; nothing is written unless all of it could be made.

    Arguments:
        run: a run folder, or a zip of an earlier export.
        to: "zip" (one file for `intervae.load`), "torch" (programs of torch.export) or "onnx".
        out: file or folder to write; see `default_path`.
        overwrite: whether an existing file or folder is replaced.
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    run = Path(run)
    path = default_path(run, to) if out is None else Path(out)
    _check_replaceable(path, overwrite, is_folder=to != "zip")
    model = load_model(run)  # a damaged or unfinished run is not exported
    if to == "zip":
        files = read_run(run)
        write_bytes(path, to_zip(files))
        return Exported(path, tuple(files), {})
    files, left_out = export_programs(model, to)
    write_folder(path, files)
    return Exported(path, tuple(files), left_out)


def _check_replaceable(path: Path, overwrite: bool, *, is_folder: bool) -> None:
    """Raise a RunError for an existing path, unless it is an export that may be replaced."""
    if not path.exists():
        return
    if not overwrite:
        raise RunError(f"{path} exists; pass overwrite=True (--overwrite), or choose another out.")
    earlier = (path / MANIFEST).is_file() if is_folder else path.is_file()
    if not earlier:
        raise RunError(f"{path} is no earlier export, so it is not replaced; choose another out.")
