"""Temporal causal-prior VAE (ICLR 2023 submission, sec. 5.2): the prior is a SEM over frames.

Shapes: B clips of T frames, k latents per frame, background codes of length c. The SEM is linear
and runs over `window` frames W (the paper's 3). Its d = W k variables are z1_0 .. z1_{k-1} (first
frame), z2_0, ..., in order of time; edges go forward in time. Longer clips are cut into windows.
Reduction: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.causal.sem import SEM, PrunedGraph, sem_divergence
from intervae.data import Batch, Dataset, Spec
from intervae.errors import DataError, QueryError
from intervae.models.batches import in_batches
from intervae.models.causal import CausalModel
from intervae.models.causal_prior.clips import as_clips, background_images, random_window
from intervae.models.causal_prior.graph_selection import BANK, sparsity_path, temporal_phases
from intervae.models.causal_prior.posterior import gaussian_head
from intervae.models.causal_prior.presets import TEMPORAL
from intervae.models.causal_prior.rollout import roll_out
from intervae.models.causal_prior.settings import TemporalCausalPriorVAESettings
from intervae.models.phases import Phase, Terms
from intervae.nets.images import MLPDecoder, MLPEncoder, build_decoder, build_encoder


class TemporalCausalPriorVAE(CausalModel):
    """Temporal causal-prior VAE; labels are not used.

    Latents (B, n, 1): the variables of the window, then the background code b0, b1, ..., without
    edges. `encode`, `decode` and `sample` treat one window, the first; others clips of any length.
    """

    name = "temporal-causal-prior-vae"
    anonymous_latents = True
    title = (
        "Temporal causal-prior VAE (ICLR 2023 submission): "
        "clips, a linear SEM forward in time as the prior"
    )
    takes_clips = True
    Settings, presets = TemporalCausalPriorVAESettings, TEMPORAL
    settings: TemporalCausalPriorVAESettings
    bank: Tensor
    fixed: Tensor
    is_fixed: Tensor
    alignment: Tensor
    offset: Tensor
    alignment_log_det: Tensor

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        if spec.frames is None:
            raise DataError(f"{self.name} takes clips; for single images use causal-prior-vae.")
        super().__init__(spec, seed=seed, **settings)
        if spec.frames < self.settings.window:
            raise DataError(
                f"{self.name} needs clips of {self.settings.window} frames or more, but these "
                f"clips have {spec.frames}; set window= lower."
            )

    def build(self) -> None:
        settings, k, shape = self.settings, self.settings.latents, self.spec.image_shape
        time = torch.arange(settings.window).repeat_interleave(k)
        allowed = (time[:, None] < time[None, :]).float()
        masks, intercepts = settings.selection == "gumbel", settings.intercepts
        self.sem = SEM(allowed, form="linear", learn_edges=masks, intercepts=intercepts)
        self.frame_encoder = self._encoder(k + k * (k + 1) // 2)
        self.background_encoder = self._encoder(settings.background_size)
        inputs, mlp = k + settings.background_size, settings.network == "mlp"
        self.decoder: nn.Module = (
            MLPDecoder(inputs, shape, settings.widths, nn.ReLU)
            if mlp
            else build_decoder("conv", inputs, shape, settings.channels, settings.hidden)
        )
        self.register_buffer("bank", torch.zeros(BANK, settings.background_size))
        # the edges once they are chosen, and whether they are
        self.register_buffer("fixed", torch.zeros_like(allowed))
        self.register_buffer("is_fixed", torch.zeros(()))
        # z = T z' + t after the encoder, the same for every frame
        self.register_buffer("alignment", torch.eye(k))
        self.register_buffer("offset", torch.zeros(k))
        self.register_buffer("alignment_log_det", torch.zeros(()))

    def _encoder(self, outputs: int) -> nn.Module:
        settings, shape = self.settings, self.spec.image_shape
        if settings.network == "mlp":
            return MLPEncoder(shape, outputs, settings.widths, nn.ReLU)
        return build_encoder("conv", shape, outputs, settings.channels, settings.hidden)

    # ---- model ---------------------------------------------------------------------------------
    def posterior(self, clips: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q(z | clip) of frames (B, W, C, H, W').

        Mean (B, W k), block-diagonal factor (B, W k, W k) and its log-determinant (B,).
        """
        frames, k = clips.shape[1], self.settings.latents
        mean, factor, log_det = gaussian_head(self.frame_encoder(clips.flatten(0, 1)), k)
        mean = mean @ self.alignment.T + self.offset
        factor, log_det = self.alignment @ factor, log_det + self.alignment_log_det
        blocks = (
            torch.eye(frames, device=clips.device)[:, None, :, None]
            * factor.unflatten(0, (-1, frames))[:, :, :, None, :]
        )
        return (
            mean.reshape(-1, frames * k),
            blocks.reshape(-1, frames * k, frames * k),
            log_det.unflatten(0, (-1, frames)).sum(1),
        )

    def decode_frames(self, z: Tensor, code: Tensor) -> Tensor:
        """Latents (B, W, k) and background codes (B, c) to frames (B, W, C, H, W')."""
        inputs = torch.cat([z, code[:, None].expand(-1, z.shape[1], -1)], dim=2)
        return self.decoder(inputs.flatten(0, 1)).unflatten(0, (-1, z.shape[1]))

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Eq. 11 for clips, plus the error of the predicted last frame.

        w (sum_t |x_t - dec(z_t, b)|^2 + |x_W - dec(f_W(z_<W), b)|^2)
        + beta KL(q || SEM) + lambda expected edges
        """
        settings, k = self.settings, self.settings.latents
        clips = random_window(batch["images"], settings.window, generator)
        background = batch.get("background")
        if background is None or settings.background == "median":
            background = batch["images"].median(dim=1).values
        code = self.background_encoder(background)
        mean, factor, log_det = self.posterior(clips)
        noise = torch.randn(mean.shape, device=mean.device, generator=generator)
        z = mean + (factor @ noise[..., None])[..., 0]
        edges = torch.lerp(self.sem.sample_edges(generator), self.fixed, self.is_fixed)
        predicted = self.sem.mean(z, edges)[:, -k:]  # last frame, from draws of earlier ones
        images = self.decode_frames(torch.cat([z, predicted], dim=1).unflatten(1, (-1, k)), code)
        reconstruction = (images[:, :-1] - clips).square().flatten(1).sum(1).mean()
        prediction = (images[:, -1] - clips[:, -1]).square().flatten(1).sum(1).mean()
        kind = "tangent" if settings.divergence == "exact" else settings.divergence  # if linear
        options: dict[str, Any] = {"edges": edges, "generator": generator}
        options |= {"pivots": settings.pivots, "log_det": log_det}
        kl = sem_divergence(kind, mean, factor, self.sem, **options).mean()
        warm_up = batch["step"] / settings.warm_up if settings.warm_up else self.is_fixed + 1
        beta = settings.beta * torch.maximum(warm_up, self.is_fixed).clamp(max=1)
        expected = self.edges.sum()
        total = settings.reconstruction_weight * (reconstruction + prediction) + beta * kl
        if self.sem.learn_edges:
            total = total + settings.sparsity * (1 - self.is_fixed) * expected
        return {
            "loss": total,
            "reconstruction": reconstruction,
            "prediction": prediction,
            "kl": kl,
            "edges": expected,
        }

    # ---- training ------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """All edges or Gumbel masks, then graph selection; see graph_selection.py."""
        return temporal_phases(self)

    def check(self, data: Dataset) -> None:
        if self.settings.background == "given" and "background" not in data.train.fields:
            raise DataError(
                f"background=given needs a field `background`, which {data.name} has not; "
                "use background=median."
            )

    def state_to_log(self) -> dict[str, Any]:
        return {"adjacency": self._with_background(self.edges * self.sem.weights).tolist()}

    # ---- graph ---------------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        settings = self.settings
        return (
            *(f"z{t + 1}_{i}" for t in range(settings.window) for i in range(settings.latents)),
            *(f"b{i}" for i in range(settings.background_size)),
        )

    @property
    def edges(self) -> Tensor:
        """(d, d): the edges once they are fixed, their probabilities before."""
        return torch.lerp(self.sem.edge_probabilities(), self.fixed, self.is_fixed)

    @property
    def hard_edges(self) -> Tensor:
        """(d, d) of 0 and 1: the edges once they are fixed, the probable ones before."""
        return self.fixed if bool(self.is_fixed) else self.sem.hard_edges()

    @property
    def graph(self) -> CausalGraph:
        weights = self._with_background(self.hard_edges * self.sem.weights)
        return CausalGraph(self.latent_names, weights.double().numpy())

    def _with_background(self, weights: Tensor) -> Tensor:
        """(d, d) to (n, n) on the CPU; the background code has no edges."""
        padding = (0, self.settings.background_size) * 2
        return functional.pad(weights.detach().cpu(), padding)

    def sparsity_path(self, data: Dataset, seed: int = 0) -> list[PrunedGraph]:
        """Graphs from all edges to none, with their prediction errors on validation clips."""
        return sparsity_path(self, data, seed)

    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        """SEM mean of a frame's variable, (B, 1); 0 for the background code."""
        if index >= (d := len(self.fixed)):
            return torch.zeros_like(latents[:, index])
        return self.sem.mean(latents[:, :d, 0], self.hard_edges)[:, index : index + 1]

    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        noise = torch.randn(n, len(self.fixed), generator=generator)
        noise = noise * self.sem.log_scales.detach().exp().cpu()
        bank = self.bank.cpu()
        codes = bank[torch.randint(len(bank), (n,), generator=generator)]
        return torch.cat([noise, codes], dim=1)[..., None]

    # ---- queries -------------------------------------------------------------------------------
    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None, *, background: Any = None) -> Tensor:
        """Clips (B, T, C, H, W) to posterior means of the first window and background codes.

        (B, n, 1), in the order of `latent_names`.
        """
        clips = self.as_images(images)

        def means(chunk: Tensor, still: Tensor) -> Tensor:
            z = self.posterior(chunk[:, : self.settings.window])[0]
            return torch.cat([z, self.background_encoder(still)], dim=1)[..., None]

        return in_batches(means, clips, background_images(self, clips, background))

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Latents (B, n, 1) to clips of `window` frames (B, W, C, H, W')."""
        d, k = len(self.fixed), self.settings.latents

        def images(chunk: Tensor) -> Tensor:
            z = chunk[:, :d, 0].unflatten(1, (-1, k))
            return self.decode_frames(z, chunk[:, d:, 0]).clamp(0, 1)

        return in_batches(images, self.as_latents(latents))

    @torch.no_grad()
    def reconstruct(self, images: Any, labels: Any = None, *, background: Any = None) -> Tensor:
        """Clips (B, T, C, H, W) of any length, each frame decoded from its own latents."""
        clips = self.as_images(images, any_length=True)

        def decoded(chunk: Tensor, still: Tensor) -> Tensor:
            means = self.posterior(chunk)[0].unflatten(1, (-1, self.settings.latents))
            return self.decode_frames(means, self.background_encoder(still)).clamp(0, 1)

        return in_batches(decoded, clips, background_images(self, clips, background))

    @torch.no_grad()
    def counterfactual(
        self, images: Any, do: Do, labels: Any = None, *, background: Any = None, steps: int = 0
    ) -> Tensor:
        """Clips (B, T, C, H, W) of any length under `do`, and the `steps` frames after them.

        `do` names latents such as z1_0 (latent 0 of frame 1) or b0; the clip's noises stay.
        """
        self.check_trained()
        return self._decode_rollout(self.as_images(images, any_length=True), steps, do, background)

    @torch.no_grad()
    def latents_over_time(
        self, images: Any, do: Do | None = None, *, background: Any = None, steps: int = 0
    ) -> dict[str, Tensor]:
        """Values (B,) of each latent of clips (B, T, C, H, W) and of the `steps` frames after them.

        Under `do`, by name: z1_0, ..., then b0, ... `counterfactual` decodes these latents.
        """
        clips = self.as_images(images, any_length=True)
        names, z, codes = roll_out(self, clips, steps, do, background)
        return dict(zip(names, torch.cat([z.flatten(1), codes], dim=1).unbind(1), strict=True))

    @torch.no_grad()
    def extrapolate(
        self, frames: Any, steps: int, *, background: Any = None, do: Do | None = None
    ) -> Tensor:
        """The `steps` frames (B, steps, C, H, W) after clips (B, T, C, H, W), T >= window - 1.

        Each is decoded from the SEM mean given the frames before it, under `do` if given. Slice
        clips[:, :2] to keep the time axis: four dimensions are one clip (T, C, H, W).
        """
        history, clips = self.settings.window - 1, as_clips(self, frames)
        if (isinstance(steps, int) and steps < 1) or clips.shape[1] < history:
            raise QueryError(
                f"extrapolate needs {history} frames at least and 1 step or more, "
                f"not {clips.shape[1]} frames and {steps} steps."
            )
        return self._decode_rollout(clips, steps, do, background)[:, clips.shape[1] :]

    def _decode_rollout(self, clips: Tensor, steps: int, do: Do | None, background: Any) -> Tensor:
        """Clips and the `steps` frames after them under `do`, (B, T + steps, C, H, W)."""
        _, z, codes = roll_out(self, clips, steps, do, background)
        return in_batches(lambda chunk, code: self.decode_frames(chunk, code).clamp(0, 1), z, codes)
