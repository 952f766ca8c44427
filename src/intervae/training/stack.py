"""Runs of one shape as a stack: tensors with a leading axis of runs, and a vmapped loss.

The parameters and buffers of each model become slices of the stacks. So the loss and its gradients
are computed for all runs at once, and what belongs to one run (optimiser, clipping, averages,
validation, checkpoints) is the code of a single run, on its own slice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils import _pytree as pytree

from intervae.data import Batch
from intervae.memory import is_out_of_memory
from intervae.models.base import Model
from intervae.models.phases import Loss, Terms
from intervae.nets.norm import BatchNorm, batch_norm_layers
from intervae.training.draws import (
    Draw,
    RecordedDraws,
    ReplayedDraws,
    StackError,
    draw_for_runs,
)
from intervae.training.stepper import Stepper

# Rounding of sums in another order, with TF32 and with bfloat16 products; another loss, such as
# one that reads a number that differs between the runs, is further away.
TOLERANCE = {False: 1e-3, True: 3e-2}  # bf16 -> relative difference of losses and gradients


class Stack:
    """R models whose tensors are slices of stacks (R, ...), and their loss.

    Arguments:
        models: of one class and with tensors of the same shapes.
        loss: the loss of the first model, a pure function of (its tensors, batch, generator).
    """

    def __init__(self, models: Sequence[Model], loss: Loss) -> None:
        self.models = list(models)
        self.wrapped = _LossModule(self.models[0], loss)
        # leaves, so that a backward pass leaves their gradients (R, ...) in `grad`
        self.parameters = self._stack([dict(m.named_parameters()) for m in self.models])
        self.members = [dict(m.named_parameters()) for m in self.models]
        self.buffers = self._stack([dict(m.named_buffers()) for m in self.models])

    @staticmethod
    def _stack(named: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Return the stacks (R, ...) of tensors with the same names, which become slices."""
        stacks = {}
        for name, first in named[0].items():
            members = [tensors[name] for tensors in named]
            stack = _empty_stack(first, len(members))
            for row, member in zip(stack, members, strict=True):
                member.data = row.copy_(member.detach())
            stacks[name] = stack.requires_grad_(first.requires_grad)
        return stacks

    def terms(
        self, batch: Batch, calls: Sequence[Draw], generators: Sequence[torch.Generator]
    ) -> Terms:
        """Return the terms (R,) of a batch whose tensors are (R, ...).

        The statistics of batch normalisation are left in the layers of each model, as its own loss
        leaves them.
        """
        values = draw_for_runs(calls, generators)
        layers = batch_norm_layers(self.models[0])
        own = [layer.batch_statistics for layer in layers]

        def loss(
            parameters: dict[str, Tensor], buffers: dict[str, Tensor], batch: Batch, noise: Any
        ) -> tuple[Terms, dict[int, tuple[Tensor, Tensor]]]:
            for layer in layers:
                layer.batch_statistics = None
            tensors = {f"model.{name}": t for name, t in (parameters | buffers).items()}
            with ReplayedDraws(generators[0], calls, noise):
                terms = functional_call(self.wrapped, tensors, (batch, generators[0]))
            pairs = {i: layer.batch_statistics for i, layer in enumerate(layers)}
            return terms, {i: pair for i, pair in pairs.items() if pair is not None}

        try:
            terms, statistics = vmap(loss)(self.parameters, self.buffers, batch, values)
        finally:  # no tensor of vmap stays in the first model
            for layer, pair in zip(layers, own, strict=True):
                layer.batch_statistics = pair
        for r, model in enumerate(self.models):
            for i, layer in enumerate(batch_norm_layers(model)):
                if i in statistics:
                    mean, inverse_std = statistics[i]
                    layer.batch_statistics = mean[r], inverse_std[r]
        return terms

    def zero_gradients(self) -> None:
        for stack in self.parameters.values():
            stack.grad = None

    def share_gradients(self) -> None:
        """Give each model its slices of the gradients."""
        for name, stack in self.parameters.items():
            slices = [None] * len(self.models) if stack.grad is None else stack.grad.unbind()
            for members, gradient in zip(self.members, slices, strict=True):
                members[name].grad = gradient

    def release(self, model: Model) -> None:
        """Give a model tensors of its own again, with the present values."""
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.data = tensor.detach().clone()
            tensor.grad = None

    # ---- whether the loss can be vmapped --------------------------------------------------------
    def check(
        self, batch: Batch, losses: Sequence[Loss], steppers: Sequence[Stepper]
    ) -> list[Draw]:
        """Return the draws of a step; raise StackError for losses that vmap would change.

        Loss and gradients of every run alone are compared with those of the stack on one batch.

        Arguments:
            batch: tensors (R, ...).
            losses: of each model.
        """
        generators, bf16 = [stepper.generator for stepper in steppers], steppers[0].bf16
        with contextlib.ExitStack() as undo:
            undo.enter_context(undone_steps(steppers))
            alone: list[Terms] = []
            gradients: list[dict[str, Tensor]] = []
            calls: list[Draw] | None = None
            for r, (loss, generator) in enumerate(zip(losses, generators, strict=True)):
                own = {name: tensor[r] for name, tensor in batch.items()}
                generator.manual_seed(r)
                before = _attributes(self.models[r])
                with _autocast(steppers[0]), RecordedDraws(generator) as recorded:
                    alone.append(loss(own, generator))
                for name in _attributes(self.models[r]) - before:
                    raise StackError(f"its loss leaves tensors in {name[0]}")
                if calls is not None and calls != recorded.calls:
                    raise StackError("the losses of its seeds draw different noise")
                calls = recorded.calls
                alone[-1]["loss"].backward()
                gradients.append(_take_gradients(self.members[r]))
            assert calls is not None
            for r, generator in enumerate(generators):
                generator.manual_seed(r)
            try:
                with _autocast(steppers[0]):
                    together = self.terms(batch, calls, generators)
                together["loss"].sum().backward()
                self.share_gradients()
            except StackError:
                raise
            except Exception as error:  # vmap raises errors of many kinds
                if is_out_of_memory(error):
                    raise
                text = str(error).strip().split("\n")[0].split(". ")[0].rstrip(".")
                raise StackError(f"torch cannot vmap its loss ({text[:160]})") from error
            finally:
                self.zero_gradients()
            for r, terms in enumerate(alone):
                _compare(terms, {n: v[r] for n, v in together.items()}, TOLERANCE[bf16])
                stacked = _take_gradients(self.members[r])
                _compare_gradients(gradients[r], stacked, TOLERANCE[bf16])
        return calls


