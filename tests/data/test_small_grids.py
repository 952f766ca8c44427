"""Transitions of small tables of one's own: what is noted, and what a refusal advises does work."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from intervae.data import Variable, build_dataset, load_data, with_transitions
from intervae.errors import DataError


def test_actions_without_a_test_pair_are_noted_and_a_larger_test_split_has_some(tmp_path):
    """A grid of 10 x 6 pictures in the splits of the paper: the two test pairs are both of y."""
    np.savez(tmp_path / "grid.npz", images=np.full((60, 2, 2), 9, np.uint8), labels=list(itertools.product(range(10), range(6))), names=("x", "y"))
    small = load_data(tmp_path / "grid.npz", transitions=True)
    assert small.transitions.test.counts.tolist() == [0, 0, 1, 1]
    note = "transitions: the test split has no pair for x+1, x-1, so these are never tested; give a larger test= or more pictures"
    assert small.notes == ("column 'x': numbers", "column 'y': numbers", note)
    larger = load_data(tmp_path / "grid.npz", transitions=True, test=0.4)
    assert larger.transitions.test.counts.min() > 0
    assert larger.notes == small.notes[:2]
    assert with_transitions(small, factors="y").notes == small.notes[:2]  # what was said of other pairs is gone
    assert with_transitions(small).notes == small.notes
    with pytest.raises(DataError, match=r"the test split has no pair for the action x\+1"):
        with_transitions(small, balanced=True)


def test_the_note_on_actions_without_a_test_pair_is_cut():
    table = np.array(list(itertools.product(range(3), repeat=5)), float)
    test = np.zeros(len(table), bool)
    test[:2] = True  # they differ in the last factor alone
    variables = [Variable(name) for name in "abcde"]
    (note,) = with_transitions(build_dataset("made", np.zeros((len(table), 1, 2, 2), np.uint8), table, variables, validation=0.3, test=test)).notes
    assert "no pair for a+1, a-1, b+1, b-1, c+1, c-1, ... (8 in all), so" in note


def test_one_factor_that_differs_in_every_picture_has_no_steps_and_what_the_refusal_advises_works():
    grey = np.random.default_rng(0).uniform(size=(60, 1))

    def load(values, **options):
        made = build_dataset("made", np.zeros((60, 1, 2, 2), np.uint8), values, [Variable("grey")], validation=0.2, test=0.2)
        return with_transitions(made, **options)

    advice = r"pass unique=False \(for ct-vae with picture_epochs=0\)"
    with pytest.raises(DataError, match=f"'grey' has 60 different values in 60 pictures and is the only factor, .* round it and {advice}") as refused:
        load(grey)
    assert "ignore=" not in str(refused.value)
    with pytest.raises(DataError, match=f"the same factors.* {advice} to pair pictures"):
        load(grey.round(1))
    assert load(grey.round(1), unique=False).actions == ("grey+1", "grey-1")
