"""Pure causal mathematics on tensors and graphs."""

from intervae.causal.acyclicity import log_det, polynomial, trace_exponential
from intervae.causal.do import abduct, act, parse_do, predict
from intervae.causal.gaussian import (
    kl_diagonal,
    kl_pushed_forward,
    kl_standard_normal,
    reparametrise,
)
from intervae.causal.graph import CausalGraph
from intervae.causal.linear import structural_matrix, to_endogenous, to_exogenous
from intervae.causal.mask_layer import MaskLayer
from intervae.causal.sem.alignment import fit_affine
from intervae.causal.sem.divergence import (
    kl_local,
    kl_local_min,
    kl_local_mix,
    kl_monte_carlo,
    kl_monte_carlo_mix,
    kl_tangent,
    sem_divergence,
)
from intervae.causal.sem.equations import SEM
from intervae.causal.structural_causal_model import StructuralCausalModel

__all__ = [
    "SEM",
    "CausalGraph",
    "MaskLayer",
    "StructuralCausalModel",
    "abduct",
    "act",
    "fit_affine",
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
    "predict",
    "reparametrise",
    "sem_divergence",
    "structural_matrix",
    "to_endogenous",
    "to_exogenous",
    "trace_exponential",
]
