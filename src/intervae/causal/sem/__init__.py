"""Structural equation models with additive noise as a prior over latents (causal-prior VAE).

| file          | content                                                        | paper         |
|---------------|----------------------------------------------------------------|---------------|
| equations.py  | SEM: mechanisms, noise scales, edges, density, sampling        | Eq. 5, 6      |
| networks.py   | neural mechanisms of fixed output scale                        | sec. 4.6      |
| linearised.py | linear equations as a Gaussian, linearisation at a pivot       | Theorems 2, 3 |
| divergence.py | KL of a Gaussian posterior from a SEM: five estimators         | sec. 4.4      |
| alignment.py  | affine map that makes latents most like draws of a SEM         | ours          |
| path.py       | graphs of a linear SEM over frames, from dense to empty        | ours          |
"""

from intervae.causal.sem.alignment import affine_score, fit_affine
from intervae.causal.sem.divergence import (
    DivergenceKind,
    kl_local,
    kl_local_min,
    kl_local_mix,
    kl_monte_carlo,
    kl_monte_carlo_mix,
    kl_tangent,
    sem_divergence,
)
from intervae.causal.sem.equations import SEM
from intervae.causal.sem.path import (
    PrunedGraph,
    fit_linear,
    predictable_directions,
    pruning_path,
    sparsest_graph,
)

__all__ = [
    "SEM",
    "DivergenceKind",
    "PrunedGraph",
    "affine_score",
    "fit_affine",
    "fit_linear",
    "kl_local",
    "kl_local_min",
    "kl_local_mix",
    "kl_monte_carlo",
    "kl_monte_carlo_mix",
    "kl_tangent",
    "predictable_directions",
    "pruning_path",
    "sem_divergence",
    "sparsest_graph",
]
