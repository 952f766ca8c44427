"""`load_arrays`: images and labels in an `.npz` or `.h5` file."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.build import build_from_columns
from intervae.data.dataset import Dataset
from intervae.data.pixel_arrays import array_to_pixels, as_size, resize_images
from intervae.data.unpacked_size import check_npz_array, check_unpacked_size
from intervae.data.variables import Spec
from intervae.errors import DataError, IntervaeError, UsageError, unknown
from intervae.files import check_regular, open_regular
from intervae.notes import Note

KEYS = {  # role of an array -> its possible names in a file
    "images": ("images",),
    "labels": ("labels", "factors"),
    "names": ("names", "factor_names"),
    "kinds": ("kinds",),
    "test": ("test",),
    "graph": ("graph",),
}


def load_arrays(
    path: str | Path,
    *,
    size: int | Sequence[int] | None = None,
    variables: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    group: str | None = None,
    names: Sequence[str] | None = None,
    like: Spec | None = None,
) -> Dataset:
    """Read an `.npz` or `.h5` file.

    It holds `images` (N, H, W), (N, H, W, C) or (N, C, H, W), and optionally `labels` or `factors`
    (N, n), `names` or `factor_names` (n,), `kinds` (n,), `graph` (n, n) whose rows cause columns,
    and `test` (N,), the mask of the test split.

    Arguments:
        size, variables, kinds, validation, test, seed: as in `load_folder`; `test` is the fraction
            used if the file has no mask.
        group: label, or further array (N,) of the file, whose equal values stay in one split.
        names: names of the labels, if the file has none.
        like: what a trained model knows: its labels, kinds and codes are used.
    """
    path, target = Path(os.path.abspath(path)), as_size(size)
    arrays = read_arrays(path, () if group is None else (group,))
    images, notes = array_to_pixels(arrays.pop("images"), path.name)
    count = len(images)
    labels = arrays.get("labels", np.zeros((count, 0)))
    labels = labels if labels.ndim > 1 else labels[:, None]
    if labels.ndim != 2 or len(labels) != count:
        raise DataError(
            f"{path.name}: {count} images need labels of shape ({count}, n), "
            f"one row per image, not {labels.shape}."
        )
    n = labels.shape[1]
    columns = label_names(names if names is not None else arrays.get("names"), n, path.name)
    if "labels" not in arrays:
        text = "the file has no 'labels' or 'factors', so the images are taken without labels"
        notes.append(Note("no-labels", "", f"labels: {text}"))
    elif names is None and "names" not in arrays:
        text = f"labels: the file has no 'names', so they are called {', '.join(columns)}"
        notes.append(Note("generated-names", "", text))
    table = {name: labels[:, i] for i, name in enumerate(columns)}
    groups = None
    if group is not None:
        groups = arrays.get(group, table.get(group))
        if groups is None:
            raise unknown("group", group, table)
        _check_groups(group, groups, count, path.name)
    stored_kinds: dict[str, str] = {}
    if "kinds" in arrays:
        words = _texts(arrays["kinds"], "kinds", n, path.name)
        stored_kinds = dict(zip(columns, words, strict=True))
    mask = _test_mask(arrays.get("test"), count, path.name) if test != 1 else None
    if mask is not None:
        text = "splits: the test samples are given by the file"
        notes.append(Note("predefined-splits", "test", text))
    return build_from_columns(
        path.stem,
        images if target is None else resize_images(images, target),
        table,
        where=path.name,
        variables=variables,
        kinds={**stored_kinds, **(kinds or {})},
        group=group,
        groups=groups,
        graph=_graph(columns, arrays.get("graph"), path.name),
        notes=notes,
        like=like,
        validation=validation,
        test=test if mask is None else mask,
        seed=seed,
    )


def _check_groups(group: str, groups: np.ndarray, count: int, where: str) -> None:
    if groups.shape != (count,):
        raise DataError(
            f"{where}: the group {group!r} must have one value for each of the {count} images, "
            f"not shape {groups.shape}."
        )


# ---- reading files --------------------------------------------------------------------------
def read_arrays(path: Path, more: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Return the arrays of a file by role, and those called `more`; nothing is unpickled."""
    is_npz = path.suffix.lower() == ".npz"
    read = _read_npz if is_npz else _read_h5
    roles = {**KEYS, **{key: (key,) for key in more}}
    try:
        with _open_npz(path) if is_npz else _open_h5(path) as content:
            key_of = {
                role: key
                for role, keys in roles.items()
                if (key := next((key for key in keys if key in content), None)) is not None
            }
            _check_required(key_of, sorted(content), path.name)
            return {
                role: _checked(read(content, key, path.name), key, path.name)
                for role, key in key_of.items()
            }
    except (IntervaeError, MemoryError):
        raise
    except Exception as error:  # a damaged file may raise nearly anything
        text = str(getattr(error, "strerror", None) or error)
        reason = text.partition("\n")[0].rstrip(".") or type(error).__name__
        raise DataError(
            f"{path.name} cannot be read ({reason}); "
            f"check that it is a complete {path.suffix} file."
        ) from None


