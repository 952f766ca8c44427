"""Queries of a trained CT-VAE: act, attribute (Gendron et al. 2023, Eq. 5), explain, and the graph,
mask and changes of an action (Fig. 6).

Shapes: B images, n code positions, S codes, A actions.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from intervae.data.transitions import action_number
from intervae.errors import QueryError
from intervae.models.batches import QUERY_BATCH, in_batches
from intervae.models.ct_vae.augmentations import (
    Augmentation,
    all_augmentations,
    mean_over_augmentations,
)
from intervae.models.ct_vae.explanations import Explanations, best_explanations
from intervae.models.ct_vae.graph import NO_ACTION
from intervae.models.ct_vae.graph_noise import GraphNoiseSamples
from intervae.models.ct_vae.mcq_vae import MCQVAE
from intervae.models.ct_vae.settings import CTVAESettings
from intervae.models.ct_vae.transition import CausalTransition
from intervae.settings import check_whole

UNSEEN_CODE = 0.01  # probability that an unrelated image has a code drawn uniformly


class ActionMechanism(NamedTuple):
    """Mean graph, intervention mask and code changes of an action (Fig. 6), as probabilities."""

    edges: Tensor  # (n, n) edges, row i for y_i
    mask: Tensor  # (n,) that a variable has the action's parents, not those of no action
    changes: Tensor  # (n,) that a code changes


class ActionQueries(MCQVAE):
    """Queries about actions; `CTVAE` adds construction and training."""

    settings: CTVAESettings
    transition: CausalTransition
    mirror_action: Tensor  # (A,) number of each action as seen in a mirror
    usual: Tensor  # (A,) log-likelihood that most pairs of an action exceed

    # ---- act: images after an action -------------------------------------------------------------
    @torch.no_grad()
    def act(
        self,
        images: Any,
        action: Any,
        times: int = 1,
        *,
        samples: int | None = None,
        seed: int = 0,
        augment: bool = True,
    ) -> Tensor:
        """Return images (B, C, H, W) after an action was applied `times` times.

        The decoder gets the expected code vectors; the next step starts from the most probable
        codes.

        Arguments:
            images: (B, C, H, W).
            action: name or number.
            samples, seed: as in `attribute`.
            augment: with `mirror`, average the predictions for the image and its mirror image;
                False uses the image alone, in half the time.
        """
        return self.act_repeatedly(
            images, action, times, samples=samples, seed=seed, augment=augment
        )[:, -1]

    @torch.no_grad()
    def act_repeatedly(
        self,
        images: Any,
        action: Any,
        times: int,
        *,
        samples: int | None = None,
        seed: int = 0,
        augment: bool = True,
    ) -> Tensor:
        """Return images after 1, 2, ..., `times` applications, (B, times, C, H, W) (Fig. 5)."""
        check_whole(1, QueryError, times=times)
        self.check_trained()
        pixels, number = self.as_images(images), self.action_number(action)
        graphs = self._graph_noise(samples, seed)
        augmentations = self.augmentations()[: None if augment else 1]
        numbers = {False: number, True: int(self.mirror_action[number])}

        def predict(augmentation: Augmentation, augmented: Tensor) -> Tensor:
            return self._act(augmented, numbers[augmentation.mirrored], times, graphs)

        return mean_over_augmentations(augmentations, pixels, predict)

    def augmentations(self) -> list[Augmentation]:
        """Return the augmentations that `act` averages over: the identity and, with `mirror`, a
        mirror image."""
        return all_augmentations(mirror=bool(self.settings.mirror), shift=0)

    def _act(self, images: Tensor, number: int, times: int, graphs: GraphNoiseSamples) -> Tensor:
        """Return `act_repeatedly` without augmentation."""
        codes, after = self.codes(images), []
        for _ in range(times):
            probabilities = in_batches(
                lambda chunk: self._probabilities(
                    chunk, torch.full_like(chunk[:, 0], number), graphs
                ),
                codes,
            )
            after.append(in_batches(self._decode_expected, probabilities))
            codes = probabilities.argmax(2)
        return torch.stack(after, dim=1)

    def _decode_expected(self, probabilities: Tensor) -> Tensor:
        """Return images (B, C, H, W) of expected codes, from code probabilities (B, n, S).

        With decoded_codes=probable, of the most probable codes.
        """
        if self.settings.decoded_codes == "probable":
            return self.decode_codes(probabilities.argmax(2))
        return torch.sigmoid(self.decode_vectors(self.quantiser.mean(probabilities)))

    def _probabilities(self, codes: Tensor, action: Tensor, graphs: GraphNoiseSamples) -> Tensor:
        """Return code probabilities (B, n, S) after actions (B,), averaged over graphs."""
        return torch.stack(
            [
                self.transition.probabilities(codes, action, noise)
                for noise in graphs.for_batch(len(codes))
            ]
        ).mean(0)

    # ---- attribute and explain: the action between two images ------------------------------------
    @torch.no_grad()
    def attribute(
        self, before: Any, after: Any, *, samples: int | None = None, seed: int = 0
    ) -> Tensor:
        """Return the probability (B, A) of each of `spec.actions` between images before and after.

        The probabilities sum to 1 even where no action explains the pair; see `explain`.

        Arguments:
            before, after: (B, C, H, W).
            samples: sampled graphs to average over; 0 for the expected graph; by default the
                setting `graph_samples`.
            seed: of the sampled graphs.
        """
        graphs = self._graph_noise(samples, seed)
        return in_batches(
            lambda x, y: self._log_likelihood(x, y, None, graphs).softmax(1),
            *self._codes_of_pairs(before, after),
        )

    @torch.no_grad()
    def explain(
        self, before: Any, after: Any, *, samples: int | None = None, seed: int = 0
    ) -> Explanations:
        """Return how well each action, no action and chance explain the images after.

        Arguments: as in `attribute`.
        """
        graphs = self._graph_noise(samples, seed)
        frequencies = (1 - UNSEEN_CODE) * self.marginals + UNSEEN_CODE / self.settings.codes
        log_frequencies = frequencies.log()  # (n, S)

        def log_likelihoods(x: Tensor, y: Tensor) -> Tensor:  # (b, A + 2)
            none = torch.full_like(x[:, 0], NO_ACTION)
            chance = log_frequencies.expand(len(y), -1, -1).gather(2, y[..., None])[..., 0]
            scores = [
                self._log_likelihood(x, y, None, graphs),
                self._log_likelihood(x, y, none, graphs),
                chance.sum(1, keepdim=True),
            ]
            return torch.cat(scores, dim=1) / self.positions

        scores = in_batches(log_likelihoods, *self._codes_of_pairs(before, after))
        return Explanations(scores[:, :-2], scores[:, -2], scores[:, -1])

    def best_explanation(self, before: Any, after: Any) -> list[str]:
        """Return what explains each pair of images best; see `best_explanations`."""
        same = (self.codes(before) == self.codes(after)).all(1)
        return best_explanations(self.explain(before, after), same, self.usual)

    def _log_likelihood(
        self, before: Tensor, after: Tensor, action: Tensor | None, graphs: GraphNoiseSamples
    ) -> Tensor:
        """Return log p(codes after | codes before, a), (B, G); the mean of p over the graphs."""
        scores = [
            self.transition.score(before, after, action, noise).log_likelihood
            for noise in graphs.for_batch(len(before))
        ]
        return torch.stack(scores).logsumexp(0) - math.log(len(scores))

    def _graph_noise(self, samples: int | None = None, seed: int = 0) -> GraphNoiseSamples:
        samples = self.settings.graph_samples if samples is None else samples
        check_whole(0, QueryError, samples=samples, seed=seed)
        return GraphNoiseSamples(self.transition, samples, seed, self.device)

    def _codes_of_pairs(self, before: Any, after: Any) -> tuple[Tensor, Tensor]:
        """Return the codes (B, n) of images before and after."""
        x, y = self.codes(before), self.codes(after)
        if len(x) != len(y):
            raise QueryError(
                f"there are {len(x)} images before and {len(y)} after; pass the same number."
            )
        return x, y

    # ---- what an action does to the codes --------------------------------------------------------
    @torch.no_grad()
    def action_mechanism(self, images: Any, action: Any = None) -> ActionMechanism:
        """Return graph, mask and code changes of an action, averaged over images (Fig. 6).

        Arguments:
            action: name or number; None for no action.
        """
        codes = self.codes(images)
        number = NO_ACTION if action is None else self.action_number(action)
        n = self.positions
        means = [torch.zeros(shape, device=self.device) for shape in ((n, n), (n,), (n,))]
        for chunk in codes.split(QUERY_BATCH):
            numbers = torch.full_like(chunk[:, 0], number)
            graph = self.transition.graph(self.transition.nodes(chunk), numbers)
            changes = self.change_probability(chunk, numbers)
            for mean, values in zip(
                means, (graph.edges[:, 0], graph.mask[:, 0], changes), strict=True
            ):
                mean += values.sum(0) / len(codes)
        return ActionMechanism(*means)

    @torch.no_grad()
    def change_probability(
        self, codes: Tensor, action: Tensor, *, samples: int | None = None, seed: int = 0
    ) -> Tensor:
        """Return the probability (B, n) that each code (B, n) changes under actions (B,).

        Arguments:
            action: numbers.
            samples, seed: as in `attribute`.
        """
        graphs = self._graph_noise(samples, seed)
        probabilities = self._probabilities(codes, action, graphs)
        return 1 - probabilities.gather(2, codes[..., None])[..., 0]

    def action_number(self, action: Any) -> int:
        """Return the number of an action given by name or number."""
        return action_number(self.spec.actions, action, QueryError)
