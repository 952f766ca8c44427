"""The causal-prior VAE (ICLR 2023 submission) for images, and its temporal form for clips.

| paper                                          | file: name                                |
|------------------------------------------------|-------------------------------------------|
| Eq. 3, 11, objective                           | model.py: CausalPriorVAE.loss             |
| Eq. 4, posterior with full covariance          | posterior.py: Posterior, AlignedEncoder   |
| Eq. 5, 6, structural equation model (SEM)      | causal/sem/equations.py: SEM              |
| Theorem 2, linear SEM as a Gaussian            | causal/sem/linearised.py: propagate_linear|
| Theorem 3, linearisation at a pivot            | causal/sem/linearised.py: linearise       |
| sec. 4.4, KL(q given SEM), closest match       | causal/sem/divergence.py: kl_local_min    |
| sec. 4.5, edge probabilities, Gumbel masks     | causal/sem/equations.py: SEM.sample_edges |
| sec. 5.1, images: a shape on a parabola        | model.py; data/simulators/parabola.py     |
| sec. 5.2, clips: a moving sprite               | temporal.py; data/simulators/motion.py    |
| sec. 5.2, interventions, extrapolation         | rollout.py: roll_out; unrolled.py         |
| ours: several starts, alignment, selection     | curriculum.py; causal/sem/alignment.py    |
| ours: rotation to independent noises           | unmixing.py                               |
| ours: graph of clips from one training         | graph_selection.py; causal/sem/path.py    |
"""

from intervae.models.causal_prior.model import CausalPriorVAE
from intervae.models.causal_prior.temporal import TemporalCausalPriorVAE

__all__ = ["CausalPriorVAE", "TemporalCausalPriorVAE"]
