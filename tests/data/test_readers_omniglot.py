"""Omniglot in its three forms, from small files: chardata.mat, omniglot_28.npz, PNGs."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from note_texts import note_texts
from PIL import Image
from scipy.io import savemat

from intervae.data import load_data, reload
from intervae.data.pixel_arrays import resize_image
from intervae.errors import DataError, UsageError


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    (tmp_path / "omniglot").mkdir()
    return tmp_path / "omniglot"


# ---- omniglot_28.npz -------------------------------------------------------------------------
def make_npz(path: Path, n: int = 200, **changes: np.ndarray) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {
        "images": rng.integers(0, 256, (n, 28, 28)).astype(np.uint8),
        "alphabet": rng.integers(0, 5, n).astype(np.int8),
        **changes,
    }
    np.savez_compressed(path, **arrays)
    return arrays


def test_the_npz_is_split_as_chardata_is(home):
    arrays = make_npz(home / "omniglot_28.npz")
    data = load_data("omniglot")
    assert (len(data.test), len(data.train) + len(data.validation)) == (50, 150)  # 8070 of 32415
    assert data.names == ("alphabet",)
    assert data.spec.variable("alphabet").categories == tuple("01234")
    row_of = {picture.tobytes(): row for row, picture in enumerate(arrays["images"])}
    for split in data.splits.values():
        rows = [row_of[picture.numpy().tobytes()] for picture in split.images]
        assert np.array_equal(split.labels[:, 0].numpy(), arrays["alphabet"][rows])
    assert note_texts(data) == (
        "images: omniglot_28.npz",
        "splits: the test drawings are drawn at random",
    )
    assert torch.equal(reload(data.source).test.images, data.test.images)
    assert load_data("omniglot", size=14, samples=40).spec.image_shape == (1, 14, 14)


def test_a_subset_has_the_alphabet_codes_of_the_full_data(home):
    make_npz(home / "omniglot_28.npz", alphabet=np.repeat(np.arange(50), 4))
    assert load_data("omniglot", samples=30).spec.variable("alphabet").categories == tuple(
        map(str, range(50))
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"images": np.zeros((200, 20, 28), np.uint8)},
            r"has images of shape \(200, 20, 28\) and type uint8 where uint8 \(N, 28, 28\)",
        ),
        ({"images": np.zeros((200, 28, 28))}, "and type float64 where uint8"),
        ({"alphabet": np.zeros(7, np.int8)}, r"has alphabets of shape \(7,\)"),
        ({"alphabet": np.array(["a"] * 200)}, "and type <U1 for 200 images"),
    ],
)
def test_a_wrong_npz_is_an_error(home, changes, message):
    make_npz(home / "omniglot_28.npz", **changes)
    with pytest.raises(DataError, match=rf"^omniglot_28.npz .*{message}"):
        load_data("omniglot")


# ---- chardata.mat ----------------------------------------------------------------------------
def test_chardata_has_its_own_split_and_is_transposed(home):
    """Matlab stores a drawing by columns: a bar along the top must stay along the top."""
    drawing = np.zeros((28, 28))
    drawing[:4] = 1.0
    drawing[0, 0] = 0.5
    columns = np.repeat(drawing.T.reshape(-1, 1), 40, axis=1)
    target = np.eye(3)[np.arange(40) % 3].T
    savemat(
        home / "chardata.mat",
        {
            "data": columns,
            "testdata": columns[:, :8],
            "target": target,
            "testtarget": target[:, :8],
        },
    )
    data = load_data("omniglot", validation=0.25)
    assert (len(data.train), len(data.validation), len(data.test)) == (30, 10, 8)
    expected = np.rint(drawing * 255).astype(np.uint8)
    assert np.array_equal(data.train.images[0, 0].numpy(), expected)
    assert np.array_equal(data.test.labels[:, 0].numpy(), np.arange(8) % 3)
    assert note_texts(data) == (
        "images: chardata.mat",
        "splits: the test drawings are given by the file",
    )
    make_npz(home / "omniglot_28.npz")
    assert note_texts(load_data("omniglot"))[0] == "images: chardata.mat"
    assert note_texts(load_data("omniglot", file="npz"))[0] == "images: omniglot_28.npz"
    savemat(home / "chardata.mat", {"data": columns, "testdata": columns[:, :8]})
    assert load_data("omniglot").names == ()


def test_a_wrong_mat_is_an_error(home):
    savemat(home / "chardata.mat", {"data": np.zeros((10, 4))})
    with pytest.raises(DataError, match=r"chardata.mat has no array 'data' of shape \(784, N\)"):
        load_data("omniglot")
    for content in (b"", b"not a matlab file at all" * 20):
        (home / "chardata.mat").write_bytes(content)
        with pytest.raises(
            DataError,
            match=r"^chardata.mat cannot be read \(.*\); get it again from brendenlake/omniglot",
        ):
            load_data("omniglot")
    savemat(home / "chardata.mat", {"data": np.full((784, 9), 2.0), "testdata": np.zeros((784, 4))})
    with pytest.raises(DataError, match=r"chardata.mat: images are float64 from 0 to 2"):
        load_data("omniglot")


# ---- the published PNGs ----------------------------------------------------------------------
def drawing(seed: int) -> np.ndarray:
    """Return (105, 105) bool, True is ink."""
    ink = np.zeros((105, 105), bool)
    row, column = np.random.default_rng(seed).integers(10, 70, 2)
    ink[row : row + 20, column : column + 20] = True
    return ink


def files() -> dict[str, dict[str, bytes]]:
    contents: dict[str, dict[str, bytes]] = {"images_background": {}, "images_evaluation": {}}
    seed = 0
    for part, alphabet in (
        ("images_background", "Greek"),
        ("images_background", "Braille"),
        ("images_evaluation", "Angelic"),
    ):
        for character in ("character01", "character02"):
            for person in range(1, 7):
                buffer = io.BytesIO()
                Image.fromarray(~drawing(seed)).save(buffer, "PNG")
                contents[part][f"{part}/{alphabet}/{character}/{seed:04}_{person:02}.png"] = (
                    buffer.getvalue()
                )
                seed += 1
    return contents


def write_zips(folder: Path) -> None:
    for part, content in files().items():
        with zipfile.ZipFile(folder / f"{part}.zip", "w") as archive:
            for name, data in content.items():
                archive.writestr(name, data)


def test_pngs_are_inverted_and_labelled_by_their_alphabet(home):
    write_zips(home)
    data = load_data("omniglot", size=105)
    assert data.spec.variable("alphabet").categories == ("Angelic", "Braille", "Greek")
    seed_of = {(255 * drawing(seed).astype(np.uint8)).tobytes(): seed for seed in range(36)}
    alphabets = [2] * 12 + [1] * 12 + [0] * 12
    seeds = []
    for split in data.splits.values():
        for picture, label in zip(split.images, split.labels, strict=True):
            seed = seed_of[picture.numpy().tobytes()]
            seeds.append(seed)
            assert int(label) == alphabets[seed]
    assert sorted(seeds) == list(range(36))
    small = load_data("omniglot").train.images
    assert small.shape[1:] == (1, 28, 28)
    first = seed_of[data.train.images[0].numpy().tobytes()]
    paper = 255 - 255 * drawing(first).astype(np.uint8)
    assert np.array_equal(small[0].numpy(), 255 - resize_image(paper[None], (28, 28)))


def test_folders_give_the_same_as_zips(home):
    write_zips(home)
    from_zips = load_data("omniglot")
    for part, content in files().items():
        (home / f"{part}.zip").unlink()
        for name, data in content.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_bytes(data)
    from_folders = load_data("omniglot", file="png")
    assert torch.equal(from_zips.train.images, from_folders.train.images)
    assert torch.equal(from_zips.test.labels, from_folders.test.labels)


def test_broken_images_and_zips_without_images_are_an_error(home):
    with zipfile.ZipFile(home / "images_background.zip", "w") as archive:
        archive.writestr("images_background/readme.txt", "")
    with pytest.raises(
        DataError,
        match=r"^images_background.zip has no pictures alphabet/character01/0001_01.png in it",
    ):
        load_data("omniglot")
    with zipfile.ZipFile(home / "images_background.zip", "w") as archive:
        archive.writestr("images_background/Greek/character01/0001_01.png", b"\x89PNG")
    with pytest.raises(
        DataError,
        match=r"^image 'images_background.zip: images_background/Greek/character01/0001_01.png' "
        "cannot be read",
    ):
        load_data("omniglot")


def test_a_missing_or_unknown_form_is_an_error(home):
    make_npz(home / "omniglot_28.npz")
    with pytest.raises(DataError, match=r"there is no chardata.mat in"):
        load_data("omniglot", file="chardata")
    with pytest.raises(
        DataError, match=r"there is no images_background.zip or images_evaluation.zip in"
    ):
        load_data("omniglot", file="png")
    with pytest.raises(UsageError, match="unknown file of omniglot 'mat'"):
        load_data("omniglot", file="mat")
