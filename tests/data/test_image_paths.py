"""Paths of images in labels.csv: missing files, and paths that leave the folder."""

from __future__ import annotations

import pytest
from image_folders import change_cell, pixels_of
from PIL import Image

from intervae.data import load_data
from intervae.errors import DataError


@pytest.mark.parametrize(
    "written",
    [
        "/etc/0.png",
        "../0.png",
        "a/../../0.png",
        "C:\\0.png",
        "C:0.png",
        "\\\\server\\share\\0.png",
        "..\\0.png",
    ],
)
def test_a_path_outside_the_folder_is_an_error(folder, written):
    Image.fromarray(pixels_of(3)).save(folder.parent / "0.png")
    change_cell(folder, 5, 0, written)
    with pytest.raises(
        DataError, match=r"labels.csv, line 5: the image .* lies outside the folder"
    ):
        load_data(folder)


def test_a_link_that_leaves_the_folder_is_an_error(folder, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    Image.fromarray(pixels_of(3)).save(outside / "3.png")
    (folder / "3.png").unlink()
    (folder / "3.png").symlink_to(outside / "3.png")
    with pytest.raises(
        DataError,
        match=r"line 5: the image '3.png' is a link that leaves the folder; copy the file into it",
    ):
        load_data(folder)
    (folder / "3.png").unlink()
    (folder / "sub").symlink_to(outside)
    change_cell(folder, 5, 0, "sub/3.png")
    with pytest.raises(
        DataError, match=r"line 5: the image 'sub/3.png' is a link that leaves the folder"
    ):
        load_data(folder)


def test_a_missing_image_is_named_with_a_near_one(folder):
    change_cell(folder, 5, 0, "3.jpg")
    with pytest.raises(
        DataError,
        match=r"labels.csv, line 5: the image '3.jpg' is not in the folder; did you mean '3.png'\?",
    ):
        load_data(folder)
    change_cell(folder, 5, 0, "nothing.png")
    with pytest.raises(
        DataError,
        match=r"line 5: the image 'nothing.png' is not in the folder; "
        "correct its name or remove the row",
    ):
        load_data(folder)
    change_cell(folder, 5, 0, "")
    with pytest.raises(DataError, match="line 5: the image has no file name"):
        load_data(folder)
    (folder / "dir.png").mkdir()
    change_cell(folder, 5, 0, "dir.png")
    with pytest.raises(
        DataError, match=r"line 5: 'dir.png' is a folder or a device, not an image file"
    ):
        load_data(folder)


def test_a_duplicate_image_names_both_lines(folder):
    change_cell(folder, 8, 0, "./3.png")
    with pytest.raises(
        DataError,
        match=r"labels.csv, line 8: the image './3.png' already stands on line 5; "
        "keep one row per image",
    ):
        load_data(folder)
