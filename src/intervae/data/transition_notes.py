"""What is said of transitions: notes on steps that nobody chose or tested, and what to do where pictures make no pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from intervae.data.base import Dataset
from intervae.data.columns import TRUTH_WORDS, listed
from intervae.data.options import as_data_option
from intervae.errors import DataError
from intervae.settings import plain_value

WITHOUT_PAIRS = {split: f"transitions: the {split} split has no pair for" for split in ("validation", "test")}  # how the notes on these begin
MEANS = {"validation": "so training cannot tell how well it learns these", "test": "so these are never tested"}
IN_WORDS = "transitions: the steps of"  # and that on factors whose values are words
SELDOM = "transitions: the value"  # and that on values which hardly any picture has
FEWER = 10  # times fewer pictures than the other values of the factor, on average, have such a value
AUTHORS_DRAWS = 1000


def more_pairs(dataset: Dataset, split: str, anew: bool, drawn: str, draws: int) -> str:
    """What to do where a split lacks pairs: `draws` is how many of each step were drawn, 0 for all, and `drawn` the option that says so."""
    options = dataset.source.get("options", {})
    published = ("name" in dataset.source and "test" not in options) or any(n.startswith("splits:") and "given" in n for n in dataset.notes)
    name, size = ("test", "smaller") if split == "train" else (split, "larger")
    if 0 < draws < AUTHORS_DRAWS:
        more = f"draw more pairs, such as {drawn}={AUTHORS_DRAWS} {as_data_option(f'{drawn}={AUTHORS_DRAWS}')}, "
        return more + ("or other splits with splits='random'" if published and not anew else f"or give a {size} {name}=")
    if published and not anew:
        return f"draw other splits with splits='random' {as_data_option('splits=random')}, or give more pictures"
    where = as_data_option(f"splits=random;{name}=") if anew else f"(--data-option {name}=)"
    return f"give a {size} {name}= {where} or more pictures"


def no_steps(data: str, without: Sequence[str], chosen: Sequence[str], varied: Sequence[str]) -> DataError:
    """The error for those of the chosen factors, among all that vary, of which no two pictures are one step apart."""
    kept, which = ",".join(name for name in chosen if name not in without), " or ".join(map(repr, without))
    if kept:
        left = f"factors={kept!r} {as_data_option(f'factors={kept}')}"
        return DataError(
            f"{data}: no two pictures differ in {which} alone, by one step; "
            f"transitions need a grid in which a factor changes while the others stay: leave it out with {left}."
        )
    which = "one factor" if set(chosen) == set(varied) and len(chosen) > 1 else which
    return DataError(
        f"{data}: no two pictures differ in {which} alone, by one step, so there is no pair at all; transitions need a grid in which a factor "
        "changes while the others stay: add the pictures between, or leave out columns that follow from others with variables= (--variables)."
    )


def steps_in_words(dataset: Dataset, chosen: Sequence[str]) -> list[str]:
    """A note on each factor whose values are words of a table: they have an order that nobody chose, unless they are no and yes."""
    found = {v.name: v.categories for v in dataset.variables if v.name in chosen and any(isinstance(plain_value(word), str) for word in v.categories)}
    return [
        f"{IN_WORDS} {name!r} go in the order of its words ({listed(words, 4)}); numbers in the table instead of words give another order"
        for name, words in found.items()
        if "name" not in dataset.source and not any({word.lower() for word in words} <= truth for truth in TRUTH_WORDS)
    ]


def shown(dataset: Dataset, values: Mapping[str, float]) -> str:
    """Values of factors as a person writes them, such as x=3, colour=red."""
    return ", ".join(f"{name}={dataset.spec.variable(name).show(v) if name in dataset.names else f'{v:g}'}" for name, v in values.items())


def seldom(dataset: Dataset, chosen: Sequence[str]) -> list[str]:
    """A note on each value of a person's table that hardly any picture has, as if misprinted: it parts the steps of its factor."""
    if "name" in dataset.source:
        return []
    table, notes = np.concatenate([split.labels.cpu().numpy() for split in (dataset.train, dataset.validation, dataset.test)]), []
    for name in (name for name in chosen if name in dataset.names):
        values, counts = np.unique(table[:, dataset.names.index(name)], return_counts=True)
        for value, count in zip(values, counts, strict=True):
            others = (counts.sum() - count) / max(1, len(counts) - 1)
            if len(counts) > 2 and FEWER * count <= others:
                has = f"{count} picture{'' if count == 1 else 's'} only, where the others have {others:.0f} on average"
                notes.append(f"{SELDOM} {shown(dataset, {name: float(value)})} has {has}; if it is misprinted, steps to its neighbours are lost")
    return notes
