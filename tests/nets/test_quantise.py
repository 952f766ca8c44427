"""Quantisation: nearest codes, moving averages, restarts, and duplicate codes."""

from __future__ import annotations

import math

import pytest
import torch

from intervae.nets.quantise import Quantiser, usage
from normal_draws import draw_float32 as draw


def random_quantiser(
    codebooks: int = 2, codes: int = 5, dims: int = 3, **options: float
) -> Quantiser:
    quantiser = Quantiser(codebooks, codes, dims, **options)
    quantiser.codes.copy_(draw(codebooks, codes, dims, seed=1))
    return quantiser


def test_each_position_gets_the_nearest_code_of_its_codebook() -> None:
    quantiser, features = random_quantiser(), draw(4, 6, 2, 3)
    quantised = quantiser(features)
    expected = torch.zeros(4, 2, 2, 3, dtype=torch.int64)
    for b, k, i, j in torch.cartesian_prod(*map(torch.arange, (4, 2, 2, 3))).tolist():
        vector = features[b, 3 * k : 3 * (k + 1), i, j]  # channels k d ... (k + 1) d - 1
        expected[b, k, i, j] = int((quantiser.codes[k] - vector).square().sum(1).argmin())
    indices = quantised.indices
    assert torch.equal(indices, expected.flatten(1))
    assert torch.equal(quantiser.indices(features), indices)
    assert torch.equal(quantiser.nearest(quantiser.lookup(indices)), indices)


