"""Causal discovery from tables: `discover(table)`, and edge confidences by `bootstrap(table)`."""

from intervae.discovery.base import MIN_ROWS, Discovery, UnitsWarning, varsortability
from intervae.discovery.bootstrap import Bootstrap, bootstrap
from intervae.discovery.direction_confidence import (
    EdgeDirection,
    OpenDirectionWarning,
    assess_directions,
)
from intervae.discovery.knowledge import Knowledge
from intervae.discovery.label_table import complete_rows, complete_rows_notes, discover_labels
from intervae.discovery.registry import METHODS, discover

__all__ = [
    "METHODS",
    "MIN_ROWS",
    "Bootstrap",
    "Discovery",
    "EdgeDirection",
    "Knowledge",
    "OpenDirectionWarning",
    "UnitsWarning",
    "assess_directions",
    "bootstrap",
    "complete_rows",
    "complete_rows_notes",
    "discover",
    "discover_labels",
    "varsortability",
]
