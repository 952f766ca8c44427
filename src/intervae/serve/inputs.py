"""Inputs of queries: pictures of the test split or uploads, and do() from its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from intervae.causal.do import Change, act
from intervae.data import Split
from intervae.errors import QueryError, UsageError
from intervae.serve.describe import clip_options, settable_variables
from intervae.serve.pictures import decode_upload
from intervae.serve.schemas import Picture, Soft

if TYPE_CHECKING:
    from intervae.serve.served_runs import ServedRun


@dataclass(frozen=True)
class InputPictures:
    """Pictures of a request.

    Arguments:
        images: (B, C, H, W) uint8, or clips (B, T, C, H, W).
        rows: the same as rows of the test split; None for uploads.
        options: keyword arguments of the model's queries beside the images.
    """

    images: torch.Tensor
    rows: Split | None
    options: dict[str, Any]

    @property
    def exogenous(self) -> np.ndarray | None:
        """(B, e) true noises, if a simulator made the pictures."""
        if self.rows is None or "exogenous" not in self.rows.fields:
            return None
        return self.rows.fields["exogenous"].cpu().numpy()

    def repeated(self, times: int) -> InputPictures:
        """Return the first picture `times` times."""
        index = torch.zeros(times, dtype=torch.int64)
        options = {name: value[index] for name, value in self.options.items()}
        rows = None if self.rows is None else self.rows[index]
        return InputPictures(self.images[index], rows, options)


def read_pictures(run: ServedRun, pictures: Sequence[Picture]) -> InputPictures:
    """Return the pictures of a request, all of the test split or all uploads."""
    model = run.model
    indices = [picture.index for picture in pictures if picture.index is not None]
    if indices and len(indices) < len(pictures):
        raise UsageError("give pictures of the test split or uploads in one request, not both.")
    if not indices:
        return _uploads(model, [picture.png or "" for picture in pictures])
    rows = test_rows(run, indices)
    options: dict[str, Any] = {}
    if model.spec.frames is not None:
        options = clip_options(run, rows)
    elif model.needs_labels or model.counterfactual_takes_labels:
        options = {"labels": rows.labels}
    return InputPictures(rows.images, rows, options)


def test_rows(run: ServedRun, indices: Sequence[int]) -> Split:
    """Return rows of the test split; an error that says why there are none."""
    if run.data is None:
        why = run.description.pictures.error if run.description.pictures else None
        raise QueryError(f"there are no test pictures: {why or 'the data is not here.'}")
    count = len(run.data.test)
    for index in indices:
        if index >= count:
            raise QueryError(f"picture {index}: the test split has {count}, numbered from 0.")
    return run.data.test[torch.tensor(list(indices), dtype=torch.int64)]


def _uploads(model: Any, texts: Sequence[str]) -> InputPictures:
    if model.spec.frames is not None:
        raise UsageError(f"{model.name} was trained on clips; choose a test clip.")
    if model.needs_labels:
        raise UsageError(
            f"{model.name} needs the labels of a picture, which an upload lacks; choose a test "
            "picture."
        )
    images = np.stack([decode_upload(text, model.spec.image_shape)[0] for text in texts])
    return InputPictures(torch.from_numpy(images), None, {})


# ---- do() --------------------------------------------------------------------------------------
def read_do(run: ServedRun, do: Mapping[str, Any]) -> dict[str, float | Change]:
    """Return do() of a request with codes for categories and `Change` for soft entries."""
    names = [variable.name for variable, _, _ in settable_variables(run)]
    if do and not names:
        raise QueryError(f"{run.model.name} knows no causes, so it answers no do().")
    categories = run.model.spec.categories
    result: dict[str, float | Change] = {}
    for name, value in do.items():
        if isinstance(value, Soft):
            result[name] = as_change(value)
        else:
            # a category becomes its code by the rule of every do()
            (action,) = act({name: value}, names, categories).values()
            result[name] = float(action(np.zeros(1))[0])
    act(result, names)
    return result


def as_change(soft: Soft) -> Change:
    if soft.add is not None:
        return Change("+", soft.add)
    return Change("*", soft.multiply if soft.multiply is not None else 1.0)
