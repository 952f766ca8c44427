"""Numbers of docs/deep-scm.md come from the results of digits."""

from __future__ import annotations

from helpers.docs_numbers import assert_rounded, numbers_in, rows_of, table_after

FLOOR = ("flow", "_true_picture")  # the same in all rows


def test_docs_of_deep_scm_have_the_errors_of_digits() -> None:
    rows = rows_of("counterfactual-morphomnist")
    lines = table_after("docs/deep-scm.md", "the same readers get from the simulator")
    acted_on, pixels = ("thickness", "intensity", "digit"), "counterfactual_pixel_mae_levels"

    def mean(variant: str, part: str, metric: str) -> float:
        row = rows["morpho-mnist", "deep-scm", f"{variant} {part}", metric]
        assert len(row["per_seed"]) == 5
        return row["mean"]

    sources = ("flow", "wide flow", "large flow", "true pictures")
    assert [line[1] for line in lines] == [*sources * 3, *sources[:3]]
    for name, source, *cells in lines:
        variable = name.split()[0]
        kind = "accuracy" if variable == "digit" else "error_morphometry"
        variant, reference = FLOOR if source == "true pictures" else (source, "")
        for text, do in zip(cells, acted_on, strict=True):
            if variable == "pixels," and do == "digit":
                assert text == ""  # no true picture
            elif variable == "pixels,":
                nothing = mean(variant, do, f"{pixels}_doing_nothing")
                assert_rounded(text, mean(variant, do, pixels) / nothing)
            else:
                cell = f"do({do}) {variable}"
                assert_rounded(text, mean(variant, cell, f"effectiveness_{kind}{reference}"))


def test_docs_of_deep_scm_have_the_errors_with_few_labels() -> None:
    rows = rows_of("counterfactual-morphomnist")
    number = r"([\d.]+)"
    three = rf"{number}, {number} and\s+{number}"
    texts = numbers_in(
        "docs/deep-scm.md",
        rf"errors of thickness are {three}, those of intensity {three}, and the digit is read as "
        rf"set in {three}:",
    )
    kinds = {"thickness": "error_morphometry", "intensity": "error_morphometry"}
    cells = [
        (f"flow 5 % labelled do({do}) {variable}", kinds.get(variable, "accuracy"))
        for variable in ("thickness", "intensity", "digit")
        for do in ("thickness", "intensity", "digit")
    ]
    for text, (variant, kind) in zip(texts, cells, strict=True):
        row = rows["morpho-mnist", "deep-scm", variant, f"effectiveness_{kind}"]
        assert len(row["per_seed"]) == 3
        assert_rounded(text, row["mean"])
