"""Notes and errors about transitions: unintended steps, and splits without pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from intervae.data.dataset import Dataset
from intervae.data.options import as_data_option
from intervae.data.raw_column import TRUTH_WORDS
from intervae.errors import DataError, abbreviate
from intervae.notes import Note
from intervae.settings import plain_value

NOTE_KINDS = ("actions-without-pairs", "alphabetical-order", "rare-value")
CONSEQUENCES = {
    "validation": "so validation does not measure these",
    "test": "so these are never tested",
}
RARE_FACTOR = 10  # a value is rare if the others have this many times more images on average
AUTHORS_DRAWS = 1000
PAIR_DUPLICATES = (
    f"unique=False {as_data_option('unique=false')}, for ct-vae with --set decoder_epochs=0"
)


# ---- notes ---------------------------------------------------------------------------------------
def missing_actions_note(split: str, actions: Sequence[str], advice: str) -> Note:
    """Return the note on actions that have no pair in a split."""
    text = f"transitions: the {split} split has no pair for {abbreviate(actions)}, "
    return Note("actions-without-pairs", split, f"{text}{CONSEQUENCES[split]}; {advice}")


def word_order_notes(dataset: Dataset, factors: Sequence[str]) -> list[Note]:
    """Return notes on factors of a user's table whose steps follow the alphabet."""
    if "name" in dataset.source:
        return []
    notes = []
    for variable in dataset.variables:
        words = variable.categories
        numbers = not any(isinstance(plain_value(word), str) for word in words)
        truth = any({word.lower() for word in words} <= pair for pair in TRUTH_WORDS)
        alphabetical = not (variable.ordered or numbers or truth)
        if variable.name in factors and alphabetical:
            text = (
                f"transitions: the steps of {variable.name!r} are in alphabetical order "
                f"({abbreviate(words, 4)}); give another one with kinds= (--kind)"
            )
            notes.append(Note("alphabetical-order", variable.name, text))
    return notes


def rare_value_notes(dataset: Dataset, factors: Sequence[str]) -> list[Note]:
    """Return notes on values of a user's table that few images have, likely typos."""
    if "name" in dataset.source:
        return []
    splits = (dataset.train, dataset.validation, dataset.test)
    labels = np.concatenate([split.labels.cpu().numpy() for split in splits])
    notes = []
    for name in (name for name in factors if name in dataset.names):
        values, counts = np.unique(labels[:, dataset.names.index(name)], return_counts=True)
        for value, count in zip(values, counts, strict=True):
            others = (counts.sum() - count) / max(1, len(counts) - 1)
            if len(counts) > 2 and RARE_FACTOR * count <= others:
                text = (
                    f"transitions: {format_factors(dataset, {name: float(value)})} occurs "
                    f"{count} time{'' if count == 1 else 's'}, the other values {others:.0f} times "
                    "on average; if it is a typo, steps to its neighbours are lost"
                )
                notes.append(Note("rare-value", name, text))
    return notes


def format_factors(dataset: Dataset, values: Mapping[str, float]) -> str:
    """Return values of factors as a user writes them, such as x=3, colour=red."""
    texts = {
        name: dataset.spec.variable(name).format_value(value)
        if name in dataset.names
        else f"{value:g}"
        for name, value in values.items()
    }
    return ", ".join(f"{name}={text}" for name, text in texts.items())


# ---- advice where pairs are missing --------------------------------------------------------------
def advise_more_pairs(
    dataset: Dataset, split: str, *, new_splits: bool, option: str, draws: int
) -> str:
    """Return what to do where a split has too few pairs.

    Arguments:
        new_splits: whether the splits were drawn by `with_transitions`.
        option: name of the option that limits the pairs of this split.
        draws: its value; 0 for all pairs.
    """
    options = dataset.source.get("options", {})
    published = ("name" in dataset.source and "test" not in options) or any(
        note.kind == "predefined-splits" for note in dataset.notes
    )
    keep_splits = new_splits or not published
    fraction, size = ("test", "smaller") if split == "train" else (split, "larger")
    if 0 < draws < AUTHORS_DRAWS:
        more = f"{option}={AUTHORS_DRAWS}"
        advice = f"draw more pairs, such as {more} {as_data_option(more)}, or "
        if keep_splits:
            return f"{advice}give a {size} {fraction}="
        return f"{advice}other splits with splits='random'"
    if not keep_splits:
        random = as_data_option("splits=random")
        return f"draw other splits with splits='random' {random}, or give more images"
    where = f"(--data-option {fraction}=)"
    if new_splits:
        where = as_data_option(f"splits=random;{fraction}=")
    return f"give a {size} {fraction}= {where} or more images"


def no_steps_error(
    data: str, missing: Sequence[str], factors: Sequence[str], varying: Sequence[str]
) -> DataError:
    """Return the error for factors in which no two images are one step apart.

    Arguments:
        missing: the factors without steps.
        factors: all that should have actions.
        varying: all that have several values.
    """
    others = ",".join(name for name in factors if name not in missing)
    which = " or ".join(map(repr, missing))
    if others:
        return DataError(
            f"{data}: no two images differ in {which} alone, by one step; transitions need a grid "
            "in which a factor changes while the others stay: leave it out with "
            f"factors={others!r} {as_data_option(f'factors={others}')}."
        )
    which = "one factor" if set(factors) == set(varying) and len(factors) > 1 else which
    return DataError(
        f"{data}: no two images differ in {which} alone, by one step, so there is no pair at all; "
        "transitions need a grid in which a factor changes while the others stay: add the images "
        "between, or leave out columns that follow from others with variables= (--variables)."
    )


def check_actions_have_pairs(
    data: str, split: str, missing: Sequence[str], total: int, advice: str, *, required: bool
) -> None:
    """Raise a DataError if all `total` actions are missing in a split, or any `required` one."""
    if len(missing) == total:
        raise DataError(f"{data}: the {split} split has no pair for any action; {advice}.")
    if missing and required:
        raise DataError(
            f"{data}: the {split} split has no pair for the action {missing[0]}; {advice}, or "
            "leave the factor out (factors=)."
        )
