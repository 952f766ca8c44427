"""`load_tars`: webdataset .tar files, in which KEY.jpg and KEY.json or KEY.cls are one sample.

Members are read at their place in the file and never extracted, so their names cannot write
anywhere; links, devices and members of an implausible size are refused.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from intervae.data.dataset import Dataset
from intervae.data.image_files import SUFFIXES
from intervae.data.image_rows import build_from_files
from intervae.data.image_sinks import ImageSink
from intervae.data.progress import progress
from intervae.data.variables import Spec
from intervae.errors import DataError
from intervae.files import open_regular
from intervae.notes import Note

LARGEST_IMAGE, LARGEST_LABELS = 2**28, 2**20  # bytes of a member
BESIDE = (".tar", ".json", ".txt", ".md")  # suffixes of files in a folder of tars


@dataclass(slots=True)
class TarSample:
    """A sample: where its image is, and its labels."""

    key: str
    path: Path
    image: tuple[int, int] | None = None  # offset and size
    labels: dict[str, Any] = field(default_factory=dict)

    def read_image(self) -> bytes:
        assert self.image is not None
        offset, size = self.image
        with open_regular(self.path) as file:
            file.seek(offset)
            return file.read(size)


def is_tar(path: Path) -> bool:
    return path.suffix.lower() == ".tar" and path.is_file()


def is_folder_of_tars(folder: Path) -> bool:
    """Whether a folder has .tar files, and beside them nothing but texts."""
    suffixes = [Path(name).suffix.lower() for name in os.listdir(folder) if name[0] != "."]
    return ".tar" in suffixes and all(suffix in BESIDE for suffix in suffixes)


def load_tars(
    path: str | Path,
    *,
    size: int | Sequence[int] | None = None,
    variables: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    group: str | None = None,
    channels: int | None = None,
    like: Spec | None = None,
    sink: ImageSink | None = None,
) -> Dataset:
    """Read one .tar file, or all of a folder in the order of their names.

    The values of KEY.json are the labels of a sample; the number in KEY.cls is its label `cls`.
    Members with other suffixes are ignored.

    Arguments:
        size, variables, kinds, validation, test, seed, group, channels, like: as in `load_folder`.
        sink: where the images go; default memory.
    """
    root = Path(os.path.abspath(path))
    tars = sorted(root.glob("*.tar")) if root.is_dir() else [root]
    samples: list[TarSample] = []
    ignored: dict[str, int] = {}
    for tar in progress(tars, len(tars), "reading tars"):
        samples += _read_samples(tar, ignored)
    with_image = [sample for sample in samples if sample.image is not None]
    if not with_image:
        raise DataError(
            f"{root} has no images (KEY.jpg, KEY.png, ...); give webdataset tars of images."
        )
    notes = [
        Note("ignored-members", suffix, f"tar: {count} members KEY{suffix} are ignored")
        for suffix, count in sorted(ignored.items())
    ]
    if missing := len(samples) - len(with_image):
        notes.append(Note("ignored-rows", "", f"tar: {missing} samples without an image ignored"))
    return build_from_files(
        root.stem,
        [sample.read_image for sample in with_image],
        [f"{sample.path.name}/{sample.key}" for sample in with_image],
        _columns([sample.labels for sample in with_image]),
        size=size,
        channels=channels,
        variables=variables,
        kinds=kinds,
        validation=validation,
        test=test,
        seed=seed,
        group=group,
        like=like,
        sink=sink,
        notes=notes,
    )


def _read_samples(path: Path, ignored: dict[str, int]) -> list[TarSample]:
    """Return the samples of a file; consecutive members of one key are one sample."""
    samples: list[TarSample] = []
    try:
        with open_regular(path) as raw, tarfile.open(fileobj=raw, mode="r:") as tar:
            for member in tar:
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep them all
                _add_member(tar, member, path, samples, ignored)
            _check_end(raw, path)
    except (tarfile.TarError, EOFError, OverflowError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise DataError(
            f"{path} cannot be read ({reason}); check that it is a complete uncompressed .tar file."
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from None
    return samples


def _add_member(
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    path: Path,
    samples: list[TarSample],
    ignored: dict[str, int],
) -> None:
    if member.isdir():
        return
    where = f"{path.name}: member {member.name[:200]!r}"
    if not member.isreg() or member.sparse is not None:
        raise DataError(f"{where} is not a plain file, which is refused as unsafe; remove it.")
    folder, _, name = member.name.rpartition("/")
    stem, dot, extension = name.partition(".")
    key, suffix = f"{folder}/{stem}".lstrip("/"), f".{extension.lower()}"
    if not dot or not stem:
        ignored[""] = ignored.get("", 0) + 1
        return
    if not samples or samples[-1].key != key:
        samples.append(TarSample(key, path))
    sample = samples[-1]
    is_image = os.path.splitext(suffix)[1] in SUFFIXES or suffix in SUFFIXES
    limit = LARGEST_IMAGE if is_image else LARGEST_LABELS
    if (is_image or suffix in (".json", ".cls")) and member.size > limit:
        raise DataError(f"{where} has {member.size} bytes, more than {limit}; make it smaller.")
    if is_image:
        if sample.image is not None:
            raise DataError(f"{where} is a second image of one sample; keep one image per key.")
        sample.image = (member.offset_data, member.size)
    elif suffix in (".json", ".cls"):
        content = tar.extractfile(member)
        assert content is not None
        sample.labels |= _labels(content.read(), suffix, where)
    else:
        ignored[suffix] = ignored.get(suffix, 0) + 1


def _labels(content: bytes, suffix: str, where: str) -> dict[str, Any]:
    """Return the labels in a .json or .cls member: numbers, texts, and None where missing."""
    try:
        text = content.decode("utf-8")
        parsed = {"cls": int(text)} if suffix == ".cls" else json.loads(text)
    except (UnicodeDecodeError, ValueError, RecursionError):
        kind = "a whole number" if suffix == ".cls" else "JSON"
        raise DataError(f"{where} is not {kind}; correct it or remove it.") from None
    if not isinstance(parsed, dict):
        raise DataError(f'{where} must be an object such as {{"light": 40.0}}; correct it.')
    return {
        name: float(value) if isinstance(value, bool) else value
        for name, value in parsed.items()
        if value is None or isinstance(value, bool | int | float | str)
    }


def _check_end(raw: Any, path: Path) -> None:
    """Raise a DataError for a tar without the zeros that end it: it was cut between members."""
    size = os.fstat(raw.fileno()).st_size
    raw.seek(max(0, size - 1024))
    if any(raw.read(1024)):
        raise DataError(f"{path} ends without the end mark of a .tar file; copy it again.")


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return name -> column (N,) of numbers, or of texts if any row has a text there."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(values: Sequence[Any]) -> np.ndarray:
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else str(value) for value in values])
    try:
        return np.array([np.nan if value is None else float(value) for value in values])
    except OverflowError:
        return np.array(["" if value is None else str(value) for value in values])
