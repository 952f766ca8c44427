"""The texts of notes, as tests compare them."""

from __future__ import annotations

from intervae.data import Dataset


def note_texts(dataset: Dataset) -> tuple[str, ...]:
    """Return the texts of the data set's notes."""
    return tuple(note.text for note in dataset.notes)
