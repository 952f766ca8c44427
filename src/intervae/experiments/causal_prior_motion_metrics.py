"""Metrics of the temporal causal-prior VAE on clips of sprites: positions, graph, predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.causal.sem import PrunedGraph
from intervae.data import Dataset, Split
from intervae.data.simulators.sprite_clips import SpriteClips
from intervae.experiments.base import MetricKey, Numbers
from intervae.metrics import best_frame_permutation
from intervae.models.base import Model

STEPS = 3  # predicted frames
REGRESSION_CLIPS = 4096  # training clips of the regression of positions on latents
# penalties per edge at which the path is shown
PENALTIES = (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SMALL_COEFFICIENT = 0.15  # below it a position is no cause; that of the spring is 0.3
TemporalModel = Any  # a model whose encode() and reconstruct() take background=


def simulator_of(data: Dataset) -> SpriteClips:
    assert isinstance(data.simulator, SpriteClips)
    return data.simulator


def latents_and_positions(
    model: TemporalModel, split: Split, coordinates: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """Latents (N, W, k) and positions (N, W, c) of the first window of each clip."""
    window, k = model.settings.window, model.settings.latents
    latents = model.encode(split.images, background=split.fields.get("background"))
    z = latents[:, : window * k, 0].cpu().numpy().reshape(-1, window, k)
    positions = split.labels.cpu().numpy()[:, : coordinates * window]
    positions = positions.reshape(-1, window, coordinates)
    return z.astype(np.float64), positions


def position_metrics(model: Model, data: Dataset) -> Numbers:
    """R^2 on test frames of positions regressed linearly on the latents of the frame.

    `position_r2` on all latents, `position_r2_coupled` on those with an edge.
    """
    names = simulator_of(data).coordinates
    c = len(names)
    z_train, positions_train = latents_and_positions(model, data.train[:REGRESSION_CLIPS], c)
    z_test, positions_test = latents_and_positions(model, data.test, c)
    edges = model.fixed.cpu().numpy()
    coupled = (edges.sum(0) + edges.sum(1)).reshape(model.settings.window, -1).sum(0) > 0
    target = positions_test.reshape(-1, c)
    spread = target - target.mean(0)
    numbers: Numbers = {}
    for name, columns in (("position_r2", np.ones_like(coupled)), ("position_r2_coupled", coupled)):
        train, test = (
            with_ones(z[..., columns]).reshape(-1, columns.sum() + 1) for z in (z_train, z_test)
        )
        slopes = np.linalg.lstsq(train, positions_train.reshape(-1, c), rcond=None)[0]
        residual = target - test @ slopes
        numbers[name] = float(1 - np.square(residual).sum() / np.square(spread).sum())
        if name == "position_r2":
            for i, axis in enumerate(names):
                explained = 1 - np.square(residual[:, i]).sum() / np.square(spread[:, i]).sum()
                numbers[MetricKey(name, axis)] = float(explained)
    return numbers


def graph_metrics(model: Model, laws: np.ndarray) -> Numbers:
    """SHD up to the order of the latents, number of edges, largest relative coefficient error.

    `laws` (2, c, c) has the true coefficients on the coordinates of two frames before and of one.
    """
    window, k, c = model.settings.window, model.settings.latents, laws.shape[1]
    edges = model.fixed.cpu().numpy().astype(int)
    match = best_frame_permutation(true_edges(laws, window), edges, window)
    order = match.parameters["permutation"]
    weights = (model.fixed * model.sem.weights).detach().cpu().numpy()[np.ix_(order, order)]
    last = (window - 1) * k
    learned = np.stack(
        [weights[last - lag * k : last - lag * k + c, last : last + c] for lag in (2, 1)]
    )
    true = laws != 0
    return {
        "shd": float(match.shd),
        "edges": float(model.fixed.sum()),
        "coefficient_error": float(np.abs(learned[true] / laws[true] - 1).max()),
    }


def true_edges(laws: np.ndarray, window: int) -> np.ndarray:
    """(W c, W c): edges of coefficients (2, c, c), into the last frame from the two before."""
    c = laws.shape[1]
    edges, last = np.zeros((window * c, window * c), dtype=int), (window - 1) * c
    edges[last - 2 * c : last - c, last:], edges[last - c : last, last:] = laws != 0
    return edges


def law_metrics(model: TemporalModel, data: Dataset) -> Numbers:
    """The learned equations as a law of the true positions, whatever mixture the latents are.

    Predictions of the last frame's latents are read as positions by the regression of positions on
    latents, and regressed on the true positions of the two frames before: (2, c, c) coefficients.
    `law_error` is the largest absolute error of these, `law_shd` counts the wrong ones among those
    above SMALL_COEFFICIENT.
    """
    simulator, k = simulator_of(data), model.settings.latents
    c = len(simulator.coordinates)
    z, positions = latents_and_positions(model, data.train[:REGRESSION_CLIPS], c)
    slopes = np.linalg.lstsq(with_ones(z.reshape(-1, k)), positions.reshape(-1, c), rcond=None)[0]
    latents = torch.from_numpy(z.reshape(len(z), -1)).to(model.sem.weights)
    predicted = model.sem.mean(latents, model.fixed)[:, -k:].detach().cpu().double().numpy()
    causes = with_ones(positions[:, -3:-1].reshape(len(z), -1))
    law = np.linalg.lstsq(causes, with_ones(predicted) @ slopes, rcond=None)[0]
    error = law[:-1].reshape(2, c, c) - simulator.coefficients()
    wrong = (np.abs(law[:-1].reshape(2, c, c)) > SMALL_COEFFICIENT) != (
        simulator.coefficients() != 0
    )
    return {"law_error": float(np.abs(error).max()), "law_shd": float(wrong.sum())}


def with_ones(values: np.ndarray) -> np.ndarray:
    """Values (..., n) with a column of ones, (..., n + 1)."""
    return np.concatenate([values, np.ones((*values.shape[:-1], 1))], axis=-1)


def prediction_metrics(model: Model, data: Dataset) -> Numbers:
    """Mean squared pixel errors on test clips, beside three references.

    The references are a copy of the last given frame, the background without a sprite, and the
    reconstruction of the true frame. `_inside` uses only the clips whose sprites stay inside.
    """
    split, history = data.test, model.settings.window - 1
    background = split.fields["background"]
    truth, inside = simulated_future(data, split, history)
    predictions = {
        "extrapolation_mse": model.extrapolate(
            split.images[:, :history], STEPS, background=background
        ).cpu(),
        "copy_mse": (split.images[:, history - 1 : history].float() / 255).expand_as(truth),
        "empty_mse": (background[:, None].float() / 255).expand_as(truth),
        "truth_mse": reconstruct_frames(model, truth, background),
    }
    reconstruction = reconstruction_mse(model, split)
    numbers: Numbers = {
        "reconstruction_mse": reconstruction,
        "inside": float(inside.float().mean()),
    }
    for name, prediction in predictions.items():
        errors = (prediction - truth).square().mean((2, 3, 4))  # (N, steps)
        next_name = "prediction_mse" if name == "extrapolation_mse" else f"{name}_next"
        numbers[next_name] = float(errors[:, 0].mean())
        numbers[name] = float(errors.mean())
        for step in range(STEPS):
            numbers[MetricKey(name, f"step {step + 1}")] = float(errors[:, step].mean())
        if inside.any():
            numbers[f"{name}_inside"] = float(errors[inside].mean())
    numbers["accuracy"] = accuracy(reconstruction, numbers["prediction_mse"], model.settings.window)
    return numbers


def simulated_future(data: Dataset, split: Split, history: int) -> tuple[Tensor, Tensor]:
    """The simulator's frames (N, STEPS, C, H, W) after the first `history` of each clip.

    Also (N,): whether the sprite stays completely inside the image.
    """
    simulator = simulator_of(data)
    first_positions = split.labels.numpy()[:, : len(simulator.coordinates) * history]
    frames, positions = simulator.extrapolate(
        first_positions, split.fields["exogenous"].numpy(), STEPS
    )
    inside = ((positions >= simulator.walls[0]) & (positions <= simulator.walls[1])).all(1)
    return torch.from_numpy(frames).float() / 255, torch.from_numpy(inside)


def reconstruct_frames(model: TemporalModel, frames: Tensor, background: Tensor) -> Tensor:
    """Frames (N, S, C, H, W), each encoded and decoded on its own."""
    window = model.settings.window

    def reconstruct(frame: Tensor) -> Tensor:
        clip = frame[:, None].expand(-1, window, -1, -1, -1)
        return model.reconstruct(clip, background=background)[:, 0].cpu()

    return torch.stack([reconstruct(frame) for frame in frames.unbind(1)], 1)


def reconstruction_mse(model: TemporalModel, split: Split) -> float:
    images = model.reconstruct(split.images, background=split.fields["background"]).cpu()
    return float((images - split.images.float() / 255).square().mean())


def accuracy(reconstruction: float, prediction: float, window: int) -> float:
    """1 - mean squared error over the frames of the loss: all reconstructed, the last predicted."""
    return 1 - (window * reconstruction + prediction) / (window + 1)


def path_metrics(path: Sequence[PrunedGraph], model: Model, data: Dataset) -> Numbers:
    """Accuracy on validation clips, SHD and number of edges for each penalty per edge."""
    window, truth = (
        model.settings.window,
        true_edges(simulator_of(data).coefficients(), model.settings.window),
    )
    reconstruction = reconstruction_mse(model, data.validation)
    numbers: Numbers = {}
    for penalty in PENALTIES:
        graph = [graph for graph in path if graph.penalty <= penalty][-1]
        edges = graph.edges.numpy().astype(int)
        shd = best_frame_permutation(truth, edges, window).shd
        error = graph.errors[-1]
        numbers[MetricKey("path_accuracy", f"{penalty:g}")] = accuracy(
            reconstruction, error, window
        )
        numbers[MetricKey("path_shd", f"{penalty:g}")] = float(shd)
        numbers[MetricKey("path_edges", f"{penalty:g}")] = float(graph.count)
    return numbers