class _LossModule(nn.Module):
    """A loss as a module, for functional_call."""

    def __init__(self, model: Model, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch, generator: torch.Generator) -> Terms:
        return self.loss(batch, generator)


@contextlib.contextmanager
def undone_steps(steppers: Sequence[Stepper]) -> Iterator[None]:
    """Undo in place what steps within a `with` block do to weights, optimisers and averages."""

    def tensors() -> list[dict[str, Tensor]]:
        return [{**s.state(), **s.model.state_dict(prefix="model.")} for s in steppers]

    before = [{name: t.clone() for name, t in named.items()} for named in tensors()]
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        with torch.no_grad():
            for stored, named in zip(before, tensors(), strict=True):
                for name, tensor in named.items():
                    # state that the first step creates begins with zeros
                    tensor.copy_(stored[name]) if name in stored else tensor.zero_()
        for stepper in steppers:
            stepper.model.zero_grad(set_to_none=True)


def _empty_stack(first: Tensor, runs: int) -> Tensor:
    """Return an empty stack (R, ...) whose slices have the strides of `first`."""
    dense = first.is_contiguous() or (
        first.ndim == 4 and first.is_contiguous(memory_format=torch.channels_last)
    )
    like = first if dense else first.contiguous()
    return torch.empty_strided(
        (runs, *like.shape), (like.numel(), *like.stride()), dtype=like.dtype, device=like.device
    )


def _attributes(model: Model) -> set[tuple[str, int]]:
    """Return (name, identity) of the attributes that hold tensors outside of the state.

    Statistics of batch normalisation are left out, which `Stack.terms` hands on.
    """
    return {
        (f"{name}.{key}".lstrip("."), id(value))
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if key not in ("_parameters", "_buffers", "_modules")
        and not (isinstance(module, BatchNorm) and key == "batch_statistics")
        and any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(value))
    }


def _autocast(stepper: Stepper) -> torch.autocast:
    return torch.autocast(stepper.device.type, torch.bfloat16, enabled=stepper.bf16)


def _take_gradients(members: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the gradients of the parameters, and remove them."""
    gradients = {n: p.grad.clone() for n, p in members.items() if p.grad is not None}
    for parameter in members.values():
        parameter.grad = None
    return gradients


def _compare(alone: Terms, together: Terms, tolerance: float) -> None:
    """Raise StackError if the terms of a run differ from those in the stack."""
    if alone.keys() != together.keys():
        raise StackError("its loss has other terms under vmap")
    scale = float(alone["loss"].detach().abs())
    for name, term in alone.items():
        one, other = float(term.detach()), float(together[name].detach())
        if abs(one - other) > tolerance * (abs(one) + 0.1 * scale):
            raise StackError(
                f"its loss term {name!r} differs under vmap, {other:.6g} for {one:.6g}"
            )


def _compare_gradients(
    alone: dict[str, Tensor], together: dict[str, Tensor], tolerance: float
) -> None:
    """Raise StackError if the gradient of a run differs from that in the stack."""
    zero = torch.zeros(())
    names = sorted(alone.keys() | together.keys())
    difference = [
        alone.get(n, zero) - together.get(n, zero) for n in names if n in alone or together[n].any()
    ]
    squares = sum(float(d.double().square().sum()) for d in difference)
    norm = sum(float(g.double().square().sum()) for g in alone.values())
    if squares > (10 * tolerance) ** 2 * norm + 1e-20:
        raise StackError("its gradients differ under vmap")
