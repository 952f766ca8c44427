"""The Ladder VAE as printed (Sønderby et al. 2016): MNIST and Omniglot, and NORB."""

from __future__ import annotations

from intervae.models.presets import Preset, Printed

CODE = "code: that of the authors"

_MNIST = Preset(
    "Sønderby et al., Ladder VAE, 2016 (slides, Eq. 10 to 25)",
    {
        "latents": Printed((64, 32, 16, 8, 4), "slides, tables: 64-32-16-8-4"),
        "widths": Printed((512, 256, 128, 64, 32), CODE),
        "inference": Printed("ladder", "slides, Eq. 19 to 23"),
        "batch_norm": Printed(True, "slides, tables: LVAE+BN+WU"),
        "warm_up": Printed(200, "slides: N_t; 200 in the code"),
        "share_generative": Printed(True, "slides, Eq. 22 and 23: q takes mu_p and sigma_p of p"),
        "upward_input": Printed("hidden", "slides, Eq. 19: d_n = MLP(d_{n-1})"),
        "network": Printed("mlp", "slides, Eq. 16 to 18"),
        "activation": Printed("leaky", f"{CODE}, of slope 0.01; here 0.1"),
        "likelihood": Printed("bernoulli", "slides, tables: binarised MNIST and Omniglot"),
        "binarise": Printed(True, f"{CODE}, anew every epoch"),
        "importance_samples": Printed(1, "slides: 1 before fine-tuning"),
        "monte_carlo_samples": Printed(1, "slides: 1 before fine-tuning"),
        "epochs": Printed(2000, CODE),
        "batch_size": Printed(256, CODE),
        "learning_rate": Printed(2e-4, f"{CODE}, Adam, its published command"),
        "schedule": Printed("constant", CODE),
        "epsilon": Printed(1e-4, CODE),
        "clip": Printed(4.0, CODE),
    },
    (
        "Eq. 23 of the slides has sigma_q on the left; it is sigma_q^2.",
        "The KL of a layer is in closed form given the layer above; the code has the log-ratio of "
        "the sample. The clipping of single elements at 0.9 is left out.",
        "Fine-tuning (2,000 more epochs, 10 and 10 samples) is not part of the preset; it is "
        "fine_tuning_epochs=2000 with fine_tuning_importance_samples=10.",
    ),
)
LADDER_VAE = {
    "paper": _MNIST,
    "paper-norb": _MNIST.changed(
        likelihood=Printed("gaussian", "slides, Eq. 12"),
        scale=Printed(0.0, "slides, Eq. 12: learned variances"),
        binarise=Printed(False, "grey values"),
    ),
}