def test_each_channel_belongs_to_one_codebook() -> None:
    """The authors' codebook i takes channels i ... i + d - 1; most channels are unused."""
    quantiser = random_quantiser(4, 8, 2)
    features = draw(3, 8, 2, 2).requires_grad_()
    quantiser(features).commitment.sum().backward()
    assert features.grad is not None
    assert (features.grad != 0).all()
    for channel in range(8):
        moved = features.detach().clone()
        moved[:, channel] += 100
        changed = (
            (quantiser.indices(moved) != quantiser.indices(features))
            .unflatten(1, (4, 4))
            .any(2)
            .any(0)
        )
        assert changed.nonzero().flatten().tolist() in ([], [channel // 2])


def test_gradients_pass_straight_through_the_codes() -> None:
    quantiser, features = random_quantiser(), draw(4, 6, 2, 3).requires_grad_()
    quantised = quantiser(features)
    codes = quantiser.to_map(quantiser.lookup(quantised.indices), 2, 3)
    assert torch.allclose(quantised.features, codes, atol=1e-6)
    weights = draw(4, 6, 2, 3, seed=3)
    (quantised.features * weights).sum().backward()
    assert torch.allclose(features.grad, weights)  # type: ignore[arg-type]


def test_commitment_is_the_summed_squared_distance() -> None:
    quantiser, features = random_quantiser(), draw(4, 6, 2, 3)
    quantised = quantiser(features)
    expected = (features - quantised.features).square().flatten(1).sum(1)
    assert torch.allclose(quantised.commitment, expected, rtol=1e-4)


def test_codes_are_moving_averages_of_their_features() -> None:
    quantiser = random_quantiser(1, 2, 1, decay=0.75, restart=0.0)
    quantiser.codes.copy_(torch.tensor([[[-1.0], [1.0]]]))
    quantiser.uses.copy_(torch.tensor([[0.5, 0.5]]))
    quantiser.sums.copy_(quantiser.codes * 0.5)
    quantiser.train()(torch.tensor([[[[-3.0, 2.0, 4.0, 3.0]]]]))
    quantiser.update()
    uses = torch.tensor([0.75 * 0.5 + 0.25 * 1 / 4, 0.75 * 0.5 + 0.25 * 3 / 4])
    sums = torch.tensor([0.75 * -0.5 + 0.25 * -3 / 4, 0.75 * 0.5 + 0.25 * 9 / 4])
    assert torch.allclose(quantiser.uses[0], uses)
    assert torch.allclose(quantiser.codes[0, :, 0], sums / uses)


def test_only_an_update_after_a_forward_pass_changes_codes() -> None:
    quantiser = random_quantiser().train()
    before = {name: value.clone() for name, value in quantiser.state_dict().items()}
    quantiser.update()
    quantiser(draw(4, 6, 2, 3))
    assert all(torch.equal(value, before[name]) for name, value in quantiser.state_dict().items())
    quantiser.update()
    assert not torch.equal(quantiser.codes, before["codes"])


def test_evaluation_batches_do_not_update_codes() -> None:
    quantiser = random_quantiser().eval()
    quantiser(draw(4, 6, 2, 3))
    before = quantiser.codes.clone()
    quantiser.update()
    assert torch.equal(quantiser.codes, before)


def clusters(seed: int) -> torch.Tensor:
    """Return features (32, 2, 4, 4) in 16 tight clusters; one of them has 90 % of the positions."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0)) * 10
    which = torch.randint(16, (32, 4, 4), generator=generator)
    which = torch.where(torch.rand(32, 4, 4, generator=generator) < 0.9, 0, which)
    return (centres[which] + 0.1 * torch.randn(32, 4, 4, 2, generator=generator)).permute(
        0, 3, 1, 2
    )


@pytest.mark.parametrize(("restart", "covers"), [(0.1, True), (0.0, False)])
def test_restarts_give_every_cluster_a_code(restart: float, covers: bool) -> None:
    quantiser = Quantiser(1, 32, 2, restart=restart).train()
    quantiser.uses.fill_(1 / 32)
    quantiser.codes.copy_(100 + draw(1, 32, 2))  # far away: one of them is nearest to all
    quantiser.sums.copy_(quantiser.codes / 32)
    generator = torch.Generator().manual_seed(0)
    for step in range(800):
        quantiser(clusters(step), generator)
        quantiser.update()
    error = quantiser.eval()(clusters(1000)).commitment.mean().item() / 16
    assert (error < 0.1) == covers
    used, perplexity = usage(quantiser.uses[0])
    assert torch.isfinite(quantiser.codes).all()
    assert 0 < used <= 1
    assert 1 <= perplexity <= 32


def test_a_moving_background_gets_one_code() -> None:
    """Its code lags behind, so most positions have an error and codes restart there."""

    def features(step: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(step)
        objects = 3 * torch.randn(16, 8, 4, 4, generator=generator)
        background = torch.full((16, 8, 4, 4), math.sin(step / 30) * max(0, 1 - step / 300))
        return torch.where(torch.rand(16, 1, 4, 4, generator=generator) < 0.9, background, objects)

    quantiser, generator = Quantiser(1, 64, 8).train(), torch.Generator().manual_seed(0)
    for step in range(400):
        quantiser(features(step), generator)
        quantiser.update()
    quantiser.eval().merge()
    assert int(quantiser.merged.sum()) <= 2  # 21 if duplicates do not restart
    codes = quantiser.codes[0][~quantiser.merged[0]]
    spread = (codes - codes.mean(0)).square().sum(1).mean().sqrt()
    assert torch.pdist(codes).min() / spread > 0.05
    last = features(399)
    noise = 1e-2 * torch.randn(last.shape, generator=generator)
    assert (quantiser.indices(last) != quantiser.indices(last + noise)).float().mean() < 0.01


def test_merge_keeps_the_duplicate_used_most() -> None:
    quantiser = random_quantiser(2, 4, 3).eval()
    quantiser.codes[0] = torch.tensor([[0.0, 0, 0], [5, 0, 0], [0.001, 0, 0], [0, 5, 0]])
    quantiser.codes[1] = torch.tensor([[0.0, 0, 0], [5, 0, 0], [0, 0, 5], [0, 5, 0]])
    quantiser.uses.copy_(torch.tensor([[0.1, 0.3, 0.5, 0.1], [0.25, 0.25, 0.25, 0.25]]))
    at_zero = torch.zeros(1, 6, 1, 1)
    assert quantiser.indices(at_zero).tolist() == [[0, 0]]
    quantiser.merge()
    assert quantiser.merged.tolist() == [[True, False, False, False], [False] * 4]
    assert quantiser.indices(at_zero).tolist() == [[2, 0]]
    assert torch.isfinite(quantiser(at_zero).features).all()
    quantiser.codes[1].fill_(1.0)  # all equal: the first stays
    quantiser.merge()
    assert quantiser.merged[1].tolist() == [False, True, True, True]


def with_codes(codes: list[list[float]], uses: list[float]) -> Quantiser:
    """Return a codebook in training mode with these codes of two dims and usages."""
    quantiser = Quantiser(1, len(codes), 2).train()
    quantiser.codes.copy_(torch.tensor([codes]))
    quantiser.uses.copy_(torch.tensor([uses]))
    quantiser.sums.copy_(quantiser.codes * quantiser.uses[..., None])
    return quantiser


def test_the_less_used_duplicate_restarts_at_an_uncovered_feature() -> None:
    quantiser = with_codes(
        [[0.0, 0.0], [5.0, 0.0], [0.01, 0.0], [0.0, 5.0]], [0.2, 0.25, 0.3, 0.25]
    )
    vectors = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0], [9.0, 9.0]])
    quantiser(vectors.T.reshape(1, 2, 2, 2), torch.Generator().manual_seed(0))
    quantiser.update()
    assert torch.allclose(
        quantiser.codes[0],
        torch.tensor([[9.0, 9.0], [5.0, 0.0], [0.01, 0.0], [0.0, 5.0]]),
        atol=0.2,
    )


def test_restarts_avoid_each_other_and_codes_in_use() -> None:
    quantiser = with_codes(
        [[0.0, 0.0], [5.0, 0.0], [70.0, 0.0], [80.0, 0.0], [90.0, 0.0]], [0.5, 0.5, 0.0, 0.0, 0.0]
    )
    vectors = torch.tensor([[0.0, 0.0], [5.0, 0.0], [9.0, 9.0], [9.0, 9.0]])
    quantiser(vectors.T.reshape(1, 2, 2, 2), torch.Generator().manual_seed(0))
    quantiser.update()
    assert ((quantiser.codes[0] - 9).abs() < 1e-3).all(1).sum() == 1
    assert (quantiser.codes[0, 2:, 0] >= 70).sum() == 2  # the others wait for the next batch


@pytest.mark.parametrize("in_use", [slice(0, 8), slice(8, 16)])
def test_dead_codes_of_any_index_restart(in_use: slice) -> None:
    quantiser = Quantiser(1, 16, 2).train()
    quantiser.codes.fill_(1e3)
    quantiser.codes[0, in_use] = torch.stack([torch.arange(8.0), torch.zeros(8)], dim=1)
    quantiser.uses[0, in_use] = 1 / 8
    quantiser.sums.copy_(quantiser.codes * quantiser.uses[..., None])
    old, new = (
        torch.cartesian_prod(torch.arange(8.0), torch.zeros(1)).repeat(15, 1),
        torch.tensor([[3.0, 50.0], [4.0, -50.0], *[[1.0, 0.0]] * 6]),
    )
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        quantiser(torch.cat([old, new]).T.reshape(1, 2, 8, 16), generator)
        quantiser.update()
    for vector in new[:2]:
        assert (quantiser.codes[0] - vector).norm(dim=1).min() < 0.1


def test_merge_compares_only_with_codes_that_stay() -> None:
    """Of a chain 0 - 2.5 - 5 the ends are not duplicates of each other, so both stay."""
    far = [[20.0 * math.cos(angle), 20.0 * math.sin(angle)] for angle in range(5)]
    quantiser = with_codes(
        [[0.0, 0.0], [2.5, 0.0], [5.0, 0.0], *far], [0.1, 0.15, 0.25, *[0.1] * 5]
    )
    quantiser.merge()
    assert quantiser.merged[0].tolist() == [False, True, False, *[False] * 5]


def test_unused_codes_do_not_set_the_duplicate_distance() -> None:
    used = torch.randn(12, 2, generator=torch.Generator().manual_seed(0)).tolist()
    quantiser = with_codes(
        [*used, *[[30.0 * math.cos(k), 30.0 * math.sin(k)] for k in range(52)]],
        [*[1 / 12] * 12, *[0.0] * 52],
    )
    quantiser.merge()
    assert not quantiser.merged[0, :12].any()


def test_distant_codes_do_not_set_the_duplicate_distance() -> None:
    """As on dSprites: many similar edge patches, far from the empty ones."""
    line = [[0.1 * k, 0.0] for k in range(14)]
    quantiser = with_codes([*line, [100.0, 0.0], [0.0, 100.0]], [1 / 16] * 16)
    quantiser.merge()
    assert not quantiser.merged.any()
    quantiser.codes[0, 3] = quantiser.codes[0, 4] + 0.01
    quantiser.merge()
    assert quantiser.merged[0].nonzero().flatten().tolist() == [4]


def test_merge_finds_duplicates_at_any_scale() -> None:
    quantiser = random_quantiser(2, 6, 2).eval()
    points = torch.tensor(
        [[0.0, 0.0], [0.001, 0.0], [5.0, 0.0], [5.001, 0.0], [0.0, 5.0], [0.0, 5.001]]
    )
    quantiser.codes.copy_(torch.stack([points, 1000 * points]))
    quantiser.uses.copy_(torch.tensor([[0.2, 0.1, 0.2, 0.1, 0.3, 0.1]] * 2))
    quantiser.merge()
    assert quantiser.merged.tolist() == [[False, True] * 3] * 2
    # a single code in use, or none, has no distances
    quantiser.uses[1] = torch.tensor([1.0, 0, 0, 0, 0, 0])
    quantiser.uses[0] = 0.0
    quantiser.merge()
    assert not quantiser.merged.any()


def test_further_training_restores_merged_codes() -> None:
    quantiser = with_codes(
        [[0.0, 0.0], [5.0, 0.0], [0.01, 0.0], [0.0, 5.0]], [0.2, 0.25, 0.3, 0.25]
    )
    quantiser.merge()
    assert quantiser.merged.any()
    quantiser(torch.randn(4, 2, 2, 2, generator=torch.Generator().manual_seed(0)))
    quantiser.update()
    assert not quantiser.merged.any()


def test_restarts_depend_on_the_generator() -> None:
    codes = []
    for seed in (0, 0, 1):
        quantiser = random_quantiser(1, 8, 2).train()
        quantiser(draw(2, 2, 4, 4), torch.Generator().manual_seed(seed))
        quantiser.update()
        codes.append(quantiser.codes.clone())
    assert torch.equal(codes[0], codes[1])
    assert not torch.equal(codes[0], codes[2])


def test_a_batch_may_have_fewer_positions_than_codes() -> None:
    quantiser = Quantiser(2, 16, 3).train()
    quantiser(draw(1, 6, 1, 1))
    quantiser.update()
    assert torch.isfinite(quantiser.codes).all()


def test_usage_equals_its_closed_form() -> None:
    used, perplexity = usage(torch.tensor([[1.0, 1.0, 2.0, 0.0], [5.0, 0.0, 0.0, 0.0]]))
    assert used.tolist() == [0.75, 0.25]
    assert perplexity.tolist() == pytest.approx(
        [math.exp(0.5 * math.log(4) + 0.5 * math.log(2)), 1.0]
    )


@pytest.mark.gpu
def test_cpu_and_gpu_agree() -> None:
    quantiser, features = random_quantiser(), draw(4, 6, 2, 3)
    expected = quantiser(features)
    on_gpu = quantiser.to("cuda")(features.to("cuda"))
    assert torch.equal(on_gpu.indices.cpu(), expected.indices)
    assert torch.allclose(on_gpu.commitment.cpu(), expected.commitment, rtol=1e-3)


def test_close_codes_far_from_zero_are_distinguished() -> None:
    """In single precision |x|^2 - 2 x c + |c|^2 would cancel, in TF32 far earlier."""
    quantiser = with_codes(
        [[side * 1000.0, 0.05 * k] for side in (-1, 1) for k in range(8)], [1 / 16] * 16
    ).eval()
    assert quantiser.indices(quantiser.codes[0].T.reshape(1, 2, 4, 4)).tolist() == [list(range(16))]


def test_indices_are_the_same_under_autocast() -> None:
    """Features are far from 0, and under autocast a product would have 8 bits."""
    generator = torch.Generator().manual_seed(0)
    quantiser = Quantiser(2, 64, 16)
    quantiser.codes.copy_(torch.randn(2, 64, 16, generator=generator) + 10)
    features = torch.randn(4, 32, 3, 3, generator=generator) + 10
    exact = torch.stack(
        [
            torch.cdist(vectors, codes).argmin(1)
            for vectors, codes in zip(
                quantiser._by_codebook(features).double(), quantiser.codes.double(), strict=True
            )
        ]
    )
    with torch.autocast("cpu", torch.bfloat16):
        indices = quantiser.indices(features)
    assert torch.equal(indices, quantiser._as_positions(exact, 9))
