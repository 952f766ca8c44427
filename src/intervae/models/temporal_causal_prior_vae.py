"""Temporal causal-prior VAE (ICLR 2023 submission, sec. 5.2): latents of every frame, a linear SEM whose edges only go forward in time.

Shapes: B clips of T frames, k latents per frame, c numbers that tell the background. The SEM runs over `window` frames (the paper's 3), so its
d = window k variables are z1_0 .. z1_{k-1} (first frame), z2_0, ..., in the order of time. Longer clips are cut into windows.
Reduction: sum over pixels and latents, mean over the batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.do import Do, interventions
from intervae.causal.graph import CausalGraph
from intervae.causal.sem import SEM
from intervae.causal.sem_divergence import divergence
from intervae.causal.sem_path import Pruned, fit_linear, predictable_directions, pruning_path, sparsest
from intervae.data.base import Batch, Dataset, Spec, Split
from intervae.errors import DataError, QueryError, UsageError
from intervae.models.base import QUERY_BATCH, as_tensor, in_batches, repeat_rows
from intervae.models.causal import CausalModel
from intervae.models.causal_prior_vae import gaussian_head
from intervae.models.phases import Phase, Player, Schedule, Terms
from intervae.nets.images import MLPDecoder, MLPEncoder, build_decoder, build_encoder

BANK = 2048  # background codes kept from the training split, from which sample() draws
REFITTED_ON = 8192  # training clips whose latents the coefficients are refitted to
SMALLEST_SCALE = 1e-3  # of a noise


@dataclass(frozen=True)
class TemporalCausalPriorVAESettings:
    """Settings of the temporal causal-prior VAE."""

    latents: int = 4  # of every frame [k]
    window: int = 3  # frames of the SEM
    background: Literal["given", "median"] = "median"  # the data's own field `background`, or the middle value of each pixel over the frames
    background_size: int = 8  # numbers that tell the background [c]
    network: Literal["mlp", "conv"] = "mlp"  # of encoders and decoder
    widths: tuple[int, ...] = (128, 128)  # of the mlp
    channels: tuple[int, ...] = (32, 32, 64, 64)  # of the convolutions
    hidden: int = 128  # units of the dense layer behind the convolutions
    reconstruction_weight: float = 10.0  # of the squared errors
    beta: float = 1.0  # weight of the divergence from the SEM, after the warm-up
    warm_up: int = 1500  # steps over which beta rises from 0
    selection: Literal["path", "gumbel"] = "path"  # of edges: the sparsest graph that still foresees frames, or masks under a penalty
    tolerance: float = 0.1  # share of what all edges spare of the error of a foreseen validation frame that a sparser graph may lose (path)
    rounds: int = 2  # of choosing the edges and training with them, which sets free what the edges of the round before held (path)
    sparsity: float = 5.0  # weight of the expected number of edges [lambda] (gumbel)
    sparsity_from: int = 0  # step at which the penalty starts (gumbel)
    temperature: float = 0.5  # of the Gumbel masks
    scale: float = 1.0  # standard deviation of the noises at the start; it is learned
    epochs: int = 60  # with all edges, or while they are learned
    refit_epochs: int = 10  # of each round, with the edges fixed and without the penalty
    batch_size: int = 100
    learning_rate: float = 2e-3
    schedule: Schedule = "constant"  # of the learning rate

    def __post_init__(self) -> None:
        if min(self.latents, self.window - 1, self.background_size, self.warm_up) < 1 or self.scale <= 0:
            raise UsageError("latents, background_size and warm_up must be 1 or more, window 2 or more, scale larger than 0.")
        if self.rounds < 1 or not 0 <= self.tolerance < 1 or min(self.beta, self.sparsity, self.reconstruction_weight) < 0:
            raise UsageError("rounds must be 1 or more, tolerance from 0 to less than 1, and beta, sparsity and reconstruction_weight not negative.")


class TemporalCausalPriorVAE(CausalModel):
    """Temporal causal-prior VAE; labels are not used.

    Latents (B, n, 1): the window's variables, then the background's numbers b0, b1, ..., which no edge reaches. `encode`, `decode` and `sample`
    are about one window, the first; `reconstruct`, `counterfactual` and `extrapolate` about clips of any length.
    """

    name = "temporal-causal-prior-vae"
    title = "Temporal causal-prior VAE (ICLR 2023 submission): clips, a linear SEM forward in time as the prior"
    takes_clips = True
    Settings = TemporalCausalPriorVAESettings
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
            raise DataError(f"{self.name} looks at {self.settings.window} frames at once, but these clips have {spec.frames}; set window= lower.")

    def build(self) -> None:
        settings, k, shape = self.settings, self.settings.latents, self.spec.image_shape
        time = torch.arange(settings.window).repeat_interleave(k)
        allowed = (time[:, None] < time[None, :]).float()
        learn = settings.selection == "gumbel"
        scales = [settings.scale] * len(time)
        self.sem = SEM(allowed, form="linear", scales=scales, learn_scales=True, learn_edges=learn, temperature=settings.temperature)
        self.frame_encoder = self._encoder(k + k * (k + 1) // 2)
        self.background_encoder = self._encoder(settings.background_size)
        inputs, mlp = k + settings.background_size, settings.network == "mlp"
        self.decoder: nn.Module = (
            MLPDecoder(inputs, shape, settings.widths, nn.ReLU) if mlp else build_decoder("conv", inputs, shape, settings.channels, settings.hidden)
        )
        self.register_buffer("bank", torch.zeros(BANK, settings.background_size))
        self.register_buffer("fixed", torch.zeros_like(allowed))  # the edges, once they are chosen
        self.register_buffer("is_fixed", torch.zeros(()))
        self.register_buffer("alignment", torch.eye(k))  # T and t of the map after the encoder, the same for every frame
        self.register_buffer("offset", torch.zeros(k))
        self.register_buffer("alignment_log_det", torch.zeros(()))

    def _encoder(self, outputs: int) -> nn.Module:
        settings = self.settings
        if settings.network == "mlp":
            return MLPEncoder(self.spec.image_shape, outputs, settings.widths, nn.ReLU)
        return build_encoder("conv", self.spec.image_shape, outputs, settings.channels, settings.hidden)

    # ---- the model --------------------------------------------------------------------------------------------------
    def posterior(self, clips: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q of all frames (B, W, C, H, W'): mean (B, W k), block-diagonal factor (B, W k, W k), log-determinant (B,)."""
        frames, k = clips.shape[1], self.settings.latents
        mean, factor, log_det = gaussian_head(self.frame_encoder(clips.flatten(0, 1)), k)
        mean, factor, log_det = mean @ self.alignment.T + self.offset, self.alignment @ factor, log_det + self.alignment_log_det
        blocks = torch.eye(frames, device=clips.device)[:, None, :, None] * factor.unflatten(0, (-1, frames))[:, :, :, None, :]
        return mean.reshape(-1, frames * k), blocks.reshape(-1, frames * k, frames * k), log_det.unflatten(0, (-1, frames)).sum(1)

    def draw_frames(self, z: Tensor, background: Tensor) -> Tensor:
        """Latents (B, W, k) and background numbers (B, c) to frames (B, W, C, H, W')."""
        frames = z.shape[1]
        inputs = torch.cat([z, background[:, None].expand(-1, frames, -1)], dim=2)
        return self.decoder(inputs.flatten(0, 1)).unflatten(0, (-1, frames))

    def background_of(self, clips: Tensor, given: Tensor | None = None) -> Tensor:
        """The picture behind the clips (B, C, H, W): the one that is given, or every pixel's middle value over the frames."""
        return given if given is not None and self.settings.background == "given" else clips.median(dim=1).values

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """w (sum_t |x_t - dec(z_t, b)|^2 + |x_W - dec(f_W(z_<W), b)|^2) + beta KL(q || SEM) + lambda (expected edges)."""
        settings = self.settings
        clips = self._window(batch["images"], generator)
        code = self.background_encoder(self.background_of(batch["images"], batch.get("background")))
        mean, factor, log_det = self.posterior(clips)
        noise = torch.randn(mean.shape, device=mean.device, generator=generator)
        z = mean + (factor @ noise[..., None])[..., 0]
        edges = torch.lerp(self.sem.sample_edges(generator), self.fixed, self.is_fixed)
        foreseen = self.sem.mean(z, edges)[:, -settings.latents :]  # of the last frame, from the draws of the earlier ones
        pictures = self.draw_frames(torch.cat([z, foreseen], dim=1).unflatten(1, (-1, settings.latents)), code)
        reconstruction = (pictures[:, :-1] - clips).square().flatten(1).sum(1).mean()
        prediction = (pictures[:, -1] - clips[:, -1]).square().flatten(1).sum(1).mean()
        kl = divergence("tangent", mean, factor, self.sem, z=z, edges=edges, generator=generator, pivots=1, log_det=log_det).mean()
        step = batch["step"]
        beta = settings.beta * (step / settings.warm_up).clamp(max=1.0) * (1 - self.is_fixed) + settings.beta * self.is_fixed
        expected = self.edges.sum()
        penalty = settings.sparsity * (step >= settings.sparsity_from).to(expected.dtype) * (1 - self.is_fixed)
        total = settings.reconstruction_weight * (reconstruction + prediction) + beta * kl
        if self.sem.learn_edges:
            total = total + penalty * expected
        return {"loss": total, "reconstruction": reconstruction, "prediction": prediction, "kl": kl, "edges": expected}

    def _window(self, clips: Tensor, generator: torch.Generator | None) -> Tensor:
        """`window` successive frames of every clip, from a random start where there are more."""
        window, frames = self.settings.window, clips.shape[1]
        if frames == window:
            return clips
        start = torch.randint(frames - window + 1, (len(clips), 1), device=clips.device, generator=generator)
        at = start + torch.arange(window, device=clips.device)  # (B, W)
        return torch.gather(clips, 1, at[:, :, None, None, None].expand(-1, -1, *clips.shape[2:]))

    def check(self, data: Dataset) -> None:
        if self.settings.background == "given" and "background" not in data.train.fields:
            raise DataError(f"background=given needs a field `background`, which {data.name} has not; use background=median.")

    # ---- training ---------------------------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """All edges, or masks that the penalty closes; then the edges are fixed and the coefficients fitted to them, without the penalty."""
        settings = self.settings
        player = Player(self.loss, learning_rate=settings.learning_rate)
        same: dict[str, Any] = {"batch_size": settings.batch_size, "schedule": settings.schedule}
        whole = Phase("clips", (player,), epochs=settings.epochs, **same)
        refit = Phase("refit", (player,), epochs=settings.refit_epochs, **same)
        coefficients = Phase("coefficients", prepare=self.finish)
        if settings.selection == "gumbel":
            return [whole, Phase("edges", prepare=self.fix_edges), refit, coefficients]
        rounds: list[Phase] = []
        for turn in range(1, settings.rounds + 1):
            rounds += [Phase(f"alignment {turn}", prepare=self.align), Phase(f"edges {turn}", prepare=self.choose_edges)]
            rounds.append(replace(refit, name=f"refit {turn}"))
        return [whole, *rounds, coefficients]

    @torch.no_grad()
    def align(self, data: Dataset, seed: int) -> None:
        """Turn the latents, all frames alike, so that those which time predicts stand apart from those which it does not, and centre them; the
        decoder's first layer undoes it, so that every picture stays as it was."""
        k = self.settings.latents
        means, second = self._moments(data, seed)
        centre = means.unflatten(1, (-1, k))[:, :-1].mean((0, 1))
        middle = means.mean(0)
        away = middle - centre.repeat(self.settings.window)
        shifted = second - torch.outer(middle, middle) + torch.outer(away, away)  # of the latents less the centre
        turn, _ = predictable_directions(shifted, k)
        first = next(layer for layer in self.decoder.modules() if isinstance(layer, nn.Linear))
        first.bias.add_(first.weight[:, :k] @ centre.to(self.offset))
        first.weight[:, :k] = first.weight[:, :k] @ torch.linalg.inv(turn).to(self.offset)  # W T^-1
        whole = turn @ self.alignment.cpu().double()
        self.alignment.copy_(whole)
        self.alignment_log_det.copy_(torch.linalg.slogdet(whole)[1])
        self.offset.copy_(turn @ (self.offset.cpu().double() - centre))

    def _moments(self, data: Dataset, seed: int) -> tuple[Tensor, Tensor]:
        """Posterior means (N, d) of training clips, and the mean of z z^T (d, d) over clips and draws; on the CPU in double precision."""
        means, spread, split = [], torch.zeros(self.fixed.shape, dtype=torch.float64), self._rows(data, seed)
        for part in split.images.split(QUERY_BATCH):
            mean, factor, _ = self.posterior(self._frames(part[:, : self.settings.window]))
            means.append(mean.cpu().double())
            spread += (factor @ factor.mT).sum(0).cpu().double() / len(split)
        mean = torch.cat(means)
        return mean, mean.T @ mean / len(mean) + spread

    def _rows(self, data: Dataset, seed: int) -> Split:
        rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))[:REFITTED_ON]
        return data.train[rows.to(data.train.device)]

    @torch.no_grad()
    def choose_edges(self, data: Dataset, seed: int) -> None:
        """The sparsest graph of the path from all edges to none under which every frame of the validation clips is foreseen about as well."""
        path = self.sparsity_path(data, seed)
        self.fixed.copy_(sparsest(path, self.settings.tolerance).edges)
        self.is_fixed.fill_(1.0)
        self.refit(data, seed)

    @torch.no_grad()
    def sparsity_path(self, data: Dataset, seed: int = 0) -> list[Pruned]:
        """Every graph from all edges to none, the least useful edge gone first, with the mean squared errors of the validation frames 2 .. W that
        it foresees from those before."""
        means, second = self._moments(data, seed)
        split = data.validation if len(data.validation) else data.train
        clips, behind = self.as_images(split.images), split.fields.get("background")
        latents = self.encode(split.images, background=behind)
        z, codes = latents[:, : len(self.fixed), 0], latents[:, len(self.fixed) :, 0]
        found = []
        for pruned in pruning_path(second, self.sem.allowed.cpu()):
            weights = fit_linear(means, pruned.edges)[0].to(z)
            pictures = self.draw_frames((z @ weights).unflatten(1, (-1, self.settings.latents)), codes).clamp(0, 1)
            errors = (pictures - clips[:, : self.settings.window]).square().mean((0, 2, 3, 4))[1:]
            found.append(replace(pruned, errors=tuple(errors.tolist())))
        return found

    @torch.no_grad()
    def fix_edges(self, data: Dataset, seed: int) -> None:
        """From here on the edges are those more probable than not."""
        self.fixed.copy_(self.sem.hard_edges())
        self.is_fixed.fill_(1.0)
        self.refit(data, seed)

    @torch.no_grad()
    def refit(self, data: Dataset, seed: int) -> None:
        """Coefficients and noise scales by least squares on the training split's latents, each variable on its parents; and the backgrounds
        from which sample() draws."""
        split, d = self._rows(data, seed), len(self.fixed)
        latents = self.encode(split.images, background=split.fields.get("background"))[..., 0].cpu()
        self.bank.copy_(repeat_rows(latents[:, d:], BANK))
        weights, scales = fit_linear(latents[:, :d], self.fixed)
        self.sem.weights.copy_(weights)
        self.sem.log_scales.copy_(scales.clamp(min=SMALLEST_SCALE).log())

    @torch.no_grad()
    def finish(self, data: Dataset, seed: int) -> None:
        """The last refit, after which no training follows: the scales are those that minimise the divergence from the posteriors, whose own
        spread counts then, diag((I - A)^T S (I - A)) with S the mean of z z^T."""
        self.refit(data, seed)
        whole = torch.eye(len(self.fixed), dtype=torch.float64) - (self.fixed * self.sem.weights).cpu().double()
        variances = (whole.T @ self._moments(data, seed)[1] @ whole).diagonal()
        self.sem.log_scales.copy_(variances.sqrt().clamp(min=SMALLEST_SCALE).log())

    def state_to_log(self) -> dict[str, Any]:
        return {"adjacency": self._over_all_names(self.edges * self.sem.weights).tolist()}

    # ---- queries ----------------------------------------------------------------------------------------------------
    @property
    def edges(self) -> Tensor:
        """(d, d): those that are fixed, or as probable as they are."""
        return torch.lerp(self.sem.edge_probabilities(), self.fixed, self.is_fixed)

    @property
    def latent_names(self) -> tuple[str, ...]:
        settings = self.settings
        frames = tuple(f"z{t + 1}_{i}" for t in range(settings.window) for i in range(settings.latents))
        return frames + tuple(f"b{i}" for i in range(settings.background_size))

    @property
    def graph(self) -> CausalGraph:
        return CausalGraph(self.latent_names, self._over_all_names(self._hard_edges() * self.sem.weights).double().numpy())

    def _hard_edges(self) -> Tensor:
        return self.fixed if bool(self.is_fixed) else self.sem.hard_edges()

    def _over_all_names(self, weights: Tensor) -> Tensor:
        """(d, d) to (n, n) on the CPU: the background's numbers are neither causes nor effects."""
        more = self.settings.background_size
        return functional.pad(weights.detach().cpu(), (0, more, 0, more))

    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        """The SEM's mean of a frame's variable; a background number has no causes."""
        d = len(self.fixed)
        if index >= d:
            return torch.zeros_like(latents[:, index])
        return self.sem.mean(latents[:, :d, 0], self._hard_edges())[:, index : index + 1]

    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        noise = torch.randn(n, len(self.fixed), generator=generator) * self.sem.log_scales.detach().exp().cpu()
        bank = self.bank.cpu()
        return torch.cat([noise, bank[torch.randint(len(bank), (n,), generator=generator)]], dim=1)[..., None]

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None, *, background: Any = None) -> Tensor:
        """Clips (B, T, C, H, W) to the means of their first window's latents and the background's numbers (B, n, 1)."""
        clips = self.as_images(images)
        behind = self._behind(clips, background)

        def means(part: Tensor, still: Tensor) -> Tensor:
            return torch.cat([self.posterior(part[:, : self.settings.window])[0], self.background_encoder(still)], dim=1)[..., None]

        return in_batches(means, clips, behind)

    def _behind(self, clips: Tensor, background: Any) -> Tensor:
        if background is None or self.settings.background == "median":
            return clips.median(dim=1).values
        given = self._pictures(background, "backgrounds")
        given = given[None] if given.ndim == 3 else given
        if given.shape != clips[:, 0].shape:
            raise QueryError(f"the backgrounds must be {tuple(clips[:, 0].shape)}, one for each clip, not {tuple(given.shape)}.")
        return given

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Latents (B, n, 1) to clips of `window` frames (B, W, C, H, W')."""
        d, k = len(self.fixed), self.settings.latents

        def pictures(part: Tensor) -> Tensor:
            return self.draw_frames(part[:, :d, 0].unflatten(1, (-1, k)), part[:, d:, 0]).clamp(0, 1)

        return in_batches(pictures, self.as_latents(latents))

    @torch.no_grad()
    def reconstruct(self, images: Any, labels: Any = None, *, background: Any = None) -> Tensor:
        """Clips (B, T, C, H, W) of any length again, every frame from its own latents: those beyond the first window as well."""
        clips = self.as_images(images, any_length=True)

        def again(part: Tensor, still: Tensor) -> Tensor:
            means = self.posterior(part)[0].unflatten(1, (-1, self.settings.latents))
            return self.draw_frames(means, self.background_encoder(still)).clamp(0, 1)

        return in_batches(again, clips, self._behind(clips, background))

    @torch.no_grad()
    def counterfactual(self, images: Any, do: Do, labels: Any = None, *, background: Any = None, steps: int = 0) -> Tensor:
        """Clips (B, T, C, H, W) had `do` been done: names such as z1_0 (latent 0 of frame 1) or b0 set, later frames following by the equations
        with the noises that they have; and `steps` more frames after them."""
        return self._roll(self.as_images(images, any_length=True), steps, do, background)

    @torch.no_grad()
    def latents_over_time(self, images: Any, do: Do | None = None, *, background: Any = None, steps: int = 0) -> dict[str, Tensor]:
        """Every latent's values (B,) by its name, z1_0 to those of the last of T + `steps` frames, then b0, b1, ...: as read off the clips
        (B, T, C, H, W), as foreseen in the frames after them, and as `do` makes them. `counterfactual` draws these."""
        names, z, codes = self._latents_under(self.as_images(images, any_length=True), steps, do, background)
        return dict(zip(names, torch.cat([z.flatten(1), codes], dim=1).unbind(1), strict=True))

    @torch.no_grad()
    def extrapolate(self, frames: Any, steps: int, *, background: Any = None, do: Do | None = None) -> Tensor:
        """The `steps` frames (B, steps, C, H, W) that follow clips (B, T, C, H, W) of window - 1 frames at least: the SEM's mean of the next frame
        from the last ones, again and again. With `do`, had that been done in a frame of the clip (z1_0, ...) or of those that follow.

        Four dimensions are always one clip (T, C, H, W), never T single images: `clips[:, 0]`, the first frames of B clips, would be taken as one
        clip of B frames. Keep the axis of time, `clips[:, :2]`, to go on from the first frames of each."""
        history, clips = self.settings.window - 1, self._frames(frames)
        if (isinstance(steps, int) and steps < 1) or clips.shape[1] < history:
            raise QueryError(f"extrapolate needs {history} frames at least and 1 step or more, not {clips.shape[1]} frames and {steps} steps.")
        return self._roll(clips, steps, do, background)[:, clips.shape[1] :]

    def _roll(self, clips: Tensor, steps: int, do: Do | None, background: Any) -> Tensor:
        """Clips and the `steps` frames after them under `do`, (B, T + steps, C, H, W)."""
        _, z, codes = self._latents_under(clips, steps, do, background)
        return in_batches(lambda part, code: self.draw_frames(part, code).clamp(0, 1), z, codes)

    def _latents_under(self, clips: Tensor, steps: int, do: Do | None, background: Any) -> tuple[tuple[str, ...], Tensor, Tensor]:
        """Names of all latents, those of the frames and of the `steps` after them (B, T + steps, k), and the background's (B, c), under `do`."""
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 0:
            raise QueryError(f"steps={steps!r} must be a whole number of frames, 0 or more.")
        k, size = self.settings.latents, self.settings.background_size
        names = tuple(f"z{t + 1}_{i}" for t in range(clips.shape[1] + steps) for i in range(k)) + tuple(f"b{i}" for i in range(size))
        for name in do or {}:
            named = re.fullmatch(r"z([1-9]\d{0,8})_\d{1,9}", str(name))
            if named and int(named[1]) > clips.shape[1] + steps:
                more = int(named[1]) - clips.shape[1]
                raise QueryError(f"do({name}): frame {named[1]} is beyond the {clips.shape[1] + steps} frames asked for; raise steps to {more}.")
        changes = interventions(do, names, self.spec.categories)

        def act(first: int, values: Tensor) -> Tensor:
            """values (B, m) of the names from number `first` on, acted on."""
            own = zip(names[first : first + values.shape[1]], values.unbind(1), strict=True)
            return torch.stack([changes[name](value) if name in changes else value for name, value in own], dim=1)

        before = in_batches(lambda part: self.posterior(part)[0], clips).unflatten(1, (-1, k)).unbind(1)
        after: list[Tensor] = []
        for t in range(len(before) + steps):
            value = self._foresee(after, t, before[0])
            if t < len(before):  # with the noise that the frame has; what do() does not reach keeps its very bits
                value = before[t] + (value - self._foresee(before, t, before[0]))
            after.append(act(t * k, value))
        codes = act(len(names) - size, in_batches(self.background_encoder, self._behind(clips, background)))
        return names, torch.stack(after, dim=1), codes

    def _foresee(self, frames: Sequence[Tensor], t: int, like: Tensor) -> Tensor:
        """What the equations make of frame t (from 0) of those before it, each (B, k) as `like` is."""
        k, window = self.settings.latents, self.settings.window
        place = min(t, window - 1)
        past = [*frames[t - place : t], *[torch.zeros_like(like)] * (window - place)]
        return self.sem.mean(torch.cat(past, dim=1), self._hard_edges())[:, place * k : (place + 1) * k]

    def _frames(self, frames: Any) -> Tensor:
        """Clips of any length, checked frame by frame."""
        clips = self._pictures(frames, "frames")
        clips = clips[None] if clips.ndim == 4 else clips
        if clips.ndim != 5 or tuple(clips.shape[2:]) != self.spec.image_shape or not len(clips):
            raise QueryError(f"clips must be (B, T, {', '.join(map(str, self.spec.image_shape))}), not {tuple(clips.shape)}.")
        return clips

    def _pictures(self, given: Any, what: str) -> Tensor:
        """Pixels as floats in [0, 1] on the device; `as_images` does this for clips of the data's own length."""
        tensor = as_tensor(given, what)
        if tensor.dtype == torch.uint8:
            return tensor.to(self.device).float() / 255
        tensor = tensor.to(self.device, torch.float32)
        if not (torch.isfinite(tensor) & (tensor >= 0) & (tensor <= 1)).all():
            raise QueryError(f"the {what} hold pixels that are NaN or outside [0, 1]; clean them, divide by 255, or pass uint8.")
        return tensor
