"""Queries of transition models: pictures after an action, and the action between two pictures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from intervae.errors import QueryError
from intervae.models.capabilities import Transition
from intervae.models.ct_vae.explanations import doubt
from intervae.serve import answers
from intervae.serve.describe import can
from intervae.serve.inputs import read_pictures
from intervae.serve.pictures import signed_png, to_png, to_pngs
from intervae.serve.repeat_code import repeat
from intervae.serve.schemas import ActRequest, AttributeRequest, Picture

if TYPE_CHECKING:
    from intervae.serve.served_runs import ServedRun


def act(run: ServedRun, request: ActRequest) -> answers.ActAnswer:
    """Answer POST act: a picture after 1, 2, ... applications of an action."""
    start = time.perf_counter()
    _check(run)
    pictures = read_pictures(run, [request.picture])
    after = run.model.act_repeatedly(pictures.images, request.action, request.times)[0].cpu()
    query = f"pictures = model.act_repeatedly(images, {request.action!r}, {request.times})"
    return answers.ActAnswer(
        run=run.number,
        action=request.action,
        factual=to_png(pictures.images[0]),
        pictures=to_pngs(after),
        changes=[signed_png(image, pictures.images[0])[0] for image in after],
        milliseconds=1000 * (time.perf_counter() - start),
        code=repeat(run, [request.picture], query, None),
    )


def attribute(run: ServedRun, request: AttributeRequest) -> answers.AttributeAnswer:
    """Answer POST attribute: the probability of each action between two pictures."""
    _check(run)
    before, after, true_action = _pair(run, request)
    x, y = (read_pictures(run, [picture]).images for picture in (before, after))
    probabilities = run.model.attribute(x, y)[0].tolist()
    scores = run.model.explain(x, y).actions[0].tolist()
    (best,) = run.model.best_explanation(x, y)
    ranked = sorted(zip(probabilities, scores, run.model.spec.actions, strict=True), reverse=True)
    query, pictures = "probabilities = model.attribute(images[:1], images[1:])", [before, after]
    is_upload = before.index is None
    return answers.AttributeAnswer(
        run=run.number,
        before=to_png(x[0]),
        after=to_png(y[0]),
        actions=[
            answers.ActionProbability(name=name, probability=p, log_likelihood=score)
            for p, score, name in ranked
        ],
        best=ranked[0][2] if best in ("action", "unusual action") else best,
        note=doubt(best) or None,
        true_action=true_action,
        code=repeat(
            run, pictures, query, "attribute {run} before.png after.png" if is_upload else None
        ),
    )


def _pair(run: ServedRun, request: AttributeRequest) -> tuple[Picture, Picture, str | None]:
    """Return the two pictures of a request, and the true action of a test pair."""
    if request.before is not None and request.after is not None:
        return request.before, request.after, None
    pairs = None if run.data is None or run.data.transitions is None else run.data.transitions.test
    count = 0 if pairs is None else len(pairs)
    if pairs is None or request.pair is None or request.pair >= count:
        raise QueryError(f"pair {request.pair}: there are {count} test pairs, numbered from 0.")
    row = torch.tensor(request.pair)
    before, after = (Picture(index=int(rows[row])) for rows in (pairs.before, pairs.after))
    return before, after, pairs.action_names[int(pairs.action[row])]


def _check(run: ServedRun) -> None:
    if not can(run.model, Transition):
        raise QueryError(f"{run.model.name} knows no actions; see its capabilities.")
