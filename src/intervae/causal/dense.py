"""Tensors without plain numbers in memory (sparse, quantised, nested, meta, complex): refused."""

from __future__ import annotations

import torch
from torch import Tensor

from intervae.errors import IntervaeError, QueryError


def check_dense(tensor: Tensor, what: str, error: type[IntervaeError] = QueryError) -> Tensor:
    """Return a tensor of plain real numbers; raise `error` for another kind, named in words."""
    if tensor.is_nested:
        kind = "nested"
    elif tensor.layout != torch.strided:
        kind = "sparse"
    elif tensor.is_meta:
        kind = "without values (on the device meta)"
    elif tensor.is_quantized:
        kind = "quantised"
    elif tensor.is_complex():
        kind = "complex"
    else:
        return tensor
    raise error(f"the tensor of {what} is {kind}; pass a dense tensor of real numbers.")
