"""One result type for every metric, so that tables and JSON come by themselves."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """A measured number; `float()` gives the headline.

    Arguments:
        metric: its name, the same everywhere (`r2_min`, `counterfactual_pixel_mae`, ...).
        value: the headline.
        n: samples it was measured on.
        per_variable: the same quantity for each variable or intervention.
        spread: standard deviation over repetitions or samples, where that means something.
        parameters: what the number depends on (seed, bins, which interventions, ...).
        higher_is_better: None where neither is.
        parts: the other numbers of a metric that has several, under their own names (`tpr` beside `shd`, ...).
    """

    metric: str
    value: float
    n: int
    per_variable: dict[str, float] = field(default_factory=dict)
    spread: float | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    higher_is_better: bool | None = None
    parts: dict[str, Measurement] = field(default_factory=dict)

    def __float__(self) -> float:
        return float(self.value)

    def rows(self) -> list[Measurement]:
        """The headline and every part as plain measurements without parts, for a table of one number a row."""
        headline = Measurement(self.metric, self.value, self.n, self.per_variable, self.spread, self.parameters, self.higher_is_better)
        return [headline, *(row for part in self.parts.values() for row in part.rows())]

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        if not self.parts:
            del found["parts"]
        else:
            found["parts"] = {name: part.to_json() for name, part in self.parts.items()}
        return found
