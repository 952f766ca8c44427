"""Experiments: CausalVAE on Pendulum, Flow and Garden, and the causal graph from their labels."""

from __future__ import annotations

from intervae.experiments.base import Experiment
from intervae.experiments.jobs import Discover, Train

# over all variables, over causes, over pure effects; `identity` is doing nothing, which scores 0
# outside the mask
COUNTERFACTUAL = (
    *(
        f"{metric}{over}"
        for metric in ("counterfactual_pixel_mae", "identity_pixel_mae")
        for over in ("", "_causes", "_effects")
    ),
    *(
        f"{metric}{over}"
        for metric in ("outside_mask_mae", "changed_outside_share")
        for over in ("", "_causes", "_effects", "_reconstruction", "_decoder_alone")
    ),
    *(f"counterfactual_pixel_mae{over}_decoder_alone" for over in ("", "_causes", "_effects")),
)
SHOWN = (
    "r2_min",
    "r2",
    "mic",
    "tic",
    *COUNTERFACTUAL,
    "reconstruction_pixel_mae",
    "object_layers",
    "shd",
    "train_seconds",
)

# of the quick forms
QUICK_DATA = {"size": 32, "samples": 800}
QUICK_NETWORK = {"channels": (8, 16, 16, 16), "hidden": 64, "batch_size": 32, "epochs": 8}

METRICS = (
    "r2",
    "mic",
    "tic",
    "counterfactual",
    "outside_mask",
    "object_layers",
    "reconstruction",
    "shd",
)
COLUMNS = (
    "r2_min",
    "mic",
    "tic",
    "shd",
    "object_layers",
    "counterfactual_pixel_mae",
    "identity_pixel_mae",
    "counterfactual_pixel_mae_causes",
    "counterfactual_pixel_mae_effects",
    "identity_pixel_mae_effects",
    "outside_mask_mae",
    "counterfactual_pixel_mae_decoder_alone",
    "outside_mask_mae_decoder_alone",
    "reconstruction_pixel_mae",
)
LAYERS = {
    "decoder": "layers",
    "prior_std": 0.015,
    "channels": (16, 16, 32, 32),
    "batch_size": 32,
    "epochs": 30,
}
JOINT = {**LAYERS, "decoder": "joint"}
QUICK_LAYERS = {**LAYERS, **QUICK_NETWORK, "layer_hidden": 32}


def _both_decoders(name: str, title: str, data: str) -> Experiment:
    """CausalVAE at 96x96 with the joint decoder and with layers."""
    return Experiment(
        name,
        title,
        (
            Train(data, "causal-vae", {"size": 96}, LAYERS, "layers", metrics=METRICS),
            Train(data, "causal-vae", {"size": 96}, JOINT, metrics=METRICS),
        ),
        seeds=5,
        shown=SHOWN,
        notes=("causalvae",),
        columns=COLUMNS,
        quick=(
            Train(data, "causal-vae", QUICK_DATA, QUICK_LAYERS, "layers", metrics=METRICS),
            Train(data, "causal-vae", QUICK_DATA, QUICK_NETWORK, metrics=METRICS),
        ),
    )


DEMO = Experiment(
    "causalvae-demo",
    "What `make demo` trains: CausalVAE on Pendulum, 64x64, small networks",
    (Train("pendulum", "causal-vae", {"size": 64}, {**LAYERS, "epochs": 15}, "layers"),),
    seeds=5,
    shown=SHOWN,
    notes=("causalvae",),
    quick=(Train("pendulum", "causal-vae", QUICK_DATA, QUICK_LAYERS, "layers"),),
)
PENDULUM = _both_decoders("causalvae-pendulum", "CausalVAE on Pendulum, 96x96", "pendulum")
FLOW = _both_decoders("causalvae-flow", "CausalVAE on Flow, 96x96", "flow")
GARDEN = _both_decoders("causalvae-garden", "CausalVAE on Garden, 96x96", "garden")

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
    notes=("causalvae-graph",),
    quick=tuple(
        Discover(data, method, {"samples": 1000}, variant=f"random {form}".strip())
        for data in ("pendulum", "flow")
        for method, form in (("independence", ""), ("lagrangian", "linear"))
    ),
)
