"""Latents of a clip over time: abduction from its frames, do(), and prediction of later frames."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from intervae.causal.do import Do, abduct, act, predict
from intervae.errors import QueryError
from intervae.models.batches import in_batches
from intervae.models.causal_prior.clips import background_images
from intervae.models.causal_prior.unrolled import UnrolledSEM

if TYPE_CHECKING:
    from intervae.models.causal_prior.temporal import TemporalCausalPriorVAE

MAX_STEPS = 1000  # the graph over all frames has (latents * frames)^2 entries


def roll_out(
    model: TemporalCausalPriorVAE, clips: Tensor, steps: int, do: Do | None, background: Any
) -> tuple[tuple[str, ...], Tensor, Tensor]:
    """Latents of clips (B, T, C, H, W) and of the `steps` frames after them, under `do`.

    Returns:
        Names of all latents, latents of the frames (B, T + steps, k), background codes (B, c).
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
        raise QueryError(f"steps={steps!r} must be a whole number of frames, 0 or more.")
    if steps > MAX_STEPS:
        raise QueryError(f"steps={steps} is more than {MAX_STEPS} frames; predict fewer at once.")
    _check_frames(do, clips.shape[1], steps)
    k, size = model.settings.latents, model.settings.background_size
    frames = clips.shape[1] + steps
    d = k * model.settings.window
    sem = UnrolledSEM(
        model.sem,
        model.hard_edges,
        model.graph.adjacency[:d, :d],
        latents=k,
        frames=frames,
        background_size=size,
    )
    means = in_batches(lambda chunk: model.posterior(chunk)[0], clips)  # (B, T k)
    codes = in_batches(model.background_encoder, background_images(model, clips, background))
    factual_names = sem.names[: means.shape[1]] + sem.names[frames * k :]
    factual = dict(zip(factual_names, torch.cat([means, codes], dim=1).unbind(1), strict=True))

    noises = abduct(factual, sem.mechanism)
    actions = act(do, sem.names, model.spec.categories)
    after = predict(
        sem.graph,
        # a frame after the clip has no noise: it is the mean of what follows
        lambda name, values: sem.mechanism(name, values) + noises.get(name, 0.0),
        actions,
        factual,
    )
    values = torch.stack([after[name] for name in sem.names], dim=1)  # (B, (T + steps) k + c)
    return sem.names, values[:, : frames * k].unflatten(1, (-1, k)), values[:, frames * k :]


def _check_frames(do: Do | None, frames: int, steps: int) -> None:
    for name in do or {}:
        match = re.fullmatch(r"z([1-9]\d{0,8})_\d{1,9}", str(name))
        if match and int(match[1]) > frames + steps:
            raise QueryError(
                f"do({name}): frame {match[1]} is beyond the {frames + steps} frames requested; "
                f"raise steps to {int(match[1]) - frames}."
            )
