"""CausalGAN (Kocaoglu et al., ICLR 2018): labels from a causal controller on a given graph, pictures from a generator that obeys the labels.

Read beside the paper: sec. 4 the controller, one network per label on the graph, trained as a Wasserstein GAN on labels; sec. 5 the generator
between a discriminator, a labeler and an anti-labeler. Shapes: B images, n labels. Reduction: sum over labels, mean over the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from intervae.causal.do import Do, interventions, propagate
from intervae.causal.graph import CausalGraph
from intervae.data.base import Batch, Dataset, Spec, Split
from intervae.errors import QueryError, UsageError, unknown
from intervae.models.base import Model, in_batches, need_labels
from intervae.models.phases import Phase, Player, Terms
from intervae.nets.adversarial import PictureGenerator, Trunk, discriminator_loss, generator_loss, gradient_penalty, leaky_net, uniform
from intervae.nets.norm import update_statistics
from intervae.settings import at_least

CERTAINTY = 0.2  # a binary label becomes a probability of 0.5 plus or minus this, and more
NOISE_RATE, NOISE_LIMIT = 10.0, 0.25  # of the exponential noise that makes it more, and where that is cut off
PROPOSALS = 4096  # draws of the controller at a time, for conditioning by rejection
MOST_PROPOSALS, FEWEST_ACCEPTED = 2000, 256  # conditioning is given up after so many for each sample, and for so many samples at least
BETAS = (0.5, 0.9)  # of Adam for the controller and its critic


@dataclass(frozen=True)
class CausalGANSettings:
    """Settings of CausalGAN; the paper's symbol, where there is one, in brackets."""

    controller_noise: int = 10  # inputs of each label's network beside its parents, uniform in (-1, 1)
    controller_layers: int = 2  # hidden layers of those networks and of the critic
    controller_hidden: int = 32  # their units
    critic_hidden: int = 64  # units of the critic's layers
    critic_steps: int = 5  # of the critic for each one of the controller
    penalty_weight: float = 0.1  # of the critic's gradient penalty [lambda]
    controller_rate: float = 3e-3  # learning rate of the controller and its critic
    controller_batch: int = 128  # rows of labels in a step of the controller
    controller_batches: int = 32  # in an epoch at least: few labels are repeated
    controller_epochs: int = 40  # passes over the labels, before any picture
    noise: int = 100  # inputs of the generator beside the labels, uniform in (-1, 1) [z]
    channels: tuple[int, ...] = (64, 128, 256, 512)  # of the discriminator and the labelers; the generator mirrors them
    hidden: int = 512  # of their dense layers
    anti_labeler_steps: float = 3000.0  # after which the anti-labeler's weight has fallen to 1 / e
    generator_steps: int = 1  # of the generator for each one of the others
    epochs: int = 100
    batch_size: int = 64
    generator_rate: float = 1e-3
    reader_rate: float = 2e-4  # of the discriminator and the labelers
    momentum: float = 0.5  # of Adam [beta_1]

    def __post_init__(self) -> None:
        at_least(self, controller_noise=1, controller_layers=1, controller_hidden=1, critic_hidden=1, critic_steps=1, controller_batches=1)
        at_least(self, noise=1, generator_steps=1, penalty_weight=0)
        if self.anti_labeler_steps <= 0:
            raise UsageError(f"anti_labeler_steps={self.anti_labeler_steps} must be larger than 0.")
        if not 0 <= self.momentum < 1:
            raise UsageError(f"momentum={self.momentum} must be at least 0 and below 1.")


class CausalController(nn.Module):
    """The labels' mechanisms: for each node of the graph a network of its parents' labels and its own noise.

    Labels are normalised: -1 / +1 for a binary one, for which the network gives a number in between; standardised for a continuous one.
    """

    def __init__(self, spec: Spec, graph: CausalGraph, settings: CausalGANSettings) -> None:
        super().__init__()
        self.binary = [v.kind == "binary" for v in spec.variables]
        self.order = [graph.index(name) for name in graph.topological_order]
        self.parents = [[graph.index(parent) for parent in graph.parents(name)] for name in graph.names]
        hidden, layers = settings.controller_hidden, settings.controller_layers
        self.nets = nn.ModuleList(leaky_net(len(causes) + settings.controller_noise, hidden, layers, 1) for causes in self.parents)

    def one(self, i: int, labels: Mapping[int, Tensor], noise: Tensor, hard: bool) -> Tensor:
        """Label i (B,) from the others (B,) and the noises (B, n, d); a `hard` binary label is -1 or +1."""
        causes = [labels[j][:, None] for j in self.parents[i]]
        output = self.nets[i](torch.cat([*causes, noise[:, i]], dim=1)).squeeze(1)
        if not self.binary[i]:
            return output
        return 2 * (output > 0).to(output.dtype) - 1 if hard else 2 * torch.sigmoid(output) - 1

    def forward(self, noise: Tensor, hard: bool = False) -> Tensor:
        """Noises (B, n, d) to labels (B, n), causes first."""
        labels: dict[int, Tensor] = {}
        for i in self.order:
            labels[i] = self.one(i, labels, noise, hard)
        return torch.stack([labels[i] for i in range(len(labels))], dim=1)


