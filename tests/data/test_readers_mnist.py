"""MNIST from a small idx file: published split, sizes, and broken files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from intervae.data import load_data, reload
from intervae.data.pixel_arrays import resize_image
from intervae.errors import DataError, UsageError
from mnist_files import idx, make_mnist


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("where", "packed"), [("mnist", True), ("mnist", False), (".", True)])
def test_mnist_keeps_the_published_split_and_the_digits(home, where, packed):
    images, digits = make_mnist(home / where, packed=packed)
    data = load_data("mnist", validation=0.25)
    assert (len(data.train), len(data.validation), len(data.test)) == (30, 10, 12)
    assert data.spec.image_shape == (1, 28, 28)
    assert data.spec.variable("digit").categories == tuple("0123456789")
    assert np.array_equal(data.test.images[:, 0].numpy(), images[40:])
    drawn = torch.cat([data.train.images, data.validation.images])
    rows = drawn[:, 0, 0, 0].long().numpy()
    assert sorted(rows) == list(range(40))
    assert np.array_equal(drawn[:, 0].numpy(), images[rows])
    assert np.array_equal(
        torch.cat([data.train.labels, data.validation.labels])[:, 0].numpy(), digits[rows]
    )


def test_mnist_resized_and_subsampled(home):
    images, _ = make_mnist(home / "mnist")
    data = load_data("mnist", size=(14, 20), samples=30, seed=3)
    assert data.spec.image_shape == (1, 14, 20)
    assert sum(map(len, data.splits.values())) == 30
    some = load_data("mnist", samples=30, seed=3)
    row = int(some.test.images[0, 0, 0, 0])
    assert row >= 40  # a test image stays one
    assert np.array_equal(data.test.images[0].numpy(), resize_image(images[row][None], (14, 20)))
    assert torch.equal(reload(some.source).train.images, some.train.images)
    with pytest.raises(UsageError, match=r"samples=53 must be a whole number from 1 to 52"):
        load_data("mnist", samples=53)
    with pytest.raises(UsageError, match=r"test= .* does not apply to 'mnist'"):
        load_data("mnist", test=0.5)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "train-images-idx3-ubyte",
            lambda b: b[:-5],
            r"ends too early \(31355 bytes where 31360 are needed\)",
        ),
        (
            "train-images-idx3-ubyte",
            lambda b: b[:6],
            r"ends too early \(2 bytes where 12 are needed\)",
        ),
        ("train-images-idx3-ubyte", lambda b: b + b"x", "is longer than its header says"),
        (
            "train-images-idx3-ubyte",
            lambda b: b"\0\0\x08\x01" + b[4:],
            r"is no idx file of bytes with 3 axes \(its magic number is 0x00000801\)",
        ),
        ("train-images-idx3-ubyte", lambda b: b"", "ends too early"),
        (
            "train-images-idx3-ubyte",
            lambda b: idx(0x803, np.zeros((40, 14, 56))),
            r"has images of 56 x 14 pixels where 28 x 28 are expected",
        ),
        (
            "train-images-idx3-ubyte",
            lambda b: b[:4] + b"\xff" * 12 + b[16:],
            "need .* GiB but this machine has",
        ),
        (
            "t10k-labels-idx1-ubyte",
            lambda b: idx(0x801, np.zeros(7)),
            r"has 7 labels for the 12 images of t10k-images-idx3-ubyte",
        ),
        (
            "t10k-labels-idx1-ubyte",
            lambda b: idx(0x801, np.full(12, 11)),
            "has a label 11, which is no digit",
        ),
    ],
)
def test_a_broken_mnist_file_is_named(home, name, change, message):
    make_mnist(home / "mnist", packed=False)
    path = home / "mnist" / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=rf"^{name}:? .*{message}"):
        load_data("mnist")


def test_a_gzip_that_was_cut_or_changed_is_an_error(home):
    make_mnist(home / "mnist")
    path = home / "mnist" / "train-images-idx3-ubyte.gz"
    content = path.read_bytes()
    changed = bytearray(content)
    changed[-8] ^= 1  # the checksum
    for damaged in (content[:-200], bytes(changed), content[:3]):
        path.write_bytes(damaged)
        with pytest.raises(
            DataError,
            match=r"^train-images-idx3-ubyte.gz cannot be read \(.*\); get it again from yann",
        ):
            load_data("mnist")
