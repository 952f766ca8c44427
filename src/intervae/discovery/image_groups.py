"""Which variables determine which parts of the pictures: the smallest sets, effects before causes.

For a set S of variables every picture is predicted by the pixel-wise median of its nearest
neighbours in the labels of S. Where S determines what is seen, neighbours look alike and the
prediction is right; where it does not, the median is the background. Sets of one variable come
first; a larger set counts only for what smaller ones leave unexplained.

Variables that determine each other (a shadow's length and position follow from rod and light) tie.
Ties are decided by the graph, sets with more pure effects first, and then by the smoothness of the
prediction: its error with many neighbours.

A variable of a group gets no layer of its own for the same object: the middle of a shadow follows
from its position alone, but the shadow is one thing.

Cost: one prediction per set, O(n^2) sets for n variables, about 0.1 s each on one CPU thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, one_hot

from intervae.causal.graph import CausalGraph
from intervae.errors import UsageError, unknown

QUERIES = 400  # pictures predicted from the others
REFERENCES = 4000  # pictures among which neighbours are searched
SIDE = 48  # pixels; larger pictures are shrunk
PATCH = 2  # pixels; errors are summed over patches, so that pixel noise averages out
NEIGHBOURS = 8
MANY_NEIGHBOURS = 96
TIE = 0.8  # sets that explain this share of what the best one does are ties
SMALLEST_GAIN = 0.002  # of the deviation from the background, for a set to count
CHANCE = 0.5  # share of a set's gain that it may keep when one of its variables is shuffled
SAME_OBJECT = 0.65  # share of a single variable's pixels that a group paints too, to belong to it
GROUP_REGION = 0.2  # of the group's largest gain at a pixel, for a pixel to be its own
CATEGORY_DISTANCE = 10.0  # between two categories, in standard deviations of a continuous label


@dataclass(frozen=True)
class ImageGroup:
    """Variables that together determine a part of the pictures.

    Arguments:
        variables: their names, in the order of the labels.
        explained: fraction of the pictures' deviation from the background that no smaller set and
            no earlier group explains.
        gain_map: (rows, columns), where in the pictures that is; its sum is `explained`.
    """

    variables: tuple[str, ...]
    explained: float
    gain_map: Tensor = field(repr=False, compare=False)

    def __str__(self) -> str:
        return "+".join(self.variables)


def find_image_groups(
    images: Tensor,
    labels: Tensor,
    names: Sequence[str],
    *,
    kinds: Sequence[str] | None = None,
    graph: CausalGraph | None = None,
    groups: Sequence[Sequence[str]] | None = None,
    max_size: int = 2,
    max_groups: int = 3,
    seed: int = 0,
) -> list[ImageGroup]:
    """Find the sets of variables that paint the pictures.

    Arguments:
        images: (N, C, H, W), uint8 or floats in [0, 1].
        labels: (N, n), normalised: continuous columns of unit variance, codes of categories.
        kinds: of the columns; "categorical" ones are compared for equality.
        graph: over `names`, known or learned; without it no set is preferred for its effects.
        groups: known groups; they are measured in their order and nothing is searched.
        max_size: number of variables in a group.
        max_groups: number of groups of two or more variables.

    Returns:
        Groups of one variable, strongest first, then larger ones. A variable in none of them is not
        visible in the pictures.
    """
    if images.ndim != 4 or labels.shape != (len(images), len(names)):
        raise UsageError(
            f"images must be (N, C, H, W) and labels (N, {len(names)}), not "
            f"{tuple(images.shape)} and {tuple(labels.shape)}."
        )
    search = _Search(images, labels, kinds or ["continuous"] * len(names), seed)
    chosen_groups: list[tuple[int, ...]] = []
    maps: dict[tuple[int, ...], Tensor] = {}

    def accept(chosen: tuple[int, ...]) -> None:
        maps[chosen] = search.accept(chosen)
        chosen_groups.append(chosen)

    def result(group: tuple[int, ...]) -> ImageGroup:
        explained = float(maps[group].sum())
        return ImageGroup(tuple(names[i] for i in group), explained, search.as_map(maps[group]))

    if groups is not None:
        for known in check_groups(groups, names):
            accept(tuple(names.index(name) for name in known))
        return [result(group) for group in chosen_groups]

    singles: list[tuple[int, ...]] = [(i,) for i in range(len(names))]
    while singles:
        best = max(singles, key=search.gain)
        if search.gain(best) < SMALLEST_GAIN:
            break
        if search.needs_all(best):
            accept(best)
        singles.remove(best)
    leaves = {i for i, name in enumerate(names) if graph is None or not graph.children(name)}
    for size in range(2, max_size + 1):
        candidates = list(combinations(range(len(names)), size))
        while candidates and sum(len(group) > 1 for group in chosen_groups) < max_groups:
            top = max(search.gain(chosen) for chosen in candidates)
            if top < SMALLEST_GAIN:
                break
            tied = [chosen for chosen in candidates if search.gain(chosen) >= TIE * top]
            effects = max(len(leaves & set(chosen)) for chosen in tied)
            tied = [chosen for chosen in tied if len(leaves & set(chosen)) == effects]
            best = max(tied, key=search.smooth_gain)
            if search.needs_all(best):
                accept(best)
            candidates.remove(best)
    large = [group for group in chosen_groups if len(group) > 1]
    return [
        result(group)
        for group in chosen_groups
        if len(group) > 1 or not any(_same_object(maps, group, other) for other in large)
    ]


def _same_object(
    maps: dict[tuple[int, ...], Tensor], single: tuple[int, ...], group: tuple[int, ...]
) -> bool:
    """Whether a variable of a group explains mostly pixels that the group explains further."""
    if single[0] not in group:
        return False
    region = maps[group] > GROUP_REGION * maps[group].max()
    return float(maps[single][region].sum()) > SAME_OBJECT * float(maps[single].sum())


def check_groups(groups: Iterable[Iterable[str]], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return known groups in the order of the labels; raise an error for wrong names."""
    result = []
    for group in groups:
        members = tuple(group)
        for name in members:
            if name not in names:
                raise unknown("variable in a layer", name, names)
        if not members or len(set(members)) < len(members):
            raise UsageError(f"a layer of {list(members)} needs distinct variables, at least one.")
        result.append(tuple(name for name in names if name in members))
    return result