class CausalGAN(Model):
    """CausalGAN over the labelled variables of `spec`.

    Arguments:
        spec: `data.spec`; its variables must be continuous or binary.
        graph: the known `CausalGraph` of the labels; it is not learned.
        settings: see `CausalGANSettings`.

    Latents are the labels, normalised, (B, n, 1): `encode` reads them off pictures with the labeler, `decode` draws them with the noise at its
    mean. do() and conditioning act on the labels: `sample(n, do=..., given=...)`. A GAN has no way back from a picture to the noise that made
    it, so there is no abduction, and `counterfactual` stays refused: it answers what pictures there would be, never what this one would be.
    """

    name = "causal-gan"
    title = "CausalGAN (Kocaoglu et al. 2018): labels by a known causal graph, pictures that obey them, do() on samples"
    Settings = CausalGANSettings
    settings: CausalGANSettings
    given_graph: CausalGraph
    is_binary: Tensor

    def __init__(self, spec: Spec, *, graph: CausalGraph | None = None, seed: int = 0, **settings: Any) -> None:
        need_labels(self.name, spec)
        if not isinstance(graph, CausalGraph):
            raise UsageError(
                "causal-gan needs a known graph of the labels: pass graph= (a CausalGraph); on the command line --graph FILE, or --graph true for "
                "data with a known graph."
            )
        self.given_graph = graph.subgraph(spec.names)
        _ = self.given_graph.topological_order  # refuses a cycle
        super().__init__(spec, seed=seed, **settings)

    def build(self) -> None:
        settings, shape, n = self.settings, self.spec.image_shape, len(self.spec.variables)
        self.controller = CausalController(self.spec, self.given_graph, settings)
        self.critic = leaky_net(n, settings.critic_hidden, settings.controller_layers, 1)
        self.generator = PictureGenerator(settings.noise + n, shape, settings.channels, settings.hidden)

        def reader(outputs: int) -> nn.Module:
            return nn.Sequential(Trunk(shape, settings.channels, settings.hidden), nn.Linear(settings.hidden, outputs))

        self.discriminator, self.labeler, self.anti_labeler = reader(1), reader(n), reader(n)
        self.register_buffer("is_binary", torch.tensor([v.kind == "binary" for v in self.spec.variables]))
        self.eval()  # kept statistics in every query; only the training loop switches to those of a batch

    # ---- the labels (sec. 4) ----------------------------------------------------------------------------------------
    def draw_label_noise(self, n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
        """(n, labels, d) from U(-1, 1)."""
        return uniform(n, len(self.spec.variables), self.settings.controller_noise, like=like, generator=generator)

    def critic_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """WGAN-GP on labels: critic(generated) - critic(real) + lambda * penalty."""
        real = self.spec.normalise(batch["labels"])
        with torch.no_grad():
            generated = self.controller(self.draw_label_noise(len(real), real, generator))
        distance = self.critic(real).mean() - self.critic(generated).mean()
        penalty = gradient_penalty(self.critic, real, generated, generator).mean()
        return {"loss": self.settings.penalty_weight * penalty - distance, "distance": distance, "penalty": penalty}

    def controller_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """What the critic holds against generated labels."""
        labels = batch["labels"]
        generated = self.controller(self.draw_label_noise(len(labels), labels, generator))
        return {"loss": -self.critic(generated).mean()}

    # ---- the pictures (sec. 5) --------------------------------------------------------------------------------------
    def label_inputs(self, labels: Tensor, position: Tensor | None = None) -> Tensor:
        """Labels (B, n), normalised, as the generator sees them: a continuous one as it is, a binary one as the logit of a probability.

        The probability is 0.3 or 0.7 and further out by truncated exponential noise, drawn with `position` (B, n) uniform in (0, 1), or at its
        mean without; so it never says more than its side. A soft label between -1 and +1, as the labeler gives, lies between the two.
        """
        most = 1 - math.exp(-NOISE_RATE * NOISE_LIMIT)
        mean = 1 / NOISE_RATE - NOISE_LIMIT * (1 - most) / most
        noise = mean if position is None else -torch.log1p(-most * position) / NOISE_RATE
        return torch.where(self.is_binary, torch.logit(0.5 + labels.clamp(-1, 1) * (CERTAINTY + noise)), labels)

    def draw_pictures(self, n: int, like: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Pictures (n, C, H, W) of labels from the controller, and those labels (n, labels), normalised."""
        with torch.no_grad():
            labels = self.controller(self.draw_label_noise(n, like, generator), hard=True)
        position = torch.rand(labels.shape, device=like.device, generator=generator)
        noise = uniform(n, self.settings.noise, like=like, generator=generator)
        return self.generator(torch.cat([noise, self.label_inputs(labels, position)], dim=1)), labels

    def misfit(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """How wrong a labeler's outputs (B, n) are, (B,): cross-entropy of a binary label's logit, squared error of a continuous label."""
        return torch.where(self.is_binary, functional.softplus(-labels * outputs), (outputs - labels).square()).sum(1)

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """The generator's: -log D(x) + labeler's loss - k_t * anti-labeler's loss, with k_t = exp(-t / 3000) (Eq. 4)."""
        images = batch["images"]
        pictures, labels = self.draw_pictures(len(images), images, generator)
        adversarial = generator_loss(self.discriminator(pictures)).mean()
        labeler = self.misfit(self.labeler(pictures), labels).mean()
        anti_labeler = self.misfit(self.anti_labeler(pictures), labels).mean()
        fading = torch.exp(-batch["step"] / self.settings.anti_labeler_steps)
        total = adversarial + labeler - fading * anti_labeler
        return {"loss": total, "adversarial": adversarial, "labeler": labeler, "anti_labeler": anti_labeler}

    def readers_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """The discriminator's, the labeler's on real pictures and the anti-labeler's on generated ones; each has weights of its own."""
        images, real_labels = batch["images"], self.spec.normalise(batch["labels"])
        with torch.no_grad():
            pictures, labels = self.draw_pictures(len(images), images, generator)
        adversarial = discriminator_loss(self.discriminator(images), self.discriminator(pictures)).mean()
        labeler = self.misfit(self.labeler(images), real_labels).mean()
        anti_labeler = self.misfit(self.anti_labeler(pictures), labels).mean()
        total = adversarial + labeler + anti_labeler
        return {"loss": total, "adversarial": adversarial, "labeler": labeler, "anti_labeler": anti_labeler}

    # ---- training ---------------------------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """The controller on labels alone, then the pictures with the controller as it is."""
        settings = self.settings
        labels = Phase(
            "labels",
            (
                Player(self.critic_loss, ("critic.",), "critic", learning_rate=settings.controller_rate, betas=BETAS, steps=settings.critic_steps),
                Player(self.controller_loss, ("controller.",), "controller", learning_rate=settings.controller_rate, betas=BETAS),
            ),
            epochs=settings.controller_epochs,
            batch_size=settings.controller_batch,
            schedule="cosine",
            prepare=self.labels_alone,
        )
        betas = (settings.momentum, 0.999)
        readers = Player(
            self.readers_loss, ("discriminator.", "labeler.", "anti_labeler."), "readers", learning_rate=settings.reader_rate, betas=betas
        )
        drawer = Player(self.loss, ("generator.",), "generator", learning_rate=settings.generator_rate, betas=betas, steps=settings.generator_steps)
        pictures = Phase(
            "pictures",
            (readers, drawer),
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            after_step=lambda: update_statistics(self.generator),
        )
        return [labels, pictures]

    def labels_alone(self, data: Dataset, seed: int) -> Dataset:
        """The data of the controller's phase: no pictures, and few labels repeated, so that an epoch has its `controller_batches`."""
        times = math.ceil(self.settings.controller_batches * self.settings.controller_batch / len(data.train))
        return replace(data, train=Split(labels=data.train.labels.repeat(times, 1)), validation=Split(labels=data.validation.labels))

    # ---- queries ----------------------------------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        return self.spec.names

    @property
    def graph(self) -> CausalGraph:
        """The graph that was given."""
        return self.given_graph

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to the labeler's estimate of their labels, (B, n, 1), normalised; a binary one lies between -1 and +1."""
        outputs = in_batches(self.labeler, self.as_images(images))
        return torch.where(self.is_binary, torch.tanh(outputs / 2), outputs)[..., None]  # 2 sigmoid(o) - 1

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Normalised labels (B, n, 1) to pictures, with all other noise at its mean."""
        labels = self.as_latents(latents)
        if labels.shape[2] != 1:
            raise QueryError(f"the labels of {self.name} have one dim each, these have {labels.shape[2]}; give them as (images, labels, 1).")
        noise = labels.new_zeros(len(labels), self.settings.noise)
        return in_batches(self.generator, torch.cat([noise, self.label_inputs(labels[..., 0])], dim=1))

    @torch.no_grad()
    def sample(self, n: int, do: Do | None = None, *, given: Mapping[str, Any] | None = None, seed: int | None = None) -> Tensor:
        """`n` pictures (n, C, H, W) of labels as `sample_labels` draws them; a seed gives the same noise with and without `do`."""
        generator = self.sampling_generator(n, seed)
        noise, position = self._draw_picture_noise(n, generator)
        labels = self.spec.normalise(self._draw_labels(n, do, given, generator))
        return in_batches(self.generator, torch.cat([noise, self.label_inputs(labels, position)], dim=1))

    def _draw_picture_noise(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The generator's own noise and that of its label inputs; drawn before the labels, so that no condition on them changes it."""
        noise = uniform(n, self.settings.noise, like=torch.zeros(()), generator=generator)
        position = torch.rand(n, len(self.spec.variables), generator=generator)
        return noise.to(self.device), position.to(self.device)

    @torch.no_grad()
    def sample_labels(self, n: int, do: Do | None = None, *, given: Mapping[str, Any] | None = None, seed: int | None = None) -> Tensor:
        """(n, variables) labels in their own units, those of the pictures that `sample` draws with the same arguments.

        Arguments:
            do: overwrites labels before their effects are computed: a number in the variable's own units, a category, one number per sample, or a
                callable of the value it would have had. Labels that are no descendants stay bit for bit what they are without it.
            given: keeps only samples in which this holds: 0, 1 or a category of a binary variable, an interval (low, high) of a continuous one.
                With `do`, what is seen in the world after the intervention.
        """
        generator = self.sampling_generator(n, seed)
        self._draw_picture_noise(n, generator)
        return self._draw_labels(n, do, given, generator)

    def _draw_labels(self, n: int, do: Do | None, given: Mapping[str, Any] | None, generator: torch.Generator) -> Tensor:
        changes = interventions(do, self.spec.names, self.spec.categories)
        if not given:
            return self._walk(n, changes, generator)
        intervals = conditions(given, self.spec)
        for name, value in (do or {}).items():
            if not callable(value) and not isinstance(value, str) and np.ndim(value):
                raise QueryError(f"do({name}=...) with one number per sample cannot be combined with given=; give one number, or ask for each alone.")
        accepted, found, tried = [], 0, 0
        while found < n:
            if tried >= MOST_PROPOSALS * max(n, FEWEST_ACCEPTED):
                asked = ", ".join(f"{name} in {interval}" for name, interval in intervals.items())
                raise QueryError(f"given: {asked} held in {found} of {tried} draws of the labels, too few; ask for something less rare, or use do=.")
            labels = self._walk(PROPOSALS, changes, generator)
            columns = [labels[:, self.spec.names.index(name)] for name in intervals]
            holds = [(low <= column) & (column <= high) for column, (low, high) in zip(columns, intervals.values(), strict=True)]
            accepted.append(labels[torch.stack(holds).all(0)])
            found, tried = found + len(accepted[-1]), tried + PROPOSALS
        return torch.cat(accepted)[:n]

    def _walk(self, n: int, changes: Mapping[str, Any], generator: torch.Generator) -> Tensor:
        """(n, variables) labels of fresh noise, had the changes been made, in their own units."""
        names, variables, graph = self.spec.names, self.spec.variables, self.graph
        noise = self.draw_label_noise(n, torch.zeros(()), generator).to(self.device)

        def compute(name: str, values: dict[str, Tensor]) -> Tensor:
            i = names.index(name)
            causes = {j: variables[j].normalise(values[names[j]]) for j in self.controller.parents[i]}
            return variables[i].denormalise(self.controller.one(i, causes, noise, hard=True))

        labels: dict[str, Tensor] = {}
        for name in graph.topological_order:
            labels[name] = compute(name, labels)
        labels = propagate(labels, graph.topological_order, graph.parents, compute, changes)
        return torch.stack([labels[name] for name in names], dim=1)


def conditions(given: Mapping[str, Any], spec: Spec) -> dict[str, tuple[float, float]]:
    """Check what is given and turn it into closed intervals in the variables' own units."""
    intervals: dict[str, tuple[float, float]] = {}
    for name, value in given.items():
        if name not in spec.names:
            raise unknown("variable in given", name, spec.names, QueryError)
        if spec.variable(name).kind == "binary":
            code = float(interventions({name: value}, spec.names, spec.categories)[name](torch.zeros(1)))
            if code not in (0, 1):
                raise QueryError(f"given {name}={value!r}: a binary variable is 0 or 1.")
            intervals[name] = (code, code)
            continue
        try:
            low, high = (float(end) for end in value)
        except (TypeError, ValueError):
            low, high = math.nan, math.nan
        if not low < high:
            raise QueryError(
                f"given {name}={value!r}: a continuous variable needs an interval (low, high) with low below high, as one value never comes."
            )
        intervals[name] = (low, high)
    return intervals
