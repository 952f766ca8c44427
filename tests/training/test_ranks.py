"""Several ranks of torchrun: parts of batches, noise, and what is refused, in this process."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from intervae.errors import UsageError
from intervae.nets.latents import draw_samples
from intervae.training.rank_checks import difference
from intervae.training.ranks import Ranks, current_ranks


def joined(draw: Any, rows: int, count: int) -> torch.Tensor:
    """Return what the ranks draw for their parts, one after the other."""
    pieces = []
    for rank in range(count):
        ranks, generator = Ranks(rank, count, rank), torch.Generator().manual_seed(3)
        part = ranks.part(rows)
        with ranks.noise_of(generator, rows):
            pieces.append(draw(part.stop - part.start, generator))
    return torch.cat(pieces)


@pytest.mark.parametrize(("rows", "count"), [(64, 2), (7, 3), (5, 5)])
@pytest.mark.parametrize(
    "draw",
    [
        lambda n, g: torch.randn(n, 3, generator=g),
        lambda n, g: torch.randn((n, 3, 2), generator=g),
        lambda n, g: torch.rand(n, generator=g),
        lambda n, g: torch.randint(5, (n, 1), generator=g),
        lambda n, g: torch.empty(n, 2).uniform_(-1, 1, generator=g),
        lambda n, g: draw_samples((n, 3), 2, g, torch.device("cpu")).transpose(0, 1),
        # the second draw has the noise that follows that of the whole batch
        lambda n, g: torch.stack([torch.randn(n, generator=g), torch.rand(n, generator=g)], 1),
    ],
)
def test_every_row_has_the_noise_of_one_rank(draw: Any, rows: int, count: int) -> None:
    assert torch.equal(joined(draw, rows, count), draw(rows, torch.Generator().manual_seed(3)))


def test_parts_differ_by_one_row_at_most_and_cover_the_batch() -> None:
    for rows in range(3, 20):
        slices = [Ranks(0, 3, 0).part(rows, rank) for rank in range(3)]
        assert [i for part in slices for i in range(rows)[part]] == list(range(rows))
        sizes = [part.stop - part.start for part in slices]
        assert max(sizes) - min(sizes) <= 1


def test_other_generators_are_left_alone() -> None:
    ranks, generator = Ranks(0, 2, 0), torch.Generator().manual_seed(3)
    other = torch.Generator().manual_seed(4)
    with ranks.noise_of(generator, 8):
        drawn = torch.randn(4, generator=other)
    assert torch.equal(drawn, torch.randn(4, generator=torch.Generator().manual_seed(4)))


def test_noise_that_cannot_be_cut_is_refused() -> None:
    ranks, generator = Ranks(0, 2, 0), torch.Generator().manual_seed(3)
    with (
        ranks.noise_of(generator, 8),
        pytest.raises(UsageError, match="cannot be split over ranks"),
    ):
        torch.multinomial(torch.ones(4, 2), 1, generator=generator)


def test_difference_is_relative_and_notices_missing_gradients() -> None:
    one, other = torch.tensor([4.0, 2.0]), torch.tensor([4.0, 3.0])
    assert difference([one, None], [other, None]) == 0.25
    assert difference([one], [None]) == float("inf")


def test_without_torchrun_there_are_no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert current_ranks() is None
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    assert current_ranks() is None
