"""A folder with labels.csv: what is read, to the pixel, and every way in which it can be wrong."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from intervae.causal.graph import CausalGraph
from intervae.data import load_data
from intervae.data.images import progress
from intervae.errors import DataError, UsageError

N = 20


def pixels_of(i: int, mode: str = "RGB", width: int = 6, height: int = 4) -> np.ndarray:
    """(H, W) or (H, W, C) uint8, different for every i."""
    shape = (height, width) if mode == "L" else (height, width, len(mode))
    return np.random.default_rng(i).integers(0, 256, shape).astype(np.uint8)


def write_rows(folder: Path, rows: list[list]) -> None:
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


@pytest.fixture
def folder(tmp_path):
    """20 colour images of 6 x 4 named by number; `number` says which one it is."""
    for i in range(N):
        Image.fromarray(pixels_of(i)).save(tmp_path / f"{i}.png")
    write_rows(tmp_path, [["file", "number", "sex", "patient"]] + [[f"{i}.png", i + 0.5, "fm"[i % 2], f"p{i // 4}"] for i in range(N)])
    return tmp_path


def rows_of(folder: Path) -> list[list[str]]:
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def change(folder: Path, line: int, column: int, value: str) -> None:
    """Overwrite a cell; lines count from 1 as an error message does."""
    rows = rows_of(folder)
    rows[line - 1][column] = value
    write_rows(folder, rows)


def by_number(dataset) -> dict[int, np.ndarray]:
    column = dataset.names.index("number")
    splits = (dataset.train, dataset.validation, dataset.test)
    return {int(row[column]): image.numpy() for split in splits for image, row in zip(split.images, split.labels, strict=True)}


# ---- what is read -------------------------------------------------------------------------------------------------------
def test_every_image_stays_with_its_label(folder):
    data = load_data(folder, variables=["sex", "number"])
    found = by_number(data)
    assert len(found) == N
    for i in range(N):
        np.testing.assert_array_equal(found[i], pixels_of(i).transpose(2, 0, 1))
    for split in (data.train, data.validation, data.test):
        np.testing.assert_array_equal(split.labels[:, 0], (split.labels[:, 1] // 1) % 2)
    assert (len(data.train), len(data.validation), len(data.test)) == (14, 2, 4)
    assert data.train.images.dtype == torch.uint8
    assert data.name == folder.name


def test_the_file_column_is_found_by_name_else_it_is_the_first(folder):
    rows = rows_of(folder)
    write_rows(folder, [["number", "Filename"]] + [[row[1], row[0]] for row in rows[1:]])
    assert load_data(folder).names == ("number",)
    write_rows(folder, [["", "number"]] + [[row[0], row[1]] for row in rows[1:]])
    assert load_data(folder).names == ("number",)
    write_rows(folder, [["", "number", "image"]] + [[i, row[1], row[0]] for i, row in enumerate(rows[1:])])
    data = load_data(folder)
    assert data.names == ("number",)
    assert "labels: column 1 has no name and was left out" in data.notes


@pytest.mark.parametrize(("separator", "encoding", "newline"), [(",", "utf-8-sig", "\r\n"), (";", "utf-8", "\n"), ("\t", "utf-8", "\n")])
def test_tables_as_spreadsheets_save_them(folder, separator, encoding, newline):
    lines = [separator.join((row[1], row[0])) for row in rows_of(folder)]
    (folder / "labels.csv").write_bytes((newline.join([lines[0], "", *lines[1:]]) + newline).encode(encoding))
    data = load_data(folder)
    assert data.names == ("number",)  # without the byte order mark
    assert len(by_number(data)) == N


def test_images_in_sub_folders_with_either_slash(folder):
    (folder / "a" / "b").mkdir(parents=True)
    shutil.move(folder / "3.png", folder / "a" / "b" / "3.png")
    shutil.move(folder / "4.png", folder / "a" / "4.png")
    change(folder, 5, 0, "a\\b\\3.png")
    change(folder, 6, 0, "./a/4.png")
    found = by_number(load_data(folder))
    np.testing.assert_array_equal(found[3], pixels_of(3).transpose(2, 0, 1))
    np.testing.assert_array_equal(found[4], pixels_of(4).transpose(2, 0, 1))


def test_a_link_that_stays_inside_is_followed(folder):
    (folder / "kept").mkdir()
    shutil.move(folder / "3.png", folder / "kept" / "3.png")
    (folder / "3.png").symlink_to(folder / "kept" / "3.png")
    np.testing.assert_array_equal(by_number(load_data(folder))[3], pixels_of(3).transpose(2, 0, 1))


def test_images_that_no_row_names_are_ignored_with_a_note(folder):
    Image.fromarray(pixels_of(99)).save(folder / "extra.png")
    (folder / "notes.txt").write_text("not an image")
    (folder / ".hidden.png").write_bytes(b"")
    data = load_data(folder)
    assert len(by_number(data)) == N
    assert [note for note in data.notes if note.startswith("images")] == ["images: 1 not in labels.csv and ignored, such as 'extra.png'"]


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "gif", "webp"])
def test_lossless_formats_keep_grey_pixels_and_one_channel(folder, suffix):
    rows = [["file", "number"]]
    for i in range(N):
        options = {"lossless": True} if suffix == "webp" else {}
        Image.fromarray(pixels_of(i, "L")).save(folder / f"g{i}.{suffix}", **options)
        rows.append([f"g{i}.{suffix}", i])
    write_rows(folder, rows)
    data = load_data(folder)
    if suffix in ("gif", "webp"):  # kept as a palette, or as colour
        assert data.spec.image_shape == (3, 4, 6)
        data = load_data(folder, channels=1)
    assert data.spec.image_shape == (1, 4, 6)
    for i, image in by_number(data).items():
        np.testing.assert_array_equal(image[0], pixels_of(i, "L"))


def test_jpeg_is_read_and_turned_upright(folder):
    block = np.zeros((16, 32, 3), np.uint8)
    block[:8, :8] = 255  # white corner at the top left of the stored picture
    for i in range(N):
        picture = Image.fromarray(block)
        exif = picture.getexif()
        exif[0x0112] = 6  # stored lying: to be turned a quarter clockwise
        picture.save(folder / f"{i}.jpg", exif=exif, quality=95)
    write_rows(folder, [["file", "number"]] + [[f"{i}.jpg", i] for i in range(N)])
    data = load_data(folder)
    assert data.spec.image_shape == (3, 32, 16)
    image = data.train.images[0].float().mean(0)
    assert image[:8, 8:].mean() > 250  # now at the top right
    assert image[16:].mean() < 5


def one_image(folder: Path, picture: Image.Image, name: str = "3.png", **options) -> tuple[np.ndarray, tuple[str, ...]]:
    """Image 3 of the folder replaced by `picture`, as it is read."""
    picture.save(folder / name)
    change(folder, 5, 0, name)
    data = load_data(folder, **options)
    return by_number(data)[3], data.notes


def test_alpha_is_laid_on_white(folder):
    rgba = np.zeros((4, 6, 4), np.uint8)
    rgba[0, 0] = (200, 0, 0, 255)
    rgba[0, 1] = (200, 0, 0, 0)
    rgba[0, 2] = (200, 100, 0, 51)  # a fifth of the colour, four fifths white
    image, notes = one_image(folder, Image.fromarray(rgba))
    assert image[:, 0, 0].tolist() == [200, 0, 0]
    assert image[:, 0, 1].tolist() == [255, 255, 255]
    np.testing.assert_allclose(image[:, 0, 2], [244, 224, 204], atol=1)
    assert "images: 1 had an alpha channel and were laid on white" in notes


def test_a_palette_becomes_its_colours(folder):
    picture = Image.new("P", (6, 4))
    picture.putpalette([255, 0, 0, 0, 0, 255])
    picture.putpixel((1, 0), 1)
    image, _ = one_image(folder, picture)
    assert image[:, 0, 0].tolist() == [255, 0, 0]
    assert image[:, 0, 1].tolist() == [0, 0, 255]


def test_a_transparent_palette_is_laid_on_white(folder):
    picture = Image.new("P", (6, 4))
    picture.putpalette([255, 0, 0, 0, 0, 255])
    picture.putpixel((1, 0), 1)
    picture.info["transparency"] = 1
    image, notes = one_image(folder, picture)
    assert image[:, 0, 0].tolist() == [255, 0, 0]
    assert image[:, 0, 1].tolist() == [255, 255, 255]
    assert any("laid on white" in note for note in notes)


@pytest.mark.parametrize("name", ["deep.png", "deep.tif"])
def test_sixteen_bit_grey_is_scaled(folder, name):
    deep = np.zeros((4, 6), np.uint16)
    deep[0, :3] = (65535, 32896, 257)
    image, notes = one_image(folder, Image.fromarray(deep), name)
    assert image[0, 0, :4].tolist() == [255, 128, 1, 0]
    assert "images: 1 have 16 bits and were scaled from 0..65535 to 0..255" in notes


def test_float_images_are_scaled_when_they_lie_in_the_unit_range(folder):
    image, _ = one_image(folder, Image.fromarray(np.full((4, 6), 0.5, np.float32)), "float.tif")
    assert (image == 128).all()
    with pytest.raises(DataError, match=r"image 'big.tif' cannot be read \(its values run from 7 to 7; only 0 to 1 can be scaled"):
        one_image(folder, Image.fromarray(np.full((4, 6), 7, np.float32)), "big.tif")


def test_black_and_white_and_cmyk_are_converted(folder):
    bits = Image.fromarray(pixels_of(3, "L") > 127)
    image, _ = one_image(folder, bits)
    np.testing.assert_array_equal(image[0], np.where(pixels_of(3, "L") > 127, 255, 0))
    image, _ = one_image(folder, Image.new("CMYK", (6, 4), (0, 255, 255, 0)), "c.tif")
    assert image[:, 0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("grey", [0, 7])
def test_grey_among_colour_is_read_as_colour(folder, grey):
    Image.fromarray(pixels_of(grey, "L")).save(folder / f"{grey}.png")
    data = load_data(folder)
    found = by_number(data)
    for channel in range(3):
        np.testing.assert_array_equal(found[grey][channel], pixels_of(grey, "L"))
    np.testing.assert_array_equal(found[8], pixels_of(8).transpose(2, 0, 1))
    assert "images: 1 are grey and 19 in colour, so all are read as colour; channels=1 makes all grey" in data.notes
    assert load_data(folder, channels=1).spec.image_shape == (1, 4, 6)
    with pytest.raises(UsageError, match="channels=2 must be 1"):
        load_data(folder, channels=2)


def test_only_the_first_frame_of_a_gif_is_read(folder):
    first, second = (Image.new("L", (6, 4), value) for value in (200, 10))
    first.save(folder / "3.gif", save_all=True, append_images=[second])
    change(folder, 5, 0, "3.gif")
    assert (by_number(load_data(folder))[3] == 200).all()


# ---- size ---------------------------------------------------------------------------------------------------------------
def test_size_resizes_without_aliasing(folder):
    stripes = np.zeros((64, 64), np.uint8)
    stripes[:, ::2] = 255  # taking every eighth pixel would give all black or all white
    for i in range(N):
        Image.fromarray(stripes).save(folder / f"{i}.png")
    images = load_data(folder, size=8).train.images
    assert images.shape[1:] == (1, 8, 8)
    np.testing.assert_allclose(images[:, :, :, 1:-1], 127.5, atol=3)


def test_size_is_height_and_width(folder):
    assert load_data(folder, size=(8, 12)).spec.image_shape == (3, 8, 12)
    for wrong in (0, -3, 2.5, True, "64", (8, 8, 8), (8, 0)):
        with pytest.raises(UsageError, match="must be a whole number of pixels"):
            load_data(folder, size=wrong)


def test_a_large_jpeg_keeps_its_colours_when_it_is_shrunk(folder):
    picture = np.zeros((400, 400, 3), np.uint8)
    picture[:200, :200, 0], picture[200:, 200:, 2] = 255, 255
    for i in range(N):
        Image.fromarray(picture).save(folder / f"{i}.jpg", quality=95)
    write_rows(folder, [["file", "number"]] + [[f"{i}.jpg", i] for i in range(N)])
    image = load_data(folder, size=20).train.images[0]
    np.testing.assert_allclose(image[:, 2:8, 2:8].float().mean((1, 2)), [254, 0, 0], atol=2)
    np.testing.assert_allclose(image[:, 12:18, 12:18].float().mean((1, 2)), [0, 0, 254], atol=2)
    np.testing.assert_allclose(image[:, 2:8, 12:18].float().mean((1, 2)), [0, 0, 0], atol=2)


def test_a_large_jpeg_keeps_its_detail_when_it_is_shrunk(folder):
    y, x = np.mgrid[:160, :160]
    waves = np.uint8(127.5 + 120 * np.sin(2 * np.pi * x / 12) * np.sin(2 * np.pi * y / 12))  # three pixels a wave once shrunk
    for i in range(N):
        Image.fromarray(waves).save(folder / f"{i}.jpg", quality=95)
    write_rows(folder, [["file", "number"]] + [[f"{i}.jpg", i] for i in range(N)])
    image = load_data(folder, size=40).train.images[0, 0].float().numpy()
    with Image.open(folder / "0.jpg") as whole:
        expected = np.asarray(whole.resize((40, 40), Image.Resampling.LANCZOS)).astype(float)
    assert expected.std() > 30
    assert np.abs(image - expected).mean() < 6


def test_different_sizes_name_two_files_and_say_what_to_do(folder):
    Image.fromarray(pixels_of(7, width=9)).save(folder / "7.png")
    with pytest.raises(DataError, match=r"'0.png' is 6 x 4 but '7.png' is 9 x 4 \(width x height\); pass size= \(--size\) to resize them all"):
        load_data(folder)
    assert load_data(folder, size=5).spec.image_shape == (3, 5, 5)


# ---- splits -------------------------------------------------------------------------------------------------------------
def test_a_split_column_decides_the_splits(folder):
    words = ["train"] * 10 + ["val"] * 4 + ["Test"] * 6
    rows = rows_of(folder)
    write_rows(folder, [[*rows[0], "split"]] + [[*row, word] for row, word in zip(rows[1:], words, strict=True)])
    data = load_data(folder, variables=["number"])
    assert "split" not in load_data(folder).names
    assert [sorted(split.labels[:, 0].int().tolist()) for split in (data.train, data.validation, data.test)] == [
        list(range(10)),
        list(range(10, 14)),
        list(range(14, 20)),
    ]
    assert "splits: given by the column 'split'" in data.notes


def test_a_split_column_without_validation_draws_it_from_train(folder):
    rows = rows_of(folder)
    write_rows(folder, [[*rows[0], "split"]] + [[*row, "test" if i >= 14 else "train"] for i, row in enumerate(rows[1:])])
    data = load_data(folder, variables=["number"], validation=0.3)
    assert sorted(data.test.labels[:, 0].int().tolist()) == list(range(14, 20))
    assert (len(data.train), len(data.validation)) == (10, 4)
    assert any("names no validation rows" in note for note in data.notes)


def test_wrong_split_columns_are_refused(folder):
    rows = rows_of(folder)
    write_rows(folder, [[*rows[0], "split"]] + [[*row, "left" if i == 2 else "train"] for i, row in enumerate(rows[1:])])
    with pytest.raises(DataError, match=r"labels.csv, line 4: 'split' is 'left'; write train, validation or test"):
        load_data(folder)
    write_rows(folder, [[*rows[0], "split"]] + [[*row, "train"] for row in rows[1:]])
    with pytest.raises(DataError, match="the column 'split' names no test rows"):
        load_data(folder)
    write_rows(folder, [[*rows[0], "split"]] + [[*row, "test" if i == 1 else "train"] for i, row in enumerate(rows[1:])])
    with pytest.raises(DataError, match=r"line 3: patient 'p0' is in test here but in train on line 2; keep it in one split"):
        load_data(folder, group="patient")


@pytest.mark.parametrize("seed", range(5))
def test_groups_stay_together(folder, seed):
    data = load_data(folder, group="patient", variables=["number"], seed=seed)
    patients = [{int(row) // 4 for row in split.labels[:, 0]} for split in (data.train, data.validation, data.test)]
    assert set.union(*patients) == set(range(5))
    assert sum(map(len, patients)) == 5
    assert "patient" not in load_data(folder, group="patient").names


def test_a_wrong_group_is_refused(folder):
    with pytest.raises(UsageError, match="unknown group column 'patiant'; did you mean 'patient'"):
        load_data(folder, group="patiant")
    change(folder, 4, 3, "")
    with pytest.raises(DataError, match=r"labels.csv, line 4: 'patient' has no value"):
        load_data(folder, group="patient")


def test_the_same_seed_gives_the_same_split_and_another_seed_another(folder):
    first, again, other = (load_data(folder, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.test.labels, again.test.labels)
    assert not torch.equal(first.test.labels, other.test.labels)


def test_too_few_images_for_the_splits_are_refused(folder):
    write_rows(folder, [["file", "number"], ["0.png", 1], ["1.png", 2]])
    with pytest.raises(DataError, match=r"labels.csv has 2 rows with an image each and 18 images without a row, but 4 rows are the least"):
        load_data(folder)


# ---- the true graph -----------------------------------------------------------------------------------------------------
def test_graph_json_is_the_true_graph_of_the_chosen_variables(folder):
    graph = CausalGraph.from_edges(["sex", "number", "more"], [("sex", "number"), ("number", "more")])
    (folder / "graph.json").write_text(json.dumps(graph.to_json()))
    data = load_data(folder, variables=["number", "sex"])
    assert data.graph == CausalGraph.from_edges(["number", "sex"], [("sex", "number")])
    write_rows(folder, [[*rows_of(folder)[0], "weight"]] + [[*row, i * i] for i, row in enumerate(rows_of(folder)[1:])])
    with pytest.raises(DataError, match=r"graph.json does not have the variable 'weight'; add it there"):
        load_data(folder, group="patient")


def test_wrong_graphs_are_refused(folder):
    for text, said in [
        ("{", "this is not a graph"),
        ('{"variables": ["number"], "edges": [{"from": "x", "to": "number"}]}', "unknown variable in an edge"),
    ]:
        (folder / "graph.json").write_text(text)
        with pytest.raises(DataError, match=rf"graph.json: {said}"):
            load_data(folder)
    (folder / "graph.json").write_text(json.dumps(CausalGraph(("number", "sex"), np.array([[0, 1], [1, 0]])).to_json()))
    with pytest.raises(DataError, match=r"graph.json has a cycle"):
        load_data(folder, group="patient")


# ---- paths that must not be followed ------------------------------------------------------------------------------------
@pytest.mark.parametrize("written", ["/etc/0.png", "../0.png", "a/../../0.png", "C:\\0.png", "C:0.png", "\\\\server\\share\\0.png", "..\\0.png"])
def test_a_path_outside_the_folder_is_refused(folder, written):
    Image.fromarray(pixels_of(3)).save(folder.parent / "0.png")
    change(folder, 5, 0, written)
    with pytest.raises(DataError, match=r"labels.csv, line 5: the image .* lies outside the folder"):
        load_data(folder)


def test_a_link_that_leaves_the_folder_is_refused(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    Image.fromarray(pixels_of(3)).save(outside / "3.png")
    (folder / "3.png").unlink()
    (folder / "3.png").symlink_to(outside / "3.png")
    with pytest.raises(DataError, match=r"line 5: the image '3.png' is a link that leaves the folder; copy the file into it"):
        load_data(folder)
    (folder / "3.png").unlink()
    (folder / "sub").symlink_to(outside)
    change(folder, 5, 0, "sub/3.png")
    with pytest.raises(DataError, match=r"line 5: the image 'sub/3.png' is a link that leaves the folder"):
        load_data(folder)


# ---- broken images ------------------------------------------------------------------------------------------------------
def test_a_missing_image_is_named_with_a_near_one(folder):
    change(folder, 5, 0, "3.jpg")
    with pytest.raises(DataError, match=r"labels.csv, line 5: the image '3.jpg' is not in the folder; did you mean '3.png'\?"):
        load_data(folder)
    change(folder, 5, 0, "nothing.png")
    with pytest.raises(DataError, match=r"line 5: the image 'nothing.png' is not in the folder; correct its name or remove the row"):
        load_data(folder)
    change(folder, 5, 0, "")
    with pytest.raises(DataError, match="line 5: the image has no file name"):
        load_data(folder)
    (folder / "dir.png").mkdir()
    change(folder, 5, 0, "dir.png")
    with pytest.raises(DataError, match=r"line 5: 'dir.png' is a folder or a device, not an image file"):
        load_data(folder)


def test_a_corrupt_image_is_named(folder):
    whole = (folder / "3.png").read_bytes()
    (folder / "3.png").write_bytes(whole[: len(whole) - 40])
    with pytest.raises(DataError, match=r"image '3.png' cannot be read \(.+\); replace it or remove its row"):
        load_data(folder)
    (folder / "3.png").write_bytes(b"this is text")
    with pytest.raises(DataError, match=r"image '3.png' cannot be read \(not an image of a known format\)"):
        load_data(folder)
    (folder / "3.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"image '3.png' is an empty file \(0 bytes\); replace it or remove its row"):
        load_data(folder)


@pytest.mark.parametrize("limit", [20, 6])  # Pillow warns above its limit and refuses above twice that; the images have 24 pixels
def test_a_decompression_bomb_is_refused(folder, monkeypatch, limit):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(DataError, match=rf"image '0.png' is larger than {limit} pixels, which is refused as unsafe"):
        load_data(folder)


def test_formats_that_start_other_programs_are_not_opened(folder):
    (folder / "3.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 4\n%%EndComments\n")
    with pytest.raises(DataError, match=r"image '3.png' cannot be read \(not an image of a known format\)"):
        load_data(folder)


def test_more_than_the_memory_is_refused_before_it_is_tried(folder, monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 20 * 72 - 1}[name])
    with pytest.raises(DataError, match="of memory; pass a smaller size="):
        load_data(folder)
    assert len(load_data(folder, size=4).train)


# ---- broken tables ------------------------------------------------------------------------------------------------------
def test_a_table_that_is_empty_or_a_link_to_nothing_is_refused(folder):
    (folder / "labels.csv").write_text("")
    with pytest.raises(DataError, match=r"labels.csv has nothing in it; write one row per image below a header"):
        load_data(folder)
    (folder / "labels.csv").write_text("file,number\n\n")
    with pytest.raises(DataError, match="has a header but no rows"):
        load_data(folder)
    (folder / "labels.csv").unlink()
    (folder / "labels.csv").symlink_to(folder / "elsewhere.csv")
    with pytest.raises(DataError, match=r"there is no labels.csv in .*; write one with a row per image"):
        load_data(folder)


# ---- no table -----------------------------------------------------------------------------------------------------------
def test_a_folder_without_a_table_gives_all_of_its_images_and_no_labels(folder):
    labelled = load_data(folder, seed=3)
    rows = {int(number): image for number, image in by_number(labelled).items()}
    (folder / "labels.csv").unlink()
    (folder / "notes.txt").write_text("no image")
    (folder / "more").mkdir()
    Image.fromarray(pixels_of(50)).save(folder / "more" / "last.PNG")
    (folder / "graph.json").write_text("not looked at")
    data = load_data(folder, seed=3)
    splits = (data.train, data.validation, data.test)
    assert (data.variables, data.graph) == ((), None)
    assert all(tuple(split.labels.shape) == (len(split), 0) for split in splits)
    found = sorted(torch.cat([split.images for split in splits]).flatten(1).tolist())
    assert found == sorted([image.reshape(-1).tolist() for image in rows.values()] + [pixels_of(50).transpose(2, 0, 1).reshape(-1).tolist()])
    assert data.notes[:2] == (
        "labels: there is no labels.csv, so all images are taken, without labels",
        "graph: graph.json is left aside, as there are no labels",
    )
    again = load_data(folder, seed=3)  # in the order of their names, so that a seed is a split
    assert all(torch.equal(a.images, b.images) for a, b in zip(splits, (again.train, again.validation, again.test), strict=True))
    with pytest.raises(UsageError, match="unknown group column 'patient'"):
        load_data(folder, group="patient")
    (folder / "7.png").write_bytes(b"hello")
    with pytest.raises(DataError, match=r"'7\.png'"):
        load_data(folder)


def test_a_folder_without_table_and_images_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"there is no labels.csv in .*, and no image \(\.bmp, .*\.webp\) either; put images there"):
        load_data(tmp_path)


def test_a_table_that_is_not_utf8_or_not_csv_is_refused(folder):
    (folder / "labels.csv").write_bytes("file,größe\n0.png,1\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"labels.csv is not UTF-8 text; save it again as CSV UTF-8"):
        load_data(folder)
    (folder / "labels.csv").write_text('file,number\n0.png,"1" 2\n')
    with pytest.raises(DataError, match=r"labels.csv, line 2: this is not valid CSV"):
        load_data(folder)


def test_a_duplicate_column_is_found_in_the_header(folder):
    rows = rows_of(folder)
    write_rows(folder, [[*rows[0], " number"]] + [[*row, "1"] for row in rows[1:]])
    with pytest.raises(DataError, match=r"labels.csv: the column 'number' appears twice in the header; rename or remove one"):
        load_data(folder)


def test_a_row_with_too_many_cells_is_named(folder):
    rows = rows_of(folder)
    rows[6] = [*rows[6], "more"]
    write_rows(folder, rows)
    with pytest.raises(DataError, match=r"labels.csv, line 7: 5 cells for 4 columns"):
        load_data(folder)


def test_a_duplicate_image_names_both_lines(folder):
    change(folder, 8, 0, "./3.png")
    with pytest.raises(DataError, match=r"labels.csv, line 8: the image './3.png' already stands on line 5; keep one row per image"):
        load_data(folder)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "has no value"),
        ("NaN", "has no value"),
        ("inf", "is inf; every label must be a finite number"),
        ("many", "is 'many', which is not a number"),
    ],
)
def test_a_bad_label_names_its_line_and_column(folder, value, said):
    change(folder, 9, 1, value)
    with pytest.raises(DataError, match=rf"labels.csv, line 9: 'number' {said}"):
        load_data(folder)
    assert load_data(folder, variables=["sex"]).names == ("sex",)


def test_a_constant_column_and_one_that_is_constant_in_training_are_refused(folder):
    rows = rows_of(folder)
    write_rows(folder, [["file", "x"]] + [[row[0], "5"] for row in rows[1:]])
    with pytest.raises(DataError, match="column 'x' is '5' in every row"):
        load_data(folder)
    write_rows(folder, [["file", "x", "split"]] + [[row[0], i >= 15, "test" if i >= 15 else "train"] for i, row in enumerate(rows[1:])])
    with pytest.raises(DataError, match=r"variable 'x' is constant .* in the training split"):
        load_data(folder)


# ---- progress -----------------------------------------------------------------------------------------------------------
class Terminal:
    """Stands for stderr: records what is written and says whether it is a terminal."""

    def __init__(self, is_terminal: bool) -> None:
        self.is_terminal, self.text = is_terminal, ""

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(("is_terminal", "after", "shown"), [(True, 0.0, True), (True, 60.0, False), (False, 0.0, False)])
def test_progress_shows_only_on_a_terminal_and_only_when_it_takes_long(monkeypatch, is_terminal, after, shown):
    terminal = Terminal(is_terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    items = (time.sleep(0.002) or i for i in range(5))
    assert list(progress(items, 5, "reading images", after=after)) == [0, 1, 2, 3, 4]
    assert ("reading images" in terminal.text) is shown
