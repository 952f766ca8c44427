"""Figures 4 to 7 of the causal-prior VAE on clips of sprites: graph, responses, do(), steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from intervae import figures
from intervae.causal.graph import CausalGraph
from intervae.data import Dataset
from intervae.experiments.causal_prior_motion_metrics import (
    STEPS,
    TemporalModel,
    latents_and_positions,
    simulated_future,
    simulator_of,
)
from intervae.models.base import Model

CLIPS, VALUES, BACKGROUNDS = 3, 5, 6  # numbers of clips, do() values and backgrounds shown
MAP_SIZE = 31  # positions along each axis of a response map


def draw_figures(model: Model, data: Dataset, folder: Path) -> None:
    """Draw graph.png, responses.png, interventions.png and extrapolation.png into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    names = model.latent_names[: len(model.fixed)]
    weights = (model.fixed * model.sem.weights).detach().cpu().double().numpy()
    figures.draw_graph(folder / "graph.png", CausalGraph(names, weights))
    figures.response_maps(
        folder / "responses.png",
        responses(model, data),
        [f"z_{i}" for i in range(model.settings.latents)],
        note="mean over backgrounds of each latent, a sprite at every position",
    )
    figures.clip_interventions(
        folder / "interventions.png", intervention_rows(model, data), groups=model.settings.window
    )
    rows, heads = extrapolation_rows(model, data)
    figures.clip_rows(folder / "extrapolation.png", rows, heads=heads, pairs=2)


def responses(model: TemporalModel, data: Dataset) -> dict[str, np.ndarray]:
    """(k, MAP_SIZE, MAP_SIZE): mean over backgrounds of each latent, for every sprite position.

    One entry for each sprite; another one stays in the middle of its start.
    """
    simulator, k = simulator_of(data), model.settings.latents
    names = simulator.coordinates
    axis = np.linspace(*simulator.walls, MAP_SIZE)
    y, x = (grid.ravel() for grid in np.meshgrid(axis, axis, indexing="ij"))
    by_sprite = {}
    for first in range(0, len(names), 2):
        state = np.tile([np.mean(simulator.ranges[name]) for name in names], (len(x), 1))
        state[:, first], state[:, first + 1] = x, y
        positions, maps = np.tile(state, (1, simulator.frames)), []
        for number in range(min(BACKGROUNDS, simulator.backgrounds)):
            noises = np.zeros((len(positions), len(simulator.exogenous_names)))
            noises[:, -1] = number
            clips = torch.from_numpy(simulator.render(positions, noises))
            latents = model.encode(clips, background=torch.from_numpy(simulator.background(noises)))
            maps.append(latents[:, :k, 0].cpu().numpy())
        label = "" if len(names) == 2 else f"{names[first]}, {names[first + 1]}"
        by_sprite[label] = np.mean(maps, axis=0).T.reshape(k, MAP_SIZE, MAP_SIZE)
    return by_sprite


def intervention_rows(model: Model, data: Dataset) -> list[figures.ClipRow]:
    """One row per latent of a test clip, set to several values; differences from the background.

    The clip is the one with the darkest background.
    """
    backgrounds = data.test.fields["background"]
    darkest = int(backgrounds.float().flatten(1).mean(1).argmin())
    clip, background = (
        images[darkest : darkest + 1].expand(VALUES, *images.shape[1:])
        for images in (data.test.images, backgrounds)
    )
    reach = latents_and_positions(model, data.test)[0][:, :-1].std((0, 1)).max()
    values = np.linspace(-2, 2, VALUES) * reach
    rows = []
    for name in model.latent_names[: len(model.fixed)]:
        images = model.counterfactual(clip, {name: values}, background=background).cpu()
        difference = (images - background[:, None].float() / 255).clamp(min=0)
        rows.append(figures.ClipRow(f"do({name})", difference, values.tolist()))
    return rows


def extrapolation_rows(model: Model, data: Dataset) -> tuple[list[figures.ClipRow], list[str]]:
    """Given and predicted frames above the simulator's, and the heads of the columns.

    For the first test clips whose sprites stay inside the image, if there are any.
    """
    history = model.settings.window - 1
    truth, inside = simulated_future(data, data.test, history)
    numbers = np.argsort(~inside.numpy(), kind="stable")[:CLIPS]
    split = data.test[numbers]
    history_frames = split.images[:, :history].float() / 255
    predicted = model.extrapolate(
        split.images[:, :history], STEPS, background=split.fields["background"]
    ).cpu()
    rows = []
    for row, number in enumerate(numbers):
        clip = torch.cat([history_frames[row], predicted[row]])
        rows.append(figures.ClipRow("model", clip, generated=STEPS))
        rows.append(figures.ClipRow("simulator", torch.cat([history_frames[row], truth[number]])))
    heads = [f"given {t + 1}" for t in range(history)] + [f"+{t + 1}" for t in range(STEPS)]
    return rows, heads
