"""The four losses of CMCL (Mao et al. 2022), each a pure function of the model and what its encoders make of a batch, and the rows they compare.

-L1 of module 1 (Eq. 6), -L2 of module 2 (Eq. 19), L_DAG (Eq. 10) and the counterfactual contrast -L_CR (Eqs. 11-13); `CMCL.loss` adds them (Eq. 14).
Shapes and reduction are those of cmcl.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from intervae.causal.gaussian import kl_diagonal, kl_standard_normal, reparametrise
from intervae.data.base import Batch
from intervae.models.phases import Terms
from intervae.nets.likelihood import negative_log_likelihood
from intervae.nets.node_networks import Layers

if TYPE_CHECKING:
    from intervae.models.cmcl import CMCL

TRIES = 8  # other samples looked at for a value that differs


class Look(NamedTuple):
    """What one pass of the encoders makes of a batch."""

    u: Tensor  # (B, P)
    z0: Tensor  # (B, m0), drawn
    embedding: tuple[Tensor, Tensor]  # q(z0 | x): mean and log-variance (B, m0)
    seen: Tensor  # (B, 1), whether q(z | z0, u) saw u
    posterior: tuple[Tensor, Tensor]  # q(z | z0, u): mean and log-variance (B, m)
    z: Tensor  # (B, m), drawn
    unseen: tuple[Tensor, Tensor]  # q(z | z0) where q can do without u, else as `posterior`


# ---- the two modules ------------------------------------------------------------------------------------------------
def embedding_terms(model: CMCL, batch: Batch, seen: Look, output: Tensor | None = None) -> Terms:
    """-L1, Eq. 6 with KL(q || p) outside the expectation; `output` (B, C, H, W), where the picture of z0 is there already."""
    reconstruction = misfit(model, model.embedding_decoder(seen.z0) if output is None else output, batch["images"])
    kl = kl_standard_normal(*seen.embedding).mean()
    return {"loss": reconstruction + warm_up(model, batch) * kl, "embedding_reconstruction": reconstruction, "embedding_kl": kl}


def causal_terms(model: CMCL, batch: Batch, seen: Look, output: Tensor | None = None) -> Terms:
    """-L2, Eq. 19 with the KL outside the logarithm; `output` (B, C, H, W), where the picture of z is there already."""
    reconstruction = misfit(model, model.decoder(seen.z) if output is None else output, batch["images"])
    kl = kl_diagonal(*seen.posterior, *model.prior(seen.u)).mean()
    return {"loss": reconstruction + causal_kl_weight(model, batch) * kl, "reconstruction": reconstruction, "kl": kl}


def misfit(model: CMCL, output: Tensor, images: Tensor) -> Tensor:
    """-log p(x | output), a mean over the batch."""
    return negative_log_likelihood(output, images, model.settings.likelihood, model.settings.scale).mean()


def warm_up(model: CMCL, batch: Batch) -> Tensor | float:
    """Of both KL: rises from 0 to 1 over the first epochs."""
    return (batch["step"] / model.warm_up_steps.clamp(min=1.0)).clamp(max=1.0) if model.settings.warm_up else 1.0


def causal_kl_weight(model: CMCL, batch: Batch) -> Tensor | float:
    """Of module 2's KL: with annealing it falls geometrically to 1, from where no latent is worth its nats.

    While it is high a picture is told by what u says of it, for that is free: z_j comes to stand for what u_j tells, and latents without a
    column join later. Risen from 0 instead, reconstruction mixes the latents first, and then they hardly turn any more.
    """
    if not model.settings.annealing:
        return warm_up(model, batch)
    left = (1 - batch["step"] / model.annealing_steps.clamp(min=1.0)).clamp(min=0.0)
    return model.first_weight**left


# ---- the DAG --------------------------------------------------------------------------------------------------------
def graph_terms(model: CMCL, seen: Look, labels: Tensor, generator: torch.Generator | None, layers: Layers | None = None) -> Terms:
    """L_DAG, Eq. 10 over standardised nodes, with h(W) under its augmented Lagrangian: alpha h + rho / 2 h^2."""
    settings, networks = model.settings, model.networks
    layers = layers or networks.layers()
    z = model.standardiser(graph_view(model, seen, generator))
    inputs = torch.cat([z, seen.u], dim=1)
    targets = torch.cat([z, model.targets(labels)], dim=1) if networks.mixed else inputs
    fit = networks.misfit(networks(inputs, None, layers), targets, settings.graph_loss).mean()
    cycles, sparsity = networks.cycles(layers), networks.sparsity(layers)
    constraint = (model.multiplier + 0.5 * model.penalty * cycles) * cycles
    loss = fit + settings.sparsity * sparsity + settings.decay * networks.decay(layers) + constraint
    return {"loss": loss, "fit": fit, "sparsity": sparsity, "cycles": cycles}


def graph_view(model: CMCL, seen: Look, generator: torch.Generator | None) -> Tensor:
    """The latents (B, m) whose causes are learned: read off the image without u wherever q can do without, so that an edge is never a copy."""
    z = seen.unseen[0] if model.settings.graph_sees == "mean" else reparametrise(*seen.unseen, generator)
    return torch.lerp(z.detach(), z, model.shaping)  # a gradient once it is time for it


# ---- the contrast ---------------------------------------------------------------------------------------------------
class Acted(NamedTuple):
    """What the contrast compares: do(u_i) of a cause in the first half of the rows, do(u_n) of an effect in the second, where z stays."""

    u: Tensor  # (2 B, P)
    z: Tensor  # (2 B, m)


def counterfactual_rows(model: CMCL, seen: Look, generator: torch.Generator | None, layers: Layers | None = None) -> Acted:
    """Another value for a cause of each row, u' and z' = f(u') + z - f(u), and for an effect of it, u'' and z."""
    u = exchange_column(seen.u.repeat(2, 1), causes_and_effects(model).repeat_interleave(len(seen.u), 0), model.owner, generator)
    return Acted(u, torch.cat([moved(model, seen.z, seen.u, u.chunk(2)[0], layers), seen.z]))


def contrast_terms(model: CMCL, seen: Look, acted: Acted, pictures: Tensor, generator: torch.Generator | None) -> Terms:
    """-L_CR, Eq. 13 as a cross-entropy: D tells pictures of do(u_i), u_i a cause, from those of do(u_n), u_n an effect, by their latents.

    0 until there are edges of both kinds, and before its share of training has passed. `pictures` (2 B, C, H, W) are logits of `acted`.
    """
    posterior = model.embed(torch.sigmoid(pictures))
    if model.settings.causal_module:
        posterior = model.posterior(reparametrise(*posterior, generator), acted.u, seen.seen.repeat(2, 1))
    z = reparametrise(*posterior, generator)
    assert model.classifier is not None
    logits = model.classifier(z - seen.z.repeat(2, 1) if model.settings.contrast_input == "delta" else z).view(2, -1)
    found = functional.softplus(logits * model.sides).mean(1).sum()
    contrast = model.contrast_on * causes_and_effects(model).amax(1).prod() * found
    return {"loss": contrast, "contrast": contrast.clone()}


def causes_and_effects(model: CMCL) -> Tensor:
    """(2, d) of 0 and 1: the columns of Omega+, that cause a latent, and of Omega-, that are caused by one."""
    m = model.settings.latents
    return torch.stack([model.edges[m:, :m].amax(1), model.edges[:m, m:].amax(0)])


def moved(model: CMCL, z: Tensor, before: Tensor, after: Tensor, layers: Layers | None = None) -> Tensor:
    """Latents (B, m) had u been `after` and not `before` (B, P): z_j + f_j(u') - f_j(u), each sample's residual kept."""
    m = model.settings.latents
    nodes = torch.cat([((z - model.centre) / model.spread).repeat(2, 1), torch.cat([before, after])], dim=1)
    factual, acted = model.networks(nodes, model.edges, layers)[:m, :, 0].T.chunk(2)
    return z + model.spread * (acted - factual)


def exchange_column(u: Tensor, among: Tensor, owner: Tensor, generator: torch.Generator | None) -> Tensor:
    """u (B, P) with a column of each row, drawn from its `among` (B, d) or (d,) of 0 and 1, taken from another row where it has another value.

    `owner` (d, P) tells which inputs are a column's.
    """
    rows = len(u)
    chosen = (torch.rand(rows, len(owner), device=u.device, generator=generator) + among).argmax(1)
    mask = owner[chosen] > 0  # (B, P)
    tried = torch.randint(rows, (TRIES, rows), device=u.device, generator=generator)
    differs = ((u[tried] != u) & mask).any(2)  # (TRIES, B)
    picked = tried.gather(0, differs.byte().argmax(0, keepdim=True))[0]  # some row that differs, if any of those does
    return torch.where(mask, u[picked], u)
