"""CausalVAE (Yang et al., CVPR 2021): labelled concepts as latents, a causal graph among them, and do() on images.

Read beside the paper: Eq. 1 the linear causal layer, Eq. 2 the mask layer, Eq. 7 the conditional prior, Eq. 10 the ELBO,
Eq. 11-13 the constraints, Eq. 14 the loss. Shapes: B images, n concepts, k dims per concept.
Reduction everywhere: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from intervae.causal.acyclicity import polynomial
from intervae.causal.gaussian import kl_pushed_forward, kl_standard_normal, log_normal, reparametrise
from intervae.causal.graph import CausalGraph
from intervae.causal.linear import inverse_and_log_det, structural_matrix, to_endogenous
from intervae.causal.mechanisms import MaskLayer
from intervae.data.base import Batch, Dataset, Spec
from intervae.discovery import FEWEST_ROWS, discover
from intervae.discovery.base import require_continuous
from intervae.errors import DataError, QueryError, UsageError
from intervae.models.base import in_batches
from intervae.models.causal import CausalModel
from intervae.models.phases import Phase, Player, Terms
from intervae.nets.images import Network, PerConceptDecoder, build_decoder, build_encoder
from intervae.nets.likelihood import Likelihood, absolute_error, negative_log_likelihood

NOISE_BANK = 2048  # residuals kept from the training split, from which sample() draws


@dataclass(frozen=True)
class CausalVAESettings:
    """Settings of CausalVAE; the paper's symbol, where there is one, in brackets."""

    dims: int = 4  # dims per concept [k]
    graph: Literal["independence", "lagrangian", "joint", "given"] = "independence"  # where the graph comes from, see `phases`
    network: Network = "conv"
    channels: tuple[int, ...] = (32, 32, 64, 64)
    hidden: int = 256
    decoder: Literal["joint", "per-concept"] = "joint"  # one network for all concepts, or one each whose outputs are averaged
    mechanism_input: Literal["vector", "sum"] = "vector"  # of g_i: the masked parents (paper) or their weighted sum (authors' code)
    mechanism_hidden: int = 64  # width of the networks g_i
    encode_labels: bool = False  # whether the encoder may see u as well [h(x, u)]; labels are dropped half the time, so that queries work without
    likelihood: Likelihood = "bernoulli"
    scale: float = 0.1  # of a gaussian or laplace likelihood
    sharpness: float = 10.0  # weight of the absolute pixel error beside the likelihood; 0 is the paper's ELBO
    prior_std: float = 0.03  # of the conditional prior [lambda_2]; the paper has 1, with which do() in label units misses
    noise_weight: float = 1.0  # of KL(q(eps) || N(0, I))
    prior_weight: float = 1.0  # of KL(q(z) || p(z | u))
    acyclicity_weight: float = 1.0  # of the acyclicity constraint [alpha]
    label_weight: float = 1.0  # of the linear fit of the labels [beta]
    mechanism_weight: float = 1.0  # of the fit of the mechanisms [gamma]
    mechanism_shapes_latents: bool = False  # whether l_m may move z too (paper), or only fits the mechanisms; see `mechanism_fit`
    influence_weight: float = 0.0  # of the influence of single concepts on the picture, for do() on pure effects; see `influence`
    influence_step: float = 0.3  # how far a concept is moved to measure it, in standard deviations of its label
    edge_threshold: float = 0.3  # below which a learned weight is no edge (lagrangian and joint)
    epochs: int = 80
    batch_size: int = 64
    learning_rate: float = 2e-3
    patience: int | None = 15

    def __post_init__(self) -> None:
        for name in ("dims", "scale", "prior_std", "influence_step"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name}={getattr(self, name)} must be larger than 0.")


