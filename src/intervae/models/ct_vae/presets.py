"""MCQ-VAE, VQ-VAE and CT-VAE as printed (Gendron et al. 2023; van den Oord et al. 2017).

The paper prints no numbers; where its equations are silent the authors' code decides.
"""

from __future__ import annotations

from intervae.models.presets import Preset, Printed

PAPER = "Gendron et al., CT-VAE, 2023"
CODE = "code: not printed"

_AUTOENCODER = {
    "patch": Printed(8, f"{CODE}, 8 x 8 positions of a 64 x 64 image"),
    "features": Printed(128, f"{CODE} [D]"),
    "codes": Printed(64, f"{CODE} [S]"),
    "network": Printed("strided", f"{CODE}, 4x4 convolutions of stride 2"),
    "filters": Printed(256, CODE),
    "blocks": Printed(6, CODE),
    "code_update": Printed("gradient", "sec. 3.5: the procedure of the original VQ-VAE"),
    "restart": Printed(0.0, "sec. 3.5: the original VQ-VAE has none"),
    "commitment": Printed(0.25, f"{CODE}, and van den Oord et al., sec. 3.2"),
    "likelihood": Printed("gaussian", f"{CODE}, squared errors"),
    "epochs": Printed(20, CODE),
    "batch_size": Printed(64, CODE),
    "learning_rate": Printed(5e-4, f"{CODE}, Adam"),
    "schedule": Printed("exponential", CODE),
    "decay": Printed(0.98, CODE),
    "clip": Printed(None, CODE),
}
_REMARKS = (
    "The authors' codebook i takes channels i to i + 32, so that 35 of 128 are used; ours takes "
    "32 i to 32 (i + 1). Their decoder ends in tanh for pixels in [0, 1]; ours in a sigmoid.",
)

MCQ_VAE = {
    "paper": Preset(
        PAPER,
        {**_AUTOENCODER, "codebooks": Printed(4, f"{CODE}, 4 x 32 dims in pre-training [K]")},
        _REMARKS,
    )
}
VQ_VAE = {"paper": Preset(f"{PAPER}; one codebook", _AUTOENCODER, _REMARKS)}
CT_VAE = {
    "paper": Preset(
        PAPER,
        {
            **_AUTOENCODER,
            "codebooks": Printed(1, f"{CODE}, 1 with the transition layer [K]"),
            "edge_network": Printed("mlp", "Eq. 3: alpha_ij = MLP([L_xi, L_xj]; a)"),
            "edge_width": Printed(800, f"{CODE}, 128 to 800 to 1"),
            "graph_samples": Printed(1, "Eq. 5: M sampled from its Bernoulli probabilities"),
            "noise": Printed(1, "sec. 3.2: Z from N(0, 1)"),
            "causal_share": Printed(1.0, "Eq. 10 is over all pairs"),
            "standard_weight": Printed(1.0, "Eq. 6"),
            "attribution_weight": Printed(1.0, "Eq. 10"),
            "identity_weight": Printed(0.01, f"Eq. 7 and 8; weight in the {CODE}"),
            "edge_prior": Printed(0.5, "Eq. 13: the mean of Uniform(0, 1)"),
            "edge_kl": Printed(1.0, "Eq. 11: an ELBO"),
            "edge_norm": Printed(0.01, f"Eq. 14; weight in the {CODE}"),
            "dependency": Printed(0.1, f"Eq. 15; weight in the {CODE}"),
            "dependency_form": Printed("squared", "Eq. 15"),
            "rounds": Printed(2, f"{CODE}, two layers"),
            "transition_epochs": Printed(100, CODE),
            "transition_batch": Printed(16, CODE),
            "transition_optimiser": Printed("adam", CODE),
            "transition_rate": Printed(5e-4, CODE),
            "transition_schedule": Printed("exponential", CODE),
            "transition_decay": Printed(0.994, CODE),
            "weight_decay": Printed(0.0, CODE),
            "decoded_codes": Printed("probable", "sec. 3.4: the decoder gets L_y, which are codes"),
            "decoder_epochs": Printed(0, "sec. 3.5: the MCQ-VAE is frozen in the second stage"),
        },
        (
            *_REMARKS,
            "Eq. 4 multiplies powers of the scores; with R of 0 or 1 that selects one of them.",
            "Eq. 10 is the softmax of the joint log-likelihoods; the code has their mean over "
            "nodes, which is nearly flat.",
            "The three modes are losses of one step, not three alternating steps (sec. 3.5).",
            "The graph network is attention along the edges of M, not two layers of GAT.",
            "Edge log-odds are bounded by 6, so that certain edges can still be unlearned.",
        ),
    )
}
