"""Settings that make models small, beyond intervae.testing.case.SMALL_SETTINGS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from intervae.data import Dataset

QUICK: dict[str, Callable[[Dataset], dict[str, Any]]] = {
    "factor-vae": lambda _: {"discriminator_layers": 3, "discriminator_width": 16},
    "causal-vae": lambda data: {"graph": data.graph or "joint"},
    "info-gan": lambda _: {"noise": 4, "categories": (3,), "code_hidden": 8},
    "causal-gan": lambda data: {
        "graph": data.graph,
        "noise": 4,
        "controller_epochs": 2,
        "controller_batch": 16,
        "controller_batches": 1,
    },
    "deep-scm": lambda data: {"graph": data.graph or "empty"},
    "dc-ign": lambda data: {"latents": len(data.names) + 2, "group_size": 4},
    "causal-prior-vae": lambda _: {
        "widths": (16, 16),
        "restarts": 3,
        "first_epochs": 3,
        "trial_epochs": 1,
        "epochs": 2,
        "gate_steps": 4,
    },
    "temporal-causal-prior-vae": lambda _: {
        "widths": (16,),
        "background_size": 2,
        "warm_up": 4,
        "refit_epochs": 1,
    },
    "ct-vae": lambda _: {
        "features": 4,
        "codes": 8,
        "blocks": 1,
        "width": 8,
        "heads": 2,
        "edge_width": 4,
        "transition_epochs": 1,
        "transition_batch": 16,
        "likelihood": "bernoulli",
    },
    "cmcl": lambda data: {
        "latents": max(3, len(data.names)),
        "embedding": 4,
        "posterior_widths": (8,),
        "prior_widths": (8,),
        "graph_widths": (4,),
    },
    "mcq-vae": lambda _: {
        "features": 8,
        "codebooks": 2,
        "codes": 8,
        "blocks": 1,
        "likelihood": "bernoulli",
    },
    "vq-vae": lambda _: {"features": 4, "codes": 8, "blocks": 1, "likelihood": "bernoulli"},
    "ladder-vae": lambda _: {"latents": (4, 3, 2), "widths": (16, 12, 8)},
}
