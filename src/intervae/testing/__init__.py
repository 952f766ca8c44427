"""Checks that every model passes, as one function for models of other packages.

from intervae.testing import check_model
check_model(MyModel)
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any
from unittest import SkipTest

from intervae.data import Dataset
from intervae.models.base import Model
from intervae.testing import queries, training
from intervae.testing.case import ModelCase
from intervae.testing.data import ramps, random_pairs

__all__ = ["CHECKS", "ModelCase", "check_model", "ramps", "random_pairs"]

CHECKS: dict[str, Callable[[ModelCase], None]] = {
    "save and load": partial(training.check_save_and_load, trained=False),
    "save and load after training": partial(training.check_save_and_load, trained=True),
    "resume": training.check_resume,
    "seed of training": training.check_seed_of_training,
    "global generators": training.check_global_generators,
    "seed of sampling": training.check_seed_of_sampling,
    **{
        f"images of {' x '.join(map(str, shape))}": partial(training.check_image_shape, shape=shape)
        for shape in ((1, 28, 28), (3, 33, 47), (4, 16, 16), (2, 8, 8), (1, 5, 9))
    },
    "missing labels": training.check_missing_labels,
    "loss terms": training.check_loss_terms,
    "reconstruction sum": training.check_reconstruction_sum,
    **{
        f"pure loss, {' x '.join(map(str, shape))}, {'one batch' if shared else 'two batches'}": (
            partial(training.check_pure_loss, shape=shape, shared_batch=shared)
        )
        for shape in ((3, 16, 16), (1, 9, 11))
        for shared in (True, False)
    },
    "image types": queries.check_image_types,
    "many images": queries.check_many_images,
    "wrong images": queries.check_wrong_images,
    "empty sample": queries.check_empty_sample,
    "queries": queries.check_queries,
    "protocols": queries.check_protocols,
    "description": queries.check_description,
    "do leaves non-descendants": queries.check_non_descendants,
    "do sets values": queries.check_do_sets_values,
    "units": queries.check_units,
    "wrong do": queries.check_wrong_do,
}


def check_model(
    cls: type[Model],
    settings: Mapping[str, Any] | Callable[[Dataset], Mapping[str, Any]] | None = None,
    *,
    batch_terms: Collection[str] = (),
    only: Collection[str] | None = None,
) -> list[str]:
    """Check that a model class behaves as intervae expects; trains many tiny models.

    Arguments:
        settings: settings of a model that trains in about a second, or a function of the data.
            Common ones, such as epochs and batch_size, are small by default.
        batch_terms: names of loss terms that are no means over samples.
        only: names of the checks to run; all of `CHECKS` by default.

    Returns:
        Names of the checks that the model passed; those that do not apply are left out.

    Raises:
        AssertionError: names the check that failed.
    """
    function = settings if callable(settings) else lambda data: dict(settings or {})
    case = ModelCase(cls, function, frozenset(batch_terms))
    passed = []
    for name, check in CHECKS.items():
        if only is not None and name not in only:
            continue
        try:
            check(case)
        except SkipTest:  # it does not apply
            continue
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1].line
            reason = f"{type(error).__name__}: {error}" if str(error) else "not true"
            raise AssertionError(
                f"{cls.__name__} fails the check {name!r} at `{line}` ({reason})."
            ) from error
        passed.append(name)
    return passed
