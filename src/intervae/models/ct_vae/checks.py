"""Checks of the data before CT-VAE is trained: errors, and notes on unsuitable settings."""

from __future__ import annotations

from intervae.data import Dataset, Spec
from intervae.data.transitions import action_factors
from intervae.errors import DataError, UsageError, unknown
from intervae.models.ct_vae.settings import CTVAESettings
from intervae.notes import Note

MIN_GRID_SIDE = 4  # rows or columns of a code grid; fewer give a note
FEW_STEPS, ENOUGH_STEPS = 200, 500  # steps of a phase: below the first a note suggests the second
LOAD_TRANSITIONS = (
    "load it with transitions=True (--data-option transitions=true), or call with_transitions()"
)


def check_actions(name: str, actions: tuple[str, ...]) -> None:
    """Raise a DataError if the data has no actions; `name` is the model's."""
    if not actions:
        raise DataError(
            f"{name} learns from actions between images, but this data has none; "
            f"{LOAD_TRANSITIONS}."
        )


def check_pairs(name: str, spec: Spec, settings: CTVAESettings, data: Dataset) -> None:
    """Raise an error if the data has no suitable pairs; `name` is the model's."""
    if data.transitions is None:
        raise DataError(
            f"{name} learns from pairs of images, but this data has none; {LOAD_TRANSITIONS}."
        )
    if settings.decoder_epochs and not data.transitions.unique:
        raise UsageError(
            f"decoder_epochs={settings.decoder_epochs}: the pairs of {data.name} (unique=False) "
            "differ in more than the action, so the decoder would learn the mean of different "
            "images; set decoder_epochs=0."
        )
    smallest = min(spec.image_shape[1:])
    if settings.shift >= smallest:
        raise UsageError(
            f"shift={settings.shift} is too large for images of {smallest} pixels; "
            "use a few pixels."
        )
    factors = action_factors(spec.actions)[0]
    for factor in settings.mirror:
        if factor not in factors:
            raise unknown("factor in mirror", factor, factors)
    pairs = len(data.transitions.train)
    if pairs < settings.transition_batch:
        raise DataError(
            f"there are {pairs} training pairs, fewer than one transition_batch of "
            f"{settings.transition_batch}; set transition_batch={pairs} or less."
        )


def training_notes(settings: CTVAESettings, grid: tuple[int, int], data: Dataset) -> list[Note]:
    """Return notes on too few training steps ("few-steps") and large patches ("coarse-patch")."""
    notes = []
    if min(grid) < MIN_GRID_SIDE:
        text = f"patch={settings.patch} gives a coarse grid of {grid[0]} x {grid[1]} codes"
        notes.append(Note("coarse-patch", "patch", f"{text}; a smaller patch shows more"))
    pairs = 0 if data.transitions is None else len(data.transitions.train)
    for name, samples, batch_size in (
        ("epochs", len(data.train), settings.batch_size),
        ("transition_epochs", pairs, settings.transition_batch),
    ):
        epochs, steps = getattr(settings, name), max(1, samples // batch_size)
        if epochs * steps < FEW_STEPS:
            enough = -(-ENOUGH_STEPS // steps)
            text = f"{name}={epochs} gives only {epochs * steps} steps on data this small"
            text += f"; {name}={enough} would give {enough * steps}"
            notes.append(Note("few-steps", name, text))
    return notes
