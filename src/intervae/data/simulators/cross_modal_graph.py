"""Graphs of the cross-modal simulator: one-to-one edges between latents z and columns u."""

from __future__ import annotations

import re

import numpy as np

from intervae.errors import UsageError, unknown

MAX_LATENTS = 25  # cells of the image
DIRECTIONS = ("random", "causal", "anti-causal", "half")
PANELS = {  # Fig. 3 of the paper, five latents and five columns each
    "a": (("z1", "u1"), ("z2", "u3"), ("z3", "u2")),
    "b": (("u1", "z1"), ("u2", "z2"), ("u3", "z3")),
    "c": (("z1", "u1"), ("z3", "u2"), ("z4", "u3"), ("z5", "u4"), ("z2", "u5")),
    "d": (("u1", "z1"), ("u2", "z3"), ("u3", "z2"), ("u4", "z5"), ("u5", "z4")),
}


def draw_edges(
    graph: str, edges: int | None, directions: str, rng: np.random.Generator
) -> tuple[tuple[str, ...], tuple[str, ...], list[tuple[str, str]]]:
    """Draw one-to-one edges; return names of latents, names of columns, and edges."""
    if directions not in DIRECTIONS:
        raise unknown("directions", directions, DIRECTIONS)
    if graph in PANELS:
        if edges is not None or directions != "random":
            raise UsageError(
                f"graph={graph!r} is a panel with edges of its own; "
                "leave out edges= and directions=."
            )
        return _names("z", 5), _names("u", 5), list(PANELS[graph])
    match = re.fullmatch(r"\s*(\d{1,4})\s*/\s*(\d{1,4})\s*", str(graph))
    if match is None:
        raise UsageError(
            f'graph={graph!r} must be "edges/nodes", such as "5/10", or a panel of Fig. 3: '
            f"{', '.join(PANELS)}."
        )
    structured, total = int(match[1]), int(match[2])
    latents = total - structured
    if structured < 1 or not 1 <= latents <= MAX_LATENTS:
        raise UsageError(
            f"graph={graph!r} has {structured} structured variables and {latents} latents; "
            f"1 or more and 1 to {MAX_LATENTS} are needed."
        )
    max_edges = min(structured, latents)
    count = structured if edges is None else edges
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= max_edges:
        raise UsageError(
            f"graph={graph!r} has room for 0 to {max_edges} one-to-one edges, not edges={count!r}."
        )
    z, u = _names("z", latents), _names("u", structured)
    is_causal = np.full(max_edges, directions == "causal")
    if directions == "half":
        is_causal = np.arange(max_edges) < count / 2
    if directions == "random":
        is_causal = rng.random(max_edges) < 0.5
    chosen = rng.permutation(latents)[:count], rng.permutation(structured)[:count]
    pairs = [
        (u[i], z[j]) if causal else (z[j], u[i])
        for j, i, causal in zip(*chosen, is_causal[:count], strict=True)
    ]
    return z, u, pairs


def _names(letter: str, count: int) -> tuple[str, ...]:
    return tuple(f"{letter}{i}" for i in range(1, count + 1))
