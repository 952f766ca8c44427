"""Test pictures to browse, pairs of transitions, and uploads at the model's size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from intervae.errors import UsageError
from intervae.serve import schemas
from intervae.serve.pictures import decode_upload, to_png

if TYPE_CHECKING:
    from intervae.serve.served_runs import ServedRun


def list_pictures(run: ServedRun, start: int, count: int) -> schemas.PicturesAnswer:
    """Answer GET pictures: some of the test split, with their labels."""
    data, about = run.data, run.description.pictures
    if data is None:
        error = about.error if about is not None else None
        return schemas.PicturesAnswer(count=0, start=start, error=error, pictures=[])
    total = len(data.test)
    rows = range(min(start, total), min(start + count, total))
    return schemas.PicturesAnswer(
        count=total, start=start, error=None, pictures=thumbnails(run, list(rows))
    )


def thumbnails(run: ServedRun, indices: list[int]) -> list[schemas.ThumbnailAnswer]:
    """Return test pictures by index; of a clip its first frame."""
    if not indices:
        return []
    part = run.data.test[torch.tensor(indices, dtype=torch.int64)]
    frames, labels = run.model.spec.frames, part.labels.double().cpu().numpy()
    pictures = []
    for i, index in enumerate(indices):
        image = part.images[i] if frames is None else part.images[i][0]
        values = {
            name: float(labels[i, j]) if np.isfinite(labels[i, j]) else None
            for j, name in enumerate(run.data.names)
        }
        pictures.append(
            schemas.ThumbnailAnswer(index=index, png=to_png(image), frames=frames, values=values)
        )
    return pictures


def list_pairs(run: ServedRun, start: int, count: int) -> schemas.PairsAnswer:
    """Answer GET pairs: pictures before and after an action."""
    if run.data is None or run.data.transitions is None:
        return schemas.PairsAnswer(count=0, start=start, pairs=[])
    transitions = run.data.transitions.test
    rows = range(min(start, len(transitions)), min(start + count, len(transitions)))
    images, pairs = run.data.test.images, []
    for pair in rows:
        before, after = int(transitions.before[pair]), int(transitions.after[pair])
        pairs.append(
            schemas.PairAnswer(
                pair=pair,
                before=to_png(images[before]),
                after=to_png(images[after]),
                before_index=before,
                after_index=after,
                action=transitions.action_names[int(transitions.action[pair])],
            )
        )
    return schemas.PairsAnswer(count=len(transitions), start=start, pairs=pairs)


def upload(run: ServedRun, request: schemas.UploadRequest) -> schemas.UploadAnswer:
    """Answer POST upload: the file at the model's size; nothing is stored."""
    if run.model.spec.frames is not None:
        raise UsageError(f"{run.model.name} was trained on clips; choose a test clip.")
    pixels, notes = decode_upload(request.file, run.model.spec.image_shape)
    return schemas.UploadAnswer(png=to_png(pixels), notes=notes)
