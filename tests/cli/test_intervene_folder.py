"""`intervae intervene --images` and `--plain`: pictures at their own size, and the table."""

from __future__ import annotations

import csv
import errno
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import intervae as package
from command import contents, image_size, intervae, refused
from intervae.data.simulators import Pendulum
from intervae.models.own_size import to_uint8


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """20 test pictures at the model's size of 16 x 16, one at 48 x 48, one in a sub-folder."""
    folder = tmp_path / "pictures"
    (folder / "more").mkdir(parents=True)
    images = Pendulum().dataset(size=16, samples=96).test.images
    for i in range(20):
        Image.fromarray(images[i].permute(1, 2, 0).numpy()).save(folder / f"{i:02}.png")
    with Image.open(folder / "00.png") as image:
        image.resize((48, 48)).save(folder / "large.jpg")
        image.save(folder / "more" / "sub.bmp")
    return folder


def ask(run: Path, folder: Path, out: Path) -> list[object]:
    return ["intervene", run, "--images", folder, "--out", out, "--do", "light=+5"]


def read_table(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


def test_folder_gives_plain_pictures_of_their_own_size_and_a_table(
    finished: Path, pictures: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    output = intervae(*ask(finished, pictures, out))
    assert output.code == 0, output
    assert output.out == f"wrote 22 pictures and counterfactuals.csv to {out}\n"
    names = {str(path.relative_to(pictures)) for path in pictures.rglob("*.*")}
    assert set(contents(out)) == names | {"counterfactuals.csv"}
    for name in names:
        assert image_size(out / name) == image_size(pictures / name)
    model: Any = package.load(finished)
    original = np.asarray(Image.open(pictures / "03.png")).transpose(2, 0, 1)
    shift = {"light": lambda value: value + 5}
    expected = to_uint8(model.counterfactual(original, shift)[0])
    written = np.asarray(Image.open(out / "03.png")).transpose(2, 0, 1)
    assert np.abs(written.astype(int) - expected).max() <= 1  # batches differ by rounding
    table = read_table(out / "counterfactuals.csv")
    assert set(table) == names
    row, light = table["03.png"], [f"light_{when}" for when in ("before", "set", "after")]
    before, target, after = (float(row[key]) for key in light)
    assert before == pytest.approx(float(model.measure(original)[0, 1]), abs=1e-3)
    assert target == pytest.approx(before + 5, abs=1e-3)
    assert after == pytest.approx(float(model.measure(written)[0, 1]), abs=1e-2)
    assert row["off_support"] in ("0", "1")


def test_broken_pictures_are_named_and_the_others_done(
    finished: Path, pictures: Path, tmp_path: Path
) -> None:
    (pictures / "05.png").write_bytes(b"no picture")
    out = tmp_path / "out"
    output = intervae(*ask(finished, pictures, out))
    assert output.code == 1
    *notes, error = output.err.splitlines()
    assert any(note.startswith(f"note: image '{pictures / '05.png'}' cannot be") for note in notes)
    assert error.startswith("error: 1 of 22 pictures could not be read and were left out")
    assert len(contents(out)) == 22  # 21 pictures and the table
    assert "05.png" not in read_table(out / "counterfactuals.csv")
    for path in pictures.rglob("*.*"):
        path.write_bytes(b"")
    refused(intervae(*ask(finished, pictures, tmp_path / "none")), 1, "is an empty file")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")]
)
def test_nothing_is_left_after_an_interrupt_or_a_full_disk(
    error: BaseException,
    finished: Path,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from intervae.cli import intervene_folder

    write, left = intervene_folder._write_picture, [18]

    def fail(path: Path, pixels: np.ndarray) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise error
        write(path, pixels)

    monkeypatch.setattr(intervene_folder, "_write_picture", fail)
    monkeypatch.setattr(intervene_folder.ThreadPool, "starmap", _serial_starmap)
    output = intervae(*ask(finished, pictures, tmp_path / "out"))
    assert output.code == 1
    assert "interrupted" in output.err or "no space left to write" in output.err
    assert [path.name for path in tmp_path.iterdir()] == ["pictures"]


def _serial_starmap(pool: Any, function: Any, jobs: Any) -> list[Any]:
    """An interrupt reaches the main thread only."""
    return [function(*job) for job in jobs]


def test_folder_is_refused_before_anything_is_written(
    finished: Path, pictures: Path, tmp_path: Path
) -> None:
    words = ask(finished, pictures, tmp_path / "out")
    refused(intervae(*words, "--index", 3), 2, "--index and --images name different pictures")
    refused(intervae(*ask(finished, pictures, pictures / "out")), 2, "lies in the folder")
    refused(intervae(*ask(finished, tmp_path / "no", tmp_path / "out")), 2, "is not a folder")
    refused(intervae("intervene", finished, "--images", pictures, "--do", "light=9"), 2, "--out")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    refused(intervae(*ask(finished, pictures, tmp_path / "full")), 1, "is not empty")
    refused(intervae(*words[:-1], "ligth=3"), 1, "unknown variable", "'light'")
    assert {path.name for path in tmp_path.iterdir()} == {"pictures", "full"}


def test_plain_is_the_counterfactual_alone_at_its_own_size(
    finished: Path, pictures: Path, tmp_path: Path
) -> None:
    words = ["intervene", finished, "--do", "light=60", "--plain", "--out"]
    assert intervae(*words, tmp_path / "x.png", "--index", 3).code == 0
    model: Any = package.load(finished)
    image = Pendulum().dataset(size=16, samples=96).test.images[3:4]
    expected = to_uint8(model.counterfactual(image, {"light": 60})[0])
    written = np.asarray(Image.open(tmp_path / "x.png")).transpose(2, 0, 1)
    np.testing.assert_array_equal(written, expected)
    assert intervae(*words, tmp_path / "y.png", "--image", pictures / "large.jpg").code == 0
    assert image_size(tmp_path / "y.png") == (48, 48)
    refused(intervae(*words, tmp_path / "x.pdf"), 2, "format of a picture '.pdf'")


def test_montage_shows_the_first_pictures_and_their_counterfactuals(
    finished: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    draw = package.figures.interventions

    def record(path: Path, rows: Any, originals: Any) -> None:
        drawn.append((rows, originals))
        draw(path, rows, originals)

    monkeypatch.setattr(package.figures, "interventions", record)
    out = tmp_path / "montage.png"
    output = intervae(*ask(finished, pictures, out), "--do", "pendulum=10")
    assert output.code == 0, output
    assert output.out == f"wrote {out}: the first 8 of 22 pictures\n"
    assert image_size(out)[0] > 8 * 100
    (((row,), originals),) = drawn
    assert row.label.startswith("do(light = +5), do(pendulum = 10")
    assert len(originals) == 8
    model: Any = package.load(finished)
    third = np.asarray(Image.open(pictures / "03.png")).transpose(2, 0, 1)
    np.testing.assert_array_equal(originals[3], third)
    expected = model.counterfactual(third, {"light": lambda v: v + 5, "pendulum": 10.0})[0]
    np.testing.assert_allclose(row.generated[3], expected, atol=1e-4)
    shown = intervae(*ask(finished, pictures, out), "--json")
    assert [each["file"] for each in json.loads(shown.out)] == [f"{i:02}.png" for i in range(8)]
    (pictures / "05.png").write_bytes(b"no picture")
    out.unlink()
    refused(intervae(*ask(finished, pictures, out)), 1, "05.png")
    assert not out.exists()
