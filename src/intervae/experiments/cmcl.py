"""CMCL on simulated data (Mao et al. 2022, Figs. 2 and 3, Tables 1 and 2).

Graphs and latents of CMCL, and of VAEs with a graph learner. The four experiments share their
trainings in runs/cmcl. `TRAININGS` has all of them, for a GPU; graph learners and tables need none.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from intervae import figures
from intervae.experiments.base import Experiment, Job
from intervae.experiments.cmcl_jobs import (
    DECISION,
    LearnGraph,
    TrainOnSimulation,
    draw_bars,
    draw_panels,
)
from intervae.models.cmcl.settings import CMCLSettings

# ---- settings ------------------------------------------------------------------------------------
DATA: dict[str, Any] = {"size": 32, "samples": 2000, "weakest": 2.0}
FOLDED = {**DATA, "gp": "free"}  # the paper's transform
PIXELS: dict[str, Any] = {"likelihood": "gaussian", "scale": 0.03, "epochs": 200, "batch_size": 64}
CMCL: dict[str, Any] = {"annealing": 0.7, "rate_schedule": "cosine", "learning_rate": 3e-3}
NETWORK: dict[str, Any] = {"network": "conv", "channels": (16, 32, 64)}  # of the VAEs
BASELINES: dict[str, dict[str, Any]] = {
    "beta-vae": {"beta": 4.0},
    "factor-vae": {"gamma": 35.0},
    "beta-tcvae": {"beta": 6.0},
    "ivae": {},
}
LEARNERS: dict[str, dict[str, Any]] = {
    "notears-mlp": {"noise": "free"},
    "ges-generalised": {"samples": 400},
    DECISION: {
        "threshold": CMCLSettings.edge_threshold,
        "one_edge_per_node": CMCLSettings.one_edge_per_node,
    },
}
FIG2 = ("1/10", "4/10", "6/12", "8/16", "10/20", "12/24", "20/40")
TABLE1: dict[str, dict[str, float]] = {  # the paper's MIC, %
    "3/10": {"cmcl": 93.5, "beta-vae": 33.3, "factor-vae": 37.9, "ivae": 47.2, "beta-tcvae": 40.6},
    "5/10": {"cmcl": 95.8, "beta-vae": 21.7, "factor-vae": 20.2, "ivae": 48.9, "beta-tcvae": 23.4},
    "8/16": {"cmcl": 88.4, "beta-vae": 12.2, "factor-vae": 13.7, "ivae": 43.6, "beta-tcvae": 14.2},
    "10/20": {"cmcl": 79.3, "beta-vae": 12.5, "factor-vae": 12.6, "ivae": 45.7, "beta-tcvae": 13.8},
}
LARGEST = "20/40"
# variant -> settings, and the paper's SHD, TPR, FPR, FDR
TABLE2: dict[str, tuple[dict[str, bool], tuple[float, float, float, float]]] = {
    "": ({}, (4.81, 0.77, 0.0, 0.0)),
    "no contrast": ({"contrast": False}, (7.76, 0.53, 0.013, 0.35)),
    "no causal module": ({"causal_module": False}, (11.75, 0.36, 0.022, 0.51)),
    "neither": ({"causal_module": False, "contrast": False}, (12.32, 0.32, 0.028, 0.56)),
}
READ_OFF, NO_ANNEALING = "graph read off W", "no annealing"  # ablations of ours
PAPER_DIFFERS = "the authors' simulation, with folded images and weak signals; ours has neither"
FREE, WEAK = "free GP", "any signal"  # variants nearer to the paper's data
FOLDED_DIFFERS = "the authors' simulation, with weak signals and a noise that is not printed"


# ---- jobs ----------------------------------------------------------------------------------------
def _cmcl(
    graph: str,
    data: dict[str, Any],
    network: dict[str, Any],
    first_seed: int,
    variant: str = "",
    **settings: Any,
) -> TrainOnSimulation:
    """Job of CMCL, equal in every table that has this graph and variant."""
    paper = _table1(graph, "cmcl", variant)
    if graph == LARGEST and variant in TABLE2:
        paper |= dict(zip(("shd", "tpr", "fpr", "fdr"), TABLE2[variant][1], strict=True))
    return TrainOnSimulation(
        "cross-modal",
        "cmcl",
        {**data, "graph": graph},
        {**PIXELS, "latents": _latents(graph), **CMCL, **network, **settings},
        f"{graph} {variant}".strip(),
        paper,
        first_seed=first_seed,
        paper_differs=FOLDED_DIFFERS if variant == FREE else PAPER_DIFFERS,
    )


def _baseline(
    graph: str,
    model: str,
    data: dict[str, Any],
    network: dict[str, Any],
    first_seed: int,
    variant: str = "",
) -> TrainOnSimulation:
    sizes = {"latents": _latents(graph)}
    settings = {**PIXELS, **NETWORK, **sizes, **BASELINES[model], **network}
    return TrainOnSimulation(
        "cross-modal",
        model,
        {**data, "graph": graph},
        settings,
        f"{graph} {variant}".strip(),
        _table1(graph, model, variant),
        first_seed=first_seed,
        paper_differs=FOLDED_DIFFERS,
    )


def _table1(graph: str, model: str, variant: str) -> dict[str, float]:
    """Return the paper's MIC, for the rows with its transform."""
    return {"mic_linked": TABLE1[graph][model] / 100} if variant == FREE else {}


