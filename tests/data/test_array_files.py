"""Images and labels in .npz and .h5 files: every accepted layout, and what is an error."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from note_texts import note_texts
from numbered_arrays import LABELS, NAMES, PIXELS, N, check_pixels

from intervae.causal.graph import CausalGraph
from intervae.data import load_data, reload
from intervae.errors import DataError, UsageError


def write(path: Path, **arrays) -> Path:
    """Write arrays as .npz or as .h5."""
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


# ---- arrays that are read --------------------------------------------------------------------
@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (PIXELS, PIXELS),
        (PIXELS.transpose(0, 2, 3, 1), PIXELS),
        (PIXELS[:, 0], PIXELS[:, :1]),
        (PIXELS[:, :1].transpose(0, 2, 3, 1), PIXELS[:, :1]),
        (
            np.concatenate([PIXELS, PIXELS[:, :2]], 1),
            np.concatenate([PIXELS, PIXELS[:, :2]], 1),
        ),  # five channels
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
    write(
        path,
        images=PIXELS,
        factors=LABELS,
        factor_names=NAMES,
        kinds=np.array(["continuous", "binary", "continuous"]),
        test=mask,
        graph=weights,
    )
    data = load_data(path)
    assert data.names == ("number", "odd", "x")
    assert [v.kind for v in data.variables] == ["continuous", "binary", "continuous"]
    assert sorted(data.test.labels[:, 0].int().tolist()) == np.flatnonzero(mask).tolist()
    assert data.graph == CausalGraph.from_edges(NAMES.tolist(), [("number", "odd"), ("x", "odd")])
    assert data.name == "mine"
    assert "splits: the test samples are given by the file" in note_texts(data)
    fewer = load_data(path, variables=["odd", "x"])
    assert fewer.graph == CausalGraph.from_edges(["odd", "x"], [("x", "odd")])
    assert load_data(path, kinds={"odd": "continuous"}).variables[1].kind == "continuous"


def test_labels_without_names_are_numbered_or_get_names(path):
    data = load_data(write(path, images=PIXELS, labels=LABELS))
    assert data.names == ("label0", "label1", "label2")
    assert (
        "labels: the file has no 'names', so they are called label0, label1, label2"
        in note_texts(data)
    )
    assert load_data(path, names=["a", "b", "c"]).names == ("a", "b", "c")
    assert load_data(write(path, images=PIXELS, labels=np.arange(N))).names == ("label",)


def test_text_labels_become_categories(path):
    labels = np.array([[str(i), "abc"[i % 3]] for i in range(N)])
    data = load_data(
        write(path, images=PIXELS, labels=labels, names=np.array(["number", "letter"]))
    )
    assert [v.kind for v in data.variables] == ["continuous", "categorical"]
    assert data.variables[1].categories == ("a", "b", "c")
    for split in (data.train, data.test):
        np.testing.assert_array_equal(split.labels[:, 1], split.labels[:, 0] % 3)


def test_names_as_bytes_are_read(tmp_path):
    np.savez(tmp_path / "d.npz", images=PIXELS, labels=LABELS, names=NAMES.astype("S"))
    assert load_data(tmp_path / "d.npz").names == ("number", "odd", "x")


def test_groups_are_a_label_or_a_separate_array(path):
    patients = np.array([f"p{i // 4}" for i in range(N)])
    write(
        path,
        images=PIXELS,
        labels=np.column_stack([LABELS, np.arange(N) // 4]),
        names=np.array([*NAMES, "ward"]),
        patient=patients,
    )
    for group in ("patient", "ward"):
        data = load_data(path, group=group)
        members = [{int(i) // 4 for i in split.labels[:, 0]} for split in data.splits.values()]
        assert sum(map(len, members)) == 6
    assert "ward" not in load_data(path, group="ward").names
    with pytest.raises(UsageError, match="unknown group 'wards'; did you mean 'ward'"):
        load_data(path, group="wards")


def test_size_resizes_each_channel(path):
    flat = np.broadcast_to(np.array([10, 100, 200], np.uint8)[None, :, None, None], (N, 3, 16, 16))
    data = load_data(write(path, images=flat, labels=LABELS, names=NAMES), size=(4, 5))
    assert data.spec.image_shape == (3, 4, 5)
    np.testing.assert_array_equal(data.train.images[0, :, 2, 2], [10, 100, 200])


def test_images_without_labels_are_read_with_a_note(path):
    test = np.arange(N) % 4 == 0
    data = load_data(write(path, images=PIXELS, test=test, patient=np.arange(N) // 8))
    assert (data.variables, data.graph) == ((), None)
    assert [tuple(split.labels.shape) for split in data.splits.values()] == [
        (16, 0),
        (2, 0),
        (6, 0),
    ]
    np.testing.assert_array_equal(data.test.images.numpy(), PIXELS[test])
    rest = torch.cat([data.train.images, data.validation.images]).flatten(1).tolist()
    assert sorted(rest) == sorted(PIXELS[~test].reshape(18, -1).tolist())
    assert (
        "labels: the file has no 'labels' or 'factors', so the images are taken without labels"
        in note_texts(data)
    )
    assert reload(data.source).variables == ()
    with pytest.raises(UsageError, match="unknown variable 'a'"):
        load_data(path, variables=["a"])


# ---- wrong arrays ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"images": PIXELS.astype(np.int64)},
            "images are int64; store them as uint8 from 0 to 255, or as floats in",
        ),
        ({"images": PIXELS.astype(np.uint16)}, "images are uint16; store them as uint8"),
        (
            {"images": PIXELS.astype(np.float32)},
            r"images are float32 from 0 to 255; floats must lie in \[0, 1\]",
        ),
        (
            {"images": np.where(PIXELS > 254, np.nan, 0.5)},
            "images are float64 from nan to nan; floats must lie in",
        ),
        (
            {"images": PIXELS[:, 0, 0]},
            r"images must be \(N, H, W\), \(N, H, W, C\) or \(N, C, H, W\), not of shape \(24, 8\)",
        ),
        ({"images": np.zeros((N, 20, 20, 20), np.uint8)}, "have no axis of at most 16 channels"),
        ({"images": PIXELS[:0]}, "images must be"),
        (
            {"labels": LABELS[:-1]},
            r"24 images need labels of shape \(24, n\), one row per image, not \(23, 3\)",
        ),
        ({"labels": LABELS[:, :, None]}, r"need labels of shape \(24, n\)"),
        (
            {"labels": np.where(LABELS == 5, np.inf, LABELS)},
            "sample 5: 'number' is inf; every label must be a finite number",
        ),
        (
            {"labels": np.where(LABELS == 5, 1j, LABELS)},
            "'labels' is of type complex128; store numbers",
        ),
        ({"labels": np.ones((N, 3))}, "column 'number' is '1' in every row"),
        ({"names": np.array(["a", "b"])}, "'names' has 2 entries for 3 labels; give one for each"),
        (
            {"names": np.array(["a", "b", "a"])},
            "the names of the labels must differ and not be empty",
        ),
        ({"kinds": np.array(["binary"])}, "'kinds' has 1 entries for 3 labels"),
        (
            {"test": np.zeros(3, bool)},
            "'test' must be a mask of 24 true or false, not bool of shape",
        ),
        ({"test": np.full(N, 2)}, "'test' must be a mask of 24 true or false"),
        ({"test": np.zeros(N, bool)}, "24 samples leave none for the test split"),
        ({"graph": np.zeros((2, 2))}, "'graph': a graph over 3 variables needs a 3 x 3 matrix"),
        ({"graph": np.ones((3, 3))}, "'graph': a variable cannot cause itself"),
        ({"graph": 1 - np.eye(3)}, "'graph' has a cycle"),
    ],
)
def test_wrong_arrays_are_an_error(path, changes, message):
    write(path, **{"images": PIXELS, "labels": LABELS, "names": NAMES, **changes})
    with pytest.raises(DataError, match=message):
        load_data(path)


def test_a_missing_array_lists_what_is_there(path):
    write(path, imgs=PIXELS, labels=LABELS)
    with pytest.raises(
        DataError, match=r"mine\.\w+ has no 'images', only imgs, labels; rename or add it"
    ):
        load_data(path)
    write(path, images=PIXELS, names=NAMES)
    with pytest.raises(
        DataError,
        match="has no 'labels' or 'factors', only images, names; rename or add it, "
        "or remove 'names' where there are no",
    ):
        load_data(path)


def test_a_wrong_kind_in_the_file_is_an_error(path):
    write(
        path,
        images=PIXELS,
        labels=LABELS,
        names=NAMES,
        kinds=np.array(["continuous", "binry", "continuous"]),
    )
    with pytest.raises(UsageError, match="unknown kind for 'odd' 'binry'; did you mean 'binary'"):
        load_data(path)


# ---- unsafe and damaged files ----------------------------------------------------------------
class MaliciousPickle:
    """An object whose pickle creates a file when loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_a_pickle_is_an_error_and_never_runs(tmp_path):
    marker = tmp_path / "ran"
    np.savez(
        tmp_path / "d.npz",
        images=PIXELS,
        labels=np.array([MaliciousPickle(marker)] * N, dtype=object),
    )
    with pytest.raises(
        DataError,
        match=r"d.npz: 'labels' is an array of Python objects, which is refused as unsafe; "
        "store numbers or text",
    ):
        load_data(tmp_path / "d.npz")
    pickled = b"cos\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
    (tmp_path / "e.npz").write_bytes(pickled)
    with pytest.raises(DataError, match=r"e.npz is not an .npz archive; save it with numpy.savez"):
        load_data(tmp_path / "e.npz")
    assert not marker.exists()
    np.savez(
        tmp_path / "f.npz",
        images=PIXELS,
        labels=LABELS,
        metadata=np.array([MaliciousPickle(marker)], dtype=object),
    )
    check_pixels(load_data(tmp_path / "f.npz"))  # an unused array is not opened
    assert not marker.exists()


