"""Which variables determine which parts of the pictures: the smallest sets, effects before causes.

For a set S of variables every picture is predicted by the pixel-wise median of its nearest
neighbours in the labels of S (`neighbour_prediction.py`). Where S determines what is seen,
neighbours look alike and the prediction is right; where it does not, the median is the background.
Sets of one variable come first; a larger set counts only for what smaller ones leave unexplained,
and only if that is a notable share of what its variables explain there: where one object hides
another, medians are noisier, and the pair of both explains a little more.

Variables that determine each other (a shadow's length and position follow from rod and light) tie.
Ties are decided by the graph, sets with more pure effects first, and then by the smoothness of the
prediction: its error with many neighbours.

A variable of a group gets no layer of its own for the same object: the middle of a shadow follows
from its position alone, but the shadow is one thing.

Limits: an object that others hide in most pictures is not told apart from them. The cost is one
prediction of about 15 ms per set on one CPU thread, n (n + 1) / 2 sets for n variables: 1 s for 5
variables, 4 s for 20 and 10 s for 40. Beyond MAX_SETS sets the layers must be named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

import torch
from torch import Tensor

from intervae.causal.graph import CausalGraph
from intervae.discovery.neighbour_prediction import NeighbourPrediction
from intervae.errors import UsageError, unknown

NEIGHBOURS = 9
SINGLE_NEIGHBOURS = 27  # of one variable, whose neighbours are nearer, among ENOUGH pictures
ENOUGH = 900
MANY_NEIGHBOURS = 81
TIE = 0.8  # sets that explain this share of what the best one does are ties
SMALLEST_GAIN = 0.002  # of the deviation from the background, for a set to count
UNNEEDED = 0.5  # share of a set's gain that it may keep when one of its variables is shuffled
SMALLEST_SHARE = 0.17  # of a group in what it, its variables and groups explain in its region
FURTHER = 0.05  # of a variable's gain at a patch, for a group to explain the patch further
SAME_OBJECT = 0.68  # share of a variable's gain that a group explains further, to belong to it
SIGNIFICANT = 4.0  # standard errors between a gain and chance
ABOVE_CHANCE = 1.05  # times what chance explains at a patch, for a set to explain it
GROUP_REGION = 0.2  # of the group's largest gain at a pixel, for a pixel to be its own
MAX_SETS = 1000  # predicted in a search: pairs of 44 variables


@dataclass(frozen=True)
class ImageGroup:
    """Variables that together determine a part of the pictures.

    Arguments:
        variables: their names, in the order of the labels.
        explained: fraction of the pictures' deviation from the background that this set explains,
            beyond chance, and no smaller set and no earlier group does.
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
    known = None if groups is None else check_groups(groups, names)
    sets = sum(comb(len(names), size) for size in range(1, max_size + 1))
    if known is None and sets > MAX_SETS:
        raise UsageError(
            f"{len(names)} variables have {sets} sets of up to {max_size}, and a search tries at "
            f"most {MAX_SETS}; name the variables of each layer, as in layers=a,b+c."
        )
    prediction = NeighbourPrediction(images, labels, kinds or ["continuous"] * len(names), seed)
    search = _Search(prediction)
    if known is not None:
        for group in known:
            search.accept(tuple(names.index(name) for name in group))
        chosen = list(search.maps)
    else:
        leaves = {i for i, name in enumerate(names) if graph is None or not graph.children(name)}
        _search_singles(search, len(names))
        for size in range(2, max_size + 1):
            _search_groups(search, list(combinations(range(len(names)), size)), leaves, max_groups)
        chosen = search.without_repeated_objects()
    return [
        ImageGroup(
            tuple(names[i] for i in group),
            float(search.maps[group].sum()),
            search.maps[group].unflatten(0, prediction.shape),
        )
        for group in chosen
    ]


def _search_singles(search: _Search, count: int) -> None:
    candidates: list[tuple[int, ...]] = [(i,) for i in range(count)]
    while candidates:
        best = max(candidates, key=search.gain)
        if search.gain(best) < SMALLEST_GAIN:
            break
        if search.needs_all(best):
            search.accept(best)
        candidates.remove(best)


