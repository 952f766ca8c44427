"""Search of settings with Optuna, on the validation split only: `tune`.

space.py: ranges and choices of settings. objective.py: what is minimised or maximised.
study.py: the trials, stored in SQLite, and their run folders. results.py: trials.json, the figure
and the command of the best settings. Needs the extra `[tune]`.
"""

from intervae.tuning.results import Search, Trial
from intervae.tuning.space import Choices, Range, default_search, parse_search
from intervae.tuning.study import tune

__all__ = ["Choices", "Range", "Search", "Trial", "default_search", "parse_search", "tune"]
