"""`load_torch`: a torch Dataset of (image, labels) pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset

from intervae.data.array_files import label_names
from intervae.data.build import build_from_columns
from intervae.data.dataset import Dataset
from intervae.data.image_files import to_pixels
from intervae.data.image_sinks import ImageSink, MemorySink
from intervae.data.pixel_arrays import BLACK_AND_WHITE, as_size, resize_image, to_bytes
from intervae.data.progress import progress
from intervae.errors import DataError, unknown


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
    sink: ImageSink | None = None,
) -> Dataset:
    """Read every (image, labels) of a torch Dataset into memory, or into another `sink`.

    An image is a tensor or array, uint8 or floats in [0, 1], or a Pillow image; labels are a
    number, a row of numbers named by `names`, or a mapping from name to value. The other arguments
    are those of `load_folder`.
    """
    source, target = type(items).__name__, as_size(size)
    sink, highest = sink or MemorySink(), 0
    rows: list[dict[str, Any]] = []
    total = len(items) if hasattr(items, "__len__") else 0
    for i, item in enumerate(progress(_iterate(items), total, "reading images")):
        where = f"{source}, sample {i}"
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(
                f"{where} is a {type(item).__name__}, not a pair (image, labels); "
                "wrap the data set in one that returns pairs."
            )
        image = _image_to_pixels(item[0], where)
        image = image if target is None else resize_image(image, target)
        rows.append(_label_row(item[1], names, where))
        if i == 0:
            sink.open(total or None, image.shape, where)
        if image.shape != sink.shape:
            raise DataError(
                f"{where} has shape {image.shape} but sample 0 has {sink.shape} "
                "(C, H, W); make them alike, or pass size=."
            )
        sink.append(image)
        highest = max(highest, int(image.max()))
        if rows[i].keys() != rows[0].keys():
            raise DataError(
                f"{where} has the labels {list(rows[i])} but sample 0 has {list(rows[0])}; "
                "give every sample the same."
            )
    if not rows:
        raise DataError(f"{source} has no samples; give one that has some.")
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    if group is not None and group not in table:
        raise unknown("group", group, table)
    pixels = sink.finish(255 if highest <= 1 else 1)
    return build_from_columns(
        source,
        pixels,
        table,
        where=source,
        variables=variables,
        kinds=kinds,
        group=group,
        groups=None if group is None else table[group],
        notes=[BLACK_AND_WHITE] if highest <= 1 else [],
        validation=validation,
        test=test,
        seed=seed,
    )


def _iterate(items: Any) -> Iterator[Any]:
    """Iterate by index where that works, as a map-style Dataset may lack `__iter__`."""
    has_index = hasattr(items, "__getitem__") and hasattr(items, "__len__")
    if has_index and not isinstance(items, IterableDataset):
        return (items[i] for i in range(len(items)))
    return iter(items)


def _image_to_pixels(image: Any, where: str) -> np.ndarray:
    """Return one image as (C, H, W) uint8."""
    if isinstance(image, Image.Image):
        return to_pixels(image)[0]
    array = np.asarray(image.detach().cpu() if isinstance(image, Tensor) else image)
    array = array[None] if array.ndim == 2 else array
    if array.ndim != 3 or 0 in array.shape:
        raise DataError(
            f"{where}: the image must be (C, H, W), (H, W, C) or (H, W), "
            f"not of shape {array.shape}."
        )
    channels_last = array.shape[2] < array.shape[0]
    return to_bytes(array.transpose(2, 0, 1) if channels_last else array, f"{where}: the pixels")


def _label_row(labels: Any, names: Sequence[str] | None, where: str) -> dict[str, Any]:
    """Return the labels of one sample by name."""
    if isinstance(labels, Mapping):
        return {
            str(name): _scalar(value, f"{where}: label {name!r}") for name, value in labels.items()
        }
    row = np.atleast_1d(np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels))
    if row.ndim != 1 or row.dtype.kind not in "biufU":
        raise DataError(
            f"{where}: labels must be numbers (n,) or a mapping from name to value, "
            f"not {row.dtype} of shape {row.shape}."
        )
    return dict(zip(label_names(names, len(row), where), row.tolist(), strict=True))


def _scalar(value: Any, where: str) -> Any:
    array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    if array.size != 1 or array.dtype.kind not in "biufU":
        raise DataError(
            f"{where} must be one number or text, not {array.dtype} of shape {array.shape}."
        )
    return array.item()
