"""dSprites from a small file: factors, packed bits, the grid, and broken files."""

from __future__ import annotations

import io
import itertools
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from all_samples import all_samples

from intervae.data import load_data, reload
from intervae.data.readers.dsprites import FILES
from intervae.data.readers.packed_bits import PackedSplit, unpack_bits
from intervae.errors import DataError, QueryError, UsageError
from intervae.metrics.beta_factor_vae_scores import (
    beta_vae_score_from_simulator,
    factor_vae_score_from_simulator,
)

SIZES = (3, 2, 4, 3, 3)
N = 216
NAME = FILES["full"][0]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    (tmp_path / "dsprites").mkdir()
    return tmp_path


def tiny() -> dict[str, np.ndarray]:
    """Return a grid with the published keys; the images are noise, all different."""
    classes = np.array(list(itertools.product(*map(range, SIZES))))
    units = [
        np.arange(1, 4),
        np.linspace(0.5, 1, 2),
        np.linspace(0, 2 * np.pi, 4),
        np.linspace(0, 1, 3),
        np.linspace(0, 1, 3),
    ]
    values = np.stack([unit[classes[:, i]] for i, unit in enumerate(units)], axis=1)
    white = np.zeros((N, 1), np.int64)
    return {
        "imgs": (np.random.default_rng(0).random((N, 64, 64)) < 0.3).astype(np.uint8),
        "latents_values": np.concatenate([white + 1.0, values], axis=1),
        "latents_classes": np.concatenate([white, classes], axis=1),
    }


def write(path: Path, **changes: np.ndarray | None) -> dict[str, np.ndarray]:
    arrays = {name: array for name, array in {**tiny(), **changes}.items() if array is not None}
    np.savez_compressed(path, **arrays)
    return arrays


