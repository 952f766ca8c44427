"""Ladder VAE (Sønderby et al. 2016): a hierarchy of Gaussian layers whose inference merges bottom-up evidence with the top-down prior.

z_1 is the layer at the picture, z_L the top. Generative model: p(z_L) = N(0, I), p(z_i | z_{i+1}) = N(mu_p,i, s2_p,i), p(x | z_1).
With `inference="bottom-up"` the same networks are the hierarchical VAE that the paper compares with: q(z_1 | x), q(z_i | z_{i-1}).
Reduction: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.gaussian import log_normal
from intervae.data.base import Batch, Dataset
from intervae.errors import UsageError
from intervae.models.base import Model, in_batches
from intervae.models.phases import Phase, Player, Schedule, Terms
from intervae.nets.images import build_decoder, build_encoder
from intervae.nets.latents import draw_samples
from intervae.nets.likelihood import Likelihood, negative_log_likelihood
from intervae.nets.norm import BatchNorm, measure_statistics, update_statistics
from intervae.settings import at_least

SMALLEST_VARIANCE = 1e-5
STATISTICS_BATCH = 1024


@dataclass(frozen=True)
class LadderVAESettings:
    """Settings of the ladder; sizes are listed from the picture upwards."""

    latents: tuple[int, ...] = (64, 32, 16, 8, 4)  # units of each layer
    widths: tuple[int, ...] = (512, 256, 128, 64, 32)  # hidden units of each layer's networks
    inference: Literal["ladder", "bottom-up"] = "ladder"  # bottom-up is the hierarchical VAE
    batch_norm: bool = True  # whether every layer is normalised over the batch
    warm_up: int = 200  # epochs over which the weight of the KL rises from 0 to 1; 0 for none [N_t]
    share: bool = True  # whether q merges with the generative p itself, or with top-down networks of its own
    upward: Literal["hidden", "mean"] = "hidden"  # what the upward pass hands on: hidden units (Eq. 19), or means (authors' commands)
    network: Literal["mlp", "conv"] = "mlp"  # of the pass between picture and z_1
    channels: tuple[int, ...] = (32, 32, 64, 64)  # of the convolutions
    binarise: bool = False  # draw every pixel as 0 or 1 with its grey value's probability, anew for every step
    likelihood: Likelihood = "bernoulli"
    scale: float = 0.1  # of a gaussian or laplace likelihood; "gaussian" with scale=0 learns a variance for every pixel
    activation: Literal["leaky", "tanh"] = "leaky"  # of the hidden units
    importance_samples: int = 1  # inside the logarithm of the bound that is trained [IW]
    monte_carlo_samples: int = 1  # outside of it [MC]
    epochs: int = 600
    batch_size: int = 256
    learning_rate: float = 1e-3
    schedule: Schedule = "cosine"
    decay: float = 1.0  # of the learning rate after every epoch, with schedule=exponential
    clip: float | None = None  # largest norm of the gradient

    def __post_init__(self) -> None:
        if not self.latents or min(self.latents) < 1 or len(self.widths) < len(self.latents) or min(self.widths) < 1:
            raise UsageError(f"latents={self.latents} and widths={self.widths}: give one size above 0 for each layer, in both.")
        at_least(self, warm_up=0, importance_samples=1, monte_carlo_samples=1)
        if self.scale < 0 or (self.scale == 0 and self.likelihood != "gaussian"):
            raise UsageError(f"scale={self.scale} must be larger than 0; 0 learns the variances of a gaussian likelihood.")


class Layer(NamedTuple):
    """What inference knows of one layer: a draw (B, d), and mean and variance of its posterior and its prior, each (B, d)."""

    z: Tensor
    mean: Tensor
    variance: Tensor
    prior_mean: Tensor
    prior_variance: Tensor

    @property
    def kl(self) -> Tensor:
        """KL(q || p) of every unit, (B, d), given the layer above (below, for bottom-up inference) as it was drawn."""
        distance = self.mean - self.prior_mean
        narrowing = self.variance / self.prior_variance
        return 0.5 * (distance.square() / self.prior_variance + narrowing - narrowing.log() - 1)

    @property
    def log_ratio(self) -> Tensor:
        """log p(z) - log q(z) of every unit at its draw, (B, d)."""
        prior = log_normal(self.z, self.prior_mean, self.prior_variance.log())
        return prior - log_normal(self.z, self.mean, self.variance.log())


def merge(mean: Tensor, variance: Tensor, prior_mean: Tensor, prior_variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the normalised product of two Gaussians, in which each counts by its precision:

    s2_q = 1 / (1 / s2 + 1 / s2_p),  mu_q = s2_q (mu / s2 + mu_p / s2_p); written with the share of the prior, s2 / (s2 + s2_p).
    """
    share = variance / (variance + prior_variance)
    return torch.lerp(mean, prior_mean, share), share * prior_variance