def _learners(job: TrainOnSimulation) -> tuple[LearnGraph, ...]:
    return tuple(
        LearnGraph(
            job.data, f"{job.model} + {name}", job.options, settings, job.variant, training_job=job
        )
        for name, settings in LEARNERS.items()
    )


def _panels(
    data: dict[str, Any], network: dict[str, Any], first_seed: int
) -> tuple[TrainOnSimulation, ...]:
    return tuple(
        TrainOnSimulation(
            "cross-modal",
            "cmcl",
            {**data, "graph": panel},
            {**PIXELS, "latents": 5, **CMCL, **network},
            f"panel {panel}",
            first_seed=first_seed,
        )
        for panel in "abcd"
    )


def _latents(graph: str) -> int:
    """Number of latents of a graph "n/t" with n columns and t nodes."""
    columns, nodes = graph.split("/")
    return int(nodes) - int(columns)


def _graph_jobs(
    graphs: tuple[str, ...],
    data: dict[str, Any],
    network: dict[str, Any],
    baseline_network: dict[str, Any],
    first_seed: int,
) -> tuple[Job, ...]:
    jobs: list[Job] = [_cmcl(graph, data, network, first_seed) for graph in graphs]
    for graph in graphs:
        for model in BASELINES:
            jobs += _learners(_baseline(graph, model, data, baseline_network, first_seed))
    return tuple(jobs)


# ---- experiments ---------------------------------------------------------------------------------
QUICK_DATA: dict[str, Any] = {"size": 16, "samples": 1000, "weakest": 2.0}
QUICK_BASELINES: dict[str, Any] = {"channels": (8, 16), "epochs": 30}
QUICK: dict[str, Any] = {**QUICK_BASELINES, "embedding": 8, "warm_up": 2}
QUICK_GRAPH = "2/4"
GRAPH_COLUMNS = (
    "shd",
    "tpr",
    "fpr",
    "fdr",
    "shd_one_each",
    "tpr_one_each",
    "direction_right",
    "direction_right_of_found",
    "skeleton_found",
)
PANELS = ("shd", "tpr", "fpr", "fdr", "shd_one_each", "direction_right")
MIC_COLUMNS = (
    "mic_linked",
    "mic_all",
    "mic_linked_repeats",
    "mic_all_repeats",
    "mic_linked_unmatched",
    "mic_by_chance",
)
COPYING = (
    "mic_column",
    "mic_true_column",
    "copied",
    "copied_edges",
    "edges_of_kind",
    "label_influence",
)
SECONDS = ("reconstruction_mse", "train_seconds")

