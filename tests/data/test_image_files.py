"""Image files: formats, conversions, sizes, and broken files."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from image_folders import N, change_cell, images_by_number, pixels_of, write_rows
from note_texts import note_texts
from PIL import Image

from intervae.data import load_data
from intervae.errors import DataError, UsageError


# ---- formats ---------------------------------------------------------------------------------
@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "gif", "webp"])
def test_lossless_formats_keep_grey_pixels_and_one_channel(folder, suffix):
    rows = [["file", "number"]]
    for i in range(N):
        options = {"lossless": True} if suffix == "webp" else {}
        Image.fromarray(pixels_of(i, "L")).save(folder / f"g{i}.{suffix}", **options)
        rows.append([f"g{i}.{suffix}", i])
    write_rows(folder, rows)
    data = load_data(folder)
    if suffix in ("gif", "webp"):  # stored as a palette, or as colour
        assert data.spec.image_shape == (3, 4, 6)
        data = load_data(folder, channels=1)
    assert data.spec.image_shape == (1, 4, 6)
    for i, image in images_by_number(data).items():
        np.testing.assert_array_equal(image[0], pixels_of(i, "L"))


def test_jpeg_is_read_and_turned_upright(folder):
    block = np.zeros((16, 32, 3), np.uint8)
    block[:8, :8] = 255  # white corner at the top left of the stored picture
    for i in range(N):
        picture = Image.fromarray(block)
        exif = picture.getexif()
        exif[0x0112] = 6  # stored rotated: to be turned a quarter clockwise
        picture.save(folder / f"{i}.jpg", exif=exif, quality=95)
    write_rows(folder, [["file", "number"]] + [[f"{i}.jpg", i] for i in range(N)])
    data = load_data(folder)
    assert data.spec.image_shape == (3, 32, 16)
    image = data.train.images[0].float().mean(0)
    assert image[:8, 8:].mean() > 250  # now at the top right
    assert image[16:].mean() < 5


def replace_image(
    folder: Path, picture: Image.Image, name: str = "3.png", **options
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Replace image 3 of the folder; return it and the notes, as read."""
    picture.save(folder / name)
    change_cell(folder, 5, 0, name)
    data = load_data(folder, **options)
    return images_by_number(data)[3], note_texts(data)


def test_alpha_is_laid_on_white(folder):
    rgba = np.zeros((4, 6, 4), np.uint8)
    rgba[0, 0] = (200, 0, 0, 255)
    rgba[0, 1] = (200, 0, 0, 0)
    rgba[0, 2] = (200, 100, 0, 51)  # a fifth of the colour, four fifths white
    image, notes = replace_image(folder, Image.fromarray(rgba))
    assert image[:, 0, 0].tolist() == [200, 0, 0]
    assert image[:, 0, 1].tolist() == [255, 255, 255]
    np.testing.assert_allclose(image[:, 0, 2], [244, 224, 204], atol=1)
    assert "images: 1 had an alpha channel and were laid on white" in notes


def test_a_palette_becomes_its_colours(folder):
    picture = Image.new("P", (6, 4))
    picture.putpalette([255, 0, 0, 0, 0, 255])
    picture.putpixel((1, 0), 1)
    image, _ = replace_image(folder, picture)
    assert image[:, 0, 0].tolist() == [255, 0, 0]
    assert image[:, 0, 1].tolist() == [0, 0, 255]


def test_a_transparent_palette_is_laid_on_white(folder):
    picture = Image.new("P", (6, 4))
    picture.putpalette([255, 0, 0, 0, 0, 255])
    picture.putpixel((1, 0), 1)
    picture.info["transparency"] = 1
    image, notes = replace_image(folder, picture)
    assert image[:, 0, 0].tolist() == [255, 0, 0]
    assert image[:, 0, 1].tolist() == [255, 255, 255]
    assert any("laid on white" in note for note in notes)


@pytest.mark.parametrize("name", ["deep.png", "deep.tif"])
def test_sixteen_bit_grey_is_scaled(folder, name):
    deep = np.zeros((4, 6), np.uint16)
    deep[0, :3] = (65535, 32896, 257)
    image, notes = replace_image(folder, Image.fromarray(deep), name)
    assert image[0, 0, :4].tolist() == [255, 128, 1, 0]
    assert "images: 1 have 16 bits and were scaled from 0..65535 to 0..255" in notes


def test_float_images_in_the_unit_range_are_scaled(folder):
    image, _ = replace_image(folder, Image.fromarray(np.full((4, 6), 0.5, np.float32)), "float.tif")
    assert (image == 128).all()
    with pytest.raises(
        DataError,
        match=r"image \'big.tif\' cannot be read \(its values run from 7 to 7; "
        "only 0 to 1 can be scaled",
    ):
        replace_image(folder, Image.fromarray(np.full((4, 6), 7, np.float32)), "big.tif")


