"""MappedImages: a tensor of images that stay on the disk until rows are taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from intervae.data.memory import check_memory
from intervae.data.packed.shards import ImageShards

METADATA = frozenset({"size", "dim", "numel", "__len__", "is_floating_point", "is_complex"})
ADVICE = "take rows first, such as split[:1000].images or split.chunks()"


class MappedImages(Tensor):
    """(N, C, H, W) or (N, T, C, H, W) uint8 on the disk.

    Its shape, type and length are known without reading. `images[rows]`, `index_select` along the
    first axis and iteration read only their rows and return tensors in memory; `split` returns
    parts that are on the disk too. Every other operation reads all images first, after a check that
    they fit into memory.

    Arguments:
        shards: the files.
        rows: (N,) int64 numbers of the images in the shards.
        device: where tensors in memory are put.
    """

    shards: ImageShards
    rows: np.ndarray

    @staticmethod
    def __new__(
        cls, shards: ImageShards, rows: np.ndarray, device: torch.device | str = "cpu"
    ) -> MappedImages:
        shape = (len(rows), *shards.shape)
        images = Tensor._make_wrapper_subclass(
            cls, shape, dtype=torch.uint8, device=torch.device(device)
        )
        images.shards, images.rows = shards, rows
        return images

    def __init__(self, *_: Any) -> None:
        super().__init__()

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        is_first = bool(args) and isinstance(args[0], MappedImages)
        if name == "__get__" or name in METADATA:
            return super().__torch_function__(func, types, args, kwargs)
        if is_first and func is Tensor.__getitem__:
            return args[0].take_rows(args[1])
        if is_first and name == "__iter__":
            return (args[0].take_rows(i) for i in range(len(args[0])))
        if is_first and name == "index_select" and tuple(args[1:2]) == (0,) and len(args) == 3:
            return args[0].take_rows(args[2])
        if is_first and name == "split" and len(args) == 2 and isinstance(args[1], int):
            return args[0].split_rows(args[1])
        if is_first and name == "__repr__":
            return f"MappedImages(shape={tuple(args[0].shape)}, on the disk)"
        args, kwargs = tree_map_only(MappedImages, MappedImages.read, (args, kwargs))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        args, kwargs = tree_map_only(MappedImages, MappedImages.read, (args, kwargs or {}))
        return func(*args, **kwargs)

    def read(self) -> Tensor:
        """Return all images as a tensor in memory."""
        check_memory(len(self.rows) * self.shards.row_bytes, "packed data", ADVICE)
        return torch.from_numpy(self.shards.read(self.rows)).to(self.device)

    def split_rows(self, rows: int) -> tuple[MappedImages, ...]:
        """Return parts of at most `rows` images, none of which is read."""
        return tuple(
            MappedImages(self.shards, self.rows[start : start + rows], self.device)
            for start in range(0, len(self.rows), rows)
        )

    def take_rows(self, index: Any) -> Tensor:
        """Return `images[index]` as a tensor in memory; only its rows are read."""
        first, *rest = index if isinstance(index, tuple) and index else (index,)
        if first is None or first is Ellipsis or isinstance(first, bool):
            return self.read()[index]
        if isinstance(first, Tensor):
            first = first.cpu().numpy()
        elif not isinstance(first, slice):
            first = np.asarray(first) if len(np.shape(first)) else first
        if isinstance(first, np.ndarray) and first.dtype == bool and first.ndim > 1:
            return self.read()[index]
        if isinstance(first, np.ndarray) and not first.size:
            first = first.astype(np.int64) if first.dtype != bool else first
        chosen = np.asarray(self.rows[first])  # (), of one image, or of any shape
        check_memory(chosen.size * self.shards.row_bytes, "packed data", ADVICE)
        images = torch.from_numpy(self.shards.read(chosen.reshape(-1))).to(self.device)
        images = images.reshape(*chosen.shape, *self.shards.shape)
        return images[(slice(None),) * chosen.ndim + tuple(rest)] if rest else images
