"""A folder of images with labels.csv: images, labels, splits and true graph that are read."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from image_folders import N, change_cell, images_by_number, pixels_of, read_rows, write_rows
from note_texts import note_texts
from PIL import Image

from intervae.causal.graph import CausalGraph
from intervae.data import load_data
from intervae.errors import DataError, UsageError


# ---- images and labels -----------------------------------------------------------------------
def test_every_image_stays_with_its_label(folder):
    data = load_data(folder, variables=["sex", "number"])
    images = images_by_number(data)
    assert len(images) == N
    for i in range(N):
        np.testing.assert_array_equal(images[i], pixels_of(i).transpose(2, 0, 1))
    for split in data.splits.values():
        np.testing.assert_array_equal(split.labels[:, 0], (split.labels[:, 1] // 1) % 2)
    assert (len(data.train), len(data.validation), len(data.test)) == (14, 2, 4)
    assert data.train.images.dtype == torch.uint8
    assert data.name == folder.name


def test_images_in_sub_folders_with_either_slash(folder):
    (folder / "a" / "b").mkdir(parents=True)
    shutil.move(folder / "3.png", folder / "a" / "b" / "3.png")
    shutil.move(folder / "4.png", folder / "a" / "4.png")
    change_cell(folder, 5, 0, "a\\b\\3.png")
    change_cell(folder, 6, 0, "./a/4.png")
    images = images_by_number(load_data(folder))
    np.testing.assert_array_equal(images[3], pixels_of(3).transpose(2, 0, 1))
    np.testing.assert_array_equal(images[4], pixels_of(4).transpose(2, 0, 1))


def test_a_link_that_stays_inside_is_followed(folder):
    (folder / "target").mkdir()
    shutil.move(folder / "3.png", folder / "target" / "3.png")
    (folder / "3.png").symlink_to(folder / "target" / "3.png")
    np.testing.assert_array_equal(
        images_by_number(load_data(folder))[3], pixels_of(3).transpose(2, 0, 1)
    )


def test_images_that_no_row_names_are_ignored_with_a_note(folder):
    Image.fromarray(pixels_of(99)).save(folder / "extra.png")
    (folder / "notes.txt").write_text("not an image")
    (folder / ".hidden.png").write_bytes(b"")
    data = load_data(folder)
    assert len(images_by_number(data)) == N
    assert [text for text in note_texts(data) if text.startswith("images")] == [
        "images: 1 not in labels.csv and ignored, such as 'extra.png'"
    ]


# ---- splits ----------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_together(folder, seed):
    data = load_data(folder, group="patient", variables=["number"], seed=seed)
    patients = [{int(row) // 4 for row in split.labels[:, 0]} for split in data.splits.values()]
    assert set.union(*patients) == set(range(5))
    assert sum(map(len, patients)) == 5
    assert "patient" not in load_data(folder, group="patient").names


def test_a_wrong_group_is_an_error(folder):
    with pytest.raises(UsageError, match="unknown group column 'patiant'; did you mean 'patient'"):
        load_data(folder, group="patiant")
    change_cell(folder, 4, 3, "")
    with pytest.raises(DataError, match=r"labels.csv, line 4: 'patient' has no value"):
        load_data(folder, group="patient")


def test_the_seed_determines_the_split(folder):
    first, again, different = (load_data(folder, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.test.labels, again.test.labels)
    assert not torch.equal(first.test.labels, different.test.labels)


def test_too_few_images_to_split_are_an_error(folder):
    write_rows(folder, [["file", "number"], ["0.png", 1], ["1.png", 2]])
    with pytest.raises(
        DataError,
        match=r"labels.csv has 2 rows with an image each and 18 images without a row, "
        "but at least 4 rows are needed",
    ):
        load_data(folder)


# ---- true graph ------------------------------------------------------------------------------
def test_graph_json_is_the_true_graph_of_the_chosen_variables(folder):
    graph = CausalGraph.from_edges(
        ["sex", "number", "more"], [("sex", "number"), ("number", "more")]
    )
    (folder / "graph.json").write_text(json.dumps(graph.to_json()))
    data = load_data(folder, variables=["number", "sex"])
    assert data.graph == CausalGraph.from_edges(["number", "sex"], [("sex", "number")])
    write_rows(
        folder,
        [[*read_rows(folder)[0], "weight"]]
        + [[*row, i * i] for i, row in enumerate(read_rows(folder)[1:])],
    )
    with pytest.raises(
        DataError, match=r"graph.json does not have the variable 'weight'; add it there"
    ):
        load_data(folder, group="patient")


def test_wrong_graphs_are_an_error(folder):
    for text, message in [
        ("{", "this is not a graph"),
        (
            '{"variables": ["number"], "edges": [{"from": "x", "to": "number"}]}',
            "unknown variable in an edge",
        ),
    ]:
        (folder / "graph.json").write_text(text)
        with pytest.raises(DataError, match=rf"graph.json: {message}"):
            load_data(folder)
    (folder / "graph.json").write_text(
        json.dumps(CausalGraph(("number", "sex"), np.array([[0, 1], [1, 0]])).to_json())
    )
    with pytest.raises(DataError, match=r"graph.json has a cycle"):
        load_data(folder, group="patient")


# ---- without a table -------------------------------------------------------------------------
def test_a_folder_without_a_table_has_all_images_and_no_labels(folder):
    labelled = load_data(folder, seed=3)
    images = images_by_number(labelled)
    (folder / "labels.csv").unlink()
    (folder / "notes.txt").write_text("no image")
    (folder / "more").mkdir()
    Image.fromarray(pixels_of(50)).save(folder / "more" / "last.PNG")
    (folder / "graph.json").write_text("not looked at")
    data = load_data(folder, seed=3)
    splits = data.splits.values()
    assert (data.variables, data.graph) == ((), None)
    assert all(tuple(split.labels.shape) == (len(split), 0) for split in splits)
    flat = sorted(torch.cat([split.images for split in splits]).flatten(1).tolist())
    assert flat == sorted(
        [image.reshape(-1).tolist() for image in images.values()]
        + [pixels_of(50).transpose(2, 0, 1).reshape(-1).tolist()]
    )
    assert note_texts(data)[:2] == (
        "labels: there is no labels.csv, so all images are taken, without labels",
        "graph: graph.json is ignored, as there are no labels",
    )
    again = load_data(folder, seed=3)  # sorted by name, so that a seed fixes the split
    assert all(
        torch.equal(a.images, b.images) for a, b in zip(splits, again.splits.values(), strict=True)
    )
    with pytest.raises(UsageError, match="unknown group column 'patient'"):
        load_data(folder, group="patient")
    (folder / "7.png").write_bytes(b"hello")
    with pytest.raises(DataError, match=r"'7\.png'"):
        load_data(folder)


def test_a_folder_without_table_and_images_is_an_error(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(
        DataError,
        match=r"there is no labels.csv in .*, and no image \(\.bmp, .*\.webp\) either; "
        "put images there",
    ):
        load_data(tmp_path)