def test_black_and_white_and_cmyk_are_converted(folder):
    bits = Image.fromarray(pixels_of(3, "L") > 127)
    image, _ = replace_image(folder, bits)
    np.testing.assert_array_equal(image[0], np.where(pixels_of(3, "L") > 127, 255, 0))
    image, _ = replace_image(folder, Image.new("CMYK", (6, 4), (0, 255, 255, 0)), "c.tif")
    assert image[:, 0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("grey", [0, 7])
def test_grey_among_colour_is_read_as_colour(folder, grey):
    Image.fromarray(pixels_of(grey, "L")).save(folder / f"{grey}.png")
    data = load_data(folder)
    images = images_by_number(data)
    for channel in range(3):
        np.testing.assert_array_equal(images[grey][channel], pixels_of(grey, "L"))
    np.testing.assert_array_equal(images[8], pixels_of(8).transpose(2, 0, 1))
    assert (
        "images: 1 are grey and 19 in colour, so all are read as colour; channels=1 makes all grey"
        in note_texts(data)
    )
    assert load_data(folder, channels=1).spec.image_shape == (1, 4, 6)
    with pytest.raises(UsageError, match="channels=2 must be 1"):
        load_data(folder, channels=2)


def test_only_the_first_frame_of_a_gif_is_read(folder):
    first, second = (Image.new("L", (6, 4), value) for value in (200, 10))
    first.save(folder / "3.gif", save_all=True, append_images=[second])
    change_cell(folder, 5, 0, "3.gif")
    assert (images_by_number(load_data(folder))[3] == 200).all()


# ---- size ------------------------------------------------------------------------------------
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
    # three pixels per wave in the small image
    waves = np.uint8(127.5 + 120 * np.sin(2 * np.pi * x / 12) * np.sin(2 * np.pi * y / 12))
    for i in range(N):
        Image.fromarray(waves).save(folder / f"{i}.jpg", quality=95)
    write_rows(folder, [["file", "number"]] + [[f"{i}.jpg", i] for i in range(N)])
    image = load_data(folder, size=40).train.images[0, 0].float().numpy()
    with Image.open(folder / "0.jpg") as large:
        expected = np.asarray(large.resize((40, 40), Image.Resampling.LANCZOS)).astype(float)
    assert expected.std() > 30
    assert np.abs(image - expected).mean() < 6


def test_the_error_on_different_sizes_names_two_files(folder):
    Image.fromarray(pixels_of(7, width=9)).save(folder / "7.png")
    with pytest.raises(
        DataError,
        match=r"\'0.png\' is 6 x 4 but \'7.png\' is 9 x 4 \(width x height\); "
        r"pass size= \(--size\) to resize them all",
    ):
        load_data(folder)
    assert load_data(folder, size=5).spec.image_shape == (3, 5, 5)


# ---- broken files ----------------------------------------------------------------------------
def test_a_corrupt_image_is_named(folder):
    content = (folder / "3.png").read_bytes()
    (folder / "3.png").write_bytes(content[: len(content) - 40])
    with pytest.raises(
        DataError, match=r"image '3.png' cannot be read \(.+\); replace it or remove its row"
    ):
        load_data(folder)
    (folder / "3.png").write_bytes(b"this is text")
    with pytest.raises(
        DataError, match=r"image '3.png' cannot be read \(not an image of a known format\)"
    ):
        load_data(folder)
    (folder / "3.png").write_bytes(b"")
    with pytest.raises(
        DataError, match=r"image '3.png' is an empty file \(0 bytes\); replace it or remove its row"
    ):
        load_data(folder)


# Pillow warns above its limit and refuses above twice that; the images have 24 pixels
@pytest.mark.parametrize("limit", [20, 6])
def test_a_decompression_bomb_is_an_error(folder, monkeypatch, limit):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(
        DataError, match=rf"image '0.png' is larger than {limit} pixels, which is refused as unsafe"
    ):
        load_data(folder)


def test_formats_that_start_other_programs_are_not_opened(folder):
    (folder / "3.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 6 4\n%%EndComments\n"
    )
    with pytest.raises(
        DataError, match=r"image '3.png' cannot be read \(not an image of a known format\)"
    ):
        load_data(folder)


def test_images_larger_than_the_memory_are_an_error(folder, monkeypatch):
    monkeypatch.setattr(
        os, "sysconf", lambda name: {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 20 * 72 - 1}[name]
    )
    with pytest.raises(DataError, match="of memory; pass a smaller size="):
        load_data(folder)
    assert len(load_data(folder, size=4).train)
