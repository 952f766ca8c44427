"""Presets: the printed values, short trainings of every one, config.json, the command line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import intervae
from command import intervae as command
from command import refused, succeeded
from intervae.errors import UsageError
from intervae.models import MODELS
from intervae.models.presets import find_preset
from intervae.settings import build_settings
from intervae.testing.case import SMALL_SETTINGS, ModelCase
from quick_settings import QUICK

# Typed from the papers, with the line of the text that says so.
PRINTED: dict[str, list[tuple[str, Any, str]]] = {
    "causal-vae": [
        ("prior_std", 1.0, "we let lambda_1(u) = u and lambda_2(u) = 1 (Eq. 7)"),
        ("acyclicity_weight", 1.0, "(alpha, beta, gamma) = (1, 1, 1) for all experiments (6.2)"),
        ("label_weight", 1.0, "(alpha, beta, gamma) = (1, 1, 1) for all experiments (6.2)"),
        ("mechanism_weight", 1.0, "(alpha, beta, gamma) = (1, 1, 1) for all experiments (6.2)"),
        ("encode_labels", True, "h(x, u) denotes the encoder (3.3)"),
        ("label_dropout", 0.0, "h(x, u) denotes the encoder (3.3)"),
        ("dims", 1, "z in R^n is structured causal representation of n concepts (3.1)"),
        ("graph", "pretrained", "a pre-train process by [...] augmented Lagrangian [...] (6.2)"),
        ("pretraining_l1", 0.0, "l_u = E || u - sigma(A^T u) ||^2 (Eq. 11)"),
        ("pretraining_intercept", False, "l_u = E || u - sigma(A^T u) ||^2 (Eq. 11)"),
        ("mechanism_gradient_to_latents", True, "l_m = E_{z ~ q} sum || z_i - g_i ||^2 (Eq. 12)"),
        ("mechanism_input", "vector", "g_i(A_i o z; eta_i) (Eq. 2)"),
        ("absolute_error_weight", 0.0, "ELBO = E log p(x | z) - D - D (Eq. 10)"),
    ],
    "condition-vae": [("prior_std", 1.0, "lambda_2(u) = 1 (Eq. 7)")],
    "causal-vae-unsup": [
        ("mask_layer", False, "except that the Mask Layer and [...] p(z|u) are removed (6.1)"),
        ("prior_weight", 0.0, "except that the Mask Layer and [...] p(z|u) are removed (6.1)"),
        ("latents", 4, "the dimensionality of the latent representation is the same (6.1)"),
    ],
    "causal-prior-vae": [
        ("latents", 5, "there are 5 latent variables z (App. E)"),
        ("widths", (64, 64, 64), "a 3-layer MLP with 64 hidden ReLU units in each layer (App. E)"),
        ("optimiser", "adagrad", "We use the Adagrad optimizer (App. E)"),
        ("learning_rate", 0.003, "with learning rate 0.003 (App. E)"),
        ("batch_size", 100, "on batches of 100 samples (App. E)"),
        ("divergence", "local_min", "its closest match in the SEM-sampled local Gaussian (App. F)"),
        ("learn_scales", True, "with learnable sigma_i (Theorem 3)"),
        ("form", "quadratic", "a parabolic prior (5.1)"),
        ("curriculum", False, "batches of 100 samples, until convergence (App. E)"),
    ],
    "temporal-causal-prior-vae": [
        ("latents", 4, "12 variables, 4 per time frame (App. F)"),
        ("window", 3, "a tuple consisting of a background and 3 consecutive frames (App. F)"),
        ("background", "given", "append an encoded background frame (5.2)"),
        ("selection", "gumbel", "each p_{i -> j} as a binary Gumbel-Softmax (4.5)"),
        ("divergence", "local_min", "its closest match in the SEM-sampled local Gaussian (App. F)"),
        ("epochs", 250, "after training for 250 epochs (App. G)"),
        ("optimiser", "adagrad", "otherwise similarly to Sec. 5.1 (5.2)"),
    ],
    "cmcl": [
        ("channels", (16, 32, 64), "16/16/32/32/64/64 channels (D.3)"),
        ("posterior_widths", (50, 50, 50), "3 hidden fully connected layers with 50 neurons (D.3)"),
        ("graph_widths", (10, 10, 10), "3 hidden layers and each layer has dimension 10 (D.3)"),
        ("embedding_weight", 1.0, "L = - L_1 - L_2 + L_DAG - L_CR (Eq. 14)"),
        ("contrast_weight", 1.0, "L = - L_1 - L_2 + L_DAG - L_CR (Eq. 14)"),
        ("annealing", 0.0, "E log p(x|z) - sum KL (Eq. 19)"),
        ("warm_up", 0, "E log p(x|z) - sum KL (Eq. 19)"),
        ("acyclicity", "penalty", "+ alpha_2 h(W) (Eq. 10)"),
        ("direction", "norms", "extract the weighted adjacent matrix W from the first layer (3.2)"),
        ("training_steps", "alternating", "(a), (b), (c), (d) (Algorithm 1)"),
        ("graph_latents", "sample", "train_DAG(z, u) (Algorithm 1)"),
        ("label_dropout", 0.0, "q(z | z_0, u) (Eq. 17)"),
    ],
    "ct-vae": [
        ("edge_network", "mlp", "alpha_ij = MLP([L_xi, L_xj]; a) (Eq. 3)"),
        ("graph_samples", 1, "M ~ Bernoulli(sigma(MLP([L_x]; a))) (Eq. 5)"),
        ("noise", 1, "exogenous variables [...] z ~ N(0, 1) (3.4)"),
        ("dependency_form", "squared", "sum_i || prod_j (1 - sigma(MLP)) ||^2 (Eq. 15)"),
        ("edge_kl", 1.0, "E p(L_y | G) - KL(q(G) || p(G)) (Eq. 11)"),
        ("decoder_epochs", 0, "The weights of the MCQ-VAE are frozen during this stage (3.5)"),
        ("code_update", "gradient", "the same procedure as in the original VQ-VAE (3.5)"),
    ],
    "mcq-vae": [("code_update", "gradient", "same procedure as in the original VQ-VAE (3.5)")],
    "vq-vae": [("code_update", "gradient", "same procedure as in the original VQ-VAE (3.5)")],
    "beta-vae": [("beta", 4.0, "beta-VAE (beta = 4), table of the metric (slides)")],
    "vae": [("likelihood", "bernoulli", "2D shapes are binary images (slides)")],
    "untrained-vae": [("likelihood", "bernoulli", "2D shapes are binary images (slides)")],
    "ladder-vae": [
        ("latents", (64, 32, 16, 8, 4), "64-32-16-8-4 (slides, tables)"),
        ("inference", "ladder", "merge of q^ and p (slides, Eq. 22 to 25)"),
        ("upward_input", "hidden", "d_n = MLP(d_{n-1}) (slides, Eq. 19)"),
        ("batch_norm", True, "LVAE +BN +WU (slides, tables)"),
        ("importance_samples", 1, "IW = 1 but for fine-tuning (slides, tables)"),
    ],
}
PRESETS = [(model, preset) for model, cls in MODELS.items() for preset in cls.presets]
# only sizes: what makes the printed networks quick
TINY: dict[str, dict[str, Any]] = {
    "causal-prior-vae": {"pivots": 5},
    "temporal-causal-prior-vae": {"pivots": 5, "background_size": 2, "background": "median"},
    "cmcl": {"embedding": 4, "latents": 6},
    "ct-vae": {"edge_width": 4, "transition_epochs": 1, "features": 4, "codes": 8, "width": 8},
    "mcq-vae": {"features": 8, "codebooks": 2, "codes": 8},
    "vq-vae": {"features": 4, "codes": 8},
    "ladder-vae": {"latents": (4, 3, 2), "widths": (16, 12, 8), "warm_up": 1},
    "ivae": {"widths": (8,), "prior_widths": (8,)},
    "causal-gan": {"controller_epochs": 1, "controller_batches": 1},
}
NOT_SIZES = {"dims", "hidden", "mechanism_hidden"}


@pytest.mark.parametrize("model", PRINTED)
def test_preset_has_the_printed_values(model: str) -> None:
    settings = find_preset(MODELS[model], "paper").settings
    for name, value, line in PRINTED[model]:
        assert settings[name] == value, line


@pytest.mark.parametrize(("model", "preset"), PRESETS)
def test_preset_is_valid_and_each_value_has_a_source(model: str, preset: str) -> None:
    cls = MODELS[model]
    chosen = find_preset(cls, preset)
    resolved = asdict(build_settings(cls.Settings, chosen.settings))
    for name, (value, source) in chosen.printed.items():
        assert resolved[name] == value
        assert source.strip(), name
    assert chosen.paper


def small_settings(model: str, preset: str, case: ModelCase, data: intervae.Dataset) -> dict:
    """Sizes of a small model; what the preset decides otherwise stays."""
    fields = {f for f in case._fields if f not in NOT_SIZES}
    sizes = {key: value for key, value in SMALL_SETTINGS.items() if key in fields}
    if model == "dc-ign":
        return {**QUICK[model](data), "channels": (8, 8), "epochs": 1, "batch_size": 16}
    if model in ("factor-vae", "info-gan", "causal-gan"):
        quick = dict(QUICK[model](data))
        sizes = {**sizes, **quick}
    if "blocks" in fields:
        sizes["blocks"] = 1
    return {**sizes, **TINY.get(model, {}), **({"epochs": 1} if "epochs" in fields else {})}


@pytest.mark.parametrize(("model", "preset"), PRESETS)
def test_preset_trains_and_is_stored(model: str, preset: str, tmp_path: Path) -> None:
    case = ModelCase(MODELS[model])
    labelled = model == "causal-vae"  # which learns a graph from 50 labels at least
    data = intervae.load_data("pendulum", size=16, samples=100) if labelled else case.data()
    settings = small_settings(model, preset, case, data)
    net = intervae.create(model, data, preset=preset, **settings)
    result = net.fit(data, seed=0, out=tmp_path / "run", threads=1, tensorboard=False)
    losses = [line["train"] for line in result.history if line.get("train")]
    assert losses or model == "untrained-vae"
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["preset"] == preset
    for name, value in find_preset(MODELS[model], preset).settings.items():
        expected = settings.get(name, value)
        expected = list(expected) if isinstance(expected, tuple) else expected
        if name not in ("graph", "latents"):
            assert config["settings"][name] == expected, name
    assert intervae.load(tmp_path / "run").preset == preset


def test_explicit_settings_override_the_preset() -> None:
    data = ModelCase(MODELS["beta-vae"]).data()
    model = intervae.create("beta-vae", data, preset="paper", beta=2.0, network="conv")
    assert (model.settings.beta, model.settings.network) == (2.0, "conv")
    assert model.settings.optimiser == "adagrad"
    assert intervae.create("beta-vae", data).preset is None


def test_unknown_presets_are_one_sentence() -> None:
    data = ModelCase(MODELS["beta-vae"]).data()
    with pytest.raises(UsageError, match="unknown preset of beta-vae 'papers'; did you mean"):
        intervae.create("beta-vae", data, preset="papers")
    with pytest.raises(UsageError, match="pca has no presets"):
        intervae.create("pca", data, preset="paper")


def test_command_line_lists_presets_and_their_sources() -> None:
    shown = succeeded(command("models", "causal-vae"))
    assert "preset paper: intervae models causal-vae --preset paper" in shown.out
    document = json.loads(succeeded(command("models", "cmcl", "--preset", "paper", "--json")).out)
    rows = {row["setting"]: row for row in document["settings"]}
    assert rows["acyclicity"]["value"] == "penalty"
    assert rows["acyclicity"]["ours"] == "lagrangian"
    assert "Eq. 10" in rows["acyclicity"]["source"]
    assert any("Algorithm 1" in remark for remark in document["remarks"])
    assert "unknown preset" in refused(command("models", "cmcl", "--preset", "print"), 2)
    assert "name it" in refused(command("models", "--preset", "paper"), 2)
