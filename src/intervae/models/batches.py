"""Rows of data for models: queries in chunks, a bank of fixed size, rows spread over a split."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from intervae.data import Split

if TYPE_CHECKING:
    from intervae.models.base import Model

QUERY_BATCH = 256  # samples per chunk of a query, which bounds its memory


def in_batches(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Apply `function` to QUERY_BATCH rows at a time and concatenate the results.

    A traced program, whose number of rows is not known, has all rows in one chunk.
    """
    if torch.compiler.is_compiling():
        return function(*tensors)
    chunks = zip(*(t.split(QUERY_BATCH) for t in tensors), strict=True)
    return torch.cat([function(*chunk) for chunk in chunks])


def query_split(model: Model, query: str, split: Split) -> Tensor:
    """Return the answers of `query` (encode, reconstruct, measure) for a split, on the CPU.

    Labels are passed only if the encoder requires them (`model.needs_labels`). A model that can
    do without must not see them in an evaluation.
    """
    answer = getattr(model, query)
    return torch.cat(
        [
            answer(chunk.images, **({"labels": chunk.labels} if model.needs_labels else {})).cpu()
            for chunk in split.chunks()
        ]
    )


def repeat_rows(values: Tensor, rows: int) -> Tensor:
    """Repeat or truncate (N, ...) to (rows, ...), for a buffer of fixed size."""
    return values[torch.arange(rows, device=values.device) % len(values)]


def spread_rows(n: int, count: int) -> Tensor:
    """Return `count` of n row numbers, (count,), sorted, drawn once with a fixed seed."""
    return torch.as_tensor(np.sort(np.random.default_rng(0).permutation(n)[:count]))
