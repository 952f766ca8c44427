"""Prediction of a picture from its noise when variables change, with what settings add to it.

`corrections`: a mechanism makes some combinations a little too dark, or too thin. The predictor
reads by how much, and the mechanism is asked for as much more.
`flow_confidence`: guidance that rises until the predictor reads the new classes.
Shapes: B pictures, n variables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from intervae.errors import QueryError
from intervae.models.deep_scm.rising_guidance import predict_until_confident
from intervae.nets.flow_picture import FlowPicture
from intervae.nets.picture_mechanism import PictureNoise

if TYPE_CHECKING:
    from intervae.models.deep_scm.queries import DeepSCMQueries

LARGEST = 0.5  # correction in all, in standard deviations
USUAL_NOISE = 2.5  # standard deviations of the noise of a number
SAME_NOISE = 0.1  # likewise; equal up to rounding, or almost

# values (B, n) -> pictures (B, C, H, W), and back
Predict = Callable[[Tensor], Tensor]
Read = Callable[[Tensor], Tensor]


def predict_picture(
    model: DeepSCMQueries,
    noise: PictureNoise,
    old: Tensor,
    new: Tensor,
    pixel_temperature: float,
    corrections: int,
) -> Tensor:
    """Return the images of abducted noise when variables (B, n) change from `old` to `new`."""
    picture, own = model.picture, model.parents(old)
    guided = isinstance(picture, FlowPicture) and picture.guidance > 1
    rises = guided and model.settings.flow_confidence > 0

    def predict(values: Tensor) -> Tensor:
        parents = model.parents(values)
        if rises:
            return _predict_until_confident(model, noise, parents, own, old, new)
        return model.crop(picture.predict(noise, parents, pixel_temperature, own))

    if not corrections:
        return predict(new)
    where = model.numbers & can_be_corrected(model, old, new)[:, None]  # (B, n)
    if not torch.compiler.is_compiling() and not where.any():
        return predict(new)
    spread = model.predictor.log_std.exp()
    return predict_corrected(predict, _reader(model), new, where, corrections, spread)


def predict_corrected(
    predict: Predict, read: Read, target: Tensor, where: Tensor, times: int, spread: Tensor
) -> Tensor:
    """Return predict(v), with v corrected so that read(predict(v)) is close to the target.

    Starting from v = target, `times` steps of

        v + m max(0, 1 - s^2 / m^2),    m = target - read(predict(v)).

    m is the sum of the picture's error and the reader's, whose standard deviation s was learned on
    training pictures, so m^2 - s^2 estimates the picture's part of m^2. Less than s is not
    corrected.

    Arguments:
        target: (B, n) in normalised units.
        where: (B, n), the values that are corrected; the others stay as in the target.
        spread: s, (n,).
    """
    correction = torch.zeros_like(target)
    pictures = predict(target)
    for _ in range(times):
        missing = torch.where(where, target - read(pictures), 0.0)
        share = (1 - spread.square() / missing.square().clamp(min=1e-12)).clamp(min=0)
        correction = (correction + share * missing).clamp(-LARGEST, LARGEST)
        pictures = predict(target + correction)
    return pictures


def can_be_corrected(model: DeepSCMQueries, old: Tensor, new: Tensor) -> Tensor:
    """Return the rows (B,) whose picture changes, with usual noises of numbers that do() kept.

    The predictor was trained on pictures in which effects follow from their causes. Where do() set
    a number that has causes, it may read the cause off it, and would move both. Noises of classes
    are drawn, so that nothing is known of a class that do() set.
    """
    rows = (model.parents(old) != model.parents(new)).any(1)
    columns = [i for i in model.picture_columns if model.types[i].kind == "continuous"]
    names = [model.spec.names[i] for i in columns]
    before, after = (model.variables.abduct(values, names=names) for values in (old, new))
    for name in names:
        rows = rows & (after[name].abs() <= USUAL_NOISE)
        if model.variables.parents[name]:
            rows = rows & ((after[name] - before[name]).abs() <= SAME_NOISE)
    return rows


def _reader(model: DeepSCMQueries) -> Read:
    return lambda images: model.predictor.values(model.predictor(images))


def _predict_until_confident(
    model: DeepSCMQueries,
    noise: PictureNoise,
    parents: Tensor,
    own: Tensor,
    old: Tensor,
    new: Tensor,
) -> Tensor:
    """Return images with guidance that rises until the predictor reads the changed classes."""
    if torch.compiler.is_compiling():
        raise QueryError(
            "guidance that rises until the classes are read (flow_confidence) takes another "
            "number of steps for each picture, which a program cannot; export a model with "
            "flow_confidence=0."
        )
    assert isinstance(model.picture, FlowPicture)
    changed = (old != new) & model.guided  # (B, n)
    least = model.settings.flow_confidence

    def confidence(pictures: Tensor, rows: Tensor) -> Tensor:
        """Return the smallest probability that the predictor gives to a changed class."""
        outputs = model.predictor(model.crop(pictures))
        return torch.exp(-model.predictor.loss(outputs, new[rows], changed[rows]).amax(1))

    pictures = predict_until_confident(model.picture, noise, parents, own, confidence, least)
    return model.crop(pictures)
