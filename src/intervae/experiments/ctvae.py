"""CT-VAE (Gendron et al. 2023, Table 1): accuracy of actions, repeated actions, changed factors.

intervae reproduce ctvae-table1 [--only cars3d] [--quick]
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from intervae.data.readers.dsprites import RENDERED_AGAIN
from intervae.experiments.base import Experiment
from intervae.experiments.ctvae_glossary import GLOSSARY
from intervae.experiments.ctvae_jobs import TrainActions, TrainCodebooks

SPLIT = 5  # seed of the split; settings were compared on splits of smaller seeds, and of 7

_PAPER = {  # Table 1: action and factor accuracy
    "cars3d": (0.71, 0.94),
    "shapes3d-like": (0.83, 0.90),
    "sprites-frames": (0.42, 0.82),
    "dsprites": (0.44, 0.58),
}
_PAPER_DIFFERS = {  # the paper's data
    "cars3d": "",
    "shapes3d-like": "3D Shapes; ours are of our renderer",
    "sprites-frames": "Sprites of nine factors and 18 actions; ours have seven and 14",
    "dsprites": RENDERED_AGAIN,
}
_LARGE: dict[str, Any] = {
    "batch_size": 256,
    "transition_batch": 256,
    "causal_share": 1 / 16,
    "width": 256,
    "heads": 8,
    "rounds": 3,
    "attribution_weight": 0.1,  # low, as few rows of a batch are scored under all actions
}
SETTINGS: dict[str, dict[str, Any]] = {  # chosen as in research/2026-11-15-ct-vae.md
    "cars3d": {
        **_LARGE,
        "epochs": 60,
        "width": 512,
        "rounds": 5,
        "hidden": 4,
        "transition_batch": 128,
        "weight_decay": 0.3,
        "mirror": ("azimuth",),
        "shift": 1,
        "transition_rate": 6e-3,
        "transition_epochs": 36,
        "decoder_epochs": 3,
    },
    "shapes3d-like": {
        **_LARGE,
        "reach": "near",
        "epochs": 2,
        "transition_rate": 6e-3,
        "transition_epochs": 2,
        "decoder_epochs": 1,
    },
    "sprites-frames": {**_LARGE, "epochs": 16, "transition_epochs": 8, "decoder_epochs": 2},
    "dsprites": {
        **_LARGE,
        "codes": 256,
        "reach": "near",
        "epochs": 2,
        "transition_rate": 6e-3,
        "transition_epochs": 4,
        "decoder_epochs": 2,
    },
}
# epochs of the codebooks alone
_CODEBOOK_EPOCHS = {"cars3d": 60, "shapes3d-like": 2, "sprites-frames": 10, "dsprites": 1}
# draws of training pairs per step of a factor; 0 for all
_TRAIN_DRAWS = {"cars3d": 0, "shapes3d-like": 8000, "sprites-frames": 4000, "dsprites": 4000}
_DRAWS = 1000  # of test pairs, as in the authors' code
_FAST = {"precision": "tf32"}
_FACES = (  # the first ten attributes of CelebA, as in the authors' script
    "5_o_Clock_Shadow,Arched_Eyebrows,Attractive,Bags_Under_Eyes,Bald,Bangs,Big_Lips,Big_Nose,"
    "Black_Hair,Blond_Hair"
)
_WITH_DUPLICATES = ("sprites-frames", "dsprites")  # repeated frames; first and last angle
_PUBLISHABLE = ("shapes3d-like", "dsprites")  # images that our licence allows to publish
_PICTURES = (
    *(f"{data}-ct-vae-actions" for data in _PUBLISHABLE),
    *(f"{data}-ct-vae-mechanisms" for data in _PAPER),
    *(f"{data}-mcq-vae-four-codebooks-reconstructions" for data in _PUBLISHABLE),
    "small-grid-actions",
    "small-grid-mechanisms",
)


def options_of(data: str) -> dict[str, Any]:
    distinct = {"distinct": True} if data in _WITH_DUPLICATES else {}
    return {
        "seed": SPLIT,
        "transitions": {"draws": _DRAWS, "train_draws": _TRAIN_DRAWS[data], **distinct},
    }


def _copy_pictures(runs: Mapping[str, Path], path: Path) -> None:
    """Copy the pictures of the page from the runs: job key, or variant, -> folder."""
    folders = {name.replace(" ", "-"): folder for name, folder in runs.items()}
    for name in _PICTURES:
        key, _, figure = name.rpartition("-")
        if key not in folders:
            continue
        source = folders[key] / "figures" / f"{figure}.png"
        if source.is_file():
            shutil.copyfile(source, path.with_name(f"{path.name}-{name}.png"))


def _transition_job(data: str) -> TrainActions:
    action, factor = _PAPER[data]
    return TrainActions(
        data,
        "ct-vae",
        options_of(data),
        SETTINGS[data],
        "",
        {"action_accuracy": action, "factor_accuracy": factor},
        _FAST,
        paper_differs=_PAPER_DIFFERS[data],
    )


def _codebook_job(data: str) -> TrainCodebooks:
    """Return a job of four codes per patch of 4 x 4; transitions have one per patch of 8 x 8."""
    settings = {
        "batch_size": 128,
        "codes": 256,
        "patch": 4,
        "filters": 128,
        "reach": "near",
        "epochs": _CODEBOOK_EPOCHS[data],
    }
    return TrainCodebooks(
        data, "mcq-vae", options_of(data), settings, "four codebooks", training=_FAST, seeds=1
    )


def _four_codebooks_job(data: str) -> TrainActions:
    """Return a job of transitions of four codebooks, n = 256 variables."""
    settings = {
        **SETTINGS[data],
        "codebooks": 4,
        "codes": 64,
        "transition_batch": 64,
        "transition_epochs": 2,
        "decoder_epochs": 1,
    }
    return TrainActions(
        data, "ct-vae", options_of(data), settings, "four codebooks", training=_FAST, seeds=1
    )


_SMALL = {
    "seed": SPLIT,
    "size": 32,
    "levels": [4, 4, 4, 3, 4, 5],
    "transitions": {"draws": 1000, "train_draws": 0},
}
_SMALL_SETTINGS = {
    "codes": 128,
    "features": 64,
    "patch": 4,
    "filters": 128,
    "epochs": 6,
    "width": 64,
    "edge_width": 16,
    "transition_epochs": 2,
    "decoder_epochs": 1,
}


CTVAE_TABLE1 = Experiment(
    "ctvae-table1",
    "CT-VAE: which action was it",
    (
        *(_transition_job(data) for data in _PAPER),
        TrainActions(
            "celeba",
            "ct-vae",
            {"seed": SPLIT, "attributes": _FACES, "transitions": {"unique": False}},
            {
                **_LARGE,
                "causal_share": 1 / 8,
                "attribution_weight": 1.0,
                "reach": "near",
                "epochs": 120,
                "transition_rate": 4e-3,
                "transition_epochs": 3,
                "decoder_epochs": 0,
            },
            "ten attributes",
            training=_FAST,
            truth=False,
        ),
        _four_codebooks_job("sprites-frames"),
        *(_codebook_job(data) for data in _PAPER),
    ),
    seeds=3,
    shown=(
        "action_accuracy",
        "action_ceiling",
        "majority_accuracy",
        "factor_accuracy",
        "factor_majority_accuracy",
        "action_psnr",
        "action_psnr_pairs",
        "unchanged_psnr",
        "reconstruction_psnr",
        "others_error_after_action",
        "others_error_reconstructed",
        "others_worse",
        "others_worse_views",
        "others_worse_alone",
        "acted_error_after_action",
        "acted_error_reconstructed",
        "predictor_error",
        "explained_pairs",
        "explained_equal",
        "explained_unrelated",
        "explained_noise",
        "change_auc",
        "mask_auc",
        "mask_open",
        "edges_open",
        "reconstruction_pixel_mae",
        "codes_psnr",
        "codes_ssim",
        "code_usage",
        "code_perplexity",
        "train_pairs",
        "test_pairs",
        "train_seconds",
    ),
    notes=("ctvae-table1",),
    glossary=GLOSSARY,
    columns=(
        "action_accuracy",
        "factor_accuracy",
        "majority_accuracy",
        "factor_majority_accuracy",
        "action_psnr",
        "others_worse",
        "others_worse_views",
        "others_worse_alone",
        "acted_error_after_action",
        "codes_psnr",
        "train_seconds",
    ),
    pictures=_PICTURES,
    gather=_copy_pictures,
    quick=(
        TrainActions(
            "shapes3d-like",
            "ct-vae",
            _SMALL,
            _SMALL_SETTINGS,
            "small grid",
            predictor_steps=300,
            predictor_channels=(16, 32, 32),
        ),
    ),
)
