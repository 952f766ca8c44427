"""The causal-prior VAE as printed (ICLR 2023 submission): single images and clips."""

from __future__ import annotations

from intervae.models.presets import Preset, Printed

PAPER = "Causal-prior VAE, ICLR 2023 submission"

_TRAINING = {
    "divergence": Printed("local_min", "App. F: closest match among local Gaussians"),
    "pivots": Printed(100, "not printed"),
    "beta": Printed(1.0, "Eq. 11"),
    "reconstruction_weight": Printed(1.0, "Eq. 11 and sec. 5.1: L2 loss"),
    "widths": Printed((64, 64, 64), "App. E: 64 ReLU units in each layer"),
    "optimiser": Printed("adagrad", "App. E"),
    "learning_rate": Printed(3e-3, "App. E"),
    "batch_size": Printed(100, "App. E"),
    "schedule": Printed("constant", "App. E names none"),
}
_REMARKS = (
    "Theorem 3 has the sampled n_i in b_i, and n_i again as noise of the SEM: local Gaussians are "
    "centred at their pivots, as printed, and count the noise twice.",
    "Eq. 4: mu_p(z) has the size of an image; printed is R^d.",
)

IMAGES = {
    "paper": Preset(
        PAPER,
        {
            **_TRAINING,
            "latents": Printed(5, "App. E"),
            "form": Printed("quadratic", "sec. 5.1: parabolic prior"),
            "edges": Printed(("z0->z1",), "sec. 5.1: y = x^2 + n"),
            "learn_edges": Printed(False, "sec. 5.1: the prior is the parabola"),
            "scales": Printed((1.0,), "not printed: initial values"),
            "learn_scales": Printed(True, "Theorem 3: learnable sigma_i"),
            "covariance": Printed("full", "Eq. 4"),
            "curriculum": Printed(False, "App. E: everything at once"),
            "isotropic": Printed(False, "sec. 5.1"),
            "epochs": Printed(100, 'not printed; App. E: "until convergence"'),
        },
        (
            *_REMARKS,
            "Sec. 5.1 has z_2 = y, and z_1 = z_2^2 + n_1 in the text of Fig. 3: here z0 is x and "
            "z1 is y.",
            "With learned edges (learn_edges=true edges=all) the masks are the Gumbel masks of "
            "sec. 4.5, and Eq. 7 and 11 print |G| / ln(s) where the figures have a free weight: "
            "sparsity.",
        ),
    )
}
TEMPORAL = {
    "paper": Preset(
        PAPER,
        {
            **_TRAINING,
            "latents": Printed(4, "App. F: 4 per time frame"),
            "window": Printed(3, "App. F"),
            "background": Printed("given", "sec. 5.2: an encoded background frame"),
            "network": Printed("mlp", 'sec. 5.2: "otherwise similarly to sec. 5.1"'),
            "selection": Printed("gumbel", "sec. 4.5: Gumbel masks"),
            "sparsity": Printed(1e-2, "App. G, Fig. 10 and 11: 1e-3 to 1e-2"),
            "warm_up": Printed(0, "Eq. 11 has none"),
            "refit_epochs": Printed(0, "no such phase"),
            "refit_coefficients": Printed(False, "sec. 5.2: coefficients as trained, 2.3 and -1.1"),
            "epochs": Printed(250, "App. G"),
        },
        (
            *_REMARKS,
            "Eq. 7 and 11 print |G| / ln(s); Fig. 10 and 11 sweep its weight, so sparsity is free.",
            "Edges forward in time only, sec. 5.2; App. F allows arbitrary linear relationships.",
        ),
    )
}
