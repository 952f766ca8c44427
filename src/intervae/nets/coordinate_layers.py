"""Layers of a picture as functions of the pixel's coordinates and of a few variables.

The inputs of the network are octaves of linear combinations of the coordinates. The variables
change the combinations, so that the simplest functions are patterns that move.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor, nn

COMBINATIONS = 8  # of coordinates and variables
OCTAVES = 3  # frequencies of each combination


class CoordinateLayer(nn.Module):
    """Variables (B, n) and pixel coordinates (P, 2) to colour and opacity logits (B, C + 1, P).

    A subclass has `combine`.
    """

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        features = COMBINATIONS * (1 + 2 * OCTAVES)
        self.hidden = nn.Sequential(
            nn.Linear(features, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        self.output = nn.Linear(hidden, channels + 1)
        with torch.no_grad():
            for layer in self.hidden:
                if isinstance(layer, nn.Linear):
                    nn.init.kaiming_normal_(layer.weight)
            self.output.weight.mul_(0.3)  # a gentle start: logits near 0 everywhere

    @abstractmethod
    def combine(self, variables: Tensor, coordinates: Tensor) -> Tensor:
        """Return linear combinations (B, P, COMBINATIONS) of the coordinates."""

    def forward(self, variables: Tensor, coordinates: Tensor) -> Tensor:
        combined = self.combine(variables, coordinates)
        return self.output(self.hidden(octaves(combined))).transpose(1, 2)


class ShiftedLayer(CoordinateLayer):
    """A pattern that n variables shift: combinations A (x, y) + B v.

    It holds outside the training data, so it paints what several variables determine together.
    """

    def __init__(self, variables: int, channels: int, hidden: int = 64) -> None:
        super().__init__(channels, hidden)
        self.of_coordinates = nn.Linear(2, COMBINATIONS, bias=False)
        self.of_variables = nn.Linear(variables, COMBINATIONS)
        with torch.no_grad():
            self.of_coordinates.weight.copy_(_first_combinations())
            self.of_variables.weight.normal_(0, 0.2)  # variables move the pattern slowly at first
            self.of_variables.bias.zero_()

    def combine(self, variables: Tensor, coordinates: Tensor) -> Tensor:
        return self.of_coordinates(coordinates)[None] + self.of_variables(variables)[:, None]


class TransformedLayer(CoordinateLayer):
    """A pattern that one variable shifts, turns and scales: combinations A(v) (x, y) + b(v)."""

    def __init__(self, channels: int, hidden: int = 64) -> None:
        super().__init__(channels, hidden)
        self.maps = nn.Sequential(
            nn.Linear(1 + 2 * OCTAVES, 64), nn.SiLU(), nn.Linear(64, 3 * COMBINATIONS)
        )
        with torch.no_grad():
            last = self.maps[2]
            last.weight.mul_(0.3)  # type: ignore[operator]
            start = nn.functional.pad(_first_combinations(), (0, 1))
            last.bias.copy_(start.flatten())  # type: ignore[operator]

    def combine(self, variables: Tensor, coordinates: Tensor) -> Tensor:
        maps = self.maps(octaves(variables)).unflatten(1, (COMBINATIONS, 3))
        return coordinates @ maps[..., :2].transpose(1, 2) + maps[:, None, :, 2]


def octaves(values: Tensor) -> Tensor:
    """Values (..., m) with their sines and cosines at OCTAVES frequencies, (..., m (1 + 2 O))."""
    angles = [math.pi / 2 * 2**octave * values for octave in range(OCTAVES)]
    waves = [wave for angle in angles for wave in (torch.sin(angle), torch.cos(angle))]
    return torch.cat([values, *waves], dim=-1)


def _first_combinations() -> Tensor:
    """Draw the weights (COMBINATIONS, 2) of x and y at the start; two are x and y themselves."""
    weights = torch.empty(COMBINATIONS, 2).normal_(0, 0.7)
    weights[:2] = torch.eye(2)
    return weights
