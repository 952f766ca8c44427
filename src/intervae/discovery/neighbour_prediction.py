"""Pictures predicted from the labels of a few variables: the median of the nearest neighbours.

The median of 3^d neighbours is taken as the remedian of Rousseeuw and Bassett (1990), medians of
three d times over, because minima and maxima of bytes are fast: 400 predictions of 48 x 48 pixels
take 7 ms with 9 neighbours and 51 ms with 81, on one CPU thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, one_hot

QUERIES = 400  # pictures predicted from the others
REFERENCES = 4000  # pictures among which neighbours are searched
BACKGROUND_PICTURES = 1000  # whose median is the background
SIDE = 48  # pixels; larger pictures are shrunk
PATCH = 2  # pixels; errors are averaged over patches, so that pixel noise averages out
CHUNK = 50  # queries at a time, so that their neighbours stay in the processor's cache
CATEGORY_DISTANCE = 10.0  # between two categories, in standard deviations of a continuous label


class NeighbourPrediction:
    """Predictions (queries, pixels) of pictures from their labels, and their errors.

    Arguments:
        images: (N, C, H, W), uint8 or floats in [0, 1].
        labels: (N, n), normalised.
        kinds: of the columns of `labels`.

    Attributes:
        background: (pixels,) uint8, the median picture.
        shape: (rows, columns) of the patches.
    """

    def __init__(self, images: Tensor, labels: Tensor, kinds: Sequence[str], seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(images), generator=generator)[:REFERENCES]
        pictures = _shrink(images.index_select(0, rows.to(images.device))).cpu()
        self.image_shape = pictures.shape[1:]
        self.shape = avg_pool2d(pictures[:1, 0].float(), PATCH, ceil_mode=True).shape[1:]
        self.pictures = pictures.flatten(1)
        self.background = self.pictures[:BACKGROUND_PICTURES].median(0).values
        self.queries = torch.arange(min(QUERIES, len(rows)))
        chosen = labels[rows.to(labels.device)].cpu().float()
        # equal labels are ordered at random
        jitter = 1e-4 * torch.randn(chosen.shape, generator=generator)
        self.columns = [_column(chosen[:, i], kind, jitter[:, i]) for i, kind in enumerate(kinds)]
        self.order = torch.randperm(len(rows), generator=generator)
        self.random = torch.rand(len(rows), 1, generator=generator)

    def predict(
        self, chosen: tuple[int, ...], neighbours: int, shuffled: int | None = None
    ) -> Tensor:
        """Pixel-wise median of the nearest neighbours of each query, (queries, pixels) uint8.

        Arguments:
            chosen: variables that say which pictures are near; none for random neighbours.
            neighbours: number of neighbours, rounded down to a power of 3.
            shuffled: variable whose labels are shuffled, of `chosen`.
        """
        columns = [
            self.columns[i][self.order] if i == shuffled else self.columns[i] for i in chosen
        ]
        table = torch.cat(columns or [self.random], dim=1)
        distance = torch.cdist(table[self.queries], table)
        distance[self.queries, self.queries] = torch.inf
        count = 1
        while 3 * count <= min(neighbours, len(table) - 1):
            count *= 3
        nearest = distance.topk(count, largest=False).indices
        return torch.cat([self._median(rows) for rows in nearest.split(CHUNK)])

    def _median(self, rows: Tensor) -> Tensor:
        """Remedian of the pictures of `rows` (queries, 3^d), (queries, pixels)."""
        values = [self.pictures.index_select(0, column) for column in rows.T.contiguous()]
        while len(values) > 1:
            third = len(values) // 3
            # the i-th of each third: every median is of near and far neighbours
            values = [_median_of_three(*values[i::third]) for i in range(third)]
        return values[0]

    def error(self, prediction: Tensor) -> Tensor:
        """Mean absolute errors in [0, 255] of the queries' patches, (queries, patches)."""
        pictures = self.pictures[: len(self.queries)]
        error = torch.maximum(pictures, prediction) - torch.minimum(pictures, prediction)
        colours = error.unflatten(1, self.image_shape).float().mean(1)
        return avg_pool2d(colours, PATCH, ceil_mode=True).flatten(1)


def _median_of_three(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.maximum(torch.minimum(a, b), torch.minimum(torch.maximum(a, b), c))


def _shrink(images: Tensor) -> Tensor:
    """uint8 with at most SIDE pixels on the longer side."""
    longest = max(images.shape[-2:])
    if longest > SIDE:
        size = [max(PATCH, round(side * SIDE / longest)) for side in images.shape[-2:]]
        floats = [interpolate(part.float(), size=size, mode="area") for part in images.split(256)]
        images = torch.cat([_bytes(part, images.dtype) for part in floats])
    return images if images.dtype == torch.uint8 else _bytes(images, images.dtype)


def _bytes(values: Tensor, dtype: torch.dtype) -> Tensor:
    scale = 1.0 if dtype == torch.uint8 else 255.0
    return (values * scale).round().clamp(0, 255).to(torch.uint8)


def _column(values: Tensor, kind: str, jitter: Tensor) -> Tensor:
    if kind == "categorical":
        codes = one_hot(values.round().long() - int(values.min())).float()
        return CATEGORY_DISTANCE * codes + jitter[:, None]
    return (values + jitter)[:, None]
