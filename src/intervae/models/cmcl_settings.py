"""Settings of CMCL; the paper's symbol, where there is one, in brackets. What the paper does not say is our choice (docs/cmcl.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from intervae.errors import UsageError
from intervae.models.phases import Schedule
from intervae.nets.likelihood import Likelihood
from intervae.nets.node_networks import DagLoss
from intervae.nets.per_node import UnitActivation
from intervae.settings import at_least

WIDTHS = ("posterior_widths", "prior_widths", "graph_widths", "classifier_widths")
SHARES = ("label_dropout", "contrast_start", "contrast_threshold", "acyclicity_start", "shaping_start", "annealing")


@dataclass(frozen=True)
class CMCLSettings:
    """Settings of CMCL."""

    latents: int = 10  # latents that may cause columns of the table, or be caused by them [m]
    embedding: int = 32  # size of z0, through which the image reaches them; without `causal_module` it is `latents`
    causal_module: bool = True  # module 2 [CM]; false is the ablation in which z0 itself is z
    contrast: bool = True  # the counterfactual contrastive regulariser [CR]
    pairing: Literal["index", "full", "learned"] = "index"  # which columns the prior of a latent sees: its own, all, or a learned mixture
    label_dropout: float = 0.5  # share of the samples whose u the encoder does not see, a guard against copying u; the paper has 0
    detach_z0: bool = False  # whether module 2 leaves the encoder of module 1 alone
    network: Literal["pairs", "conv", "mlp", "mlp-1200"] = "pairs"  # the paper's pairs of convolutions, or a network of the other models
    channels: tuple[int, ...] = (16, 32, 64)  # of the convolutions; the paper has 32,64,256 for MNIST and 32,64,256,512 for X-rays
    hidden: int = 256  # units of the dense layers of network=conv
    posterior_widths: tuple[int, ...] = (50, 50, 50)  # hidden layers of q(z | z0, u)
    prior_widths: tuple[int, ...] = (50, 50)  # hidden layers of p(z | u)
    graph_widths: tuple[int, ...] = (10, 10, 10)  # hidden layers of each node's mechanism f
    classifier_widths: tuple[int, ...] = (10, 10, 10)  # hidden layers of the classifier of the contrast [D]
    activation: UnitActivation = "tanh"  # between the layers of f; NOTEARS has sigmoid
    graph_limit: float = 2.0  # largest norm of each later layer of f, so that W tells what depends on what
    likelihood: Likelihood = "bernoulli"  # of the pixels
    scale: float = 0.1  # of a gaussian or laplace likelihood
    embedding_weight: float = 1.0  # of -L1
    causal_weight: float = 1.0  # of -L2
    graph_weight: float = 1.0  # of L_DAG
    contrast_weight: float = 1.0  # of -L_CR
    graph_loss: DagLoss = "nll"  # of continuous nodes: likelihood with a noise of its own for each, or the literal squared error
    graph_sees: Literal["sample", "mean"] = "mean"  # what of q(z | z0, u) the DAG is fitted to; a draw adds noise to causes, which turns edges
    shaping_start: float = 0.5  # share of training after which L_DAG shapes the latents too; before, it only fits f to them; the paper has 0
    bipartite: bool = True  # whether edges are only between latents and columns
    sparsity: float = 0.01  # of the sum of |A|, the first layers of f [alpha_1]
    decay: float = 0.001  # of half the sum of all squared weights of f
    acyclicity_start: float = 0.5  # share of training after which the penalty of cycles begins to rise; before, both directions are fitted
    largest_penalty: float = 1e8  # of cycles; what single precision can bear
    direction: Literal["likelihood", "networks"] = "likelihood"  # what decides on edges: the likelihood of both ways, or W
    one_each: bool = True  # whether a latent or column has one edge at most, as in the paper's worlds; not with direction=networks
    edge_threshold: float = 0.2  # root of the share of its variance that one of two nodes must owe to the other for an edge in `graph`
    refit_steps: int = 300  # of f, once the edges are decided on; 0 leaves f as it was
    contrast_start: float = 0.2  # share of training after which the contrast begins
    contrast_threshold: float = 0.3  # share of the largest W below which there is no edge for the contrast
    contrast_input: Literal["latents", "delta"] = "latents"  # what the classifier sees: the latents of a counterfactual, or their change
    schedule: Literal["joint", "alternating"] = "joint"  # all losses in one step, or Algorithm 1 with one step for all that shapes the latents
    warm_up: int = 10  # epochs over which the weight of both KL rises from 0 to 1; 0 for none
    annealing: float = 0.0  # share of training over which the weight of module 2's KL falls to 1 from where no latent pays; 0 for warm_up
    epochs: int = 200  # passes over the training split
    batch_size: int = 64  # images in a step
    learning_rate: float = 1e-3  # of everything but the DAG's networks
    graph_rate: float = 1e-2  # learning rate of the DAG's networks
    rate_schedule: Schedule = "constant"  # of both learning rates
    clip: float | None = 5.0  # largest norm of a gradient

    def __post_init__(self) -> None:
        at_least(self, latents=1, embedding=1, batch_size=2, warm_up=0, sparsity=0, decay=0, edge_threshold=0, refit_steps=0)
        at_least(self, embedding_weight=0, causal_weight=0, graph_weight=0, contrast_weight=0)
        for name in ("scale", "graph_limit"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name}={getattr(self, name)} must be larger than 0.")
        for name in SHARES:
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name}={getattr(self, name)} must be between 0 and 1.")
        for name in WIDTHS:
            if min(getattr(self, name), default=1 if name != "graph_widths" else 0) < 1:
                raise UsageError(f"{name}={','.join(map(str, getattr(self, name)))} leaves a network without units; use 1 or more.")
