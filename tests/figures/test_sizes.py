"""Lines over sizes: what is drawn for rows that are known."""

from pathlib import Path

from PIL import Image

from intervae.figures import adjacency_history, lines_over_sizes
from intervae.figures.sizes import DASHES, _look

METHODS = ("cmcl", "beta-vae + notears-mlp", "beta-vae + ges", "ivae + notears-mlp")


def rows() -> list[dict]:
    found = []
    for place, method in enumerate(METHODS):
        for size in (1, 4, 20):
            found.append({"model": method, "variant": f"{size}/40", "part": "", "metric": "shd", "mean": size * (1.0 + place), "std": 0.5})
    return found


def test_a_model_has_one_colour_and_a_learner_one_kind_of_dashes() -> None:
    looks = {method: _look(method, METHODS) for method in METHODS}
    assert looks["beta-vae + ges"]["color"] == looks["beta-vae + notears-mlp"]["color"]
    assert len({look["color"] for look in looks.values()}) == 3
    assert looks["ivae + notears-mlp"]["linestyle"] == looks["beta-vae + notears-mlp"]["linestyle"] == DASHES[0]
    assert looks["beta-vae + ges"]["linestyle"] == DASHES[1]
    assert looks["cmcl"]["linewidth"] > looks["beta-vae + ges"]["linewidth"]


def test_the_picture_is_written_and_numbers_of_parts_do_not_change_it(tmp_path: Path) -> None:
    part = {"model": "cmcl", "variant": "4/40", "part": "noisy", "metric": "shd", "mean": 1e6, "std": 0.0}
    for name, some in (("plain", rows()), ("parts", [*rows(), part])):
        lines_over_sizes(tmp_path / f"{name}.png", some, metrics=("shd",), across="edges", title="Graphs")
    assert (tmp_path / "plain.png").read_bytes() == (tmp_path / "parts.png").read_bytes()
    with Image.open(tmp_path / "plain.png") as picture:
        assert picture.width > 600


def test_a_matrix_may_be_called_otherwise_than_an_epoch(tmp_path: Path) -> None:
    adjacency_history(tmp_path / "one.svg", [[[0, 1.0], [0, 0]]], ["a", "b"], captions=["estimated"])
    words = (tmp_path / "one.svg").read_text()
    assert "estimated" in words
    assert "epoch" not in words
