"""Tables and figures of the causal-prior VAE, the beta-VAE and the Ladder VAE, and ours."""

from __future__ import annotations

from intervae.experiments.published_entry import DIAGRAM, NOT_IN_TEXT, OTHER, Published

_SPRITE = "the sprite and its backgrounds are our own"
_LVAE_NEXT = (
    "drawn for the quick form only; the experiment draws it from its next run on, as the committed "
    "runs were made before and are not stored"
)


def _quick_pictures(name: str) -> tuple[str, ...]:
    return tuple(f"results/lvae-mnist-quick-{family}-{name}.png" for family in ("vae", "ladder"))


VAES: dict[str, tuple[Published, ...]] = {
    "Causal-prior VAE (ICLR 2023 submission)": (
        *(
            Published(
                label,
                shows,
                "ours",
                ("causal-prior-parabola",),
                (f"results/causal-prior-parabola-{picture}.png",),
                "ovals drawn as described in the paper",
            )
            for label, shows, picture in (
                ("Figure 1", "prior and encoded images of three VAEs", "latents"),
                ("Figure 2", "response of each latent to the position", "responses"),
                ("Figure 3", "traversals of the noises", "traversals"),
            )
        ),
        *(
            Published(
                label,
                shows,
                OTHER,
                ("causal-prior-motion",),
                (f"results/causal-prior-motion{picture}.png",),
                _SPRITE,
            )
            for label, shows, picture in (
                ("Figure 4", "learned graph and coefficients", "-graph"),
                ("Figure 5", "response of each latent to the position", "-responses"),
                ("Figure 6", "interventions on each latent", "-interventions"),
                ("Figure 7", "extrapolation by three frames", "-extrapolation"),
            )
        ),
        Published(
            "Figure 8", "architecture for images", DIAGRAM, links=("docs/causal-prior-vae.md",)
        ),
        Published(
            "Figure 9", "architecture for clips", DIAGRAM, links=("docs/causal-prior-vae.md",)
        ),
        Published(
            "Figure 10",
            "reconstruction accuracy against the number of edges",
            OTHER,
            ("causal-prior-motion",),
            ("results/causal-prior-motion.png",),
            f"{_SPRITE}; against the penalty per edge",
        ),
        Published(
            "Figure 11",
            "SHD against the penalty",
            OTHER,
            ("causal-prior-motion",),
            ("results/causal-prior-motion.png",),
            _SPRITE,
        ),
    ),
    "beta-VAE (Higgins et al. 2017)": (
        Published(
            "Table of the slides",
            "disentanglement metric of nine representations",
            OTHER,
            ("betavae-metric", "betavae-protocol"),
            why="dSprites is rendered again; the second experiment changes details of the metric",
        ),
        Published(
            "Figure 6, left",
            "the metric of each model",
            OTHER,
            ("betavae-metric",),
            ("results/betavae-metric.png",),
            "dSprites is rendered again",
        ),
        Published(
            "Figure 6, right",
            "the metric over beta and the number of latents",
            OTHER,
            ("betavae-sweep",),
            ("results/betavae-sweep-quick.png",),
            "dSprites is rendered again; the picture is of the quick form",
        ),
        Published(
            "Pictures of the slides",
            "traversals of faces, chairs and shapes",
            "missing",
            ("betavae-sweep",),
            tuple(
                f"results/betavae-sweep-quick-traversals-{which}-beta.png"
                for which in ("low", "middle", "high")
            ),
            f"{NOT_IN_TEXT}; the sweep draws traversals of shapes, here those of its quick form",
        ),
    ),
    "Ladder VAE (Sønderby et al. 2016)": (
        Published(
            "Figure 2",
            "MNIST bound of training and test images over training",
            "missing",
            ("lvae-mnist",),
            _quick_pictures("training"),
            _LVAE_NEXT,
        ),
        Published(
            "Figure 3",
            "MNIST log-likelihood by number of layers",
            "ours",
            ("lvae-mnist",),
            ("results/lvae-mnist.png",),
            "fewer epochs, larger batches and rate",
        ),
        Published(
            "Figure 4, unnumbered",
            "KL of each latent unit over training",
            "missing",
            ("lvae-mnist",),
            _quick_pictures("training"),
            f"{_LVAE_NEXT}; layers instead of units",
        ),
        Published(
            "Table of MNIST",
            "bounds of seven models",
            "ours",
            ("lvae-mnist",),
            why="one of the seven, five layers without fine-tuning; the rows with fine-tuning and "
            "with ten importance samples are declared and need a GPU, the others are other "
            "people's models",
        ),
        Published(
            "Table of Omniglot and NORB: Omniglot",
            "bounds of one to five layers",
            OTHER,
            ("lvae-omniglot",),
            why="the public images resized, not the file of an earlier paper",
        ),
        Published(
            "Table of Omniglot and NORB: NORB",
            "bounds of one to five layers",
            "missing",
            ("lvae-norb",),
            why="the files of small NORB were not at hand; the experiment is declared and reads "
            "them",
        ),
        Published(
            "Figure 5",
            "KL of each layer",
            "ours",
            ("lvae-mnist",),
            ("results/lvae-mnist.png",),
            "of the deepest model of each kind; fewer epochs, larger batches and rate",
        ),
        Published(
            "Figure 6",
            "PCA of samples of each layer, coloured by digit",
            "missing",
            ("lvae-mnist",),
            _quick_pictures("pca"),
            _LVAE_NEXT,
        ),
    ),
}
