"""Measurement: the result type of every metric, which tables and JSON are written from."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any


@dataclass(frozen=True)
class Measurement:
    """A measured number; `float()` returns the headline.

    Arguments:
        metric: its name, the same everywhere (`r2_min`, `counterfactual_pixel_mae`, ...).
        value: the headline.
        n: number of samples it was measured on.
        per_variable: the same quantity for each variable or intervention.
        spread: standard deviation over repetitions or samples, where it is defined.
        parameters: what the number depends on (seed, bins, interventions, ...).
        higher_is_better: None where neither direction is better.
        components: further numbers of the same metric, by name (`tpr` next to `shd`, ...).
    """

    metric: str
    value: float
    n: int
    per_variable: dict[str, float] = field(default_factory=dict)
    spread: float | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    higher_is_better: bool | None = None
    components: dict[str, Measurement] = field(default_factory=dict)

    def __float__(self) -> float:
        return float(self.value)

    def _repr_html_(self) -> str:
        """Return the headline and the values per variable as a table, for notebooks."""
        rows = {self.metric: self.value, **self.per_variable}
        cells = "".join(
            f"<tr><td>{escape(name)}</td><td>{value:.4g}</td></tr>" for name, value in rows.items()
        )
        return f"<div><table>{cells}</table>on {self.n} samples</div>"

    @property
    def per_variable_metric(self) -> str:
        """Name of the quantity in `per_variable`: `r2` where the headline is its `r2_min`."""
        return self.metric.removesuffix("_min")

    def rows(self) -> list[Measurement]:
        """Return the headline and every component, each as a measurement of its own."""
        headline = Measurement(
            self.metric,
            self.value,
            self.n,
            self.per_variable,
            self.spread,
            self.parameters,
            self.higher_is_better,
        )
        return [
            headline,
            *(row for component in self.components.values() for row in component.rows()),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with the components under "parts"."""
        content = asdict(self)
        del content["components"]
        if self.components:
            content["parts"] = {name: value.to_json() for name, value in self.components.items()}
        return content
