"""Steps of a phase: batch, loss of each player, backward, optimiser; eager or as a CUDA graph."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator

import numpy as np
import torch
from torch import Tensor

from intervae.cuda_graphs import CAPTURING, capture_stream
from intervae.data import Batch, MappedSplit, Split
from intervae.models.base import Model
from intervae.models.phases import Phase, Player
from intervae.training.averaging import WeightAverage
from intervae.training.optimisers import (
    CAPTURABLE,
    load_optimiser_state,
    make_optimiser,
    optimised_parameters,
    optimiser_state,
    rate_factor,
)
from intervae.training.ranks import Ranks
from intervae.training.read_ahead import read_ahead

AVERAGE = "average."  # prefix of the names of averages in `Stepper.state`


def epoch_seed(seed: int, phase: int, epoch: int) -> int:
    """Return the seed of the order and the noise of an epoch."""
    sequence = np.random.SeedSequence([seed, phase, epoch])
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)


class Stepper:
    """Runs the steps of one phase.

    What changes from step to step (rows, step number, learning rate) is read from tables on the
    device at `position`, and the terms are written to a table there. A captured step therefore
    needs one launch from the host, and an epoch one transfer.

    Images of packed data are read ahead by a thread. On a GPU they are copied into `pixels`, from
    which a captured step reads.
    """

    def __init__(
        self,
        model: Model,
        phase: Phase,
        split: Split,
        batch_size: int,
        *,
        cuda_graph: bool,
        bf16: bool,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks = ranks
        self.model, self.phase, self.split, self.bf16 = model, phase, split, bf16
        self.device = split.device
        self.on_gpu = self.device.type == "cuda"
        self.steps_per_epoch = len(split) // batch_size
        self.optimisers = [make_optimiser(model, player, self.on_gpu) for player in phase.players]
        self.average: WeightAverage | None = None
        if phase.averaging:
            self.average = WeightAverage(model, self.optimisers, phase.averaging)
        self.generator = torch.Generator(self.device)
        # rows of each step
        self.order = torch.zeros(
            self.steps_per_epoch, batch_size, dtype=torch.int64, device=self.device
        )
        self.part = slice(None) if ranks is None else ranks.part(batch_size)  # of every batch
        self.factors = torch.ones(self.steps_per_epoch, device=self.device)  # of the learning rate
        self.first_step = torch.zeros((), device=self.device)
        self.position = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.names: list[str] = []
        self.graph: torch.cuda.CUDAGraph | None = None
        self.pixels: Tensor | None = None  # (B, ...) uint8 of this part of a step, of packed data
        if isinstance(split, MappedSplit) and self.on_gpu:
            shape = (len(range(batch_size)[self.part]), *split.shape[1:])
            self.pixels = torch.zeros(shape, dtype=torch.uint8, device=self.device)
        capturable = all(player.optimiser in CAPTURABLE for player in phase.players)
        capturable &= ranks is None and (not split.streamed or self.pixels is not None)
        if self.on_gpu and cuda_graph and capturable:
            with CAPTURING:
                self._capture()

    def _batch(self, rows: Tensor) -> Batch:
        """Return the batch of the rows of this part of the step."""
        if isinstance(self.split, MappedSplit) and self.pixels is not None:
            return self.split.with_pixels(rows, self.pixels)
        return self.split.batch(rows)

    def _step(self) -> Tensor:
        """Train every player on one batch; return the stacked terms (t,)."""
        rows = self.order.index_select(0, self.position)[0]
        own_rows = rows[self.part]
        batch = self._batch(own_rows)
        batch["step"] = self.first_step + self.position[0]
        self.set_device_rates()
        terms: dict[str, Tensor] = {}
        for player, optimiser in zip(self.phase.players, self.optimisers, strict=True):
            for _ in range(player.steps):
                self.model.zero_grad(set_to_none=True)
                with (
                    torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16),
                    self._noise_of(len(rows)),
                ):
                    player_terms = player.loss(batch, self.generator)
                if self.ranks is None:
                    player_terms["loss"].backward()
                else:
                    weight = len(own_rows) / len(rows)
                    (player_terms["loss"] * weight).backward()
                    player_terms = {k: v.detach() * weight for k, v in player_terms.items()}
                    self.ranks.reduce_step(optimised_parameters(optimiser), player_terms)
                self.descend(player, optimiser)
            prefix = f"{player.name}." if len(self.phase.players) > 1 else ""
            terms |= {prefix + name: value.detach() for name, value in player_terms.items()}
        self.end_step()
        self.names = list(terms)
        return torch.stack([value.float() for value in terms.values()])

    def set_device_rates(self) -> None:
        """Set the learning rates that are tensors; `set_host_rates` sets those that are floats."""
        factor = self.factors.index_select(0, self.position)[0]
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].copy_(group["base_rate"] * factor)

    def descend(self, player: Player, optimiser: torch.optim.Optimizer) -> None:
        """Clip the gradients of a player, and step."""
        if player.clip is not None:
            for group in optimiser.param_groups:
                torch.nn.utils.clip_grad_norm_(group["params"], player.clip)
        optimiser.step()

    def end_step(self) -> None:
        """Update what follows the optimisers: averages and buffers."""
        if self.average is not None:
            self.average.update()
        if self.phase.after_step is not None:
            with torch.no_grad():
                self.phase.after_step()

    def _noise_of(self, rows: int) -> contextlib.AbstractContextManager[None]:
        if self.ranks is None:
            return contextlib.nullcontext()
        return self.ranks.noise_of(self.generator, rows)

    def _capture(self) -> None:
        """Record a step as a CUDA graph; its warm-up steps are undone."""
        before = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        stream = capture_stream(self.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                terms = self._step()
        torch.cuda.current_stream().wait_stream(stream)
        self.history = torch.zeros(self.steps_per_epoch, len(terms), device=self.device)
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.generator)
        with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
            self.history.index_copy_(0, self.position, self._step()[None])
            self.position += 1
        with torch.no_grad():
            for name, tensor in self.model.state_dict().items():
                tensor.copy_(before[name])
            for optimiser in self.optimisers:
                for state in optimiser.state.values():
                    for value in state.values():
                        value.zero_()
        if self.average is not None:
            self.average.reset()

    def run_epoch(self, epoch: int, epochs: int, seed: int) -> Tensor:
        """Run the steps of one epoch; return the terms (steps, t) on the host."""
        factors = self.begin_epoch(epoch, epochs, seed)
        rows: list[Tensor] = []
        with contextlib.closing(self._images_of_steps()) as images:
            for factor, _ in zip(factors, images, strict=True):
                if self.graph is not None:
                    self.graph.replay()
                    continue
                self.set_host_rates(factor)
                rows.append(self._step())
                self.position += 1
        return self.history.cpu() if self.graph is not None else torch.stack(rows).cpu()

    def begin_epoch(self, epoch: int, epochs: int, seed: int) -> list[float]:
        """Fill the tables of an epoch; return the factors of the learning rate.

        The order of the batches and all noise depend on `seed` alone.
        """
        steps, phase = self.steps_per_epoch, self.phase
        order = torch.randperm(len(self.split), generator=torch.Generator().manual_seed(seed))
        self.order.copy_(order[: self.order.numel()].view_as(self.order))
        self.generator.manual_seed(seed)
        first = epoch * steps
        factors = [
            rate_factor(phase.schedule, first + i, epochs * steps, phase.decay, epoch)
            for i in range(steps)
        ]
        self.factors.copy_(torch.tensor(factors))
        self.first_step.fill_(first)
        self.position.zero_()
        return factors

    def _images_of_steps(self) -> Generator[None]:
        """Yield once per step, when `pixels` has the images of packed data of that step."""
        if not isinstance(self.split, MappedSplit):
            yield from itertools.repeat(None, self.steps_per_epoch)
            return
        batches = self.order[:, self.part].cpu().unbind()
        with contextlib.closing(read_ahead(self.split, batches)) as ahead:
            for images in ahead:
                if self.on_gpu and self.pixels is not None:
                    self.pixels.copy_(images, non_blocking=True)
                else:
                    self.pixels = images
                yield
        if not self.on_gpu:
            self.pixels = None

    def try_step(self) -> None:
        """Run a step on the first rows, to time it."""
        rows = torch.arange(self.order.numel(), device=self.device)
        self.order.copy_(rows.view_as(self.order))
        self.set_host_rates(1.0)
        self._step()

    def set_host_rates(self, factor: float) -> None:
        """Set the learning rates that are floats."""
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                if not isinstance(group["lr"], Tensor):
                    group["lr"] = group["base_rate"] * factor

    # ---- averaged weights and checkpoints -------------------------------------------------------
    def averaged_weights(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which the model has the averaged weights, if the phase has any."""
        return contextlib.nullcontext() if self.average is None else self.average.loaded()

    def end_with_average(self) -> None:
        """Replace the weights by their averages, if the phase has any."""
        if self.average is not None:
            self.average.load()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors of the optimisers and of the averages for a checkpoint."""
        averages = {} if self.average is None else self.average.state()
        named = {AVERAGE + name: tensor for name, tensor in averages.items()}
        return {**optimiser_state(self.optimisers), **named}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` returned; averages that it lacks start from the weights."""
        averages = {n.removeprefix(AVERAGE): t for n, t in tensors.items() if n.startswith(AVERAGE)}
        others = {name: t for name, t in tensors.items() if not name.startswith(AVERAGE)}
        load_optimiser_state(self.optimisers, others, self.on_gpu)
        if self.average is not None:
            self.average.load_state(averages)