@pytest.mark.parametrize("where", [f"dsprites/{NAME}", NAME, f"dsprites/{FILES['full'][1]}"])
def test_every_image_keeps_its_factors(home, where, monkeypatch):
    monkeypatch.setattr("intervae.data.readers.dsprites.CHUNK", 50)  # several chunks
    arrays = write(home / where)
    data = load_data("dsprites", seed=4)
    assert (len(data.train), len(data.validation), len(data.test)) == (156, 17, 43)
    assert data.names == ("shape", "scale", "orientation", "position_x", "position_y")
    assert data.spec.variable("shape").categories == ("square", "ellipse", "heart")
    assert data.spec.image_shape == (1, 64, 64)
    images, labels = all_samples(data)
    row_of = {picture.tobytes(): row for row, picture in enumerate(arrays["imgs"])}
    rows = [row_of[(picture[0] // 255).tobytes()] for picture in images]
    assert sorted(rows) == list(range(N))
    expected = arrays["latents_values"][rows, 1:]
    expected[:, 0] = arrays["latents_classes"][rows, 1]
    np.testing.assert_allclose(labels, expected, rtol=1e-6)
    assert set(np.unique(images)) == {0, 255}
    assert not torch.equal(data.train.labels, load_data("dsprites", seed=5).train.labels)
    assert torch.equal(reload(data.source).test.images, data.test.images)


def test_the_downsampled_file_has_five_columns_and_no_pickle_is_read(home):
    arrays = tiny()
    five = {name: array if name == "imgs" else array[:, 1:] for name, array in arrays.items()}
    np.savez(
        home / "dsprites" / "dsprites_downsampled.npz",
        metadata=np.array({"unsafe": object}, dtype=object),
        **five,
    )
    data = load_data("dsprites", file="downsampled")
    assert data.grid is not None
    assert data.grid.factor_sizes == SIZES
    with pytest.raises(DataError, match=f"there is no {NAME}"):
        load_data("dsprites")
    with pytest.raises(
        UsageError, match="unknown file of dsprites 'small'; known: downsampled, full"
    ):
        load_data("dsprites", file="small")


def test_the_grid_looks_up_the_image_of_any_combination(home):
    arrays = write(home / NAME)
    classes = arrays["latents_classes"][:, 1:]
    grid = load_data("dsprites").grid
    assert grid is not None
    assert grid.factor_sizes == SIZES
    assert len(grid) == N
    some = np.random.default_rng(1).permutation(N)[:50]
    assert np.array_equal(grid.rows(classes[some]), some)
    assert np.array_equal(grid.classes(some), classes[some])
    assert np.array_equal(grid.images(classes[some])[:, 0].numpy(), 255 * arrays["imgs"][some])
    assert np.array_equal(
        grid.images(torch.as_tensor(classes[some], dtype=torch.float32))[:, 0].numpy(),
        255 * arrays["imgs"][some],
    )
    assert np.array_equal(grid.values(classes[some])[:, 1:], arrays["latents_values"][some, 2:])
    assert np.array_equal(grid.values(classes[some])[:, 0], classes[some, 0])
    drawn = grid.draw(2000, np.random.default_rng(0))
    for i, size in enumerate(SIZES):  # uniform, within five standard deviations
        counts = np.bincount(drawn[:, i], minlength=size)
        assert np.abs(counts - 2000 / size).max() < 5 * np.sqrt(2000 / size)
    with pytest.raises(
        QueryError, match=r"classes are counted from 0 and must be below \(3, 2, 4, 3, 3\)"
    ):
        grid.images([[0, 2, 0, 0, 0]])
    for wrong in ([[0, 0, 0, 0]], [[0, 0.5, 0, 0, 0]], [0, 0, 0, 0, 0]):
        with pytest.raises(QueryError, match=r"classes must be whole numbers of shape \(N, 5\)"):
            grid.rows(wrong)


def test_true_factors_have_perfect_beta_and_factor_vae_scores(home):
    """Codes that are the factors themselves score 1."""
    arrays = write(home / NAME)
    grid = load_data("dsprites").grid
    assert grid is not None
    row_of = {(255 * picture).tobytes(): row for row, picture in enumerate(arrays["imgs"])}

    def codes(images: torch.Tensor) -> np.ndarray:
        return grid.classes([row_of[picture.tobytes()] for picture in images.numpy()]).astype(float)

    for score in (beta_vae_score_from_simulator, factor_vae_score_from_simulator):
        assert (
            score(
                codes, grid.images, grid.draw, batch=16, training=300, test=100, names=grid.names
            ).value
            == 1.0
        )


def test_the_grid_shares_the_memory_of_the_splits(home):
    write(home / NAME)
    data = load_data("dsprites")
    assert data.grid is not None
    storages = {
        t.untyped_storage().data_ptr()
        for t in (
            data.grid.bits,
            *(s.fields["bits"] for s in data.splits.values()),
        )
    }
    assert len(storages) == 1


def test_a_subset_has_no_grid(home):
    write(home / NAME)
    data = load_data("dsprites", samples=60, seed=2)
    assert data.grid is None
    images, labels = all_samples(data)
    full_images, full_labels = all_samples(load_data("dsprites"))
    label_of = {
        picture.tobytes(): label for picture, label in zip(full_images, full_labels, strict=True)
    }
    assert len({picture.tobytes() for picture in images}) == 60
    assert all(
        np.array_equal(label_of[picture.tobytes()], label)
        for picture, label in zip(images, labels, strict=True)
    )
    with pytest.raises(UsageError, match="samples=0 must be a whole number from 1 to 216"):
        load_data("dsprites", samples=0)


# ---- packed images ---------------------------------------------------------------------------
def test_unpacking_is_the_inverse_of_numpy():
    pixels = np.random.default_rng(0).integers(0, 2, (5, 2, 3, 16)).astype(np.uint8)
    assert np.array_equal(
        unpack_bits(torch.from_numpy(np.packbits(pixels, axis=-1))).numpy(), pixels
    )


def test_a_packed_split_behaves_like_any_other(home):
    write(home / NAME)
    split = load_data("dsprites").train
    assert isinstance(split, PackedSplit)
    assert split.shape == tuple(split.images.shape) == (156, 1, 64, 64)
    rows = torch.tensor([7, 3, 3, 100])
    batch = split.batch(rows)
    assert set(batch) == {"images", "labels"}
    assert batch["images"].dtype == torch.float32
    assert torch.equal(batch["images"], split.images[rows].float() / 255)
    assert torch.equal(batch["labels"], split.labels[rows])
    for part in (split[rows], split[rows.tolist()], split[rows].to("cpu")):
        assert torch.equal(part.images, split.images[rows])
        assert torch.equal(part.labels, split.labels[rows])
    assert torch.equal(split[10:20].images, split.images[10:20])


def test_selecting_variables_keeps_the_images_packed(home):
    write(home / NAME)
    data = load_data("dsprites", variables=["scale", "shape"])
    assert data.names == ("scale", "shape")
    assert "bits" in data.train.fields
    assert torch.equal(data.train.labels, load_data("dsprites").train.labels[:, [1, 0]])


def test_shape_and_repr_do_not_unpack_the_images(home, monkeypatch):
    write(home / NAME)
    data = load_data("dsprites")
    monkeypatch.setattr(PackedSplit, "images", property(lambda _: pytest.fail("unpacked")))
    assert data.spec.image_shape == (1, 64, 64)
    assert "156/17/43 images of (1, 64, 64)" in str(data)
    assert "train 156, validation 17, test 43" in repr(data)
    assert "156 samples" in repr(data.train)


def test_a_model_trains_on_packed_images(home, make_model):
    write(home / NAME)
    data = load_data("dsprites", variables=["scale", "position_x", "position_y"])
    model = make_model("causal-vae", data)
    model.fit(data, seed=0)
    assert model.encode(data.test[:4].images).isfinite().all()


@pytest.mark.gpu
def test_images_are_unpacked_on_the_gpu_in_a_cuda_graph(home):
    write(home / NAME)
    split = load_data("dsprites").train
    gpu_split = split.to("cuda")
    rows = torch.zeros(8, dtype=torch.int64, device="cuda")
    gpu_split.batch(rows)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        batch = gpu_split.batch(rows)
    new_rows = torch.arange(20, 28)
    rows.copy_(new_rows)
    graph.replay()
    assert torch.equal(batch["images"].cpu(), split.batch(new_rows)["images"])
    assert batch["images"].sum() > 0


# ---- broken files ----------------------------------------------------------------------------
def broken(name: str) -> np.ndarray | None:
    arrays = tiny()
    classes, values, pictures = arrays["latents_classes"], arrays["latents_values"], arrays["imgs"]
    changed = values.copy()
    changed[100, 2] = 9.0
    return {
        "grey": pictures * np.uint8(255),
        "narrow": pictures[:, :, :32],
        "fewer": pictures[:-1],
        "float": pictures.astype(np.float32),
        "objects": np.array([{}] * N, dtype=object),
        "swapped": classes[::-1].copy(),
        "hole": np.ascontiguousarray(classes[:, [0, 1, 2, 3, 4, 3]]),
        "columns": classes[:, :4],
        "negative": -classes,
        "two values": changed,
        "nan": np.full_like(values, np.nan),
        "gone": None,
    }[name]


@pytest.mark.parametrize(
    ("key", "change", "message"),
    [
        ("imgs", "grey", "the pictures must be 0 and 1, but there is 255"),
        (
            "imgs",
            "narrow",
            r"has pictures of shape \(216, 64, 32\) and type uint8 "
            r"where uint8 \(216, 64, 64\) is expected",
        ),
        ("imgs", "fewer", r"has pictures of shape \(215, 64, 64\)"),
        ("imgs", "float", r"and type float32 where uint8"),
        ("imgs", "objects", "has an array 'imgs' of Python objects"),
        ("imgs", "gone", "has no array 'imgs', only latents_classes, latents_values"),
        ("latents_classes", "swapped", "does not have its rows in the order of the factors"),
        ("latents_classes", "hole", "is no complete grid of factors: 216 rows"),
        ("latents_classes", "columns", r"has factors of shape \(216, 4\)"),
        ("latents_classes", "negative", "has factors that are negative or not finite"),
        ("latents_values", "two values", "gives one class of a factor two values"),
        ("latents_values", "nan", "negative or not finite"),
    ],
)
def test_a_file_with_other_contents_is_an_error(home, key, change, message):
    write(home / NAME, **{key: broken(change)})
    with pytest.raises(
        DataError, match=rf"^{NAME}.*{message}.*from deepmind/dsprites-dataset on GitHub\.$"
    ):
        load_data("dsprites")


def test_a_truncated_file_or_one_of_another_type_is_an_error(home):
    write(home / NAME)
    full = (home / NAME).read_bytes()
    for content in (full[: len(full) // 2], b"", b"<html>not found</html>"):
        (home / NAME).write_bytes(content)
        with pytest.raises(
            DataError, match=rf"^{NAME} cannot be read \(.*\); get it again from deepmind"
        ):
            load_data("dsprites")


def test_a_truncated_or_changed_array_in_the_archive_is_an_error(home):
    arrays = tiny()
    files = {}
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        files[name] = buffer.getvalue()
    for cut, message in ((-100, "ends too early"), (None, "is longer than its header says")):
        with zipfile.ZipFile(home / NAME, "w") as archive:
            for name, content in files.items():
                archive.writestr(
                    f"{name}.npy",
                    (content[:cut] if cut else content + b"more") if name == "imgs" else content,
                )
        with pytest.raises(DataError, match=rf"^{NAME} {message}"):
            load_data("dsprites")
    # stored, not compressed: only the checksum shows a changed byte
    with zipfile.ZipFile(home / NAME, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"{name}.npy", content)
    changed = bytearray((home / NAME).read_bytes())
    changed[5000] ^= 1
    (home / NAME).write_bytes(bytes(changed))
    with pytest.raises(DataError, match=rf"^{NAME} cannot be read \(Bad CRC-32"):
        load_data("dsprites")