def test_a_damaged_file_is_an_error(path):
    write(path, images=PIXELS, labels=LABELS)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"mine\.\w+ (is not an|cannot be read)"):
        load_data(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"mine\.\w+ (is not an|cannot be read)"):
        load_data(path)
    if path.suffix == ".npz":
        damaged = bytearray(content)
        damaged[400] ^= 255  # inside the first array: its checksum is wrong
        path.write_bytes(damaged)
        with pytest.raises(
            DataError,
            match=r"mine.npz cannot be read \(.*CRC.*\); check that it is a complete .npz file",
        ):
            load_data(path)


def test_an_h5_with_links_into_other_files_is_an_error(tmp_path):
    secret = write(tmp_path / "secret.h5", labels=LABELS)
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["images"] = PIXELS
        file["labels"] = h5py.ExternalLink(str(secret), "labels")
    (tmp_path / "raw").write_bytes(LABELS.tobytes())
    with h5py.File(tmp_path / "raw.h5", "w") as file:
        file["images"] = PIXELS
        file.create_dataset(
            "labels",
            LABELS.shape,
            LABELS.dtype,
            external=[(str(tmp_path / "raw"), 0, h5py.h5f.UNLIMITED)],
        )
    with h5py.File(tmp_path / "virtual.h5", "w") as file:
        file["images"] = PIXELS
        layout = h5py.VirtualLayout(LABELS.shape, LABELS.dtype)
        layout[:] = h5py.VirtualSource(str(secret), "labels", LABELS.shape)
        file.create_virtual_dataset("labels", layout)
    with h5py.File(tmp_path / "group.h5", "w") as file:
        file["images"] = PIXELS
        file.create_group("labels")
    for name in ("link", "raw", "virtual", "group"):
        with pytest.raises(
            DataError, match=rf"{name}.h5: 'labels' is not an array stored in this file itself"
        ):
            load_data(tmp_path / f"{name}.h5")


