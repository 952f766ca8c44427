"""Steps of one phase of several runs at once: one vmapped loss, one CUDA graph on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from intervae.cuda_graphs import CAPTURING, capture_stream
from intervae.data import Dataset
from intervae.models.phases import Phase
from intervae.training.draws import Draw, StackError
from intervae.training.epochs import PhaseTraining
from intervae.training.optimisers import CAPTURABLE
from intervae.training.stack import Stack, undone_steps


def why_no_stack(phase: Phase, data: Dataset) -> str:
    """Return why runs of a phase are no stack, by its declaration and the data; "" if nothing is.

    `check_stackable` and the first step of a stack check the rest.
    """
    if len(phase.players) > 1:
        return f"it has {len(phase.players)} players that take turns"
    if phase.replaces_data:
        return "it makes its own data for each seed"
    if data.train.streamed:
        return "its packed data are read ahead for one run at a time"
    return ""


def check_stackable(trainings: Sequence[PhaseTraining]) -> None:
    """Raise StackError, with the reason, for runs of a phase that are no stack."""
    first = trainings[0]
    if reason := why_no_stack(first.phase, first.data):
        raise StackError(reason)
    for training in trainings:
        if training.data.train is not training.trainer.data.train:
            raise StackError("it makes its own data for each seed")
        if training.stepper.order.shape != first.stepper.order.shape:
            raise StackError("its runs have batches of different sizes")


class StackedStepper:
    """Runs the steps of several runs of a phase.

    The tables that `Stepper` reads (rows, learning rates, step number) are slices of the tables of
    the stack, which have a leading axis of runs.

    Arguments:
        trainings: runs in the same phase, each at an epoch of its own.
        calls: draws of a step, where they are known; without them the loss is checked first.
    """

    def __init__(
        self,
        trainings: Sequence[PhaseTraining],
        *,
        cuda_graph: bool,
        calls: Sequence[Draw] | None = None,
    ) -> None:
        self.trainings = list(trainings)
        self.steppers = [training.stepper for training in trainings]
        first = self.steppers[0]
        self.split, self.device, self.bf16 = first.split, first.device, first.bf16
        self.players = [stepper.phase.players[0] for stepper in self.steppers]
        self.steps = first.steps_per_epoch
        self.order = torch.stack([stepper.order for stepper in self.steppers])
        self.factors = torch.stack([stepper.factors for stepper in self.steppers])
        self.first_step = torch.stack([stepper.first_step for stepper in self.steppers])
        self.position = torch.zeros(1, dtype=torch.int64, device=self.device)
        for row, stepper in enumerate(self.steppers):
            stepper.order, stepper.factors = self.order[row], self.factors[row]
            stepper.first_step, stepper.position = self.first_step[row], self.position
        self.graph: torch.cuda.CUDAGraph | None = None
        self.stack = Stack([stepper.model for stepper in self.steppers], self.players[0].loss)
        try:
            if calls is None:
                calls = self._check()
            self.calls = list(calls)
            if self.device.type == "cuda":
                capturable = all(player.optimiser in CAPTURABLE for player in self.players)
                self._warm_up(cuda_graph and capturable)
        except BaseException:
            self.release(self.trainings)
            raise

    def _check(self) -> list[Draw]:
        self.order.copy_(torch.arange(self.order[0].numel()).view_as(self.order[0]))
        # in the middle of the phase, where a term that is off at first is on
        self.first_step.fill_(self.steps * self.trainings[0].phase.epochs // 2)
        losses = [player.loss for player in self.players]
        return self.stack.check(self._batch(), losses, self.steppers)

    def _batch(self) -> dict[str, Tensor]:
        """Return the batches of all runs as tensors (R, B, ...)."""
        rows = self.order.index_select(1, self.position)[:, 0]  # (R, B)
        batch = self.split.batch(rows.flatten())
        if any(len(tensor) != rows.numel() for tensor in batch.values()):
            raise StackError("its batches are not rows of tensors")
        stacked = {name: tensor.unflatten(0, rows.shape) for name, tensor in batch.items()}
        return {**stacked, "step": self.first_step + self.position[0]}

    def _step(self) -> Tensor:
        """Train every run on its batch; return the terms (R, t)."""
        batch, generators = self._batch(), [stepper.generator for stepper in self.steppers]
        for stepper in self.steppers:
            stepper.set_device_rates()
        for _ in range(self.players[0].steps):
            self.stack.zero_gradients()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                terms = self.stack.terms(batch, self.calls, generators)
            terms["loss"].sum().backward()  # each run's own gradient: the runs share no tensor
            self.stack.share_gradients()
            for stepper, player in zip(self.steppers, self.players, strict=True):
                stepper.descend(player, stepper.optimisers[0])
        for stepper in self.steppers:
            stepper.end_step()
            stepper.names = list(terms)
        return torch.stack([value.detach().float() for value in terms.values()], dim=1)

    def _warm_up(self, capture: bool) -> None:
        """Try steps, which shows whether the stack fits into memory, and capture one."""
        with CAPTURING, undone_steps(self.steppers):
            stream = capture_stream(self.device)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3 if capture else 1):
                    terms = self._step()
            torch.cuda.current_stream().wait_stream(stream)
            if not capture:
                return
            self.history = torch.zeros(self.steps, *terms.shape, device=self.device)
            graph = torch.cuda.CUDAGraph()
            for stepper in self.steppers:
                graph.register_generator_state(stepper.generator)
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self.history.index_copy_(0, self.position, self._step()[None])
                self.position += 1
            self.graph = graph

    def run_epoch(self) -> list[Tensor]:
        """Run the steps of the next epoch of each run; return the terms (steps, t) of each."""
        factors = [
            stepper.begin_epoch(training.epoch, training.phase.epochs, training.seed)
            for training, stepper in zip(self.trainings, self.steppers, strict=True)
        ]
        if self.graph is not None:
            for _ in range(self.steps):
                self.graph.replay()
            return list(self.history.cpu().unbind(1))
        rows: list[Tensor] = []
        for step in range(self.steps):
            for stepper, own in zip(self.steppers, factors, strict=True):
                stepper.set_host_rates(own[step])
            rows.append(self._step())
            self.position += 1
        return list(torch.stack(rows).cpu().unbind(1))

    def release(self, trainings: Sequence[PhaseTraining]) -> None:
        """Give the models of these runs tensors of their own; the stack keeps its slices.

        Steps of the stack then leave these models as they are.
        """
        for training in trainings:
            self.stack.release(training.trainer.model)
