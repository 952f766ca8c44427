"""CT-VAE: Gendron, Witbrock and Dobbie, Disentanglement of Latent Representations via Causal
Interventions, IJCAI 2023.

An image becomes a grid of code numbers. A causal transition layer predicts the codes after an
action, along a graph that it samples for every image and action. In the other direction it infers
which action turned one image into another.

Where each part of the paper is:

| paper | subject | file |
|---|---|---|
| 3.3 | multi-codebook quantised VAE | `mcq_vae.py`, `networks.py`, `nets/quantise.py` |
| 3.4, Eq. 3-4, 12 | edge networks, intervention mask, `sample_graph` | `graph.py` |
| 3.4, Eq. 2 | codes after an action | `transition.py`, `layers.py`, `attention.py` |
| 3.4, Eq. 5 | attribution, other queries | `queries.py`, `explanations.py`, `graph_noise.py` |
| 3.5, Eq. 6-10 | standard, action and causal mode, training phases | `model.py` |
| 3.5, Eq. 11-15 | graph regularisation | `regularisers.py` |
| | mirrored and shifted training pairs (not in the paper) | `augmentations.py` |
| Fig. 5, 6 | actions repeated on an image; masks and graphs | `figures.py` |
| | all settings; checks of the data | `settings.py`, `checks.py` |
"""

from intervae.models.ct_vae.mcq_vae import MCQVAE, VQVAE
from intervae.models.ct_vae.model import CTVAE

__all__ = ["CTVAE", "MCQVAE", "VQVAE"]