def test_arrays_larger_than_the_memory_are_an_error(path, monkeypatch):
    write(path, images=PIXELS, labels=LABELS)
    monkeypatch.setattr(
        os, "sysconf", lambda name: {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": PIXELS.size - 1}[name]
    )
    with pytest.raises(DataError, match="of memory; store smaller arrays"):
        load_data(path)


# ---- real files ------------------------------------------------------------------------------
@pytest.mark.skipif(
    "INTERVAE_DATA" not in os.environ, reason="INTERVAE_DATA does not name a folder of real data"
)
@pytest.mark.parametrize(("file", "n"), [("pendulum.npz", 7308), ("flow_noise.npz", 6874)])
def test_the_published_arrays_are_read_unchanged(file, n):
    path = Path(os.environ["INTERVAE_DATA"]) / "causalvae" / file
    data = load_data(path)
    with np.load(path) as raw:
        assert len(raw["images"]) == n
        mask = raw["test"].astype(bool)
        assert len(data.test) == mask.sum()
        np.testing.assert_array_equal(
            data.test.images.numpy(), raw["images"][mask].transpose(0, 3, 1, 2)
        )
        np.testing.assert_allclose(data.test.labels.numpy(), raw["factors"][mask], rtol=1e-6)
        assert data.names == tuple(raw["factor_names"])
        np.testing.assert_array_equal(data.graph.adjacency, raw["graph"] != 0)
    assert {v.kind for v in data.variables} == {"continuous"}
