"""Packed data reads as the same data in memory: rows, labels, splits, units; packing streams."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from image_folders import change_cell, read_rows, write_image_folder, write_rows
from PIL import Image

import intervae as package
from intervae.data import Dataset, MappedSplit, Split, image_files, load_data, pack, reload
from intervae.data.packed import shards as shards_module
from intervae.data.packed.shard_sink import ShardSink
from intervae.data.packed.shards import ImageShards
from intervae.errors import DataError, RunError, UsageError
from intervae.testing.data import ramps

SMALL = 1e-4  # MiB of a shard: a few images of 6 x 4


def assert_same(packed: Dataset, memory: Dataset) -> None:
    """Everything but the notes and the source agrees, bit for bit."""
    assert packed.name == memory.name
    assert packed.variables == memory.variables
    assert packed.graph == memory.graph
    for name, split in memory.splits.items():
        other = packed.splits[name]
        assert isinstance(other, MappedSplit)
        assert other.shape == split.shape
        assert torch.equal(other.images[:], split.images)
        assert torch.equal(other.labels.nan_to_num(-1e9), split.labels.nan_to_num(-1e9))
        rows = torch.arange(len(split)).flip(0)
        batch = split.batch(rows)
        assert other.batch(rows).keys() == batch.keys()
        for key, value in other.batch(rows).items():
            assert torch.equal(value.nan_to_num(-1e9), batch[key].nan_to_num(-1e9)), key
            assert value.dtype == batch[key].dtype


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    write_image_folder(tmp_path / "source")
    return tmp_path / "source"


def test_folder_of_images(folder: Path, tmp_path: Path) -> None:
    change_cell(folder, 5, 1, "")  # a missing label
    options = {"group": "patient", "seed": 3, "size": (8, 6)}
    packed = pack(folder, tmp_path / "packed", shard_mb=SMALL, **options)
    memory = load_data(folder, **options)
    assert_same(packed, memory)
    assert packed.missing == {"number": 1}
    assert [split.files for split in packed.splits.values()] == [
        split.files for split in memory.splits.values()
    ]
    assert len(list((tmp_path / "packed").glob("images-*.npy"))) > 3
    assert set(memory.notes) < set(packed.notes)
    assert_same(reload(packed.source), memory)
    index = json.loads((tmp_path / "packed" / "packed.json").read_text())
    assert index["variables"][1]["categories"] == ["f", "m"]
    assert index["splits"] == {name: len(split) for name, split in memory.splits.items()}


def test_colour_after_grey_and_black_and_white(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    rng = np.random.default_rng(0)
    for i in range(12):
        shape = (4, 6) if i < 9 else (4, 6, 3)
        Image.fromarray(rng.integers(0, 256, shape).astype(np.uint8)).save(source / f"{i:02}.png")
    assert_same(pack(source, tmp_path / "packed", shard_mb=SMALL), load_data(source))
    pairs = [((rng.random((1, 4, 4)) < 0.5).astype(np.uint8), i) for i in range(12)]
    masks = pack(pairs, tmp_path / "masks", shard_mb=SMALL)
    assert_same(masks, load_data(pairs))
    assert set(masks.train.images[:].unique().tolist()) == {0, 255}


@pytest.mark.parametrize("frames", [None, 3])
def test_arrays_clips_graph_and_fields(frames: int | None, tmp_path: Path) -> None:
    package.register_dataset("made-here", lambda: ramps(frames=frames, kinds=["continuous"] * 2))
    try:
        packed = pack("made-here", tmp_path / "packed", shard_mb=0.001)
    finally:
        del package.data.registry.DATASETS["made-here"]
    assert_same(packed, ramps(frames=frames, kinds=["continuous"] * 2))
    assert packed.spec.frames == frames
    assert packed.graph is not None
    again = pack(tmp_path / "packed", tmp_path / "again")
    assert_same(again, ramps(frames=frames, kinds=["continuous"] * 2))


def test_simulator_keeps_units_and_noises(tmp_path: Path) -> None:
    options = {"samples": 60, "size": 16, "seed": 2}
    packed = pack("pendulum", tmp_path / "packed", **options)
    memory = load_data("pendulum", **options)
    assert_same(packed, memory)
    assert packed.variables[0].unit == "degrees"
    assert "exogenous" in packed.test.fields
    assert packed.simulator is None


INDICES = [
    3,
    -1,
    slice(2, 9, 3),
    [1, 2, 5],
    torch.tensor([4, 1, 4]),
    np.arange(3),
    (slice(0, 5), 0),
    (torch.tensor([1, 2]), slice(None), slice(2, 4)),
    torch.tensor([[0, 1], [2, 3]]),
    (..., 0),
    [],
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_rows_of_images_are_tensors(index, tmp_path: Path) -> None:
    memory = ramps(samples=40)
    pairs = list(zip(memory.train.images, memory.train.labels[:, 0], strict=True))
    images = pack(pairs, tmp_path / "packed", shard_mb=0.001).train.images
    expected = load_data(pairs).train.images
    assert type(images[index]) is torch.Tensor
    assert torch.equal(images[index], expected[index])
    mask = expected.flatten(1).float().mean(1) > 127
    assert torch.equal(images[mask], expected[mask])


def test_whole_images_behave_as_a_tensor(folder: Path, tmp_path: Path) -> None:
    images, expected = (
        pack(folder, tmp_path / "packed").train.images,
        load_data(folder).train.images,
    )
    assert (images.shape, images.dtype, len(images)) == (expected.shape, torch.uint8, len(expected))
    assert torch.equal(images.float().mean(0), expected.float().mean(0))
    assert torch.equal(torch.cat([images, images]), torch.cat([expected, expected]))
    assert (images.cpu().numpy() == expected.numpy()).all()
    assert (np.asarray(images) == expected.numpy()).all()
    assert all(map(torch.equal, images, expected))
    assert torch.equal(images.index_select(0, torch.tensor([2, 0])), expected[[2, 0]])
    chunks = images.split(4)
    assert [tuple(chunk.shape) for chunk in chunks] == [tuple(c.shape) for c in expected.split(4)]
    assert torch.equal(torch.cat([chunk[:] for chunk in chunks]), expected)
    assert "on the disk" in repr(images)
    with pytest.raises(IndexError):
        images[len(expected)]


def test_subsets_stay_on_the_disk(folder: Path, tmp_path: Path, monkeypatch) -> None:
    packed, memory = pack(folder, tmp_path / "packed"), load_data(folder)
    rows = torch.tensor([3, 1])
    read: list[int] = []
    original = ImageShards.read

    def counted(shards, rows, out=None):
        read.append(len(rows))
        return original(shards, rows, out)

    monkeypatch.setattr(ImageShards, "read", counted)
    part = packed.complete().select(["number"]).train[rows]
    assert packed.train.images.shape == memory.train.images.shape
    assert isinstance(part, MappedSplit)
    assert not read
    assert torch.equal(part.images[:1], memory.train[rows].images[:1])
    assert read == [1]
    assert part.files == memory.train[rows].files
    assert "6)" in repr(packed.train)
    assert "<img" in packed.train._repr_html_()


def test_options_of_packed_data(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "packed"
    memory = pack(folder, out, size=8)
    assert_same(load_data(out, size=8, variables=["sex"]), memory.select(["sex"]))
    everything = load_data(out, test=1.0)
    assert [len(split) for split in everything.splits.values()] == [0, 0, 20]
    kinds = load_data(folder, kinds={"number": "continuous"}, size=8)
    assert kinds.train.streamed is False
    like = kinds.select(["sex", "number"]).spec
    asked = load_data(out, like=like)
    assert asked.variables == like.variables
    assert torch.equal(asked.test.labels, memory.select(["sex", "number"]).test.labels)
    for options, words in [
        ({"size": 9}, "pack the data anew with --size"),
        ({"group": "patient"}, "--group"),
        ({"kinds": {"sex": "categorical"}}, "packed as binary"),
        ({"channels": 1}, "unknown option"),
        ({"variables": ["age"]}, "unknown variable 'age'"),
    ]:
        with pytest.raises(UsageError, match=words):
            load_data(out, **options)
    hidden = load_data(out, labelled=0.5)
    assert isinstance(hidden.train, MappedSplit)
    assert hidden.missing


def test_transitions_of_packed_data(tmp_path: Path) -> None:
    packed = pack("shapes3d-like", tmp_path / "packed", size=16, levels=(3, 3, 3, 2, 2, 3))
    pairs = load_data(tmp_path / "packed", transitions=True)
    assert pairs.transitions is not None
    memory = Split(images=packed.train.images[:], labels=packed.train.labels)
    split = package.data.TransitionSplit(packed.train, pairs.transitions.train)
    assert split.streamed
    rows = torch.arange(min(4, len(split)))
    other = package.data.TransitionSplit(memory, pairs.transitions.train)
    assert torch.equal(split.batch(rows)["after_images"], other.batch(rows)["after_images"])


def test_packing_a_folder_needs_little_memory(tmp_path: Path, monkeypatch) -> None:
    source, count, side = tmp_path / "source", 300, 96
    source.mkdir()
    rng = np.random.default_rng(0)
    for i in range(count):
        pixels = rng.integers(0, 256, (side, side, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(source / f"{i:03}.png")
    whole = count * side * side * 3
    monkeypatch.setattr(image_files, "BLOCK", 16)

    def peak(function) -> int:
        tracemalloc.start()
        function()
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    load_data(source)  # caches of imports and decoders
    assert peak(lambda: load_data(source)) > whole
    assert peak(lambda: pack(source, tmp_path / "packed", shard_mb=0.5)) < 0.4 * whole
    packed = load_data(tmp_path / "packed")
    monkeypatch.setattr(shards_module, "READ_AT_ONCE", 2**16)

    def read() -> None:
        for rows in torch.randperm(len(packed.train)).split(8):
            packed.train.batch(rows)

    assert peak(read) < 0.4 * whole


def test_pages_of_the_maps_are_released(tmp_path: Path, monkeypatch) -> None:
    import mmap

    released = []
    monkeypatch.setattr(shards_module, "MAPPED", 1000)

    class Map(mmap.mmap):
        def madvise(self, option: int) -> None:  # type: ignore[override]
            released.append(option)
            super().madvise(option)

    monkeypatch.setattr(shards_module.mmap, "mmap", Map)
    packed = pack([(np.full((1, 8, 8), i, np.uint8), i) for i in range(40)], tmp_path / "packed")
    for _ in range(2):
        assert packed.train.images[:].float().mean((1, 2, 3)).tolist() == (
            packed.train.labels[:, 0].tolist()
        )
    assert mmap.MADV_DONTNEED in released


def test_out_is_checked_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    for overwrite, words in [(False, "is not empty"), (True, "is not a packed folder")]:
        with pytest.raises(RunError, match=words):
            pack("pendulum", folder, samples=40, size=16, overwrite=overwrite)
    out = tmp_path / "packed"
    first = pack(folder, out)
    with pytest.raises(RunError, match="overwrite"):
        pack(folder, out)
    with pytest.raises(UsageError, match="holds the source"):
        pack(out, out, overwrite=True)
    second = pack(folder, out, size=8, overwrite=True)
    assert first.train.shape[-1] == 6
    assert second.train.shape[-1] == 8
    for options in ({"shard_mb": 0}, {"shard_mb": True}, {"transitions": True}, {"sink": 3}):
        with pytest.raises((UsageError, TypeError)):
            pack(folder, tmp_path / "other", **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packed", "source"]


def test_nothing_is_left_of_packing_that_fails(folder: Path, tmp_path: Path, monkeypatch) -> None:
    rows = read_rows(folder)
    write_rows(folder, [*rows[:-1], ["broken.png", "1", "f", "p1"]])
    (folder / "broken.png").write_bytes((folder / "0.png").read_bytes()[:60])
    with pytest.raises(DataError, match=r"broken.png"):
        pack(folder, tmp_path / "packed", shard_mb=SMALL)
    write_rows(folder, rows[:-1])
    original, calls = ShardSink.append, []

    def interrupt(sink, pixels):
        calls.append(1)
        if len(calls) == 7:
            raise KeyboardInterrupt
        original(sink, pixels)

    monkeypatch.setattr(ShardSink, "append", interrupt)
    with pytest.raises(KeyboardInterrupt):
        pack(folder, tmp_path / "packed", shard_mb=SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
