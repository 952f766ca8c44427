"""The SEM over a window of frames, unrolled along a clip of any length."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from intervae.causal.do import Values
from intervae.causal.graph import CausalGraph
from intervae.causal.sem.equations import SEM


class UnrolledSEM:
    """Equations of every latent of a clip: z{t}_{i} of frame t, and b{i} of the background.

    Frame t depends on the window - 1 frames before it, or on all of them at the start of the clip.

    Arguments:
        sem: SEM over the latents of `window` frames, in the order of time.
        edges: (d, d) edges of the SEM, d = window * latents.
        adjacency: (d, d) the same as an array, of which `graph` is made.
        latents: latents k of each frame.
        frames: frames of the unrolled clip.
        background_size: latents of the background, which have no causes.
    """

    def __init__(
        self,
        sem: SEM,
        edges: Tensor,
        adjacency: np.ndarray,
        *,
        latents: int,
        frames: int,
        background_size: int,
    ) -> None:
        self.sem, self.edges, self.adjacency = sem, edges, adjacency
        self.latents, self.frames = latents, frames
        self.window = len(edges) // latents
        self.names = tuple(f"z{t + 1}_{i}" for t in range(frames) for i in range(latents))
        self.names += tuple(f"b{i}" for i in range(background_size))

    def mechanism(self, name: str, values: Values) -> Tensor:
        """Return the SEM's mean (B,) of a latent from the frames before its own."""
        k = self.latents
        t, i = divmod(self.names.index(name), k)
        zero = torch.zeros_like(next(iter(values.values())))
        if t >= self.frames:
            return zero
        position = min(t, self.window - 1)  # of the frame in the window
        past = [values[each] for each in self.names[(t - position) * k : t * k]]
        window = torch.stack([*past, *[zero] * (len(self.edges) - len(past))], dim=1)  # (B, d)
        return self.sem.mean(window, self.edges)[:, position * k + i]

    @cached_property
    def graph(self) -> CausalGraph:
        """Graph over `names`."""
        k, edges = self.latents, self.adjacency
        weights = np.zeros((len(self.names), len(self.names)))
        for t in range(1, self.frames):
            position = min(t, self.window - 1)
            own = slice(position * k, (position + 1) * k)
            weights[(t - position) * k : t * k, t * k : (t + 1) * k] = edges[: position * k, own]
        return CausalGraph(self.names, weights)
