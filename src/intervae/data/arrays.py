"""Images and labels that are already arrays: an `.npz` or `.h5` file, or any torch Dataset of (image, labels)."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset

from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, build_dataset
from intervae.data.columns import decide_columns
from intervae.data.folder import restrict_graph
from intervae.data.images import array_to_pixels, as_size, black_and_white, check_memory, progress, resize_image, resize_images, to_bytes, to_pixels
from intervae.errors import DataError, IntervaeError, UsageError, unknown

KEYS = {  # what an array is for -> the names it may have in a file
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
) -> Dataset:
    """Read an `.npz` or `.h5` file.

    It holds `images` (N, H, W), (N, H, W, C) or (N, C, H, W); where they have labels, `labels` or `factors` (N, n) and optionally `names` or
    `factor_names` (n,), `kinds` (n,) and `graph` (n, n), rows cause columns; optionally `test` (N,) as the mask of the test split.

    Arguments:
        group: a label, or a further array (N,) of the file, whose equal values stay in the same split.
        names: the names of the labels when the file has none.
        The others are those of `load_folder`; `test` is the fraction used when the file has no mask.
    """
    path, wanted = Path(os.path.abspath(path)), as_size(size)
    arrays = read_arrays(path, () if group is None else (group,))
    images, notes = array_to_pixels(arrays.pop("images"), path.name)
    labels = arrays.get("labels", np.zeros((len(images), 0)))
    labels = labels if labels.ndim > 1 else labels[:, None]
    if labels.ndim != 2 or len(labels) != len(images):
        raise DataError(f"{path.name}: {len(images)} images need labels of shape ({len(images)}, n), one row per image, not {labels.shape}.")
    n = labels.shape[1]
    known = _names(names if names is not None else arrays.get("names"), n, path.name)
    if "labels" not in arrays:
        notes = [*notes, "labels: the file has no 'labels' or 'factors', so the images are taken without labels"]
    elif names is None and "names" not in arrays:
        notes = [*notes, f"labels: the file has no 'names', so they are called {', '.join(known)}"]
    table = {name: labels[:, i] for i, name in enumerate(known)}
    groups = None
    if group is not None:
        groups = arrays.get(group, table.get(group))
        if groups is None:
            raise unknown("group", group, table)
        if groups.shape != (len(images),):
            raise DataError(f"{path.name}: the group {group!r} must have one value for each of the {len(images)} images, not shape {groups.shape}.")
    given = dict(zip(known, _texts(arrays["kinds"], "kinds", n, path.name), strict=True)) if "kinds" in arrays else {}
    mask = _mask(arrays.get("test"), len(images), path.name)
    return _assemble(
        path.stem,
        images if wanted is None else resize_images(images, wanted),
        table,
        where=path.name,
        variables=variables,
        kinds={**given, **(kinds or {})},
        group=group,
        groups=groups,
        graph=_graph(known, arrays.get("graph"), path.name),
        notes=notes if mask is None else [*notes, "splits: the test samples are given by the file"],
        validation=validation,
        test=test if mask is None else mask,
        seed=seed,
    )


def load_torch(
    items: Any,
    *,
    size: int | Sequence[int] | None = None,
    variables: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    group: str | None = None,
    names: Sequence[str] | None = None,
) -> Dataset:
    """Read every (image, labels) of a torch Dataset into memory.

    An image is a tensor or array, uint8 or floats in [0, 1], or a Pillow image; labels are a number, a row of numbers
    (named by `names=`), or a mapping from name to value. The other arguments are those of `load_folder`.
    """
    where, wanted = type(items).__name__, as_size(size)
    pictures: list[np.ndarray] = []
    rows: list[dict[str, Any]] = []
    for i, item in enumerate(progress(_items(items), len(items) if hasattr(items, "__len__") else 0, "reading images")):
        place = f"{where}, sample {i}"
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"{place} is a {type(item).__name__}, not a pair (image, labels); wrap the data set in one that returns pairs.")
        picture = _picture(item[0], place)
        pictures.append(picture if wanted is None else resize_image(picture, wanted))
        rows.append(_label_row(item[1], names, place))
        if pictures[i].shape != pictures[0].shape:
            raise DataError(f"{place} has shape {pictures[i].shape} but sample 0 has {pictures[0].shape} (C, H, W); make them alike, or pass size=.")
        if rows[i].keys() != rows[0].keys():
            raise DataError(f"{place} has the labels {list(rows[i])} but sample 0 has {list(rows[0])}; give every sample the same.")
    if not pictures:
        raise DataError(f"{where} has no samples; give one that has some.")
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    if group is not None and group not in table:
        raise unknown("group", group, table)
    images, notes = black_and_white(np.stack(pictures))
    return _assemble(
        where,
        images,
        table,
        where=where,
        variables=variables,
        kinds=kinds,
        group=group,
        groups=None if group is None else table[group],
        notes=notes,
        validation=validation,
        test=test,
        seed=seed,
    )


def _assemble(
    name: str,
    images: np.ndarray,
    table: Mapping[str, np.ndarray],
    *,
    where: str,
    variables: Sequence[str] | None,
    kinds: Mapping[str, str] | None,
    group: str | None,
    notes: Sequence[str],
    graph: CausalGraph | None = None,
    **splits: Any,
) -> Dataset:
    columns = decide_columns(
        table,
        rows=len(images),
        where=lambda row: f"{where}, sample {row}",
        variables=variables,
        kinds=kinds,
        not_variables=() if group is None else (group,),
    )
    if graph is not None:
        graph = restrict_graph(graph, [v.name for v in columns.variables], f"{where}: 'graph'")
    dataset = build_dataset(name, images, columns.labels, columns.variables, graph=graph, **splits)
    return replace(dataset, notes=(*columns.notes, *notes))


# ---- files of arrays ----------------------------------------------------------------------------------------------------
def read_arrays(path: Path, more: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The arrays of a file that `KEYS` names, and those called `more`; never unpickled, never from another file."""
    is_npz = path.suffix.lower() == ".npz"
    if is_npz and not zipfile.is_zipfile(path):
        raise DataError(f"{path.name} is not an .npz archive; save it with numpy.savez(path, images=..., labels=...).")
    read = _read_npz if is_npz else _read_h5
    uses = {**KEYS, **{key: (key,) for key in more}}
    try:
        with np.load(path, allow_pickle=False) if is_npz else h5py.File(path, "r") as content:
            present = {use: next((key for key in keys if key in content), None) for use, keys in uses.items()}
            about_labels = [key for use in ("names", "kinds", "graph") if (key := present[use]) is not None]
            for use, needed in (("images", True), ("labels", bool(about_labels))):
                if present[use] is None and needed:
                    wanted = " or ".join(map(repr, KEYS[use]))
                    advice = "rename or add it" + (f", or remove {about_labels[0]!r} where there are no labels" if use == "labels" else "")
                    raise DataError(f"{path.name} has no {wanted}, only {', '.join(sorted(content)) or 'nothing'}; {advice}.")
            return {use: _checked(read(content, key, path.name), key, path.name) for use, key in present.items() if key is not None}
    except IntervaeError:
        raise
    except Exception as error:  # a damaged file may raise nearly anything
        reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise DataError(f"{path.name} cannot be read ({reason}); check that it is a complete {path.suffix} file.") from None


