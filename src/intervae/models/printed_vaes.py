"""Presets of the VAEs and of their baselines: beta-VAE's table on 2D shapes, and each own paper.

The seed paper is a set of slides on beta-VAE, which prints the objective; sizes and optimisers are
those that several implementations of Higgins et al. (2017) agree on.
"""

from __future__ import annotations

from intervae.models.presets import Preset, Printed

SHAPES = "code: several implementations of Higgins et al., 2D shapes"
CODE = "code: that of the authors"

_SHAPES_NETWORK = {
    "latents": Printed(10, SHAPES),
    "dims": Printed(1, SHAPES),
    "network": Printed("mlp-1200", f"{SHAPES}; 1200-1200 ReLU and 1200-1200-1200 tanh"),
    "likelihood": Printed("bernoulli", SHAPES),
}
_SHAPES_TRAINING = {
    "optimiser": Printed("adagrad", SHAPES),
    "learning_rate": Printed(1e-2, SHAPES),
    "schedule": Printed("constant", SHAPES),
    "batch_size": Printed(64, "not printed"),
    "epochs": Printed(30, "not printed"),
}
_SLIDES = (
    "The slides print E[p(x | z)] as the objective (Eq. 3); it is the log of the expectation.",
    "Early stopping is off.",
)
VAE = {
    "paper": Preset(
        "Kingma and Welling 2014, as the VAE row of Higgins et al. 2017",
        {**_SHAPES_NETWORK, **_SHAPES_TRAINING},
        _SLIDES,
    )
}
BETA_VAE = {
    "paper": Preset(
        "Higgins et al., beta-VAE, 2017 (slides, Eq. 6 to 9)",
        {
            **_SHAPES_NETWORK,
            **_SHAPES_TRAINING,
            "beta": Printed(4.0, "slides, table of the metric: beta = 4"),
            "capacity": Printed(0.0, "slides, Eq. 9: no capacity"),
        },
        _SLIDES,
    )
}
BETA_TCVAE = {
    "paper": Preset(
        "Chen et al., beta-TCVAE, 2018",
        {
            **_SHAPES_NETWORK,
            "beta": Printed(6.0, CODE),
            "information_weight": Printed(1.0, f"{CODE}, alpha = 1"),
            "dimension_weight": Printed(1.0, f"{CODE}, gamma = 1"),
            "sampling": Printed("weighted", f"{CODE}, minibatch weighted sampling"),
            "learning_rate": Printed(1e-3, f"{CODE}, Adam"),
            "schedule": Printed("constant", CODE),
            "batch_size": Printed(2048, CODE),
            "epochs": Printed(50, CODE),
        },
    )
}
FACTOR_VAE = {
    "paper": Preset(
        "Kim and Mnih, FactorVAE, 2018",
        {
            "latents": Printed(10, "code: a public reimplementation"),
            "network": Printed("conv", "code: a public reimplementation"),
            "gamma": Printed(6.4, "code: a public reimplementation, dSprites"),
            "discriminator_layers": Printed(6, "code: a public reimplementation"),
            "discriminator_width": Printed(1000, "code: a public reimplementation"),
            "discriminator_rate": Printed(1e-4, "code: a public reimplementation"),
            "learning_rate": Printed(1e-4, "code: a public reimplementation"),
            "schedule": Printed("constant", "code: a public reimplementation"),
            "batch_size": Printed(128, "code: two batches of 64, here the halves of one"),
        },
        ("The discriminator's batch is the second half of the step's, not a batch of its own.",),
    )
}
DIP_VAE = {
    "paper": Preset(
        "Kumar et al., DIP-VAE, 2018",
        {
            "network": Printed("mlp-1200", f"{CODE}, layers of 1200"),
            "kind": Printed("ii", f"{CODE}, type II"),
            "diagonal_weight": Printed(80.0, CODE),
            "off_diagonal_weight": Printed(80.0, CODE),
            "learning_rate": Printed(1e-3, f"{CODE}, Adam"),
            "schedule": Printed("constant", CODE),
            "batch_size": Printed(64, CODE),
        },
        ("The authors' code has a tanh on the decoder's logits, a mistake that is not repeated.",),
    )
}
IVAE = {
    "paper": Preset(
        "Khemakhem et al., iVAE, 2020",
        {
            "widths": Printed((50, 50), f"{CODE}, 3 linear maps"),
            "prior_widths": Printed((50, 50), f"{CODE}, 3 linear maps"),
            "activation": Printed("xtanh", CODE),
            "label_dropout": Printed(0.0, f"{CODE}, inputs x and u"),
            "likelihood": Printed("gaussian", f"{CODE}, fixed variance 0.01"),
            "scale": Printed(0.1, f"{CODE}, fixed variance 0.01"),
            "learning_rate": Printed(1e-2, f"{CODE}, Adam"),
            "schedule": Printed("constant", f"{CODE} reduces it on plateaus"),
        },
    )
}
DC_IGN = {
    "paper": Preset(
        "Kulkarni et al., DC-IGN, 2015",
        {
            "latents": Printed(200, CODE),
            "pooled": Printed(True, f"{CODE}, 5x5 convolutions and pooling"),
            "channels": Printed((96, 48, 24), CODE),
            "clamp": Printed("first", f"{CODE}; the paper clamps to the mean"),
            "invariance_strength": Printed(0.0, f"{CODE}, unless invariance is forced"),
            "group_size": Printed(20, CODE),
            "batch_size": Printed(20, f"{CODE}, one group per step"),
            "optimiser": Printed("rmsprop", CODE),
            "learning_rate": Printed(5e-4, CODE),
            "schedule": Printed("constant", CODE),
        },
    )
}
INFO_GAN = {
    "paper": Preset(
        "Chen et al., InfoGAN, 2016",
        {
            "noise": Printed(62, f"{CODE}, MNIST"),
            "categories": Printed((10,), f"{CODE}, MNIST"),
            "continuous": Printed(2, f"{CODE}, MNIST"),
            "info_weight": Printed(1.0, f"{CODE}, MNIST"),
            "channels": Printed((64, 128), f"{CODE}, MNIST"),
            "hidden": Printed(1024, f"{CODE}, MNIST"),
            "epochs": Printed(50, f"{CODE}, MNIST"),
            "batch_size": Printed(128, f"{CODE}, MNIST"),
            "generator_rate": Printed(1e-3, f"{CODE}, MNIST"),
            "discriminator_rate": Printed(2e-4, f"{CODE}, MNIST"),
            "momentum": Printed(0.5, f"{CODE}, MNIST"),
        },
        ("The head of the codes has layer norm in the place of batch norm.",),
    )
}
