"""Cars3D, single frames of Sprites and 3D Shapes from small files: factors and errors."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from all_samples import all_samples
from scipy.io import savemat

from intervae.data import load_data, reload, with_transitions
from intervae.errors import DataError, UsageError

CARS, CHARACTERS = 3, 24
SEQUENCES = ("walk_front", "walk_left", "slash_front", "slash_left")
ANIMATIONS = (("walk", 0, 3), ("walk", 1, 3), ("hurt", 1, 2))  # name, direction, phases
LEVELS = (2, 2, 3, 2, 4, 3)


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    for folder in ("cars3d", "sprites", "shapes3d"):
        (tmp_path / folder).mkdir()
    return tmp_path


def noise(*shape: int, largest: int = 256) -> np.ndarray:
    return np.random.default_rng(0).integers(0, largest, shape).astype(np.uint8)


# ---- Cars3D ----------------------------------------------------------------------------------
def write_cars(home: Path, **changes) -> np.ndarray:
    images = noise(CARS, 24, 4, 8, 8, 3)
    np.savez(home / "cars3d" / "cars3d_64.npz", **{"images": images, **changes})
    return images


def test_every_car_keeps_its_number_azimuth_and_elevation(home):
    images = write_cars(home)
    data = load_data("cars3d", size=8)
    assert data.names == ("car", "azimuth", "elevation")
    pictures, labels = all_samples(data)
    assert len(np.unique(labels, axis=0)) == len(labels) == CARS * 96
    assert set(labels[:, 1]) == set(np.arange(0.0, 360, 15))
    assert set(labels[:, 2]) == {0, 6, 12, 18}
    for picture, (car, azimuth, elevation) in zip(pictures, labels.astype(int), strict=True):
        np.testing.assert_array_equal(
            picture, images[car, azimuth // 15, elevation // 6].transpose(2, 0, 1)
        )
    few = load_data("cars3d", size=4, samples=50)
    assert all_samples(few)[0].shape == (50, 3, 4, 4)
    assert torch.equal(
        reload(json.loads(json.dumps(dict(few.source)))).train.images, few.train.images
    )


def test_the_published_mat_files_give_the_same_cars(home):
    images = write_cars(home)
    expected, labels = all_samples(load_data("cars3d", size=8))
    (home / "cars3d" / "cars3d_64.npz").unlink()
    (home / "cars3d" / "cars").mkdir()
    for car in range(CARS):
        savemat(
            home / "cars3d" / "cars" / f"car_{car:03}_mesh.mat",
            {"im": images[car].transpose(2, 3, 4, 0, 1), "mask": np.zeros(3)},
        )
    pictures, same = all_samples(load_data("cars3d", size=8))
    np.testing.assert_array_equal(pictures, expected)
    np.testing.assert_array_equal(same, labels)
    savemat(home / "cars3d" / "cars" / "car_000_mesh.mat", {"im": images[0]})
    with pytest.raises(
        DataError, match=r"car_000_mesh.mat has an array im of shape \(24, 4, 8, 8, 3\)"
    ):
        load_data("cars3d")


def test_cars_have_cyclic_transitions(home):
    write_cars(home)
    data = load_data("cars3d", size=8, transitions={"cyclic": ["azimuth"]})
    pairs, labels = data.transitions.train, data.train.labels
    turned = (labels[pairs.after] - labels[pairs.before])[pairs.action == 2, 1]
    assert set(turned.tolist()) == {15.0, -345.0}


# ---- Sprites ---------------------------------------------------------------------------------
def test_single_frames_of_clips_keep_their_labels(home):
    frames, palette = noise(4, 8, CHARACTERS, 64, 64, largest=50), noise(50, 3)
    attributes = np.array(list(itertools.product(range(3), range(2), range(4))), np.uint8)
    train = np.arange(CHARACTERS) % 4 != 1
    names = {
        "attribute_names": np.array(["body", "shirt", "hair"]),
        "sequences": np.array(SEQUENCES),
    }
    np.savez(
        home / "sprites" / "sprites_li2018.npz",
        frames=frames,
        palette=palette,
        attributes=attributes,
        train=train,
        **names,
    )
    data = load_data("sprites-frames")
    assert data.names == ("body", "shirt", "hair", "action", "direction", "frame")
    pictures, labels = all_samples(data)
    assert len(np.unique(labels, axis=0)) == len(labels) == 4 * 8 * CHARACTERS
    for picture, label in zip(pictures[::17], labels.astype(int)[::17], strict=True):
        indices = frames[2 * label[3] + label[4], label[5], 8 * label[0] + 4 * label[1] + label[2]]
        np.testing.assert_array_equal(picture, palette[indices].transpose(2, 0, 1))
    by_character = load_data("sprites-frames", size=8, by="character", actions="walk")
    held_out = {tuple(row) for row in by_character.test.labels[:, :3].int().tolist()}
    assert held_out == {tuple(row) for row in attributes[~train].tolist()}
    assert not held_out & {tuple(row) for row in by_character.train.labels[:, :3].int().tolist()}
    assert len(load_data("sprites-frames", size=8, transitions=True).actions) == 12
    assert len(all_samples(load_data("sprites-frames", size=8, samples=90))[0]) == 90
    with pytest.raises(UsageError, match="unknown way to split 'clip'"):
        load_data("sprites-frames", by="clip")


def write_reed(home: Path, **changes) -> dict[str, np.ndarray]:
    phases = [
        (name, direction, phase) for name, direction, count in ANIMATIONS for phase in range(count)
    ]
    arrays = {
        "frames": noise(len(phases), CHARACTERS, 60, 60),
        "palette": noise(len(phases), 256, 3),
        "attributes": np.array(list(itertools.product(range(2), range(3), range(4))), np.uint8),
        "attribute_names": np.array(["sex", "body", "hair"]),
        "animation": np.array([p[0] for p in phases]),
        "direction": np.array([p[1] for p in phases], np.uint8),
        "phase": np.array([p[2] for p in phases], np.uint8),
        "direction_names": np.array(["back", "front"]),
        "split": (np.arange(CHARACTERS) % 3).astype(np.int8),
    }
    np.savez(home / "sprites" / "sprites_reed2015.npz", **{**arrays, **changes})
    return arrays


def test_every_frame_of_reeds_sprites_keeps_its_labels(home):
    arrays = write_reed(home)
    data = load_data("sprites-reed")
    assert data.names == ("sex", "body", "hair", "animation", "direction", "phase")
    assert [data.spec.variable(name).kind for name in data.names] == [
        "binary",
        "categorical",
        "categorical",
        "categorical",
        "categorical",
        "continuous",
    ]
    assert data.spec.variable("animation").categories == ("walk", "hurt")
    pictures, labels = all_samples(data)
    assert len(np.unique(labels, axis=0)) == len(labels) == 8 * CHARACTERS
    for picture, (sex, body, hair, animation, direction, phase) in zip(
        pictures[::5], labels.astype(int)[::5], strict=True
    ):
        frame = (0, 6)[animation] + (3 * direction if animation == 0 else 0) + phase
        expected = arrays["palette"][frame][arrays["frames"][frame, 12 * sex + 4 * body + hair]]
        np.testing.assert_array_equal(picture, expected.transpose(2, 0, 1))


def test_reeds_published_characters_and_filters(home):
    arrays = write_reed(home)
    by_character = load_data("sprites-reed", size=8, by="character")
    for number, split in enumerate(by_character.splits.values()):
        characters = {tuple(row) for row in split.labels[:, :3].int().tolist()}
        assert characters == {
            tuple(row) for row in arrays["attributes"][arrays["split"] == number].tolist()
        }
    hurt = load_data("sprites-reed", size=8, animations="hurt")
    assert hurt.names == ("sex", "body", "hair", "phase")
    assert len(all_samples(hurt)[0]) == 2 * CHARACTERS
    few = load_data("sprites-reed", size=8, samples=60)
    full_pictures, full_labels = all_samples(load_data("sprites-reed", size=8))
    image_of = {
        tuple(label): picture for picture, label in zip(full_pictures, full_labels, strict=True)
    }
    for picture, label in zip(*all_samples(few), strict=True):
        np.testing.assert_array_equal(picture, image_of[tuple(label)])
    with pytest.raises(UsageError, match="unknown animation of sprites-reed 'run'"):
        load_data("sprites-reed", animations="run")


def test_transitions_of_an_incomplete_grid(home):
    write_reed(home)
    data = load_data("sprites-reed", size=8, transitions={"splits": "random"})
    pairs, labels = data.transitions.train, data.train.labels
    difference = labels[pairs.after] - labels[pairs.before]
    assert ((difference != 0).sum(1) == 1).all()
    assert set(difference.flatten().tolist()) == {0.0, 1.0, -1.0}


# ---- 3D Shapes -------------------------------------------------------------------------------
def write_shapes(home: Path, **changes) -> dict[str, np.ndarray]:
    labels = np.array(
        list(
            itertools.product(
                *(np.arange(size) / (1 if i == 4 else 10) for i, size in enumerate(LEVELS))
            )
        )
    )
    arrays = {"images": noise(len(labels), 64, 64, 3), "labels": labels}
    with h5py.File(home / "shapes3d" / "3dshapes.h5", "w") as file:
        for name, array in {**arrays, **changes}.items():
            if array is not None:
                file[name] = array
    return arrays


def test_every_room_keeps_its_factors(home, monkeypatch):
    monkeypatch.setattr("intervae.data.readers.shapes3d.CHUNK", 50)  # several blocks
    arrays = write_shapes(home)
    data = load_data("shapes3d")
    assert data.names == ("floor_hue", "wall_hue", "object_hue", "scale", "shape", "orientation")
    pictures, labels = all_samples(data)
    rows = np.ravel_multi_index(
        tuple(np.rint(labels * [10, 10, 10, 10, 1, 10]).astype(int).T), LEVELS
    )
    assert sorted(rows) == list(range(len(arrays["labels"])))
    np.testing.assert_array_equal(pictures, arrays["images"][rows].transpose(0, 3, 1, 2))
    assert len(load_data("shapes3d", size=8, transitions=True).actions) == 12


def test_a_smaller_grid_or_random_rooms(home):
    arrays = write_shapes(home)
    small = load_data("shapes3d", size=64, levels="2,2,2,2,2,3")
    pictures, labels = all_samples(small)
    assert [sorted(set(column.tolist())) for column in labels.T[4:]] == [
        [0, 3],
        [0, pytest.approx(0.1), pytest.approx(0.2)],
    ]
    assert len(labels) == 96
    rows = np.ravel_multi_index(
        tuple(np.rint(labels * [10, 10, 10, 10, 1, 10]).astype(int).T), LEVELS
    )
    np.testing.assert_array_equal(pictures, arrays["images"][rows].transpose(0, 3, 1, 2))
    assert all_samples(load_data("shapes3d", size=8, samples=70))[0].shape == (70, 3, 8, 8)
    assert torch.equal(
        reload(json.loads(json.dumps(dict(small.source)))).test.images, small.test.images
    )
    with pytest.raises(UsageError, match="levels= and samples="):
        load_data("shapes3d", samples=50, levels=LEVELS)
    with pytest.raises(UsageError, match="must be 6 whole numbers"):
        load_data("shapes3d", levels=(5, 5, 5, 5, 5, 5))


# ---- missing and broken files ----------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "folder", "file", "page"),
    [
        ("cars3d", "cars3d", "cars3d_64.npz, or folder cars of", "scottreed.info"),
        ("sprites-reed", "sprites", "sprites_reed2015.npz", "scottreed.info"),
        ("sprites-frames", "sprites", "sprites_li2018.npz", "YingzhenLi/Sprites"),
        ("shapes3d", "shapes3d", "3dshapes.h5", "3d-shapes on GitHub"),
    ],
)
def test_the_error_on_a_missing_file_says_where_to_get_it(
    home, monkeypatch, name, folder, file, page
):
    with pytest.raises(DataError, match=rf"there is no {file}.*{folder}; get it from .*{page}"):
        load_data(name)
    monkeypatch.delenv("INTERVAE_DATA")
    with pytest.raises(DataError, match="set the environment variable INTERVAE_DATA"):
        load_data(name)


def test_files_of_another_shape_are_an_error(home):
    write_cars(home, images=noise(3, 24, 5, 8, 8, 3))
    with pytest.raises(
        DataError, match=r"cars3d_64.npz has pictures of shape \(3, 24, 5, 8, 8, 3\)"
    ):
        load_data("cars3d")
    write_reed(home, frames=noise(8, 5, 60, 60))
    with pytest.raises(DataError, match=r"has frames of shape \(8, 5, 60, 60\)"):
        load_data("sprites-reed")
    write_reed(home, phase=np.zeros(3, np.uint8))
    with pytest.raises(DataError, match="does not give each of its 8 frames one of 2 directions"):
        load_data("sprites-reed")
    write_reed(home, palette=noise(8, 16, 3))
    with pytest.raises(DataError, match=r"palettes \(8, 16, 3\)"):
        load_data("sprites-reed")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "has no array 'labels', only images"),
        ({"labels": np.zeros((4, 5))}, r"labels of shape \(4, 5\)"),
        ({"labels": np.zeros((288, 6))}, "is no complete grid of factors"),
        ({"images": noise(288, 32, 32, 3)}, r"pictures of shape \(288, 32, 32, 3\)"),
    ],
)
def test_h5_files_of_another_content_are_an_error(home, changes, message):
    write_shapes(home, **changes)
    with pytest.raises(DataError, match=message):
        load_data("shapes3d")
    (home / "shapes3d" / "3dshapes.h5").write_bytes(b"not an HDF5 file")
    with pytest.raises(DataError, match=r"3dshapes.h5 cannot be read"):
        load_data("shapes3d")


# ---- the published files ---------------------------------------------------------------------
@pytest.mark.skipif(
    not os.environ.get("INTERVAE_DATA"), reason="INTERVAE_DATA names no folder of published data"
)
def test_cars3d_has_the_action_frequencies_of_the_paper():
    """The most frequent action is 27 percent of pairs drawn as by the authors."""
    try:
        data = load_data("cars3d", transitions={"draws": 1000})
    except DataError as error:
        pytest.skip(str(error))
    assert sum(map(len, data.splits.values())) == 17_568
    pairs = data.transitions.train
    assert float(pairs.counts.max() / len(pairs)) == pytest.approx(0.27, abs=0.01)
    counts = with_transitions(data).transitions.train.counts[::2].double()
    expected = torch.tensor([182 / 183, 23 / 24, 3 / 4], dtype=torch.float64) * 17_568 * 0.7**2
    torch.testing.assert_close(counts, expected, rtol=0.02, atol=0)
