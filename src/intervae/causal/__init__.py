"""Pure causal mathematics on tensors and graphs."""

from intervae.causal.graph import CausalGraph

__all__ = ["CausalGraph"]
