"""Training: one plain loop over a model's phases."""

from intervae.training.loop import Result, fit
from intervae.training.options import Options, choose_device

__all__ = ["Options", "Result", "choose_device", "fit"]
