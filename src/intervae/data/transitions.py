"""Transitions (CT-VAE, Gendron et al. 2023, sec. 4): pairs of pictures that differ in one factor by one step, and the action between them.

    data = load_data("cars3d", transitions=True)                                     # or with_transitions(dataset), for any labelled grid
    data = load_data("cars3d", transitions={"cyclic": ["azimuth"], "draws": 1000})   # the options of `with_transitions`
    data.actions                      # ("car+1", "car-1", "azimuth+1", ...), also data.spec.actions: what a model may know
    pairs = data.transitions.train    # Transitions: before, after, action (T,) int64; before and after are rows of data.train
    TransitionSplit(data.train, pairs)                 # a Split of pairs: a batch has images, labels, after_images, after_labels, action
    TransitionSplit(Split(codes=codes), pairs)         # the same over codes cached once per picture: codes, after_codes, action

The splits of the pictures stay as they are, and both ends of a pair are in the same split. The two ways between two pictures are two pairs with
opposite actions. A run's `Dataset.source` keeps the options, so `reload` makes the same pairs again.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

from intervae.data.base import CHUNK, Batch, Dataset, Split, split_rows
from intervae.data.columns import listed
from intervae.data.options import as_data_option, check_fractions, read_names
from intervae.data.transition_notes import IN_WORDS, MEANS, SELDOM, WITHOUT_PAIRS, more_pairs, no_steps, seldom, shown, steps_in_words
from intervae.data.twins import keep_together, resplit
from intervae.errors import DataError, IntervaeError, UsageError, unknown
from intervae.settings import check_flags, check_whole, parse_settings, plain_value

LARGEST_KEY = 2**62
FEWEST_IN_A_CIRCLE = 3  # values; of two the steps up and down would be the same
SPLITS = ("train", "validation", "test")
UNLIKE = f"unique=False {as_data_option('unique=false')}, which ct-vae takes with picture_epochs=0 (--set)"
FRACTIONS = {"validation": 0.15 / 0.85, "test": 0.15}  # of the paper's splits by picture: 70, 15 and 15 percent


@dataclass(frozen=True)
class Transitions:
    """Pairs of rows of one split, and the action of each.

    Arguments:
        before, after: (T,) int64 rows of the split's pictures.
        action: (T,) int64, which of `action_names`.
        factor_of_action: (A,) int64, which of `factor_names` an action changes.
    """

    before: Tensor
    after: Tensor
    action: Tensor
    action_names: tuple[str, ...]
    factor_of_action: Tensor
    factor_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.action)

    def __getitem__(self, rows: Any) -> Transitions:
        """The chosen pairs (a slice, a list, a tensor)."""
        return replace(self, before=self.before[rows], after=self.after[rows], action=self.action[rows])

    @property
    def counts(self) -> Tensor:
        """(A,) how many pairs each action has."""
        return torch.bincount(self.action, minlength=len(self.action_names))

    def to(self, device: torch.device | str) -> Transitions:
        moved = {name: getattr(self, name).to(device) for name in ("before", "after", "action", "factor_of_action")}
        return replace(self, **moved)


@dataclass(frozen=True)
class DatasetTransitions:
    """The pairs of each split of a Dataset.

    Arguments:
        cyclic: factors that go round.
        unique: nothing but the action differs between the two of a pair, and the `ignored` columns.
    """

    train: Transitions
    validation: Transitions
    test: Transitions
    cyclic: tuple[str, ...] = ()
    unique: bool = True
    ignored: tuple[str, ...] = ()


def action_factors(actions: Sequence[str]) -> tuple[tuple[str, ...], Tensor]:
    """The factors that actions such as "azimuth+1" change, and which of them each action changes, (A,) int64."""
    changed = [name[:-2] for name in actions]
    if not all(name.endswith(("+1", "-1")) for name in actions):
        raise DataError(f"actions must be called after their factor, such as azimuth+1 and azimuth-1, not {', '.join(actions)}.")
    factors = tuple(dict.fromkeys(changed))
    return factors, torch.tensor([factors.index(name) for name in changed], dtype=torch.int64)


def action_number(actions: Sequence[str], action: Any, error: type[IntervaeError] = UsageError) -> int:
    """The number of an action given by name or number."""
    if isinstance(action, str) and action in actions:
        return actions.index(action)
    if isinstance(action, int | np.integer) and not isinstance(action, bool) and 0 <= action < len(actions):
        return int(action)
    raise unknown("action", action, actions, error)


def transition_options(given: bool | str | Mapping[str, Any], seed: int = 0) -> dict[str, Any] | None:
    """Options of `with_transitions`, given as True, a mapping or one text such as "cyclic=azimuth;draws=1000"; None for no transitions."""
    if isinstance(given, str) and given.strip():
        given = _read_options(given.strip())
    if not isinstance(given, bool | Mapping):
        raise UsageError(f"transitions={given!r} must be true or options of with_transitions, such as cyclic=azimuth;draws=1000.")
    options = {} if isinstance(given, bool) else dict(given)
    for name in options:
        if name not in option_names():
            raise unknown("option of transitions", name, option_names())
    return None if given is False else {"seed": seed, **options}


def option_names() -> list[str]:
    """The options of `with_transitions`."""
    return [name for name, p in inspect.signature(with_transitions).parameters.items() if p.kind is p.KEYWORD_ONLY]


def _read_options(text: str) -> bool | dict[str, Any]:
    """ "true", or "cyclic=azimuth;draws=1000"."""
    if isinstance(whole := plain_value(text), bool):
        return whole
    parts = [part for part in text.split(";") if part.strip()]
    if not all("=" in part for part in parts):
        raise UsageError(f"transitions={text!r} must be true, or options as key=value with ; between them, such as cyclic=azimuth;draws=1000.")
    texts = parse_settings(parts, "transitions:")
    if len(texts) < len(parts):
        raise UsageError(f"transitions: {text!r} gives an option twice; give each once.")
    return {key: value if key in ("factors", "cyclic", "ignore", "splits") else plain_value(value) for key, value in texts.items()}


def with_transitions(
    dataset: Dataset,
    *,
    factors: str | Sequence[str] | None = None,
    cyclic: str | Sequence[str] = (),
    ignore: str | Sequence[str] = (),
    balanced: bool = False,
    draws: int | None = None,
    train_draws: int | None = None,
    unique: bool = True,
    visible: bool = False,
    distinct: bool = False,
    splits: str = "given",
    validation: float | None = None,
    test: float | None = None,
    seed: int = 0,
) -> Dataset:
    """The data set with the pairs of pictures that differ in exactly one factor, by one step: its next larger or next smaller value.

    Factors are a simulator's noises where there is a simulator, else the labels. Every factor has two actions, +1 and -1.

    Arguments:
        factors: only these have actions; the others are held. All of them without it.
        cyclic: factors whose largest value is followed by the smallest, such as an angle; also as one text with commas.
        ignore: columns such as a measurement, which have no actions and in which the two of a pair may differ.
        balanced: in every split cut all actions to as many pairs as the rarest has, drawn at random. Otherwise they are as frequent as in the data.
        draws: of each step of each factor draw so many pairs at random, with replacement, and keep each once. That is how the authors made
            theirs (with 1000), so that a factor is as frequent as it has steps. Without it all pairs are kept.
        train_draws: the same for the training pairs, where it is to be another number; 0 keeps all of these.
        unique: the factors say which picture it is, so that no two pictures agree in all. False where they do not, as the attributes of
            faces: every picture is then paired with one drawn from those one step away, in its split.
        visible: leave out pairs of two equal pictures, which no model can tell apart (a weapon that is not drawn, a square turned by 90 degrees).
        distinct: no picture is in two splits: those that are equal to the last bit are put into the split of one of them, drawn at random. All
            pictures are looked at, a minute for a million.
        splits: "given" keeps the splits; "random" draws new ones by picture, 70, 15 and 15 percent, where those that came with the data part
            the neighbours from each other (a published test split of every fourth picture, say).
        validation, test: other fractions for random splits, of what is not test and of everything.
        seed: draws what is drawn.
    """
    if splits not in ("given", "random"):
        raise unknown("splits of transitions", splits, ("given", "random"))
    check_flags(balanced=balanced, unique=unique, visible=visible, distinct=distinct)
    check_whole(0, seed=seed)
    check_whole(1, draws=1 if draws is None else draws)
    check_whole(0, train_draws=0 if train_draws is None else train_draws)
    fractions = check_fractions(validation=validation, test=test)
    if splits == "given" and fractions:
        name = next(iter(fractions))
        also = as_data_option(f"splits=random;{name}={fractions[name]:g}")
        raise UsageError(
            f"{name}= of transitions is for new splits; pass splits='random' too {also}, or give it to load_data itself (--data-option {name}=)."
        )
    dataset = _split_anew(dataset, {**FRACTIONS, **fractions}, seed) if splits == "random" else dataset
    dataset = keep_together(dataset, seed) if distinct else dataset
    ignored = _names(ignore, _factors(dataset)[0], "ignore")
    names, codes, part, row = factor_codes(dataset, ignored)
    chosen = (
        _names(factors, names, "factors") if factors is not None else tuple(n for n, size in zip(names, codes.max(0) + 1, strict=True) if size > 1)
    )
    if not chosen:
        raise UsageError(f"{dataset.name}: factors={factors!r} names no factor, so there would be no action; known: {', '.join(names)}.")
    around = _names(cyclic, chosen, "cyclic")
    rng = np.random.default_rng([seed, 2])
    cells = Cells(dataset, names, codes, part, unique, rng)
    actions = tuple(f"{name}{sign}" for name in chosen for sign in ("+1", "-1"))
    limits = [(draws if train_draws is None else train_draws) or 0, draws or 0, draws or 0]  # 0 for all pairs
    made = {limit: _pairs(cells, chosen, around, limit, rng) for limit in dict.fromkeys(limits)}
    pairs, notes = [], [note for note in dataset.notes if not note.startswith((*WITHOUT_PAIRS.values(), IN_WORDS, SELDOM))]
    notes += [*steps_in_words(dataset, chosen), *seldom(dataset, chosen)]
    for number, (split, limit) in enumerate(zip(SPLITS, limits, strict=True)):
        first, second, action = made[limit]
        inside = np.flatnonzero((part[first] == number) & (part[second] == number))
        if visible:
            inside = inside[_differ(getattr(dataset, split), row[first[inside]], row[second[inside]])]
        cure = more_pairs(dataset, split, splits == "random", "draws" if split != "train" or train_draws is None else "train_draws", limit)
        missing = _without_pairs(dataset.name, split, action[inside], actions, cure, every=balanced or split == "train")
        if missing:
            notes.append(f"{WITHOUT_PAIRS[split]} {listed(missing)}, {MEANS[split]}; {cure}")
        kept = _balance(inside, action, len(actions), rng) if balanced else inside
        which = {"before": row[first[kept]], "after": row[second[kept]], "action": action[kept]}
        tensors = {name: torch.from_numpy(array) for name, array in which.items()}
        pairs.append(Transitions(**tensors, action_names=actions, factor_of_action=torch.arange(len(actions)) // 2, factor_names=chosen))
    found = DatasetTransitions(pairs[0], pairs[1], pairs[2], around, unique, ignored)
    return replace(dataset, transitions=found, actions=actions, notes=tuple(notes))


def _pairs(
    cells: Cells, chosen: Sequence[str], around: Sequence[str], draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows before (P,) and after (P,) over all splits, and the action (P,) between them: up and down each pair."""
    found = []
    for name in chosen:
        factor = cells.names.index(name)
        before, after = cells.steps(factor, name in around)
        found.append(_draw(before, after, cells.codes[before, factor], draws, rng) if draws and len(before) else (before, after))
    if not all(len(up) for up, _ in found):
        without = [name for name, (up, _) in zip(chosen, found, strict=True) if not len(up)]
        raise no_steps(cells.data, without, chosen, [name for name, size in zip(cells.names, cells.sizes, strict=True) if size > 1])
    first = np.concatenate([end for up, down in found for end in (up, down)])
    second = np.concatenate([end for up, down in found for end in (down, up)])
    return first, second, np.repeat(np.arange(2 * len(found)), [len(up) for up, _ in found for _ in range(2)])


