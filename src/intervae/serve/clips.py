"""Queries of models of clips: frames under do() at a frame, and the frames that follow."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import numpy as np

from intervae.causal.do import Change
from intervae.errors import IntervaeError, QueryError
from intervae.models.capabilities import Temporal
from intervae.serve import answers
from intervae.serve.describe import can
from intervae.serve.inputs import InputPictures, as_change, read_pictures
from intervae.serve.pictures import as_bytes, to_pngs
from intervae.serve.repeat_code import cli_do, extra_arguments, python_do, repeat
from intervae.serve.schemas import ClipRequest, Soft

if TYPE_CHECKING:
    from intervae.serve.served_runs import ServedRun


def clip(run: ServedRun, request: ClipRequest) -> answers.ClipAnswer:
    """Answer POST clip."""
    start = time.perf_counter()
    model = run.model
    if not can(model, Temporal):
        raise QueryError(f"{model.name} was not trained on clips; see its capabilities.")
    pictures = read_pictures(run, [request.picture])
    do = _frame_do(request)
    options = {**pictures.options, "steps": request.steps}
    predicted = model.counterfactual(pictures.images, {}, **options)[0].cpu()
    after = model.counterfactual(pictures.images, do, **options)[0].cpu() if do else predicted
    before_values = model.latents_over_time(pictures.images, {}, **options)
    after_values = model.latents_over_time(pictures.images, do, **options)
    extra = f"{extra_arguments(pictures.options)}, steps={request.steps}"
    query = f"frames = model.counterfactual(images, do={python_do(do)}{extra})"
    command = f"intervene {{run}} {{picture}}{cli_do(do)} --steps {request.steps}"
    truth = _true_frames(run, pictures, request.steps) if not do else None
    return answers.ClipAnswer(
        run=run.number,
        frames=to_pngs(pictures.images[0]),
        predicted=to_pngs(predicted),
        counterfactual=to_pngs(after),
        truth=None if truth is None else to_pngs(truth),
        given_frames=pictures.images.shape[1],
        values=[
            answers.ClipValue(
                name=name,
                frame=_frame(name),
                before=float(before_values[name][0]),
                after=float(after_values[name][0]),
                changed=bool(before_values[name][0] != after_values[name][0]),
            )
            for name in after_values
        ],
        notes=[],
        milliseconds=1000 * (time.perf_counter() - start),
        code=repeat(run, [request.picture], query, command if do or request.steps else None),
    )


def _frame_do(request: ClipRequest) -> dict[str, float | Change]:
    """Return do() of a request; its names depend on the number of frames, so the model checks."""
    do: dict[str, float | Change] = {}
    for name, value in request.do.items():
        if isinstance(value, str):
            raise QueryError(f"do({name}={value!r}) is not a number; latents have no categories.")
        do[name] = as_change(value) if isinstance(value, Soft) else value
    return do


def _frame(name: str) -> int | None:
    """Return the frame of a latent such as z3_0, counted from 1; None for one of all frames."""
    match = re.fullmatch(r"[a-z]+(\d{1,6})_\d{1,6}", name)
    return int(match[1]) if match else None


def _true_frames(run: ServedRun, pictures: InputPictures, steps: int) -> np.ndarray | None:
    """Return the clip and the true frames after it (T + steps, C, H, W), if a simulator knows."""
    simulator = run.data.simulator if run.data is not None else None
    if simulator is None or pictures.exogenous is None or not hasattr(simulator, "extrapolate"):
        return None
    frames = as_bytes(pictures.images[0])
    if not steps:
        return frames
    try:
        values = simulator.simulate(pictures.exogenous)
        size = frames.shape[-1]
        future, _ = simulator.extrapolate(values, pictures.exogenous, steps, size=size)
    except IntervaeError:
        return None
    return np.concatenate([frames, future[0]])
