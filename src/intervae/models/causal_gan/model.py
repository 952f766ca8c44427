"""CausalGAN (Kocaoglu et al., ICLR 2018): causal controller, generator, labelers.

The controller is trained on the labels alone as a Wasserstein GAN (sec. 4). The generator is
trained against a discriminator, with a labeler and against an anti-labeler (sec. 5). Shapes: B
images, n labels. Reduction: sum over labels, mean over the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from intervae.causal.do import Do
from intervae.causal.graph import CausalGraph
from intervae.causal.known_graph import as_graph
from intervae.data import Batch, Spec
from intervae.errors import QueryError, UsageError
from intervae.models.base import Model
from intervae.models.batches import in_batches
from intervae.models.causal_gan.controller import CausalController
from intervae.models.causal_gan.label_sampling import sample_controller
from intervae.models.causal_gan.labels import label_inputs, label_loss
from intervae.models.causal_gan.presets import CAUSAL_GAN
from intervae.models.causal_gan.schedule import training_phases
from intervae.models.causal_gan.settings import CausalGANSettings
from intervae.models.checks import need_labels
from intervae.models.phases import Phase, Terms
from intervae.nets.adversarial import (
    DiscriminatorTrunk,
    ImageGenerator,
    discriminator_loss,
    generator_loss,
    gradient_penalty,
    leaky_mlp,
    uniform_noise,
)


class CausalGAN(Model):
    """CausalGAN over the labelled variables of `spec`.

    Arguments:
        spec: `data.spec`; its variables must be continuous or binary.
        graph: the known `CausalGraph` of the labels; it is not learned.
        settings: see `CausalGANSettings`.

    Latents are the normalised labels (B, n, 1): `encode` estimates them with the labeler, `decode`
    generates images with the noise at its mean. do() and evidence act on the labels of `sample`.
    A GAN does not infer the noise of an image, so there is no abduction and no counterfactual.
    """

    name = "causal-gan"
    title = (
        "CausalGAN (Kocaoglu et al. 2018): labels by a known causal graph, images that obey them, "
        "do() on samples"
    )
    Settings = CausalGANSettings
    presets = CAUSAL_GAN
    settings: CausalGANSettings
    known_graph: CausalGraph
    is_binary: Tensor

    def __init__(self, spec: Spec, *, graph: Any = None, seed: int = 0, **settings: Any) -> None:
        need_labels(self.name, spec)
        graph = as_graph(graph, spec.names)
        if not isinstance(graph, CausalGraph):
            raise UsageError(
                "causal-gan needs a known graph of the labels: pass graph= (a CausalGraph); on "
                "the command line --graph FILE, or --graph true for data with a known graph."
            )
        self.known_graph = graph.subgraph(spec.names)
        _ = self.known_graph.topological_order  # raises for a cycle
        super().__init__(spec, seed=seed, **settings)

    def build(self) -> None:
        settings, shape, n = self.settings, self.spec.image_shape, len(self.spec.variables)
        self.controller = CausalController(self.spec, self.known_graph, settings)
        self.critic = leaky_mlp(n, settings.critic_hidden, settings.controller_layers, 1)
        self.generator = ImageGenerator(
            settings.noise + n, shape, settings.channels, settings.hidden
        )

        def classifier(outputs: int) -> nn.Module:
            trunk = DiscriminatorTrunk(shape, settings.channels, settings.hidden)
            return nn.Sequential(trunk, nn.Linear(settings.hidden, outputs))

        self.discriminator = classifier(1)
        self.labeler, self.anti_labeler = classifier(n), classifier(n)
        self.register_buffer(
            "is_binary", torch.tensor([v.kind == "binary" for v in self.spec.variables])
        )
        self.eval()  # queries use running statistics; only training uses those of a batch

    # ---- labels (sec. 4) -------------------------------------------------------------------
    def draw_label_noise(self, n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
        """Return noise of the controller from U(-1, 1), (n, labels, d)."""
        shape = (n, len(self.spec.variables), self.settings.controller_noise)
        return uniform_noise(*shape, like=like, generator=generator)

    def critic_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return the WGAN-GP loss: critic(generated) - critic(real) + lambda * penalty."""
        real = self.spec.normalise(batch["labels"])
        with torch.no_grad():
            generated = self.controller(self.draw_label_noise(len(real), real, generator))
        distance = self.critic(real).mean() - self.critic(generated).mean()
        penalty = gradient_penalty(self.critic, real, generated, generator).mean()
        return {
            "loss": self.settings.penalty_weight * penalty - distance,
            "distance": distance,
            "penalty": penalty,
        }

    def controller_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return -critic(generated labels)."""
        labels = batch["labels"]
        generated = self.controller(self.draw_label_noise(len(labels), labels, generator))
        return {"loss": -self.critic(generated).mean()}

    # ---- images (sec. 5) -------------------------------------------------------------------
    def generate(
        self, n: int, like: Tensor, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Return images (n, C, H, W) and their normalised labels (n, labels)."""
        with torch.no_grad():
            labels = self.controller(self.draw_label_noise(n, like, generator), hard=True)
        position = torch.rand(labels.shape, device=like.device, generator=generator)
        noise = uniform_noise(n, self.settings.noise, like=like, generator=generator)
        images = self.generator(
            torch.cat([noise, label_inputs(labels, self.is_binary, position)], dim=1)
        )
        return images, labels

    def loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return the generator's loss (Eq. 4).

        -log D(x) + labeler's loss - k_t * anti-labeler's loss, with k_t = exp(-t / 3000).
        """
        images = batch["images"]
        generated, labels = self.generate(len(images), images, generator)
        adversarial = generator_loss(self.discriminator(generated)).mean()
        labeler = label_loss(self.labeler(generated), labels, self.is_binary).mean()
        anti_labeler = label_loss(self.anti_labeler(generated), labels, self.is_binary).mean()
        weight = torch.exp(-batch["step"] / self.settings.anti_labeler_steps)
        return {
            "loss": adversarial + labeler - weight * anti_labeler,
            "adversarial": adversarial,
            "labeler": labeler,
            "anti_labeler": anti_labeler,
        }

    def discriminators_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """Return the losses of discriminator, labeler (real images) and anti-labeler (generated).

        The three networks share no weights.
        """
        images, real_labels = batch["images"], self.spec.normalise(batch["labels"])
        with torch.no_grad():
            generated, labels = self.generate(len(images), images, generator)
        adversarial = discriminator_loss(
            self.discriminator(images), self.discriminator(generated)
        ).mean()
        labeler = label_loss(self.labeler(images), real_labels, self.is_binary).mean()
        anti_labeler = label_loss(self.anti_labeler(generated), labels, self.is_binary).mean()
        return {
            "loss": adversarial + labeler + anti_labeler,
            "adversarial": adversarial,
            "labeler": labeler,
            "anti_labeler": anti_labeler,
        }

    def phases(self) -> list[Phase]:
        return training_phases(self)

    # ---- queries ---------------------------------------------------------------------------
    @property
    def latent_names(self) -> tuple[str, ...]:
        return self.spec.names

    @property
    def graph(self) -> CausalGraph:
        """The known graph."""
        return self.known_graph

    @torch.no_grad()
    def encode(self, images: Any, labels: Any = None) -> Tensor:
        """Images (B, C, H, W) to the labeler's estimate of the normalised labels, (B, n, 1).

        Binary labels lie between -1 and +1.
        """
        outputs = in_batches(self.labeler, self.as_images(images))
        soft = torch.tanh(outputs / 2)  # 2 sigmoid(output) - 1
        return torch.where(self.is_binary, soft, outputs)[..., None]

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Normalised labels (B, n, 1) to images (B, C, H, W), with the noise at its mean."""
        labels = self.as_latents(latents)
        if labels.shape[2] != 1:
            raise QueryError(
                f"the labels of {self.name} have one dim each, not {labels.shape[2]}; "
                "give them as (images, labels, 1)."
            )
        noise = labels.new_zeros(labels.shape[0], self.settings.noise)
        inputs = torch.cat([noise, label_inputs(labels[..., 0], self.is_binary)], dim=1)
        return in_batches(self.generator, inputs)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        do: Do | None = None,
        *,
        evidence: Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Return `n` images (n, C, H, W) of the labels that `sample_labels` returns.

        A seed gives the same noise with and without `do`.
        """
        generator = self.sampling_generator(n, seed)
        noise, position = self._draw_image_noise(n, generator)
        labels = self.spec.normalise(self._draw_labels(n, do, evidence, generator))
        inputs = torch.cat([noise, label_inputs(labels, self.is_binary, position)], dim=1)
        return in_batches(self.generator, inputs)

    @torch.no_grad()
    def sample_labels(
        self,
        n: int,
        do: Do | None = None,
        *,
        evidence: Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Return the labels (n, variables) of `sample` with the same arguments, in own units.

        Arguments:
            do: name -> number in the variable's own units, category, one number per sample, or
                callable of the current value. Labels that are no descendants do not change.
            evidence: only samples in which this holds: name -> 0, 1 or a category of a binary
                variable, an interval (low, high) of a continuous one. It holds after do().
        """
        generator = self.sampling_generator(n, seed)
        self._draw_image_noise(n, generator)
        return self._draw_labels(n, do, evidence, generator)

    def _draw_image_noise(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the noise of the generator and of its label inputs.

        It is drawn before the labels, so that evidence on them does not change it.
        """
        noise = uniform_noise(n, self.settings.noise, like=torch.zeros(()), generator=generator)
        position = torch.rand(n, len(self.spec.variables), generator=generator)
        return noise.to(self.device), position.to(self.device)

    def _draw_labels(
        self,
        n: int,
        do: Do | None,
        evidence: Mapping[str, Any] | None,
        generator: torch.Generator,
    ) -> Tensor:
        def draw_noise(count: int) -> Tensor:
            return self.draw_label_noise(count, torch.zeros(()), generator).to(self.device)

        return sample_controller(
            self.controller, self.spec, self.graph, n, do, evidence, draw_noise
        )
