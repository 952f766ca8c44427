"""Small NORB from small matrices: published split, cameras, and broken files."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from intervae.data import load_data
from intervae.data.pixel_arrays import resize_image
from intervae.errors import DataError, UsageError

TRAINING = "smallnorb-5x46789x9x18x6x2x96x96-training"
TESTING = "smallnorb-5x01235x9x18x6x2x96x96-testing"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    return tmp_path


def matrix(magic: int, values: np.ndarray, kind: str) -> bytes:
    lengths = [*values.shape, *[1] * (3 - values.ndim)]
    return (
        struct.pack(f"<{2 + len(lengths)}I", magic, values.ndim, *lengths)
        + values.astype(kind).tobytes()
    )


def make_norb(folder: Path, n: int = 60, packed: bool = False) -> dict[str, dict[str, np.ndarray]]:
    """Write both parts; return part -> content -> array."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    arrays = {}
    for part in (TRAINING, TESTING):
        dat = rng.integers(0, 256, (n, 2, 96, 96))
        info = np.stack(
            [
                rng.integers(0, 10, n),
                rng.integers(0, 9, n),
                2 * rng.integers(0, 18, n),
                rng.integers(0, 6, n),
            ],
            axis=1,
        )
        arrays[part] = {"dat": dat, "cat": rng.integers(0, 5, n), "info": info}
        for content, values in arrays[part].items():
            data = (
                matrix(0x1E3D4C55, values, "u1")
                if content == "dat"
                else matrix(0x1E3D4C54, values, "<i4")
            )
            path = folder / f"{part}-{content}.mat"
            (path.with_name(path.name + ".gz") if packed else path).write_bytes(
                gzip.compress(data, 1) if packed else data
            )
    return arrays


@pytest.mark.parametrize("packed", [False, True])
def test_norb_has_the_published_split_and_factors_in_degrees(home, packed):
    arrays = make_norb(home / "norb", packed=packed)
    data = load_data("norb", size=96)
    assert (len(data.train), len(data.validation), len(data.test)) == (54, 6, 60)
    assert data.names == ("category", "elevation", "azimuth", "lighting")
    assert data.spec.variable("category").categories == ("animal", "human", "plane", "truck", "car")
    assert np.array_equal(data.test.images[:, 0].numpy(), arrays[TESTING]["dat"][:, 0])
    info, labels = arrays[TESTING]["info"], data.test.labels.numpy()
    assert np.array_equal(
        labels,
        np.stack(
            [arrays[TESTING]["cat"], 30 + 5 * info[:, 1], 10 * info[:, 2], info[:, 3]], axis=1
        ),
    )
    assert data.spec.variable("azimuth").high <= 340
    assert data.spec.variable("elevation").low >= 30


def test_norb_cameras_size_and_instance(home):
    arrays = make_norb(home / "norb")
    both = load_data("norb", size=(24, 32), camera="both", instance=True)
    assert both.spec.image_shape == (2, 24, 32)
    assert np.array_equal(both.test.labels[:, 4].numpy(), arrays[TESTING]["info"][:, 0])
    assert np.array_equal(
        both.test.images[5].numpy(),
        resize_image(arrays[TESTING]["dat"][5].astype(np.uint8), (24, 32)),
    )
    second = load_data("norb", size=(24, 32), camera=1)
    assert torch.equal(second.train.images[:, 0], both.train.images[:, 1])
    assert load_data("norb").spec.image_shape == (1, 32, 32)
    for wrong in (2, True, "left"):
        with pytest.raises(UsageError, match=r'camera=.* is not a choice; choose 0, 1 or "both"'):
            load_data("norb", camera=wrong)


def test_a_subset_of_norb_keeps_images_with_their_labels(home, monkeypatch):
    monkeypatch.setattr("intervae.data.readers.norb.CHUNK", 7)  # so that there are several chunks
    make_norb(home / "norb")
    full = load_data("norb", size=16, validation=0.2)
    subset = load_data("norb", size=16, samples=40)
    label_of = {
        image.numpy().tobytes(): label
        for split in (full.train, full.validation)
        for image, label in zip(split.images, split.labels, strict=True)
    }
    for image, label in zip(subset.train.images, subset.train.labels, strict=True):
        assert torch.equal(label_of[image.numpy().tobytes()], label)


@pytest.mark.parametrize(
    ("content", "change", "message"),
    [
        ("dat", lambda b: b[:-1], r"ends too early"),
        ("dat", lambda b: b + b"x", "is longer than its header says"),
        (
            "dat",
            lambda b: b"\x51" + b[1:],
            r"is no NORB matrix of bytes or integers \(its magic number is 0x1E3D4C51\)",
        ),
        ("dat", lambda b: b[:4] + struct.pack("<I", 900) + b[8:], "says that it has 900 axes"),
        (
            "dat",
            lambda b: matrix(0x1E3D4C55, np.zeros((9, 2, 4, 4)), "u1"),
            r"has a matrix of shape \(9, 2, 4, 4\) .* where bytes \(60, 2, 96, 96\)",
        ),
        (
            "info",
            lambda b: matrix(0x1E3D4C54, np.zeros((60, 3)), "<i4"),
            r"has the shape \(60, 3\) beside categories of shape \(60,\)",
        ),
        (
            "info",
            lambda b: matrix(0x1E3D4C54, np.full((60, 4), 10), "<i4"),
            r"has a label outside 0 to 9 \(10 to 10\)",
        ),
        (
            "cat",
            lambda b: matrix(0x1E3D4C54, np.full(60, -1), "<i4"),
            r"has a label outside 0 to 4 \(-1 to -1\)",
        ),
    ],
)
def test_a_broken_norb_file_is_named(home, content, change, message):
    make_norb(home / "norb")
    path = home / "norb" / f"{TRAINING}-{content}.mat"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(
        DataError, match=rf"^{path.name} .*{message}.*; get it again from cs.nyu.edu"
    ):
        load_data("norb", size=8)
