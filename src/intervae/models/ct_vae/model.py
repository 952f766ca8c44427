"""CT-VAE (Gendron et al. 2023, 3.5): construction and training.

Phases: the codebooks (MCQ-VAE); the transition layer on the codes of all images, in three modes,
standard (Eq. 6-8), action (Eq. 9) and causal (Eq. 10), and its sparse graphs (`sparsity.py`); the
decoder on predicted codes. `queries.py` holds what a trained model answers.

Shapes: B pairs, n code positions, A actions, V augmentations. Reduction: sum over codes and edges,
mean over the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from intervae.data import Batch, Dataset, Split
from intervae.data.transitions import TransitionSplit
from intervae.models.batches import in_batches
from intervae.models.ct_vae.augmentations import Augmentation, all_augmentations, in_mirror
from intervae.models.ct_vae.checks import check_actions, check_pairs, training_notes
from intervae.models.ct_vae.presets import CT_VAE
from intervae.models.ct_vae.queries import ActionQueries
from intervae.models.ct_vae.settings import CTVAESettings
from intervae.models.ct_vae.sparsity import GraphPrices, graph_phase
from intervae.models.ct_vae.transition import CausalTransition
from intervae.models.phases import Phase, Player, Terms
from intervae.nets.likelihood import negative_log_likelihood
from intervae.notes import Note

USUAL_QUANTILE = 0.01  # of the log-likelihood of an action's validation pairs


class CTVAE(ActionQueries):
    """CT-VAE: images after an action, and the action between two images.

    Arguments:
        spec: `data.spec` of data with transitions; the model knows its actions. Labels are not
            used.
        settings: see `CTVAESettings`.
    """

    name = "ct-vae"
    title = "CT-VAE (Gendron et al. 2023): causal transitions between codes of images, by action"
    Settings: ClassVar[type] = CTVAESettings
    presets = CT_VAE
    optional_tensors: ClassVar[frozenset[str]] = frozenset({"usual"})
    is_mirrored: Tensor  # (V,) whether a training augmentation is mirrored

    def build(self) -> None:
        actions, settings = self.spec.actions, self.settings
        check_actions(self.name, actions)
        super().build()
        self.transition = CausalTransition(
            self.positions,
            settings.codebooks,
            settings.codes,
            len(actions),
            width=settings.width,
            heads=settings.heads,
            rounds=settings.rounds,
            hidden=settings.hidden,
            edge_width=settings.edge_width,
            noise=settings.noise,
            prior=settings.edge_prior,
            edge_network=settings.edge_network,
            dependency_form=settings.dependency_form,
            discrete=settings.sparse_epochs > 0,
            masked_action=settings.masked_action,
        )
        if settings.sparse_epochs:
            self.prices = GraphPrices(self.positions)
        mirrored = [actions.index(in_mirror(name, settings.mirror)) for name in actions]
        flags = [augmentation.mirrored for augmentation in self.training_augmentations()]
        self.register_buffer("mirror_action", torch.tensor(mirrored), persistent=False)
        self.register_buffer("is_mirrored", torch.tensor(flags), persistent=False)
        self.register_buffer("usual", torch.full((len(actions),), -math.inf))

    def training_augmentations(self) -> list[Augmentation]:
        """Return the augmentations of training pairs, by the settings `mirror` and `shift`."""
        return all_augmentations(mirror=bool(self.settings.mirror), shift=self.settings.shift)

    def check(self, data: Dataset) -> None:
        check_pairs(self.name, self.spec, self.settings, data)

    def notes(self, data: Dataset) -> list[Note]:
        return training_notes(self.settings, self.grid, data)

    def figures(self, data: Dataset) -> dict[str, Callable[[Path], None]]:
        """Return figures of repeated actions (Fig. 5) and of masks and graphs (Fig. 6)."""
        from intervae.models.ct_vae.figures import draw_actions, draw_mechanisms

        return {
            "actions.png": partial(draw_actions, self, data),
            "mechanisms.png": partial(draw_mechanisms, self, data),
        }

    # ---- training phases -------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """Codebooks, marginals, transition layer, sparse graphs, decoder, `usual`."""
        settings = self.settings
        transition = Player(
            self.transition_loss,
            ("transition.",),
            optimiser=settings.transition_optimiser,
            learning_rate=settings.transition_rate,
            weight_decay=settings.weight_decay,
            clip=settings.clip,
        )
        decoder = Player(self.picture_loss, ("decoder.",), learning_rate=settings.decoder_rate)
        transitions = Phase(
            "transitions",
            (transition,),
            epochs=settings.transition_epochs,
            batch_size=settings.transition_batch,
            schedule=settings.transition_schedule,
            decay=settings.transition_decay,
            prepare=self.encode_pairs,
            replaces_data=True,
            keep_best=True,
        )
        pictures = replace(
            transitions,
            name="pictures",
            players=(decoder,),
            epochs=settings.decoder_epochs,
            prepare=self.encode_pairs_with_images,
        )
        return [
            *super().phases(),
            transitions,
            *([graph_phase(self, transitions)] if settings.sparse_epochs else []),
            *([pictures] if settings.decoder_epochs else []),
            Phase("usual", prepare=self.measure_usual),
        ]

    def encode_pairs(self, data: Dataset, seed: int) -> Dataset:
        """Return pairs over the codes of each image: (N, n), of training images (N, V, n)."""
        pairs = _with_pairs(data, lambda split: Split(codes=self.split_codes(split)))
        augmentations = self.training_augmentations()
        if len(augmentations) == 1:
            return pairs
        codes = [pairs.train.fields["codes"]]
        codes += [self.split_codes(data.train, each) for each in augmentations[1:]]
        assert data.transitions is not None
        train = TransitionSplit(Split(codes=torch.stack(codes, dim=1)), data.transitions.train)
        return replace(pairs, train=train)

    def encode_pairs_with_images(self, data: Dataset, seed: int) -> Dataset:
        """Return pairs over images and their codes (N, n), without augmentation."""

        def add_codes(split: Split) -> Split:
            return split.with_fields({**split.fields, "codes": self.split_codes(split)})

        return _with_pairs(data, add_codes)

    def _augmented_pairs(
        self, batch: Batch, generator: torch.Generator | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return codes before and after (B, n) and actions (B,), each pair randomly augmented."""
        x, y, action = batch["codes"], batch["after_codes"], batch["action"]
        if x.ndim == 3:  # (B, V, n)
            rows = torch.arange(len(x), device=x.device)
            chosen = torch.randint(x.shape[1], x.shape[:1], generator=generator, device=x.device)
            x, y = x[rows, chosen], y[rows, chosen]
            action = torch.where(self.is_mirrored[chosen], self.mirror_action[action], action)
        return x.long(), y.long(), action

    # ---- losses ----------------------------------------------------------------------------------
    def transition_loss(
        self,
        batch: Batch,
        generator: torch.Generator | None = None,
        noise_scale: Tensor | None = None,
    ) -> Terms:
        """Loss of the transition layer in standard, action and causal mode, Eq. 6-15.

        In training, the first `causal_share` of the (shuffled) batch is scored in all modes under
        sampled graphs (of noise times `noise_scale`), the rest in action mode. Otherwise all pairs
        are scored in all modes under the graph of queries.
        """
        settings, layer = self.settings, self.transition
        x, y, action = self._augmented_pairs(batch, generator)
        noise = layer.draw_noise(len(x), generator, x.device) if self.training else None
        if noise is not None and noise_scale is not None:
            noise = noise.scaled(noise_scale)
        count = max(1, round(settings.causal_share * len(x))) if self.training else len(x)
        first, rest = slice(0, count), slice(count, None)
        modes = layer.score_modes(
            x[first], y[first], action[first], None if noise is None else noise.rows(first)
        )
        likelihood = [modes.actions.gather(1, action[first, None])[:, 0]]
        # regularisers (b,) of the graphs under no action, and under the true one
        none = [modes.kl[:, 0], modes.norm[:, 0], modes.dependency[:, 0]]
        true = [modes.kl[:, 1], modes.norm[:, 1], modes.dependency[:, 1]]
        masked = modes.masked[:, 1]
        if count < len(x):
            score = layer.score(
                x[rest], y[rest], action[rest], None if noise is None else noise.rows(rest)
            )
            likelihood.append(score.log_likelihood[:, 0])
            more = (score.kl, score.norm, score.dependency)
            masked = torch.cat([masked, score.masked[:, 0]])
            true = [torch.cat([a, b[:, 0]]) for a, b in zip(true, more, strict=True)]
        kl, norm, dependency = ((a.mean() + b.mean()) / 2 for a, b in zip(none, true, strict=True))
        terms = {
            "standard": -modes.standard.mean(),
            "action": -torch.cat(likelihood).mean(),
            "causal": functional.cross_entropy(modes.actions, action[first]),
            "identity_codes": modes.identity_codes.mean(),
            "identity_graph": modes.identity_graph.mean(),
            "edge_kl": kl,
            "edge_norm": norm,
            "dependency": dependency,
        }
        weights = {
            "standard": settings.standard_weight,
            "action": 1.0,
            "causal": settings.attribution_weight,
            "identity_codes": settings.identity_weight,
            "identity_graph": settings.identity_weight,
            "edge_kl": settings.edge_kl,
            "edge_norm": settings.edge_norm,
            "dependency": settings.dependency,
        }
        loss = torch.stack([weights[name] * term for name, term in terms.items()]).sum()
        accuracy = (modes.actions.argmax(1) == action[first]).float().mean()
        return {"loss": loss, **terms, "masks": masked.mean(), "action_accuracy": accuracy}

    def picture_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-log p(image after), decoded from its predicted codes and from its true ones."""
        settings = self.settings
        with torch.no_grad():
            predicted = self.transition.probabilities(batch["codes"].long(), batch["action"])
            expected = self.quantiser.mean(predicted)
        true = self.quantiser.lookup(batch["after_codes"].long())
        terms = {
            name: negative_log_likelihood(
                self.decode_vectors(vectors),
                batch["after_images"],
                settings.likelihood,
                settings.scale,
            ).mean()
            for name, vectors in (("expected", expected), ("known", true))
        }
        return {"loss": terms["expected"] + terms["known"], **terms}

    # ---- how well an action usually explains its pairs -------------------------------------------
    @torch.no_grad()
    def measure_usual(self, data: Dataset, seed: int) -> None:
        """Set `usual`: a low quantile, per action, of the log-likelihood of validation pairs.

        The log-likelihood of the codes after is a mean over positions. An action without
        validation pairs gets the quantile of all pairs.
        """
        assert data.transitions is not None
        pairs = data.transitions.validation
        if not len(pairs):
            return
        codes, graphs = self.split_codes(data.validation).long(), self._graph_noise()
        before, after, action = (
            rows.to(codes.device) for rows in (pairs.before, pairs.after, pairs.action)
        )
        scores = in_batches(
            lambda x, y, a: self._log_likelihood(x, y, a, graphs)[:, 0],
            codes[before],
            codes[after],
            action,
        )
        scores = scores.cpu() / self.positions
        for number in range(len(self.usual)):
            own = scores[pairs.action.cpu() == number]
            self.usual[number] = (own if len(own) else scores).quantile(USUAL_QUANTILE)

    def logged_states(self) -> list[dict[str, Any]]:
        if not bool(self.usual.isfinite().all()):
            return super().logged_states()
        return [{"usual": dict(zip(self.spec.actions, self.usual.tolist(), strict=True))}]


def _with_pairs(data: Dataset, encode: Callable[[Split], Split]) -> Dataset:
    """Return the data with training and validation splits of pairs, over encoded splits."""
    assert data.transitions is not None
    return replace(
        data,
        train=TransitionSplit(encode(data.train), data.transitions.train),
        validation=TransitionSplit(encode(data.validation), data.transitions.validation),
    )
