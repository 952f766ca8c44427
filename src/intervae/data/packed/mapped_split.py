"""MappedSplit: a Split whose images are rows of memory-mapped shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.data.dataset import Batch, Split
from intervae.data.packed.mapped_images import MappedImages
from intervae.data.packed.shards import ImageShards
from intervae.errors import DataError
from intervae.files import open_regular, parse_json

ROW = "stored_row"  # field (N,) int64: where an image is in the shards


class MappedSplit(Split):
    """A split whose images are read from the disk for each batch; labels are in memory.

    Arguments:
        shards: the images of all splits.
        fields: include `stored_row` (N,) int64, which is in no batch.
    """

    def __init__(self, shards: ImageShards, **fields: Tensor) -> None:
        self.shards = shards
        super().__init__(**fields)

    @property
    def images(self) -> Tensor:
        """(N, C, H, W) uint8 on the disk: `split.images[rows]` reads rows, see MappedImages."""
        return MappedImages(self.shards, self.stored_rows, self.device)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.shards.shape)

    @property
    def streamed(self) -> bool:
        return True

    @property
    def stored_rows(self) -> np.ndarray:
        """(N,) int64: where the images are in the shards."""
        return self.fields[ROW].cpu().numpy()

    def with_fields(self, fields: dict[str, Tensor]) -> Split:
        split = MappedSplit(self.shards, **fields) if ROW in fields else Split(**fields)
        split.file_names = self.file_names
        return split

    def batch(self, rows: Tensor) -> Batch:
        stored = self.fields[ROW].index_select(0, rows).cpu().numpy()
        return self.with_pixels(rows, torch.from_numpy(self.shards.read(stored)).to(self.device))

    def with_pixels(self, rows: Tensor, pixels: Tensor) -> Batch:
        """Return the batch of rows (B,) whose images (B, ...) uint8 have been read."""
        tensors = {"images": pixels}
        for name, tensor in self.fields.items():
            if name != ROW:
                tensors[name] = tensor.index_select(0, rows)
        return {
            name: t.float().div_(255) if t.dtype == torch.uint8 and t.ndim >= 4 else t
            for name, t in tensors.items()
        }


class FileNames(Sequence[str]):
    """Names of the images of a packed folder, read from `file_names.json` when first used."""

    def __init__(self, path: Path, rows: int) -> None:
        self.path, self.rows = path, rows
        self._names: list[str] | None = None

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: Any) -> Any:
        return self._read()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def _read(self) -> list[str]:
        if self._names is None:
            try:
                with open_regular(self.path) as file:
                    names = parse_json(file.read(), self.path, "names of the images")
            except OSError as error:
                raise DataError(f"{self.path} cannot be read: {error.strerror or error}.") from None
            if (
                not isinstance(names, list)
                or len(names) != self.rows
                or not all(isinstance(name, str) for name in names)
            ):
                raise DataError(f"{self.path} must be a list of {self.rows} names; pack again.")
            self._names = names
        return self._names