CMCL_FIG2 = Experiment(
    "cmcl-fig2",
    "CMCL's Figure 2: graphs over latents and columns, seven sizes",
    _graph_jobs(FIG2, DATA, {}, {}, 100),
    seeds=5,
    shown=(
        *GRAPH_COLUMNS,
        "edges_found",
        "undirected",
        "learner_seconds",
        "mic_linked",
        "train_seconds",
    ),
    columns=GRAPH_COLUMNS,
    notes=("cmcl-simulations", "cmcl-graphs", "cmcl-learners", "cmcl-fig2"),
    figure=partial(
        figures.curves_over_size,
        metrics=PANELS,
        across="edges",
        title="Graphs found over latents and columns",
    ),
    quick=_graph_jobs((QUICK_GRAPH,), QUICK_DATA, QUICK, QUICK_BASELINES, 0),
    runs="cmcl",
)
CMCL_FIG3 = Experiment(
    "cmcl-fig3",
    "CMCL's Figure 3: four graphs over five latents and five columns",
    _panels(DATA, {}, 100),
    seeds=5,
    shown=(*GRAPH_COLUMNS, "edges_found", *MIC_COLUMNS, *COPYING, *SECONDS),
    columns=(*GRAPH_COLUMNS, "mic_linked"),
    notes=("cmcl-simulations", "cmcl-graphs", "cmcl-fig3"),
    pictures=("a", "b", "c", "d"),
    gather=draw_panels,
    quick=_panels(QUICK_DATA, QUICK, 0)[1:2],
    runs="cmcl",
)
_TABLE1_JOBS: tuple[Job, ...] = (
    *(_cmcl(graph, DATA, {}, 100) for graph in TABLE1),
    *(_baseline(graph, model, DATA, {}, 100) for graph in TABLE1 for model in BASELINES),
    *(_cmcl(graph, FOLDED, {}, 100, FREE) for graph in TABLE1),
    *(_baseline(graph, model, FOLDED, {}, 100, FREE) for graph in TABLE1 for model in BASELINES),
    _cmcl("10/20", {**DATA, "weakest": 0.0}, {}, 100, WEAK),
)
CMCL_TABLE1 = Experiment(
    "cmcl-table1",
    "CMCL's Table 1: MIC of the latents with the true ones",
    _TABLE1_JOBS,
    seeds=5,
    shown=(*MIC_COLUMNS, *COPYING, "test_rows", *SECONDS),
    columns=(*MIC_COLUMNS[:5], "mic_by_chance", "mic_column", "mic_true_column", "copied"),
    notes=("cmcl-simulations", "cmcl-matching", "cmcl-copies", "cmcl-table1"),
    figure=partial(
        draw_bars,
        jobs=_TABLE1_JOBS,
        metrics=("mic_linked", "mic_all"),
        title="CMCL's Table 1: MIC with the true latents",
    ),
    quick=(
        _cmcl(QUICK_GRAPH, QUICK_DATA, QUICK, 0),
        *(_baseline(QUICK_GRAPH, model, QUICK_DATA, QUICK_BASELINES, 0) for model in BASELINES),
    ),
    runs="cmcl",
)
CMCL_TABLE2 = Experiment(
    "cmcl-table2",
    "CMCL's Table 2: ablations of the causal module and the contrast",
    (
        *(
            _cmcl(LARGEST, DATA, {}, 100, variant, **ablation)
            for variant, (ablation, _) in TABLE2.items()
        ),
        _cmcl(LARGEST, DATA, {}, 100, READ_OFF, direction="networks"),
        _cmcl(LARGEST, DATA, {}, 100, NO_ANNEALING, annealing=0.0),
    ),
    seeds=5,
    shown=(*GRAPH_COLUMNS, "edges_found", *MIC_COLUMNS, *COPYING, *SECONDS),
    columns=(*GRAPH_COLUMNS, "mic_linked"),
    notes=("cmcl-simulations", "cmcl-graphs", "cmcl-table2"),
    quick=tuple(
        _cmcl(QUICK_GRAPH, QUICK_DATA, QUICK, 0, variant, **ablation)
        for variant, (ablation, _) in TABLE2.items()
    ),
    runs="cmcl",
)


def _trainings() -> tuple[Job, ...]:
    """All trainings of the four experiments, each once, the longest first."""
    trainings: dict[str, Job] = {}
    for experiment in (CMCL_FIG2, CMCL_TABLE1, CMCL_TABLE2, CMCL_FIG3):
        for job in experiment.jobs:
            training = job.training_job if isinstance(job, LearnGraph) else job
            assert training is not None
            trainings[training.key] = training
    return tuple(
        sorted(trainings.values(), key=lambda job: (job.model != "cmcl", -job.settings["latents"]))
    )


_ALL = "All trainings of CMCL's figures and tables"
TRAININGS = Experiment("cmcl", _ALL, _trainings(), 5, shown=("mic_linked", "shd", "train_seconds"))
