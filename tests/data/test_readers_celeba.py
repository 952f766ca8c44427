"""CelebA from a folder or a zip of small faces: labels, crop, published split, broken files."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from note_texts import note_texts
from PIL import Image

from intervae.data import load_data, reload
from intervae.errors import DataError, UsageError

ATTRIBUTES = ("Bald", "Male", "Mouth_Slightly_Open", "Narrow_Eyes", "No_Beard", "Smiling", "Young")
N = 40


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    (tmp_path / "celeba").mkdir()
    return tmp_path / "celeba"


def face(number: int, width: int = 178, height: int = 218) -> bytes:
    """Return a JPEG whose brightness is 5 times the number, red outside the centre square."""
    pixels = np.full((height, width, 3), 5 * number, np.uint8)
    band = (height - width) // 2
    pixels[:band] = pixels[-band:] = (255, 0, 0)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def table() -> np.ndarray:
    """Return (N, 7) of 0 and 1; every attribute varies."""
    return np.random.default_rng(0).integers(0, 2, (N, len(ATTRIBUTES)))


def attribute_text() -> str:
    rows = [
        f"{i + 1:06}.jpg " + " ".join(f"{2 * int(v) - 1:2d}" for v in row)
        for i, row in enumerate(table())
    ]
    return "\n".join([str(N), " ".join(ATTRIBUTES) + " ", *rows]) + "\n"


def write_faces(
    path: Path, *, prefix: str = "img_align_celeba/", skip: int | None = None, **shape: int
) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(N):
            archive.writestr(
                f"{prefix}{i + 1:06}.jpg", b"\xff\xd8 not a face" if i == skip else face(i, **shape)
            )


@pytest.fixture
def zipped(home) -> Path:
    write_faces(home / "some_faces.zip")
    (home / "list_attr_celeba.txt").write_text(attribute_text())
    return home


def numbers(images: torch.Tensor) -> np.ndarray:
    """Return the number of each face, from the brightness of its middle."""
    return np.rint(
        images[:, :, images.shape[2] // 2, images.shape[3] // 2].float().mean(1).numpy() / 5
    ).astype(int)


def test_smile_has_the_labels_and_the_graph_of_the_paper(zipped):
    data = load_data("celeba")
    assert data.names == ("gender", "smile", "eyes_open", "mouth_open")
    assert data.spec.image_shape == (3, 64, 64)
    assert data.graph is not None
    assert {edge[:2] for edge in data.graph.edges} == {
        ("gender", "eyes_open"),
        ("smile", "eyes_open"),
        ("smile", "mouth_open"),
    }
    assert all(v.kind == "binary" for v in data.variables)
    assert data.spec.variable("gender").categories == ("female", "male")
    column = {name: table()[:, i] for i, name in enumerate(ATTRIBUTES)}
    for split in data.splits.values():
        rows = numbers(split.images)
        expected = [
            column["Male"][rows],
            column["Smiling"][rows],
            1 - column["Narrow_Eyes"][rows],
            column["Mouth_Slightly_Open"][rows],
        ]
        assert np.array_equal(split.labels.numpy(), np.stack(expected, axis=1))
    assert note_texts(data) == ("splits: drawn at random",)
    assert torch.equal(reload(data.source).train.images, data.train.images)


def test_beard_has_no_graph_and_attributes_are_selected_by_name(zipped):
    data = load_data("celeba", labels="beard")
    assert data.names == ("age", "gender", "bald", "beard")
    assert data.graph is None
    rows, column = (
        numbers(data.train.images),
        {name: table()[:, i] for i, name in enumerate(ATTRIBUTES)},
    )
    expected = [
        column["Young"][rows],
        column["Male"][rows],
        column["Bald"][rows],
        1 - column["No_Beard"][rows],
    ]
    assert np.array_equal(data.train.labels.numpy(), np.stack(expected, axis=1))
    for attributes in (("Young", "Smiling"), ["Young", "Smiling"], "Young, Smiling"):
        own = load_data("celeba", attributes=attributes)
        assert own.names == ("Young", "Smiling")
        assert own.graph is None
        assert np.array_equal(
            own.train.labels.numpy(), table()[numbers(own.train.images)][:, [6, 5]]
        )
    with pytest.raises(UsageError, match="unknown attribute 'Smilin'; did you mean 'Smiling'"):
        load_data("celeba", attributes=["Smilin"])
    with pytest.raises(UsageError, match="unknown labels 'bread'; did you mean 'beard'"):
        load_data("celeba", labels="bread")
    with pytest.raises(UsageError, match="must name different attributes"):
        load_data("celeba", attributes=["Bald", "Bald"])


@pytest.mark.parametrize(
    ("place", "inside"),
    [
        ("img_align_celeba.zip", "img_align_celeba/"),
        ("Img/img_align_celeba.zip", "img_align_celeba/"),
        ("a.zip", "img_align_celeba/img_align_celeba/"),
    ],
)
def test_zips_in_the_usual_places_are_read(home, place, inside):
    (home / place).parent.mkdir(exist_ok=True)
    write_faces(home / place, prefix=inside)
    with zipfile.ZipFile(home / "list_attr_celeba.zip", "w") as archive:
        archive.writestr("list_attr_celeba.txt", attribute_text())
    data = load_data("celeba", samples=20, size=16)
    assert np.array_equal(data.train.labels[:, 0].numpy(), table()[numbers(data.train.images), 1])


def test_a_folder_of_pictures_gives_the_same_as_a_zip(zipped, tmp_path):
    from_zip = load_data("celeba", size=32)
    (zipped / "img_align_celeba").mkdir()
    with zipfile.ZipFile(zipped / "some_faces.zip") as archive:
        for name in archive.namelist():
            (zipped / name).write_bytes(archive.read(name))
    (zipped / "some_faces.zip").unlink()
    (zipped / "img_align_celeba" / "readme.txt").write_text("ignored")
    # not in the table
    (zipped / "img_align_celeba" / "999999.jpg").write_bytes(face(1))
    from_folder = load_data("celeba", size=32)
    assert torch.equal(from_zip.train.images, from_folder.train.images)
    assert torch.equal(from_zip.test.labels, from_folder.test.labels)


def red(images: torch.Tensor) -> torch.Tensor:
    """Return (N, H, W): whether a pixel is red."""
    return (images[:, 0] > 200) & (images[:, 1] < 80)


def test_crop_keeps_the_centre(zipped):
    square, everything = (
        load_data("celeba", size=64).train.images,
        load_data("celeba", size=(218, 178), crop="none").train.images,
    )
    assert not red(square)[:, 2:-2].any()
    assert red(everything)[:, :18].all()
    assert red(everything)[:, -18:].all()
    assert not red(everything)[:, 22:-22].any()
    assert load_data("celeba", size=64, crop=100).train.images.shape == square.shape
    for wrong in (0, 179, "centre", None, True, 1.5):
        with pytest.raises(
            UsageError,
            match=r'crop=.* must be "square", "none" or a number of pixels from 1 to 178',
        ):
            load_data("celeba", crop=wrong)


def test_a_crop_in_pixels_is_the_same_part_of_a_smaller_copy(home):
    """A horizontal ramp cropped to half the width shows its middle half."""
    (home / "list_attr_celeba.txt").write_text(attribute_text())
    profiles = []
    for width, height in ((178, 218), (89, 109)):
        ramp = np.repeat(
            np.repeat(np.linspace(0, 250, width)[None, :, None], height, 0), 3, 2
        ).astype(np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(ramp).save(buffer, "JPEG", quality=98)
        with zipfile.ZipFile(home / "faces.zip", "w") as archive:
            for i in range(N):
                archive.writestr(f"img_align_celeba/{i + 1:06}.jpg", buffer.getvalue())
        profiles.append(load_data("celeba", size=20, crop=89).train.images[0].float().mean((0, 1)))
    middle = torch.linspace(62.5, 187.5, 41)[1::2]  # pixel centres of the middle half
    for columns in profiles:
        assert (columns - middle).abs().max() < 3


def test_large_jpegs_decoded_at_a_fraction_show_the_same_part(home):
    """Eight times the size, so that the decoder shrinks: the crop must shrink with it."""
    (home / "list_attr_celeba.txt").write_text(attribute_text())
    write_faces(home / "faces.zip", width=178 * 8, height=218 * 8)
    images = load_data("celeba", size=16, samples=20).train.images
    assert not red(images)[:, 1:-1].any()
    assert red(load_data("celeba", size=16, samples=20, crop="none").train.images)[:, 0].all()


# ---- the published split ---------------------------------------------------------------------
def partition(splits: list[int]) -> str:
    """Return the text of list_eval_partition.txt."""
    return "".join(f"{i + 1:06}.jpg {split}\n" for i, split in enumerate(splits))


def test_the_published_split_is_used_unless_it_leaves_one_empty(zipped):
    (zipped / "list_eval_partition.txt").write_text(partition([0] * 24 + [1] * 6 + [2] * 10))
    data = load_data("celeba", size=16)
    assert note_texts(data) == ("splits: given by list_eval_partition.txt",)
    assert [sorted(numbers(s.images)) for s in data.splits.values()] == [
        list(range(24)),
        list(range(24, 30)),
        list(range(30, 40)),
    ]
    (zipped / "list_eval_partition.txt").write_text(partition([0] * N))
    assert note_texts(load_data("celeba", size=16)) == ("splits: drawn at random",)
    (zipped / "list_eval_partition.txt").write_text(partition([0, 1, 2]))
    assert note_texts(load_data("celeba", size=16)) == ("splits: drawn at random",)
    (zipped / "list_eval_partition.txt").write_text("000001.jpg 3\n")
    with pytest.raises(
        DataError,
        match=r"list_eval_partition.txt has on line 1 something else than a picture and 0, 1 or 2",
    ):
        load_data("celeba", size=16)


# ---- broken files ----------------------------------------------------------------------------
def test_a_corrupt_jpeg_in_a_zip_is_named(zipped):
    write_faces(zipped / "some_faces.zip", skip=7)
    with pytest.raises(
        DataError,
        match=r"^image 'some_faces.zip: img_align_celeba/000008.jpg' cannot be read \(.*\); "
        r"replace it or remove its row\.$",
    ):
        load_data("celeba", size=16)


def test_zips_without_pictures_are_skipped_and_no_zip_is_an_error(home):
    with zipfile.ZipFile(home / "other.zip", "w") as archive:
        archive.writestr("faces/000001.jpg", face(1))
        archive.writestr("../img_align_celeba.jpg", face(1))
    (home / "list_attr_celeba.txt").write_text(attribute_text())
    with pytest.raises(
        DataError,
        match=r"there is no img_align_celeba.zip .* with pictures img_align_celeba/000001.jpg "
        "in .*celeba; get it from mmlab",
    ):
        load_data("celeba")
    write_faces(home / "z.zip")
    assert len(load_data("celeba", size=8).train) == 29


def test_nothing_of_a_zip_is_written_to_disk(zipped, tmp_path):
    with zipfile.ZipFile(zipped / "some_faces.zip", "a") as archive:
        archive.writestr("../../img_align_celeba/000041.jpg", face(1))
    before = sorted(tmp_path.rglob("*"))
    load_data("celeba", size=8)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_zip_is_named(zipped):
    content = (zipped / "some_faces.zip").read_bytes()
    (zipped / "some_faces.zip").write_bytes(content[: len(content) // 2])
    with pytest.raises(
        DataError, match=r"^some_faces.zip cannot be read \(.*\); get it again from mmlab"
    ):
        load_data("celeba")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: "", "does not begin with the number of pictures"),
        (lambda t: t.partition("\n")[2], "does not begin with the number of pictures"),
        (lambda t: t[: len(t) // 2], r"has \d+ rows where its first line says 40"),
        (
            lambda t: t.replace("000003.jpg -1", "000003.jpg"),
            "has on line 5 something else than a picture and 7 times 1 or -1",
        ),
        (lambda t: t.replace(" 1", " 2"), "has on line 3 something else"),
    ],
)
def test_a_broken_table_is_named(zipped, change, message):
    text = attribute_text()
    text = text.replace("000003.jpg  1", "000003.jpg -1")
    (zipped / "list_attr_celeba.txt").write_text(change(text))
    with pytest.raises(
        DataError, match=rf"^list_attr_celeba.txt {message}.*; get it again from mmlab"
    ):
        load_data("celeba")


def test_a_missing_table_and_one_without_these_images_are_an_error(zipped):
    (zipped / "list_attr_celeba.txt").write_text(attribute_text().replace(".jpg", ".png"))
    with pytest.raises(DataError, match=r"there is no picture that list_attr_celeba.txt names in"):
        load_data("celeba")
    (zipped / "list_attr_celeba.txt").unlink()
    with pytest.raises(
        DataError, match=r"there is no list_attr_celeba.txt in .*celeba; get it from mmlab"
    ):
        load_data("celeba")
    with zipfile.ZipFile(zipped / "list_attr_celeba.zip", "w") as archive:
        archive.writestr("notes.txt", "")
    with pytest.raises(DataError, match=r"list_attr_celeba.zip has no list_attr_celeba.txt inside"):
        load_data("celeba")
