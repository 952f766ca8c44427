"""MCQ-VAE (Gendron et al. 2023, 3.3): a picture as a grid of code numbers from several codebooks; with one codebook it is the VQ-VAE (van den Oord et
al. 2017).

Shapes: B images; the encoder makes a grid (H, W) of D features, one place for each patch (8 x 8 places of a 64 x 64 picture), each cut in K parts of
d = D / K dims, one for each codebook of S codes. The latents are the n = K H W code vectors (B, n, d). Reduction: sum over pixels and latents, mean
over the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.data.base import Batch, Dataset, Split
from intervae.errors import UsageError
from intervae.models.base import Model, in_batches
from intervae.models.phases import Phase, Player, Schedule, Terms
from intervae.models.views import AS_IT_IS, View
from intervae.nets.likelihood import Likelihood, negative_log_likelihood
from intervae.nets.quantise import Quantised, Quantiser, usage
from intervae.settings import at_least

SLOPE = 0.01  # of the leaky units below zero
REACH = {"local": (1, 1), "near": (3, 1), "wide": (3, 3)}  # sizes of the encoder's first convolution and of those in its blocks
CODES_BATCH = 256  # images whose codes are found at once


@dataclass(frozen=True)
class MCQVAESettings:
    """Settings of the quantised autoencoder."""

    codebooks: int = 4  # parts that a feature vector is cut in, with a codebook each [K]
    codes: int = 64  # in each codebook [S]
    features: int = 128  # dims of a feature vector, shared out among the codebooks [D]
    patch: int = 8  # pixels, across and down, that a place of the grid stands for
    filters: int = 256  # channels of the networks between patches and codes
    blocks: int = 2  # residual blocks in the encoder and in the decoder
    reach: Literal["local", "near", "wide"] = "local"  # what a code sees: its patch alone, the patches next to it too, or far around (the authors')
    commitment: float = 0.25  # weight of the distance between features and codes, in units of the squared pixel error [beta]
    code_decay: float = 0.99  # of the moving averages that the codes are
    restart: float = 0.1  # a code used less than this share of equal use, or in one spot with another, starts anew; 0 never restarts one
    likelihood: Likelihood = "bernoulli"  # of the pixels; under the others a decoder that has painted all white (Cars3D) does not learn on
    scale: float = 0.1  # of a gaussian or laplace likelihood
    epochs: int = 20
    batch_size: int = 64
    learning_rate: float = 3e-3  # of encoder and decoder; they are slow to learn detail with less
    schedule: Schedule = "cosine"
    decay: float = 1.0  # of the learning rate after every epoch, with schedule=exponential
    clip: float | None = 10.0  # largest norm of a gradient: one odd batch must not throw the networks off; None takes every step whole

    def __post_init__(self) -> None:
        at_least(self, codebooks=1, codes=2, features=1, patch=1, filters=1, blocks=0, commitment=0, restart=0)
        if self.codes > 2**15:
            raise UsageError(f"codes={self.codes}: their numbers are kept in 16 bits; use 32768 at most.")
        if self.features % self.codebooks:
            raise UsageError(f"features={self.features} cannot be shared out among {self.codebooks} codebooks; use a multiple of codebooks.")
        if self.scale <= 0 or (self.clip is not None and self.clip <= 0):
            raise UsageError(f"scale={self.scale} and clip={self.clip} must be larger than 0.")
        if not 0 <= self.code_decay < 1:
            raise UsageError(f"code_decay={self.code_decay} must be at least 0 and below 1.")


@dataclass(frozen=True)
class VQVAESettings(MCQVAESettings):
    """Settings of the VQ-VAE: one codebook."""

    codebooks: int = 1  # the VQ-VAE has one [K]
    codes: int = 512  # in the codebook [S]


class ResidualBlock(nn.Module):
    """x + Conv1x1(leaky(Conv(leaky(x)))), the first convolution of size 3 x 3, or 1 x 1."""

    def __init__(self, channels: int, size: int = 3) -> None:
        super().__init__()
        self.spread, self.mix = nn.Conv2d(channels, channels, size, padding=size // 2), nn.Conv2d(channels, channels, 1)

    def forward(self, maps: Tensor) -> Tensor:
        return maps + self.mix(leaky(self.spread(leaky(maps))))


def leaky(maps: Tensor) -> Tensor:
    return functional.leaky_relu(maps, SLOPE)


class GridEncoder(nn.Module):
    """Images (B, C, H, W) in [0, 1], cut in patches, to a grid of features (B, outputs, rows, columns).

    Arguments:
        reach: `local`: a code tells of its own patch, and stays as it is when something changes elsewhere; `near`: of the patches around it
            too, by a first convolution of 3 x 3; `wide`: all convolutions are 3 x 3.
    """

    def __init__(self, image_shape: tuple[int, int, int], outputs: int, patch: int, filters: int, blocks: int, reach: str) -> None:
        super().__init__()
        colours, height, width = image_shape
        self.border = (0, -width % patch, 0, -height % patch)  # to the right and below, by repeating the last pixels
        first, size = REACH[reach]
        self.layers = nn.Sequential(
            nn.PixelUnshuffle(patch),
            nn.Conv2d(colours * patch**2, filters, first, padding=first // 2),
            *(ResidualBlock(filters, size) for _ in range(blocks)),
            nn.LeakyReLU(SLOPE),
            nn.Conv2d(filters, outputs, 1),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(functional.pad(images * 2 - 1, self.border, mode="replicate"))


class GridDecoder(nn.Module):
    """Features (B, inputs, rows, columns) to patches that know of their neighbours: logits or means (B, C, H, W), cropped to the image."""

    def __init__(self, inputs: int, image_shape: tuple[int, int, int], patch: int, filters: int, blocks: int) -> None:
        super().__init__()
        colours, self.height, self.width = image_shape
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, filters, 3, padding=1),
            *(ResidualBlock(filters) for _ in range(blocks)),
            nn.LeakyReLU(SLOPE),
            nn.Conv2d(filters, colours * patch**2, 3, padding=1),
            nn.PixelShuffle(patch),
        )

    def forward(self, grid: Tensor) -> Tensor:
        return self.layers(grid)[..., : self.height, : self.width]


class MCQVAE(Model):
    """MCQ-VAE: reconstruction through codebooks; the encoder is drawn to its codes, the codes follow the features as moving averages.

    Arguments:
        spec: `data.spec`; labels are not used.
        settings: see `MCQVAESettings`.
    """

    name = "mcq-vae"
    title = "MCQ-VAE (Gendron et al. 2023): pictures as grids of codes from several codebooks"
    Settings: ClassVar[type] = MCQVAESettings
    latents_are_variables = False
    settings: Any
    marginals: Tensor

    def build(self) -> None:
        settings, shape = self.settings, self.spec.image_shape
        networks = (settings.patch, settings.filters, settings.blocks)
        if settings.patch > min(shape[1:]):
            raise UsageError(f"patch={settings.patch} is larger than the pictures of {shape[1]} x {shape[2]} pixels; use a smaller one.")
        self.grid = -(-shape[1] // settings.patch), -(-shape[2] // settings.patch)
        self.encoder = GridEncoder(shape, settings.features, *networks, settings.reach)
        self.decoder = GridDecoder(settings.features, shape, *networks)
        dims = settings.features // settings.codebooks
        self.quantiser = Quantiser(settings.codebooks, settings.codes, dims, decay=settings.code_decay, restart=settings.restart)
        self.register_buffer("marginals", torch.full((self.places, settings.codes), 1 / settings.codes))  # how often a place has a code, (n, S)

    @property
    def places(self) -> int:
        """The number n of code places of a picture."""
        return self.settings.codebooks * math.prod(self.grid)

    # ---- the model --------------------------------------------------------------------------------------------------
    def quantise(self, images: Tensor, generator: torch.Generator | None = None) -> Quantised:
        return self.quantiser(self.encoder(images), generator)

    def draw_codes(self, indices: Tensor) -> Tensor:
        """Code numbers (B, n) to pictures (B, C, H, W) in [0, 1]."""
        return torch.sigmoid(self.paint(self.quantiser.lookup(indices)))

    def paint(self, vectors: Tensor) -> Tensor:
        """Vectors (B, n, d) to logits of pictures (B, C, H, W)."""
        return self.decoder(self.quantiser.to_map(vectors, *self.grid))

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-log p(x | codes) + beta |features - codes|^2; the codes themselves move in `update_codes`."""
        settings, found = self.settings, self.quantise(batch["images"], generator)
        reconstruction = negative_log_likelihood(self.decoder(found.features), batch["images"], settings.likelihood, settings.scale).mean()
        commitment = found.commitment.mean()
        weight = settings.commitment / (2 * settings.scale**2 if settings.likelihood == "gaussian" else 1.0)
        return {"loss": reconstruction + weight * commitment, "reconstruction": reconstruction, "commitment": commitment}

    def phases(self) -> list[Phase]:
        """The pictures; then how often each place has which code, over the training split."""
        return [self.codebook_phase(), Phase("marginals", prepare=self.measure_marginals)]

    def codebook_phase(self) -> Phase:
        settings = self.settings
        return Phase(
            "codebooks",
            (Player(self.loss, ("encoder.", "decoder."), learning_rate=settings.learning_rate, clip=settings.clip),),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            schedule=settings.schedule,
            decay=settings.decay,
            after_step=self.quantiser.update,
            keep_best=True,
        )

    def state_to_log(self) -> dict[str, Any]:
        """Moving averages of how well the codebooks are used."""
        _, perplexity = usage(self.quantiser.uses)
        return {"code_perplexity": [round(value, 3) for value in perplexity.tolist()]}

    @torch.no_grad()
    def split_codes(self, split: Split, view: View = AS_IT_IS) -> Tensor:
        """The code numbers of all pictures of a split, (N, n) int16, as they are or seen otherwise, on its device; encoded batch after batch."""
        found = []
        for part in torch.arange(len(split), device=split.device).split(CODES_BATCH):
            found.append(self.quantiser.indices(self.encoder(view.see(split.batch(part)["images"]))).to(torch.int16))
        return torch.cat(found)

    @torch.no_grad()
    def measure_marginals(self, data: Dataset, seed: int) -> None:
        """Count how often each place has which code, after doubles among the codes have given way."""
        self.quantiser.merge()
        codes = self.split_codes(data.train).long()
        counts = torch.zeros_like(self.marginals).scatter_add_(1, codes.T.contiguous(), torch.ones_like(codes.T, dtype=torch.float32).contiguous())
        self.marginals.copy_(counts / len(codes))

    def states_prepared(self) -> list[dict[str, Any]]:
        used, perplexity = self.code_usage()
        return [{"code_usage": used.tolist(), "code_perplexity": [round(value, 3) for value in perplexity.tolist()]}]

    def code_usage(self) -> tuple[Tensor, Tensor]:
        """Of each codebook on the training split: the share of its codes that occur (K,), and their perplexity (K,)."""
        return usage(self.marginals.unflatten(0, (self.settings.codebooks, -1)).sum(1))

    # ---- queries ----------------------------------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        rows, columns = self.grid
        return tuple(f"code{k}_{i}_{j}" for k in range(self.settings.codebooks) for i in range(rows) for j in range(columns))

    @torch.no_grad()
    def codes(self, images: Any) -> Tensor:
        """Images (B, C, H, W) to the numbers of their codes (B, n)."""
        return in_batches(lambda part: self.quantiser.indices(self.encoder(part)), self.as_images(images))

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to their code vectors (B, n, d)."""
        return self.quantiser.lookup(self.codes(images))

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Vectors (B, n, d) to pictures, each vector taken for the code next to it."""
        return in_batches(lambda part: self.draw_codes(self.quantiser.nearest(part)), self.as_latents(latents))

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """`n` pictures (n, C, H, W), every place with a code drawn by how often it has it in training, independently of the other places.

        Nothing is learned of how the places go together, so these pictures show what the codes are, not what the data look like.
        """
        self.refuse_do(do)
        generator = self.sampling_generator(n, seed)
        drawn = torch.rand(n, self.places, generator=generator)
        steps = self.marginals.cpu().double().cumsum(1)
        indices = torch.searchsorted((steps / steps[:, -1:]).contiguous(), drawn.T.double().contiguous(), right=True).T
        return in_batches(self.draw_codes, indices.clamp(max=self.settings.codes - 1).to(self.device))


class VQVAE(MCQVAE):
    """VQ-VAE: the MCQ-VAE with one codebook.

    Arguments:
        spec: `data.spec`; labels are not used.
        settings: see `VQVAESettings`.
    """

    name = "vq-vae"
    title = "VQ-VAE (van den Oord et al. 2017): pictures as grids of codes from one codebook"
    Settings: ClassVar[type] = VQVAESettings

    def build(self) -> None:
        if self.settings.codebooks != 1:
            raise UsageError(f"codebooks={self.settings.codebooks}: vq-vae has one; use mcq-vae for more.")
        super().build()
