"""Ways to look at a picture."""

import pytest
import torch

from intervae.models.views import AS_IT_IS, View, all_views, mean_over

PICTURE = torch.arange(2 * 3 * 4 * 5).view(2, 3, 4, 5)


def test_a_picture_is_moved_with_copies_of_its_edge_and_then_mirrored():
    assert torch.equal(View(down=1).see(PICTURE)[..., 1:, :], PICTURE[..., :-1, :])
    assert torch.equal(View(down=1).see(PICTURE)[..., 0, :], PICTURE[..., 0, :])
    assert torch.equal(View(right=-2).see(PICTURE)[..., :3], PICTURE[..., 2:])
    assert torch.equal(View(right=-2).see(PICTURE)[..., 3], PICTURE[..., 4])
    assert torch.equal(View(True, 0, 1).see(PICTURE), View(right=1).see(PICTURE).flip(-1))
    assert torch.equal(AS_IT_IS.see(PICTURE), PICTURE)


@pytest.mark.parametrize("view", all_views(mirror=True, shift=1))
def test_what_was_not_lost_comes_back(view):
    back = view.undo(view.see(PICTURE))
    assert torch.equal(back[..., 1:-1, 1:-1], PICTURE[..., 1:-1, 1:-1])
    assert torch.equal(view.see(view.undo(PICTURE))[..., 1:-1, 1:-1], PICTURE[..., 1:-1, 1:-1])


@pytest.mark.parametrize(("mirror", "shift", "many"), [(False, 0, 1), (True, 0, 2), (False, 2, 5), (True, 1, 10)])
def test_there_are_as_many_views_as_asked_for_the_plain_one_first(mirror, shift, many):
    views = all_views(mirror=mirror, shift=shift)
    assert len(set(views)) == len(views) == many
    assert views[0] == AS_IT_IS
    assert {abs(view.down) + abs(view.right) for view in views[1:]} <= {0, shift}


def test_the_mean_over_views_of_an_answer_that_moves_along_is_the_answer():
    smooth = torch.ones(1, 1, 8, 8) * 0.25
    smooth[..., 3:5, 3:5] = 0.75
    found = mean_over(all_views(mirror=True, shift=1), smooth, lambda _, seen: 1 - seen)
    torch.testing.assert_close(found, 1 - smooth)
