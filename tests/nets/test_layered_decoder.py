"""Pictures in layers: composition against the formula, and which variable reaches which pixel."""

from __future__ import annotations

import pytest
import torch

from intervae.nets.coordinate_layers import ShiftedLayer, TransformedLayer
from intervae.nets.layered_decoder import LayeredDecoder

SHAPE = (3, 8, 12)


def make(layers: list[list[int]], regions: list[torch.Tensor] | None = None) -> LayeredDecoder:
    torch.manual_seed(0)
    decoder = LayeredDecoder(4, SHAPE, groups=2, hidden=16)
    decoder.set_layers(layers, torch.full(SHAPE, 0.75), regions=regions)
    return decoder


def test_the_composition_is_a_softmax_over_layers_and_background() -> None:
    decoder = make([[0], [1], [2, 3]])
    logits = torch.randn(5, 3, 4, 96)
    picture, weights = decoder.compose(logits)
    opacity = logits[:, :, 3].exp()
    share = opacity / (1 + opacity.sum(1, keepdim=True))
    colours = torch.sigmoid(logits[:, :, :3])
    expected = 0.75 * (1 - share.sum(1))[:, None] + (share[:, :, None] * colours).sum(1)
    assert torch.allclose(weights, share, atol=1e-6)
    assert torch.allclose(picture, expected, atol=1e-6)


def test_an_opaque_layer_hides_the_others() -> None:
    decoder = make([[0], [1]])
    logits = torch.zeros(1, 2, 4, 96)
    logits[:, 1, 3] = 40.0
    logits[:, 1, 0] = 40.0
    assert torch.allclose(decoder.compose(logits).pixels[:, 0], torch.ones(1, 96), atol=1e-6)


def test_some_pixels_are_those_of_the_whole_picture() -> None:
    decoder = make([[0], [2, 3]])
    values, pixels = torch.randn(3, 4), torch.tensor([5, 17, 90])
    some = decoder.compose(decoder.layer_logits(values, pixels), pixels).pixels
    whole = decoder.compose(decoder.layer_logits(values)).pixels
    assert torch.allclose(some, whole[..., pixels], atol=1e-6)
    with torch.no_grad():
        images = torch.sigmoid(decoder(values))
    assert torch.allclose(images.flatten(2), whole, atol=1e-5)


@pytest.mark.parametrize("moved", range(4))
def test_a_layer_sees_its_own_variables_only(moved: int) -> None:
    decoder = make([[0], [2, 3]])
    values = torch.randn(3, 4)
    after = values.clone()
    after[:, moved] += 1
    with torch.no_grad():
        before, now = decoder.layer_logits(values), decoder.layer_logits(after)
    changed = [bool((before[:, i] != now[:, i]).any()) for i in range(2)]
    assert changed == [moved == 0, moved in (2, 3)]


@pytest.mark.parametrize("moved", [0, 2])
def test_a_layer_paints_inside_its_region_only(moved: int) -> None:
    upper, lower = torch.zeros(SHAPE[1:]), torch.zeros(SHAPE[1:])
    upper[:3], lower[4:] = 1, 1
    decoder = make([[0], [2, 3]], [upper, lower])
    values = torch.randn(3, 4)
    after = values.clone()
    after[:, moved] += 1
    with torch.no_grad():
        difference = (decoder(after) - decoder(values)).abs().amax((0, 1))
    own, other = (upper, lower) if moved == 0 else (lower, upper)
    assert (difference[own == 0] == 0).all()
    assert (difference[own == 1] > 0).any()
    assert torch.equal(decoder.region.reshape(SHAPE[1:]), upper + lower)
    assert decoder.active == (0, 4)
    assert (other * own).sum() == 0


def test_pixels_are_drawn_half_evenly_and_half_by_what_layers_explain() -> None:
    """Expected counts of the density, and a sum over pixels estimated without bias."""
    region, large, small = (torch.zeros(SHAPE[1:]) for _ in range(3))
    region[2:6] = 1
    large[2, 3], large[5, 11], large[0, 0] = 30.0, 10.0, 50.0
    small[4, 4], small[4, 5] = 0.1, -3.0
    decoder = make([])
    decoder.set_layers(
        [[0], [1]], torch.full(SHAPE, 0.75), regions=[region, region], gains=[large, small]
    )
    expected = region / 96
    expected[2, 3] += 3 / 16
    expected[5, 11] += 1 / 16
    expected[4, 4] += 1 / 4
    torch.testing.assert_close(decoder.density.reshape(SHAPE[1:]), expected)
    drawn = decoder.draw_pixels(20_000, torch.Generator().manual_seed(0))
    counts = torch.bincount(drawn.pixels, minlength=96).reshape(SHAPE[1:])
    assert (counts[expected == 0] == 0).all()
    torch.testing.assert_close(counts / 20_000, expected, atol=0.01, rtol=0)
    values = torch.rand(96, generator=torch.Generator().manual_seed(1))
    total = float((values * region.flatten()).sum())
    assert float((drawn.area * values[drawn.pixels]).sum()) == pytest.approx(total, rel=0.03)


def test_no_layer_draws_pixels_that_stand_for_nothing() -> None:
    _, area = make([]).draw_pixels(5, torch.Generator().manual_seed(0))
    assert (area == 0).all()


def test_without_layers_the_picture_is_the_background() -> None:
    decoder = make([])
    assert torch.allclose(torch.sigmoid(decoder(torch.randn(2, 4))), torch.full((2, *SHAPE), 0.75))


def test_layers_are_stored_with_the_weights() -> None:
    decoder = make([[1], [0, 2], [2, 3]])
    torch.manual_seed(1)
    other = LayeredDecoder(4, SHAPE, groups=2, hidden=16)
    assert other.active != decoder.active
    other.load_state_dict(decoder.state_dict())
    assert other.active == decoder.active == (1, 4, 5)
    assert other.single_count == 1
    values = torch.randn(2, 4)
    with torch.no_grad():
        assert torch.equal(other(values), decoder(values))


def test_a_shifted_layer_moves_its_pattern_by_a_variable() -> None:
    """With combinations x - v and y, the picture at v + s is that at v, shifted by s."""
    torch.manual_seed(0)
    layer = ShiftedLayer(1, 1, 16)
    with torch.no_grad():
        layer.of_coordinates.weight.zero_()
        layer.of_coordinates.weight[0, 0] = layer.of_coordinates.weight[1, 1] = 1
        layer.of_variables.weight.zero_()
        layer.of_variables.weight[0, 0] = -1
    points = torch.rand(50, 2)
    moved = points + torch.tensor([0.3, 0.0])
    before, after = layer(torch.zeros(1, 1), points), layer(torch.full((1, 1), 0.3), moved)
    assert torch.allclose(before, after, atol=1e-5)


def test_a_transformed_layer_is_an_affine_map_of_the_coordinates() -> None:
    """Combinations A(v) (x, y) + b(v), from the weights of the network of the variable."""
    torch.manual_seed(0)
    layer, values, points = TransformedLayer(1, 16), torch.randn(4, 1), torch.rand(50, 2)
    combined = layer.combine(values, points)
    origin = layer.combine(values, torch.zeros(1, 2))
    axes = layer.combine(values, torch.eye(2)) - origin  # columns of A
    expected = origin + points @ axes
    torch.testing.assert_close(combined, expected)
    assert not torch.allclose(axes[0], axes[1])  # the variable changes A as well
