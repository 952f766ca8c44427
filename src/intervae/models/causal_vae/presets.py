"""CausalVAE and its two reductions as printed (Yang et al., CVPR 2021)."""

from __future__ import annotations

from intervae.models.presets import Preset, Printed

PAPER = "Yang et al., CausalVAE, CVPR 2021"
CODE = "code: not in the main text"

_CONCEPTS = {
    "dims": Printed(1, "sec. 3.1: z in R^n"),
    "network": Printed("mlp", f"{CODE}, dense layers of 900, 300 and 300, 300, 1024 units"),
    "decoder": Printed("per-concept", f"{CODE}, one decoder per concept, outputs averaged"),
    "absolute_error_weight": Printed(0.0, "Eq. 10 has no such term"),
    "epochs": Printed(101, CODE),
    "batch_size": Printed(64, CODE),
    "learning_rate": Printed(1e-3, f"{CODE}, Adam"),
    "schedule": Printed("constant", CODE),
    "patience": Printed(None, CODE),
}
_LABELS = {
    "encode_labels": Printed(True, "Eq. 4 and 5: h(x, u)"),
    "label_dropout": Printed(0.0, "Eq. 4 and 5"),
    "prior_std": Printed(1.0, "Eq. 7: lambda_2(u) = 1"),
    "prior_weight": Printed(1.0, "Eq. 10"),
}
_LAYER = {
    "noise_weight": Printed(1.0, "Eq. 10"),
    "acyclicity_weight": Printed(1.0, "sec. 6.2: alpha = 1"),
}
_REMARKS = (
    "The density of xi in Eq. 4 is left open: the likelihood is Bernoulli, as in the code.",
    "The weights of the best validation loss are used, as in all our models.",
)

_CAUSAL_VAE = Preset(
    PAPER,
    {
        **_CONCEPTS,
        **_LABELS,
        **_LAYER,
        "graph": Printed("pretrained", "sec. 4.2 and 6.2: A from labels, then Eq. 14 over all"),
        "pretraining_l1": Printed(0.0, "Eq. 11 has no such term"),
        "pretraining_intercept": Printed(False, "Eq. 11 has none"),
        "label_weight": Printed(1.0, "sec. 6.2: beta = 1"),
        "mechanism_weight": Printed(1.0, "sec. 6.2: gamma = 1"),
        "mechanism_gradient_to_latents": Printed(True, "Eq. 12 is an expectation over z"),
        "mechanism_input": Printed("vector", "Eq. 2: g_i(A_i o z)"),
        "influence_weight": Printed(0.0, "Eq. 14 has no such term"),
    },
    (
        *_REMARKS,
        "Eq. 11 is over binary labels; with continuous ones sigma is the identity. Labels are -1 "
        "and 1 in Eq. 7 and 14, so sigma is rescaled to that range there.",
        "Eq. 13 mixes m and n, both the number of concepts, and c is arbitrary: c = 1.",
        "The edges of `graph` are the weights above 0.3 at the end; the paper prints no threshold.",
        "With labels as inputs the concepts can be copied from them: encode(images, labels), and "
        "so MIC and TIC, then say little about the images.",
        "sample() draws abducted noises of training images; the paper has N(0, I), Eq. 1.",
    ),
)
_CAUSAL_VAE_UNSUP = Preset(
    PAPER,
    {
        **_CONCEPTS,
        **_LAYER,
        "latents": Printed(4, "sec. 6.1: as many as CausalVAE"),
        "mask_layer": Printed(False, "sec. 6.1: without the mask layer"),
        "prior_weight": Printed(0.0, "sec. 6.1: p(z | u) is removed"),
    },
    _REMARKS,
)

CAUSAL_VAE = {"paper": _CAUSAL_VAE}
CONDITION_VAE = {"paper": Preset(PAPER, {**_CONCEPTS, **_LABELS}, _REMARKS)}
CAUSAL_VAE_UNSUP = {"paper": _CAUSAL_VAE_UNSUP}
