"""Causal-prior VAE (ICLR 2023 submission): the prior of a VAE is a structural equation model over its latents, z_i = f_i(z_<i) + n_i.

Shapes: B images, d latents in a fixed order, edges from earlier to later ones only. Posteriors have a full covariance F F^T.
Reduction: sum over pixels and latents, mean over the batch.

The ELBO does not tell right latents from wrong ones: a decoder that first undoes f turns an isotropic VAE into the same generative model.
What places them is the curriculum in `phases`: positions first, then an affine map onto the prior, then the prior itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.gaussian import log_normal
from intervae.causal.graph import CausalGraph
from intervae.causal.sem import SEM
from intervae.causal.sem_alignment import affine_score, fit_affine
from intervae.causal.sem_divergence import Kind, divergence
from intervae.data.base import Batch, Dataset, Spec
from intervae.errors import DataError, QueryError, TrainingError, UsageError
from intervae.models.base import as_tensor, in_batches
from intervae.models.causal import CausalModel
from intervae.models.phases import Optimiser, Phase, Player, Schedule, Terms
from intervae.nets.images import MLPDecoder, MLPEncoder
from intervae.nets.stacked import Stacked

ALIGNED_ON = 4096  # training images whose posterior means the affine map is fitted to
PARTS = ("encoder", "decoder")
PROBED, LARGEST = 1024, 1e6  # draws of the prior, and what no latent may exceed: squares of squares of squares do
RANKED_ON, RANKED_STEPS = 512, 60  # of them, and steps, for the maps by which starts are compared


class Posterior(NamedTuple):
    """q(z | x) = N(mean, F F^T): mean (B, d), factor F (B, d, d), log |det F| (B,)."""

    mean: Tensor
    factor: Tensor
    log_det: Tensor

    def draw(self, noise: Tensor) -> Tensor:
        """A draw (B, d) from standard normal noise (B, d)."""
        return self.mean + (self.factor @ noise[..., None])[..., 0]


class PlacedEncoder(nn.Module):
    """Images (B, C, H, W) to a Gaussian over d latents and then through the affine map z = T z' + t, which is not learned by gradients."""

    alignment: Tensor
    offset: Tensor
    log_det: Tensor

    def __init__(self, network: MLPEncoder, d: int) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("alignment", torch.eye(d))  # T
        self.register_buffer("offset", torch.zeros(d))  # t
        self.register_buffer("log_det", torch.zeros(()))  # log |det T|

    def forward(self, images: Tensor) -> Posterior:
        mean, factor, log_det = gaussian_head(self.network(images), len(self.offset))
        return Posterior(mean @ self.alignment.T + self.offset, self.alignment @ factor, log_det + self.log_det)

    def place(self, linear: Tensor, shift: Tensor) -> None:
        """Put z -> linear z + shift on top of the map that is there."""
        self.alignment.copy_(linear @ self.alignment)
        self.offset.copy_(linear @ self.offset + shift)
        self.log_det.copy_(torch.linalg.slogdet(self.alignment)[1])


@dataclass(frozen=True)
class CausalPriorVAESettings:
    """Settings of the causal-prior VAE; the defaults are the paper's parabola, z1 = z0^2 + n1."""

    latents: int = 5  # number of latent variables [d]
    form: Literal["linear", "quadratic", "mlp"] = "quadratic"  # of the mechanisms f_i
    edges: tuple[str, ...] = ("z0->z1",)  # that may exist; ("all",) is every one from an earlier to a later latent, () the isotropic VAE
    learn_edges: bool = False  # whether each of them is learned to exist or not (Gumbel masks)
    sparsity: float = 0.0  # weight of the expected number of edges [lambda]
    scales: tuple[float, ...] = (1.0, 0.5)  # standard deviations of the noises, 1 for those not given [sigma]
    learn_scales: bool = False  # whether the noises' scales are learned
    divergence: Kind = "tangent"  # how KL(q || prior) is computed
    pivots: int = 300  # of the local readings
    covariance: Literal["full", "diagonal"] = "full"  # of the posteriors
    widths: tuple[int, ...] = (64, 64, 64)  # hidden units of encoder and decoder
    reconstruction_weight: float = 1.0  # of the squared error; at other sizes (64 / size)^2 makes beta mean what it does at 64 x 64
    beta: float = 1.0  # weight of the divergence from the prior
    first_beta: float = 0.05  # in the first phase, with an isotropic prior
    curriculum: bool = True  # positions first, then alignment; without it the prior is there from the start
    isotropic: bool = False  # N(0, I) instead of the SEM in the last phase: the control that shows what the prior adds to the alignment
    gate_steps: int = 400  # over which the latents without edges are let in after the alignment
    restarts: int = 24  # networks of the first phase, compared by how much like the prior an affine map makes their latents
    first_epochs: int = 6  # of the first phase, all of them at once
    finalists: int = 6  # of them that are tried with the SEM as the prior, and compared again
    trial_epochs: int = 6  # of that
    epochs: int = 24  # of the last one, with the SEM as the prior
    batch_size: int = 100
    optimiser: Optimiser = "adam"  # the paper has adagrad
    learning_rate: float = 2e-3
    schedule: Schedule = "cosine"  # of the learning rate, in every phase anew

    def __post_init__(self) -> None:
        if min(self.latents, self.pivots, self.gate_steps, self.restarts, self.finalists) < 1 or any(scale <= 0 for scale in self.scales):
            raise UsageError("latents, pivots, gate_steps, restarts and finalists must be 1 or more, and scales larger than 0.")
        if min(self.beta, self.first_beta, self.sparsity, self.reconstruction_weight) < 0:
            raise UsageError("beta, first_beta, sparsity and reconstruction_weight are weights of a loss and must not be negative.")
        if len(self.scales) > self.latents and self.edges:
            raise UsageError(f"{len(self.scales)} scales were given for {self.latents} latents; give one each at most.")