def _check_required(key_of: Mapping[str, str], content: Sequence[str], where: str) -> None:
    """Raise an error without images, or without labels although the file describes labels."""
    described = [key_of[role] for role in ("names", "kinds", "graph") if role in key_of]
    advice = {"images": "rename or add it"}
    if described:
        advice["labels"] = f"rename or add it, or remove {described[0]!r} where there are no labels"
    for role, text in advice.items():
        if role not in key_of:
            keys = " or ".join(map(repr, KEYS[role]))
            raise DataError(
                f"{where} has no {keys}, only {', '.join(content) or 'nothing'}; {text}."
            )


@contextmanager
def _open_npz(path: Path) -> Iterator[Any]:
    with open_regular(path) as raw:
        if not zipfile.is_zipfile(raw):
            raise DataError(
                f"{path.name} is not an .npz archive; "
                "save it with numpy.savez(path, images=..., labels=...)."
            )
        raw.seek(0)
        with np.load(raw, allow_pickle=False) as content:
            yield content


def _open_h5(path: Path) -> h5py.File:
    check_regular(path)
    return h5py.File(path, "r")


def _read_npz(content: Any, key: str, where: str) -> np.ndarray:
    check_npz_array(content.zip, key, where)
    return content[key]


def _read_h5(content: Any, key: str, where: str) -> np.ndarray:
    node = content[key] if isinstance(content.get(key, getlink=True), h5py.HardLink) else None
    if not isinstance(node, h5py.Dataset) or node.external or node.is_virtual:
        raise DataError(
            f"{where}: {key!r} is not an array stored in this file itself; "
            "copy it into the file as a data set."
        )
    check_unpacked_size(node.id.get_storage_size(), node.size * node.dtype.itemsize, key, where)
    if h5py.check_string_dtype(node.dtype) is not None:
        return np.array(node.asstr()[()], dtype=str)
    if node.dtype.kind not in "biuf":
        raise DataError(f"{where}: {key!r} is of type {node.dtype}; store numbers or text.")
    return node[()]


def _checked(value: np.ndarray, key: str, where: str) -> np.ndarray:
    """Return an array of numbers or text; bytes are decoded."""
    value = np.asarray(value)
    if value.dtype.kind == "S":
        return np.char.decode(value, "utf-8")
    numeric_only = key in ("images", "test", "graph")
    if value.dtype.kind not in ("biuf" if numeric_only else "biufU"):
        raise DataError(f"{where}: {key!r} is of type {value.dtype}; store numbers.")
    return value


def _texts(values: Any, key: str, n: int, where: str) -> list[str]:
    texts = [str(text).strip() for text in np.atleast_1d(values)]
    if len(texts) != n:
        raise DataError(
            f"{where}: {key!r} has {len(texts)} entries for {n} labels; give one for each."
        )
    return texts


def label_names(names: Any, n: int, where: str) -> list[str]:
    """Return the checked names of n labels; label0, label1, ... if `names` is None."""
    if names is None:
        return ["label"] if n == 1 else [f"label{i}" for i in range(n)]
    if isinstance(names, str):
        raise UsageError(f"names={names!r} must be a list of names, such as names=[{names!r}].")
    texts = _texts(names, "names", n, where)
    if len(set(texts)) != n or not all(texts):
        raise DataError(
            f"{where}: the names of the labels must differ and not be empty, not {texts}."
        )
    return texts


def _test_mask(mask: np.ndarray | None, n: int, where: str) -> np.ndarray | None:
    if mask is None:
        return None
    if mask.shape != (n,) or not np.isin(mask, (0, 1)).all():
        raise DataError(
            f"{where}: 'test' must be a mask of {n} true or false, "
            f"not {mask.dtype} of shape {mask.shape}."
        )
    return mask.astype(bool)


def _graph(names: Sequence[str], weights: np.ndarray | None, where: str) -> CausalGraph | None:
    try:
        return None if weights is None else CausalGraph(tuple(names), weights)
    except DataError as error:
        raise DataError(f"{where}: 'graph': {error}") from None