class CausalVAE(CausalModel):
    """CausalVAE over the labelled variables of `spec`.

    Arguments:
        spec: `data.spec`; its variables must be continuous or binary.
        graph: a known `CausalGraph`, or the way to find one, see `phases`; "auto" is independence for continuous labels, lagrangian
            where some are binary.
        settings: see `CausalVAESettings`.

    The graph's edges are a buffer `support` (n, n) of 0 and 1; their linear strengths [A] are learned on that support.
    With graph="joint" A itself is the learned graph: the support is everything but the diagonal, and edges are the weights above
    `edge_threshold`.
    """

    name = "causal-vae"
    title = "CausalVAE (Yang et al. 2021): labelled concepts, a causal graph among them, do() on images"
    Settings = CausalVAESettings
    settings: CausalVAESettings
    support: Tensor
    strength: Tensor
    noise_bank: Tensor
    is_binary: Tensor

    def __init__(self, spec: Spec, *, graph: CausalGraph | str = "auto", seed: int = 0, **settings: Any) -> None:
        if not spec.variables:
            raise DataError("causal-vae learns from labels, but this data has none; give a labels.csv or another model.")
        for variable in spec.variables:
            if variable.kind == "categorical":
                raise DataError(
                    f"causal-vae takes continuous and binary variables, but {variable.name!r} is categorical; "
                    "leave it out with variables= (--variables), or recode it."
                )
        if spec.frames is not None:
            raise DataError("causal-vae takes single images, not clips.")
        if isinstance(graph, CausalGraph):
            self.given_graph, graph = graph.subgraph(spec.names), "given"
            _ = self.given_graph.topological_order  # refuses a cycle
        self.found_on_the_way: list[dict[str, Any]] = []
        if graph == "auto":
            graph = "independence" if all(v.kind == "continuous" for v in spec.variables) else "lagrangian"
        super().__init__(spec, seed=seed, graph=graph, **settings)

    def build(self) -> None:
        settings, n = self.settings, len(self.spec.variables)
        size = n * settings.dims
        label_inputs = n + 1 if settings.encode_labels else 0
        features = settings.hidden if label_inputs else 2 * size
        self.encoder = build_encoder(settings.network, self.spec.image_shape, features, settings.channels, settings.hidden)
        self.label_head = nn.Sequential(nn.SiLU(), nn.Linear(settings.hidden + label_inputs, 2 * size)) if label_inputs else None
        make = partial(build_decoder, settings.network, image_shape=self.spec.image_shape, channels=settings.channels, hidden=settings.hidden)
        self.decoder = make(size) if settings.decoder == "joint" else PerConceptDecoder([make(settings.dims) for _ in range(n)])
        self.mechanisms = MaskLayer(n, settings.dims, hidden=settings.mechanism_hidden, parents=settings.mechanism_input)
        self.adjacency = nn.Parameter(torch.zeros(n, n))  # A[j, i], strength of j -> i, from zero
        self.register_buffer("support", 1 - torch.eye(n))
        self.register_buffer("strength", torch.zeros(n, n))  # of known edges, as the discovery measured or the person gave them
        self.register_buffer("noise_bank", torch.randn(NOISE_BANK, n, settings.dims))
        self.register_buffer("is_binary", torch.tensor([v.kind == "binary" for v in self.spec.variables]))
        if self.given_graph is not None:
            self.fix_edges(self.given_graph)

    # ---- the model --------------------------------------------------------------------------------------------------
    @property
    def weights(self) -> Tensor:
        """A (n, n) on its support; the diagonal is always outside it."""
        return self.adjacency * self.support

    @property
    def mask(self) -> Tensor:
        """What the mask layer sees of the graph: A while it is being learned (Eq. 2), the bare edges once they are known."""
        return self.weights if self.settings.graph == "joint" else self.support

    def posterior(self, images: Tensor, labels: Tensor | None = None, seen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """q(eps | x, u): mean and log-variance, each (B, n, k). `seen` (B, 1) says for which images the labels may be used."""
        features = self.encoder(images)
        if self.label_head is not None:
            known = torch.zeros(len(images), 1, device=images.device) if seen is None else seen
            u = torch.zeros(len(images), len(self.spec.variables), device=images.device) if labels is None else self.spec.normalise(labels)
            features = self.label_head(torch.cat([features, u * known, known], dim=1))
        mean, log_variance = features.unflatten(1, (2, len(self.spec.variables), self.settings.dims)).unbind(1)
        return mean, log_variance.clamp(-12, 4)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Eq. 14: -ELBO (Eq. 10) + alpha H(A) (Eq. 13) + beta l_u (Eq. 11) + gamma l_m (Eq. 12), and our absolute pixel error."""
        settings, images, weights = self.settings, batch["images"], self.weights
        u = self.spec.normalise(batch["labels"])  # (B, n)
        seen = None
        if settings.encode_labels:
            seen = (torch.rand(len(images), 1, device=images.device, generator=generator) < 0.5).float()
        mean, log_variance = self.posterior(images, batch["labels"], seen)
        z = to_endogenous(reparametrise(mean, log_variance, generator), weights)  # Eq. 1
        output = self.decoder(z.flatten(1))
        reconstruction = negative_log_likelihood(output, images, settings.likelihood, settings.scale).mean()
        pixels = absolute_error(torch.sigmoid(output), images).mean()
        noise = kl_standard_normal(mean, log_variance).mean()
        prior_log_variance = torch.full((), 2 * math.log(settings.prior_std), device=images.device)
        prior = kl_pushed_forward(mean, log_variance, weights, u[..., None].expand_as(mean), prior_log_variance).mean()  # Eq. 7
        acyclicity = polynomial(weights)
        labels = self.label_fit(u)
        mechanism = self.mechanism_fit(z)
        total = (
            reconstruction
            + settings.sharpness * pixels
            + settings.noise_weight * noise
            + settings.prior_weight * prior
            + settings.acyclicity_weight * acyclicity
            + settings.label_weight * labels
            + settings.mechanism_weight * mechanism
        )
        terms = {
            "loss": total,
            "reconstruction": reconstruction,
            "absolute_error": pixels,
            "kl_noise": noise,
            "kl_prior": prior,
            "acyclicity": acyclicity,
            "label_fit": labels,
            "mechanism_fit": mechanism,
        }
        if settings.influence_weight:
            terms["influence"] = self.influence(z, output, generator)
            terms["loss"] = total + settings.influence_weight * terms["influence"]
        return terms

    def label_fit(self, u: Tensor) -> Tensor:
        """l_u, Eq. 11: how well A explains the normalised labels u (B, n); logistic for binary labels, linear for continuous ones."""
        linear = u @ self.weights  # (A^T u)_i = sum_j A[j, i] u_j
        predicted = torch.where(self.is_binary, 2 * torch.sigmoid(linear) - 1, linear)
        return (u - predicted).square().sum(1).mean()

    def mechanism_fit(self, z: Tensor) -> Tensor:
        """l_m, Eq. 12: how well the mask layer reproduces z (B, n, k) from the parents. Roots have nothing to be predicted from and are left out.

        If this loss moves z, the encoder can lower it by hiding in the parents' spare dims what their noise-free part does not tell of the
        child (measured on Flow: the ball's latent learns the water's own noise, and do(ball) moves the water wrongly). So by default it
        only fits the mechanisms.
        """
        z = z if self.settings.mechanism_shapes_latents else z.detach()
        has_parents = (self.support.sum(0) > 0).to(z.dtype)  # (n,)
        return ((z - self.mechanisms(z, self.mask)).square().sum(2) * has_parents).sum(1).mean()

    def influence(self, z: Tensor, output: Tensor, generator: torch.Generator | None) -> Tensor:
        """How many pixels change when one concept moves and the others stay, per unit of movement; not in the paper.

        Where concepts determine each other (a shadow follows from rod and light) the data do not say from which of them the decoder should
        draw, and do() on an effect can go wrong. The sum of absolute influences settles it: for standardised variables with
        z_i = f(parents) the parents' influences on what z_i could draw add up to more than z_i's own, so each concept draws itself.
        """
        n = z.shape[1]
        which = torch.randint(n, (len(z), 1), device=z.device, generator=generator)
        step = self.settings.influence_step * torch.randn(len(z), 1, z.shape[2], device=z.device, generator=generator)
        moved = z + step * (torch.arange(n, device=z.device) == which)[..., None]
        after = torch.sigmoid(self.decoder(moved.flatten(1)))
        return absolute_error(after, torch.sigmoid(output)).mean() / self.settings.influence_step

    # ---- training ---------------------------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """The graph first, then everything together, then the noises for sampling.

        independence: a graph from the independence of the labels' noises (`intervae.discovery`), then fixed edges;
        lagrangian: the paper's pre-training, l_u under the constraint H(A) = 0 by augmented Lagrangian, then fixed edges too;
        joint: Eq. 14 alone, from A = 0; given: the edges are known.
        """
        settings = self.settings
        main = Phase(
            "joint",
            (Player(self.loss, learning_rate=settings.learning_rate),),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            schedule="cosine",
            patience=settings.patience,
            keep_best=True,
        )
        first: list[Phase] = []
        if settings.graph in ("independence", "lagrangian"):
            first = [Phase("graph", prepare=self.find_edges)]
        elif settings.graph == "given" and self.given_graph is None:
            raise UsageError("graph=given needs a graph: pass graph= (a CausalGraph), or --graph FILE on the command line.")
        return [*first, main, Phase("noise", prepare=self.collect_noise)]

    def check(self, data: Dataset) -> None:
        if self.settings.graph == "independence":
            require_continuous("graph=independence", self.spec.names, [v.kind for v in self.spec.variables])
        if self.settings.graph in ("independence", "lagrangian") and len(self.spec.variables) > 1 and len(data.train) < FEWEST_ROWS:
            raise DataError(
                f"{len(data.train)} training samples are too few to learn a graph from their labels; give {FEWEST_ROWS} or more, "
                "or a known graph (graph=, --graph)."
            )

    def fix_edges(self, graph: CausalGraph, slopes: Tensor | None = None) -> None:
        """From here on these are the edges; A starts at `slopes` (n, n), or at the graph's weights, and stays trainable on them."""
        weights = torch.tensor(graph.subgraph(self.spec.names).weights, dtype=torch.float32)
        with torch.no_grad():
            self.support.copy_((weights != 0).float())
            self.strength.copy_(weights)
            self.adjacency.copy_(weights if slopes is None else slopes)

    def find_edges(self, data: Dataset, seed: int) -> None:
        """Edges from the labels of the training split alone, see `intervae.discovery`.

        independence: A starts at the linear fit to the parents. lagrangian: the paper's pre-training (sec. 6.2, App. C.3), l_u under
        H(A) = 0 by augmented Lagrangian from A = 0; A starts where it ends.
        """
        method, names = self.settings.graph, self.spec.names
        if len(names) == 1:
            return self.fix_edges(CausalGraph.empty(names))
        own = {"threshold": self.settings.edge_threshold} if method == "lagrangian" else {}
        kinds = [v.kind for v in self.spec.variables]
        found = discover(data.train.labels.cpu().numpy(), method, names=names, kinds=kinds, seed=seed, **own)
        self.found_on_the_way = [{"adjacency": weights.tolist()} for weights in found.history]
        slopes = self._linear_fit(found.graph, data) if method == "independence" else None
        return self.fix_edges(found.graph, slopes)

    def _linear_fit(self, graph: CausalGraph, data: Dataset) -> Tensor:
        """(n, n) least-squares slopes of the normalised labels on their parents."""
        u = self.spec.normalise(data.train.labels).double().cpu()
        slopes = torch.zeros(graph.weights.shape)
        for i, name in enumerate(graph.names):
            parents = [graph.index(parent) for parent in graph.parents(name)]
            if parents:
                slopes[parents, i] = torch.linalg.lstsq(u[:, parents], u[:, i : i + 1]).solution[:, 0].float()
        return slopes

    def states_prepared(self) -> list[dict[str, Any]]:
        found, self.found_on_the_way = self.found_on_the_way, []
        return found

    @torch.no_grad()
    def collect_noise(self, data: Dataset, seed: int) -> None:
        """Keep the training split's abducted noises, from which sample() draws each variable's independently."""
        rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))[:NOISE_BANK]
        latents = self.encode(data.train.images[rows.to(data.train.device)])
        expected = torch.stack([self.mechanism(i, latents) for i in range(latents.shape[1])], dim=1)
        noise = latents - expected
        self.noise_bank.copy_(noise[torch.arange(NOISE_BANK, device=noise.device) % len(noise)])

    def state_to_log(self) -> dict[str, Any]:
        return {"adjacency": self.weights.detach().cpu().tolist()}

    # ---- queries ----------------------------------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        return self.spec.names

    @property
    def graph(self) -> CausalGraph:
        """The learned or given graph, always acyclic.

        Its weights are the strengths that the discovery measured or the person gave; where A itself is the learned graph they are A above
        the threshold, and on a cycle the weakest edge goes.
        """
        if self.settings.graph != "joint":
            return CausalGraph(self.spec.names, (self.strength * self.support).double().cpu().numpy())
        return CausalGraph(self.spec.names, self.weights.detach().double().cpu().numpy()).threshold(self.settings.edge_threshold).to_acyclic()

    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        """g_i of the parents in `graph`; for a root, which has none, zero: all of it is noise."""
        parents = self.graph_mask[:, index]
        if not bool(parents.any()):
            return torch.zeros_like(latents[:, index])
        return self.mechanisms.one(index, latents, self.mask * self.graph_mask)

    @property
    def graph_mask(self) -> Tensor:
        return torch.as_tensor(self.graph.adjacency, dtype=self.adjacency.dtype, device=self.device)

    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        bank = self.noise_bank.cpu()
        rows = torch.randint(len(bank), (n, bank.shape[1]), generator=generator)
        return torch.stack([bank[rows[:, i], i] for i in range(bank.shape[1])], dim=1)

    def to_units(self, index: int, latent: Tensor) -> Tensor:
        return self.spec.variables[index].denormalise(latent.mean(-1))

    def from_units(self, index: int, value: Tensor, latent: Tensor) -> Tensor:
        return self.spec.variables[index].normalise(value)[:, None].expand_as(latent)

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to the endogenous latents' posterior means (B, n, k); labels help only with `encode_labels`."""
        x = self.as_images(images)
        if labels is None or self.label_head is None:
            mean = in_batches(lambda part: self.posterior(part)[0], x)
        else:
            u = self.as_labels(labels, len(x))
            mean = in_batches(lambda part, some: self.posterior(part, some, torch.ones(len(part), 1, device=part.device))[0], x, u)
        return to_endogenous(mean, self.weights)

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        return in_batches(lambda part: torch.sigmoid(self.decoder(part.flatten(1))), self.as_latents(latents))

    @torch.no_grad()
    def log_weights(self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Conditional likelihood p(x | u): log p(x | z) + log p(z | u) - log q(z | x, u), (samples, B), for z = (I - A^T)^-1 eps, eps ~ q.

        p(z | u) is the conditional prior (Eq. 7) and q(z) the posterior pushed through the causal layer, q(eps) |det (I - A^T)|^k. The mean of
        these weights is the ELBO of p(x | u), Eq. 10 without its KL of eps against N(0, I): z and eps are one variable in two coordinates, so
        Eq. 10 charges the posterior twice and bounds the likelihood of no model. The absolute pixel error of the loss is no part of it either.
        Nats of a Bernoulli likelihood on grey values compare models with the same likelihood, nothing else.
        """
        if labels is None:
            raise QueryError(f"{self.name} has a prior p(z | u) that depends on the labels; give log_weights the labels of the images.")
        if samples < 1:
            raise QueryError(f"log_weights was asked for {samples} samples; ask for one at least.")
        x = self.as_images(images)
        u = self.as_labels(labels, len(x))
        mean, log_variance = self.posterior(x, u, torch.ones(len(x), 1, device=x.device))
        noise = torch.stack([torch.randn(mean.shape, generator=generator) for _ in range(samples)]).to(x.device)  # (samples, B, n, k)
        z = to_endogenous(mean + torch.exp(0.5 * log_variance) * noise, self.weights)
        log_det = inverse_and_log_det(structural_matrix(self.weights))[1]
        log_posterior = log_normal(noise, 0.0, 0.0).sum((2, 3)) - 0.5 * log_variance.sum((1, 2)) + z.shape[-1] * log_det
        log_prior = log_normal(z, self.spec.normalise(u)[..., None], 2 * math.log(self.settings.prior_std)).sum((2, 3))
        log_pixels = in_batches(
            lambda latents, truth: -negative_log_likelihood(self.decoder(latents), truth, self.settings.likelihood, self.settings.scale),
            z.flatten(0, 1).flatten(1),
            x.repeat(samples, 1, 1, 1),
        )
        return log_pixels.unflatten(0, (samples, len(x))) + log_prior - log_posterior
