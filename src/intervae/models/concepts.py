"""What CausalVAE and the two reductions of it in its Table 1 share: concepts between an encoder and a decoder, their labels, the causal layer.

`ConceptModel` has the networks, the pixel terms and the noises that sample() draws from; `LabelledConcepts` ties each concept to a label (CausalVAE,
ConditionVAE); `CausalLayer` lets concepts cause each other (CausalVAE, CausalVAE-unsup). Equations are those of Yang et al., CVPR 2021.
Shapes: B images, n concepts, k dims per concept. Reduction everywhere: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from intervae.causal.gaussian import log_normal
from intervae.causal.graph import CausalGraph
from intervae.causal.linear import inverse_and_log_det, structural_matrix, to_endogenous
from intervae.causal.mechanisms import MaskLayer
from intervae.data.base import Dataset, Spec
from intervae.errors import QueryError, UsageError
from intervae.models.base import in_batches, need_labels, repeat_rows
from intervae.models.causal import CausalModel
from intervae.models.phases import Phase, Player
from intervae.nets.images import Network, PerConceptDecoder, build_decoder, build_encoder
from intervae.nets.latents import draw_samples
from intervae.nets.likelihood import Likelihood, absolute_error, negative_log_likelihood

NOISE_BANK = 2048  # residuals kept from the training split, from which sample() draws
POSITIVE = ("dims", "latents", "scale", "prior_std", "influence_step")  # settings that make no sense otherwise, where a model has them


@dataclass(frozen=True)
class ConceptSettings:
    """Settings of every model of concepts; the paper's symbol, where there is one, in brackets."""

    dims: int = 4  # dims per concept [k]
    network: Network = "conv"
    channels: tuple[int, ...] = (32, 32, 64, 64)
    hidden: int = 256
    decoder: Literal["joint", "per-concept"] = "joint"  # one network for all concepts, or one each whose outputs are averaged
    likelihood: Likelihood = "bernoulli"
    scale: float = 0.1  # of a gaussian or laplace likelihood
    sharpness: float = 10.0  # weight of the absolute pixel error beside the likelihood; 0 is the paper's ELBO
    epochs: int = 80
    batch_size: int = 64
    learning_rate: float = 2e-3
    patience: int | None = 15

    def __post_init__(self) -> None:
        for name in POSITIVE:
            if getattr(self, name, 1) <= 0:
                raise UsageError(f"{name}={getattr(self, name)} must be larger than 0.")


@dataclass(frozen=True)
class LabelSettings(ConceptSettings):
    """Settings of models whose concepts have labels."""

    encode_labels: bool = False  # whether the encoder may see u as well [h(x, u)]; labels are dropped half the time, so that queries work without
    prior_std: float = 0.03  # of the conditional prior [lambda_2]; the paper has 1, with which do() in label units misses
    prior_weight: float = 1.0  # of KL(q(z) || p(z | u))


@dataclass(frozen=True)
class CausalLayerSettings(ConceptSettings):
    """Settings of models whose concepts cause each other."""

    mechanism_input: Literal["vector", "sum"] = "vector"  # of g_i: the masked parents (paper) or their weighted sum (authors' code)
    mechanism_hidden: int = 64  # width of the networks g_i
    noise_weight: float = 1.0  # of KL(q(eps) || N(0, I))
    acyclicity_weight: float = 1.0  # of the acyclicity constraint [alpha]
    mechanism_weight: float = 1.0  # of the fit of the mechanisms [gamma]
    mechanism_shapes_latents: bool = False  # whether l_m may move z too (paper), or only fits the mechanisms; see `mechanism_fit`
    edge_threshold: float = 0.3  # below which a learned weight is no edge


