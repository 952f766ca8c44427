"""Arrays: .npz, .h5 and torch Datasets, in every accepted layout, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset, TensorDataset

from intervae.causal.graph import CausalGraph
from intervae.data import load_data, reload
from intervae.errors import DataError, UsageError

N = 24
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (N, 3, 6, 8)).astype(np.uint8)  # (N, C, H, W)
LABELS = np.stack([np.arange(N), np.arange(N) % 2, RNG.permutation(N) / 7], axis=1)
NAMES = np.array(["number", "odd", "x"])


def write(path: Path, **arrays) -> Path:
    """The same arrays as .npz or as .h5."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for key, value in arrays.items():
                value = np.asarray(value)
                file.create_dataset(
                    key,
                    data=value.astype(object) if value.dtype.kind == "U" else value,
                    dtype=h5py.string_dtype() if value.dtype.kind == "U" else None,
                )
    return path


@pytest.fixture(params=[".npz", ".h5"])
def path(request, tmp_path):
    return tmp_path / f"mine{request.param}"


def by_number(dataset, column: int = 0) -> dict[int, np.ndarray]:
    splits = (dataset.train, dataset.validation, dataset.test)
    return {int(row[column]): image.numpy() for split in splits for image, row in zip(split.images, split.labels, strict=True)}


def check_pixels(dataset, expected: np.ndarray = PIXELS) -> None:
    found = by_number(dataset)
    assert sorted(found) == list(range(N))
    for i, image in found.items():
        np.testing.assert_array_equal(image, expected[i])


# ---- what is read -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (PIXELS, PIXELS),
        (PIXELS.transpose(0, 2, 3, 1), PIXELS),
        (PIXELS[:, 0], PIXELS[:, :1]),
        (PIXELS[:, :1].transpose(0, 2, 3, 1), PIXELS[:, :1]),
        (np.concatenate([PIXELS, PIXELS[:, :2]], 1), np.concatenate([PIXELS, PIXELS[:, :2]], 1)),  # five channels
        ((PIXELS / 255).astype(np.float32), PIXELS),
        ((PIXELS / 255).transpose(0, 2, 3, 1), PIXELS),
        (np.where(PIXELS > 127, 0.999, 0.001), np.where(PIXELS > 127, 255, 0)),  # rounded, not cut
        (PIXELS[:, 0] > 127, np.where(PIXELS[:, :1] > 127, 255, 0)),
        ((PIXELS[:, 0] > 127).astype(np.uint8), np.where(PIXELS[:, :1] > 127, 255, 0)),
    ],
)
def test_every_layout_and_type_gives_the_same_pixels(path, images, expected):
    check_pixels(load_data(write(path, images=images, labels=LABELS, names=NAMES)), expected)


def test_names_kinds_test_and_graph_are_read(path):
    mask = np.arange(N) % 3 == 0
    weights = np.array([[0, 1, 0], [0, 0, 0], [0, 1, 0]])
    write(path, images=PIXELS, factors=LABELS, factor_names=NAMES, kinds=np.array(["continuous", "binary", "continuous"]), test=mask, graph=weights)
    data = load_data(path)
    assert data.names == ("number", "odd", "x")
    assert [v.kind for v in data.variables] == ["continuous", "binary", "continuous"]
    assert sorted(data.test.labels[:, 0].int().tolist()) == np.flatnonzero(mask).tolist()
    assert data.graph == CausalGraph.from_edges(NAMES.tolist(), [("number", "odd"), ("x", "odd")])
    assert data.name == "mine"
    assert "splits: the test samples are given by the file" in data.notes
    fewer = load_data(path, variables=["odd", "x"])
    assert fewer.graph == CausalGraph.from_edges(["odd", "x"], [("x", "odd")])
    assert load_data(path, kinds={"odd": "continuous"}).variables[1].kind == "continuous"


def test_labels_without_names_are_numbered_or_named_by_the_caller(path):
    data = load_data(write(path, images=PIXELS, labels=LABELS))
    assert data.names == ("label0", "label1", "label2")
    assert "labels: the file has no 'names', so they are called label0, label1, label2" in data.notes
    assert load_data(path, names=["a", "b", "c"]).names == ("a", "b", "c")
    assert load_data(write(path, images=PIXELS, labels=np.arange(N))).names == ("label",)


def test_text_labels_become_categories(path):
    labels = np.array([[str(i), "abc"[i % 3]] for i in range(N)])
    data = load_data(write(path, images=PIXELS, labels=labels, names=np.array(["number", "letter"])))
    assert [v.kind for v in data.variables] == ["continuous", "categorical"]
    assert data.variables[1].categories == ("a", "b", "c")
    for split in (data.train, data.test):
        np.testing.assert_array_equal(split.labels[:, 1], split.labels[:, 0] % 3)