def _read_npz(content: Any, key: str, where: str) -> np.ndarray:
    check_memory(content.zip.getinfo(f"{key}.npy").file_size, where, "store smaller arrays")
    try:
        return content[key]
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        raise DataError(f"{where}: {key!r} is an array of Python objects, which is refused as unsafe; store numbers or text.") from None


def _read_h5(content: Any, key: str, where: str) -> np.ndarray:
    node = content[key] if isinstance(content.get(key, getlink=True), h5py.HardLink) else None
    if not isinstance(node, h5py.Dataset) or node.external or node.is_virtual:
        raise DataError(f"{where}: {key!r} is not an array kept in this file itself; copy it into the file as a data set.")
    check_memory(node.size * node.dtype.itemsize, where, "store smaller arrays")
    if h5py.check_string_dtype(node.dtype) is not None:
        return np.array(node.asstr()[()], dtype=str)
    if node.dtype.kind not in "biuf":
        raise DataError(f"{where}: {key!r} is of type {node.dtype}; store numbers or text.")
    return node[()]


def _checked(value: np.ndarray, key: str, where: str) -> np.ndarray:
    value = np.asarray(value)
    if value.dtype.kind == "S":
        return np.char.decode(value, "utf-8")
    if value.dtype.kind not in "biufU" or (key in ("images", "test", "graph") and value.dtype.kind == "U"):
        raise DataError(f"{where}: {key!r} is of type {value.dtype}; store numbers.")
    return value


