"""Result of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Result:
    """What `fit` returns.

    `history` has the lines of metrics.jsonl. `seconds` is the time of the whole training, of which
    `seconds_before_resume` were spent before this call, if the run was resumed.
    """

    history: list[dict[str, Any]] = field(repr=False)
    seconds: float
    seconds_before_resume: float = 0.0
