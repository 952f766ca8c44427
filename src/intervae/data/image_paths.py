"""Paths of the images that a `labels.csv` names: all inside the folder, none of them trusted."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath

from intervae.data.image_files import SUFFIXES
from intervae.data.labels_csv import LabelTable
from intervae.errors import DataError


def locate_images(root: Path, table: LabelTable) -> tuple[list[Path], dict[str, Path]]:
    """Return the path of each row's image, and name -> path of images that no row names."""
    images = list_images(root)
    row_of: dict[str, int] = {}
    paths = []
    for row, written in enumerate(table.files):
        where = table.where(row)
        name = written if written in images else _relative_name(written, where)
        if name in row_of:
            raise DataError(
                f"{where}: the image {written!r} already stands on line "
                f"{table.lines[row_of[name]]}; keep one row per image."
            )
        row_of[name] = row
        paths.append(images.get(name) or _linked_image(root, name, written, where, images))
    return paths, {name: path for name, path in images.items() if name not in row_of}


def list_images(root: Path) -> dict[str, Path]:
    """Return relative name -> path of the image files below `root`."""
    try:
        return dict(_walk_images(root))
    except OSError as error:
        raise DataError(
            f"{error.filename} cannot be listed ({error.strerror}); check its permissions."
        ) from None


def _walk_images(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield relative name and path of plain image files; skip links and hidden files."""
    folders = [(root, "")]
    while folders:
        folder, prefix = folders.pop()
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append((Path(entry.path), f"{prefix}{entry.name}/"))
                elif entry.is_file(follow_symlinks=False) and _is_image_name(entry.name):
                    yield unicodedata.normalize("NFC", prefix + entry.name), Path(entry.path)


def _is_image_name(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES


def _relative_name(written: str, where: str) -> str:
    """Return the name of an image as `labels.csv` writes it; an error if outside the folder."""
    if not written:
        raise DataError(f"{where}: the image has no file name; write one or remove the row.")
    windows = PureWindowsPath(written)
    name = PurePosixPath(written.replace("\\", "/"))
    if name.is_absolute() or windows.drive or ".." in name.parts or "\0" in written:
        raise DataError(
            f"{where}: the image {written!r} lies outside the folder; "
            "write its path relative to the folder, without '..'."
        )
    return unicodedata.normalize("NFC", name.as_posix())


def _linked_image(
    root: Path, name: str, written: str, where: str, images: Mapping[str, Path]
) -> Path:
    """Return an image reached by a link that stays inside `root`, or raise an error."""
    path = root / name
    if not path.exists():
        stem = PurePosixPath(name).stem.lower()
        near = next((image for image in images if PurePosixPath(image).stem.lower() == stem), None)
        advice = f"did you mean {near!r}?" if near else "correct its name or remove the row."
        raise DataError(f"{where}: the image {written!r} is not in the folder; {advice}")
    if not path.resolve().is_relative_to(root.resolve()):
        raise DataError(
            f"{where}: the image {written!r} is a link that leaves the folder; "
            "copy the file into it."
        )
    if not path.is_file():
        raise DataError(
            f"{where}: {written!r} is a folder or a device, not an image file; "
            "correct its name or remove the row."
        )
    return path
