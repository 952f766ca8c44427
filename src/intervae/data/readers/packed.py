"""Black-and-white pictures kept as bits, an eighth of their size, and unpacked on the device when a batch needs them."""

from __future__ import annotations

import torch
from torch import Tensor

from intervae.data.base import Batch, Split


def unpack_bits(bits: Tensor) -> Tensor:
    """(..., W / 8) uint8, as `numpy.packbits` packs the last axis, to (..., W) uint8 of 0 and 1; nothing waits for the host."""
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=bits.device)
    return (bits.unsqueeze(-1) >> shifts).bitwise_and_(1).flatten(-2)


class PackedSplit(Split):
    """A split whose pictures are the field `bits` (N, C, H, W / 8) uint8, black 0 and white 1.

    `batch` and indexing touch only the rows that are asked for. `images` unpacks them all, one byte per pixel: take rows first,
    `split[:100].images`, where a split is large (the training split of the whole of dSprites would be 2.2 GB).
    """

    @property
    def images(self) -> Tensor:
        """(N, C, H, W) uint8 of 0 and 255, made anew at each call."""
        return unpack_bits(self.fields["bits"]).mul_(255)

    @property
    def shape(self) -> tuple[int, ...]:
        *front, packed = self.fields["bits"].shape
        return (*front, 8 * packed)

    def batch(self, rows: Tensor) -> Batch:
        batch = {name: tensor.index_select(0, rows) for name, tensor in self.fields.items()}
        return {"images": unpack_bits(batch.pop("bits")).float(), **batch}
