"""Clips of Sprites from a small file: labels, sizes, splits by character; and the real file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from all_samples import all_samples
from PIL import Image

from intervae.data import load_data, reload
from intervae.data.readers.sprites import FILE
from intervae.errors import DataError, UsageError

SEQUENCES = ("walk_front", "walk_left", "slash_front", "slash_left")
CHARACTERS = 12


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    (tmp_path / "sprites").mkdir()
    return tmp_path / "sprites" / FILE


def write(path: Path, **changes: np.ndarray | None) -> dict[str, np.ndarray]:
    """Write a file with the keys of the real one; the frames are noise, all different."""
    rng = np.random.default_rng(0)
    arrays = {
        "frames": rng.integers(0, 50, (len(SEQUENCES), 8, CHARACTERS, 64, 64)).astype(np.uint8),
        "palette": rng.integers(0, 256, (50, 3)).astype(np.uint8),
        "attributes": np.stack(
            [np.arange(CHARACTERS) % 3, np.arange(CHARACTERS) // 3], axis=1
        ).astype(np.uint8),
        "attribute_names": np.array(["body", "hair"]),
        "sequences": np.array(SEQUENCES),
        "train": np.arange(CHARACTERS) % 4 != 1,
    }
    arrays = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
    np.savez_compressed(path, **arrays)
    return arrays


def clip(arrays: dict[str, np.ndarray], label: np.ndarray) -> np.ndarray:
    """Return the frames (8, 3, 64, 64) of a row of labels."""
    body, hair, action, direction = map(int, label)
    indices = arrays["frames"][2 * action + direction, :, 3 * hair + body]
    return arrays["palette"][indices].transpose(0, 3, 1, 2)


def test_every_clip_keeps_its_character_and_sequence(home, monkeypatch):
    monkeypatch.setattr("intervae.data.readers.sprites.CHUNK", 5)  # several chunks
    arrays = write(home)
    data = load_data("sprites", size=64)
    assert data.names == ("body", "hair", "action", "direction")
    assert data.spec.variable("action").categories == ("walk", "slash")
    assert data.spec.variable("direction").categories == ("front", "left")
    assert data.spec.variable("hair").categories == ("0", "1", "2", "3")
    assert data.spec.frames == 8
    assert data.spec.image_shape == (3, 64, 64)
    images, labels = all_samples(data)
    assert len(np.unique(labels, axis=0)) == len(labels) == len(SEQUENCES) * CHARACTERS
    for frames, label in zip(images, labels, strict=True):
        np.testing.assert_array_equal(frames, clip(arrays, label))


def test_splits_are_by_character_and_test_is_the_held_out_ones(home):
    arrays = write(home)
    data = load_data("sprites", size=8, validation=0.3)
    train, validation, test = (
        set((s.labels[:, 0] + 3 * s.labels[:, 1]).int().tolist()) for s in data.splits.values()
    )
    assert test == set(np.flatnonzero(~arrays["train"]).tolist())
    assert len(validation) == 3
    assert not train & validation
    assert len(data.train) == 4 * len(train)
    assert (
        load_data("sprites", size=8, seed=1).validation.labels.tolist()
        != load_data("sprites", size=8, seed=2).validation.labels.tolist()
    )


@pytest.mark.parametrize(
    ("size", "shape"), [(32, (32, 32)), (16, (16, 16)), (4, (4, 4)), ((16, 32), (16, 32))]
)
def test_a_size_that_divides_64_is_the_mean_of_blocks(home, size, shape):
    arrays = write(home)
    data = load_data("sprites", size=size, frames=3)
    assert data.train.shape[1:] == (3, 3, *shape)
    for frames, label in zip(
        data.train.images[:6].numpy(), data.train.labels[:6].numpy(), strict=True
    ):
        blocks = clip(arrays, label)[:3].reshape(
            3, 3, shape[0], 64 // shape[0], shape[1], 64 // shape[1]
        )
        np.testing.assert_allclose(frames, blocks.mean((3, 5)), atol=0.51)


@pytest.mark.parametrize("size", [48, 2, 80])
def test_any_other_size_is_resampled(home, size):
    arrays = write(home)
    data = load_data("sprites", size=size, frames=1, samples=30)
    label, channel = data.train.labels[0].numpy(), data.train.images[0, 0, 1].numpy()
    plane = Image.fromarray(np.ascontiguousarray(clip(arrays, label)[0, 1]))
    np.testing.assert_array_equal(
        channel, np.asarray(plane.resize((size, size), Image.Resampling.LANCZOS))
    )


def test_filters_select_sequences_and_drop_constant_variables(home):
    arrays = write(home)
    walking = load_data("sprites", size=8, actions="walk")
    assert walking.names == ("body", "hair", "direction")
    assert len(all_samples(walking)[0]) == 24
    left = load_data("sprites", size=8, sequences=["walk_left", "slash_left"])
    assert left.names == ("body", "hair", "action")
    single = load_data("sprites", size=64, actions="walk, slash", sequences="slash_left")
    assert single.names == ("body", "hair")
    np.testing.assert_array_equal(
        single.test.images[0].numpy(), clip(arrays, np.array([*single.test.labels[0], 1, 1]))
    )
    assert (
        reload(json.loads(json.dumps(dict(left.source)))).test.labels.tolist()
        == left.test.labels.tolist()
    )


def test_the_seed_determines_the_samples(home):
    write(home)
    first, again, different = (
        all_samples(load_data("sprites", size=8, samples=30, seed=s)) for s in (3, 3, 4)
    )
    assert len(first[0]) == 30
    np.testing.assert_array_equal(first[0], again[0])
    assert first[1].tolist() != different[1].tolist()


def test_wrong_options_are_an_error(home):
    write(home)
    with pytest.raises(UsageError, match="unknown action of sprites 'wlak'; did you mean 'walk'"):
        load_data("sprites", actions="wlak")
    with pytest.raises(
        UsageError, match="unknown sequence of sprites 'walk_lef'; did you mean 'walk_left'"
    ):
        load_data("sprites", sequences=["walk_lef"])
    with pytest.raises(UsageError, match="leave no clip; choose some that go together"):
        load_data("sprites", actions="walk", sequences="slash_left")
    for frames in (0, 9, True, 2.5):
        with pytest.raises(UsageError, match=f"frames={frames} must be a whole number from 1 to 8"):
            load_data("sprites", frames=frames)
    with pytest.raises(UsageError, match="samples=99 must be a whole number from 1 to 48"):
        load_data("sprites", samples=99)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"palette": None}, "has no array 'palette'"),
        ({"palette": np.zeros((40, 3), np.uint8)}, "uses the colour 49 of a palette of 40"),
        ({"palette": np.zeros((50, 4), np.uint8)}, r"has a palette of shape \(50, 4\)"),
        (
            {"frames": np.zeros((4, 8, 11, 64, 64), np.uint8)},
            r"has frames of shape \(4, 8, 11, 64, 64\)",
        ),
        (
            {"attributes": np.zeros((3, 2), np.uint8)},
            r"has attributes of shape \(3, 2\) for 12 characters",
        ),
        (
            {"sequences": np.array(["walk", "run", "a_b", "c_d"])},
            "has sequences that are no action_direction",
        ),
        ({"train": np.zeros(CHARACTERS)}, r"has a table of shape \(12,\) and type float64"),
        ({"attribute_names": np.array([{}, {}], dtype=object)}, "of Python objects"),
    ],
)
def test_broken_files_are_an_error(home, changes, message):
    write(home, **changes)
    with pytest.raises(DataError, match=message):
        load_data("sprites", size=8)


def test_a_truncated_or_missing_file_is_an_error(home):
    with pytest.raises(DataError, match=f"there is no {FILE}"):
        load_data("sprites")
    write(home)
    home.write_bytes(home.read_bytes()[:-3000])
    with pytest.raises(DataError, match=f"{FILE} cannot be read"):
        load_data("sprites")


def test_the_real_file_has_the_papers_characters():
    folder = os.environ.get("INTERVAE_DATA")
    if not folder or not (Path(folder) / "sprites" / FILE).exists():
        pytest.skip(f"needs the real clips: set INTERVAE_DATA to a folder that has sprites/{FILE}")
    data = load_data("sprites", actions="walk", frames=2, size=16)
    assert data.names == ("body", "bottomwear", "topwear", "hair", "direction")
    assert (len(data.train) + len(data.validation), len(data.test)) == (3 * 1000, 3 * 296)
    with np.load(Path(folder) / "sprites" / FILE) as file:
        body, bottom, top, hair, direction = data.test.labels[700].int().tolist()
        character = np.flatnonzero((file["attributes"] == [body, bottom, top, hair]).all(1))[0]
        assert not file["train"][character]
        frame = file["palette"][file["frames"][direction, 1, character]]  # (64, 64, 3)
    pooled = frame.reshape(16, 4, 16, 4, 3).mean((1, 3)).transpose(2, 0, 1)
    np.testing.assert_allclose(data.test.images[700, 1].numpy(), pooled, atol=0.51)
