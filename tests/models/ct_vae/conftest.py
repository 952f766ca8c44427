"""Fixtures of CT-VAE's tests: images of squares, and a model trained on them."""

from __future__ import annotations

import pytest

from intervae.data import Dataset
from intervae.models.ct_vae.model import CTVAE
from pairs import random_pairs
from squares import squares, trained_squares


@pytest.fixture(scope="module")
def data() -> Dataset:
    """All squares, with pairs one step apart."""
    return squares()


@pytest.fixture(scope="module")
def random_data() -> Dataset:
    """64 images with random pairs, from which nothing can be learned."""
    return random_pairs(squares(4, 4, 2, 2))


@pytest.fixture(scope="module")
def trained() -> CTVAE:
    """A model trained on `data`."""
    return trained_squares()