def test_names_as_bytes_are_read(tmp_path):
    np.savez(tmp_path / "d.npz", images=PIXELS, labels=LABELS, names=NAMES.astype("S"))
    assert load_data(tmp_path / "d.npz").names == ("number", "odd", "x")


def test_groups_come_from_a_label_or_from_an_array_of_their_own(path):
    patients = np.array([f"p{i // 4}" for i in range(N)])
    write(path, images=PIXELS, labels=np.column_stack([LABELS, np.arange(N) // 4]), names=np.array([*NAMES, "ward"]), patient=patients)
    for group in ("patient", "ward"):
        data = load_data(path, group=group)
        members = [{int(i) // 4 for i in split.labels[:, 0]} for split in (data.train, data.validation, data.test)]
        assert sum(map(len, members)) == 6
    assert "ward" not in load_data(path, group="ward").names
    with pytest.raises(UsageError, match="unknown group 'wards'; did you mean 'ward'"):
        load_data(path, group="wards")


def test_size_resizes_each_channel(path):
    flat = np.broadcast_to(np.array([10, 100, 200], np.uint8)[None, :, None, None], (N, 3, 16, 16))
    data = load_data(write(path, images=flat, labels=LABELS, names=NAMES), size=(4, 5))
    assert data.spec.image_shape == (3, 4, 5)
    np.testing.assert_array_equal(data.train.images[0, :, 2, 2], [10, 100, 200])


# ---- what is refused ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"images": PIXELS.astype(np.int64)}, "images are int64; store them as uint8 from 0 to 255, or as floats in"),
        ({"images": PIXELS.astype(np.uint16)}, "images are uint16; store them as uint8"),
        ({"images": PIXELS.astype(np.float32)}, r"images are float32 from 0 to 255; floats must lie in \[0, 1\]"),
        ({"images": np.where(PIXELS > 254, np.nan, 0.5)}, "images are float64 from nan to nan; floats must lie in"),
        ({"images": PIXELS[:, 0, 0]}, r"images must be \(N, H, W\), \(N, H, W, C\) or \(N, C, H, W\), not of shape \(24, 8\)"),
        ({"images": np.zeros((N, 20, 20, 20), np.uint8)}, "have no axis of at most 16 channels"),
        ({"images": PIXELS[:0]}, "images must be"),
        ({"labels": LABELS[:-1]}, r"24 images need labels of shape \(24, n\), one row per image, not \(23, 3\)"),
        ({"labels": LABELS[:, :, None]}, r"need labels of shape \(24, n\)"),
        ({"labels": np.where(LABELS == 5, np.nan, LABELS)}, "sample 5: 'number' has no value"),
        ({"labels": np.where(LABELS == 5, np.inf, LABELS)}, "sample 5: 'number' is inf; every label must be a finite number"),
        ({"labels": np.where(LABELS == 5, 1j, LABELS)}, "'labels' is of type complex128; store numbers"),
        ({"labels": np.ones((N, 3))}, "column 'number' is '1' in every row"),
        ({"names": np.array(["a", "b"])}, "'names' has 2 entries for 3 labels; give one for each"),
        ({"names": np.array(["a", "b", "a"])}, "the names of the labels must differ and not be empty"),
        ({"kinds": np.array(["binary"])}, "'kinds' has 1 entries for 3 labels"),
        ({"test": np.zeros(3, bool)}, "'test' must be a mask of 24 true or false, not bool of shape"),
        ({"test": np.full(N, 2)}, "'test' must be a mask of 24 true or false"),
        ({"test": np.zeros(N, bool)}, "24 samples leave none for the test split"),
        ({"graph": np.zeros((2, 2))}, "'graph': a graph over 3 variables needs a 3 x 3 matrix"),
        ({"graph": np.ones((3, 3))}, "'graph': a variable cannot cause itself"),
        ({"graph": 1 - np.eye(3)}, "'graph' has a cycle"),
    ],
)
def test_wrong_arrays_are_refused(path, changes, said):
    write(path, **{"images": PIXELS, "labels": LABELS, "names": NAMES, **changes})
    with pytest.raises(DataError, match=said):
        load_data(path)


def test_a_missing_array_lists_what_is_there(path):
    write(path, imgs=PIXELS, labels=LABELS)
    with pytest.raises(DataError, match=r"mine\.\w+ has no 'images', only imgs, labels; rename or add it"):
        load_data(path)
    write(path, images=PIXELS, names=NAMES)
    with pytest.raises(DataError, match="has no 'labels' or 'factors', only images, names; rename or add it, or remove 'names' where there are no"):
        load_data(path)


def test_images_without_labels_are_taken_with_a_note(path):
    test = np.arange(N) % 4 == 0
    data = load_data(write(path, images=PIXELS, test=test, patient=np.arange(N) // 8))
    assert (data.variables, data.graph) == ((), None)
    assert [tuple(split.labels.shape) for split in (data.train, data.validation, data.test)] == [(16, 0), (2, 0), (6, 0)]
    np.testing.assert_array_equal(data.test.images.numpy(), PIXELS[test])
    rest = torch.cat([data.train.images, data.validation.images]).flatten(1).tolist()
    assert sorted(rest) == sorted(PIXELS[~test].reshape(18, -1).tolist())
    assert "labels: the file has no 'labels' or 'factors', so the images are taken without labels" in data.notes
    assert reload(data.source).variables == ()
    with pytest.raises(UsageError, match="unknown variable 'a'"):
        load_data(path, variables=["a"])


def test_a_wrong_kind_in_the_file_is_refused(path):
    write(path, images=PIXELS, labels=LABELS, names=NAMES, kinds=np.array(["continuous", "binry", "continuous"]))
    with pytest.raises(UsageError, match="unknown kind for 'odd' 'binry'; did you mean 'binary'"):
        load_data(path)


class Boom:
    """Its pickle would create a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_a_pickle_is_refused_and_never_run(tmp_path):
    marker = tmp_path / "ran"
    np.savez(tmp_path / "d.npz", images=PIXELS, labels=np.array([Boom(marker)] * N, dtype=object))
    with pytest.raises(DataError, match=r"d.npz: 'labels' is an array of Python objects, which is refused as unsafe; store numbers or text"):
        load_data(tmp_path / "d.npz")
    (tmp_path / "e.npz").write_bytes(b"cos\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR.")  # what an unpickler would run
    with pytest.raises(DataError, match=r"e.npz is not an .npz archive; save it with numpy.savez"):
        load_data(tmp_path / "e.npz")
    assert not marker.exists()
    np.savez(tmp_path / "f.npz", images=PIXELS, labels=LABELS, metadata=np.array([Boom(marker)], dtype=object))
    check_pixels(load_data(tmp_path / "f.npz"))  # an array that nobody needs is not opened
    assert not marker.exists()


def test_a_damaged_file_is_refused(path):
    write(path, images=PIXELS, labels=LABELS)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"mine\.\w+ (is not an|cannot be read)"):
        load_data(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"mine\.\w+ (is not an|cannot be read)"):
        load_data(path)
    if path.suffix == ".npz":
        spoilt = bytearray(whole)
        spoilt[400] ^= 255  # inside the first array: its checksum no longer fits
        path.write_bytes(spoilt)
        with pytest.raises(DataError, match=r"mine.npz cannot be read \(.*CRC.*\); check that it is a complete .npz file"):
            load_data(path)


def test_an_h5_that_points_into_other_files_is_refused(tmp_path):
    secret = write(tmp_path / "secret.h5", labels=LABELS)
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["images"] = PIXELS
        file["labels"] = h5py.ExternalLink(str(secret), "labels")
    (tmp_path / "raw").write_bytes(LABELS.tobytes())
    with h5py.File(tmp_path / "raw.h5", "w") as file:
        file["images"] = PIXELS
        file.create_dataset("labels", LABELS.shape, LABELS.dtype, external=[(str(tmp_path / "raw"), 0, h5py.h5f.UNLIMITED)])
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file["images"] = PIXELS
        layout = h5py.VirtualLayout(LABELS.shape, LABELS.dtype)
        layout[:] = h5py.VirtualSource(str(secret), "labels", LABELS.shape)
        file.create_virtual_dataset("labels", layout)
    with h5py.File(tmp_path / "group.h5", "w") as file:
        file["images"] = PIXELS
        file.create_group("labels")
    for name in ("link", "raw", "virtual", "group"):
        with pytest.raises(DataError, match=rf"{name}.h5: 'labels' is not an array kept in this file itself"):
            load_data(tmp_path / f"{name}.h5")


def test_more_than_the_memory_is_refused_before_it_is_read(path, monkeypatch):
    write(path, images=PIXELS, labels=LABELS)
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": PIXELS.size - 1}[name])
    with pytest.raises(DataError, match="of memory; store smaller arrays"):
        load_data(path)


# ---- torch Datasets -----------------------------------------------------------------------------------------------------
class Pairs(torch.utils.data.Dataset):
    """Any function of the row number as a data set."""

    def __init__(self, item, n: int = N) -> None:
        self.item, self.n = item, n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int):
        return self.item(i)


class Stream(IterableDataset):
    def __len__(self) -> int:
        return N

    def __iter__(self):
        return ((torch.as_tensor(image), row) for image, row in zip(PIXELS, LABELS, strict=True))


@pytest.mark.parametrize(
    "items",
    [
        TensorDataset(torch.as_tensor(PIXELS), torch.as_tensor(LABELS)),
        TensorDataset(torch.as_tensor(PIXELS).float() / 255, torch.as_tensor(LABELS)),
        Pairs(lambda i: (PIXELS[i].transpose(1, 2, 0), LABELS[i].tolist())),
        Pairs(lambda i: (Image.fromarray(PIXELS[i].transpose(1, 2, 0)), tuple(LABELS[i]))),
        Pairs(lambda i: [PIXELS[i], {"number": i, "odd": torch.tensor(i % 2), "x": LABELS[i, 2]}]),
        Stream(),
        list(zip(PIXELS, LABELS, strict=True)),
    ],
)
def test_a_torch_dataset_gives_the_same_pixels(items):
    check_pixels(load_data(items))


def test_labels_of_a_torch_dataset_are_named():
    data = load_data(TensorDataset(torch.as_tensor(PIXELS), torch.as_tensor(LABELS)), names=["n", "odd", "x"], variables=["odd", "n"], seed=4)
    assert data.names == ("odd", "n")
    assert data.variables[0].kind == "binary"
    single = load_data(Pairs(lambda i: (PIXELS[i], i % 3)), kinds={"label": "categorical"})
    assert single.names == ("label",)
    words = load_data(Pairs(lambda i: (PIXELS[i], {"sex": "fm"[i % 2], "number": i})), group="number")
    assert words.names == ("sex",)
    assert words.variables[0].categories == ("f", "m")


def test_black_and_white_and_sizes_of_a_torch_dataset():
    mask = (PIXELS[:, 0] > 127).astype(np.uint8)
    check_pixels(load_data(Pairs(lambda i: (mask[i], i))), mask[:, None] * 255)
    different = Pairs(lambda i: (PIXELS[i, :, :, : 4 + i % 3], i))
    with pytest.raises(DataError, match=r"Pairs, sample 1 has shape \(3, 6, 5\) but sample 0 has \(3, 6, 4\) \(C, H, W\)"):
        load_data(different)
    assert load_data(different, size=5).spec.image_shape == (3, 5, 5)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (lambda i: PIXELS[i], "sample 0 is a ndarray, not a pair"),
        (lambda i: (PIXELS[i], 1, 2), "sample 0 is a tuple, not a pair"),
        (lambda i: (PIXELS[i, 0, 0], i), r"sample 0: the image must be \(C, H, W\)"),
        (lambda i: (PIXELS[i].astype(np.int64), i), "sample 0: the pixels are int64"),
        (lambda i: (torch.full((3, 4, 4), 1.5), i), "sample 0: the pixels are float32 from 1.5 to 1.5.*without normalisation"),
        (lambda i: (PIXELS[i], float("nan") if i == 7 else i), "sample 7: 'label' has no value"),
        (lambda i: (PIXELS[i], {"a": None}), "sample 0: label 'a' must be one number or text"),
        (lambda i: (PIXELS[i], [[1, 2]]), r"sample 0: labels must be numbers \(n,\)"),
        (lambda i: (PIXELS[i], {"a": i} if i != 5 else {"b": i}), r"sample 5 has the labels \['b'\] but sample 0 has \['a'\]"),
        (lambda i: (PIXELS[i], [1, 2] if i == 3 else [1, 2, 3]), "sample 3 has the labels"),
    ],
)
def test_wrong_samples_are_refused(item, said):
    with pytest.raises(DataError, match=said):
        load_data(Pairs(item))


def test_an_empty_torch_dataset_is_refused():
    with pytest.raises(DataError, match="Pairs has no samples"):
        load_data(Pairs(lambda i: None, n=0))


# ---- real files ---------------------------------------------------------------------------------------------------------
@pytest.mark.skipif("INTERVAE_DATA" not in os.environ, reason="INTERVAE_DATA does not name a folder of real data")
@pytest.mark.parametrize(("file", "n"), [("pendulum.npz", 7308), ("flow_noise.npz", 6874)])
def test_the_published_arrays_are_read_as_they_are(file, n):
    path = Path(os.environ["INTERVAE_DATA"]) / "causalvae" / file
    data = load_data(path)
    with np.load(path) as raw:
        assert len(raw["images"]) == n
        mask = raw["test"].astype(bool)
        assert len(data.test) == mask.sum()
        np.testing.assert_array_equal(data.test.images.numpy(), raw["images"][mask].transpose(0, 3, 1, 2))
        np.testing.assert_allclose(data.test.labels.numpy(), raw["factors"][mask], rtol=1e-6)
        assert data.names == tuple(raw["factor_names"])
        np.testing.assert_array_equal(data.graph.adjacency, raw["graph"] != 0)
    assert {v.kind for v in data.variables} == {"continuous"}
