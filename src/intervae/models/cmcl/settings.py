"""Settings of CMCL, the paper's symbol in brackets; docs/cmcl.md explains our defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from intervae.errors import UsageError
from intervae.models.phases import Schedule
from intervae.nets.likelihood import Likelihood
from intervae.nets.node_networks import DagLoss
from intervae.nets.per_node import UnitActivation
from intervae.settings import check_minimum, setting

WIDTHS = ("posterior_widths", "prior_widths", "graph_widths")
FRACTIONS = (
    "label_dropout",
    "contrast_start",
    "contrast_threshold",
    "acyclicity_start",
    "dag_gradient_start",
    "annealing",
)


@dataclass(frozen=True)
class CMCLSettings:
    """Settings of CMCL."""

    renamed: ClassVar[Mapping[str, str]] = {
        "shaping_start": "dag_gradient_start",
        "one_each": "one_edge_per_node",
    }

    # ---- common settings -------------------------------------------------------------------------
    latents: int = setting(10, "number of latents [m]; at least the number of columns")
    likelihood: Likelihood = setting("bernoulli", "pixel likelihood")
    scale: float = setting(0.1, "scale of a gaussian or laplace likelihood")
    annealing: float = setting(
        0.7,
        "fraction of training over which the KL weight of module 2 falls to 1; 0: KL warm-up "
        "instead (paper: weight 1 throughout)",
    )
    pairing: Literal["index", "full", "learned"] = setting(
        "index", "columns in the prior of latent j: column j, all, or a learned mixture"
    )
    one_edge_per_node: bool = setting(True, "at most one edge per latent and per column")
    channels: tuple[int, ...] = setting(
        (16, 32, 64),
        "channels of the convolutions; paper: 32,64,256 for MNIST, 32,64,256,512 for X-rays",
    )
    epochs: int = setting(200, "maximum number of epochs")
    learning_rate: float = setting(1e-3, "learning rate of all networks but the DAG's")
    rate_schedule: Schedule = setting("constant", "learning rate schedule")

    # ---- parts of the model ----------------------------------------------------------------------
    causal_module: bool = setting(True, "module 2 [CM]; false: z is z0 (ablation)", advanced=True)
    contrast: bool = setting(
        True, "counterfactual contrastive regulariser [CR]; false: ablation", advanced=True
    )
    bipartite: bool = setting(
        True, "edges between latents and columns only; false: any edge", advanced=True
    )
    label_dropout: float = setting(
        0.5, "fraction of samples encoded without labels; paper: 0", advanced=True
    )

    # ---- networks --------------------------------------------------------------------------------
    embedding: int = setting(32, "size of z0; equals `latents` without module 2", advanced=True)
    network: Literal["pairs", "conv", "mlp", "mlp-1200"] = setting(
        "pairs", "image network: pairs of convolutions (paper), or one of the VAEs", advanced=True
    )
    hidden: int = setting(256, "units of the dense layers of the conv network", advanced=True)
    posterior_widths: tuple[int, ...] = setting(
        (50, 50, 50), "hidden layers of q(z | z0, u)", advanced=True
    )
    prior_widths: tuple[int, ...] = setting((50, 50), "hidden layers of p(z | u)", advanced=True)
    graph_widths: tuple[int, ...] = setting(
        (10, 10, 10), "hidden layers of each mechanism f", advanced=True
    )
    activation: UnitActivation = setting("tanh", "activation of the mechanisms f", advanced=True)
    graph_limit: float | None = setting(
        2.0, "largest norm of each layer of f after the first; none disables", advanced=True
    )

    # ---- weights of the losses -------------------------------------------------------------------
    embedding_weight: float = setting(1.0, "weight of -L1", advanced=True)
    causal_weight: float = setting(1.0, "weight of -L2", advanced=True)
    graph_weight: float = setting(1.0, "weight of L_DAG", advanced=True)
    contrast_weight: float = setting(1.0, "weight of -L_CR", advanced=True)
    warm_up: int = setting(
        10, "epochs over which both KL weights rise from 0 to 1; 0: none", advanced=True
    )

    # ---- the DAG ---------------------------------------------------------------------------------
    graph_loss: DagLoss = setting(
        "nll", "loss of continuous nodes: Gaussian likelihood, or squared error", advanced=True
    )
    sparsity: float = setting(
        0.01, "weight of the L1 norm of the first layers of f [alpha_1]", advanced=True
    )
    standardise: bool = setting(
        True, "latents standardised for the DAG; the paper has false", advanced=True
    )
    graph_latents: Literal["mean", "sample"] = setting(
        "mean",
        "latents that the DAG is fitted to: posterior means, without labels where possible, or the "
        "samples of L2 (paper)",
        advanced=True,
    )
    decay: float = setting(0.001, "weight of half the squared weights of f", advanced=True)
    acyclicity: Literal["lagrangian", "penalty"] = setting(
        "lagrangian",
        "constraint h(W) = 0: augmented Lagrangian, or a penalty of constant weight (paper)",
        advanced=True,
    )
    acyclicity_weight: float = setting(
        1.0, "weight of h(W) [alpha_2] (acyclicity=penalty)", advanced=True
    )
    acyclicity_start: float = setting(
        0.5, "fraction of training before the acyclicity penalty grows", advanced=True
    )
    dag_gradient_start: float = setting(
        0.5,
        "fraction of training before gradients of L_DAG reach the encoder; paper: 0",
        advanced=True,
    )
    direction: Literal["likelihood", "networks", "norms"] = setting(
        "likelihood",
        "final edges: by the likelihood of both directions, by how much each f varies with each "
        "node, or W itself, the norms of the first layers (paper)",
        advanced=True,
    )
    edge_threshold: float = setting(
        0.2,
        "minimum weight of an edge in `graph`: sqrt(R^2) between two nodes, or what `direction` "
        "reads",
        advanced=True,
    )
    refit_steps: int = setting(
        300, "steps of the final fit of f to the chosen edges; 0: no fit", advanced=True
    )

    # ---- the contrast ----------------------------------------------------------------------------
    contrast_start: float = setting(
        0.2, "fraction of training before the contrast starts", advanced=True
    )
    contrast_threshold: float = setting(
        0.3, "minimum fraction of the largest W for an edge of the contrast", advanced=True
    )

    # ---- optimisation ----------------------------------------------------------------------------
    training_steps: Literal["joint", "alternating"] = setting(
        "joint",
        "one step of all losses, or one of each in turn with an optimiser of its own (paper)",
        advanced=True,
    )
    batch_size: int = setting(64, "images per step", advanced=True)
    graph_rate: float = setting(1e-2, "learning rate of the DAG's networks", advanced=True)
    clip: float | None = setting(5.0, "maximum gradient norm; none disables", advanced=True)

    removed: ClassVar[Mapping[str, Any]] = {
        "detach_z0": False,
        "graph_sees": "mean",
        "contrast_input": "latents",
        "schedule": "joint",
        "classifier_widths": (10, 10, 10),
        "largest_penalty": 1e8,
    }

    def __post_init__(self) -> None:
        check_minimum(self, latents=1, embedding=1, batch_size=2, warm_up=0, refit_steps=0)
        check_minimum(self, sparsity=0, decay=0, edge_threshold=0)
        check_minimum(self, embedding_weight=0, causal_weight=0, graph_weight=0, contrast_weight=0)
        check_minimum(self, acyclicity_weight=0)
        for name in ("scale", "graph_limit"):
            if (value := getattr(self, name)) is not None and value <= 0:
                raise UsageError(f"{name}={value} must be larger than 0.")
        for name in FRACTIONS:
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name}={getattr(self, name)} must be between 0 and 1.")
        for name in WIDTHS:
            widths = getattr(self, name)
            if min(widths, default=1 if name != "graph_widths" else 0) < 1:
                raise UsageError(
                    f"{name}={','.join(map(str, widths))} leaves a network without units; "
                    "use 1 or more."
                )
