"""CausalGAN as its authors' code has it (Kocaoglu et al. 2018)."""

from __future__ import annotations

from intervae.models.presets import Preset, Printed

CODE = "code: that of the authors"

CAUSAL_GAN = {
    "paper": Preset(
        "Kocaoglu et al., CausalGAN, 2018",
        {
            "controller_noise": Printed(10, CODE),
            "controller_layers": Printed(6, CODE),
            "controller_hidden": Printed(10, CODE),
            "critic_hidden": Printed(15, CODE),
            "critic_steps": Printed(20, CODE),
            "penalty_weight": Printed(0.1, CODE),
            "controller_rate": Printed(8e-5, CODE),
            "controller_batch": Printed(16, CODE),
            "noise": Printed(100, CODE),
            "channels": Printed((64, 128, 256, 512), CODE),
            "anti_labeler_steps": Printed(3000.0, CODE),
            "generator_steps": Printed(6, f"{CODE}, two steps, D and labelers every third"),
            "batch_size": Printed(64, CODE),
            "generator_rate": Printed(2e-4, CODE),
            "discriminator_rate": Printed(2e-4, CODE),
            "momentum": Printed(0.5, CODE),
        },
        (
            "The label cross-entropies follow the theory; the code's default swaps arguments.",
            "The controller is trained for `controller_epochs`; the code stops it at a total "
            "variation below 0.02.",
        ),
    )
}
