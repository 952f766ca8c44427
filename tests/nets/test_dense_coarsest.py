"""Dense layers to and from the 1x1 maps of the hierarchical VAE."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from intervae.nets.pictures import build_picture_mechanism

PARENTS = 3


@torch.no_grad()
def test_dense_coarsest_level_tells_places_apart_from_the_first_step_on() -> None:
    def first_maps(dense: bool) -> Tensor:
        torch.manual_seed(0)
        mechanism: Any = build_picture_mechanism(
            "hvae", (1, 28, 28), PARENTS, widths=(8,), layers=(1,), dense_coarsest=dense
        )
        level = mechanism.decoder[1]
        maps: Tensor = level.start(torch.randn(64, 8, 1, 1), 64)
        assert maps.shape[2:] == level.size == (4, 4)
        return maps

    assert first_maps(False).var(dim=(2, 3)).max() == 0
    maps = first_maps(True)
    assert maps.var(dim=(2, 3)).min() > 0
    assert maps.var().item() == pytest.approx(1, rel=0.5)  # that of the 1x1 maps
