"""Steps of one phase of several runs at once on a GPU: one CUDA graph with a branch for each run.

A step of a small model fills a fraction of a large GPU. Each branch is the step of a single run,
captured on a stream of its own, so the GPU works on all runs at once, and the host launches once.
Unlike a vmapped loss (`stacked_stepper.py`) this asks nothing of the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from intervae.cuda_graphs import CAPTURING, capture_stream
from intervae.data import Dataset
from intervae.models.phases import Phase
from intervae.training.epochs import PhaseTraining
from intervae.training.optimisers import CAPTURABLE
from intervae.training.stack import undone_steps

MOST_STREAMS = 16  # torch has a pool of 32


def can_branch(phase: Phase, data: Dataset, device: torch.device, cuda_graph: bool) -> bool:
    """Return whether steps of this phase can be captured, so that runs can be branches."""
    captured = cuda_graph and device.type == "cuda" and not data.train.streamed
    return captured and all(player.optimiser in CAPTURABLE for player in phase.players)


class BranchedStepper:
    """Runs the steps of several runs of a phase, as `StackedStepper` does.

    Arguments:
        trainings: runs in the same phase, each at an epoch of its own.
    """

    calls = None  # draws of a step, which only a vmapped loss needs to know
    graph: torch.cuda.CUDAGraph

    def __init__(self, trainings: Sequence[PhaseTraining]) -> None:
        self.trainings = list(trainings)
        self.steppers = [training.stepper for training in trainings]
        self.device = self.steppers[0].device
        self.steps = self.steppers[0].steps_per_epoch
        self.released: list[Tensor] = []  # the graph still writes to them
        with CAPTURING, undone_steps(self.steppers):
            self._capture()

    def _capture(self) -> None:
        stream = capture_stream(self.device)
        stream.wait_stream(torch.cuda.current_stream())
        self.histories = []
        with torch.cuda.stream(stream):
            for stepper in self.steppers:
                stepper.position.zero_()  # of a run that goes on it is behind the last step
                for _ in range(3):
                    stepper.try_step()
                shape = (self.steps, len(stepper.names))
                self.histories.append(torch.zeros(shape, device=self.device))
        torch.cuda.current_stream().wait_stream(stream)
        branches = [torch.cuda.Stream(self.device) for _ in self.steppers[:MOST_STREAMS]]
        graph = torch.cuda.CUDAGraph()
        for stepper in self.steppers:
            graph.register_generator_state(stepper.generator)
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            for branch in branches:
                branch.wait_stream(stream)
            for i, (stepper, history) in enumerate(zip(self.steppers, self.histories, strict=True)):
                with torch.cuda.stream(branches[i % len(branches)]):
                    stepper.record_step(history)
            for branch in branches:
                stream.wait_stream(branch)
        self.graph = graph

    def run_epoch(self) -> list[Tensor]:
        """Run the steps of the next epoch of each run; return the terms (steps, t) of each."""
        for training, stepper in zip(self.trainings, self.steppers, strict=True):
            stepper.begin_epoch(training.epoch, training.phase.epochs, training.seed)
        for _ in range(self.steps):
            self.graph.replay()
        return [history.cpu() for history in self.histories]

    def release(self, trainings: Sequence[PhaseTraining]) -> None:
        """Give the models of these runs tensors of their own, which steps leave as they are."""
        for training in trainings:
            model = training.trainer.model
            for tensor in [*model.parameters(), *model.buffers()]:
                self.released.append(tensor.data)
                tensor.data = tensor.detach().clone()
                tensor.grad = None
