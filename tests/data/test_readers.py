"""What all readers share (where files are looked for, what is listed), and the two binary formats: MNIST's idx and NORB's matrices."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from intervae.data import datasets, load_data, reload
from intervae.data.images import resize_image
from intervae.errors import DataError, UsageError

NAMES = ("celeba", "dsprites", "mnist", "norb", "omniglot")
FIRST_FILE = {"celeba": "img_align_celeba.zip", "dsprites": "dsprites_ndarray", "mnist": "train-images-idx3-ubyte.gz", "norb": "smallnorb-5x46789"}
PAGE = {"celeba": "mmlab.ie.cuhk.edu.hk", "dsprites": "deepmind/dsprites-dataset on GitHub", "mnist": "yann.lecun.com", "norb": "cs.nyu.edu"}


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    return tmp_path


# ---- all of them --------------------------------------------------------------------------------------------------------
def test_listing_imports_no_reader_and_opens_no_file():
    assert set(NAMES) <= {entry.name for entry in datasets()}
    code = "import sys; from intervae.data import datasets; datasets(); print([m for m in sys.modules if m.startswith('intervae.data.readers')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.mark.parametrize("name", NAMES)
def test_without_the_variable_the_error_says_what_to_get_and_what_to_set(name, monkeypatch):
    monkeypatch.delenv("INTERVAE_DATA", raising=False)
    with pytest.raises(DataError) as caught:
        load_data(name)
    said = str(caught.value)
    assert FIRST_FILE.get(name, "images_background.zip" if name != "omniglot" else "chardata.mat") in said
    assert PAGE.get(name, "brendenlake/omniglot on GitHub") in said
    assert f"put it into {name}/ in a folder of your choice, and set the environment variable INTERVAE_DATA to that folder." in said


@pytest.mark.parametrize("name", NAMES)
def test_without_the_file_the_error_says_where_to_get_and_where_to_put_it(name, home):
    with pytest.raises(DataError, match=rf"there is no .* in {home}/{name}; get it from .*{PAGE.get(name, 'brendenlake')}.* and put it there\.$"):
        load_data(name)


def test_a_variable_that_names_no_folder(home, monkeypatch):
    monkeypatch.setenv("INTERVAE_DATA", str(home / "gone"))
    with pytest.raises(DataError, match=r"INTERVAE_DATA is '.*gone', which is not a folder; set it to the one that holds mnist/train-images"):
        load_data("mnist")


# ---- MNIST --------------------------------------------------------------------------------------------------------------
def idx(magic: int, values: np.ndarray) -> bytes:
    return struct.pack(f">I{values.ndim}I", magic, *values.shape) + values.astype(np.uint8).tobytes()


def make_mnist(folder: Path, train: int = 40, test: int = 12, packed: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Images whose first pixel is their row number, the training ones first, and digits = row number modulo 10."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (train + test, 28, 28)).astype(np.uint8)
    images[:, 0, 0] = np.arange(train + test)
    digits = np.arange(train + test) % 10
    for part, rows in (("train", slice(0, train)), ("t10k", slice(train, None))):
        for name, content in ((f"{part}-images-idx3-ubyte", idx(0x803, images[rows])), (f"{part}-labels-idx1-ubyte", idx(0x801, digits[rows]))):
            (folder / f"{name}.gz" if packed else folder / name).write_bytes(gzip.compress(content) if packed else content)
    return images, digits


@pytest.mark.parametrize(("where", "packed"), [("mnist", True), ("mnist", False), (".", True)])
def test_mnist_keeps_the_published_test_split_and_every_image_its_digit(home, where, packed):
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
    assert np.array_equal(torch.cat([data.train.labels, data.validation.labels])[:, 0].numpy(), digits[rows])


def test_mnist_in_another_size_and_fewer(home):
    images, _ = make_mnist(home / "mnist")
    data = load_data("mnist", size=(14, 20), samples=30, seed=3)
    assert data.spec.image_shape == (1, 14, 20)
    assert sum(len(s) for s in (data.train, data.validation, data.test)) == 30
    some = load_data("mnist", samples=30, seed=3)
    row = int(some.test.images[0, 0, 0, 0])
    assert row >= 40  # what is a test image stays one
    assert np.array_equal(data.test.images[0].numpy(), resize_image(images[row][None], (14, 20)))
    assert torch.equal(reload(some.source).train.images, some.train.images)
    with pytest.raises(UsageError, match=r"samples=53 must be a whole number from 1 to 52"):
        load_data("mnist", samples=53)
    with pytest.raises(UsageError, match=r"test= .* does not apply to 'mnist'"):
        load_data("mnist", test=0.5)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("train-images-idx3-ubyte", lambda b: b[:-5], r"ends too early \(31355 bytes where 31360 are needed\)"),
        ("train-images-idx3-ubyte", lambda b: b[:6], r"ends too early \(2 bytes where 12 are needed\)"),
        ("train-images-idx3-ubyte", lambda b: b + b"x", "is longer than its header says"),
        ("train-images-idx3-ubyte", lambda b: b"\0\0\x08\x01" + b[4:], r"is no idx file of bytes with 3 axes \(its magic number is 0x00000801\)"),
        ("train-images-idx3-ubyte", lambda b: b"", "ends too early"),
        ("train-images-idx3-ubyte", lambda b: idx(0x803, np.zeros((40, 14, 56))), r"has images of 56 x 14 pixels where 28 x 28 are expected"),
        ("train-images-idx3-ubyte", lambda b: b[:4] + b"\xff" * 12 + b[16:], "need .* GiB but this machine has"),
        ("t10k-labels-idx1-ubyte", lambda b: idx(0x801, np.zeros(7)), r"has 7 labels for the 12 images of t10k-images-idx3-ubyte"),
        ("t10k-labels-idx1-ubyte", lambda b: idx(0x801, np.full(12, 11)), "has a label 11, which is no digit"),
    ],
)
def test_a_broken_mnist_file_is_named(home, name, change, said):
    make_mnist(home / "mnist", packed=False)
    path = home / "mnist" / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=rf"^{name}:? .*{said}"):
        load_data("mnist")


def test_a_gzip_that_was_cut_or_changed_is_refused(home):
    make_mnist(home / "mnist")
    path = home / "mnist" / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[-8] ^= 1  # the checksum
    for content in (whole[:-200], bytes(changed), whole[:3]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"^train-images-idx3-ubyte.gz cannot be read \(.*\); get it again from yann"):
            load_data("mnist")


# ---- NORB ---------------------------------------------------------------------------------------------------------------
TRAINING, TESTING = "smallnorb-5x46789x9x18x6x2x96x96-training", "smallnorb-5x01235x9x18x6x2x96x96-testing"


def matrix(magic: int, values: np.ndarray, kind: str) -> bytes:
    lengths = [*values.shape, *[1] * (3 - values.ndim)]
    return struct.pack(f"<{2 + len(lengths)}I", magic, values.ndim, *lengths) + values.astype(kind).tobytes()


def make_norb(folder: Path, n: int = 60, packed: bool = False) -> dict[str, dict[str, np.ndarray]]:
    folder.mkdir()
    rng = np.random.default_rng(0)
    made = {}
    for part in (TRAINING, TESTING):
        dat = rng.integers(0, 256, (n, 2, 96, 96))
        info = np.stack([rng.integers(0, 10, n), rng.integers(0, 9, n), 2 * rng.integers(0, 18, n), rng.integers(0, 6, n)], axis=1)
        made[part] = {"dat": dat, "cat": rng.integers(0, 5, n), "info": info}
        for what, values in made[part].items():
            content = matrix(0x1E3D4C55, values, "u1") if what == "dat" else matrix(0x1E3D4C54, values, "<i4")
            path = folder / f"{part}-{what}.mat"
            (path.with_name(path.name + ".gz") if packed else path).write_bytes(gzip.compress(content, 1) if packed else content)
    return made


@pytest.mark.parametrize("packed", [False, True])
def test_norb_has_the_published_split_and_factors_in_degrees(home, packed):
    made = make_norb(home / "norb", packed=packed)
    data = load_data("norb", size=96)
    assert (len(data.train), len(data.validation), len(data.test)) == (54, 6, 60)
    assert data.names == ("category", "elevation", "azimuth", "lighting")
    assert data.spec.variable("category").categories == ("animal", "human", "plane", "truck", "car")
    assert np.array_equal(data.test.images[:, 0].numpy(), made[TESTING]["dat"][:, 0])
    info, labels = made[TESTING]["info"], data.test.labels.numpy()
    assert np.array_equal(labels, np.stack([made[TESTING]["cat"], 30 + 5 * info[:, 1], 10 * info[:, 2], info[:, 3]], axis=1))
    assert data.spec.variable("azimuth").high <= 340
    assert data.spec.variable("elevation").low >= 30


def test_norb_cameras_size_and_instance(home):
    made = make_norb(home / "norb")
    both = load_data("norb", size=(24, 32), camera="both", instance=True)
    assert both.spec.image_shape == (2, 24, 32)
    assert np.array_equal(both.test.labels[:, 4].numpy(), made[TESTING]["info"][:, 0])
    assert np.array_equal(both.test.images[5].numpy(), resize_image(made[TESTING]["dat"][5].astype(np.uint8), (24, 32)))
    second = load_data("norb", size=(24, 32), camera=1)
    assert torch.equal(second.train.images[:, 0], both.train.images[:, 1])
    assert load_data("norb").spec.image_shape == (1, 32, 32)
    for wrong in (2, True, "left"):
        with pytest.raises(UsageError, match=r'camera=.* is not a choice; choose 0, 1 or "both"'):
            load_data("norb", camera=wrong)


def test_a_subset_of_norb_keeps_pictures_with_their_labels(home, monkeypatch):
    monkeypatch.setattr("intervae.data.readers.norb.AT_ONCE", 7)  # so that there are several pieces
    make_norb(home / "norb")
    whole, some = load_data("norb", size=16, validation=0.2), load_data("norb", size=16, samples=40)
    known = {image.numpy().tobytes(): label for s in (whole.train, whole.validation) for image, label in zip(s.images, s.labels, strict=True)}
    for image, label in zip(some.train.images, some.train.labels, strict=True):
        assert torch.equal(known[image.numpy().tobytes()], label)


@pytest.mark.parametrize(
    ("what", "change", "said"),
    [
        ("dat", lambda b: b[:-1], r"ends too early"),
        ("dat", lambda b: b + b"x", "is longer than its header says"),
        ("dat", lambda b: b"\x51" + b[1:], r"is no NORB matrix of bytes or integers \(its magic number is 0x1E3D4C51\)"),
        ("dat", lambda b: b[:4] + struct.pack("<I", 900) + b[8:], "says that it has 900 axes"),
        ("dat", lambda b: matrix(0x1E3D4C55, np.zeros((9, 2, 4, 4)), "u1"), r"has a matrix of shape \(9, 2, 4, 4\) .* where bytes \(60, 2, 96, 96\)"),
        ("info", lambda b: matrix(0x1E3D4C54, np.zeros((60, 3)), "<i4"), r"has the shape \(60, 3\) beside categories of shape \(60,\)"),
        ("info", lambda b: matrix(0x1E3D4C54, np.full((60, 4), 10), "<i4"), r"has a label outside 0 to 9 \(10 to 10\)"),
        ("cat", lambda b: matrix(0x1E3D4C54, np.full(60, -1), "<i4"), r"has a label outside 0 to 4 \(-1 to -1\)"),
    ],
)
def test_a_broken_norb_file_is_named(home, what, change, said):
    make_norb(home / "norb")
    path = home / "norb" / f"{TRAINING}-{what}.mat"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=rf"^{path.name} .*{said}.*; get it again from cs.nyu.edu"):
        load_data("norb", size=8)
