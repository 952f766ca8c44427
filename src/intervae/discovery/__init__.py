"""Causal graphs from given variables: `discover(table)`."""

from intervae.discovery.base import FEWEST_ROWS, Discovery
from intervae.discovery.registry import METHODS, discover

__all__ = ["FEWEST_ROWS", "METHODS", "Discovery", "discover"]
