"""Pure causal mathematics on tensors and graphs."""

from intervae.causal.acyclicity import log_det, polynomial, trace_exponential
from intervae.causal.do import interventions, parse_do, propagate
from intervae.causal.gaussian import kl_diagonal, kl_pushed_forward, kl_standard_normal, reparametrise
from intervae.causal.graph import CausalGraph
from intervae.causal.linear import structural_matrix, to_endogenous, to_exogenous
from intervae.causal.mechanisms import MaskLayer
from intervae.causal.sem import SEM
from intervae.causal.sem_alignment import fit_affine
from intervae.causal.sem_divergence import divergence, kl_local, kl_local_min, kl_local_mix, kl_monte_carlo, kl_monte_carlo_mix, kl_tangent

__all__ = [
    "SEM",
    "CausalGraph",
    "MaskLayer",
    "divergence",
    "fit_affine",
    "interventions",
    "kl_diagonal",
    "kl_local",
    "kl_local_min",
    "kl_local_mix",
    "kl_monte_carlo",
    "kl_monte_carlo_mix",
    "kl_pushed_forward",
    "kl_standard_normal",
    "kl_tangent",
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
