"""Pure causal mathematics on tensors and graphs."""

from intervae.causal.acyclicity import log_det, polynomial, trace_exponential
from intervae.causal.do import interventions, parse_do, propagate
from intervae.causal.gaussian import kl_diagonal, kl_pushed_forward, kl_standard_normal, reparametrise
from intervae.causal.graph import CausalGraph
from intervae.causal.linear import structural_matrix, to_endogenous, to_exogenous
from intervae.causal.mechanisms import MaskLayer
from intervae.causal.sem import SEM

__all__ = [
    "SEM",
    "CausalGraph",
    "MaskLayer",
    "interventions",
    "kl_diagonal",
    "kl_pushed_forward",
    "kl_standard_normal",
    "log_det",
    "parse_do",
    "polynomial",
    "propagate",
    "reparametrise",
    "structural_matrix",
    "to_endogenous",
    "to_exogenous",
    "trace_exponential",
]
