"""One training on several processes, started by torchrun: parts of batches, one gradient.

N ranks see the batches of one: all draw the same permutation, and each takes its part of a batch.
Noise is drawn for the whole batch and cut, so that every row has the noise it has on one rank. The
gradients of the parts, weighted by their rows, add up to that of a loss that is a mean over rows.
rank_checks.py compares both on the first batch of a phase, and refuses a model where they differ.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed
from torch.overrides import TorchFunctionMode

from intervae.errors import TrainingError, UsageError
from intervae.models.base import Model

WAIT = timedelta(minutes=30)  # for the slowest rank


class Ranks:
    """The processes of one training.

    Arguments:
        rank: number of this process, from 0.
        count: number of all of them.
        local_rank: number of this process on its machine.
    """

    def __init__(self, rank: int, count: int, local_rank: int) -> None:
        self.rank, self.count, self.local_rank = rank, count, local_rank

    @property
    def first(self) -> bool:
        """Whether this rank writes the run."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """Return the device of this rank, and join the others."""
        if device.type == "cuda":
            if self.local_rank >= torch.cuda.device_count():
                raise UsageError(
                    f"torchrun started more processes than the {torch.cuda.device_count()} GPUs of "
                    "this machine; give --nproc-per-node that number or less."
                )
            device = torch.device("cuda", self.local_rank)
            torch.cuda.set_device(device)
        if not distributed.is_initialized():
            backend = "nccl" if device.type == "cuda" else "gloo"
            distributed.init_process_group(backend, timeout=WAIT)
        return device

    def part(self, rows: int, rank: int | None = None) -> slice:
        """Return the rows of a batch that a rank takes; parts differ by one row at most."""
        rank = self.rank if rank is None else rank
        return slice(rank * rows // self.count, (rank + 1) * rows // self.count)

    # ---- communication --------------------------------------------------------------------------
    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over the ranks, in one message."""
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        _communicate(lambda: distributed.all_reduce(flat))
        for tensor, values in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(values.view_as(tensor))

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of rank 0."""
        for tensor in tensors:
            values = tensor.contiguous()
            _communicate(partial(distributed.broadcast, values, 0))
            tensor.copy_(values)

    def wait(self) -> None:
        """Return when all ranks are here."""
        _communicate(distributed.barrier)

    def agree(self, values: dict[str, float], device: torch.device) -> dict[str, float]:
        """Return the values of rank 0."""
        tensor = torch.tensor(list(values.values()), dtype=torch.float64, device=device)
        self.broadcast_([tensor])
        return dict(zip(values, tensor.tolist(), strict=True))

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether the flag of any rank is True."""
        total = torch.tensor([float(flag)], device=device)
        self.sum_([total])
        return bool(total.item())

    def check_equal(self, generator: torch.Generator, model: Model, device: torch.device) -> None:
        """Raise a TrainingError unless all ranks have drawn the same noise and weights."""
        state = generator.get_state().to(torch.float64)
        noise = (state * torch.arange(1, len(state) + 1, dtype=torch.float64)).sum()
        weights = sum((p.detach().double().sum().cpu() for p in model.parameters()), noise)
        own = torch.stack([noise, weights]).to(device)
        first = own.clone()
        self.broadcast_([first])
        if self.any(not torch.equal(own, first), device):
            raise TrainingError(
                "the ranks no longer have the same weights and noise, so they would train "
                "different models; train on one rank."
            )

    # ---- a step ---------------------------------------------------------------------------------
    @contextmanager
    def noise_of(self, generator: torch.Generator, rows: int) -> Iterator[None]:
        """Draw noise for the `rows` of the whole batch, of which this rank takes its part."""
        with _NoiseOfBatch(generator, rows, self.part(rows)):
            yield

    def reduce_step(self, parameters: Sequence[Tensor], terms: dict[str, Tensor]) -> None:
        """Add up gradients and terms of the loss, which each rank has weighted by its rows."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        self.sum_([*gradients, *terms.values()])


def _communicate(call: Callable[[], Any]) -> None:
    try:
        call()
    except RuntimeError as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        raise TrainingError(
            f"another rank of the training was lost ({reason}); torchrun restarts it from the "
            "checkpoint with --max-restarts, as does `intervae resume`."
        ) from None


def current_ranks() -> Ranks | None:
    """Return the ranks that torchrun started, None without it or with a single one."""
    try:
        numbers = [int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")]
    except (KeyError, ValueError):
        return None
    return Ranks(*numbers) if numbers[1] > 1 else None


def restarted() -> bool:
    """Whether torchrun has restarted this process after the loss of a rank."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") not in ("", "0")


class _NoiseOfBatch(TorchFunctionMode):
    """Draws of a generator whose rows are those of a part become parts of draws for the batch."""

    def __init__(self, generator: torch.Generator, rows: int, part: slice) -> None:
        super().__init__()
        self.generator, self.rows, self.rows_here = generator, rows, part

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if kwargs.get("generator") is not self.generator:
            return func(*args, **kwargs)
        if func in (torch.rand, torch.randn):
            sizes = kwargs.pop("size", None) or args
            sizes = tuple(sizes[0]) if sizes and not isinstance(sizes[0], int) else tuple(sizes)
            return self._cut(sizes, lambda shape: func(shape, **kwargs))
        if func is torch.randint:
            draw_whole: Any = func
            arguments = list(args)
            sizes = kwargs.pop("size", None) or arguments.pop()
            return self._cut(tuple(sizes), lambda shape: draw_whole(*arguments, shape, **kwargs))
        if func in (torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.exponential_):
            own, *arguments = args

            def draw(shape: tuple[int, ...]) -> Tensor:
                tensor = torch.empty(shape, dtype=own.dtype, device=own.device)
                return func(tensor, *arguments, **kwargs)

            return own.copy_(self._cut(tuple(own.shape), draw))
        raise UsageError(
            f"the loss draws noise with {getattr(func, '__name__', func)}, which cannot be split "
            "over ranks; train on one rank."
        )

    def _cut(self, sizes: tuple[int, ...], draw: Callable[[tuple[int, ...]], Tensor]) -> Tensor:
        """Draw for all rows and cut, along the first dimension or else the second (samples, B)."""
        here = self.rows_here.stop - self.rows_here.start
        for dim in range(min(2, len(sizes))):
            if sizes[dim] == here:
                whole = draw((*sizes[:dim], self.rows, *sizes[dim + 1 :]))
                return whole[(slice(None),) * dim + (self.rows_here,)].contiguous()
        return draw(sizes)
