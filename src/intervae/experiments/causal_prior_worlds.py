"""Experiments: the causal-prior VAE on further video worlds (ours, beyond the paper).

Sprites that leave the image, gravity, walls, and two sprites on a spring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from intervae.experiments.base import Experiment
from intervae.experiments.causal_prior_motion import QUICK, SETTINGS, MotionTraining

LEAVING = {"frames": 5, "inside": 3}  # the paper's start; later frames may leave the image
CONSTANTS = {"intercepts": True}
SPRING = {"latents": 6, "reconstruction_weight": 30.0}
SMALL = {"size": 16, "samples": 8000}
COLUMNS = (
    "position_r2",
    "shd",
    "edges",
    "coefficient_error",
    "law_shd",
    "law_error",
    "extrapolation_mse",
    "copy_mse",
    "empty_mse",
    "truth_mse",
)


def _experiment(
    name: str,
    title: str,
    data: str,
    variants: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]],
    quick_options: Mapping[str, Any],
    quick_settings: Mapping[str, Any],
    quick_variants: tuple[str, ...],
    columns: tuple[str, ...] = COLUMNS,
    quick_seed: int = 0,
) -> Experiment:
    """Jobs of `variants`, name -> (options of the data, settings of the model), and quick ones."""
    jobs = tuple(
        MotionTraining(data, "temporal-causal-prior-vae", options, {**SETTINGS, **own}, variant)
        for variant, (options, own) in variants.items()
    )
    quick = tuple(
        replace(
            job,
            options={**job.options, **quick_options},
            settings={**QUICK, **variants[job.variant][1], **quick_settings},
            first_seed=quick_seed,
        )
        for job in jobs
        if job.variant in quick_variants
    )
    return Experiment(
        name,
        title,
        jobs,
        seeds=10,
        shown=(
            *columns,
            "position_r2_coupled",
            "inside",
            "extrapolation_mse_inside",
            "copy_mse_inside",
            "reconstruction_mse",
            "train_seconds",
        ),
        columns=columns,
        notes=(name, "causal-prior-worlds"),
        pictures=("graph", "responses", "extrapolation"),
        quick=quick,
    )


LEAVING_WORLD = _experiment(
    "causal-prior-leaving",
    "The causal-prior VAE on a sprite that leaves the image",
    "motion",
    {"3 frames": ({}, {}), "5 frames": (LEAVING, {})},
    SMALL,
    {},
    ("5 frames",),
)
GRAVITY_WORLD = _experiment(
    "causal-prior-gravity",
    "The causal-prior VAE on a falling sprite",
    "motion",
    {
        "without constants": ({"law": "gravity"}, {}),
        "with constants": ({"law": "gravity"}, CONSTANTS),
        "with constants, 5 frames": ({"law": "gravity", **LEAVING}, CONSTANTS),
    },
    SMALL,
    {},
    ("without constants", "with constants"),
)
BOUNCE_WORLD = _experiment(
    "causal-prior-bounce",
    "The causal-prior VAE on a sprite between walls",
    "motion",
    {"linear equations": ({"law": "bounce"}, {})},
    SMALL,
    {},
    ("linear equations",),
)
SPRING_WORLD = _experiment(
    "causal-prior-spring",
    "The causal-prior VAE on two sprites joined by a spring",
    "spring",
    {"path": ({}, SPRING)},
    {"size": 20, "samples": 8000},
    {"epochs": 50, "refit_epochs": 15},
    ("path",),
    columns=(*COLUMNS[:2], "mode_shd", *COLUMNS[2:3], *COLUMNS[4:]),
    quick_seed=1,
)
WORLDS = (LEAVING_WORLD, GRAVITY_WORLD, BOUNCE_WORLD, SPRING_WORLD)
