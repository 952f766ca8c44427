"""A run in one zip: what `intervae export --to zip` writes and `intervae.load` reads.

An archive is never unpacked to disk. It holds files of known names only, each of limited size, so
that no path in it leads anywhere and no small archive becomes a large one.
"""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from intervae.errors import RunError

MEGABYTE = 2**20
# name of every file that an archive may hold -> largest size in bytes
LARGEST = {
    "config.json": 16 * MEGABYTE,
    "model.safetensors": 16384 * MEGABYTE,
    "graph.json": 16 * MEGABYTE,
    "README.md": 16 * MEGABYTE,
    "metrics.jsonl": 256 * MEGABYTE,
    "evaluation.json": 16 * MEGABYTE,
}
NEEDED = ("config.json", "model.safetensors")
LARGEST_RATIO = 50  # of the size of a file to its compressed size; ours are not compressed
DATE = (1980, 1, 1, 0, 0, 0)  # of every file, so that equal runs give equal archives
ENCRYPTED = 0x1  # flag of a file in a zip


def is_archive(path: Path) -> bool:
    """Whether a path is a regular file that ends in .zip."""
    return path.suffix.lower() == ".zip" and path.is_file()


def read_run(run: Path) -> dict[str, bytes]:
    """Return the files of a run folder, or of an archive, that an archive holds: name -> bytes."""
    if is_archive(run):
        return read_archive(run)
    files = {}
    for name in LARGEST:
        path = run / name
        if path.is_file():
            files[name] = path.read_bytes()
    return files


def to_zip(files: Mapping[str, bytes]) -> bytes:
    """Return the zip of some files, which are stored, not compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, DATE), content)
    return buffer.getvalue()


def read_archive(path: Path) -> dict[str, bytes]:
    """Return the files of an archive, name -> bytes; raise a RunError if it is not one of ours."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            for member in members:
                _check_member(path, member)
            names = [member.filename for member in members]
            for name in names:
                if names.count(name) > 1:
                    raise RunError(f"{path} holds {name!r} twice, so it is damaged; export again.")
            for name in NEEDED:
                if name not in names:
                    raise RunError(
                        f"{path} has no {name}, so it is not a run; "
                        "make it with `intervae export RUN --to zip`."
                    )
            return {member.filename: archive.read(member) for member in members}
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        raise RunError(f"{path} is not a readable zip ({error}).") from None
    except (NotImplementedError, RuntimeError) as error:  # unknown compression
        raise RunError(f"{path} cannot be unpacked ({error}); export the run again.") from None


def _check_member(path: Path, member: zipfile.ZipInfo) -> None:
    """Raise a RunError for a file that no archive of ours holds."""
    name = member.filename
    if name not in LARGEST:
        raise RunError(
            f"{path} holds {name[:80]!r}, which no exported run has; "
            "make it with `intervae export RUN --to zip`."
        )
    if member.flag_bits & ENCRYPTED:
        raise RunError(f"{path} is encrypted; unlock it first.")
    ratio = member.file_size / max(member.compress_size, 1)
    if member.file_size > LARGEST[name] or (member.file_size > MEGABYTE and ratio > LARGEST_RATIO):
        raise RunError(
            f"{path}: {name} unpacks to {member.file_size} bytes from {member.compress_size}, "
            "which is refused as unsafe."
        )
