"""CausalVAE on its own two simulators: concepts and counterfactuals at 96x96, and the graph from the labels alone."""

from __future__ import annotations

from intervae.experiments.base import Discover, Experiment, Train

SHOWN = ("r2_min", "counterfactual_pixel_mae", "identity_pixel_mae", "reconstruction_pixel_mae", "shd", "train_seconds")

PENDULUM = Experiment(
    "causalvae-pendulum",
    "CausalVAE on Pendulum, 96x96",
    (Train("pendulum", "causal-vae", {"size": 96}),),
    seeds=5,
    shown=SHOWN,
    notes="The graph is learned from the labels (independence of noises), nothing is given. Interventions at random values, against the "
    "simulator's truth; `identity` is doing nothing. The headline of a counterfactual metric is the mean over the causes.",
)

FLOW = Experiment(
    "causalvae-flow", "CausalVAE on Flow, 96x96", (Train("flow", "causal-vae", {"size": 96}),), seeds=5, shown=SHOWN, notes=PENDULUM.notes
)

_TABLES: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("pendulum", "grid", {}),
    ("pendulum", "random", {"samples": 4000}),
    ("flow", "grid", {}),
    ("flow", "random", {"samples": 4000}),
)
_METHODS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("independence", {}, ""),
    ("lagrangian", {}, "linear"),
    ("lagrangian", {"mechanism": "mlp"}, "mlp"),
)

GRAPH = Experiment(
    "causalvae-graph",
    "The causal graph from the labels alone, from A = 0",
    tuple(
        Discover(data, method, options, settings, " ".join(filter(None, (table, form))))
        for data, table, options in _TABLES
        for method, settings, form in _METHODS
    ),
    seeds=10,
    shown=("shd", "seconds"),
    notes="`independence` is our default (independent noises, by dynamic programming over orders); `lagrangian` is the paper's own "
    "objective (Eq. 11 under Eq. 13). `grid`: the published grid, each seed another random part of it; "
    "`random`: 4,000 continuous draws, each seed its own.",
)
