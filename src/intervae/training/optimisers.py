"""Optimisers of players and their learning rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from intervae.errors import UsageError
from intervae.models.base import Model
from intervae.models.phases import Player, Schedule
from intervae.training.eager_optimisers import SGD, Adagrad, Adam, AdamW, RMSprop
from intervae.training.muon import Muon, weight_matrices

WARM_UP = 0.02  # fraction of a cosine schedule in which the rate rises to its full value
FLOOR = 0.01  # final factor of a cosine schedule
# optimisers whose steps can be captured in a CUDA graph
CAPTURABLE: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": Adam,
    "adamw": AdamW,
    "muon": Muon,
}


def rate_factor(
    schedule: Schedule, step: int, steps: int, decay: float = 1.0, epoch: int = 0
) -> float:
    """Return the factor of the learning rate at a step of a phase with `steps` steps."""
    if schedule != "cosine":
        return decay**epoch if schedule == "exponential" else 1.0
    done = (step + 1) / steps
    return min(1.0, done / WARM_UP) * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * done)))


def make_optimiser(model: Model, player: Player, on_gpu: bool) -> torch.optim.Optimizer:
    """Return the optimiser of a player's parameters.

    There is one group for the parameters at the player's learning rate and one for each prefix of
    `prefix_rates`; Muon splits each into weight matrices and others. The key `base_rate` of a
    group is its learning rate without the schedule.
    """
    parameters = [
        (name, p)
        for name, p in model.named_parameters()
        if p.requires_grad and name.startswith(player.parameters)
    ]
    if not parameters:
        raise UsageError(
            f"no parameter of {model.name} begins with {' or '.join(player.parameters)}."
        )
    prefixes = tuple(prefix for prefix, _ in player.prefix_rates)
    common = [entry for entry in parameters if not (prefixes and entry[0].startswith(prefixes))]
    named_groups = [(player.learning_rate, common)]
    for prefix, rate in player.prefix_rates:
        named_groups.append((rate, [entry for entry in parameters if entry[0].startswith(prefix)]))
    matrices = weight_matrices(model) if player.optimiser == "muon" else set()
    rate_on_device = on_gpu and player.optimiser in CAPTURABLE
    groups: list[dict[str, Any]] = []
    for rate, entries in named_groups:
        for is_matrix in (False, True):
            members = [p for name, p in entries if (name in matrices) == is_matrix]
            if members:
                lr = torch.tensor(rate, device=members[0].device) if rate_on_device else rate
                groups.append(
                    {"params": members, "base_rate": rate, "lr": lr, "matrices": is_matrix}
                )
    return _create_optimiser(player, groups, on_gpu)


def _create_optimiser(
    player: Player, groups: list[dict[str, Any]], on_gpu: bool
) -> torch.optim.Optimizer:
    if player.optimiser in CAPTURABLE:
        return CAPTURABLE[player.optimiser](
            groups,
            fused=True,
            capturable=on_gpu,
            betas=player.betas,
            eps=player.epsilon,
            weight_decay=player.weight_decay,
        )
    if player.optimiser == "adagrad":
        return Adagrad(groups, weight_decay=player.weight_decay)
    if player.optimiser == "rmsprop":
        return RMSprop(groups, weight_decay=player.weight_decay, capturable=on_gpu)
    return SGD(groups, weight_decay=player.weight_decay)


def optimised_parameters(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """Return the parameters of all groups, in order."""
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]


# ---- state in checkpoints -----------------------------------------------------------------------
def optimiser_state(optimisers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """Return the tensors of all optimisers under flat names, OPTIMISER.PARAMETER.KEY."""
    return {
        f"{i}.{j}.{key}": torch.as_tensor(value)
        for i, optimiser in enumerate(optimisers)
        for j, parameter in enumerate(optimised_parameters(optimiser))
        for key, value in optimiser.state.get(parameter, {}).items()
        if value is not None
    }


def load_optimiser_state(
    optimisers: list[torch.optim.Optimizer], tensors: dict[str, Tensor], on_gpu: bool
) -> None:
    """Restore what `optimiser_state` returned, in place if a captured step uses the tensors."""
    for name, tensor in tensors.items():
        i, j, key = name.split(".", 2)
        optimiser = optimisers[int(i)]
        parameter = optimised_parameters(optimiser)[int(j)]
        state = optimiser.state[parameter]
        if key in state:
            state[key].copy_(tensor)
        elif tensor.shape == parameter.shape and (on_gpu or key != "step"):
            state[key] = torch.empty_like(parameter).copy_(tensor)  # strides of the parameter
        else:
            device = parameter.device if on_gpu or key != "step" else "cpu"
            state[key] = tensor.to(device).clone(memory_format=torch.preserve_format)