def _search_groups(
    search: _Search, candidates: list[tuple[int, ...]], leaves: set[int], max_groups: int
) -> None:
    """Accept sets of one size, the best of what is left first.

    Arguments:
        leaves: variables without effects in the graph.
    """
    while sum(len(group) > 1 for group in search.maps) < max_groups:
        # gains only fall, so that a set below the threshold stays there
        candidates = [group for group in candidates if search.counts(group)]
        if not candidates:
            break
        top = max(map(search.gain, candidates))
        tied = [group for group in candidates if search.gain(group) >= TIE * top]
        effects = max(len(leaves & set(group)) for group in tied)
        tied = [group for group in tied if len(leaves & set(group)) == effects]
        best = max(tied, key=search.smooth_gain) if len(tied) > 1 else tied[0]
        if search.share(best) >= SMALLEST_SHARE and search.needs_all(best):
            search.accept(best)
        candidates.remove(best)


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
    """What sets of variables explain of the pictures, beyond the sets accepted before.

    A gain is what the prediction from a set explains beyond chance, which is what the medians of
    random pictures explain.

    Attributes:
        maps: accepted sets, in their order, with their gains at each patch, (patches,), as
            fractions of the whole deviation from the background.
    """

    def __init__(self, prediction: NeighbourPrediction) -> None:
        self.prediction = prediction
        background = prediction.background.expand(len(prediction.queries), -1)
        self.left = prediction.error(background)  # (queries, patches), unexplained
        self.total = float(self.left.sum()) or 1.0
        self.composition = background.to(torch.int16)
        self.maps: dict[tuple[int, ...], Tensor] = {}
        self.errors: dict[tuple[int, ...], Tensor] = {}
        self.random_errors: dict[int, Tensor] = {}  # by the number of neighbours

    def gain(self, group: tuple[int, ...]) -> float:
        """Fraction of the deviation that this set explains and the accepted ones do not."""
        return self._gain(self._error(group), self._neighbours(group))

    def counts(self, group: tuple[int, ...]) -> bool:
        """Whether the gain is large enough; forgets the errors of a set for which it is not."""
        if self.gain(group) >= SMALLEST_GAIN:
            return True
        del self.errors[group]
        return False

    def smooth_gain(self, group: tuple[int, ...]) -> float:
        predicted = self.prediction.predict(group, MANY_NEIGHBOURS)
        return self._gain(self.prediction.error(predicted), MANY_NEIGHBOURS)

    def needs_all(self, group: tuple[int, ...]) -> bool:
        """Whether a gain is significant and shuffling any of the variables takes half of it."""
        count = self._neighbours(group)
        difference = self._explained(self._error(group)) - self._explained(self._random(count))
        by_query = difference.sum(1)
        if float(by_query.mean()) < SIGNIFICANT * float(by_query.std()) / len(by_query) ** 0.5:
            return False
        for i in group if len(group) > 1 else ():
            shuffled = self.prediction.predict(group, count, shuffled=i)
            if self._gain(self.prediction.error(shuffled), count) > UNNEEDED * self.gain(group):
                return False
        return True

    def share(self, group: tuple[int, ...]) -> float:
        """Share of a group in what it, its variables and earlier groups explain in its region."""
        gain = self._gain_map(group)
        inside = gain > GROUP_REGION * gain.max()
        others = [other for other in self.maps if len(other) > 1 or other[0] in group]
        own = float(gain[inside].sum())
        return own / (own + sum(float(self.maps[other][inside].sum()) for other in others) or 1.0)

    def accept(self, group: tuple[int, ...]) -> None:
        """Count the set as painted, alone and added to the sets accepted before."""
        error = self._error(group)
        self.maps[group] = self._gain_map(group)
        predicted = self.prediction.predict(group, self._neighbours(group)).to(torch.int16)
        self.composition += predicted - self.prediction.background
        together = self.prediction.error(self.composition.clamp(0, 255).to(torch.uint8))
        # elsewhere a prediction is right by chance only, which many sets would add up
        chance = self._explained(self._random(self._neighbours(group))).sum(0)
        inside = self._explained(error).sum(0) > ABOVE_CHANCE * chance
        better = torch.minimum(self.left, torch.minimum(error, together))
        self.left = torch.where(inside, better, self.left)

    def without_repeated_objects(self) -> list[tuple[int, ...]]:
        """Accepted sets, less single variables whose object a group paints."""
        large = [group for group in self.maps if len(group) > 1]
        return [
            group
            for group in self.maps
            if len(group) > 1 or not any(self._same_object(group, other) for other in large)
        ]

    def _same_object(self, single: tuple[int, ...], group: tuple[int, ...]) -> bool:
        """Whether a variable of a group explains mostly patches that the group explains further."""
        if single[0] not in group:
            return False
        alone, together = self.maps[single], self.maps[group]
        shared = alone[together > FURTHER * alone]
        return float(shared.sum()) > SAME_OBJECT * float(alone.sum())

    def _neighbours(self, group: tuple[int, ...]) -> int:
        many = len(group) == 1 and len(self.prediction.pictures) >= ENOUGH
        return SINGLE_NEIGHBOURS if many else NEIGHBOURS

    def _explained(self, error: Tensor) -> Tensor:
        """What a prediction with these errors explains, (queries, patches)."""
        return (self.left - error).clamp(min=0) / self.total

    def _gain(self, error: Tensor, neighbours: int) -> float:
        chance = self._explained(self._random(neighbours))
        return float(self._explained(error).sum() - chance.sum())

    def _gain_map(self, group: tuple[int, ...]) -> Tensor:
        chance = self._explained(self._random(self._neighbours(group)))
        return (self._explained(self._error(group)).sum(0) - chance.sum(0)).clamp(min=0)

    def _random(self, neighbours: int) -> Tensor:
        """Errors (queries, patches) of the medians of random pictures."""
        if neighbours not in self.random_errors:
            predicted = self.prediction.predict((), neighbours)
            self.random_errors[neighbours] = self.prediction.error(predicted)
        return self.random_errors[neighbours]

    def _error(self, group: tuple[int, ...]) -> Tensor:
        """Errors (queries, patches) of the prediction from this set alone."""
        if group not in self.errors:
            predicted = self.prediction.predict(group, self._neighbours(group))
            self.errors[group] = self.prediction.error(predicted)
        return self.errors[group]
