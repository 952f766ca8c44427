"""CT-VAE (Gendron et al. 2023, Fig. 4): the number of values of each factor of the data sets.

intervae reproduce ctvae-fig4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intervae.data import load_data
from intervae.data.factor_grid import factor_values
from intervae.experiments.base import Experiment, Job, MetricKey, Numbers


@dataclass(frozen=True)
class CountFactorValues(Job):
    """Count the different values of each factor over all images of a data set."""

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = load_data(self.data, **self.options)
        names, values = factor_values(data)
        counts = [len(np.unique(column)) for column in values.T]
        numbers: Numbers = {
            "images": float(len(values)),
            "combinations": float(np.prod([float(count) for count in counts])),
        }
        counted = zip(names, counts, strict=True)
        return numbers | {MetricKey("factor_values", name): float(n) for name, n in counted}


def _draw(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    from intervae.figures import factor_bars

    factor_bars(path, rows, metric="factor_values", title="Number of values of each factor")


def _job(data: str, **options: Any) -> CountFactorValues:
    return CountFactorValues(data, "factors", options)


CTVAE_FIG4 = Experiment(
    "ctvae-fig4",
    "CT-VAE: how many values each factor has",
    (  # images are small where the reader can resize them, as only their labels are counted
        _job("cars3d", size=8),
        _job("shapes3d-like", size=8),
        _job("sprites-frames", size=8),
        _job("dsprites"),
    ),
    seeds=1,
    shown=("factor_values", "combinations", "images"),
    notes=("ctvae-fig4",),
    glossary={
        "factors": "the labels that have more than one value in the paper's grid",
        "factor_values": "number of different values of a factor over all images",
        "combinations": "product of these numbers; equal to `images` for a complete grid",
    },
    figure=_draw,
    quick=(_job("shapes3d-like", size=8, levels=[4, 4, 4, 3, 4, 5]),),
)
