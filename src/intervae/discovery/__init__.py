"""Causal graphs from given variables: `discover(table)`."""

from intervae.discovery.base import Discovery
from intervae.discovery.registry import METHODS, discover

__all__ = ["METHODS", "Discovery", "discover"]
