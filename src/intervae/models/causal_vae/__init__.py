"""CausalVAE (Yang et al., CVPR 2021) and its two reductions of Table 1.

    x, u -> encoder -> eps -> causal layer -> z -> mask layer -> decoder -> x

| paper                                        | file: name                                    |
|----------------------------------------------|-----------------------------------------------|
| Eq. 1, causal layer z = (I - A^T)^-1 eps     | causal/linear.py: to_endogenous               |
| Eq. 2, mask layer z_i = g_i(A_i o z) + eps_i | causal/mask_layer.py: MaskLayer has g_i;      |
|                                              | models/causal.py: CausalModel adds eps_i      |
| Eq. 5, encoder q(eps given x, u)             | labelled.py: LabelledConcepts.posterior       |
| Eq. 7, conditional prior p(z given u)        | labelled.py: LabelledConcepts                 |
| Eq. 10, ELBO                                 | causal/gaussian.py: kl_standard_normal,       |
|                                              | kl_pushed_forward; concepts.py: pixel_terms   |
| Eq. 11, label fit l_u                        | model.py: CausalVAE.label_fit                 |
| Eq. 12, mechanism fit l_m                    | causal_layer.py: CausalLayer.mechanism_fit    |
| Eq. 13, acyclicity H(A)                      | causal/acyclicity.py: polynomial              |
| Eq. 14, loss                                 | model.py: CausalVAE.loss                      |
| sec. 3.2 and 6.2, do() on images             | models/causal.py: CausalModel                 |
| sec. 6.1, ConditionVAE                       | condition_vae.py: ConditionVAE                |
| sec. 6.1, CausalVAE-unsup                    | unsupervised.py: CausalVAEUnsup               |
| sec. 4.2 and 6.2, graph from the labels      | model.py: CausalVAE.learn_graph; discovery/   |

Three base classes: `ConceptModel` (concepts.py) has networks, pixel terms and sampling;
`LabelledConcepts` adds labels; `CausalLayer` (causal_layer.py) adds the graph.
"""

from intervae.models.causal_vae.condition_vae import ConditionVAE
from intervae.models.causal_vae.model import CausalVAE
from intervae.models.causal_vae.unsupervised import CausalVAEUnsup

__all__ = ["CausalVAE", "CausalVAEUnsup", "ConditionVAE"]
