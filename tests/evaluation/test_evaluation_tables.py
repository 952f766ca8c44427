"""The tables printed from measurements."""

from __future__ import annotations

import numpy as np

from intervae.evaluation import headlines, variable_tables
from intervae.metrics.base import Measurement


def test_headlines_include_reference_values() -> None:
    rows = [
        Measurement("mic", 0.9512, 2000, parameters={"by_chance": {"value": 0.1081, "a": 0.2}}),
        Measurement(
            "counterfactual_variable_error",
            0.08,
            512,
            parameters={"doing_nothing": {"value": 0.7}, "true_picture": {"value": 0.05}},
        ),
        Measurement(
            "log_likelihood", -290.0, 128, parameters={"samples": 64, "effective_samples": 3.321}
        ),
        Measurement("shd", 0, 1),
    ]
    assert headlines(rows) == [
        ["mic", "0.9512", "2000", "chance 0.108"],
        ["counterfactual_variable_error", "0.08", "512", "doing nothing 0.7, true pictures 0.05"],
        ["log_likelihood", "-290", "128", "3.32 of 64 samples count"],
        ["shd", "0", "1", ""],
    ]


def test_causes_effects_and_doing_nothing_have_rows_of_their_own() -> None:
    row = Measurement(
        "outside_mask_mae",
        0.25,
        512,
        {"a": 0.1, "b": 0.4},
        parameters={
            "doing_nothing": {"value": 0.0, "a": 0.0, "b": 0.0},
            "reconstruction": {"value": 0.015, "a": 0.01, "b": 0.02},
            "causes": {"value": 0.1, "doing_nothing": 0, "reconstruction": 0.01, "variables": "a"},
            "effects": {"value": 0.4, "doing_nothing": 0, "reconstruction": 0.02, "variables": "b"},
        },
    )
    assert headlines([row]) == [
        ["outside_mask_mae", "0.25", "512", "doing nothing 0, reconstruction 0.015"],
        ["  over causes", "0.1", "512", "doing nothing 0, reconstruction 0.01"],
        ["  over effects", "0.4", "512", "doing nothing 0, reconstruction 0.02"],
    ]
    ((header, rows),) = variable_tables([row])
    assert header == ["for each variable", "a", "b"]
    assert rows == [
        ["outside_mask_mae", "0.1", "0.4"],
        ["  doing nothing", "0", "0"],
        ["  reconstruction", "0.01", "0.02"],
    ]


def test_variable_tables_have_a_row_per_metric_and_few_columns() -> None:
    first = Measurement("r2_min", 0.1, 5, dict(zip("abcdef", np.arange(6) / 10, strict=True)))
    second = Measurement("tic", 0.3, 5, {"b": 0.25})
    tables = variable_tables([first, Measurement("shd", 0, 1), second])
    assert tables == [
        (
            ["for each variable", "a", "b", "c", "d"],
            [["r2", "0", "0.1", "0.2", "0.3"], ["tic", "", "0.25", "", ""]],
        ),
        (["for each variable", "e", "f"], [["r2", "0.4", "0.5"]]),
    ]
    assert variable_tables([]) == []