class Dense(nn.Sequential):
    """Linear, then batch norm where asked (which makes the bias idle), then the activation where there is one."""

    def __init__(self, inputs: int, outputs: int, norm: bool, activation: nn.Module | None = None) -> None:
        linear = nn.Linear(inputs, outputs, bias=not norm)
        nn.init.xavier_normal_(linear.weight)
        if not norm:
            nn.init.zeros_(linear.bias)
        super().__init__(*[part for part in (linear, BatchNorm(outputs) if norm else None, activation) if part is not None])


class Gaussian(nn.Module):
    """(B, inputs) to hidden units d = MLP (two layers), and from them mean and softplus variance (B, outputs)."""

    def __init__(self, body: nn.Module, hidden: int, outputs: int, norm: bool) -> None:
        super().__init__()
        self.body, self.head = body, Dense(hidden, 2 * outputs, norm)
        last: Any = self.head[-1]
        with torch.no_grad():
            (last.shift if norm else last.bias)[outputs:] = 1.0  # variances start at softplus(1)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.body(inputs)
        mean, spread = self.head(hidden).chunk(2, dim=-1)
        return hidden, mean, functional.softplus(spread) + SMALLEST_VARIANCE


class LadderVAE(Model):
    """Ladder VAE; see `LadderVAESettings`. Latents are all layers' units from the picture upwards, called z1_0, z1_1, ..., z2_0, ..."""

    name = "ladder-vae"
    title = "Ladder VAE (Sønderby et al. 2016): deep Gaussian layers, precision-weighted inference, warm-up, batch norm"
    Settings = LadderVAESettings
    settings: LadderVAESettings
    warm_up_steps: Tensor

    def build(self) -> None:
        settings, sizes, widths = self.settings, self.settings.latents, self.settings.widths
        ladder, norm = settings.inference == "ladder", settings.batch_norm
        handed = [widths, sizes][settings.upward == "mean" or not ladder]  # what layer i - 1 hands up to layer i
        first = self._from_picture(widths[0])
        bodies = [first, *(self._mlp(low, width) for low, width in zip(handed, widths[1 : len(sizes)], strict=False))]
        self.up = nn.ModuleList(Gaussian(body, width, size, norm) for body, width, size in zip(bodies, widths, sizes, strict=False))
        self.down = self._downward()
        self.down_inference = None if settings.share or not ladder else self._downward()
        self.decoder = self._to_picture(sizes[0], widths[0])
        self.register_buffer("warm_up_steps", torch.zeros(()))

    def _downward(self) -> nn.ModuleList:
        """Networks from z_{i+1} to z_i; the one at index 0 ends at z_1."""
        settings = self.settings
        pairs = zip(pairwise(settings.latents), settings.widths[1:], strict=False)
        return nn.ModuleList(Gaussian(self._mlp(high, width), width, low, settings.batch_norm) for (low, high), width in pairs)

    def _mlp(self, inputs: int, width: int) -> nn.Sequential:
        return nn.Sequential(*(Dense(size, width, self.settings.batch_norm, self._activation()) for size in (inputs, width)))

    def _activation(self) -> nn.Module:
        return nn.Tanh() if self.settings.activation == "tanh" else nn.LeakyReLU(0.1)

    def _from_picture(self, width: int) -> nn.Module:
        settings = self.settings
        if settings.network == "conv":
            return nn.Sequential(build_encoder("conv", self.spec.image_shape, width, settings.channels, width), self._activation())
        return nn.Sequential(nn.Flatten(), *self._mlp(math.prod(self.spec.image_shape), width))

    def _to_picture(self, latents: int, width: int) -> nn.Module:
        channels, height, width_in_pixels = self.spec.image_shape
        shape = (2 * channels if self.settings.scale == 0 else channels, height, width_in_pixels)
        if self.settings.network == "conv":
            return build_decoder("conv", latents, shape, self.settings.channels, width)
        return nn.Sequential(*self._mlp(latents, width), Dense(width, math.prod(shape), norm=False), nn.Unflatten(1, shape))

    # ---- the model --------------------------------------------------------------------------------------------------
    def infer(self, images: Tensor, noise: Sequence[Tensor] | None) -> list[Layer]:
        """Every layer given images (B, C, H, W), from z_1 up; `noise` has (S B, d_i) for each, S draws for every image one after another
        through the batch, or is None for the posterior means."""
        return self._ladder(images, noise) if self.settings.inference == "ladder" else self._bottom_up(images, noise)

    def _ladder(self, images: Tensor, noise: Sequence[Tensor] | None) -> list[Layer]:
        """Up: mu^_i, s2^_i from the picture. Down: q(z_i) merges them with p(z_i | z_{i+1})."""
        handed, evidence = images, []
        for gaussian in self.up:
            hidden, mean, variance = gaussian(handed)
            handed = hidden if self.settings.upward == "hidden" else mean
            evidence.append((_copies(mean, noise), _copies(variance, noise)))
        layers: list[Layer] = []
        for i in reversed(range(len(evidence))):
            mean, variance = evidence[i]
            if not layers:
                prior = torch.zeros_like(mean), torch.ones_like(variance)
            else:
                prior = self.down[i](layers[0].z)[1:]
                top_down = prior if self.down_inference is None else self.down_inference[i](layers[0].z)[1:]
                mean, variance = merge(mean, variance, *top_down)
            layers.insert(0, Layer(_draw(mean, variance, noise, i), mean, variance, *prior))
        return layers

    def _bottom_up(self, images: Tensor, noise: Sequence[Tensor] | None) -> list[Layer]:
        """q(z_1 | x), q(z_2 | z_1), ...; the prior of each layer is what the draw above it says."""
        handed, drawn = images, []
        for i, gaussian in enumerate(self.up):
            _, mean, variance = gaussian(handed)
            if i == 0:
                mean, variance = _copies(mean, noise), _copies(variance, noise)
            handed = _draw(mean, variance, noise, i)
            drawn.append((handed, mean, variance))
        top = drawn[-1][0]
        priors = [down(above[0])[1:] for down, above in zip(self.down, drawn[1:], strict=True)]
        return [Layer(*q, *prior) for q, prior in zip(drawn, [*priors, (torch.zeros_like(top), torch.ones_like(top))], strict=True)]

    def misfit(self, z: Tensor, images: Tensor) -> Tensor:
        """-log p(x | z_1), (B,)."""
        output = self.decoder(z)
        if self.settings.scale:
            return negative_log_likelihood(output, images, self.settings.likelihood, self.settings.scale)
        mean, spread = output.chunk(2, dim=1)
        variance = functional.softplus(spread) + SMALLEST_VARIANCE
        return -log_normal(images, torch.sigmoid(mean), variance.log()).flatten(1).sum(1)

    def unit_kls(self, layers: list[Layer]) -> list[Tensor]:
        """What every unit of each layer costs, (B, d): KL(q || p) in closed form, or where that is no bound, at the draw.

        Bottom-up, z_{i+1} was drawn from z_i, so p(z_i | z_{i+1}) belongs to that very draw of z_i, and only the top layer has a closed form.
        """
        exact = [self.settings.inference == "ladder" or layer is layers[-1] for layer in layers]
        return [layer.kl if fits else -layer.log_ratio for layer, fits in zip(layers, exact, strict=True)]

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-log p(x | z_1) + beta_t sum_i KL_i, beta_t rising linearly to 1; with importance samples, the bound log mean_k w_k instead."""
        settings, images = self.settings, batch["images"]
        if settings.binarise:
            images = (torch.rand(images.shape, device=images.device, generator=generator) < images).to(images.dtype)
        inside, draws = settings.importance_samples, settings.importance_samples * settings.monte_carlo_samples
        noise = torch.randn(draws * len(images), sum(settings.latents), device=images.device, generator=generator)
        layers = self.infer(images, noise.split(list(settings.latents), dim=1))
        misfit = self.misfit(layers[0].z, images.repeat(draws, 1, 1, 1))
        kls = torch.stack([kl.sum() for kl in self.unit_kls(layers)]) / len(noise)
        beta = (batch["step"] / self.warm_up_steps.clamp(min=1.0)).clamp(max=1.0) if settings.warm_up else 1.0
        terms = {"reconstruction": misfit.mean(), "kl": kls.sum()}
        if inside == 1:
            loss = terms["reconstruction"] + beta * terms["kl"]
        else:
            ratio = torch.stack([layer.log_ratio.sum(1) for layer in layers]).sum(0)
            log_weights = (beta * ratio - misfit).unflatten(0, (inside, -1))
            loss = math.log(inside) - log_weights.logsumexp(0).mean()
        return {"loss": loss, **terms, **{f"kl_z{i + 1}": kls[i] for i in range(len(layers))}}

    # ---- training ---------------------------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """The images; then the statistics of batch norm once more, over the whole training split."""
        settings = self.settings
        main = Phase(
            "images",
            (Player(self.loss, learning_rate=settings.learning_rate, clip=settings.clip),),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            schedule=settings.schedule,
            decay=settings.decay,
            prepare=self.set_warm_up,
            after_step=self.update_norms if settings.batch_norm else None,
        )
        return [main, Phase("statistics", prepare=self.measure_norms)] if settings.batch_norm else [main]

    def set_warm_up(self, data: Dataset, seed: int) -> None:
        """Turn epochs of warm-up into steps."""
        self.warm_up_steps.fill_(self.settings.warm_up * (len(data.train) // self.settings.batch_size))

    def update_norms(self) -> None:
        update_statistics(self)

    def measure_norms(self, data: Dataset, seed: int) -> None:
        split = data.train
        size = min(STATISTICS_BATCH, len(split))
        generator = torch.Generator(split.device).manual_seed(seed)
        rows = torch.arange(len(split) // size * size, device=split.device).split(size)
        measure_statistics(self, lambda batch: self.loss(batch, generator), ({**split.batch(r), "step": torch.zeros(())} for r in rows))

    # ---- queries ----------------------------------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"z{i + 1}_{j}" for i, size in enumerate(self.settings.latents) for j in range(size))

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to the posterior means of all layers (B, n, 1), each given the means of the layers it depends on."""

        def means(part: Tensor) -> Tensor:
            return torch.cat([layer.mean for layer in self.infer(part, None)], dim=1)[..., None]

        return in_batches(means, self.as_images(images))

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Latents (B, n, 1) to pictures: only z_1, next to the picture, is drawn; the layers above it speak through it."""
        first = self.as_latents(latents)[:, : self.settings.latents[0], 0]
        channels = self.spec.image_shape[0]
        return in_batches(lambda part: torch.sigmoid(self.decoder(part)[:, :channels]), first)

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """`n` pictures (n, C, H, W): z_L from N(0, I), then every layer from the one above."""
        self.refuse_do(do)
        generator, sizes = self.sampling_generator(n, seed), self.settings.latents
        noise = [torch.randn(n, size, generator=generator).to(self.device) for size in sizes]
        layers = [noise[-1]]
        for i in reversed(range(len(sizes) - 1)):
            _, mean, variance = self.down[i](layers[0])
            layers.insert(0, _draw(mean, variance, noise, i))
        return self.decode(torch.cat(layers, dim=1)[..., None])

    @torch.no_grad()
    def observed(self, images: Any, seed: int = 0) -> Tensor:
        """The images that the likelihood is about: binarised once, by `seed`, where the model was trained on binary pixels."""
        grey = self.as_images(images)
        if not self.settings.binarise:
            return grey
        return (torch.rand(grey.shape, generator=torch.Generator().manual_seed(seed)).to(grey.device) < grey).float()

    @torch.no_grad()
    def log_weights(self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Likelihood p(x): log p(x | z_1) + sum_i log p(z_i | z_{i+1}) - log q(z_i | ...), (samples, B); see `observed` for binary pixels.

        A generator of the model's own device draws all samples at once, which is faster.
        """
        x, sizes = self.as_images(images), self.settings.latents
        shape = (len(x), sum(sizes))
        noise = draw_samples(shape, samples, generator, x.device)
        layers = self.infer(x, noise.flatten(0, 1).split(list(sizes), dim=1))
        ratio = torch.stack([layer.log_ratio.sum(1) for layer in layers]).sum(0)
        return (ratio - self.misfit(layers[0].z, x.repeat(samples, 1, 1, 1))).unflatten(0, (samples, len(x)))

    @torch.no_grad()
    def unit_kl(self, images: Any, generator: torch.Generator | None = None) -> Tensor:
        """KL(q || p) of every unit in nats (n,), a mean over images with one draw each: a unit below 0.01 is inactive."""
        x = self.as_images(images)
        noise = [torch.randn(len(x), size, generator=generator).to(x.device) for size in self.settings.latents]
        return in_batches(lambda part, *some: torch.cat(self.unit_kls(self.infer(part, some)), dim=1), x, *noise).mean(0)


def _copies(evidence: Tensor, noise: Sequence[Tensor] | None) -> Tensor:
    """What the picture says (B, d), once for every draw: (S B, d)."""
    return evidence if noise is None or len(noise[0]) == len(evidence) else evidence.repeat(len(noise[0]) // len(evidence), 1)


def _draw(mean: Tensor, variance: Tensor, noise: Sequence[Tensor] | None, index: int) -> Tensor:
    return mean if noise is None else mean + variance.sqrt() * noise[index]