class _Search:
    """Errors of the predictions (queries, patches), and what the accepted sets leave of them."""

    def __init__(self, images: Tensor, labels: Tensor, kinds: Sequence[str], seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(images), generator=generator)[:REFERENCES]
        self.pictures = _shrink(images[rows.to(images.device)]).cpu()
        chosen = labels[rows.to(labels.device)].cpu().float()
        # equal labels are ordered at random
        jitter = 1e-4 * torch.randn(chosen.shape, generator=generator)
        self.columns = [_column(chosen[:, i], kind, jitter[:, i]) for i, kind in enumerate(kinds)]
        self.shuffle = torch.randperm(len(chosen), generator=generator)
        self.queries = torch.arange(min(QUERIES, len(rows)))
        self.background = self.pictures.median(0).values
        self.shape = avg_pool2d(self.background[:1], PATCH, ceil_mode=True).shape[1:]
        self.error = self._pool((self.pictures[self.queries] - self.background).abs())
        self.total = float(self.error.sum()) or 1.0
        self.composition = self.background.expand(len(self.queries), *self.background.shape).clone()
        self.cache: dict[tuple[tuple[int, ...], int], Tensor] = {}

    def gain(self, chosen: tuple[int, ...]) -> float:
        """Fraction of the deviation that this set explains and the accepted ones do not."""
        return self._gain(chosen, NEIGHBOURS)

    def smooth_gain(self, chosen: tuple[int, ...]) -> float:
        return self._gain(chosen, MANY_NEIGHBOURS)

    def _gain(self, chosen: tuple[int, ...], neighbours: int) -> float:
        if (chosen, neighbours) not in self.cache:
            self.cache[chosen, neighbours] = self._error(self._predict(chosen, neighbours))
        left = (self.error - self.cache[chosen, neighbours]).clamp(min=0)
        return float(left.sum()) / self.total

    def needs_all(self, chosen: tuple[int, ...]) -> bool:
        """Whether shuffling any of its variables takes away half of what a set explains."""
        gain, columns = self.gain(chosen), self.columns
        for i in chosen:
            self.columns = [
                column[self.shuffle] if j == i else column for j, column in enumerate(columns)
            ]
            error = self._error(self._predict(chosen, NEIGHBOURS))
            self.columns = columns
            left = float((self.error - error).clamp(min=0).sum()) / self.total
            if left > CHANCE * gain:
                return False
        return True

    def accept(self, chosen: tuple[int, ...]) -> Tensor:
        """Count the set as painted, alone and added to the sets accepted before.

        Returns its gain at each patch, (patches,), as fractions of the whole deviation.
        """
        self.gain(chosen)
        gain = (self.error - self.cache[chosen, NEIGHBOURS]).clamp(min=0).sum(0) / self.total
        self.error = torch.minimum(self.error, self.cache[chosen, NEIGHBOURS])
        self.composition += self._predict(chosen, NEIGHBOURS) - self.background
        self.error = torch.minimum(self.error, self._error(self.composition))
        return gain

    def _predict(self, chosen: tuple[int, ...], neighbours: int) -> Tensor:
        """Pixel-wise median of the nearest neighbours of each query, (queries, C, H, W)."""
        table = torch.cat([self.columns[i] for i in chosen], dim=1)
        distance = torch.cdist(table[self.queries], table)
        distance[self.queries, self.queries] = torch.inf
        nearest = distance.topk(min(neighbours, len(table) - 1), largest=False).indices
        return torch.cat([self.pictures[rows].median(1).values for rows in nearest.split(50)])

    def _error(self, prediction: Tensor) -> Tensor:
        return self._pool((self.pictures[self.queries] - prediction).abs())

    def as_map(self, gain: Tensor) -> Tensor:
        """Gains (patches,) to (rows, columns)."""
        return gain.unflatten(0, self.shape)

    def _pool(self, error: Tensor) -> Tensor:
        return avg_pool2d(error.mean(1, keepdim=True), PATCH, ceil_mode=True).flatten(1)


def _shrink(images: Tensor) -> Tensor:
    """Floats in [0, 1] with at most SIDE pixels on the longer side."""
    pictures = images.float() / 255 if images.dtype == torch.uint8 else images.float()
    longest = max(pictures.shape[-2:])
    if longest <= SIDE:
        return pictures
    size = [max(PATCH, round(side * SIDE / longest)) for side in pictures.shape[-2:]]
    return interpolate(pictures, size=size, mode="area")


def _column(values: Tensor, kind: str, jitter: Tensor) -> Tensor:
    if kind == "categorical":
        codes = one_hot(values.round().long() - int(values.min())).float()
        return CATEGORY_DISTANCE * codes + jitter[:, None]
    return (values + jitter)[:, None]
