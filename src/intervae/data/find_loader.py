"""`find_loader`: the function that reads a source which is no registered name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from intervae.causal.dense import check_dense
from intervae.data import registry
from intervae.data.array_files import load_arrays
from intervae.data.hugging_face import (
    is_hugging_face,
    is_saved_dataset,
    load_hugging_face,
    load_saved_dataset,
)
from intervae.data.image_folder import load_folder
from intervae.data.packed.read import is_packed, load_packed
from intervae.data.registry import Loader
from intervae.data.torch_dataset import load_torch
from intervae.data.webdataset import is_folder_of_tars, is_tar, load_tars
from intervae.errors import UsageError, unknown
from intervae.files import as_path

SOURCES = (
    "a folder of images with or without a labels.csv, an .npz or .h5 file, packed data, a Hugging "
    "Face data set or .parquet file, webdataset .tar files, or a torch Dataset of (image, labels)"
)


def find_loader(source: Any) -> tuple[Loader, dict[str, str]]:
    """Return the loader of a path or object, and the entry for `Dataset.source`."""
    if isinstance(source, str | os.PathLike):
        path = Path(os.path.abspath(as_path(source, "source").expanduser()))
        if path.is_dir() and is_packed(path):
            return load_packed, {"path": str(path)}
        if path.is_dir() and is_saved_dataset(path):
            return load_saved_dataset, {"path": str(path)}
        if path.suffix.lower() == ".parquet" and path.is_file():
            return load_saved_dataset, {"path": str(path)}
        if is_tar(path) or (path.is_dir() and is_folder_of_tars(path)):
            return load_tars, {"path": str(path)}
        if path.is_dir():
            return load_folder, {"path": str(path)}
        if path.suffix.lower() in (".npz", ".h5", ".hdf5") and path.is_file():
            return load_arrays, {"path": str(path)}
        if path.exists():
            raise UsageError(
                f"{path} is neither a folder nor an .npz, .h5, .parquet or .tar file; "
                f"load_data (--data) takes a registered name, {SOURCES}."
            )
        text = str(unknown("data set", str(source), registry.DATASETS)).removesuffix(".")
        raise UsageError(
            f"{text}; there is no file or folder of that name either: "
            f"load_data (--data) also takes {SOURCES}."
        )
    if isinstance(source, Tensor):
        check_dense(source, "the data", UsageError)
    if is_hugging_face(source):
        return load_hugging_face, {"object": type(source).__name__}
    is_iterable = hasattr(source, "__getitem__") or hasattr(source, "__iter__")
    if isinstance(source, Mapping) or not is_iterable:
        raise UsageError(
            f"load_data cannot read a {type(source).__name__}; give a registered name, {SOURCES}."
        )
    return load_torch, {"object": type(source).__name__}
