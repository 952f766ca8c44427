"""Causal-prior VAE (ICLR 2023 submission): a VAE whose prior is a structural equation model.

z_i = f_i(z_<i) + n_i, Eq. 5; the objective is Eq. 11. The paper trains everything at once; here the
phases of curriculum.py come first.
Shapes: B images, d latents in a fixed order, edges from earlier to later ones.
Posteriors have a full covariance F F^T.
Reduction: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from intervae.causal.gaussian import log_normal
from intervae.causal.graph import CausalGraph
from intervae.causal.sem import SEM, sem_divergence
from intervae.data import Batch, Spec
from intervae.errors import DataError, QueryError, UsageError
from intervae.models.batches import in_batches
from intervae.models.causal import CausalModel
from intervae.models.causal_prior.curriculum import NETWORKS, curriculum_phases
from intervae.models.causal_prior.posterior import AlignedEncoder, Posterior, kl_isotropic
from intervae.models.causal_prior.presets import IMAGES
from intervae.models.causal_prior.settings import CausalPriorVAESettings, allowed_edges
from intervae.models.causal_prior.unmixing import rotate, unmix
from intervae.models.inputs import as_tensor
from intervae.models.phases import Loss, Phase, Player, Terms
from intervae.nets.images import MLPDecoder, MLPEncoder
from intervae.nets.stacked import Stacked

PRIOR_DRAWS, LARGEST_LATENT = 1024, 1e6  # draws of the prior in a check for exploding equations


class CausalPriorVAE(CausalModel):
    """Causal-prior VAE; labels are not used.

    Latents are z0, z1, ...; they and the values of do() are in units of their own.
    """

    name = "causal-prior-vae"
    anonymous_latents = True
    title = (
        "Causal-prior VAE (ICLR 2023 submission): "
        "a structural equation model as the prior of the latents"
    )
    Settings, presets = CausalPriorVAESettings, IMAGES
    settings: CausalPriorVAESettings
    likelihood_description = "Likelihood p(x): log p(x | z) + log p(z) - log q(z | x)"
    coupled: Tensor
    scores: Tensor
    trial_scores: Tensor
    rotation: Tensor
    optional_tensors = frozenset({"rotation"})

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        if spec.frames is not None:
            raise DataError(
                f"{self.name} takes single images; for clips use temporal-causal-prior-vae."
            )
        super().__init__(spec, seed=seed, **settings)

    def build(self) -> None:
        settings, d = self.settings, self.settings.latents
        allowed = allowed_edges(settings.edges, self.latent_names)
        has_edges = bool(settings.edges)
        self.sem = SEM(
            allowed,
            form=settings.form,
            scales=[*settings.scales, *[1.0] * d][:d] if has_edges else [1.0] * d,
            learn_scales=settings.learn_scales and has_edges,
            learn_edges=settings.learn_edges and has_edges,
        )
        if self.has_curriculum:
            draws = self.sem.sample(PRIOR_DRAWS, torch.Generator().manual_seed(0))
            if not draws.abs().max() < LARGEST_LATENT:
                raise UsageError(
                    f"draws of the prior with form={settings.form} and these edges grow beyond "
                    f"{LARGEST_LATENT:g}; use fewer edges or form=mlp."
                )
        self.encoder, self.decoder = self._networks()
        starts: list[tuple[AlignedEncoder, MLPDecoder]] = []
        if self.has_curriculum:
            starts = [(self.encoder, self.decoder)]
            starts += [self._networks() for _ in range(settings.restarts - 1)]
        columns = zip(*starts, strict=True)
        self.starts = nn.ModuleDict(
            {name: Stacked(networks) for name, networks in zip(NETWORKS, columns, strict=False)}
        )
        # scores of the starts after the positions and after the trial phase, largest first
        self.register_buffer("scores", torch.zeros(len(starts)))
        self.register_buffer("trial_scores", torch.zeros(self.finalists if starts else 0))
        # of the standardised noises, in queries; the loss does not depend on it
        self.register_buffer("rotation", torch.eye(d))
        # 1 for latents with an edge
        self.register_buffer("coupled", ((allowed.sum(0) + allowed.sum(1)) > 0).float())

    def _networks(self) -> tuple[AlignedEncoder, MLPDecoder]:
        settings, d, shape = self.settings, self.settings.latents, self.spec.image_shape
        outputs = 2 * d if settings.covariance == "diagonal" else d + d * (d + 1) // 2
        encoder = MLPEncoder(shape, outputs, settings.widths, nn.ReLU)
        return AlignedEncoder(encoder, d), MLPDecoder(d, shape, settings.widths, nn.ReLU)

    # ---- model ---------------------------------------------------------------------------------
    def posterior(self, images: Tensor) -> Posterior:
        """q(z | x), Eq. 4, after the alignment z = T z' + t, before the rotation of the noises."""
        return self.encoder(images)

    def misfit(self, z: Tensor, images: Tensor) -> Tensor:
        """Squared error (B,): -log p(x | z) of a Gaussian of variance 1/2, up to a constant."""
        return (self.decoder(z) - images).square().flatten(1).sum(1)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Eq. 11: w squared error + beta KL(q || SEM) + lambda expected edges.

        The loss of the last phase. Latents without edges are faded in over `gate_steps` if there
        was no trial phase.
        """
        fade, images = self.has_curriculum and self.finalists == 1, batch["images"]
        gate = self.gate(batch["step"]) if fade else 1.0
        return self.terms(
            self.posterior(images), lambda z: self.misfit(z * gate, images), generator
        )

    def terms(
        self,
        posterior: Posterior,
        misfit: Callable[[Tensor], Tensor],
        generator: torch.Generator | None,
    ) -> Terms:
        """Terms of Eq. 11 for any posterior (B, ...) and squared error `misfit` of its draws."""
        settings = self.settings
        noise = torch.randn(posterior.mean.shape, device=posterior.mean.device, generator=generator)
        z = posterior.draw(noise)
        reconstruction = misfit(z).mean()
        edges = self.sem.sample_edges(generator) if self.sem.learn_edges else None
        if settings.isotropic:
            kl = kl_isotropic(posterior).mean()
        else:
            kl = sem_divergence(
                settings.divergence,
                posterior.mean,
                posterior.factor,
                self.sem,
                z=z,
                noise=noise,
                edges=edges,
                generator=generator,
                pivots=settings.pivots,
                log_det=posterior.log_det,
            ).mean()
        terms = {"reconstruction": reconstruction, "kl": kl}
        total = settings.reconstruction_weight * reconstruction + settings.beta * kl
        if self.sem.learn_edges:
            terms["edges"] = self.sem.expected_edges()
            total = total + settings.sparsity * terms["edges"]
        return {"loss": total, **terms}

    def gate(self, step: Tensor) -> Tensor:
        """(d,): 1 for latents with edges; rises from 0 to 1 over `gate_steps` for the others."""
        return self.coupled + (1 - self.coupled) * (step / self.settings.gate_steps).clamp(max=1.0)

    # ---- training ------------------------------------------------------------------------------
    @property
    def has_curriculum(self) -> bool:
        """Whether training starts with the phases of curriculum.py."""
        return self.settings.curriculum and bool(self.settings.edges)

    @property
    def finalists(self) -> int:
        """Number of starts in the trial phase; 1 skips it."""
        return min(self.settings.finalists, self.settings.restarts)

    def phases(self) -> list[Phase]:
        """The curriculum, then `loss` with the SEM as the prior."""
        first = curriculum_phases(self) if self.has_curriculum else []
        last = self.training_phase("prior", self.loss, self.settings.epochs, *NETWORKS, "sem")
        unmixing = Phase("unmixing", prepare=partial(unmix, self))
        return [*first, last, *([unmixing] if self.has_curriculum and self.settings.unmix else [])]

    def training_phase(self, name: str, loss: Loss, epochs: int, *parameters: str) -> Phase:
        """A phase that minimises `loss` over the parameters with these name prefixes."""
        settings = self.settings
        player = Player(
            loss, parameters, optimiser=settings.optimiser, learning_rate=settings.learning_rate
        )
        return Phase(
            name,
            (player,),
            epochs=epochs,
            batch_size=settings.batch_size,
            schedule=settings.schedule,
        )

    def state_to_log(self) -> dict[str, Any]:
        if not self.sem.learn_edges:
            return {}
        return {"adjacency": self.sem.edge_probabilities().detach().cpu().tolist()}

    # ---- queries -------------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"z{i}" for i in range(self.settings.latents))

    @property
    def graph(self) -> CausalGraph:
        return self.sem.graph(self.latent_names, threshold=self._edge_threshold)

    @property
    def edges(self) -> Tensor:
        """(d, d) of 0 and 1: the edges of the prior; none with `isotropic`."""
        return self.sem.hard_edges(self._edge_threshold)

    @property
    def _edge_threshold(self) -> float:
        return math.inf if self.settings.isotropic else 0.5

    @property
    def noise_scales(self) -> Tensor:
        """(d,): standard deviations of the noises."""
        if self.settings.isotropic:
            return torch.ones_like(self.coupled)
        return self.sem.log_scales.detach().exp()

    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        return self.sem.mean(latents[..., 0], self.edges)[:, index : index + 1]

    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        noise = torch.randn(n, self.settings.latents, generator=generator)
        return (noise * self.noise_scales.cpu())[..., None]

    @torch.no_grad()
    def draw_latents(self, n: int, generator: torch.Generator) -> Tensor:
        """(n, d) draws of the prior."""
        noise = self.draw_noise(n, generator)[..., 0].to(self.device)
        return self.sem.from_noises(noise, self.edges)

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to posterior means (B, d, 1)."""
        return in_batches(
            lambda x: rotate(self, self.posterior(x).mean, self.rotation)[..., None],
            self.as_images(images),
        )

    @torch.no_grad()
    def draw_posterior(self, images: Any, seed: int = 0) -> Tensor:
        """One draw (B, d) from the posterior of each image."""
        x = self.as_images(images)
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(len(x), self.settings.latents, generator=generator).to(x.device)
        return in_batches(
            lambda chunk, n: rotate(self, self.posterior(chunk).draw(n), self.rotation), x, noise
        )

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Latents (B, d, 1) to images (B, C, H, W) in [0, 1]."""
        return in_batches(
            lambda z: self.decoder(rotate(self, z[..., 0], self.rotation.T)).clamp(0, 1),
            self.as_latents(latents),
        )

    @torch.no_grad()
    def traverse(self, noises: Any) -> Tensor:
        """Images (B, C, H, W) of noises (B, d) passed through the mechanisms."""
        n = as_tensor(noises, "noises").to(self.device, torch.float32)
        if n.ndim != 2 or n.shape[1] != self.settings.latents or not n.isfinite().all():
            raise QueryError(
                f"noises must be finite and (B, {self.settings.latents}), "
                f"not of shape {tuple(n.shape)}."
            )
        return self.decode(self.sem.from_noises(n, self.edges)[..., None])

    @torch.no_grad()
    def log_weights(
        self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Importance weights of p(x), (samples, B): log p(x | z) + log p(z) - log q(z | x).

        With the exact density of the SEM and pixels of variance 1/2.
        """
        if samples < 1:
            raise QueryError(f"log_weights needs 1 sample or more, not {samples}.")
        x = self.as_images(images)
        posterior = self.posterior(x)
        draws = [torch.randn(posterior.mean.shape, generator=generator) for _ in range(samples)]
        noise = torch.stack(draws).to(x.device)  # (samples, B, d)
        z = posterior.mean + (posterior.factor @ noise[..., None])[..., 0]
        log_posterior = -0.5 * (noise.square() + math.log(2 * math.pi)).sum(2) - posterior.log_det
        noises, variances = self.sem.noises(z, self.edges), 2 * self.noise_scales.log()
        log_prior = log_normal(noises, 0.0, variances).sum(-1)
        misfit = in_batches(self.misfit, z.flatten(0, 1), x.repeat(samples, 1, 1, 1))
        constant = 0.5 * math.prod(self.spec.image_shape) * math.log(math.pi)
        return log_prior - log_posterior - misfit.unflatten(0, (samples, len(x))) - constant
