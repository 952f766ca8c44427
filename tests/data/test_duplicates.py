"""Duplicate images: kept in one split, and their effect on the accuracy of actions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from intervae.data import (
    Dataset,
    Variable,
    action_ceiling,
    build_dataset,
    load_data,
    reload,
    with_transitions,
)
from intervae.data.duplicates import image_hashes, keep_duplicates_together
from intervae.errors import DataError, UsageError

WALK = (0, 1, 2, 1, 3)  # what frames 0 to 4 show; frame 3 is a duplicate of frame 1


def walks(frames: tuple[int, ...] = WALK, people: int = 60, seed: int = 0) -> Dataset:
    """Return images of two pixels: the number of a person, and what the frame shows."""
    table = np.array(list(itertools.product(range(people), range(len(frames)))), float)
    pixels = [[[[person, frames[frame]]]] for person, frame in table.astype(int)]
    return build_dataset(
        "walks",
        np.array(pixels, np.uint8),
        table,
        [Variable("person"), Variable("frame")],
        validation=0.3,
        test=0.4,
        seed=seed,
    )


def share_images(data: Dataset) -> bool:
    """Return whether two splits have an image in common."""
    images = [{image.numpy().tobytes() for image in split.images} for split in splits_of(data)]
    return any(a & b for a, b in itertools.combinations(images, 2))


def splits_of(data: Dataset) -> tuple:
    return data.train, data.validation, data.test


def test_hashes_are_equal_exactly_for_equal_images() -> None:
    split = walks().train
    hashes, flat = image_hashes(split), split.images.flatten(1)
    assert hashes.shape == (len(split),)
    assert np.array_equal(hashes[:, None] == hashes, (flat[:, None] == flat).all(2).numpy())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_distinct_splits_share_no_image_and_keep_their_sizes(seed: int) -> None:
    data = walks(seed=seed)
    assert share_images(data)
    distinct = with_transitions(data, distinct=True, seed=seed)
    assert not share_images(distinct)
    old, new = ([len(split) for split in splits_of(each)] for each in (data, distinct))
    assert sum(old) == sum(new)
    assert all(abs(a - b) < 0.12 * len(data.train) for a, b in zip(old, new, strict=True))
    rows = {tuple(row.tolist()) for split in splits_of(distinct) for row in split.labels}
    assert len(rows) == 300  # no image is lost
    for split in splits_of(distinct):
        for image, (person, frame) in zip(split.images, split.labels, strict=True):
            assert image.flatten().tolist() == [int(person), WALK[int(frame)]]
    mean = distinct.train.labels[:, 1].double().mean().item()
    assert distinct.variables[1].mean == pytest.approx(mean)


def test_data_without_duplicates_stays_as_it_is() -> None:
    data = walks((0, 1, 2, 3, 4))
    assert keep_duplicates_together(data, 0) is data


def test_only_equal_images_raise() -> None:
    images = np.zeros((40, 1, 4, 4), np.uint8)
    table = np.array(list(itertools.product(range(8), range(5))), float)
    data = build_dataset("dark", images, table, [Variable("x"), Variable("y")])
    with pytest.raises(DataError, match="leaves a split empty"):
        with_transitions(data, distinct=True)


def test_distinct_may_be_given_as_text_and_is_stored() -> None:
    data = load_data(
        "shapes3d-like", size=16, levels=(3, 3, 3, 2, 2, 3), transitions="distinct=true"
    )
    assert data.source["options"]["transitions"]["distinct"] is True
    assert torch.equal(reload(data.source).test.images, data.test.images)
    with pytest.raises(UsageError, match="distinct"):
        with_transitions(data, distinct="maybe")  # type: ignore[arg-type]


def test_action_ceiling_is_one_without_duplicates() -> None:
    assert action_ceiling(with_transitions(walks((0, 1, 2, 3, 4)))) == 1.0


def test_action_ceiling_is_half_for_pairs_that_look_alike() -> None:
    """Frames 1 and 3 are equal, so a step from frame 2 to either looks the same."""
    data = with_transitions(walks(), factors="frame", distinct=True)
    assert data.transitions is not None
    pairs, frames = data.transitions.test, data.test.labels[:, 1].long()
    frames_of_pairs = torch.stack([frames[pairs.before], frames[pairs.after]], dim=1)
    ends = [set(pair) for pair in frames_of_pairs.tolist()]
    ambiguous = sum(pair in ({1, 2}, {2, 3}) for pair in ends)
    assert 0 < ambiguous < len(ends)
    assert action_ceiling(data) == pytest.approx(1 - 0.5 * ambiguous / len(ends))
