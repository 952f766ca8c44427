"""One result type for every metric, so that tables and JSON come by themselves."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """A measured number.

    Arguments:
        metric: its name, the same everywhere (`r2_min`, `counterfactual_pixel_mae`, ...).
        value: the headline.
        n: samples it was measured on.
        per_variable: the same quantity for each variable or intervention.
        spread: standard deviation over repetitions or samples, where that means something.
        parameters: what the number depends on (seed, bins, which interventions, ...).
        higher_is_better: None where neither is.
    """

    metric: str
    value: float
    n: int
    per_variable: dict[str, float] = field(default_factory=dict)
    spread: float | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    higher_is_better: bool | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
