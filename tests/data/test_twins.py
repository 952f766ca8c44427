"""Pictures that are equal to the last bit: kept in one split, and what they leave to guess of an action."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from intervae.data import Dataset, Variable, best_guess, build_dataset, load_data, reload, with_transitions
from intervae.data.twins import keep_together, picture_numbers
from intervae.errors import DataError, UsageError

WALK = (0, 1, 2, 1, 3)  # what frames 0 to 4 show: the fourth is the second once more


def walks(shown: tuple[int, ...] = WALK, people: int = 60, seed: int = 0) -> Dataset:
    """People who walk: the picture is a number for the person and one for what the frame shows."""
    table = np.array(list(itertools.product(range(people), range(len(shown)))), float)
    images = np.array([[[[person, shown[frame]]]] for person, frame in table.astype(int)], np.uint8)
    return build_dataset("walks", images, table, [Variable("person"), Variable("frame")], validation=0.3, test=0.4, seed=seed)


def seen(data: Dataset) -> list[set[bytes]]:
    return [{picture.numpy().tobytes() for picture in split.images} for split in (data.train, data.validation, data.test)]


def test_numbers_are_equal_where_pictures_are() -> None:
    split = walks().train
    numbers, flat = picture_numbers(split), split.images.flatten(1)
    assert numbers.shape == (len(split),)
    assert np.array_equal(numbers[:, None] == numbers, (flat[:, None] == flat).all(2).numpy())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_picture_is_in_two_splits_and_the_splits_keep_their_sizes(seed: int) -> None:
    data = walks(seed=seed)
    assert any(one & other for one, other in itertools.combinations(seen(data), 2))
    apart = with_transitions(data, distinct=True, seed=seed)
    assert not any(one & other for one, other in itertools.combinations(seen(apart), 2))
    sizes = [
        (len(before), len(after))
        for before, after in zip((data.train, data.validation, data.test), (apart.train, apart.validation, apart.test), strict=True)
    ]
    assert sum(before for before, _ in sizes) == sum(after for _, after in sizes)
    assert all(abs(before - after) < 0.12 * len(data.train) for before, after in sizes)
    rows = {tuple(row.tolist()) for split in (apart.train, apart.validation, apart.test) for row in split.labels}
    assert len(rows) == 300  # each picture is still there, with its own labels
    for split in (apart.train, apart.validation, apart.test):
        assert all(
            picture.flatten().tolist() == [int(person), WALK[int(frame)]] for picture, (person, frame) in zip(split.images, split.labels, strict=True)
        )
    assert apart.variables[1].mean == pytest.approx(apart.train.labels[:, 1].double().mean().item())


def test_without_twins_nothing_moves() -> None:
    data = walks((0, 1, 2, 3, 4))
    assert keep_together(data, 0) is data


def test_pictures_that_are_all_the_same_are_refused() -> None:
    images, table = np.zeros((40, 1, 4, 4), np.uint8), np.array(list(itertools.product(range(8), range(5))), float)
    with pytest.raises(DataError, match="leave a split empty"):
        with_transitions(build_dataset("dark", images, table, [Variable("x"), Variable("y")]), distinct=True)


def test_the_option_can_be_given_as_text_and_is_kept() -> None:
    data = load_data("shapes3d-like", size=16, levels=(3, 3, 3, 2, 2, 3), transitions="distinct=true")
    assert data.source["options"]["transitions"]["distinct"] is True
    assert torch.equal(reload(data.source).test.images, data.test.images)
    with pytest.raises(UsageError, match="distinct"):
        with_transitions(data, distinct="maybe")  # type: ignore[arg-type]


def test_the_best_guess_is_one_where_no_two_pictures_are_equal() -> None:
    assert best_guess(with_transitions(walks((0, 1, 2, 3, 4)))) == 1.0


def test_the_best_guess_is_half_right_where_a_step_forth_looks_like_one_back() -> None:
    data = with_transitions(walks(), factors="frame", distinct=True)
    assert data.transitions is not None
    pairs, frames = data.transitions.test, data.test.labels[:, 1].long()
    ends = [frozenset((frames[b].item(), frames[a].item())) for b, a in zip(pairs.before.tolist(), pairs.after.tolist(), strict=True)]
    ambiguous = sum(pair in ({1, 2}, {2, 3}) for pair in ends)  # 1 and 3 look alike and are in one split, so 2 has both beside it
    assert 0 < ambiguous < len(ends)
    assert best_guess(data) == pytest.approx(1 - 0.5 * ambiguous / len(ends))
