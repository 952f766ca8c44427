"""The classifier of binary variables: squares that are drawn or not, rare classes, augmentation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from intervae.data import Variable
from intervae.errors import DataError
from intervae.metrics.attribute_classifier import augment, fit_attribute_classifier

VARIABLES = (Variable("top", "binary"), Variable("bottom", "binary"))
WIDTHS = (8, 16)


def squares(n: int, seed: int, rare: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images (n, 3, 16, 16) with a square in the upper half, the lower half, or neither."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, 2)) < (0.5, rare)).astype(np.float64)
    images = rng.integers(0, 100, (n, 3, 16, 16)).astype(np.uint8)
    images[labels[:, 0] == 1, :, 2:6, 5:11] += 120
    images[labels[:, 1] == 1, :, 10:14, 5:11] += 120
    return images, labels


def test_it_reads_new_images_and_its_quality_says_so() -> None:
    classifier = fit_attribute_classifier(*squares(400, 0), VARIABLES, epochs=40, widths=WIDTHS)
    images, labels = squares(200, 1)
    assert (classifier(images) == labels).mean() > 0.97
    assert np.array_equal(classifier(images), classifier(images.astype(np.float32) / 255))
    quality = {m.metric: m for m in classifier.quality(images, labels, name="predictor")}
    assert set(quality) == {
        "predictor_accuracy_min",
        "predictor_f1_min",
        "predictor_balanced_accuracy_min",
    }
    exact = {v.name: float((classifier(images) == labels)[:, i].mean()) for i, v in _numbered()}
    assert quality["predictor_accuracy_min"].per_variable == exact
    assert quality["predictor_accuracy_min"].parameters["training_pictures"] == 400


def test_labels_without_relation_to_the_images_are_read_by_chance() -> None:
    noise, (_, labels) = np.random.default_rng(2), squares(400, 0)
    images, others = noise.integers(0, 256, (2, 400, 3, 16, 16), dtype=np.uint8)
    classifier = fit_attribute_classifier(images, labels, VARIABLES, epochs=40, widths=WIDTHS)
    assert abs((classifier(others) == labels).mean() - 0.5) < 0.1  # 4 standard errors


def test_a_rare_class_weighs_as_much_as_the_frequent_one() -> None:
    """Where the image does not show a variable, a rare value is read as often as not."""
    images, labels = squares(600, 0, rare=0.1)
    images[:, :, 10:14] = 50
    classifier = fit_attribute_classifier(images, labels, VARIABLES, epochs=2, widths=WIDTHS)
    logits = classifier.logits(images)[:, 1]
    assert abs(logits.mean()) < 0.8  # log odds of the class are -2.2


def test_equal_seeds_give_equal_classifiers_whatever_ran_before() -> None:
    images, labels = squares(64, 0)
    first = fit_attribute_classifier(images, labels, VARIABLES, epochs=1, widths=WIDTHS)
    torch.rand(3)
    second = fit_attribute_classifier(images, labels, VARIABLES, epochs=1, widths=WIDTHS)
    third = fit_attribute_classifier(images, labels, VARIABLES, epochs=1, widths=WIDTHS, seed=1)
    assert np.array_equal(first.logits(images), second.logits(images))
    assert not np.array_equal(first.logits(images), third.logits(images))


def test_augmentation_mirrors_and_shifts() -> None:
    """A bright column moves by at most 2 of 32 pixels, and to the other side in half of them."""
    images = torch.zeros(200, 1, 32, 32)
    images[:, :, :, 8] = 1
    moved = augment(images, torch.Generator().manual_seed(0))
    assert moved.shape == images.shape
    places = moved[:, 0, 16].argmax(1)
    assert (moved.sum((1, 2, 3)) == 32).all()
    straight, mirrored = set(range(6, 11)), set(range(21, 26))
    assert set(places.tolist()) == straight | mirrored
    assert 0.35 < sum(place in mirrored for place in places.tolist()) / 200 < 0.65


def test_labels_are_zeros_and_ones() -> None:
    images, labels = squares(20, 0)
    labels[3, 1] = np.nan
    with pytest.raises(DataError, match="labels must be 0 or 1"):
        fit_attribute_classifier(images, labels, VARIABLES)


def _numbered() -> list[tuple[int, Variable]]:
    return list(enumerate(VARIABLES))