class CausalPriorVAE(CausalModel):
    """Causal-prior VAE; labels are not used. Latents are z0, z1, ... in units of their own, and so is do()."""

    name = "causal-prior-vae"
    title = "Causal-prior VAE (ICLR 2023 submission): a structural equation model as the prior of the latents"
    Settings = CausalPriorVAESettings
    settings: CausalPriorVAESettings
    coupled: Tensor
    scores: Tensor
    trial_scores: Tensor

    def __init__(self, spec: Spec, *, seed: int = 0, **settings: Any) -> None:
        if spec.frames is not None:
            raise DataError(f"{self.name} takes single images; for clips use temporal-causal-prior-vae.")
        super().__init__(spec, seed=seed, **settings)

    def build(self) -> None:
        settings, d = self.settings, self.settings.latents
        allowed = allowed_edges(settings.edges, self.latent_names)
        scales = [*settings.scales, *[1.0] * d][:d] if settings.edges else [1.0] * d
        learn = settings.learn_scales and bool(settings.edges)
        self.sem = SEM(allowed, form=settings.form, scales=scales, learn_scales=learn, learn_edges=settings.learn_edges and bool(settings.edges))
        if self._staged and not self.sem.sample(PROBED, torch.Generator().manual_seed(0)).abs().max() < LARGEST:
            raise UsageError(f"draws of the prior with form={settings.form} and these edges grow beyond {LARGEST:g}; use fewer edges or form=mlp.")
        self.encoder, self.decoder = self._networks()
        starts = [(self.encoder, self.decoder), *(self._networks() for _ in range(settings.restarts - 1))] if self._staged else []
        self.starts = nn.ModuleDict({name: Stacked(several) for name, several in zip(PARTS, zip(*starts, strict=True), strict=False)})
        self.register_buffer("scores", torch.zeros(len(starts)))  # of the starts after the first phase, largest first
        self.register_buffer("trial_scores", torch.zeros(self._finalists if starts else 0))  # of those that were tried, after that
        self.register_buffer("coupled", ((allowed.sum(0) + allowed.sum(1)) > 0).float())  # which latents take part in an edge

    def _networks(self) -> tuple[PlacedEncoder, MLPDecoder]:
        settings, d = self.settings, self.settings.latents
        outputs = 2 * d if settings.covariance == "diagonal" else d + d * (d + 1) // 2
        encoder = MLPEncoder(self.spec.image_shape, outputs, settings.widths, nn.ReLU)
        return PlacedEncoder(encoder, d), MLPDecoder(d, self.spec.image_shape, settings.widths, nn.ReLU)

    # ---- the model --------------------------------------------------------------------------------------------------
    def posterior(self, images: Tensor) -> Posterior:
        """q(z | x), after the alignment z = T z' + t."""
        return self.encoder(images)

    def misfit(self, z: Tensor, images: Tensor) -> Tensor:
        """Squared error, (B,): -log p(x | z) of a Gaussian of variance 1/2 but for a constant."""
        return (self.decoder(z) - images).square().flatten(1).sum(1)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """The last phase: w (squared error) + beta KL(q || SEM) + lambda (expected edges); latents without edges are let in over `gate_steps`."""
        opened = self._gate(batch["step"]) if self._staged and self._finalists == 1 else 1.0
        return self._terms(self.posterior(batch["images"]), lambda z: self.misfit(z * opened, batch["images"]), generator)

    def trial_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """The same for every finalist, as a sum; the terms are means over them. They share the SEM."""
        posterior = self.starts["encoder"](batch["images"])  # (R, B, ...)
        count, opened = len(posterior.mean), self._gate(batch["step"])
        joined = Posterior(*(part.flatten(0, 1) for part in posterior))
        terms = self._terms(joined, lambda z: self._misfit_of_starts(z * opened, batch["images"], count), generator)
        return {**terms, "loss": count * terms["loss"]}

    def first_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """The first phase: only latents with edges reach the decoder, under an isotropic prior of small weight, so that they become
        nearly affine in what moves the pixels most. The loss is the sum over the starts, each with noises of its own; the terms are means."""
        posterior = Posterior(*(part.flatten(0, 1) for part in self.starts["encoder"](batch["images"])))
        count = len(posterior.mean) // len(batch["images"])
        z = posterior.draw(torch.randn(posterior.mean.shape, device=posterior.mean.device, generator=generator))
        reconstruction = self._misfit_of_starts(z * self.coupled, batch["images"], count).mean()
        kl = full_kl(posterior).mean()
        total = self.settings.reconstruction_weight * reconstruction + self.settings.first_beta * kl
        return {"loss": count * total, "reconstruction": reconstruction, "kl": kl}

    def _terms(self, posterior: Posterior, misfit: Callable[[Tensor], Tensor], generator: torch.Generator | None) -> Terms:
        settings = self.settings
        noise = torch.randn(posterior.mean.shape, device=posterior.mean.device, generator=generator)
        z = posterior.draw(noise)
        reconstruction = misfit(z).mean()
        edges = self.sem.sample_edges(generator) if self.sem.learn_edges else None
        if settings.isotropic:
            kl = full_kl(posterior).mean()
        else:
            kl = divergence(
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

    def _misfit_of_starts(self, z: Tensor, images: Tensor, count: int) -> Tensor:
        """Squared errors (R B,) of latents (R B, d) of R starts."""
        made = self.starts["decoder"](z.unflatten(0, (count, -1)), own=True)  # (R, B, C, H, W)
        return (made - images).square().flatten(2).sum(2).flatten()

    def _gate(self, step: Tensor) -> Tensor:
        """(d,): 1 for latents with edges, 0 at first and 1 after `gate_steps` for the others."""
        return self.coupled + (1 - self.coupled) * (step / self.settings.gate_steps).clamp(max=1.0)

    # ---- training ---------------------------------------------------------------------------------------------------
    @property
    def _staged(self) -> bool:
        return self.settings.curriculum and bool(self.settings.edges)

    @property
    def _finalists(self) -> int:
        return min(self.settings.finalists, self.settings.restarts)

    def phases(self) -> list[Phase]:
        """Positions (gate, isotropic), alignment onto the SEM's density, a trial of the best with the SEM as the prior, then the best of these."""
        settings = self.settings
        same: dict[str, Any] = {"batch_size": settings.batch_size, "schedule": settings.schedule}

        def phase(name: str, loss: Any, epochs: int, *parameters: str) -> Phase:
            return Phase(name, (Player(loss, parameters, optimiser=settings.optimiser, learning_rate=settings.learning_rate),), epochs=epochs, **same)

        last = phase("prior", self.loss, settings.epochs, *PARTS, "sem")
        if not self._staged:
            return [last]
        found = [phase("positions", self.first_loss, settings.first_epochs, "starts"), Phase("alignment", prepare=self.align)]
        if self._finalists > 1:
            found += [phase("trial", self.trial_loss, settings.trial_epochs, "starts", "sem"), Phase("choice", prepare=self.choose)]
        return [*found, last]

    def align(self, data: Dataset, seed: int) -> None:
        """After the first phase: put an affine map onto the prior after each encoder, and leave the finalists.

        This looks at training images and the prior alone. The decoder's first layer undoes the map, so that every picture stays as it was.
        """
        self.scores.copy_(self._place_best(data, seed, self._finalists))
        if self.scores[0] == -math.inf:
            raise TrainingError("the latents of no start vary in every direction after the first phase; raise first_epochs, or lower first_beta.")

    def choose(self, data: Dataset, seed: int) -> None:
        """After the trial: align the finalists once more, and leave the one whose latents are most like the prior."""
        self.trial_scores.copy_(self._place_best(data, seed, 1))

    @torch.no_grad()
    def _place_best(self, data: Dataset, seed: int, count: int) -> Tensor:
        """Align the `count` best of the starts and leave them alone, a single one as the model's own networks; the scores of all, largest first.

        A start whose latents do not vary in every direction comes last, and keeps the map that it has.
        """
        coupled = list(self.sem.coupled)
        scores = torch.tensor([self._score(turn, data, seed) for turn in range(len(self._start("encoder")))])
        order = scores.argsort(descending=True, stable=True)
        for turn in order[:count].tolist():
            self._take(turn)
            if scores[turn] > -math.inf:
                self.place(coupled, *fit_affine(self._coupled_means(data, seed), self.sem, coupled, seed=seed))
            for part in PARTS:
                self._start(part).put(turn, getattr(self, part))
        self._take(int(order[0]))
        for part in PARTS:
            self._start(part).keep(order[:count].tolist() if count > 1 else [])
        return scores[order]

    def _score(self, turn: int, data: Dataset, seed: int) -> float:
        """How much like the prior an affine map makes the latents of a start: nothing to compare where there is one alone."""
        if len(self._start("encoder")) == 1:
            return 0.0
        self._take(turn)
        means, coupled = self._coupled_means(data, seed), list(self.sem.coupled)
        try:
            fitted = fit_affine(means, self.sem, coupled, seed=seed, samples=RANKED_ON, steps=RANKED_STEPS)
        except TrainingError:
            return -math.inf
        return affine_score(means, self.sem, coupled, *fitted)

    def _start(self, part: str) -> Stacked:
        found = self.starts[part]
        assert isinstance(found, Stacked)
        return found

    def _take(self, turn: int) -> None:
        """Make start `turn` the model's encoder and decoder."""
        for part in PARTS:
            getattr(self, part).load_state_dict(self._start(part).network(turn))

    def _coupled_means(self, data: Dataset, seed: int) -> Tensor:
        """Posterior means (N, m) of the latents with edges, for some training images."""
        rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))[:ALIGNED_ON]
        return self.encode(data.train[rows.to(data.train.device)].images)[:, list(self.sem.coupled), 0]

    @torch.no_grad()
    def place(self, indices: list[int], linear: Tensor, shift: Tensor) -> None:
        """Put z -> T z + t of the latents `indices` after the encoder, and its inverse before the decoder."""
        whole, offset = torch.eye(len(self.coupled), device=self.device), torch.zeros_like(self.coupled)
        whole[torch.tensor(indices)[:, None], torch.tensor(indices)] = linear.to(whole)
        offset[indices] = shift.to(offset)
        first = next(layer for layer in self.decoder.layers if isinstance(layer, nn.Linear))
        undone = torch.linalg.solve(whole.T, first.weight.T).T  # W T^-1
        first.weight.copy_(undone)
        first.bias.sub_(undone @ offset)
        self.encoder.place(whole, offset)

    def state_to_log(self) -> dict[str, Any]:
        return {"adjacency": self.sem.edge_probabilities().detach().cpu().tolist()} if self.sem.learn_edges else {}

    # ---- queries ----------------------------------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"z{i}" for i in range(self.settings.latents))

    @property
    def graph(self) -> CausalGraph:
        return self.sem.graph(self.latent_names, threshold=math.inf if self.settings.isotropic else 0.5)

    @property
    def edges(self) -> Tensor:
        """(d, d) of 0 and 1: the edges of the prior; none in the control, which is trained under N(0, I)."""
        return self.sem.hard_edges(math.inf if self.settings.isotropic else 0.5)

    @property
    def noise_scales(self) -> Tensor:
        """(d,): the standard deviations of the noises."""
        return torch.ones_like(self.coupled) if self.settings.isotropic else self.sem.log_scales.detach().exp()

    def mechanism(self, index: int, latents: Tensor) -> Tensor:
        return self.sem.mean(latents[..., 0], self.edges)[:, index : index + 1]

    def draw_noise(self, n: int, generator: torch.Generator) -> Tensor:
        return (torch.randn(n, self.settings.latents, generator=generator) * self.noise_scales.cpu())[..., None]

    @torch.no_grad()
    def draw_latents(self, n: int, generator: torch.Generator) -> Tensor:
        """(n, d) draws of the prior."""
        return self.sem.from_noises(self.draw_noise(n, generator)[..., 0].to(self.device), self.edges)

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to posterior means (B, d, 1)."""
        return in_batches(lambda part: self.posterior(part).mean[..., None], self.as_images(images))

    @torch.no_grad()
    def encode_with_spread(self, images: Any, seed: int = 0) -> Tensor:
        """One draw (B, d) from each image's posterior, as the prior is compared with."""
        x = self.as_images(images)
        noise = torch.randn(len(x), self.settings.latents, generator=torch.Generator().manual_seed(seed)).to(x.device)
        return in_batches(lambda part, some: self.posterior(part).draw(some), x, noise)

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        return in_batches(lambda part: self.decoder(part[..., 0]).clamp(0, 1), self.as_latents(latents))

    @torch.no_grad()
    def traverse(self, noises: Any) -> Tensor:
        """Pictures of given noises (B, d), passed through the mechanisms: what moving n_i does, its effects included."""
        given = as_tensor(noises, "noises").to(self.device, torch.float32)
        if given.ndim != 2 or given.shape[1] != self.settings.latents or not given.isfinite().all():
            raise QueryError(f"noises must be finite and (B, {self.settings.latents}), not of shape {tuple(given.shape)}.")
        return self.decode(self.sem.from_noises(given, self.edges)[..., None])

    @torch.no_grad()
    def log_weights(self, images: Any, labels: Any, samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Likelihood p(x): log p(x | z) + log p(z) - log q(z | x), (samples, B), with the exact density of the SEM and pixels of variance 1/2."""
        if samples < 1:
            raise QueryError(f"log_weights was asked for {samples} samples; ask for one at least.")
        x = self.as_images(images)
        posterior = self.posterior(x)
        noise = torch.stack([torch.randn(posterior.mean.shape, generator=generator) for _ in range(samples)]).to(x.device)  # (samples, B, d)
        z = posterior.mean + (posterior.factor @ noise[..., None])[..., 0]
        log_posterior = -0.5 * (noise.square() + math.log(2 * math.pi)).sum(2) - posterior.log_det
        log_prior = log_normal(self.sem.noises(z, self.edges), 0.0, 2 * self.noise_scales.log()).sum(-1)
        pixels = math.prod(self.spec.image_shape)
        misfit = in_batches(self.misfit, z.flatten(0, 1), x.repeat(samples, 1, 1, 1)).unflatten(0, (samples, len(x)))
        return log_prior - log_posterior - misfit - 0.5 * pixels * math.log(math.pi)


def allowed_edges(edges: tuple[str, ...], names: tuple[str, ...]) -> Tensor:
    """(d, d) of 0 and 1 from words like "z0->z1"; "all" is every edge from an earlier to a later variable."""
    d = len(names)
    if edges == ("all",) and d < 2:
        raise UsageError("edges=all needs two latents or more; raise latents, or give no edges.")
    if edges == ("all",):
        return torch.ones(d, d).triu(1)
    allowed = torch.zeros(d, d)
    for edge in edges:
        cause, arrow, effect = (part.strip() for part in edge.partition("->"))
        if not arrow or cause not in names or effect not in names or names.index(cause) >= names.index(effect):
            raise UsageError(f"edge {edge!r} must be like z0->z1, from an earlier to a later one of {', '.join(names)}.")
        allowed[names.index(cause), names.index(effect)] = 1
    return allowed


def gaussian_head(features: Tensor, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features (B, 2 d) or (B, d + d (d + 1) / 2) to mean (B, d), lower-triangular factor (B, d, d) and its log-determinant (B,)."""
    mean, log_diagonal, below = features.split([d, d, features.shape[1] - 2 * d], dim=1)
    log_diagonal = log_diagonal.clamp(-8, 4)
    factor = torch.diag_embed(log_diagonal.exp())
    if below.shape[1]:
        rows, columns = torch.tril_indices(d, d, -1, device=features.device)
        places = functional.one_hot(rows * d + columns, d * d).to(features.dtype)  # (below, d^2)
        factor = factor + (below @ places).unflatten(1, (d, d))
    return mean, factor, log_diagonal.sum(1)


def full_kl(posterior: Posterior) -> Tensor:
    """KL(N(mean, F F^T) || N(0, I)), (B,)."""
    d = posterior.mean.shape[1]
    return 0.5 * (posterior.factor.square().sum((1, 2)) + posterior.mean.square().sum(1) - d) - posterior.log_det
