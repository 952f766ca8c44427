"""Small synthetic data sets for checks of models."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, Variable, build_dataset
from intervae.data.simulators import Motion, Pendulum
from intervae.data.transitions import DatasetTransitions, Transitions
from intervae.data.variables import Kind

ACTIONS = ("a+1", "a-1", "b+1", "b-1")


def ramps(
    shape: tuple[int, int, int] = (1, 16, 16),
    *,
    samples: int = 64,
    kinds: Sequence[Kind] = ("continuous", "continuous", "continuous"),
    seed: int = 0,
    frames: int | None = None,
) -> Dataset:
    """Return images of brightness ramps whose strengths form a causal chain a -> b -> c ...

    Arguments:
        shape: (channels, height, width).
        kinds: kind of each variable: brightness, horizontal ramp, vertical ramp, and again.
        frames: number of frames of a clip, in which the image moves right by a pixel per frame.
    """
    rng = np.random.default_rng(seed)
    names = "abcdefgh"[: len(kinds)]
    table = np.zeros((samples, len(kinds)))
    for i, kind in enumerate(kinds):
        value = rng.normal(size=samples) + (0.8 * table[:, i - 1] if i else 0.0)
        table[:, i] = value > np.median(value) if kind == "binary" else value
    channels, height, width = shape
    patterns = [
        np.ones((height, width)),
        np.linspace(-1, 1, width)[None, :] * np.ones((height, 1)),
        np.linspace(-1, 1, height)[:, None] * np.ones((1, width)),
    ]
    brightness = np.zeros((samples, height, width))
    for i in range(len(kinds)):
        brightness = brightness + table[:, i, None, None] * patterns[i % 3]
    strength = np.linspace(1, 0.5, channels)[None, :, None, None]
    images = (255 / (1 + np.exp(-brightness[:, None] * strength))).astype(np.uint8)
    if frames is not None:
        images = np.stack([np.roll(images, t, axis=-1) for t in range(frames)], axis=1)
    variables = [Variable(name, kind) for name, kind in zip(names, kinds, strict=True)]
    graph = CausalGraph.from_edges(names, pairwise(names))
    return build_dataset(
        "made", images, table, variables, seed=seed, graph=graph, source={"name": "made"}
    )


@functools.cache
def simulated_images() -> Dataset:
    """Return 96 Pendulum images of 16 x 16, with their graph and simulator."""
    return Pendulum().dataset(size=16, samples=96)


@functools.cache
def simulated_clips() -> Dataset:
    """Return 96 clips of moving points."""
    return Motion().dataset(samples=96)


def random_pairs(data: Dataset, actions: tuple[str, ...] = ACTIONS) -> Dataset:
    """Return the data with meaningless pairs: each row, its neighbour, and some action."""

    def pairs(rows: int) -> Transitions:
        before, names = torch.arange(rows), tuple(name[:-2] for name in actions[::2])
        factors = torch.arange(len(actions)) // 2
        return Transitions(before, before.roll(1), before % len(actions), actions, factors, names)

    transitions = DatasetTransitions(
        pairs(len(data.train)), pairs(len(data.validation)), pairs(len(data.test))
    )
    return replace(data, transitions=transitions, actions=actions)
