"""The quantiser against nearest neighbours by hand, moving averages by hand, and k-means' own job: codes that cover separate clusters."""

from __future__ import annotations

import math

import pytest
import torch

from intervae.nets.quantise import Quantiser, usage


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def quantiser(codebooks: int = 2, codes: int = 5, dims: int = 3, **options: float) -> Quantiser:
    made = Quantiser(codebooks, codes, dims, **options)
    made.codes.copy_(draw(codebooks, codes, dims, seed=1))
    return made


def test_every_place_gets_the_nearest_code_of_its_own_codebook() -> None:
    made, features = quantiser(), draw(4, 6, 2, 3)
    found = made(features)
    by_hand = torch.zeros(4, 2, 2, 3, dtype=torch.int64)
    for b, k, i, j in torch.cartesian_prod(*map(torch.arange, (4, 2, 2, 3))).tolist():
        vector = features[b, 3 * k : 3 * (k + 1), i, j]  # channels k d ... (k + 1) d - 1, no others
        by_hand[b, k, i, j] = int((made.codes[k] - vector).square().sum(1).argmin())
    assert torch.equal(found.indices, by_hand.flatten(1))
    assert torch.equal(made.indices(features), found.indices)
    assert torch.equal(made.nearest(made.lookup(found.indices)), found.indices)


