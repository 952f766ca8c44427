"""R^2 against its formula."""

import numpy as np
import pytest

from intervae.errors import DataError
from intervae.metrics import r2


def test_r2_formula_and_wrong_scale():
    labels = np.array([[0.0, 1.0], [1.0, 3.0], [2.0, 8.0]])
    measured = labels + np.array([[0.1, 0.0], [-0.1, 0.0], [0.0, 0.0]])
    result = r2(measured, labels, ["a", "b"])
    assert result.per_variable == pytest.approx({"a": 1 - 0.02 / 2, "b": 1.0})
    assert result.value == pytest.approx(0.99)
    assert (
        r2(2 * labels, labels, ["a", "b"]).value < 0
    )  # perfectly correlated, and wrong in the label's units


@pytest.mark.parametrize(
    ("measured", "labels", "words"),
    [
        ([[np.nan], [1.0]], [[0.0], [1.0]], "measured value of 'a' for sample 0 is nan"),
        ([[0.0], [1.0]], [[0.0], [np.inf]], "label of 'a' for sample 1 is inf"),
        ([[0.0], [1.0]], [[2.0], [2.0]], "constant"),
        ([0.0, 1.0], [0.0, 1.0], "must both be"),
    ],
)
def test_undefined_r2_raises(measured, labels, words):
    with pytest.raises(DataError, match=words):
        r2(np.array(measured), np.array(labels), ["a"])
