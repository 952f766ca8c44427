"""Curves over the size of a problem."""

from pathlib import Path

from PIL import Image

from intervae.figures import curves_over_size
from intervae.figures.size_curves import DASHES, _line_style

METHODS = ("cmcl", "beta-vae + notears-mlp", "beta-vae + ges", "ivae + notears-mlp")


def rows() -> list[dict]:
    table = []
    for place, method in enumerate(METHODS):
        for size in (1, 4, 20):
            table.append(
                {
                    "model": method,
                    "variant": f"{size}/40",
                    "part": "",
                    "metric": "shd",
                    "mean": size * (1.0 + place),
                    "std": 0.5,
                }
            )
    return table


def test_models_share_colours_and_learners_dashes() -> None:
    styles = {method: _line_style(method, METHODS) for method in METHODS}
    assert styles["beta-vae + ges"]["color"] == styles["beta-vae + notears-mlp"]["color"]
    assert len({style["color"] for style in styles.values()}) == 3
    assert (
        styles["ivae + notears-mlp"]["linestyle"]
        == styles["beta-vae + notears-mlp"]["linestyle"]
        == DASHES[0]
    )
    assert styles["beta-vae + ges"]["linestyle"] == DASHES[1]
    assert styles["cmcl"]["linewidth"] > styles["beta-vae + ges"]["linewidth"]


def test_rows_with_parts_are_ignored(tmp_path: Path) -> None:
    part = {
        "model": "cmcl",
        "variant": "4/40",
        "part": "noisy",
        "metric": "shd",
        "mean": 1e6,
        "std": 0.0,
    }
    for name, some in (("plain", rows()), ("parts", [*rows(), part])):
        curves_over_size(
            tmp_path / f"{name}.png", some, metrics=("shd",), across="edges", title="Graphs"
        )
    assert (tmp_path / "plain.png").read_bytes() == (tmp_path / "parts.png").read_bytes()
    with Image.open(tmp_path / "plain.png") as picture:
        assert picture.width > 600
