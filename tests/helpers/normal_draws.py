"""Standard normal tensors."""

import torch
from torch import Tensor


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return N(0, 1) draws of that shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def draw_float32(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return `draw` in single precision."""
    return draw(*shape, seed=seed, dtype=dtype)
