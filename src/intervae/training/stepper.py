"""Steps of a phase: gather the batch on the device, each player's loss, backward, optimiser; eager, or captured whole in a CUDA graph."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from intervae.data.base import Split
from intervae.errors import UsageError
from intervae.models.base import Model
from intervae.models.phases import Phase, Player, Schedule
from intervae.training.muon import Muon, weight_matrices

WARM_UP = 0.02  # share of a cosine schedule spent rising to the full rate
FLOOR = 0.01  # what a cosine schedule falls to
CAPTURED: dict[str, Callable[..., torch.optim.Optimizer]] = {  # optimisers whose steps a GPU captures
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "muon": Muon,
}
CAPTURING = threading.Lock()  # one capture at a time, where several runs share a GPU


def rate_factor(schedule: Schedule, step: int, steps: int, decay: float = 1.0, epoch: int = 0) -> float:
    """Learning rate at a step, relative to the player's own."""
    if schedule != "cosine":
        return decay**epoch if schedule == "exponential" else 1.0
    done = (step + 1) / steps
    return min(1.0, done / WARM_UP) * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * done)))


def make_optimiser(model: Model, player: Player, on_gpu: bool) -> torch.optim.Optimizer:
    """Over the player's parameters: a group for those at its own rate, and one for each prefix of `own_rates`; `start` is a group's rate.

    For muon each is two groups, weight matrices and all others.
    """
    moving = [(name, p) for name, p in model.named_parameters() if p.requires_grad and name.startswith(player.parameters)]
    if not moving:
        raise UsageError(f"no parameter of {model.name} begins with {' or '.join(player.parameters)}.")
    apart = tuple(prefix for prefix, _ in player.own_rates)
    parts = [(player.learning_rate, [one for one in moving if not (apart and one[0].startswith(apart))])]
    parts += [(rate, [one for one in moving if one[0].startswith(prefix)]) for prefix, rate in player.own_rates]
    matrices = weight_matrices(model) if player.optimiser == "muon" else set()
    groups: list[dict[str, Any]] = []
    for rate, part in parts:
        for whether in (False, True):
            if some := [parameter for name, parameter in part if (name in matrices) == whether]:
                start = torch.tensor(rate, device=some[0].device) if on_gpu and player.optimiser in CAPTURED else rate
                groups.append({"params": some, "start": rate, "lr": start, "matrices": whether})
    if player.optimiser in CAPTURED:
        options = {"betas": player.betas, "eps": player.epsilon, "weight_decay": player.weight_decay}
        return CAPTURED[player.optimiser](groups, fused=True, capturable=on_gpu, **options)
    if player.optimiser == "adagrad":
        return torch.optim.Adagrad(groups, weight_decay=player.weight_decay)
    if player.optimiser == "rmsprop":
        return torch.optim.RMSprop(groups, weight_decay=player.weight_decay, capturable=on_gpu)
    return torch.optim.SGD(groups, weight_decay=player.weight_decay)


def parameters_of(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]


def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """The current stream, or another one where that is the default stream, which cannot be captured.

    No new one for each capture: torch hands out 32 of them in turn, so the 33rd is a stream that another thread may be working on, whose
    kernels would end up in this graph.
    """
    current = torch.cuda.current_stream(device)
    if current != torch.cuda.default_stream(device):
        return current
    if device not in _CAPTURE_STREAMS:
        _CAPTURE_STREAMS[device] = torch.cuda.Stream(device)
    return _CAPTURE_STREAMS[device]


_CAPTURE_STREAMS: dict[torch.device, torch.cuda.Stream] = {}  # of the main thread


