"""Construction of transitions: all pairs of images of a labelled grid that are one step apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from intervae.data.build import split_rows
from intervae.data.dataset import Dataset
from intervae.data.duplicates import keep_duplicates_together, resplit
from intervae.data.factor_grid import SPLITS, FactorGrid, factor_table, factor_values
from intervae.data.options import as_data_option, check_fractions, read_names
from intervae.data.pair_selection import balance_actions, draw_pairs, images_differ
from intervae.data.transition_notes import (
    NOTE_KINDS,
    advise_more_pairs,
    check_actions_have_pairs,
    missing_actions_note,
    no_steps_error,
    rare_value_notes,
    word_order_notes,
)
from intervae.data.transitions import DatasetTransitions, Transitions
from intervae.errors import UsageError, unknown
from intervae.settings import check_flags, check_whole

FRACTIONS = {"validation": 0.15 / 0.85, "test": 0.15}  # 70, 15 and 15 percent, as in the paper


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
    """Return the data set with the pairs of images that differ in one factor by one step.

    A step leads to the next larger or smaller value. Factors are a simulator's noises, or the
    labels. Every factor has two actions, +1 and -1. Names may be given as one text with commas.

    Arguments:
        factors: factors that have actions; all others are equal in a pair. Default: all.
        cyclic: factors whose largest value is followed by the smallest, such as an angle.
        ignore: columns without actions in which the images of a pair may differ.
        balanced: in every split, give each action as many random pairs as the rarest one has.
        draws: random draws with replacement from the pairs of each step of each factor; each pair
            is used once. The authors use 1000. Default: all pairs.
        train_draws: `draws` of the training pairs; 0 for all. Default: as `draws`.
        unique: whether no two images agree in all factors. False pairs every image with a random
            one of those one step away, in its split (attributes of faces).
        visible: leave out pairs of equal images.
        distinct: put equal images into the same split.
        splits: "given", or "random" for new splits by image.
        validation, test: fractions of new splits; default: 70, 15 and 15 percent.
        seed: of all random choices.
    """
    if splits not in ("given", "random"):
        raise unknown("splits of transitions", splits, ("given", "random"))
    check_flags(balanced=balanced, unique=unique, visible=visible, distinct=distinct)
    check_whole(0, seed=seed)
    check_whole(1, draws=1 if draws is None else draws)
    check_whole(0, train_draws=0 if train_draws is None else train_draws)
    fractions = _check_split_fractions(splits, validation, test)
    if splits == "random":
        dataset = _draw_splits(dataset, {**FRACTIONS, **fractions}, seed)
    if distinct:
        dataset = keep_duplicates_together(dataset, seed)
    ignored = _check_names(ignore, factor_values(dataset)[0], "ignore")
    table = factor_table(dataset, ignored)
    chosen = _choose_factors(dataset.name, factors, table.names, table.codes)
    in_cycle = _check_names(cyclic, chosen, "cyclic")
    rng = np.random.default_rng([seed, 2])
    grid = FactorGrid(dataset, table, unique, rng)
    train_limit = (draws if train_draws is None else train_draws) or 0
    limits = {"train": train_limit, "validation": draws or 0, "test": draws or 0}  # 0 for all
    candidates = {
        limit: _all_pairs(grid, chosen, in_cycle, limit, rng)
        for limit in dict.fromkeys(limits.values())
    }
    actions = tuple(f"{name}{sign}" for name in chosen for sign in ("+1", "-1"))
    notes = [note for note in dataset.notes if note.kind not in NOTE_KINDS]
    notes += [*word_order_notes(dataset, chosen), *rare_value_notes(dataset, chosen)]
    pairs = {}
    for number, split in enumerate(SPLITS):
        before, after, action = candidates[limits[split]]
        rows = np.flatnonzero((table.split[before] == number) & (table.split[after] == number))
        if visible:
            first, second = table.row[before[rows]], table.row[after[rows]]
            rows = rows[images_differ(getattr(dataset, split), first, second)]
        counts = np.bincount(action[rows], minlength=len(actions))
        missing = [name for name, count in zip(actions, counts, strict=True) if not count]
        own_option = split == "train" and train_draws is not None
        advice = advise_more_pairs(
            dataset,
            split,
            new_splits=splits == "random",
            option="train_draws" if own_option else "draws",
            draws=limits[split],
        )
        check_actions_have_pairs(
            dataset.name,
            split,
            missing,
            len(actions),
            advice,
            required=balanced or split == "train",
        )
        if missing:
            notes.append(missing_actions_note(split, missing, advice))
        if balanced:
            rows = balance_actions(rows, action, len(actions), rng)
        pairs[split] = Transitions(
            torch.from_numpy(table.row[before[rows]]),
            torch.from_numpy(table.row[after[rows]]),
            torch.from_numpy(action[rows]),
            action_names=actions,
            factor_of_action=torch.arange(len(actions)) // 2,
            factor_names=chosen,
        )
    transitions = DatasetTransitions(**pairs, cyclic=in_cycle, unique=unique, ignored=ignored)
    return replace(dataset, transitions=transitions, actions=actions, notes=tuple(notes))


def _check_split_fractions(
    splits: str, validation: float | None, test: float | None
) -> dict[str, float]:
    """Return the given fractions; an error if they are for splits that are not drawn."""
    fractions = check_fractions(validation=validation, test=test)
    if splits == "given" and fractions:
        name, fraction = next(iter(fractions.items()))
        option = as_data_option(f"splits=random;{name}={fraction:g}")
        raise UsageError(
            f"{name}= of transitions is for new splits; pass splits='random' too {option}, or "
            f"give it to load_data itself (--data-option {name}=)."
        )
    return fractions


def _draw_splits(dataset: Dataset, fractions: Mapping[str, float], seed: int) -> Dataset:
    """Return the same images in new random splits."""
    images = sum(len(getattr(dataset, split)) for split in SPLITS)
    return resplit(
        dataset,
        split_rows(images, validation=fractions["validation"], test=fractions["test"], seed=seed),
    )


def _choose_factors(
    data: str, factors: str | Sequence[str] | None, names: Sequence[str], codes: np.ndarray
) -> tuple[str, ...]:
    """Return the factors that get actions; by default all with several values."""
    if factors is None:
        chosen = tuple(n for n, largest in zip(names, codes.max(0), strict=True) if largest > 0)
    else:
        chosen = _check_names(factors, names, "factors")
    if not chosen:
        raise UsageError(
            f"{data}: factors={factors!r} names no factor, so there would be no action; known: "
            f"{', '.join(names)}."
        )
    return chosen


def _check_names(names: str | Sequence[str], known: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the names without repetition; an error if one is unknown."""
    for name in (listed := read_names(names, option)):
        if name not in known:
            raise unknown(f"factor in {option}", name, known)
    return tuple(dict.fromkeys(listed))


def _all_pairs(
    grid: FactorGrid,
    factors: Sequence[str],
    cyclic: Sequence[str],
    draws: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return images before (P,) and after (P,) over all splits, and actions (P,), up and down.

    Arguments:
        draws: draws from the pairs of each step; 0 for all pairs.
    """
    steps = []
    for name in factors:
        factor = grid.names.index(name)
        lower, upper = grid.steps(factor, name in cyclic)
        if draws and len(lower):
            lower, upper = draw_pairs(lower, upper, grid.codes[lower, factor], draws, rng)
        steps.append((lower, upper))
    missing = [name for name, (lower, _) in zip(factors, steps, strict=True) if not len(lower)]
    if missing:
        varying = [name for name, size in zip(grid.names, grid.sizes, strict=True) if size > 1]
        raise no_steps_error(grid.dataset_name, missing, factors, varying)
    before = np.concatenate([rows for lower, upper in steps for rows in (lower, upper)])
    after = np.concatenate([rows for lower, upper in steps for rows in (upper, lower)])
    counts = [len(lower) for lower, _ in steps for _ in range(2)]
    return before, after, np.repeat(np.arange(2 * len(steps)), counts)
