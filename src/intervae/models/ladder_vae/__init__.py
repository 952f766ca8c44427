"""Ladder VAE (Sønderby et al. 2016): a hierarchy of Gaussian layers with top-down inference.

`settings` the settings, `networks` the networks of each layer and the precision-weighted merge of
two Gaussians, `inference` the posterior, `model` loss, training and queries.
"""

from intervae.models.ladder_vae.model import LadderVAE

__all__ = ["LadderVAE"]