def test_every_channel_is_used_and_belongs_to_one_codebook() -> None:
    """The authors' codebook i takes channels i ... i + d - 1, so that most channels reach no code."""
    made = quantiser(4, 8, 2)
    features = draw(3, 8, 2, 2).requires_grad_()
    made(features).commitment.sum().backward()
    assert features.grad is not None
    assert (features.grad != 0).all()
    for channel in range(8):
        moved = features.detach().clone()
        moved[:, channel] += 100
        changed = (made.indices(moved) != made.indices(features)).unflatten(1, (4, 4)).any(2).any(0)
        assert changed.nonzero().flatten().tolist() in ([], [channel // 2])


def test_codes_go_to_the_decoder_and_gradients_straight_through() -> None:
    made, features = quantiser(), draw(4, 6, 2, 3).requires_grad_()
    found = made(features)
    assert torch.allclose(found.features, made.to_map(made.lookup(found.indices), 2, 3), atol=1e-6)
    weights = draw(4, 6, 2, 3, seed=3)
    (found.features * weights).sum().backward()
    assert torch.allclose(features.grad, weights)  # type: ignore[arg-type]


def test_the_commitment_is_the_summed_squared_distance() -> None:
    made, features = quantiser(), draw(4, 6, 2, 3)
    found = made(features)
    assert torch.allclose(found.commitment, (features - found.features).square().flatten(1).sum(1), rtol=1e-4)


def test_the_codes_are_moving_averages_of_their_features() -> None:
    made = quantiser(1, 2, 1, decay=0.75, restart=0.0)
    made.codes.copy_(torch.tensor([[[-1.0], [1.0]]]))
    made.uses.copy_(torch.tensor([[0.5, 0.5]]))
    made.sums.copy_(made.codes * 0.5)
    made.train()(torch.tensor([[[[-3.0, 2.0, 4.0, 3.0]]]]))
    made.update()
    uses = torch.tensor([0.75 * 0.5 + 0.25 * 1 / 4, 0.75 * 0.5 + 0.25 * 3 / 4])
    sums = torch.tensor([0.75 * -0.5 + 0.25 * -3 / 4, 0.75 * 0.5 + 0.25 * 9 / 4])
    assert torch.allclose(made.uses[0], uses)
    assert torch.allclose(made.codes[0, :, 0], sums / uses)


def test_a_forward_pass_changes_nothing_and_an_update_without_one_neither() -> None:
    made = quantiser().train()
    before = {name: value.clone() for name, value in made.state_dict().items()}
    made.update()
    made(draw(4, 6, 2, 3))
    assert all(torch.equal(value, before[name]) for name, value in made.state_dict().items())
    made.update()
    assert not torch.equal(made.codes, before["codes"])


def test_questions_outside_training_are_not_learned_from() -> None:
    made = quantiser().eval()
    made(draw(4, 6, 2, 3))
    before = made.codes.clone()
    made.update()
    assert torch.equal(made.codes, before)


def clusters(seed: int) -> torch.Tensor:
    """Sixteen tight clusters, nine tenths of all places in one of them, as backgrounds are: features (32, 2, 4, 4)."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0)) * 10
    which = torch.randint(16, (32, 4, 4), generator=generator)
    which = torch.where(torch.rand(32, 4, 4, generator=generator) < 0.9, 0, which)
    return (centres[which] + 0.1 * torch.randn(32, 4, 4, 2, generator=generator)).permute(0, 3, 1, 2)


@pytest.mark.parametrize(("restart", "covers"), [(0.1, True), (0.0, False)])
def test_dead_codes_start_anew_until_every_cluster_has_its_code(restart: float, covers: bool) -> None:
    made = Quantiser(1, 32, 2, restart=restart).train()
    made.uses.fill_(1 / 32)
    made.codes.copy_(100 + draw(1, 32, 2))  # far away, so that only one of them is ever next to a feature
    made.sums.copy_(made.codes / 32)
    generator = torch.Generator().manual_seed(0)
    for step in range(800):
        made(clusters(step), generator)
        made.update()
    error = made.eval()(clusters(1000)).commitment.mean().item() / 16
    assert (error < 0.1) == covers
    used, perplexity = usage(made.uses[0])
    assert torch.isfinite(made.codes).all()
    assert 0 < used <= 1
    assert 1 <= perplexity <= 32


def test_a_background_that_moves_while_the_encoder_learns_gets_one_code_and_keeps_it_under_rounding() -> None:
    """Its code lags behind, so that of all places the most have an error, and codes start anew there again and again."""

    def features(step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(step)
        things = 3 * torch.randn(16, 8, 4, 4, generator=generator)
        background = torch.full((16, 8, 4, 4), math.sin(step / 30) * max(0, 1 - step / 300))
        return torch.where(torch.rand(16, 1, 4, 4, generator=generator) < 0.9, background, things)

    made, generator = Quantiser(1, 64, 8).train(), torch.Generator().manual_seed(0)
    for step in range(400):
        made(features(step), generator)
        made.update()
    made.eval().merge()
    assert int(made.merged.sum()) <= 2  # what started anew in the last steps; 21 where doubles may stay
    living = made.codes[0][~made.merged[0]]
    apart = torch.pdist(living).min() / (living - living.mean(0)).square().sum(1).mean().sqrt()
    assert apart > 0.05
    asked = features(399)
    noise = 1e-2 * torch.randn(asked.shape, generator=generator)
    assert (made.indices(asked) != made.indices(asked + noise)).float().mean() < 0.01


def test_of_two_codes_in_one_spot_the_one_in_use_is_chosen() -> None:
    made = quantiser(2, 4, 3).eval()
    made.codes[0] = torch.tensor([[0.0, 0, 0], [5, 0, 0], [0.001, 0, 0], [0, 5, 0]])
    made.codes[1] = torch.tensor([[0.0, 0, 0], [5, 0, 0], [0, 0, 5], [0, 5, 0]])
    made.uses.copy_(torch.tensor([[0.1, 0.3, 0.5, 0.1], [0.25, 0.25, 0.25, 0.25]]))
    at_zero = torch.zeros(1, 6, 1, 1)
    assert made.indices(at_zero).tolist() == [[0, 0]]
    made.merge()
    assert made.merged.tolist() == [[True, False, False, False], [False] * 4]
    assert made.indices(at_zero).tolist() == [[2, 0]]
    assert torch.isfinite(made(at_zero).features).all()
    made.codes[1].fill_(1.0)  # all in one spot: the first of those that are used as much
    made.merge()
    assert made.merged[1].tolist() == [False, True, True, True]


def settled(codes: list[list[float]], uses: list[float]) -> Quantiser:
    """One codebook in training, its codes of two dims where they are and used as said."""
    made = Quantiser(1, len(codes), 2).train()
    made.codes.copy_(torch.tensor([codes]))
    made.uses.copy_(torch.tensor([uses]))
    made.sums.copy_(made.codes * made.uses[..., None])
    return made


def test_the_double_that_is_used_less_starts_anew_at_what_no_code_is_next_to() -> None:
    made = settled([[0.0, 0.0], [5.0, 0.0], [0.01, 0.0], [0.0, 5.0]], [0.2, 0.25, 0.3, 0.25])
    places = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [9.0, 9.0]])
    made(places.T.reshape(1, 2, 2, 2), torch.Generator().manual_seed(0))
    made.update()
    assert torch.allclose(made.codes[0], torch.tensor([[9.0, 9.0], [5.0, 0.0], [0.01, 0.0], [0.0, 5.0]]), atol=0.2)


def test_no_two_codes_start_in_one_spot_or_beside_a_living_one() -> None:
    made = settled([[0.0, 0.0], [5.0, 0.0], [70.0, 0.0], [80.0, 0.0], [90.0, 0.0]], [0.5, 0.5, 0.0, 0.0, 0.0])
    places = torch.tensor([[0.0, 0.0], [5.0, 0.0], [9.0, 9.0], [9.0, 9.0]])
    made(places.T.reshape(1, 2, 2, 2), torch.Generator().manual_seed(0))
    made.update()
    assert ((made.codes[0] - 9).abs() < 1e-3).all(1).sum() == 1
    assert (made.codes[0, 2:, 0] >= 70).sum() == 2  # the others wait


@pytest.mark.parametrize("living", [slice(0, 8), slice(8, 16)])
def test_dead_codes_of_any_number_get_the_new_places(living: slice) -> None:
    made = Quantiser(1, 16, 2).train()
    made.codes.fill_(1e3)
    made.codes[0, living] = torch.stack([torch.arange(8.0), torch.zeros(8)], dim=1)
    made.uses[0, living] = 1 / 8
    made.sums.copy_(made.codes * made.uses[..., None])
    old, new = torch.cartesian_prod(torch.arange(8.0), torch.zeros(1)).repeat(15, 1), torch.tensor([[3.0, 50.0], [4.0, -50.0], *[[1.0, 0.0]] * 6])
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        made(torch.cat([old, new]).T.reshape(1, 2, 8, 16), generator)
        made.update()
    for spot in new[:2]:
        assert (made.codes[0] - spot).norm(dim=1).min() < 0.1


def test_a_code_gives_way_only_to_one_that_stays() -> None:
    """Of a chain 0 - 2.5 - 5 the ends are no doubles: without the first, who is next to it?"""
    far = [[20.0 * math.cos(angle), 20.0 * math.sin(angle)] for angle in range(5)]
    made = settled([[0.0, 0.0], [2.5, 0.0], [5.0, 0.0], *far], [0.1, 0.15, 0.25, *[0.1] * 5])
    made.merge()
    assert made.merged[0].tolist() == [False, True, False, *[False] * 5]


def test_codes_that_nobody_uses_do_not_make_doubles_of_the_others() -> None:
    used = torch.randn(12, 2, generator=torch.Generator().manual_seed(0)).tolist()
    made = settled([*used, *[[30.0 * math.cos(k), 30.0 * math.sin(k)] for k in range(52)]], [*[1 / 12] * 12, *[0.0] * 52])
    made.merge()
    assert not made.merged[0, :12].any()


def test_codes_close_together_are_no_doubles_because_others_are_far_away() -> None:
    """As on dSprites, where the patches of an edge are many and alike, and empty ones lie far from them."""
    line = [[0.1 * k, 0.0] for k in range(14)]
    made = settled([*line, [100.0, 0.0], [0.0, 100.0]], [1 / 16] * 16)
    made.merge()
    assert not made.merged.any()
    made.codes[0, 3] = made.codes[0, 4] + 0.01
    made.merge()
    assert made.merged[0].nonzero().flatten().tolist() == [4]


def test_doubles_are_found_when_most_codes_are_doubles_and_in_codebooks_of_any_scale() -> None:
    made = quantiser(2, 6, 2).eval()
    spots = torch.tensor([[0.0, 0.0], [0.001, 0.0], [5.0, 0.0], [5.001, 0.0], [0.0, 5.0], [0.0, 5.001]])
    made.codes.copy_(torch.stack([spots, 1000 * spots]))
    made.uses.copy_(torch.tensor([[0.2, 0.1, 0.2, 0.1, 0.3, 0.1]] * 2))
    made.merge()
    assert made.merged.tolist() == [[False, True] * 3] * 2
    made.uses[1] = torch.tensor([1.0, 0, 0, 0, 0, 0])  # one living code, or none, says nothing of distances
    made.uses[0] = 0.0
    made.merge()
    assert not made.merged.any()


def test_a_second_training_has_all_codes_again() -> None:
    made = settled([[0.0, 0.0], [5.0, 0.0], [0.01, 0.0], [0.0, 5.0]], [0.2, 0.25, 0.3, 0.25])
    made.merge()
    assert made.merged.any()
    made(torch.randn(4, 2, 2, 2, generator=torch.Generator().manual_seed(0)))
    made.update()
    assert not made.merged.any()


def test_the_same_generator_gives_the_same_restarts() -> None:
    ends = []
    for seed in (0, 0, 1):
        made = quantiser(1, 8, 2).train()
        made(draw(2, 2, 4, 4), torch.Generator().manual_seed(seed))
        made.update()
        ends.append(made.codes.clone())
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


def test_fewer_places_than_codes_can_be_learned_from() -> None:
    made = Quantiser(2, 16, 3).train()
    made(draw(1, 6, 1, 1))
    made.update()
    assert torch.isfinite(made.codes).all()


def test_usage_and_perplexity_in_closed_form() -> None:
    used, perplexity = usage(torch.tensor([[1.0, 1.0, 2.0, 0.0], [5.0, 0.0, 0.0, 0.0]]))
    assert used.tolist() == [0.75, 0.25]
    assert perplexity.tolist() == pytest.approx([math.exp(0.5 * math.log(4) + 0.5 * math.log(2)), 1.0])


@pytest.mark.gpu
def test_cpu_and_gpu_agree() -> None:
    made, features = quantiser(), draw(4, 6, 2, 3)
    expected = made(features)
    found = made.to("cuda")(features.to("cuda"))
    assert torch.equal(found.indices.cpu(), expected.indices)
    assert torch.allclose(found.commitment.cpu(), expected.commitment, rtol=1e-3)


def test_codes_far_out_and_close_together_are_told_apart() -> None:
    """Single precision, and TF32 far sooner, would lose what lies between them in |x|^2 - 2 x c + |c|^2."""
    made = settled([[side * 1000.0, 0.05 * k] for side in (-1, 1) for k in range(8)], [1 / 16] * 16).eval()
    assert made.indices(made.codes[0].T.reshape(1, 2, 4, 4)).tolist() == [list(range(16))]


def test_a_code_is_the_same_in_every_precision() -> None:
    """Features far from 0 would cancel in |x|^2 - 2 x c + |c|^2, and under autocast the product is of 8 bits."""
    generator = torch.Generator().manual_seed(0)
    quantiser = Quantiser(2, 64, 16)
    quantiser.codes.copy_(torch.randn(2, 64, 16, generator=generator) + 10)
    features = torch.randn(4, 32, 3, 3, generator=generator) + 10
    exact = torch.stack(
        [torch.cdist(part, codes).argmin(1) for part, codes in zip(quantiser._by_codebook(features).double(), quantiser.codes.double(), strict=True)]
    )
    with torch.autocast("cpu", torch.bfloat16):
        found = quantiser.indices(features)
    assert torch.equal(found, quantiser._as_places(exact, 9))
