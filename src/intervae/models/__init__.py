"""The models, one file per paper, and `create`, which makes one for a data set."""

from __future__ import annotations

from typing import Any

from intervae.data.base import Dataset
from intervae.errors import unknown
from intervae.models.base import Model
from intervae.models.beta_tcvae import BetaTCVAE
from intervae.models.beta_vae import BetaVAE
from intervae.models.causal_gan import CausalGAN
from intervae.models.causal_prior_vae import CausalPriorVAE
from intervae.models.causal_vae import CausalVAE
from intervae.models.causal_vae_unsup import CausalVAEUnsup
from intervae.models.cmcl import CMCL
from intervae.models.condition_vae import ConditionVAE
from intervae.models.ct_vae import CTVAE
from intervae.models.dc_ign import DCIGN
from intervae.models.dip_vae import DIPVAE
from intervae.models.factor_vae import FactorVAE
from intervae.models.info_gan import InfoGAN
from intervae.models.ivae import IVAE
from intervae.models.ladder_vae import LadderVAE
from intervae.models.linear import ICA, PCA
from intervae.models.mcq_vae import MCQVAE, VQVAE
from intervae.models.raw_pixels import RawPixels
from intervae.models.storage import load_model as load
from intervae.models.temporal_causal_prior_vae import TemporalCausalPriorVAE
from intervae.models.untrained import UntrainedVAE
from intervae.models.vae import VAE

MODELS: dict[str, type[Model]] = {
    cls.name: cls
    for cls in (
        CausalVAE,
        ConditionVAE,
        CausalVAEUnsup,
        CausalPriorVAE,
        TemporalCausalPriorVAE,
        VAE,
        BetaVAE,
        LadderVAE,
        BetaTCVAE,
        FactorVAE,
        DIPVAE,
        IVAE,
        InfoGAN,
        CausalGAN,
        DCIGN,
        CMCL,
        CTVAE,
        MCQVAE,
        VQVAE,
        PCA,
        ICA,
        RawPixels,
        UntrainedVAE,
    )
}


def create(name: str, data: Dataset, *, seed: int = 0, **settings: Any) -> Model:
    """An untrained model for this data: `create("causal-vae", data, dims=2)`."""
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name](data.spec, seed=seed, **settings)


__all__ = [
    "CMCL",
    "CTVAE",
    "DCIGN",
    "DIPVAE",
    "ICA",
    "IVAE",
    "MCQVAE",
    "MODELS",
    "PCA",
    "VAE",
    "VQVAE",
    "BetaTCVAE",
    "BetaVAE",
    "CausalGAN",
    "CausalPriorVAE",
    "CausalVAE",
    "CausalVAEUnsup",
    "ConditionVAE",
    "FactorVAE",
    "InfoGAN",
    "LadderVAE",
    "Model",
    "RawPixels",
    "TemporalCausalPriorVAE",
    "UntrainedVAE",
    "create",
    "load",
]
