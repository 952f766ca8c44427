"""Directions of the edges of simulated graphs, for benchmarks/directions.py."""

from __future__ import annotations

import numpy as np
from direction_pairs import cause, function, level, noise

from intervae.causal.graph import CausalGraph
from intervae.discovery.direction_confidence import assess_directions

VARIABLES = (3, 4, 5)


def graph_directions(seeds: range = range(60), rows: int = 600) -> list[tuple[float, bool]]:
    """Confidence in the true direction of each edge, on the true graph with one edge reversed.

    Each random graph is assessed with its true edges and, per edge, with that edge reversed where
    no cycle appears; half of the assessed edges are then wrong.
    """
    results: list[tuple[float, bool]] = []
    for seed in seeds:
        rng = np.random.default_rng([seed, 4])
        table, graph = simulate(rng, int(rng.choice(VARIABLES)), rows)
        for direction in assess_directions(table, graph):
            results.append((direction.confidence, True))
        for a, b, _ in graph.edges:
            edges = [(b, a) if e[:2] == (a, b) else e[:2] for e in graph.edges]
            reversed_graph = CausalGraph.from_edges(graph.names, edges)
            if reversed_graph.is_acyclic:
                assessed = assess_directions(table, reversed_graph)
                wrong = next(d for d in assessed if (d.cause, d.effect) == (b, a))
                results.append((1.0 - wrong.confidence, True))
    return results


def simulate(rng: np.random.Generator, variables: int, rows: int) -> tuple[np.ndarray, CausalGraph]:
    """A table (rows, n) and its graph: each pair has an edge with probability 0.4.

    Half of the effects are additive, half are post-nonlinear.
    """
    names = [f"x{i}" for i in range(variables)]
    columns: list[np.ndarray] = []
    edges: list[tuple[str, str]] = []
    for i in range(variables):
        parents = [j for j in range(i) if rng.random() < 0.4]
        edges += [(names[j], names[i]) for j in parents]
        if not parents:
            columns.append(cause(rng, rows))
            continue
        value = sum(function(columns[j], rng) for j in parents) + level(rng) * noise(rng, rows)
        value = (value - value.mean()) / value.std()
        columns.append(np.exp(0.5 * value) if rng.random() < 0.5 else value)
    return np.stack(columns, axis=1), CausalGraph.from_edges(names, edges)
