"""Pictures in layers: composition against the formula, and which variable reaches which pixel."""

from __future__ import annotations

import pytest
import torch

from intervae.nets.layered_decoder import CoordinateLayer, LayeredDecoder

SHAPE = (3, 8, 12)


def make(layers: list[list[int]], regions: list[torch.Tensor] | None = None) -> LayeredDecoder:
    torch.manual_seed(0)
    decoder = LayeredDecoder(4, SHAPE, [8, 8], 16, groups=2, group_hidden=16)
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


def test_a_group_paints_inside_its_region_only() -> None:
    region = torch.zeros(SHAPE[1:])
    region[4:] = 1
    decoder = make([[0], [2, 3]], [torch.ones(SHAPE[1:]), region])
    values = torch.randn(3, 4)
    after = values + torch.tensor([0.0, 0.0, 1.0, 0.0])
    with torch.no_grad():
        difference = decoder(after) - decoder(values)
    assert (difference[:, :, :4] == 0).all()
    assert (difference[:, :, 4:] != 0).any()
    assert torch.equal(decoder.group_region.reshape(SHAPE[1:]), region)


def test_without_layers_the_picture_is_the_background() -> None:
    decoder = make([])
    assert torch.allclose(torch.sigmoid(decoder(torch.randn(2, 4))), torch.full((2, *SHAPE), 0.75))


def test_layers_are_stored_with_the_weights() -> None:
    decoder = make([[1], [0, 2], [2, 3]])
    torch.manual_seed(1)
    other = LayeredDecoder(4, SHAPE, [8, 8], 16, groups=2, group_hidden=16)
    assert other.active != decoder.active
    other.load_state_dict(decoder.state_dict())
    assert other.active == decoder.active == (1, 4, 5)
    assert other.single_count == 1
    values = torch.randn(2, 4)
    with torch.no_grad():
        assert torch.equal(other(values), decoder(values))


def test_a_coordinate_layer_can_move_its_pattern_by_a_variable() -> None:
    """With combinations x - v and y, the picture at v + s is that at v, shifted by s."""
    torch.manual_seed(0)
    layer = CoordinateLayer(1, 1, 16)
    with torch.no_grad():
        layer.of_coordinates.weight.zero_()
        layer.of_coordinates.weight[0, 0] = layer.of_coordinates.weight[1, 1] = 1
        layer.of_variables.weight.zero_()
        layer.of_variables.weight[0, 0] = -1
    points = torch.rand(50, 2)
    moved = points + torch.tensor([0.3, 0.0])
    before, after = layer(torch.zeros(1, 1), points), layer(torch.full((1, 1), 0.3), moved)
    assert torch.allclose(before, after, atol=1e-5)