class ConceptModel(CausalModel):
    """n concepts of k dims each: encoder -> exogenous noises -> concepts -> decoder.

    A subclass gives what a `CausalModel` needs, and `build` with `make_encoder`, `make_decoder` and `make_noise_bank`; without a causal layer the
    concepts are the encoder's own output.
    """

    settings: ConceptSettings
    encoder: nn.Module
    decoder: nn.Module
    noise_bank: Tensor

    def make_encoder(self, outputs: int) -> nn.Module:
        settings = self.settings
        return build_encoder(settings.network, self.spec.image_shape, outputs, settings.channels, settings.hidden)

    def make_decoder(self) -> nn.Module:
        settings, n = self.settings, len(self.latent_names)
        make = partial(build_decoder, settings.network, image_shape=self.spec.image_shape, channels=settings.channels, hidden=settings.hidden)
        return make(n * settings.dims) if settings.decoder == "joint" else PerConceptDecoder([make(settings.dims) for _ in range(n)])

    def make_noise_bank(self) -> None:
        self.register_buffer("noise_bank", torch.randn(NOISE_BANK, len(self.latent_names), self.settings.dims))

    # ---- the model --------------------------------------------------------------------------------------------------
    def posterior(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """q(eps | x): mean and log-variance, each (B, n, k)."""
        return self.as_gaussian(self.encoder(images))

    def as_gaussian(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, 2 n k) to mean and log-variance, each (B, n, k)."""
        mean, log_variance = features.unflatten(1, (2, len(self.latent_names), self.settings.dims)).unbind(1)
        return mean, log_variance.clamp(-12, 4)

    def endogenous(self, exogenous: Tensor) -> Tensor:
        """Noises eps (..., n, k) to concepts z (..., n, k); here they are the same."""
        return exogenous

    def log_det(self) -> Tensor | float:
        """log |det| of the way back from z to eps, for each of the k dims."""
        return 0.0

    def pixel_terms(self, output: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        """-log p(x | z) and the absolute pixel error of the decoder's output, each a mean over the batch."""
        reconstruction = negative_log_likelihood(output, images, self.settings.likelihood, self.settings.scale).mean()
        return reconstruction, absolute_error(torch.sigmoid(output), images).mean()

    # ---- training ---------------------------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """Everything together, then the noises for sampling."""
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
        return [main, Phase("noise", prepare=self.collect_noise)]

    @torch.no_grad()
    def collect_noise(self, data: Dataset, seed: int) -> None:
        """Keep the training split's abducted noises, for `draw_noise`."""
        rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))[:NOISE_BANK]
        latents = self.encode(data.train[rows.to(data.train.device)].images)
        expected = torch.stack([self.mechanism(i, latents) for i in range(latents.shape[1])], dim=1)
        noise = latents - expected
        self.noise_bank.copy_(repeat_rows(noise, NOISE_BANK))

    # ---- queries ----------------------------------------------------------------------------------------------------
    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        """Noises of the training split, each variable's drawn independently of the others'."""
        bank = self.noise_bank.cpu()
        rows = torch.randint(len(bank), (n, bank.shape[1]), generator=generator)
        return torch.stack([bank[rows[:, i], i] for i in range(bank.shape[1])], dim=1)

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to the endogenous latents' posterior means (B, n, k)."""
        return self.endogenous(in_batches(lambda part: self.posterior(part)[0], self.as_images(images)))

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        return in_batches(lambda part: torch.sigmoid(self.decoder(part.flatten(1))), self.as_latents(latents))

    def log_ratio(
        self, x: Tensor, posterior: tuple[Tensor, Tensor], log_prior: Callable[[Tensor], Tensor], samples: int, generator: torch.Generator | None
    ) -> Tensor:
        """log p(x | z) + log_prior(z) - log q(z), (samples, B), for z = endogenous(eps), eps ~ q(eps) = `posterior`."""
        mean, log_variance = posterior
        noise = draw_samples(tuple(mean.shape), samples, generator, x.device)  # (samples, B, n, k)
        z = self.endogenous(mean + torch.exp(0.5 * log_variance) * noise)
        log_posterior = log_normal(noise, 0.0, 0.0).sum((2, 3)) - 0.5 * log_variance.sum((1, 2)) + z.shape[-1] * self.log_det()
        log_pixels = in_batches(
            lambda latents, truth: -negative_log_likelihood(self.decoder(latents), truth, self.settings.likelihood, self.settings.scale),
            z.flatten(0, 1).flatten(1),
            x.repeat(samples, 1, 1, 1),
        )
        return log_pixels.unflatten(0, (samples, len(x))) + log_prior(z) - log_posterior


