"""Inference of CMCL's latents: samples for the losses, label copying, importance weights.

Shapes as in networks.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from intervae.causal.gaussian import log_normal, reparametrise
from intervae.errors import QueryError
from intervae.models.batches import in_batches
from intervae.models.inputs import as_tensor
from intervae.nets.latents import draw_samples
from intervae.nets.likelihood import negative_log_likelihood

if TYPE_CHECKING:
    from intervae.models.cmcl.model import CMCL


class Inference(NamedTuple):
    """Posteriors and samples of one batch. A posterior is its mean and its log-variance."""

    u: Tensor  # (B, P)
    z0: Tensor  # (B, m0), sample of q(z0 | x)
    embedding: tuple[Tensor, Tensor]  # q(z0 | x), (B, m0) each
    labels_visible: Tensor  # (B, 1) of 0 and 1: whether q(z | z0, u) was given u
    posterior: tuple[Tensor, Tensor]  # q(z | z0, u), (B, m) each
    z: Tensor  # (B, m), sample of q(z | z0, u)
    image_posterior: tuple[Tensor, Tensor]  # q(z | z0), u hidden; `posterior` without dropout


def infer(
    model: CMCL, images: Tensor, labels: Tensor, generator: torch.Generator | None
) -> Inference:
    """Sample z0 ~ q(z0 | x) and z ~ q(z | z0, u), u hidden in `label_dropout` of the rows.

    Without module 2, z is z0.
    """
    settings, u = model.settings, model.inputs(labels)
    embedding = model.embed(images)
    z0 = reparametrise(*embedding, generator)
    if not settings.causal_module:
        hidden = torch.zeros_like(u[:, :1])
        return Inference(u, z0, embedding, hidden, embedding, z0, embedding)
    draws = torch.rand(len(images), 1, device=images.device, generator=generator)
    visible = (draws >= settings.label_dropout).float()
    if settings.label_dropout == 0:
        posterior = image_posterior = model.posterior(z0, u, visible)
    else:  # both posteriors in one pass
        mean, log_variance = model.posterior(
            z0.repeat(2, 1), u.repeat(2, 1), torch.cat([visible, torch.zeros_like(visible)])
        )
        posterior, image_posterior = zip(mean.chunk(2), log_variance.chunk(2), strict=True)
    z = reparametrise(*posterior, generator)
    return Inference(u, z0, embedding, visible, posterior, z, image_posterior)


def label_influence(model: CMCL, images: Any, labels: Any, seed: int) -> Tensor:
    """(m,) fraction of each latent that is copied from the labels: E(z - z')^2 / (2 var z).

    z is encoded with the labels of the image, z' with those of another image.
    """
    table = model.as_labels(labels, len(as_tensor(labels, "labels")))
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))
    own = model.encode(images, table)[..., 0]
    swapped = model.encode(images, table[order.to(table.device)])[..., 0]
    return (own - swapped).square().mean(0) / (2 * own.var(0, correction=0)).clamp(min=1e-12)


def log_weights(
    model: CMCL, images: Any, labels: Any, samples: int, generator: torch.Generator | None
) -> Tensor:
    """Log importance weights (samples, B): log p(x | z) + log p(z | u) - log q(z | z0, u).

    z0 ~ q(z0 | x), z ~ q(z | z0, u). For any z0, q(z | z0, u) is a valid proposal for z.
    """
    settings, x = model.settings, model.as_images(images)
    if settings.causal_module and labels is None:
        raise QueryError(
            f"{model.name} has a prior p(z | u) that depends on the labels; "
            "give log_weights the labels of the images."
        )
    embedding = model.embed(x)
    size = embedding[0].shape[1]
    noise = draw_samples((len(x), size + settings.latents), samples, generator, x.device)
    z0 = embedding[0] + torch.exp(0.5 * embedding[1]) * noise[..., :size]  # (samples, B, m0)
    if settings.causal_module:
        u = model.inputs(model.as_labels(labels, len(x))).repeat(samples, 1)
        posterior = model.posterior(z0.flatten(0, 1), u, model.labels_visible(u))
        z = posterior[0] + torch.exp(0.5 * posterior[1]) * noise[..., size:].flatten(0, 1)
        log_ratio = (log_normal(z, *model.prior(u)) - log_normal(z, *posterior)).sum(1)
    else:
        z = z0.flatten(0, 1)
        log_ratio = (log_normal(z0, 0.0, 0.0) - log_normal(z0, *embedding)).sum(2).flatten()
    likelihood, scale = settings.likelihood, settings.scale
    log_pixels = in_batches(
        lambda z, x: -negative_log_likelihood(model.image_logits(z), x, likelihood, scale),
        z,
        x.repeat(samples, 1, 1, 1),
    )
    return (log_pixels + log_ratio).unflatten(0, (samples, len(x)))
