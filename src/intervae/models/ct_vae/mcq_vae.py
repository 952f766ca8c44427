"""MCQ-VAE (Gendron et al. 2023, 3.3): images as grids of code numbers from several codebooks; with
one codebook it is the VQ-VAE (van den Oord et al. 2017).

Shapes: B images; the encoder gives a grid (H, W) of D features, one position per patch (8 x 8
positions of a 64 x 64 image). The features are split into K parts of d = D / K dims, one for each
codebook of S codes. The latents are the n = K H W code vectors (B, n, d). Reduction: sum over
pixels and latents, mean over the batch.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from intervae.data import Batch, Dataset, Split
from intervae.errors import UsageError
from intervae.models.base import Model
from intervae.models.batches import in_batches
from intervae.models.ct_vae.augmentations import IDENTITY, Augmentation
from intervae.models.ct_vae.networks import (
    GridDecoder,
    GridEncoder,
    StridedDecoder,
    StridedEncoder,
)
from intervae.models.ct_vae.presets import MCQ_VAE, VQ_VAE
from intervae.models.ct_vae.settings import MCQVAESettings, VQVAESettings
from intervae.models.phases import Phase, Player, Terms
from intervae.nets.likelihood import negative_log_likelihood
from intervae.nets.quantise import Quantised, Quantiser, usage

CODES_BATCH = 256  # images encoded at once


class MCQVAE(Model):
    """MCQ-VAE: reconstruction through codebooks, whose codes are moving averages of the features.

    Arguments:
        spec: `data.spec`; labels are not used.
        settings: see `MCQVAESettings`.
    """

    name = "mcq-vae"
    title = "MCQ-VAE (Gendron et al. 2023): images as grids of codes from several codebooks"
    Settings: ClassVar[type] = MCQVAESettings
    presets = MCQ_VAE
    latents_are_variables = False
    settings: Any
    marginals: Tensor

    def build(self) -> None:
        settings, shape = self.settings, self.spec.image_shape
        if settings.patch > min(shape[1:]):
            raise UsageError(
                f"patch={settings.patch} is larger than the images of {shape[1]} x {shape[2]} "
                "pixels; use a smaller one."
            )
        self.grid = -(-shape[1] // settings.patch), -(-shape[2] // settings.patch)
        sizes = (settings.patch, settings.filters, settings.blocks)
        if settings.network == "strided":
            self.encoder: nn.Module = StridedEncoder(shape, settings.features, *sizes)
            self.decoder: nn.Module = StridedDecoder(settings.features, shape, *sizes)
        else:
            self.encoder = GridEncoder(shape, settings.features, *sizes, settings.reach)
            self.decoder = GridDecoder(settings.features, shape, *sizes)
        self.quantiser = Quantiser(
            settings.codebooks,
            settings.codes,
            settings.features // settings.codebooks,
            decay=settings.code_decay,
            restart=settings.restart,
            learned=settings.code_update == "gradient",
        )
        uniform = torch.full((self.positions, settings.codes), 1 / settings.codes)
        self.register_buffer("marginals", uniform)  # (n, S) frequency of each code at a position

    @property
    def positions(self) -> int:
        """Number n of code positions of an image."""
        return self.settings.codebooks * math.prod(self.grid)

    # ---- training --------------------------------------------------------------------------------
    def quantise(self, images: Tensor, generator: torch.Generator | None = None) -> Quantised:
        return self.quantiser(self.encoder(images), generator)

    def decode_vectors(self, vectors: Tensor) -> Tensor:
        """Return pixel logits (B, C, H, W) of code vectors (B, n, d), which need not be codes."""
        return self.decoder(self.quantiser.to_map(vectors, *self.grid))

    def decode_codes(self, codes: Tensor) -> Tensor:
        """Return images (B, C, H, W) in [0, 1] of code numbers (B, n)."""
        return torch.sigmoid(self.decode_vectors(self.quantiser.lookup(codes)))

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-log p(x | codes) + beta |features - codes|^2; `Quantiser.update` moves the codes.

        With code_update=gradient the codes follow |sg[features] - codes|^2 instead.
        """
        settings, quantised = self.settings, self.quantise(batch["images"], generator)
        reconstruction = negative_log_likelihood(
            self.decoder(quantised.features), batch["images"], settings.likelihood, settings.scale
        ).mean()
        commitment = quantised.commitment.mean()
        unit = 2 * settings.scale**2 if settings.likelihood == "gaussian" else 1.0
        return {
            "loss": reconstruction
            + (settings.commitment * commitment + quantised.codebook.mean()) / unit,
            "reconstruction": reconstruction,
            "commitment": commitment,
        }

    def phases(self) -> list[Phase]:
        """Codebooks, then the code frequencies at each position over the training split."""
        return [self.codebook_phase(), Phase("marginals", prepare=self.measure_marginals)]

    def codebook_phase(self) -> Phase:
        settings = self.settings
        player = Player(
            self.loss,
            ("encoder.", "decoder.", "quantiser."),
            learning_rate=settings.learning_rate,
            clip=settings.clip,
        )
        return Phase(
            "codebooks",
            (player,),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            schedule=settings.schedule,
            decay=settings.decay,
            after_step=self.quantiser.update,
            keep_best=True,
        )

    def state_to_log(self) -> dict[str, Any]:
        """Return the perplexity of each codebook, by moving averages."""
        _, perplexity = usage(self.quantiser.uses)
        return {"code_perplexity": [round(value, 3) for value in perplexity.tolist()]}

    @torch.no_grad()
    def split_codes(self, split: Split, augmentation: Augmentation = IDENTITY) -> Tensor:
        """Return the code numbers (N, n) int16 of a split's images, on its device."""
        codes = []
        for rows in torch.arange(len(split), device=split.device).split(CODES_BATCH):
            images = augmentation.apply(split.batch(rows)["images"])
            codes.append(self.quantiser.indices(self.encoder(images)).to(torch.int16))
        return torch.cat(codes)

    @torch.no_grad()
    def measure_marginals(self, data: Dataset, seed: int) -> None:
        """Merge duplicate codes, then count how often each position has each code."""
        if not self.quantiser.learned:
            self.quantiser.merge()
        codes = self.split_codes(data.train).long().T.contiguous()  # (n, N)
        ones = torch.ones_like(codes, dtype=torch.float32)
        counts = torch.zeros_like(self.marginals).scatter_add_(1, codes, ones)
        self.marginals.copy_(counts / codes.shape[1])

    def logged_states(self) -> list[dict[str, Any]]:
        used, perplexity = self.code_usage()
        rounded = [round(value, 3) for value in perplexity.tolist()]
        return [{"code_usage": used.tolist(), "code_perplexity": rounded}]

    def code_usage(self) -> tuple[Tensor, Tensor]:
        """Return fraction of used codes (K,) and perplexity (K,) on the training split."""
        return usage(self.marginals.unflatten(0, (self.settings.codebooks, -1)).sum(1))

    # ---- queries ---------------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        rows, columns = self.grid
        return tuple(
            f"code{k}_{i}_{j}"
            for k in range(self.settings.codebooks)
            for i in range(rows)
            for j in range(columns)
        )

    @torch.no_grad()
    def codes(self, images: Any) -> Tensor:
        """Return the code numbers (B, n) of images (B, C, H, W)."""
        return in_batches(
            lambda chunk: self.quantiser.indices(self.encoder(chunk)), self.as_images(images)
        )

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Return the code vectors (B, n, d) of images (B, C, H, W)."""
        return self.quantiser.lookup(self.codes(images))

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Return images (B, C, H, W) of vectors (B, n, d), each replaced by its nearest code."""
        return in_batches(
            lambda chunk: self.decode_codes(self.quantiser.nearest(chunk)),
            self.as_latents(latents),
        )

    @torch.no_grad()
    def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> Tensor:
        """Return `n` images (n, C, H, W) with codes drawn independently at each position.

        The model has no prior over whole grids: samples show the codes, not the data.
        """
        self.check_no_do(do)
        generator = self.sampling_generator(n, seed)
        uniform = torch.rand(n, self.positions, generator=generator)
        cumulative = self.marginals.cpu().double().cumsum(1)
        codes = torch.searchsorted(
            (cumulative / cumulative[:, -1:]).contiguous(),
            uniform.T.double().contiguous(),
            right=True,
        ).T
        codes = codes.clamp(max=self.settings.codes - 1)
        return in_batches(self.decode_codes, codes.to(self.device))


class VQVAE(MCQVAE):
    """VQ-VAE: the MCQ-VAE with one codebook.

    Arguments:
        spec: `data.spec`; labels are not used.
        settings: see `VQVAESettings`.
    """

    name = "vq-vae"
    title = "VQ-VAE (van den Oord et al. 2017): images as grids of codes from one codebook"
    Settings: ClassVar[type] = VQVAESettings
    presets = VQ_VAE

    def build(self) -> None:
        if self.settings.codebooks != 1:
            raise UsageError(
                f"codebooks={self.settings.codebooks}: vq-vae has one; use mcq-vae for more."
            )
        super().build()