class LabelledConcepts(ConceptModel):
    """Each concept has a label u_i and the prior p(z_i | u_i) = N(u_i, prior_std^2), Eq. 7; so do() speaks in the labels' units."""

    settings: LabelSettings

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        need_labels(self.name, spec)
        super().__init__(spec, seed=seed, **settings)

    def build(self) -> None:
        settings, n = self.settings, len(self.spec.variables)
        outputs = 2 * n * settings.dims
        self.encoder = self.make_encoder(settings.hidden if settings.encode_labels else outputs)
        self.label_head = nn.Sequential(nn.SiLU(), nn.Linear(settings.hidden + n + 1, outputs)) if settings.encode_labels else None
        self.decoder = self.make_decoder()

    @property
    def latent_names(self) -> tuple[str, ...]:
        return self.spec.names

    def posterior(self, images: Tensor, labels: Tensor | None = None, seen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """q(eps | x, u): mean and log-variance, each (B, n, k). `seen` (B, 1) says for which images the labels may be used."""
        features = self.encoder(images)
        if self.label_head is not None:
            known = torch.zeros(len(images), 1, device=images.device) if seen is None else seen
            u = torch.zeros(len(images), len(self.spec.variables), device=images.device) if labels is None else self.spec.normalise(labels)
            features = self.label_head(torch.cat([features, u * known, known], dim=1))
        return self.as_gaussian(features)

    def draw_seen(self, images: Tensor, generator: torch.Generator | None) -> Tensor | None:
        """For which of the images (B, 1) the encoder sees the labels in this step: half of them, or None where it never does."""
        if not self.settings.encode_labels:
            return None
        return (torch.rand(len(images), 1, device=images.device, generator=generator) < 0.5).float()

    def to_units(self, index: int, latent: Tensor) -> Tensor:
        return self.spec.variables[index].denormalise(latent.mean(-1))

    def from_units(self, index: int, value: Tensor, latent: Tensor) -> Tensor:
        return self.spec.variables[index].normalise(value)[:, None].expand_as(latent)

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to the endogenous latents' posterior means (B, n, k); labels help only with `encode_labels`."""
        if labels is None or self.label_head is None:
            return super().encode(images)
        x = self.as_images(images)
        u = self.as_labels(labels, len(x))
        mean = in_batches(lambda part, some: self.posterior(part, some, torch.ones(len(part), 1, device=part.device))[0], x, u)
        return self.endogenous(mean)

    @torch.no_grad()
    def log_weights(self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Conditional likelihood p(x | u): log p(x | z) + log p(z | u) - log q(z | x, u), (samples, B).

        With a causal layer z = (I - A^T)^-1 eps, eps ~ q, and q(z) is the posterior pushed through it, q(eps) |det (I - A^T)|^k. The mean of
        these weights is the ELBO of p(x | u), Eq. 10 without its KL of eps against N(0, I): z and eps are one variable in two coordinates, so
        Eq. 10 charges the posterior twice and bounds the likelihood of no model. The absolute pixel error of the loss is no part of it either.
        Nats of a Bernoulli likelihood on grey values compare models with the same likelihood, nothing else.
        """
        if labels is None:
            raise QueryError(f"{self.name} has a prior p(z | u) that depends on the labels; give log_weights the labels of the images.")
        x = self.as_images(images)
        u = self.as_labels(labels, len(x))
        centre, log_variance = self.spec.normalise(u)[..., None], 2 * math.log(self.settings.prior_std)
        posterior = self.posterior(x, u, torch.ones(len(x), 1, device=x.device))
        return self.log_ratio(x, posterior, lambda z: log_normal(z, centre, log_variance).sum((2, 3)), samples, generator)


class CausalLayer(ConceptModel):
    """Concepts that cause each other: A (n, n) on a `support`, z = (I - A^T)^-1 eps (Eq. 1), and where there is one the mask layer (Eq. 2).

    A subclass makes `mechanisms` (or leaves them None: then only the linear layer carries an effect) and calls `make_adjacency` in `build`.
    """

    settings: CausalLayerSettings
    mechanisms: MaskLayer | None
    support: Tensor

    def make_mechanisms(self) -> MaskLayer:
        settings = self.settings
        return MaskLayer(len(self.latent_names), settings.dims, hidden=settings.mechanism_hidden, parents=settings.mechanism_input)

    def make_adjacency(self) -> None:
        n = len(self.latent_names)
        self.adjacency = nn.Parameter(torch.zeros(n, n))  # A[j, i], strength of j -> i, from zero
        self.register_buffer("support", 1 - torch.eye(n))

    @property
    def weights(self) -> Tensor:
        """A (n, n) on its support; the diagonal is always outside it."""
        return self.adjacency * self.support

    @property
    def mask(self) -> Tensor:
        """What the mask layer sees of the graph (Eq. 2): A, which is being learned."""
        return self.weights

    def endogenous(self, exogenous: Tensor) -> Tensor:
        """z = (I - A^T)^-1 eps, Eq. 1."""
        return to_endogenous(exogenous, self.weights)

    def log_det(self) -> Tensor:
        """log |det (I - A^T)|: 0 for a DAG, but not while a graph with cycles is being learned."""
        return inverse_and_log_det(structural_matrix(self.weights))[1]

    def mechanism_fit(self, z: Tensor) -> Tensor:
        """l_m, Eq. 12: how well the mask layer reproduces z (B, n, k) from the parents. Roots have nothing to be predicted from and are left out.

        If this loss moves z, the encoder can lower it by hiding in the parents' spare dims what their noise-free part does not tell of the
        child (measured on Flow: the ball's latent learns the water's own noise, and do(ball) moves the water wrongly). So by default it
        only fits the mechanisms.
        """
        assert self.mechanisms is not None
        z = z if self.settings.mechanism_shapes_latents else z.detach()
        has_parents = (self.support.sum(0) > 0).to(z.dtype)  # (n,)
        return ((z - self.mechanisms(z, self.mask)).square().sum(2) * has_parents).sum(1).mean()

    # ---- queries ----------------------------------------------------------------------------------------------------
    @property
    def graph(self) -> CausalGraph:
        """A above the threshold, always acyclic: on a cycle the weakest edge goes."""
        return CausalGraph(self.latent_names, self.weights.detach().double().cpu().numpy()).threshold(self.settings.edge_threshold).to_acyclic()

    @property
    def graph_mask(self) -> Tensor:
        return torch.as_tensor(self.graph.adjacency, dtype=self.adjacency.dtype, device=self.device)

    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        """g_i of the parents in `graph`, or A_i^T z without a mask layer; for a root, which has none, zero: all of it is noise."""
        edges = self.graph_mask
        if not bool(edges[:, index].any()):
            return torch.zeros_like(latents[:, index])
        if self.mechanisms is None:
            return torch.einsum("j,bjk->bk", self.weights[:, index] * edges[:, index], latents)
        return self.mechanisms.one(index, latents, self.mask * edges)

    def state_to_log(self) -> dict[str, Any]:
        return {"adjacency": self.weights.detach().cpu().tolist()}
