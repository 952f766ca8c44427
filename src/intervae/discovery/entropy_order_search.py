"""Search for the causal order whose noises have the least entropy, for many variables.

The map from the variables to their noises keeps volume. So the entropies of the noises exceed the
entropy of the variables by the noises' multi-information, and the order with the least sum is that
with the least dependent noises (the maximum likelihood of an additive noise model, Peters et al.
2014). Neighbours and parents are greedy kernel regressions. Single variables are moved in the order
while the sum falls; complete orders are compared, as the sum of a part depends on which part it is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intervae.discovery.greedy_regressions import GreedyRegressions, Variables
from intervae.discovery.knowledge import EdgeConstraints

PASSES = 10  # over all variables, of moves that improve the order
STARTS = 3  # random orders
KICKS = 20  # random changes of the best order, from each of which it is improved again
KICKED = 3  # variables that are moved to random places
AMBIGUOUS_NATS = 3.5  # by which the order with the reversed edge may be worse; p = 0.03


class EntropyOrderSearch:
    """Iterated local search over orders, from random ones; the best of all counts.

    Arguments:
        regressions: of the standardised table.
        constraints: allowed and required edges.
        resolution: smallest residual standard deviation that counts.
        seed: of the first orders.

    Attributes:
        neighbours: (n, n) of bool, symmetric: pairs of which one predicts the other, given others.
        order: causes before effects.
        parents: of each variable.
        ambiguous: edges (cause, effect) of which an order with the reversed edge is as good.
    """

    def __init__(
        self,
        regressions: GreedyRegressions,
        constraints: EdgeConstraints,
        resolution: float,
        seed: int,
    ) -> None:
        self.regressions, self.resolution = regressions, resolution
        self.n = regressions.variables
        self.allowed = [_variables(column) for column in constraints.allowed.T]
        self.required = [_variables(column) for column in constraints.required.T]
        everything = frozenset(range(self.n))
        self.blankets = [regressions.choose(i, everything - {i}) for i in range(self.n)]
        self.neighbours = constraints.required | constraints.required.T
        for i, blanket in enumerate(self.blankets):
            self.neighbours[sorted(blanket), i] = self.neighbours[i, sorted(blanket)] = True
        self._near = [_variables(row) for row in self.neighbours]
        self._placed: dict[tuple[Variables, int], tuple[float, Variables]] = {}
        self._seed = seed

    def has_determined(self) -> bool:
        """Whether others determine a variable, up to the resolution; it has no noise then."""
        errors = (self.regressions.error(b, i) for i, b in enumerate(self.blankets))
        return min(errors) <= self.resolution**2

    def run(self) -> None:
        """Search; sets `order`, `parents` and `ambiguous`."""
        rng = np.random.default_rng(self._seed)
        starts = [self._sorted(rng.permutation(self.n).tolist()) for _ in range(STARTS)]
        self.order = min((self._improve(start) for start in starts), key=self._total)
        for _ in range(KICKS):
            kicked = self._improve(self._kick(self.order, rng))
            self.order = min(self.order, kicked, key=self._total)
        before = {v: frozenset(self.order[:i]) for i, v in enumerate(self.order)}
        # the parents of the best order are chosen among all before, neighbours or not
        self.parents = {
            v: self.regressions.choose(v, before[v] & self.allowed[v], self.required[v])
            for v in self.order
        }
        self.ambiguous = {
            (cause, effect)
            for effect, parents in self.parents.items()
            for cause in parents - self.required[effect]
            if self._reversed_total(cause, effect) <= self._total(self.order) + AMBIGUOUS_NATS
        }

    def _improve(self, order: list[int]) -> list[int]:
        """Move single variables next to their neighbours while the total falls."""
        total = self._total(order)
        for _ in range(PASSES):
            before = total
            for variable in list(order):
                best = min(self._moves(order, variable), key=self._total, default=order)
                if self._total(best) < total - 1e-6:
                    order, total = best, self._total(best)
            if total == before:
                break
        return order

    def _kick(self, order: list[int], rng: np.random.Generator) -> list[int]:
        """Move a few variables to random places."""
        moved = rng.permutation(self.n)[:KICKED].tolist()
        order = [v for v in order if v not in moved]
        for variable in moved:
            order.insert(int(rng.integers(len(order) + 1)), variable)
        return self._sorted(order)

    def _moves(self, order: list[int], variable: int) -> Iterator[list[int]]:
        """Orders with the variable before or after one of its neighbours, or at an end."""
        rest = [v for v in order if v != variable]
        near = [place for place, v in enumerate(rest) if v in self._near[variable]]
        for place in sorted({0, len(rest), *near, *(place + 1 for place in near)}):
            moved = [*rest[:place], variable, *rest[place:]]
            if moved != order and self._is_allowed(moved):
                yield moved

    def _reversed_total(self, cause: int, effect: int) -> float:
        """Lowest total of the order with the effect just before the cause, or the other way."""
        rest = [v for v in self.order if v not in (cause, effect)]
        totals = [np.inf]
        for place in (self.order.index(cause), self.order.index(effect) - 1):
            moved = [*rest[:place], effect, cause, *rest[place:]]
            if self._is_allowed(moved) and effect in self.allowed[cause]:
                totals.append(self._total(moved))
        return min(totals)

    def _total(self, order: list[int]) -> float:
        """Entropies of the noises in nats times rows, and the price of the edges."""
        total, before = 0.0, set[int]()
        for variable in order:
            total += self._place(variable, before)
            before.add(variable)
        return round(total, 6)

    def _place(self, variable: int, before: set[int]) -> float:
        """Entropy and price of a variable after others; its parents are neighbours."""
        candidates = self._near[variable] & before & self.allowed[variable]
        key = candidates, variable
        if key not in self._placed:
            parents = self.regressions.choose(
                variable, candidates | self.required[variable], self.required[variable]
            )
            noise = self.regressions.residuals(parents, variable)
            nats = self.regressions.rows * entropy(noise, self.resolution)
            self._placed[key] = nats + self.regressions.price * len(parents), parents
        return self._placed[key][0]

    def _is_allowed(self, order: list[int]) -> bool:
        """Whether all required causes are before their effects."""
        place = {v: i for i, v in enumerate(order)}
        return all(place[j] < place[i] for i, causes in enumerate(self.required) for j in causes)

    def _sorted(self, order: list[int]) -> list[int]:
        """The order with required causes first."""
        done: list[int] = []
        while len(done) < len(order):
            done.append(next(v for v in order if v not in done and self.required[v] <= {*done}))
        return done


def entropy(noise: np.ndarray, resolution: float) -> float:
    """Differential entropy in nats of values (N,), by spacings (Ebrahimi et al. 1994).

    The standard deviation is at least the resolution.
    """
    rows = len(noise)
    spread = max(float(noise.std()), resolution)
    u = np.sort((noise - noise.mean()) / max(float(noise.std()), 1e-300))
    m = round(np.sqrt(rows))
    low = np.concatenate([np.full(m, u[0]), u[:-m]])
    high = np.concatenate([u[m:], np.full(m, u[-1])])
    rank = np.arange(rows)
    width = 1.0 + np.minimum(np.minimum(rank, rows - 1 - rank) / m, 1.0)  # in units of m spacings
    spacings = np.maximum(high - low, 1e-12) * rows / (width * m)
    return float(np.log(spacings).mean() + np.log(spread))


def _variables(mask: np.ndarray) -> Variables:
    return frozenset(np.flatnonzero(mask).tolist())