def _split_anew(dataset: Dataset, fractions: Mapping[str, float], seed: int) -> Dataset:
    """The same pictures in new random splits."""
    samples = sum(len(getattr(dataset, split)) for split in SPLITS)
    return resplit(dataset, split_rows(samples, validation=fractions["validation"], test=fractions["test"], seed=seed))


# ---- factors as whole numbers -------------------------------------------------------------------------------------------
def _factors(dataset: Dataset) -> tuple[tuple[str, ...], np.ndarray]:
    """Names (F) of the factors, and their values (N, F) over all splits: a simulator's noises, or the labels."""
    splits = (dataset.train, dataset.validation, dataset.test)
    simulated = dataset.simulator is not None and all("exogenous" in split.fields for split in splits)
    names = dataset.simulator.exogenous_names if dataset.simulator is not None and simulated else dataset.names
    if not names:
        raise DataError(f"{dataset.name} has no labels, so nothing tells which pictures differ by one step; transitions need labelled factors.")
    return tuple(names), torch.cat([split.fields["exogenous" if simulated else "labels"] for split in splits]).cpu().numpy()


def factor_codes(dataset: Dataset, ignored: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray]:
    """Names (F) of the factors, the number of each value (N, F) over all splits, the split of each picture (N,) and its row there (N,)."""
    every, table = _factors(dataset)
    names = tuple(name for name in every if name not in ignored)
    if not names:
        raise UsageError(f"{dataset.name}: ignore= leaves no factor; known: {', '.join(every)}.")
    columns = [np.unique(table[:, every.index(name)], return_inverse=True)[1].reshape(-1) for name in names]
    sizes = [int(codes.max()) + 1 for codes in columns]
    many = [name for name, size in zip(names, sizes, strict=True) if size > max(len(table) // 2, 2)]
    if many:
        has = f"{many[0]!r} has {sizes[names.index(many[0])]} different values in {len(table)} pictures"
        if len(many) == len(names):  # to ignore them would leave none
            raise DataError(
                f"{dataset.name}: {has} and {'is the only factor' if len(names) == 1 else 'no other factor has few'}, so there is nothing to tell "
                f"steps from; transitions need a grid of two factors or more with few values each, or round it and pass {UNLIKE}."
            )
        names_of = ",".join(many)
        raise DataError(
            f"{dataset.name}: {has}, so it has no steps; transitions need factors with few values (a grid): round it, or pass "
            f"ignore={names_of!r} {as_data_option(f'ignore={names_of}')} if the two of a pair may differ in {'it' if len(many) == 1 else 'these'}."
        )
    lengths = [len(getattr(dataset, split)) for split in SPLITS]
    part, row = np.repeat(np.arange(len(SPLITS)), lengths), np.concatenate([np.arange(length) for length in lengths])
    return names, np.stack(columns, axis=1), part, row


class Cells:
    """Pictures by their combination of factors, each combination one whole number: its digits are the factors, in a mixed radix."""

    def __init__(self, data: Dataset, names: Sequence[str], codes: np.ndarray, part: np.ndarray, unique: bool, rng: np.random.Generator) -> None:
        self.data, self.names, self.codes, self.unique, self.rng = data.name, names, codes, unique, rng
        self.sizes = [int(size) for size in codes.max(axis=0) + 1]
        if len(SPLITS) * math.prod(self.sizes) > LARGEST_KEY:
            raise DataError(f"{data.name}: {len(names)} factors have more combinations than a whole number can count; choose fewer variables.")
        self.strides = list(accumulate(reversed(self.sizes[1:]), lambda a, b: a * b, initial=1))[::-1]
        self.key = codes @ np.array(self.strides)
        if not unique:  # a partner is drawn from the same split
            self.key = self.key + part * math.prod(self.sizes)
        self.order = np.argsort(self.key, kind="stable")
        self.sorted = self.key[self.order]
        repeated = np.flatnonzero(self.sorted[1:] == self.sorted[:-1])
        if unique and len(repeated):
            every, table = _factors(data)
            label = shown(data, {name: float(table[self.order[repeated[0]], every.index(name)]) for name in names})
            raise DataError(
                f"{data.name}: two pictures have the same factors ({label}), so a pair may differ in more than these; "
                f"give the missing factor a column, or, to pair pictures that agree in all other factors, pass {UNLIKE}."
            )

    def steps(self, factor: int, cyclic: bool) -> tuple[np.ndarray, np.ndarray]:
        """Rows (P,) of pictures and rows (P,) of those one step up in the factor."""
        size, stride = self.sizes[factor], self.strides[factor]
        if cyclic and size < FEWEST_IN_A_CIRCLE:
            raise UsageError(f"cyclic={self.names[factor]!r}: it has {size} values, and a circle needs {FEWEST_IN_A_CIRCLE} or more.")
        code, rows = self.codes[:, factor], np.arange(len(self.key))
        move = np.where(code < size - 1, stride, -(size - 1) * stride)
        below = rows if cyclic else rows[code < size - 1]
        start, above = self._partner(below, self.key[below] + move[below])
        if not self.unique:  # and from every picture down, so that the rarer value does not decide how many pairs there are
            back = np.where(code > 0, -stride, (size - 1) * stride)
            upper = rows if cyclic else rows[code > 0]
            end, under = self._partner(upper, self.key[upper] + back[upper])
            both = np.unique(np.stack([np.concatenate([start, under]), np.concatenate([above, end])], axis=1), axis=0)
            start, above = both[:, 0], both[:, 1]
        return start, above

    def _partner(self, rows: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of the rows (n,) that have a partner with the key (n,) that they want, and the partner: the one there is, or one that is drawn."""
        left = np.searchsorted(self.sorted, wanted)
        found = self.sorted[np.minimum(left, len(self.sorted) - 1)] == wanted
        rows, left = rows[found], left[found]
        if not self.unique:
            left = left + self.rng.integers(np.searchsorted(self.sorted, wanted[found], side="right") - left)
        return rows, self.order[left]


# ---- how many -----------------------------------------------------------------------------------------------------------
def _draw(before: np.ndarray, after: np.ndarray, step: np.ndarray, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Of the pairs (P,) of each step (P,) those that `draws` draws with replacement hit."""
    order = np.argsort(step, kind="stable")
    counts = np.bincount(step)
    start = np.cumsum(counts) - counts
    taken = [first + np.unique(rng.integers(count, size=draws)) for first, count in zip(start, counts, strict=True) if count]
    kept = order[np.concatenate(taken)]
    return before[kept], after[kept]


def _balance(rows: np.ndarray, action: np.ndarray, actions: int, rng: np.random.Generator) -> np.ndarray:
    """As many of the rows for every action as the rarest has."""
    shuffled = rng.permutation(rows)
    order = shuffled[np.argsort(action[shuffled], kind="stable")]
    counts = np.bincount(action[order], minlength=actions)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank < counts.min()])


def _differ(split: Split, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """(P,) whether the pictures of the rows (P,) are two."""
    pairs = torch.from_numpy(np.stack([before, after])).split(CHUNK, dim=1)
    found = [(split[one].images != split[other].images).flatten(1).any(1).cpu().numpy() for one, other in pairs]
    return np.concatenate(found) if found else np.zeros(0, bool)


def _without_pairs(data: str, split: str, action: np.ndarray, actions: Sequence[str], cure: str, *, every: bool) -> list[str]:
    """The actions without a pair in a split; refused where `every` one must have some, and where none has any."""
    counts = np.bincount(action, minlength=len(actions))
    missing = [name for name, count in zip(actions, counts, strict=True) if not count]
    if len(missing) == len(actions):
        raise DataError(f"{data}: the {split} split has no pair for any action; {cure}.")
    if missing and every:
        raise DataError(f"{data}: the {split} split has no pair for the action {missing[0]}; {cure}, or leave the factor out (factors=).")
    return missing


def _names(given: str | Sequence[str], known: Sequence[str], what: str) -> tuple[str, ...]:
    names = read_names(given, what)
    for name in names:
        if name not in known:
            raise unknown(f"factor in {what}", name, known)
    return tuple(dict.fromkeys(names))


class TransitionSplit(Split):
    """Pairs of a split's rows as samples: a batch holds what the pool has of the first row, the same of the second as `after_...`, and `action`.

    Arguments:
        pool: pictures, or codes cached for each.
        transitions: pairs of its rows.
    """

    def __init__(self, pool: Split, transitions: Transitions) -> None:
        self.pool, self.fields, self.transitions = pool, pool.fields, transitions.to(pool.device)

    @property
    def images(self) -> Tensor:
        return self.pool.images

    @property
    def shape(self) -> tuple[int, ...]:
        return self.pool.shape

    def __len__(self) -> int:
        return len(self.transitions)

    def __getitem__(self, rows: Any) -> TransitionSplit:
        return TransitionSplit(self.pool, self.transitions[rows])

    def to(self, device: torch.device | str) -> TransitionSplit:
        return TransitionSplit(self.pool.to(device), self.transitions)

    def batch(self, rows: Tensor) -> Batch:
        pairs = self.transitions
        after = self.pool.batch(pairs.after.index_select(0, rows))
        return {
            **self.pool.batch(pairs.before.index_select(0, rows)),
            **{f"after_{name}": value for name, value in after.items()},
            "action": pairs.action.index_select(0, rows),
        }
