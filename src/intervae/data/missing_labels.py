"""Missing labels (NaN): where they are, the error for those who need all, and hiding on purpose."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import torch

from intervae.data.dataset import Dataset
from intervae.data.variables import Variable
from intervae.errors import DataError, UsageError
from intervae.notes import Note

# kinds of notes; the text of each says where labels are missing
MISSING_LABELS = "missing-labels"  # of the column `subject`
UNLABELLED_IMAGES = "unlabelled-images"
HIDDEN_LABELS = "hidden-labels"
ADVICE = {
    MISSING_LABELS: ("fill it in", "remove the row", "leave it out with variables= (--variables)"),
    UNLABELLED_IMAGES: ("leave unlabelled= out",),
    HIDDEN_LABELS: ("leave labelled= out",),
}


def missing_labels_error(dataset: Dataset, need: str, *alternatives: str) -> DataError:
    """Return the error for a data set of which all labels are needed.

    Arguments:
        need: who needs them, such as "vae takes no missing labels".
        alternatives: advice, after that on how to fill in or remove the missing labels.
    """
    place, kind = _first_place(dataset)
    advice = [*ADVICE[kind], *alternatives]
    last = advice.pop()
    return DataError(f"{place}, but {need}; {', '.join(advice)}{' or ' * bool(advice)}{last}.")


def _first_place(dataset: Dataset) -> tuple[str, str]:
    """Return where a label is missing, and the kind of the note that says so."""
    missing = dataset.missing
    for kind in ADVICE:
        for note in dataset.notes:
            if note.kind == kind and (not note.subject or note.subject in missing):
                return note.text, kind
    name, split = next((n, s) for n, s in dataset.splits.items() if s.missing.any())
    row, column = split.missing.nonzero()[0].tolist()
    variable = dataset.names[column]
    rows = sum(map(len, dataset.splits.values()))
    total = f" ({missing[variable]} of {rows} rows)" if missing[variable] > 1 else ""
    place = f"{dataset.name}, sample {row} of the {name} split"
    return f"{place}: {variable!r} has no value{total}", MISSING_LABELS


# ---- hiding on purpose --------------------------------------------------------------------------
def check_labelled(labelled: Any, transitions: Any) -> float:
    """Return the fraction of `load_data(labelled=)`, checked."""
    is_number = isinstance(labelled, Real) and not isinstance(labelled, bool)
    if not is_number or not 0 < float(labelled) <= 1:
        raise UsageError(
            f"labelled={labelled!r} must be a fraction above 0 and at most 1, such as 0.05."
        )
    if transitions:
        raise UsageError(
            "labelled= hides labels, which transitions= needs to find images one step apart; "
            "leave one of them out."
        )
    return float(labelled)


def hide_labels(dataset: Dataset, labelled: float, seed: int) -> Dataset:
    """Return the data set with the labels of a random part of the training rows.

    The scale of the variables is measured anew, on the labels that are left; categories and codes
    stay known. With the same seed, the rows of a smaller part are among those of a larger one.

    Arguments:
        labelled: fraction kept of the training rows that have a label, (0, 1].
    """
    labels = dataset.train.labels.clone()
    rows = np.flatnonzero((~labels.isnan()).any(1).cpu().numpy())
    if not len(rows):
        raise DataError(
            f"{dataset.name}: no training row has a label to keep; leave labelled= out."
        )
    count = max(1, round(labelled * len(rows)))
    labelled_rows = np.random.default_rng([seed, 8]).permutation(rows)[:count]
    is_hidden = torch.ones(len(labels), dtype=torch.bool, device=labels.device)
    is_hidden[torch.as_tensor(labelled_rows, device=labels.device)] = False
    labels[is_hidden] = torch.nan
    text = (
        f"labels: kept in {len(labelled_rows)} of {len(labels)} training rows and hidden in the "
        f"others (labelled={labelled:g})"
    )
    options = {**dataset.source.get("options", {}), "labelled": labelled}
    dataset = replace(dataset, source={**dataset.source, "options": options})
    if len(labelled_rows) == len(rows):
        return dataset
    return replace(
        dataset,
        train=dataset.train.with_fields({**dataset.train.fields, "labels": labels}),
        variables=_measure_scales(dataset, labels.double().cpu().numpy(), labelled),
        notes=(*dataset.notes, Note(HIDDEN_LABELS, "", text)),
    )


def _measure_scales(dataset: Dataset, table: np.ndarray, labelled: float) -> tuple[Variable, ...]:
    """Return the variables with the scale of the labels (N, n); codes keep their range."""
    variables = []
    for i, variable in enumerate(dataset.variables):
        values = table[~np.isnan(table[:, i]), i]
        if len(np.unique(values)) < 2:
            raise DataError(
                f"labelled={labelled:g} keeps {variable.name!r} in {len(values)} of {len(table)} "
                "training rows, in which it does not vary; keep more, or give another seed."
            )
        scaled = variable.with_scale_of(values)
        is_code = variable.kind != "continuous"
        variables.append(
            replace(scaled, low=variable.low, high=variable.high) if is_code else scaled
        )
    return tuple(variables)
