"""Causal graphs from given variables: `discover(table)`, and how sure their edges are: `bootstrap(table)`."""

from intervae.discovery.base import FEWEST_ROWS, Discovery, UnitsWarning, varsortability
from intervae.discovery.bootstrap import Bootstrap, bootstrap
from intervae.discovery.knowledge import Knowledge
from intervae.discovery.registry import METHODS, discover

__all__ = ["FEWEST_ROWS", "METHODS", "Bootstrap", "Discovery", "Knowledge", "UnitsWarning", "bootstrap", "discover", "varsortability"]
