"""Graph of the temporal causal-prior VAE: alignment of the latents, pruning path, refit.

`selection=path` is ours: all edges are trained, the latents aligned and the graph chosen from a
path of graphs. `selection=gumbel` is the paper's (sec. 4.5): edge masks trained under a penalty.
No step uses labels.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from intervae.causal.sem import (
    PrunedGraph,
    fit_linear,
    predictable_directions,
    pruning_path,
    sparsest_graph,
)
from intervae.data import Dataset, Split
from intervae.models.batches import QUERY_BATCH, repeat_rows
from intervae.models.causal_prior.clips import as_clips
from intervae.models.phases import Phase, Player

if TYPE_CHECKING:
    from intervae.models.causal_prior.temporal import TemporalCausalPriorVAE

BANK = 2048  # background codes of training clips, from which sample() draws
REFIT_CLIPS = 8192  # training clips whose latents the coefficients are fitted to
SMALLEST_SCALE = 1e-3  # lower bound of a fitted noise scale


def temporal_phases(model: TemporalCausalPriorVAE) -> list[Phase]:
    """Training with all edges or masks, then graph selection and training with fixed edges."""
    settings = model.settings
    player = Player(model.loss, optimiser=settings.optimiser, learning_rate=settings.learning_rate)
    options: dict[str, Any] = {"batch_size": settings.batch_size, "schedule": settings.schedule}
    clips = Phase("clips", (player,), epochs=settings.epochs, **options)
    refit = Phase("refit", (player,), epochs=settings.refit_epochs, **options)
    coefficients = Phase("coefficients", prepare=partial(fit_coefficients_and_scales, model))
    last = [coefficients] if settings.refit_coefficients else []
    if settings.selection == "gumbel":
        edges = Phase("edges", prepare=partial(fix_probable_edges, model))
        return [clips, edges, *([refit] if settings.refit_epochs else []), *last]
    rounds: list[Phase] = []
    for number in range(1, settings.rounds + 1):
        rounds += [
            Phase(f"alignment {number}", prepare=partial(align_latents, model)),
            Phase(f"edges {number}", prepare=partial(choose_edges, model)),
            *([replace(refit, name=f"refit {number}")] if settings.refit_epochs else []),
        ]
    return [clips, *rounds, *last]


# ---- alignment ----------------------------------------------------------------------------------
@torch.no_grad()
def align_latents(model: TemporalCausalPriorVAE, data: Dataset, seed: int) -> None:
    """Centre the latents and separate predictable from unpredictable directions.

    The map is the same for every frame. The first layer of the decoder absorbs its inverse, so
    reconstructions do not change.
    """
    k = model.settings.latents
    means, moments = latent_moments(model, data, seed)
    centre = means.unflatten(1, (-1, k))[:, :-1].mean((0, 1))
    if not model.settings.intercepts:
        mean = means.mean(0)
        distance = mean - centre.repeat(model.settings.window)
        moments = moments - torch.outer(mean, mean) + torch.outer(distance, distance)
    linear, _ = predictable_directions(moments, k)
    first = next(layer for layer in model.decoder.modules() if isinstance(layer, nn.Linear))
    first.bias.add_(first.weight[:, :k] @ centre.to(model.offset))
    first.weight[:, :k] = first.weight[:, :k] @ torch.linalg.inv(linear).to(model.offset)  # W T^-1
    alignment = linear @ model.alignment.cpu().double()
    model.alignment.copy_(alignment)
    model.alignment_log_det.copy_(torch.linalg.slogdet(alignment)[1])
    model.offset.copy_(linear @ (model.offset.cpu().double() - centre))


def latent_moments(
    model: TemporalCausalPriorVAE, data: Dataset, seed: int
) -> tuple[Tensor, Tensor]:
    """Posterior means (N, d) of training clips, and E[z z^T] (d, d) over clips and draws.

    With `intercepts` the second is the covariance. On the CPU in double precision.
    """
    split = _random_clips(data, seed)
    means, covariance = [], torch.zeros(model.fixed.shape, dtype=torch.float64)
    for chunk in split.images.split(QUERY_BATCH):
        mean, factor, _ = model.posterior(as_clips(model, chunk[:, : model.settings.window]))
        means.append(mean.cpu().double())
        covariance += (factor @ factor.mT).sum(0).cpu().double() / len(split)
    mean = torch.cat(means)
    centred = mean - mean.mean(0) if model.settings.intercepts else mean
    return mean, centred.T @ centred / len(mean) + covariance


def _random_clips(data: Dataset, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(data.train), generator=generator)[:REFIT_CLIPS]
    return data.train[rows.to(data.train.device)]


# ---- edges --------------------------------------------------------------------------------------
@torch.no_grad()
def choose_edges(model: TemporalCausalPriorVAE, data: Dataset, seed: int) -> None:
    """Fix the edges to the sparsest graph of the path with almost the prediction errors of all."""
    path = sparsity_path(model, data, seed)
    _fix_edges(model, sparsest_graph(path, model.settings.tolerance).edges, data, seed)


@torch.no_grad()
def fix_probable_edges(model: TemporalCausalPriorVAE, data: Dataset, seed: int) -> None:
    """Fix the edges to those with a probability above 1/2."""
    _fix_edges(model, model.sem.hard_edges(), data, seed)


def _fix_edges(model: TemporalCausalPriorVAE, edges: Tensor, data: Dataset, seed: int) -> None:
    model.fixed.copy_(edges)
    model.is_fixed.fill_(1.0)
    fit_coefficients(model, data, seed)


@torch.no_grad()
def sparsity_path(model: TemporalCausalPriorVAE, data: Dataset, seed: int) -> list[PrunedGraph]:
    """Graphs from all edges to none, the least useful edge removed first.

    `errors` of each are the mean squared errors of the validation frames 2 .. W predicted from the
    frames before.
    """
    means, second = latent_moments(model, data, seed)
    split = data.validation if len(data.validation) else data.train
    clips, window = model.as_images(split.images), model.settings.window
    latents = model.encode(split.images, background=split.fields.get("background"))
    z, codes = latents[:, : len(model.fixed), 0], latents[:, len(model.fixed) :, 0]
    path = []
    for graph in pruning_path(second, model.sem.allowed.cpu()):
        weights, constants, _ = fit_linear(means, graph.edges, intercepts=model.settings.intercepts)
        predicted = z @ weights.to(z) + constants.to(z)
        predicted = predicted.unflatten(1, (-1, model.settings.latents))
        images = model.decode_frames(predicted, codes).clamp(0, 1)
        errors = (images - clips[:, :window]).square().mean((0, 2, 3, 4))[1:]
        path.append(replace(graph, errors=tuple(errors.tolist())))
    return path


# ---- coefficients -------------------------------------------------------------------------------
@torch.no_grad()
def fit_coefficients(model: TemporalCausalPriorVAE, data: Dataset, seed: int) -> None:
    """Fit coefficients and noise scales to latents of training clips by least squares.

    Also stores background codes for sample(). Without `refit_coefficients` it does only that.
    """
    split, d = _random_clips(data, seed), len(model.fixed)
    latents = model.encode(split.images, background=split.fields.get("background"))[..., 0].cpu()
    model.bank.copy_(repeat_rows(latents[:, d:], BANK))
    if not model.settings.refit_coefficients:
        return
    weights, constants, scales = fit_linear(
        latents[:, :d], model.fixed, intercepts=model.settings.intercepts
    )
    model.sem.weights.copy_(weights)
    if model.sem.intercepts is not None:
        model.sem.intercepts.copy_(constants)
    model.sem.log_scales.copy_(scales.clamp(min=SMALLEST_SCALE).log())


@torch.no_grad()
def fit_coefficients_and_scales(model: TemporalCausalPriorVAE, data: Dataset, seed: int) -> None:
    """`fit_coefficients` with the noise scales that minimise the KL, after all training.

    They are diag((I - A)^T S (I - A))^1/2 with S of `latent_moments`, which includes the posterior
    variance.
    """
    fit_coefficients(model, data, seed)
    identity = torch.eye(len(model.fixed), dtype=torch.float64)
    system = identity - (model.fixed * model.sem.weights).cpu().double()
    variances = (system.T @ latent_moments(model, data, seed)[1] @ system).diagonal()
    model.sem.log_scales.copy_(variances.sqrt().clamp(min=SMALLEST_SCALE).log())
