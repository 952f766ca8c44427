"""CT-VAE (Gendron et al. 2023): codes of pictures, and a causal transition layer that says what an action makes of them and which action it was.

First the codebooks are learned (MCQ-VAE), then every picture is encoded and the transitions are learned on the code numbers alone, in three modes:
standard (no action changes nothing, Eq. 6-8), action (Eq. 9) and causal (Eq. 10). Last, the decoder learns to paint what a transition expects.

Shapes: B pairs, n code places, A actions. Reduction: sum over codes and edges, mean over the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from intervae.causal.transition import NONE, CausalTransition, Draw
from intervae.data.base import Batch, Dataset, Split
from intervae.data.transitions import TransitionSplit, action_factors, action_number
from intervae.errors import DataError, QueryError, UsageError, unknown
from intervae.models.base import QUERY_BATCH, in_batches
from intervae.models.graph_draws import Draws, rows_of
from intervae.models.mcq_vae import MCQVAE, MCQVAESettings
from intervae.models.phases import Optimiser, Phase, Player, Terms
from intervae.models.views import View, all_views, mean_over
from intervae.nets.likelihood import negative_log_likelihood
from intervae.settings import at_least, check_whole

RARE = 0.01  # share of any picture's codes that may be any code, where training pictures never had it there
COARSE = 4  # rows or columns of places, fewer than which show little
USUAL = 0.01  # share of an action's own pairs that it explains less well than usual
FEW_STEPS, ENOUGH_STEPS = 200, 500  # of the codebooks, and of the transitions
HELP = "load it with transitions=True (--data-option transitions=true), or pass it through with_transitions()"


@dataclass(frozen=True)
class CTVAESettings(MCQVAESettings):
    """Settings of the codebooks (see `MCQVAESettings`) and of the transitions."""

    codebooks: int = 1  # parts that a feature vector is cut in, with a codebook each [K]
    codes: int = 512  # in each codebook [S]
    width: int = 128  # features of a node of the transition layer
    heads: int = 4  # of its attention
    rounds: int = 2  # in which a variable reads its parents
    hidden: int = 2  # features, in multiples of width, in between the two layers by which a node works on what it knows
    edge_width: int = 32  # features in which an edge network compares two variables
    noise: int = 0  # dims of the noise at every node; 0 where an action has one outcome only [z]
    temperature: float = 1.0  # of the relaxation that gives edges their gradients
    causal_share: float = 0.25  # of a batch is asked about every action (standard and causal mode); the rest about its own, which costs far less
    attribution: float = 0.3  # weight of the causal mode, Eq. 10; where few rows are asked, less of it keeps its noise small
    standard: float = 0.1  # weight of the standard mode, Eq. 6
    identity: float = 1e-3  # weight of the two losses that make no action the identity, Eq. 7 and 8
    edge_prior: float = 0.5  # probability of an edge before anything is learned
    edge_kl: float = 1e-3  # weight of the divergence from it, Eq. 11-13; 1 is the bound itself
    edge_norm: float = 1e-3  # weight of the number of edges, Eq. 14
    dependency: float = 0.1  # weight of the wish that every variable has a parent, Eq. 15
    mask_norm: float = 0.0  # weight of the number of variables that an action intervenes on; the paper has no such loss
    graph_samples: int = 0  # drawn graphs that an answer averages over; with 0 every edge is as open as it is probable
    transition_epochs: int = 40  # passes over the pairs of pictures
    transition_batch: int = 128  # pairs in a step
    transition_optimiser: Optimiser = "muon"  # of the transition layer; adamw wants half the rate, and about twice the steps
    transition_rate: float = 0.012  # its learning rate
    weight_decay: float = 0.01  # of the transition layer
    exchange: float = 0.0  # share of the codes before that a training step takes from another picture, so that none is relied on alone
    mirror: tuple[str, ...] = ()  # factors whose steps a mirror exchanges; with any, pairs are seen in a mirror too
    shift: int = 0  # pixels by which training pairs are seen shifted too, up, down, left and right; 0 for not at all
    picture_epochs: int = 2  # passes in which the decoder learns to paint what a transition expects; 0 where pairs differ in more than the action
    picture_rate: float = 5e-4  # its learning rate there

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, width=1, heads=1, rounds=0, hidden=1, edge_width=1, noise=0, attribution=0, standard=0, identity=0, edge_kl=0, edge_norm=0)
        at_least(self, dependency=0, mask_norm=0, graph_samples=0, transition_batch=1, weight_decay=0, shift=0, picture_epochs=0)
        if self.width % self.heads:
            raise UsageError(f"width={self.width} cannot be shared out among {self.heads} heads; use a multiple of heads.")
        if not 0 < self.causal_share <= 1:
            raise UsageError(f"causal_share={self.causal_share} must be above 0, and 1 at most.")
        if not 0 <= self.exchange < 1:
            raise UsageError(f"exchange={self.exchange} must be at least 0, and below 1.")
        if not 0 < self.edge_prior < 1 or self.temperature <= 0:
            raise UsageError(f"edge_prior={self.edge_prior} must lie between 0 and 1, and temperature={self.temperature} above 0.")


class Mechanism(NamedTuple):
    """How an action works on some pictures, on average (Fig. 6), in probabilities.

    edges: (n, n), row i for y_i; mask: (n,) that a variable has the parents that the action gives it, not those of no action; changes: (n,) that
    a code is another one after the action.
    """

    edges: Tensor
    mask: Tensor
    changes: Tensor


class Explanations(NamedTuple):
    """How well the codes after are explained, as the mean over the code places of their log-likelihood.

    actions: (B, A) what each of `spec.actions` makes of the picture before; none: (B,) the picture before, to which nothing was done;
    unrelated: (B,) any picture at all, each place having its codes as often as in training. The best of these three need not be what happened:
    `CTVAE.usual` says how well an action explains pairs of its own.
    """

    actions: Tensor
    none: Tensor
    unrelated: Tensor


class CTVAE(MCQVAE):
    """CT-VAE: what does this action make of this picture, and which action turned this picture into that one?

    Arguments:
        spec: `data.spec` of data with transitions; its actions are what the model knows. Labels are not used.
        settings: see `CTVAESettings`.
    """

    name = "ct-vae"
    title = "CT-VAE (Gendron et al. 2023): causal transitions between the codes of pictures, by action"
    Settings: ClassVar[type] = CTVAESettings
    newer: ClassVar[frozenset[str]] = frozenset({"usual"})
    settings: CTVAESettings
    usual: Tensor

    def build(self) -> None:
        if not self.spec.actions:
            raise DataError(f"{self.name} learns from actions between pictures whose labels differ in one, but this data has none; {HELP}.")
        super().build()
        settings = self.settings
        self.transition = CausalTransition(
            self.places,
            settings.codebooks,
            settings.codes,
            len(self.spec.actions),
            width=settings.width,
            heads=settings.heads,
            rounds=settings.rounds,
            hidden=settings.hidden,
            edge_width=settings.edge_width,
            noise=settings.noise,
            temperature=settings.temperature,
            prior=settings.edge_prior,
        )
        names, opposite = self.spec.actions, {"+1": "-1", "-1": "+1"}
        seen = [f"{name[:-2]}{opposite[name[-2:]]}" if name[:-2] in settings.mirror else name for name in names]
        self.mirror_action: Tensor  # (A,) the number of what a mirror makes of each action
        self.in_mirror: Tensor  # (V,) whether a training view is one in a mirror
        self.register_buffer("mirror_action", torch.tensor([names.index(name) for name in seen]), persistent=False)
        self.register_buffer("in_mirror", torch.tensor([view.mirrored for view in self.training_views()]), persistent=False)

        self.register_buffer("usual", torch.full((len(names),), -math.inf))  # (A,) see measure_usual

    def check(self, data: Dataset) -> None:
        if data.transitions is None:
            raise DataError(f"{self.name} learns from pairs of pictures, but this data has none; {HELP}.")
        if self.settings.picture_epochs and not data.transitions.unique:
            raise UsageError(
                f"picture_epochs={self.settings.picture_epochs}: the pairs of {data.name} (unique=False) differ in more than the action, so that the "
                "decoder would learn to paint the mean of unlike pictures; set picture_epochs=0."
            )
        if self.settings.shift >= (smallest := min(self.spec.image_shape[1:])):
            raise UsageError(f"shift={self.settings.shift} would push pictures of {smallest} pixels out of sight; use a few pixels.")
        factors = action_factors(self.spec.actions)[0]
        for name in self.settings.mirror:
            if name not in factors:
                raise unknown("factor in mirror", name, factors)
        if (pairs := len(data.transitions.train)) < (size := self.settings.transition_batch):  # of the transitions and of the pictures after them
            raise DataError(f"there are {pairs} training pairs, fewer than one transition_batch of {size}; set transition_batch={pairs} or less.")

    def doubts(self, data: Dataset) -> list[str]:
        """Too few steps, and patches that are too large, both likely where the defaults meet a small grid of small pictures."""
        settings, found, pairs = self.settings, [], 0 if data.transitions is None else len(data.transitions.train)
        if min(self.grid) < COARSE:
            rows, columns = self.grid
            found.append(f"patch={settings.patch} cuts the pictures in {rows} x {columns} places, which is coarse; a smaller patch shows more")
        for name, samples, size in (
            ("epochs", len(data.train), settings.batch_size),
            ("transition_epochs", pairs, settings.transition_batch),
        ):
            passes, each = getattr(settings, name), max(1, samples // size)
            if passes * each < FEW_STEPS:
                enough = -(-ENOUGH_STEPS // each)
                found.append(f"{name}={passes} are only {passes * each} steps on data this small; {name}={enough} would be {enough * each}")
        return found

    # ---- training ---------------------------------------------------------------------------------------------------
    def phases(self) -> list[Phase]:
        """Codebooks; how often each place has which code; the transitions, on codes that are found once; pictures of what they expect; how well
        actions explain pairs."""
        settings = self.settings
        player = Player(
            self.transition_loss,
            ("transition.",),
            optimiser=settings.transition_optimiser,
            learning_rate=settings.transition_rate,
            weight_decay=settings.weight_decay,
            clip=settings.clip,
        )
        transitions = Phase(
            "transitions",
            (player,),
            epochs=settings.transition_epochs,
            batch_size=settings.transition_batch,
            schedule="cosine",
            prepare=self.encode_once,
            keep_best=True,
        )
        pictures = Phase(
            "pictures",
            (Player(self.picture_loss, ("decoder.",), learning_rate=settings.picture_rate),),
            epochs=settings.picture_epochs,
            batch_size=settings.transition_batch,
            schedule="cosine",
            prepare=self.encode_beside,
            keep_best=True,
        )
        return [*super().phases(), transitions, *([pictures] if settings.picture_epochs else []), Phase("usual", prepare=self.measure_usual)]

    def encode_once(self, data: Dataset, seed: int) -> Dataset:
        """The data of the transition phase: pairs of rows, over the codes (N, n) of every picture; of training pictures (N, V, n), seen in V ways."""
        found, views = self._pairs(data, lambda split: Split(codes=self.split_codes(split))), self.training_views()
        if len(views) == 1:
            return found
        codes = torch.stack([found.train.fields["codes"], *(self.split_codes(data.train, view) for view in views[1:])], dim=1)
        assert data.transitions is not None
        return replace(found, train=TransitionSplit(Split(codes=codes), data.transitions.train))

    def training_views(self) -> list[View]:
        """The ways in which training pairs are seen: as they are, and what `mirror` and `shift` say."""
        return all_views(mirror=bool(self.settings.mirror), shift=self.settings.shift)

    def views(self) -> list[View]:
        """The ways in which `act` looks at a picture, as it is and, with `mirror`, in a mirror: codes describe shifted pictures less well."""
        return all_views(mirror=bool(self.settings.mirror), shift=0)

    def _in_some_view(self, batch: Batch, generator: torch.Generator | None) -> tuple[Tensor, Tensor, Tensor]:
        """Codes before and after (B, n) and the actions (B,) of pairs; of those that can be seen in V ways, in one drawn for each."""
        x, y, action = batch["codes"], batch["after_codes"], batch["action"]
        if x.ndim == 3:
            rows = torch.arange(len(x), device=x.device)
            view = torch.randint(x.shape[1], x.shape[:1], generator=generator, device=x.device)
            x, y = x[rows, view], y[rows, view]
            action = torch.where(self.in_mirror[view], self.mirror_action[action], action)
        return x.long(), y.long(), action

    def encode_beside(self, data: Dataset, seed: int) -> Dataset:
        """The data of the last phase: the pairs as they are seen without a mirror, and the pictures themselves."""
        return self._pairs(data, lambda split: split.with_fields({**split.fields, "codes": self.split_codes(split)}))

    def _pairs(self, data: Dataset, pool: Callable[[Split], Split]) -> Dataset:
        assert data.transitions is not None
        train = TransitionSplit(pool(data.train), data.transitions.train)
        return replace(data, train=train, validation=TransitionSplit(pool(data.validation), data.transitions.validation))

    @torch.no_grad()
    def measure_usual(self, data: Dataset, seed: int) -> None:
        """The log-likelihood of the codes after, mean over the code places, that 99 of 100 validation pairs of each action exceed; an action without
        pairs has that of all of them."""
        assert data.transitions is not None
        pairs, codes, draws = data.transitions.validation, self.split_codes(data.validation).long(), self._draws(None, 0)
        if not len(pairs):
            return
        rows = (codes[pairs.before.to(codes.device)], codes[pairs.after.to(codes.device)], pairs.action.to(codes.device))
        found = in_batches(lambda x, y, action: self._joint(x, y, action, draws)[:, 0], *rows).cpu() / self.places
        each = [some if len(some := found[pairs.action.cpu() == action]) else found for action in range(len(self.usual))]
        self.usual.copy_(torch.stack([some.quantile(USUAL) for some in each]))

    def states_prepared(self) -> list[dict[str, Any]]:
        measured = bool(self.usual.isfinite().all())
        return [{"usual": dict(zip(self.spec.actions, self.usual.tolist(), strict=True))}] if measured else super().states_prepared()

    def transition_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """The standard and the causal mode on the first rows, by `causal_share`, and the action mode on all; outside of training all modes on all.

        The rows are those of a shuffled batch, so that the mix depends on neither the size of the data nor how frequent an action is.
        """
        settings, layer = self.settings, self.transition
        x, y, action = self._in_some_view(batch, generator)
        draw = layer.draw(len(x), generator, x.device) if self.training else None
        if self.training and settings.exchange:  # the row before is any other pair, as batches are shuffled
            x = torch.where(torch.rand(x.shape, generator=generator, device=x.device) < settings.exchange, x.roll(1, 0), x)
        first = max(1, round(settings.causal_share * len(x))) if self.training else len(x)
        found = layer.modes(x[:first], y[:first], action[:first], rows_of(draw, slice(0, first)))
        acted = [found.actions.gather(1, action[:first, None])[:, 0]]
        costs = [found.kl, found.norm, found.dependency, found.masked]
        alone, under = [part[:, 0] for part in costs], [part[:, 1] for part in costs]  # of no action, and of the true one
        if first < len(x):
            rest = layer.score(x[first:], y[first:], action[first:], rows_of(draw, slice(first, None)))
            acted.append(rest.log_likelihood[:, 0])
            under = [torch.cat([part, more[:, 0]]) for part, more in zip(under, rest[1:], strict=True)]
        kl, norm, dependency = ((one.mean() + other.mean()) / 2 for one, other in zip(alone[:3], under[:3], strict=True))
        terms = {
            "standard": -found.standard.mean(),
            "action": -torch.cat(acted).mean(),
            "causal": functional.cross_entropy(found.actions, action[:first]),
            "identity_codes": found.identity_codes.mean(),
            "identity_graph": found.identity_graph.mean(),
            "edge_kl": kl,
            "edge_norm": norm,
            "dependency": dependency,
            "mask_norm": under[3].mean(),
        }
        weights = (
            settings.standard,
            1.0,
            settings.attribution,
            *[settings.identity] * 2,
            settings.edge_kl,
            settings.edge_norm,
            settings.dependency,
            settings.mask_norm,
        )
        loss = torch.stack([weight * term for weight, term in zip(weights, terms.values(), strict=True)]).sum()
        return {"loss": loss, **terms, "action_accuracy": (found.actions.argmax(1) == action[:first]).float().mean()}

    def picture_loss(self, batch: Batch, generator: torch.Generator | None = None) -> Terms:
        """-log p(y) of the picture after, painted from its codes and from what the transition expects of them, over as many graphs as `act` takes."""
        settings, wanted, codes = self.settings, batch["after_images"], batch["codes"].long()
        draws = [self.transition.draw(len(codes), generator, codes.device) for _ in range(settings.graph_samples)]
        with torch.no_grad():
            expected = self.quantiser.mean(self._after(codes, batch["action"], draws))
        known = self.quantiser.lookup(batch["after_codes"].long())
        terms = {
            name: negative_log_likelihood(self.paint(vectors), wanted, settings.likelihood, settings.scale).mean()
            for name, vectors in (("expected", expected), ("known", known))
        }
        return {"loss": terms["expected"] + terms["known"], **terms}

    # ---- queries ----------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def act(self, images: Any, action: Any, times: int = 1, *, samples: int | None = None, seed: int = 0, alone: bool = False) -> Tensor:
        """Images (B, C, H, W) to what they look like after the action, by name or number, has been done `times` times.

        The picture is painted from the mean of the codes, weighed by their probabilities; the next time begins with the most probable ones. With
        `mirror` it is the mean of what becomes of the picture and of its mirror image; `alone` takes the picture as it is, which is twice as fast.
        `samples` and `seed` as in `attribute`.
        """
        return self.act_repeatedly(images, action, times, samples=samples, seed=seed, alone=alone)[:, -1]

    @torch.no_grad()
    def act_repeatedly(self, images: Any, action: Any, times: int, *, samples: int | None = None, seed: int = 0, alone: bool = False) -> Tensor:
        """The pictures after the action was done 1, 2, ..., `times` times, (B, times, C, H, W) (Fig. 5)."""
        check_whole(1, QueryError, times=times)
        pictures, number = self.as_images(images), self.action_number(action)
        draws, views = self._draws(samples, seed), self.views()[: 1 if alone else None]
        numbers = {False: number, True: int(self.mirror_action[number])}
        return mean_over(views, pictures, lambda view, seen: self._acted(seen, numbers[view.mirrored], times, draws))

    def _acted(self, pictures: Tensor, number: int, times: int, draws: Draws) -> Tensor:
        """Pictures (B, C, H, W) after the action of this number was done 1, 2, ..., `times` times, (B, times, C, H, W), as they are seen."""
        codes, after = self.codes(pictures), []
        for _ in range(times):
            chances = in_batches(lambda part: self._after(part, torch.full_like(part[:, 0], number), draws(len(part))), codes)
            after.append(in_batches(lambda part: torch.sigmoid(self.paint(self.quantiser.mean(part))), chances))
            codes = chances.argmax(2)
        return torch.stack(after, dim=1)

    def _after(self, codes: Tensor, action: Tensor, draws: Sequence[Draw] = ()) -> Tensor:
        """The probabilities (B, n, S) of the codes after actions (B,), the mean over the graphs that are drawn, or of the expected graph."""
        layer, nodes = self.transition, self.transition.nodes(codes)
        chances = []
        for draw in draws or (None,):
            logits = layer.logits(codes, nodes, layer.graph(nodes, action, draw).edges, action, None if draw is None else draw.noise)[:, 0]
            chances.append(logits.float().softmax(2))
        return torch.stack(chances).mean(0)

    @torch.no_grad()
    def attribute(self, before: Any, after: Any, *, samples: int | None = None, seed: int = 0) -> Tensor:
        """Which action was it: pictures before and after, each (B, C, H, W), to the probability of each of `spec.actions`, (B, A).

        Arguments:
            samples: graphs that are drawn, by `seed`, and averaged over; with 0 every edge is as open as it is probable; None as the settings say.

        One of the actions it must be: whether any of them explains the pair, `explain` tells.
        """
        draws = self._draws(samples, seed)
        return in_batches(lambda x, y: self._joint(x, y, None, draws).softmax(1), *self._both(before, after))

    @torch.no_grad()
    def explain(self, before: Any, after: Any, *, samples: int | None = None, seed: int = 0) -> Explanations:
        """How well each action, no action and chance explain the pictures after, each (B, C, H, W); `samples` and `seed` as in `attribute`."""
        first, second = self._both(before, after)
        draws, often = self._draws(samples, seed), ((1 - RARE) * self.marginals + RARE / self.settings.codes).log()

        def found(x: Tensor, y: Tensor) -> Tensor:  # (b, A + 2)
            by_chance = often.expand(len(y), -1, -1).gather(2, y[..., None])[..., 0].sum(1, keepdim=True)
            asked = (None, torch.full_like(x[:, 0], NONE))
            return torch.cat([*(self._joint(x, y, action, draws) for action in asked), by_chance], dim=1) / self.places

        scores = in_batches(found, first, second)
        return Explanations(scores[:, :-2], scores[:, -2], scores[:, -1])

    def _joint(self, before: Tensor, after: Tensor, action: Tensor | None, draws: Draws) -> Tensor:
        """log p(codes after | codes before, a) under each action asked about, (B, G), the mean of p over the graphs."""
        found = [self.transition.score(before, after, action, draw).log_likelihood for draw in draws(len(before)) or (None,)]
        return torch.stack(found).logsumexp(0) - math.log(len(found))

    def _draws(self, samples: int | None, seed: int) -> Draws:
        number = self.settings.graph_samples if samples is None else samples
        check_whole(0, QueryError, samples=number, seed=seed)
        return Draws(self.transition, number, seed, self.device)

    def _both(self, before: Any, after: Any) -> tuple[Tensor, Tensor]:
        """The codes of pictures before and after, (B, n) each."""
        first, second = self.codes(before), self.codes(after)
        if len(first) != len(second):
            raise QueryError(f"there are {len(first)} pictures before and {len(second)} after; give as many.")
        return first, second

    @torch.no_grad()
    def mechanism(self, images: Any, action: Any = None) -> Mechanism:
        """The graph, the intervention mask and what changes under an action (None for no action), averaged over the pictures (Fig. 6)."""
        codes = self.codes(images)
        number = NONE if action is None else self.action_number(action)
        n = self.places
        sums = [torch.zeros(shape, device=self.device) for shape in ((n, n), (n,), (n,))]
        for part in codes.split(QUERY_BATCH):
            asked = torch.full_like(part[:, 0], number)
            graph = self.transition.graph(self.transition.nodes(part), asked)
            for total, each in zip(sums, (graph.edges[:, 0], graph.mask[:, 0], self.changes(part, asked)), strict=True):
                total += each.sum(0) / len(codes)
        return Mechanism(*sums)

    @torch.no_grad()
    def changes(self, codes: Tensor, action: Tensor, *, samples: int | None = None, seed: int = 0) -> Tensor:
        """The probability (B, n) that each of the codes (B, n) is another one after actions (B,), numbers; `samples` and `seed` as in `attribute`."""
        return 1 - self._after(codes, action, self._draws(samples, seed)(len(codes))).gather(2, codes[..., None])[..., 0]

    def action_number(self, action: Any) -> int:
        """The number of an action given by name or number."""
        return action_number(self.spec.actions, action, QueryError)
