"""The models, one file or package per paper; `create`, `load`, `register_model`."""

from __future__ import annotations

from typing import Any

from intervae.data import Dataset
from intervae.errors import UsageError, unknown
from intervae.models.base import Model
from intervae.models.beta_tcvae import BetaTCVAE
from intervae.models.beta_vae import BetaVAE
from intervae.models.causal_gan.model import CausalGAN
from intervae.models.causal_prior.model import CausalPriorVAE
from intervae.models.causal_prior.temporal import TemporalCausalPriorVAE
from intervae.models.causal_vae.condition_vae import ConditionVAE
from intervae.models.causal_vae.model import CausalVAE
from intervae.models.causal_vae.unsupervised import CausalVAEUnsup
from intervae.models.checks import check_data, check_missing_labels
from intervae.models.cmcl.model import CMCL
from intervae.models.ct_vae.mcq_vae import MCQVAE, VQVAE
from intervae.models.ct_vae.model import CTVAE
from intervae.models.dc_ign import DCIGN
from intervae.models.deep_scm.model import DeepSCM
from intervae.models.dip_vae import DIPVAE
from intervae.models.factor_vae import FactorVAE
from intervae.models.info_gan import InfoGAN
from intervae.models.ivae import IVAE
from intervae.models.ladder_vae.model import LadderVAE
from intervae.models.linear import ICA, PCA
from intervae.models.presets import Preset, Printed, resolve_preset
from intervae.models.raw_pixels import RawPixels
from intervae.models.storage import load_model as load
from intervae.models.untrained import UntrainedVAE
from intervae.models.vae import VAE
from intervae.registry import Registry

_BUILT_IN = (
    CausalVAE,
    ConditionVAE,
    DeepSCM,
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


def check_model_class(name: str, cls: Any) -> type[Model]:
    """Return `cls` if it can be registered as a model under `name`."""
    if not (isinstance(cls, type) and issubclass(cls, Model)):
        raise UsageError(f"{cls!r} is not a subclass of intervae.models.Model.")
    for attribute in ("name", "title", "Settings"):
        if not hasattr(cls, attribute):
            raise UsageError(f"{cls.__name__} has no {attribute}; define it in the class.")
    if cls.name != name:
        raise UsageError(f"{cls.__name__} has the name {cls.name!r}, not {name!r}.")
    missing = sorted(cls.__abstractmethods__)
    if missing:
        raise UsageError(f"{cls.__name__} does not define {', '.join(missing)}.")
    parameters = getattr(cls.Settings, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        raise UsageError(f"{cls.__name__}.Settings must be a frozen dataclass.")
    return cls


MODELS: Registry[type[Model]] = Registry(
    "model", "intervae.models", {cls.name: cls for cls in _BUILT_IN}, check_model_class
)


def register_model(cls: type[Model]) -> type[Model]:
    """Register a model under `cls.name`, for `create`, `load` and the command line.

    Works as a class decorator. A package can instead declare an entry point of the group
    "intervae.models", whose name is that of the model.
    """
    MODELS.add(getattr(cls, "name", ""), check_model_class(getattr(cls, "name", ""), cls))
    return cls


def create(
    name: str, data: Dataset, *, seed: int = 0, preset: str | None = None, **settings: Any
) -> Model:
    """Create an untrained model for a data set: `create("causal-vae", data, dims=2)`.

    Arguments:
        preset: settings to start from, such as "paper" (`cls.presets`, `intervae models NAME`);
            `settings` override them.
    """
    if not isinstance(name, str) or name not in MODELS:
        raise unknown("model", name, MODELS)
    check_data(data)
    check_missing_labels(MODELS[name], data)
    cls = MODELS[name]
    model = cls(data.spec, seed=seed, **resolve_preset(cls, {**settings, "preset": preset}))
    model.preset = preset
    return model


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
    "DeepSCM",
    "FactorVAE",
    "InfoGAN",
    "LadderVAE",
    "Model",
    "Preset",
    "Printed",
    "RawPixels",
    "TemporalCausalPriorVAE",
    "UntrainedVAE",
    "create",
    "load",
    "register_model",
]
