"""PackedSplit: black-and-white images stored as bits, unpacked on the device per batch."""

from __future__ import annotations

import torch
from torch import Tensor

from intervae.data.dataset import Batch, Split


def unpack_bits(bits: Tensor) -> Tensor:
    """Unpack (..., W / 8) uint8, as from `numpy.packbits`, to (..., W) uint8 of 0 and 1.

    There is no synchronisation with the host.
    """
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=bits.device)
    return (bits.unsqueeze(-1) >> shifts).bitwise_and_(1).flatten(-2)


class PackedSplit(Split):
    """A split whose images are the field `bits` (N, C, H, W / 8) uint8, black 0 and white 1.

    `batch` and indexing unpack only their rows; `images` unpacks all, so take rows of a large
    split first: `split[:100].images`.
    """

    @property
    def images(self) -> Tensor:
        """(N, C, H, W) uint8 of 0 and 255, unpacked at each call."""
        return unpack_bits(self.fields["bits"]).mul_(255)

    @property
    def shape(self) -> tuple[int, ...]:
        *front, packed = self.fields["bits"].shape
        return (*front, 8 * packed)

    def batch(self, rows: Tensor) -> Batch:
        batch = {name: tensor.index_select(0, rows) for name, tensor in self.fields.items()}
        return {"images": unpack_bits(batch.pop("bits")).float(), **batch}
