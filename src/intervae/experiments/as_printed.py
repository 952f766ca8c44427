"""The seed papers as printed beside our recipe: one table per paper, "as printed | ours | paper".

The rows "as printed" are the preset `paper` of each model. Further rows change our recipe in one
printed respect each, so that a reader sees what each change brings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from intervae.experiments.base import Experiment, Job
from intervae.experiments.betavae import BETA_VAE_METRIC
from intervae.experiments.causal_prior_motion import CAUSAL_PRIOR_MOTION
from intervae.experiments.causal_prior_parabola import CAUSAL_PRIOR_PARABOLA, ParabolaTraining
from intervae.experiments.causalvae_table1 import TABLE1
from intervae.experiments.cmcl import CMCL_TABLE1, FREE, READ_OFF
from intervae.experiments.ctvae import CTVAE_TABLE1
from intervae.experiments.jobs import Train
from intervae.experiments.ladder import LVAE_MNIST, LikelihoodJob

PRINTED, OURS = "as printed", "ours"
PAPER: dict[str, Any] = {"preset": "paper"}
# small runs of the quick forms, for two cores
_QUICK_IMAGES = {"size": 16, "samples": 400}
_SEEDS = 5


def variants_of(
    job: Job, printed: Mapping[str, Any], changes: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[Job, ...]:
    """Return a job as printed and as it is, and with single changes of the latter.

    Arguments:
        printed: settings of the row "as printed"; what the paper leaves open as in `job`.
        changes: name -> settings in which the row "ours, NAME" differs from `job`.
    """
    jobs = [
        replace(job, variant=f"{job.variant} {PRINTED}".strip(), settings=printed, seeds=None),
        replace(job, variant=f"{job.variant} {OURS}".strip(), seeds=None),
    ]
    for name, settings in (changes or {}).items():
        variant = f"{job.variant} {OURS}, {name}".strip()
        jobs.append(
            replace(job, variant=variant, settings={**job.settings, **settings}, seeds=None)
        )
    return tuple(jobs)


def _of(experiment: Experiment, **equal: Any) -> tuple[Job, ...]:
    """Return the jobs of an experiment whose fields have these values."""
    return tuple(
        job
        for job in experiment.jobs
        if all(getattr(job, name) == value for name, value in equal.items())
    )


def _quick(jobs: tuple[Job, ...], options: Mapping[str, Any], **settings: Any) -> tuple[Job, ...]:
    """Return jobs on small data with small settings."""
    return tuple(
        replace(job, options={**job.options, **options}, settings={**job.settings, **settings})
        for job in jobs
    )


# ---- CausalVAE -----------------------------------------------------------------------------------
_CAUSAL_CHANGES: dict[str, dict[str, Any]] = {
    "prior_std=1": {"prior_std": 1.0},
    "l_m moves z": {"mechanism_gradient_to_latents": True},
    "no absolute error": {"absolute_error_weight": 0.0},
    "decoder per concept": {"decoder": "per-concept"},
    "encoder with labels": {"encode_labels": True, "label_dropout": 0.0},
    "graph pretrained": {"graph": "pretrained", "pretraining_l1": 0.0},
}
_CAUSAL = tuple(
    row
    for job in TABLE1.jobs
    if job.model in ("causal-vae", "condition-vae", "causal-vae-unsup")
    and job.settings.get("decoder") != "layers"
    for row in variants_of(
        job,
        PAPER,
        _CAUSAL_CHANGES if (job.data, job.model) == ("pendulum", "causal-vae") else {},
    )
)
CAUSALVAE = Experiment(
    "causalvae-as-printed",
    "CausalVAE's Table 1, as printed beside ours",
    _CAUSAL,
    seeds=_SEEDS,
    shown=TABLE1.shown,
    notes=("as-printed", "as-printed-causalvae"),
    columns=("mic", "tic", "r2_min", "counterfactual_pixel_mae", "reconstruction_pixel_mae", "shd"),
    compared=(PRINTED, OURS),
    quick=_quick(_CAUSAL[:2], _QUICK_IMAGES, epochs=3),
)

# ---- causal-prior VAE ----------------------------------------------------------------------------
_PRIOR = variants_of(
    replace(_of(CAUSAL_PRIOR_PARABOLA, variant="causal prior")[0], variant=""),
    PAPER,
    {
        "local_min": {"divergence": "local_min"},
        "no curriculum": {"curriculum": False},
        "adagrad": {"optimiser": "adagrad", "learning_rate": 3e-3, "schedule": "constant"},
    },
)
_QUICK_PRIOR = tuple(
    replace(job, options={"size": 16, "samples": 2000})
    for job in variants_of(
        ParabolaTraining(
            "parabola", "causal-prior-vae", {}, {"restarts": 2, "finalists": 1, "epochs": 2}
        ),
        {**PAPER, "epochs": 2, "pivots": 10},
    )
)
_CLIPS = variants_of(
    replace(_of(CAUSAL_PRIOR_MOTION, variant="path")[0], variant=""),
    PAPER,
    {"local_min": {"divergence": "local_min"}, "gumbel": {"selection": "gumbel"}},
)
CAUSAL_PRIOR = Experiment(
    "causal-prior-as-printed",
    "The causal-prior VAE, as printed beside ours",
    (*_PRIOR, *_CLIPS),
    seeds=_SEEDS,
    shown=(*CAUSAL_PRIOR_PARABOLA.shown, *CAUSAL_PRIOR_MOTION.shown),
    notes=("as-printed", "as-printed-causal-prior"),
    columns=("r2_x", "r2_y", "other_r2", "position_r2", "shd", "coefficient_error", "accuracy"),
    compared=(PRINTED, OURS),
    quick=_QUICK_PRIOR,
)

# ---- CMCL ----------------------------------------------------------------------------------------
_GRAPHS = tuple(
    job for job in CMCL_TABLE1.jobs if job.model == "cmcl" and job.variant.endswith(FREE)
)
_CMCL_CHANGES: dict[str, dict[str, Any]] = {
    "no annealing": {"annealing": 0.0},
    READ_OFF: {"direction": "norms", "edge_threshold": 0.3},
    "alternating steps": {"training_steps": "alternating"},
    "penalty of cycles": {"acyclicity": "penalty"},
}


def _cmcl_rows(job: Job, changes: Mapping[str, Mapping[str, Any]]) -> tuple[Job, ...]:
    """Return rows of CMCL; size of the graph and pixel noise are those of the data."""
    sizes = {key: job.settings[key] for key in ("latents", "epochs", "batch_size")}
    return variants_of(job, {**PAPER, **sizes}, changes)


_CMCL = tuple(
    row
    for job in _GRAPHS
    for row in _cmcl_rows(job, _CMCL_CHANGES if job.options["graph"] == "5/10" else {})
)
CMCL = Experiment(
    "cmcl-as-printed",
    "CMCL's Table 1, as printed beside ours",
    _CMCL,
    seeds=_SEEDS,
    shown=(*CMCL_TABLE1.shown, "shd", "tpr", "fpr", "fdr", "direction_right"),
    notes=("as-printed", "as-printed-cmcl"),
    columns=("mic_linked", "mic_all", "shd", "tpr", "fpr", "fdr"),
    compared=(PRINTED, OURS),
    quick=tuple(
        replace(row, settings={**row.settings, "embedding": 8, "epochs": 10})
        for job in CMCL_TABLE1.quick[:1]
        for row in _cmcl_rows(job, {})
    ),
)

# ---- CT-VAE --------------------------------------------------------------------------------------
_CT_CHANGES: dict[str, dict[str, Any]] = {
    "MLP edge scores": {"edge_network": "mlp"},
    "sampled graph": {"graph_samples": 1},
    "codes by gradient": {"code_update": "gradient"},
}
_CT = tuple(
    row
    for job in CTVAE_TABLE1.jobs
    if job.model == "ct-vae" and job.paper
    for row in variants_of(job, PAPER, _CT_CHANGES if job.data == "cars3d" else {})
)
CTVAE = Experiment(
    "ctvae-as-printed",
    "CT-VAE's Table 1, as printed beside ours",
    _CT,
    seeds=_SEEDS,
    shown=CTVAE_TABLE1.shown,
    notes=("as-printed", "as-printed-ctvae"),
    columns=(
        "action_accuracy",
        "factor_accuracy",
        "majority_accuracy",
        "factor_majority_accuracy",
        "action_psnr",
        "mask_open",
        "edges_open",
    ),
    compared=(PRINTED, OURS),
    quick=tuple(
        row
        for job in CTVAE_TABLE1.quick
        for row in variants_of(
            job,
            {
                **PAPER,
                "codes": 32,
                "features": 32,
                "filters": 16,
                "blocks": 1,
                "width": 32,
                "edge_width": 16,
                "epochs": 2,
                "transition_epochs": 1,
                "transition_batch": 64,
            },
        )
    ),
)

# ---- beta-VAE and the ladder ---------------------------------------------------------------------
_SHAPES = tuple(
    row
    for job in BETA_VAE_METRIC.jobs
    if job.model in ("vae", "beta-vae")
    for row in variants_of(job, PAPER)
)
BETA_VAE = Experiment(
    "betavae-as-printed",
    "The beta-VAE metric, as printed beside ours",
    _SHAPES,
    seeds=_SEEDS,
    shown=BETA_VAE_METRIC.shown,
    notes=("as-printed", "as-printed-betavae"),
    columns=("beta_vae_score", "factor_vae_score"),
    compared=(PRINTED, OURS),
    quick=variants_of(
        Train(
            "pendulum",
            "beta-vae",
            _QUICK_IMAGES,
            {"network": "mlp-1200", "epochs": 2},
            metrics=("reconstruction",),
        ),
        {**PAPER, "epochs": 2},
    ),
)
_LONG = tuple(job for job in LVAE_MNIST.jobs if job.variant == "LVAE+BN+WU 5 long")
_LADDER = tuple(row for job in _LONG for row in variants_of(replace(job, variant=""), PAPER))
LADDER = Experiment(
    "lvae-as-printed",
    "The Ladder VAE on MNIST, as printed beside ours",
    _LADDER,
    seeds=_SEEDS,
    shown=LVAE_MNIST.shown,
    notes=("as-printed", "as-printed-lvae"),
    columns=("log_likelihood", "elbo", "active_units", "active_units_above"),
    compared=(PRINTED, OURS),
    quick=variants_of(
        LikelihoodJob(
            "pendulum",
            "ladder-vae",
            _QUICK_IMAGES,
            {"latents": (4, 2), "widths": (32, 16), "epochs": 3, "warm_up": 1, "batch_size": 64},
            samples=10,
        ),
        {
            **PAPER,
            "latents": (4, 2),
            "widths": (32, 16),
            "epochs": 3,
            "warm_up": 1,
            "batch_size": 64,
        },
    ),
)

AS_PRINTED: tuple[Experiment, ...] = (CAUSALVAE, CAUSAL_PRIOR, CMCL, CTVAE, BETA_VAE, LADDER)
