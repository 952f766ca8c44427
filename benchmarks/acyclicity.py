"""Forward and backward time of the acyclicity penalties against plain autograd.

python benchmarks/acyclicity.py [--device cuda]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from intervae.causal import log_det, polynomial, trace_exponential


def naive_trace_exponential(weights: Tensor) -> Tensor:
    return torch.matrix_exp(weights * weights).diagonal().sum() - len(weights)


def naive_polynomial(weights: Tensor) -> Tensor:
    eye = torch.eye(len(weights), dtype=weights.dtype, device=weights.device)
    return torch.linalg.matrix_power(
        eye + weights * weights / len(weights), len(weights)
    ).diagonal().sum() - len(weights)


def naive_log_det(weights: Tensor) -> Tensor:
    return -torch.linalg.slogdet(
        torch.eye(len(weights), dtype=weights.dtype, device=weights.device) - weights * weights
    ).logabsdet


PAIRS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "trace_exponential": (trace_exponential, naive_trace_exponential),
    "polynomial": (polynomial, naive_polynomial),
    "log_det": (log_det, naive_log_det),
}


def milliseconds(
    functions: list[Callable[[Tensor], Tensor]], weights: Tensor, repeats: int
) -> list[float]:
    """Return the median time of one forward and backward pass of each, measured in turn."""
    times: list[list[float]] = [[] for _ in functions]
    for repeat in range(repeats + 3):
        for function, measured in zip(functions, times, strict=True):
            start = time.perf_counter()
            torch.autograd.grad(function(weights), weights)
            if weights.is_cuda:
                torch.cuda.synchronize()
            if repeat >= 3:  # after warm-up
                measured.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(measured) for measured in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"{options.device}, {options.threads} thread(s), torch {torch.__version__}, "
        f"median of {options.repeats}; ms forward + backward"
    )
    print(
        f"{'penalty':18} {'dtype':8} {'n':>4} {'ours':>9} {'autograd':>9} {'ratio':>6} "
        f"{'vs autograd matrix_exp':>23}"
    )
    for dtype in (torch.float32, torch.float64):
        for n in (20, 100, 200):
            generator = torch.Generator().manual_seed(n)
            weights = (
                (torch.rand(n, n, generator=generator, dtype=dtype) / n**0.5)
                .fill_diagonal_(0)
                .to(options.device)
                .requires_grad_()
            )
            times = milliseconds(
                [function for pair in PAIRS.values() for function in pair], weights, options.repeats
            )
            for name, ours, theirs in zip(PAIRS, times[::2], times[1::2], strict=True):
                print(
                    f"{name:18} {str(dtype)[6:]:8} {n:4} {ours:9.3f} {theirs:9.3f} "
                    f"{theirs / ours:6.1f} {times[1] / ours:23.1f}"
                )


if __name__ == "__main__":
    main()
