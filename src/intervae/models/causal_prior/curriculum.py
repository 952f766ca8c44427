"""The curriculum of the causal-prior VAE: several starts, alignment with the SEM, selection.

Our addition to the paper. It uses training images and the prior, no labels.

positions: all starts with an isotropic prior; only latents with edges reach the decoder;
alignment: an affine map onto the SEM for each start, selection of the finalists;
trial: the finalists with the SEM as the prior;
choice: alignment again, selection of one start, which the last phase trains with the SEM prior.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from intervae.causal.sem import affine_score, fit_affine
from intervae.data import Batch, Dataset
from intervae.errors import TrainingError
from intervae.models.causal_prior.posterior import Posterior, kl_isotropic
from intervae.models.phases import Phase, Terms
from intervae.nets.stacked import Stacked

if TYPE_CHECKING:
    from intervae.models.causal_prior.model import CausalPriorVAE

NETWORKS = ("encoder", "decoder")
ALIGNMENT_IMAGES = 4096  # training images whose posterior means the affine map is fitted to
RANKING_SAMPLES, RANKING_STEPS = 512, 60  # of the quick fits by which starts are compared


def curriculum_phases(model: CausalPriorVAE) -> list[Phase]:
    """Positions and alignment; with more than one finalist also trial and choice."""
    settings, positions = model.settings, partial(positions_loss, model)
    phases = [
        model.training_phase("positions", positions, settings.first_epochs, "starts"),
        Phase("alignment", prepare=partial(align, model)),
    ]
    if model.finalists > 1:
        trial = partial(trial_loss, model)
        phases += [
            model.training_phase("trial", trial, settings.trial_epochs, "starts", "sem"),
            Phase("choice", prepare=partial(choose, model)),
        ]
    return phases


# ---- losses of all starts at once ---------------------------------------------------------------
def positions_loss(
    model: CausalPriorVAE, batch: Batch, generator: torch.Generator | None = None
) -> Terms:
    """Sum over the starts of w squared error + first_beta KL(q || N(0, I)); terms are means.

    Only latents with edges reach the decoder.
    """
    posterior = _flat_posterior(model, batch)
    count = len(posterior.mean) // len(batch["images"])
    z = posterior.draw(
        torch.randn(posterior.mean.shape, device=posterior.mean.device, generator=generator)
    )
    reconstruction = _misfit(model, z * model.coupled, batch["images"], count).mean()
    kl = kl_isotropic(posterior).mean()
    total = model.settings.reconstruction_weight * reconstruction + model.settings.first_beta * kl
    return {"loss": count * total, "reconstruction": reconstruction, "kl": kl}


def trial_loss(
    model: CausalPriorVAE, batch: Batch, generator: torch.Generator | None = None
) -> Terms:
    """Sum over the finalists of `CausalPriorVAE.loss`; terms are means. They share the SEM."""
    posterior = _flat_posterior(model, batch)
    count, gate = len(posterior.mean) // len(batch["images"]), model.gate(batch["step"])
    terms = model.terms(
        posterior, lambda z: _misfit(model, z * gate, batch["images"], count), generator
    )
    return {**terms, "loss": count * terms["loss"]}


def _flat_posterior(model: CausalPriorVAE, batch: Batch) -> Posterior:
    """Posteriors (R B, ...) of R starts for a batch of B images."""
    stacked = model.starts["encoder"](batch["images"])  # (R, B, ...)
    return Posterior(*(tensor.flatten(0, 1) for tensor in stacked))


def _misfit(model: CausalPriorVAE, z: Tensor, images: Tensor, count: int) -> Tensor:
    """Squared errors (R B,) of latents (R B, d) of R = `count` starts."""
    outputs = model.starts["decoder"](z.unflatten(0, (count, -1)), own=True)  # (R, B, C, H, W)
    return (outputs - images).square().flatten(2).sum(2).flatten()


# ---- alignment and selection --------------------------------------------------------------------
def align(model: CausalPriorVAE, data: Dataset, seed: int) -> None:
    """Align the starts with the SEM and select the finalists, after the positions phase."""
    model.scores.copy_(align_best_starts(model, data, seed, model.finalists))
    if model.scores[0] == -math.inf:
        raise TrainingError(
            "the latents of no start vary in every direction after the first phase; "
            "raise first_epochs, or lower first_beta."
        )


def choose(model: CausalPriorVAE, data: Dataset, seed: int) -> None:
    """Align the finalists again and select the best one, after the trial phase."""
    model.trial_scores.copy_(align_best_starts(model, data, seed, 1))


@torch.no_grad()
def align_best_starts(model: CausalPriorVAE, data: Dataset, seed: int, count: int) -> Tensor:
    """Align the `count` best starts and drop the others; scores of all starts, largest first.

    The best one becomes the model's encoder and decoder. With count=1 no starts remain. A start
    whose latents do not vary in every direction has the score -inf and keeps its present map.
    """
    coupled = list(model.sem.coupled)
    scores = torch.tensor(
        [
            score_start(model, start, data, seed)
            for start in range(len(stacked_starts(model, "encoder")))
        ]
    )
    order = scores.argsort(descending=True, stable=True)
    for start in order[:count].tolist():
        load_start(model, start)
        if scores[start] > -math.inf:
            means = coupled_means(model, data, seed)
            align_networks(model, coupled, *fit_affine(means, model.sem, coupled, seed=seed))
        for name in NETWORKS:
            stacked_starts(model, name).set_network(start, getattr(model, name))
    load_start(model, int(order[0]))
    for name in NETWORKS:
        stacked_starts(model, name).select(order[:count].tolist() if count > 1 else [])
    return scores[order]


def score_start(model: CausalPriorVAE, start: int, data: Dataset, seed: int) -> float:
    """`affine_score` of a start after a quick alignment; 0 for a single start."""
    if len(stacked_starts(model, "encoder")) == 1:
        return 0.0
    load_start(model, start)
    means, coupled = coupled_means(model, data, seed), list(model.sem.coupled)
    try:
        affine = fit_affine(
            means, model.sem, coupled, seed=seed, samples=RANKING_SAMPLES, steps=RANKING_STEPS
        )
    except TrainingError:
        return -math.inf
    return affine_score(means, model.sem, coupled, *affine)


def stacked_starts(model: CausalPriorVAE, name: str) -> Stacked:
    """The stacked encoders or decoders of all starts."""
    networks = model.starts[name]
    assert isinstance(networks, Stacked)
    return networks


def load_start(model: CausalPriorVAE, start: int) -> None:
    """Copy the weights of a start into the model's encoder and decoder."""
    for name in NETWORKS:
        getattr(model, name).load_state_dict(stacked_starts(model, name).network_state(start))


def coupled_means(model: CausalPriorVAE, data: Dataset, seed: int) -> Tensor:
    """Posterior means (N, m) of the m latents with edges, for random training images."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(data.train), generator=generator)[:ALIGNMENT_IMAGES]
    latents = model.encode(data.train[rows.to(data.train.device)].images)
    return latents[:, list(model.sem.coupled), 0]


@torch.no_grad()
def align_networks(
    model: CausalPriorVAE, indices: list[int], linear: Tensor, shift: Tensor
) -> None:
    """Apply z -> T z + t to the latents `indices` after the encoder.

    The first layer of the decoder absorbs the inverse, so reconstructions do not change.
    """
    T = torch.eye(len(model.coupled), device=model.device)
    t = torch.zeros_like(model.coupled)
    T[torch.tensor(indices)[:, None], torch.tensor(indices)] = linear.to(T)
    t[indices] = shift.to(t)
    first = next(layer for layer in model.decoder.layers if isinstance(layer, nn.Linear))
    weight = torch.linalg.solve(T.T, first.weight.T).T  # W T^-1
    first.weight.copy_(weight)
    first.bias.sub_(weight @ t)
    model.encoder.align(T, t)
