"""Mirrored and shifted images."""

import pytest
import torch

from intervae.models.ct_vae.augmentations import (
    IDENTITY,
    Augmentation,
    all_augmentations,
    mean_over_augmentations,
)

IMAGES = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5)


def test_shift_repeats_the_border_and_precedes_the_mirror():
    down, left = Augmentation(down=1), Augmentation(right=-2)
    assert torch.equal(down.apply(IMAGES)[..., 1:, :], IMAGES[..., :-1, :])
    assert torch.equal(down.apply(IMAGES)[..., 0, :], IMAGES[..., 0, :])
    assert torch.equal(left.apply(IMAGES)[..., :3], IMAGES[..., 2:])
    assert torch.equal(left.apply(IMAGES)[..., 3], IMAGES[..., 4])
    shifted = Augmentation(right=1).apply(IMAGES)
    assert torch.equal(Augmentation(True, 0, 1).apply(IMAGES), shifted.flip(-1))
    assert torch.equal(IDENTITY.apply(IMAGES), IMAGES)


@pytest.mark.parametrize("augmentation", all_augmentations(mirror=True, shift=1))
def test_undo_restores_all_but_the_border(augmentation):
    inner = (..., slice(1, -1), slice(1, -1))
    restored = augmentation.undo(augmentation.apply(IMAGES))
    assert torch.equal(restored[inner], IMAGES[inner])
    assert torch.equal(augmentation.apply(augmentation.undo(IMAGES))[inner], IMAGES[inner])


@pytest.mark.parametrize(
    ("mirror", "shift", "count"), [(False, 0, 1), (True, 0, 2), (False, 2, 5), (True, 1, 10)]
)
def test_number_of_augmentations(mirror, shift, count):
    augmentations = all_augmentations(mirror=mirror, shift=shift)
    assert len(set(augmentations)) == len(augmentations) == count
    assert augmentations[0] == IDENTITY
    assert {abs(a.down) + abs(a.right) for a in augmentations[1:]} <= {0, shift}


def test_mean_of_an_equivariant_prediction_is_the_prediction():
    images = torch.ones(1, 1, 8, 8) * 0.25
    images[..., 3:5, 3:5] = 0.75
    augmentations = all_augmentations(mirror=True, shift=1)
    mean = mean_over_augmentations(augmentations, images, lambda _, augmented: 1 - augmented)
    torch.testing.assert_close(mean, 1 - images)
