"""Numbers of docs/ct-vae.md are those of committed results."""

from __future__ import annotations

from helpers.docs_numbers import NUMBER, assert_rounded, numbers_in, rows_of, table_after

PAGE = "docs/ct-vae.md"
DATA = ("cars3d", "shapes3d-like", "sprites-frames", "dsprites")
TABLE = rows_of("ctvae-table1")


def mean(data: str, metric: str, part: str = "", model: str = "ct-vae") -> float:
    return TABLE[data, model, part, metric]["mean"]


def test_docs_have_the_table_of_accuracies_and_images() -> None:
    """PSNR and errors of Cars3D are followed, in brackets, by those of reconstructions."""
    jobs = [*((data, "") for data in DATA), ("sprites-frames", "four codebooks")]
    lines = table_after(PAGE, "were inspected after two earlier versions")
    for (data, part), (_, action, factor, majority, psnr, others, acted, seeds) in zip(
        jobs, lines, strict=False
    ):
        row = TABLE[data, "ct-vae", part, "action_accuracy"]
        assert int(seeds) == len(row["per_seed"])
        metrics = [("action_accuracy", action), ("factor_accuracy", factor)]
        for metric, text in metrics:
            number, *paper = NUMBER.findall(text)
            assert_rounded(number, mean(data, metric, part))
            for printed in paper:
                assert float(printed) == TABLE[data, "ct-vae", part, metric]["paper"]
        pairs = [
            (majority, ("majority_accuracy", "factor_majority_accuracy")),
            (psnr, ("action_psnr", "reconstruction_psnr")),
            (others, ("others_worse", "others_worse_views")),
            (acted, ("acted_error_after_action", "acted_error_reconstructed")),
        ]
        for text, names in pairs:
            for number, metric in zip(NUMBER.findall(text), names, strict=False):
                assert_rounded(number, mean(data, metric, part))
    for text, metric in zip(
        lines[5][1:4], ("action_accuracy", "factor_accuracy", "majority_accuracy"), strict=True
    ):
        assert_rounded(NUMBER.findall(text)[0], mean("celeba", metric, "ten attributes"))


def test_docs_have_the_images_after_repeated_actions() -> None:
    for data, (_, *cells) in zip(DATA, table_after(PAGE, "Repeated actions, PSNR"), strict=True):
        for cell, times in zip(cells, (1, 2, 4, 8), strict=True):
            last = 7 if data == "sprites-frames" and times == 8 else times
            metrics = ("action_psnr", "unchanged_psnr")
            for text, metric in zip(NUMBER.findall(cell), metrics, strict=True):
                assert_rounded(text, mean(data, metric, f"{last} times"))


def test_docs_have_the_masks_of_every_data_set() -> None:
    lowest, highest = numbers_in(PAGE, r"\(`mask_open` ([\d.]+) to ([\d.]+);")
    shares = [mean(data, "mask_open") for data in ("cars3d", "shapes3d-like", "dsprites")]
    assert_rounded(lowest, min(shares))
    assert_rounded(highest, max(shares))
    (sprites,) = numbers_in(PAGE, r"on Sprites they are open by ([\d.]+)")
    assert_rounded(sprites, mean("sprites-frames", "mask_open"))
    texts = numbers_in(
        PAGE,
        r"on Cars3D \(`mask_auc` ([\d.]+)\), 3D Shapes \(([\d.]+)\) and Sprites \(([\d.]+);"
        r" ([\d.]+) to ([\d.]+) by seed\), not on dSprites and CelebA \(([\d.]+), ([\d.]+)\)",
    )
    by_seed = TABLE["sprites-frames", "ct-vae", "", "mask_auc"]["per_seed"].values()
    values = [mean(data, "mask_auc") for data in DATA[:3]]
    values += [min(by_seed), max(by_seed), mean("dsprites", "mask_auc")]
    values += [mean("celeba", "mask_auc", "ten attributes")]
    for text, value in zip(texts, values, strict=True):
        assert_rounded(text, value)
    texts = numbers_in(
        PAGE, r"finds them everywhere \(`change_auc` ([\d.]+) to ([\d.]+); CelebA ([\d.]+)\)"
    )
    changes = [mean(data, "change_auc") for data in DATA]
    values = [min(changes), max(changes), mean("celeba", "change_auc", "ten attributes")]
    for text, value in zip(texts, values, strict=True):
        assert_rounded(text, value)


def test_docs_have_the_factors_that_an_action_ruins() -> None:
    texts = numbers_in(
        PAGE,
        r"the car of Cars3D ([\d.]+) points, the angle of dSprites ([\d.]+) points, the others"
        r" after `action` of Sprites ([\d.]+) points, and the others after `shape` of dSprites"
        r" (\d+) points",
    )
    keys = (
        ("cars3d", "car"),
        ("dsprites", "orientation"),
        ("sprites-frames", "after action"),
        ("dsprites", "after shape"),
    )
    for text, (data, part) in zip(texts, keys, strict=True):
        assert_rounded(text, mean(data, "others_worse", part))


def test_docs_have_the_masks_of_the_quick_form() -> None:
    rows = rows_of("ctvae-table1-quick")
    texts = numbers_in(
        PAGE,
        r"are ([\d.]+) \(`change_auc`\) and ([\d.]+) \(`mask_auc`; .*? edge is ([\d.]+)"
        r" \(`edges_open`\)",
    )
    for text, metric in zip(texts, ("change_auc", "mask_auc", "edges_open"), strict=True):
        assert_rounded(text, rows["shapes3d-like", "ct-vae", "small grid", metric]["mean"])
    (misread,) = numbers_in(PAGE, r"the changed factor misread in (\d+) % of the")
    key = "shapes3d-like", "ct-vae", "small grid", "acted_error_after_action"
    assert_rounded(misread, rows[key]["mean"])
    assert rows[*key[:3], "action_accuracy"]["mean"] == 1
