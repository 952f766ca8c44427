"""Ladder VAE (Sønderby et al. 2016): inference merges bottom-up evidence and top-down prior.

z_1 is the layer next to the image, z_L the top. Generative model: p(z_L) = N(0, I),
p(z_i | z_{i+1}) = N(mu_p,i, s2_p,i), p(x | z_1). With `inference="bottom-up"` it is the VAE of
the comparison: q(z_1 | x), q(z_i | z_{i-1}). Reduction: sum over pixels, mean over the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from intervae.causal.gaussian import log_normal
from intervae.data import Batch, Dataset
from intervae.models.base import Model
from intervae.models.batches import in_batches
from intervae.models.ladder_vae.inference import (
    bottom_up_evidence,
    draw_layer,
    infer_bottom_up,
    infer_top_down,
)
from intervae.models.ladder_vae.networks import (
    SMALLEST_VARIANCE,
    LadderLayer,
    build_downward,
    build_image_decoder,
    build_upward,
)
from intervae.models.ladder_vae.presets import LADDER_VAE
from intervae.models.ladder_vae.settings import LadderVAESettings
from intervae.models.phases import Phase, Player, Terms
from intervae.nets.latents import draw_samples
from intervae.nets.likelihood import negative_log_likelihood
from intervae.nets.norm import measure_statistics, update_statistics

STATISTICS_BATCH = 1024


class LadderVAE(Model):
    """Ladder VAE.

    Arguments:
        spec: `data.spec`; labels are not used.
        settings: see `LadderVAESettings`.

    Latents are the units of all layers from the image upwards: z1_0, z1_1, ..., z2_0, ...
    """

    name = "ladder-vae"
    title = (
        "Ladder VAE (Sønderby et al. 2016): deep Gaussian layers, precision-weighted inference, "
        "warm-up, batch norm"
    )
    Settings = LadderVAESettings
    presets = LADDER_VAE
    settings: LadderVAESettings
    likelihood_description = (
        "Likelihood p(x): log p(x | z_1) + sum_i log p(z_i | z_{i+1}) - log q(z_i | ...)"
    )
    warm_up_steps: Tensor

    def build(self) -> None:
        settings = self.settings
        self.up = build_upward(settings, self.spec.image_shape)
        self.down = build_downward(settings)
        separate = settings.inference == "ladder" and not settings.share_generative
        self.down_inference = build_downward(settings) if separate else None
        self.decoder = build_image_decoder(settings, self.spec.image_shape)
        self.register_buffer("warm_up_steps", torch.zeros(()))

    # ---- inference -------------------------------------------------------------------------
    def infer(self, images: Tensor, noise: Sequence[Tensor] | None) -> list[LadderLayer]:
        """Return all layers given images (B, C, H, W), from z_1 up.

        Arguments:
            noise: (S B, d_i) for each layer, S samples per image, one pass over the batch after
                another; None for the posterior means.
        """
        settings = self.settings
        if settings.inference == "bottom-up":
            return infer_bottom_up(self.up, self.down, images, noise)
        evidence = bottom_up_evidence(self.up, images, noise, settings.upward_input)
        return infer_top_down(evidence, self.down, self.down_inference, noise)

    # ---- loss ------------------------------------------------------------------------------
    def reconstruction_loss(self, z: Tensor, images: Tensor) -> Tensor:
        """Return -log p(x | z_1), (B,)."""
        output = self.decoder(z)
        if self.settings.scale:
            return negative_log_likelihood(
                output, images, self.settings.likelihood, self.settings.scale
            )
        mean, spread = output.chunk(2, dim=1)
        variance = functional.softplus(spread) + SMALLEST_VARIANCE
        return -log_normal(images, torch.sigmoid(mean), variance.log()).flatten(1).sum(1)

    def layer_kls(self, layers: list[LadderLayer]) -> list[Tensor]:
        """Return the KL of every unit, (B, d) per layer: closed form, or estimated from the sample.

        In bottom-up inference z_{i+1} was drawn given z_i, so p(z_i | z_{i+1}) belongs to that
        sample of z_i, and only the top layer has a closed form.
        """
        ladder = self.settings.inference == "ladder"
        return [layer.kl if ladder or layer is layers[-1] else -layer.log_ratio for layer in layers]

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return -log p(x | z_1) + beta_t sum_i KL_i, beta_t rising linearly to 1.

        With importance samples the loss is the bound -log mean_k w_k.
        """
        settings = self.settings
        beta: Tensor | float = 1.0
        if settings.warm_up:
            beta = (batch["step"] / self.warm_up_steps.clamp(min=1.0)).clamp(max=1.0)
        samples = settings.importance_samples, settings.monte_carlo_samples
        return self.negative_bound(batch, generator, beta, *samples)

    def fine_tuning_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return the loss of the second phase: no warm-up, its own numbers of samples."""
        inside = self.settings.fine_tuning_importance_samples
        outside = self.settings.fine_tuning_monte_carlo_samples
        return self.negative_bound(batch, generator, 1.0, inside, outside)

    def negative_bound(
        self,
        batch: Batch,
        generator: torch.Generator | None,
        beta: Tensor | float,
        inside: int,
        outside: int,
    ) -> Terms:
        """Return the negative bound of log p(x) and its terms.

        Arguments:
            beta: weight of the KL.
            inside, outside: samples inside and outside the logarithm [IW, MC].
        """
        settings, images = self.settings, batch["images"]
        if settings.binarise:
            uniform = torch.rand(images.shape, device=images.device, generator=generator)
            images = (uniform < images).to(images.dtype)
        samples = inside * outside
        noise = torch.randn(
            samples * len(images), sum(settings.latents), device=images.device, generator=generator
        )
        layers = self.infer(images, noise.split(list(settings.latents), dim=1))
        reconstruction = self.reconstruction_loss(layers[0].z, images.repeat(samples, 1, 1, 1))
        kls = torch.stack([kl.sum() for kl in self.layer_kls(layers)]) / len(noise)
        terms = {"reconstruction": reconstruction.mean(), "kl": kls.sum()}
        if inside == 1:
            loss = terms["reconstruction"] + beta * terms["kl"]
        else:
            log_ratio = torch.stack([layer.log_ratio.sum(1) for layer in layers]).sum(0)
            log_weights = (beta * log_ratio - reconstruction).unflatten(0, (inside, -1))
            loss = math.log(inside) - log_weights.logsumexp(0).mean()
        return {"loss": loss, **terms, **{f"kl_z{i + 1}": kls[i] for i in range(len(layers))}}

    # ---- training --------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """The images, the fine-tuning, then batch norm statistics over the whole training split."""
        settings = self.settings
        optimiser: dict[str, Any] = {"epsilon": settings.epsilon, "clip": settings.clip}
        after_step = self.update_norms if settings.batch_norm else None
        phases = [
            Phase(
                "images",
                (Player(self.loss, learning_rate=settings.learning_rate, **optimiser),),
                epochs=settings.epochs,
                batch_size=settings.batch_size,
                schedule=settings.schedule,
                decay=settings.decay,
                prepare=self.set_warm_up,
                after_step=after_step,
            )
        ]
        if settings.fine_tuning_epochs:
            rate = settings.fine_tuning_rate
            phases.append(
                Phase(
                    "fine-tuning",
                    (Player(self.fine_tuning_loss, learning_rate=rate, **optimiser),),
                    epochs=settings.fine_tuning_epochs,
                    batch_size=settings.batch_size,
                    schedule="exponential",
                    decay=settings.fine_tuning_decay,
                    after_step=after_step,
                )
            )
        if settings.batch_norm:
            phases.append(Phase("statistics", prepare=self.measure_norms))
        return phases

    def set_warm_up(self, data: Dataset, seed: int) -> None:
        """Convert the warm-up from epochs to steps."""
        steps = len(data.train) // self.settings.batch_size
        self.warm_up_steps.fill_(self.settings.warm_up * steps)

    def update_norms(self) -> None:
        update_statistics(self)

    def measure_norms(self, data: Dataset, seed: int) -> None:
        """Replace the running statistics of batch norm by those of the training split."""
        split = data.train
        size = min(STATISTICS_BATCH, len(split))
        generator = torch.Generator(split.device).manual_seed(seed)
        chunks = torch.arange(len(split) // size * size, device=split.device).split(size)
        measure_statistics(
            self,
            lambda batch: self.loss(batch, generator),
            ({**split.batch(rows), "step": torch.zeros(())} for rows in chunks),
        )

    # ---- queries ---------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(
            f"z{i + 1}_{j}" for i, size in enumerate(self.settings.latents) for j in range(size)
        )

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to the posterior means of all layers (B, n, 1).

        The mean of a layer is computed from the means of the layers that it depends on.
        """

        def means(chunk: Tensor) -> Tensor:
            return torch.cat([layer.mean for layer in self.infer(chunk, None)], dim=1)[..., None]

        return in_batches(means, self.as_images(images))

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Latents (B, n, 1) to images (B, C, H, W), which depend on z_1 only."""
        first = self.as_latents(latents)[:, : self.settings.latents[0], 0]
        channels = self.spec.image_shape[0]
        return in_batches(lambda z: torch.sigmoid(self.decoder(z)[:, :channels]), first)

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """Return `n` images (n, C, H, W), layer by layer from the top; `do` must be empty."""
        self.check_no_do(do)
        generator, sizes = self.sampling_generator(n, seed), self.settings.latents
        noise = [torch.randn(n, size, generator=generator).to(self.device) for size in sizes]
        layers = [noise[-1]]
        for i in reversed(range(len(sizes) - 1)):
            _, mean, variance = self.down[i](layers[0])
            layers.insert(0, draw_layer(mean, variance, noise, i))
        return self.decode(torch.cat(layers, dim=1)[..., None])

    @torch.no_grad()
    def observed_images(self, images: Any, seed: int = 0) -> Tensor:
        """Return the images that the likelihood describes, (B, C, H, W).

        With `binarise` every pixel is drawn as 0 or 1 from `seed`.
        """
        grey = self.as_images(images)
        if not self.settings.binarise:
            return grey
        uniform = torch.rand(grey.shape, generator=torch.Generator().manual_seed(seed))
        return (uniform.to(grey.device) < grey).float()

    @torch.no_grad()
    def log_weights(
        self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None
    ) -> Tensor:
        """Return log p(x | z_1) + sum_i log p(z_i | z_{i+1}) - log q(z_i | ...), (samples, B).

        Binary pixels come from `observed_images`. A generator of the model's device draws all
        samples at once, which is faster.
        """
        x, sizes = self.as_images(images), self.settings.latents
        noise = draw_samples((len(x), sum(sizes)), samples, generator, x.device)
        layers = self.infer(x, noise.flatten(0, 1).split(list(sizes), dim=1))
        log_ratio = torch.stack([layer.log_ratio.sum(1) for layer in layers]).sum(0)
        reconstruction = self.reconstruction_loss(layers[0].z, x.repeat(samples, 1, 1, 1))
        return (log_ratio - reconstruction).unflatten(0, (samples, len(x)))

    @torch.no_grad()
    def unit_kl(self, images: Any, generator: torch.Generator | None = None) -> Tensor:
        """Return KL(q || p) of every unit in nats, (n,), averaged over the images."""
        x = self.as_images(images)
        noise = [
            torch.randn(len(x), size, generator=generator).to(x.device)
            for size in self.settings.latents
        ]
        return in_batches(
            lambda chunk, *draws: torch.cat(self.layer_kls(self.infer(chunk, draws)), dim=1),
            x,
            *noise,
        ).mean(0)
