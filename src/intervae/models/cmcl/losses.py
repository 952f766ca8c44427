"""Losses of CMCL (Mao et al. 2022) as pure functions of the model and a batch.

-L1 of module 1 (Eq. 6), -L2 of module 2 (Eq. 19), L_DAG (Eq. 10) and the counterfactual contrast
-L_CR (Eqs. 11-13). `CMCL.loss` adds them (Eq. 14). Shapes as in networks.py.
Reduction: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from intervae.causal.gaussian import kl_diagonal, kl_standard_normal, reparametrise
from intervae.data import Batch
from intervae.models.cmcl.inference import Inference
from intervae.models.phases import Terms
from intervae.nets.likelihood import negative_log_likelihood
from intervae.nets.node_networks import NodeLayers

if TYPE_CHECKING:
    from intervae.models.cmcl.model import CMCL

SWAP_CANDIDATES = 8  # rows tried for a different value when a column is swapped


# ---- modules 1 and 2 -----------------------------------------------------------------------------
def embedding_terms(
    model: CMCL, batch: Batch, inferred: Inference, logits: Tensor | None = None
) -> Terms:
    """-L1, Eq. 6 with KL(q || p) outside the expectation.

    `logits` (B, C, H, W) are those of z0 where they have been computed already.
    """
    logits = model.embedding_decoder(inferred.z0) if logits is None else logits
    reconstruction = reconstruction_error(model, logits, batch["images"])
    kl = kl_standard_normal(*inferred.embedding).mean()
    return {
        "loss": reconstruction + warm_up_weight(model, batch) * kl,
        "embedding_reconstruction": reconstruction,
        "embedding_kl": kl,
    }


def causal_terms(
    model: CMCL, batch: Batch, inferred: Inference, logits: Tensor | None = None
) -> Terms:
    """-L2, Eq. 19 with the KL outside the logarithm.

    `logits` (B, C, H, W) are those of z where they have been computed already.
    """
    logits = model.decoder(inferred.z) if logits is None else logits
    reconstruction = reconstruction_error(model, logits, batch["images"])
    kl = kl_diagonal(*inferred.posterior, *model.prior(inferred.u)).mean()
    return {
        "loss": reconstruction + causal_kl_weight(model, batch) * kl,
        "reconstruction": reconstruction,
        "kl": kl,
    }


def reconstruction_error(model: CMCL, logits: Tensor, images: Tensor) -> Tensor:
    """-log p(x | logits), mean over the batch."""
    settings = model.settings
    return negative_log_likelihood(logits, images, settings.likelihood, settings.scale).mean()


def warm_up_weight(model: CMCL, batch: Batch) -> Tensor | float:
    """KL weight that rises linearly from 0 to 1 over the first epochs."""
    if not model.settings.warm_up:
        return 1.0
    return (batch["step"] / model.warm_up_steps.clamp(min=1.0)).clamp(max=1.0)


def causal_kl_weight(model: CMCL, batch: Batch) -> Tensor | float:
    """KL weight of module 2: with annealing it falls geometrically from `first_weight` to 1."""
    if not model.settings.annealing:
        return warm_up_weight(model, batch)
    remaining = (1 - batch["step"] / model.annealing_steps.clamp(min=1.0)).clamp(min=0.0)
    return model.first_weight**remaining


# ---- the DAG -------------------------------------------------------------------------------------
def graph_terms(
    model: CMCL, inferred: Inference, labels: Tensor, layers: NodeLayers | None = None
) -> Terms:
    """L_DAG, Eq. 10 over standardised nodes; acyclicity as alpha h + rho / 2 h^2.

    With acyclicity=penalty as alpha_2 h, and with standardise=false over the latents as they are.
    """
    settings, networks = model.settings, model.networks
    layers = layers or networks.layers()
    z = dag_latents(model, inferred)
    z = model.standardiser(z) if settings.standardise else z
    inputs = torch.cat([z, inferred.u], dim=1)
    targets = torch.cat([z, model.targets(labels)], dim=1) if networks.mixed else inputs
    fit = networks.node_loss(networks(inputs, None, layers), targets, settings.graph_loss).mean()
    cycles, sparsity = networks.cycles(layers), networks.sparsity(layers)
    constraint = (model.multiplier + 0.5 * model.penalty * cycles) * cycles
    if settings.acyclicity == "penalty":
        constraint = settings.acyclicity_weight * cycles
    loss = fit + settings.sparsity * sparsity + settings.decay * networks.decay(layers) + constraint
    return {"loss": loss, "fit": fit, "sparsity": sparsity, "cycles": cycles}


def dag_latents(model: CMCL, inferred: Inference) -> Tensor:
    """Posterior means (B, m) that the DAG is fitted to, inferred without u where possible.

    With graph_latents=sample the samples of L2. They carry a gradient once `shaping` is 1.
    """
    sampled = model.settings.graph_latents == "sample"
    z = inferred.z if sampled else inferred.image_posterior[0]
    return torch.lerp(z.detach(), z, model.shaping)


# ---- the contrast --------------------------------------------------------------------------------
class ContrastRows(NamedTuple):
    """Both sides of the contrast: B rows under do(cause), then B rows under do(effect)."""

    u: Tensor  # (2 B, P)
    z: Tensor  # (2 B, m); unchanged in the second half


def contrast_rows(
    model: CMCL,
    inferred: Inference,
    generator: torch.Generator | None,
    layers: NodeLayers | None = None,
) -> ContrastRows:
    """Swap a cause of each row, u' and z' = f(u') + z - f(u), and an effect, u'' and z."""
    groups = causes_and_effects(model).repeat_interleave(len(inferred.u), 0)
    u = swap_column(inferred.u.repeat(2, 1), groups, model.owner, generator)
    z = counterfactual_latents(model, inferred.z, inferred.u, u.chunk(2)[0], layers)
    return ContrastRows(u, torch.cat([z, inferred.z]))


def contrast_terms(
    model: CMCL,
    inferred: Inference,
    rows: ContrastRows,
    logits: Tensor,
    generator: torch.Generator | None,
) -> Terms:
    """-L_CR, Eq. 13 as a cross-entropy: D separates do(cause) from do(effect) by the latents.

    0 before `contrast_start`, and while edges of one kind are missing. `logits` (2 B, C, H, W)
    are those of `rows`.
    """
    posterior = model.embed(torch.sigmoid(logits))
    if model.settings.causal_module:
        z0 = reparametrise(*posterior, generator)
        posterior = model.posterior(z0, rows.u, inferred.labels_visible.repeat(2, 1))
    z = reparametrise(*posterior, generator)
    assert model.classifier is not None
    scores = model.classifier(z).view(2, -1)
    cross_entropy = functional.softplus(scores * model.contrast_signs).mean(1).sum()
    contrast = model.contrast_on * causes_and_effects(model).amax(1).prod() * cross_entropy
    return {"loss": contrast, "contrast": contrast.clone()}


def causes_and_effects(model: CMCL) -> Tensor:
    """(2, d) of 0 and 1: columns that cause a latent (Omega+), columns caused by one (Omega-)."""
    m = model.settings.latents
    return torch.stack([model.edges[m:, :m].amax(1), model.edges[:m, m:].amax(0)])


def counterfactual_latents(
    model: CMCL, z: Tensor, u_before: Tensor, u_after: Tensor, layers: NodeLayers | None = None
) -> Tensor:
    """Latents (B, m) had u been `u_after` (B, P): z_j + f_j(u') - f_j(u), residuals unchanged."""
    m = model.settings.latents
    standardised = ((z - model.latent_mean) / model.latent_std).repeat(2, 1)
    nodes = torch.cat([standardised, torch.cat([u_before, u_after])], dim=1)
    before, after = model.networks(nodes, model.edges, layers)[:m, :, 0].T.chunk(2)
    return z + model.latent_std * (after - before)


def swap_column(
    u: Tensor, candidates: Tensor, owner: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Replace one column of each row of u (B, P) by that of another row with another value.

    Arguments:
        candidates: (B, d) or (d,) of 0 and 1, the columns to draw from.
        owner: (d, P), 1 where an input belongs to a column.
    """
    rows = len(u)
    noise = torch.rand(rows, len(owner), device=u.device, generator=generator)
    mask = owner[(noise + candidates).argmax(1)] > 0  # (B, P)
    tries = torch.randint(rows, (SWAP_CANDIDATES, rows), device=u.device, generator=generator)
    differs = ((u[tries] != u) & mask).any(2)  # (SWAP_CANDIDATES, B)
    chosen = tries.gather(0, differs.byte().argmax(0, keepdim=True))[0]  # (B,)
    return torch.where(mask, u[chosen], u)
