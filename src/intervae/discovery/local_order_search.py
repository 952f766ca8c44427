"""Search for a causal order of many variables: remove the last one, again and again.

A variable is last if its residual given its possible neighbours is independent of all others, as
in RESIT (Peters et al. 2014). Only neighbours of a removed variable have other residuals, so few
regressions are needed; moves of single variables then improve the order.
"""

from __future__ import annotations

from intervae.discovery.order_search import Placement, PlacementScorer, Variables

PASSES = 3  # over all variables, of moves that improve the order
REACH = 2  # neighbours that a move may pass, in each direction


class LocalOrderSearch:
    """Greedy order from the last variable to the first.

    Arguments:
        scorer: regressions and tests, with neighbours.
    """

    def __init__(self, scorer: PlacementScorer) -> None:
        self.scorer, self.neighbours = scorer, scorer.neighbours or []
        self.ambiguous: set[tuple[int, int]] = set()
        self.order = self._improve(self._search())
        self.placements = {v: self._place(v, self.order[:i]) for i, v in enumerate(self.order)}

    def _search(self) -> list[int]:
        """Return the order, causes first."""
        remaining: Variables = frozenset(range(len(self.neighbours)))
        order: list[int] = []
        while remaining:
            evidence = {}
            for variable in sorted(remaining):
                before = remaining - {variable}
                predictors = self.scorer.possible_parents(
                    before & self.neighbours[variable], variable
                )
                evidence[variable] = self.scorer.dependence(predictors, variable, before)
            # a required cause is removed after its effects
            causes = frozenset().union(*(self.scorer.required[i] for i in remaining))
            last = min(sorted(remaining - causes), key=lambda i: evidence[i])
            threshold = self.scorer.evidence_threshold
            if evidence[last] <= threshold:
                self.ambiguous |= {
                    (cause, last)
                    for cause in self.neighbours[last] & remaining - causes
                    if evidence[cause] <= threshold
                }
            order.append(last)
            remaining -= {last}
        return order[::-1]

    def _improve(self, order: list[int]) -> list[int]:
        """Move single variables past their neighbours while the score falls."""
        for _ in range(PASSES):
            before = list(order)
            for variable in before:
                order = min([order, *self._moves(order, variable)], key=self._score)
            if order == before:
                break
        return order

    def _moves(self, order: list[int], variable: int) -> list[list[int]]:
        """Orders with the variable moved past its next neighbours, if required causes allow it."""
        at = order.index(variable)
        earlier = [i for i in range(at) if order[i] in self.neighbours[variable]]
        later = [i for i in range(at + 1, len(order)) if order[i] in self.neighbours[variable]]
        rest = order[:at] + order[at + 1 :]
        moves = []
        for target in (*earlier[-REACH:], *later[:REACH]):
            passed = order[target:at] if target < at else order[at + 1 : target + 1]
            first, second = ({variable}, {*passed}) if target < at else ({*passed}, {variable})
            if not any(self.scorer.required[i] & second for i in first):
                moves.append([*rest[:target], variable, *rest[target:]])
        return moves

    def _score(self, order: list[int]) -> tuple[float, float]:
        """Score and evidence of an order."""
        placements = [self._place(variable, order[:i]) for i, variable in enumerate(order)]
        total = sum(placement.score for placement in placements)
        return round(total, 9), sum(placement.evidence for placement in placements)

    def _place(self, variable: int, placed: list[int]) -> Placement:
        return self.scorer.place(frozenset(placed), variable)