def _texts(values: Any, key: str, n: int, where: str) -> list[str]:
    texts = [str(text).strip() for text in np.atleast_1d(values)]
    if len(texts) != n:
        raise DataError(f"{where}: {key!r} has {len(texts)} entries for {n} labels; give one for each.")
    return texts


def _names(given: Any, n: int, where: str) -> list[str]:
    """The names of n labels, made up where none are given."""
    if given is None:
        return ["label"] if n == 1 else [f"label{i}" for i in range(n)]
    if isinstance(given, str):
        raise UsageError(f"names={given!r} must be a list of names, such as names=[{given!r}].")
    names = _texts(given, "names", n, where)
    if len(set(names)) != n or not all(names):
        raise DataError(f"{where}: the names of the labels must differ and not be empty, not {names}.")
    return names


def _mask(mask: np.ndarray | None, n: int, where: str) -> np.ndarray | None:
    if mask is None:
        return None
    if mask.shape != (n,) or not np.isin(mask, (0, 1)).all():
        raise DataError(f"{where}: 'test' must be a mask of {n} true or false, not {mask.dtype} of shape {mask.shape}.")
    return mask.astype(bool)


def _graph(names: Sequence[str], weights: np.ndarray | None, where: str) -> CausalGraph | None:
    try:
        return None if weights is None else CausalGraph(tuple(names), weights)
    except DataError as error:
        raise DataError(f"{where}: 'graph': {error}") from None


# ---- the samples of a torch Dataset -------------------------------------------------------------------------------------
def _items(items: Any) -> Iterator[Any]:
    if hasattr(items, "__getitem__") and hasattr(items, "__len__") and not isinstance(items, IterableDataset):
        return (items[i] for i in range(len(items)))
    return iter(items)


def _picture(image: Any, place: str) -> np.ndarray:
    """One image to (C, H, W) uint8."""
    if isinstance(image, Image.Image):
        return to_pixels(image)[0]
    array = np.asarray(image.detach().cpu() if isinstance(image, Tensor) else image)
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or 0 in array.shape:
        raise DataError(f"{place}: the image must be (C, H, W), (H, W, C) or (H, W), not of shape {array.shape}.")
    channels_last = array.shape[2] < array.shape[0]
    return to_bytes(array.transpose(2, 0, 1) if channels_last else array, f"{place}: the pixels")


def _label_row(labels: Any, names: Sequence[str] | None, place: str) -> dict[str, Any]:
    """One sample's labels by name."""
    if isinstance(labels, Mapping):
        return {str(name): _scalar(value, f"{place}: label {name!r}") for name, value in labels.items()}
    row = np.atleast_1d(np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels))
    if row.ndim != 1 or row.dtype.kind not in "biufU":
        raise DataError(f"{place}: labels must be numbers (n,) or a mapping from name to value, not {row.dtype} of shape {row.shape}.")
    return dict(zip(_names(names, len(row), place), row.tolist(), strict=True))


def _scalar(value: Any, place: str) -> Any:
    array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    if array.size != 1 or array.dtype.kind not in "biufU":
        raise DataError(f"{place} must be one number or text, not {array.dtype} of shape {array.shape}.")
    return array.item()