class Stepper:
    """Runs the steps of one phase.

    What changes from step to step (rows, step number, learning rate) is read from tables on the device at `position`, and the terms go
    into a table there, so that a captured step needs nothing from the host but its launch, and one transfer at the end of an epoch.
    """

    def __init__(self, model: Model, phase: Phase, split: Split, batch_size: int, *, cuda_graph: bool, bf16: bool) -> None:
        self.model, self.phase, self.split, self.bf16 = model, phase, split, bf16
        self.device = split.device
        self.on_gpu = self.device.type == "cuda"
        self.steps_per_epoch = len(split) // batch_size
        self.optimisers = [make_optimiser(model, player, self.on_gpu) for player in phase.players]
        self.generator = torch.Generator(self.device)
        self.order = torch.zeros(self.steps_per_epoch, batch_size, dtype=torch.int64, device=self.device)  # rows of each step
        self.factors = torch.ones(self.steps_per_epoch, device=self.device)  # of the learning rate
        self.first_step = torch.zeros((), device=self.device)
        self.position = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.names: list[str] = []
        self.graph: torch.cuda.CUDAGraph | None = None
        capturable = all(player.optimiser in CAPTURED for player in phase.players)
        if self.on_gpu and cuda_graph and capturable:
            with CAPTURING:
                self._capture()

    def _step(self) -> Tensor:
        """One batch through every player; returns the stacked terms (t,)."""
        batch = self.split.batch(self.order.index_select(0, self.position)[0])
        batch["step"] = self.first_step + self.position[0]
        factor = self.factors.index_select(0, self.position)[0]
        terms: dict[str, Tensor] = {}
        for player, optimiser in zip(self.phase.players, self.optimisers, strict=True):
            for group in optimiser.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].copy_(group["start"] * factor)
            for _ in range(player.steps):
                self.model.zero_grad(set_to_none=True)
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                    found = player.loss(batch, self.generator)
                found["loss"].backward()
                if player.clip is not None:
                    for group in optimiser.param_groups:
                        torch.nn.utils.clip_grad_norm_(group["params"], player.clip)
                optimiser.step()
            prefix = f"{player.name}." if len(self.phase.players) > 1 else ""
            terms |= {prefix + name: value.detach() for name, value in found.items()}
        if self.phase.after_step is not None:
            with torch.no_grad():
                self.phase.after_step()
        self.names = list(terms)
        return torch.stack([value.float() for value in terms.values()])

    def _capture(self) -> None:
        """Record a step as a CUDA graph. The warm-up steps it needs are undone, so the first real step starts from the same weights.

        Runs that share a GPU do so on streams of their own (`run_together`); each is captured on its own as well.
        """
        before = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        side = capture_stream(self.device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                terms = self._step()
        torch.cuda.current_stream().wait_stream(side)
        self.history = torch.zeros(self.steps_per_epoch, len(terms), device=self.device)
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.generator)
        with torch.cuda.graph(self.graph, stream=side, capture_error_mode="thread_local"):
            self.history.index_copy_(0, self.position, self._step()[None])
            self.position += 1
        with torch.no_grad():
            for name, tensor in self.model.state_dict().items():
                tensor.copy_(before[name])
            for optimiser in self.optimisers:
                for state in optimiser.state.values():
                    for value in state.values():
                        value.zero_()

    def run_epoch(self, epoch: int, epochs: int, seed: int) -> Tensor:
        """All batches of one epoch in an order, and with noise, that `seed` alone decides; returns the terms (steps, t) on the host."""
        steps, phase = self.steps_per_epoch, self.phase
        order = torch.randperm(len(self.split), generator=torch.Generator().manual_seed(seed))
        self.order.copy_(order[: self.order.numel()].view_as(self.order))
        self.generator.manual_seed(seed)
        first = epoch * steps
        factors = [rate_factor(phase.schedule, first + i, epochs * steps, phase.decay, epoch) for i in range(steps)]
        self.factors.copy_(torch.tensor(factors))
        self.first_step.fill_(first)
        self.position.zero_()
        if self.graph is not None:
            for _ in range(steps):
                self.graph.replay()
            return self.history.cpu()
        found: list[Tensor] = []
        for factor in factors:
            self._set_rates(factor)
            found.append(self._step())
            self.position += 1
        return torch.stack(found).cpu()

    def _set_rates(self, factor: float) -> None:
        """Of the optimisers whose rate is no tensor."""
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                if not isinstance(group["lr"], Tensor):
                    group["lr"] = group["start"] * factor

    # ---- what a checkpoint keeps ------------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        """The optimisers' tensors under flat names."""
        return {
            f"{i}.{j}.{key}": torch.as_tensor(value)
            for i, optimiser in enumerate(self.optimisers)
            for j, parameter in enumerate(parameters_of(optimiser))
            for key, value in optimiser.state.get(parameter, {}).items()
            if value is not None
        }

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Put back what `state` gave; in place where a captured graph already points at the tensors."""
        for name, tensor in tensors.items():
            i, j, key = name.split(".", 2)
            optimiser = self.optimisers[int(i)]
            parameter = parameters_of(optimiser)[int(j)]
            slot = optimiser.state[parameter]
            if key in slot:
                slot[key].copy_(tensor)
            else:
                on = parameter.device if self.on_gpu or key != "step" else "cpu"
                slot[key] = tensor.to(on).clone(memory_format=torch.preserve_format)
                if slot[key].shape == parameter.shape:  # same strides as the parameter, as the optimiser itself would have made it
                    slot[key] = torch.empty_like(parameter).copy_(tensor)
