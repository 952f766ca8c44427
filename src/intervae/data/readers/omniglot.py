"""Omniglot (Lake et al. 2015): 32,460 drawings of 1,623 characters from 50 alphabets.

The images are 28 x 28 grey pixels with ink = 255. Three forms are read: chardata.mat with its
split of 24,345 + 8,070 (Burda et al. 2016), omniglot_28.npz, and the published PNGs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.image_files import read_images
from intervae.data.memory import check_memory
from intervae.data.pixel_arrays import Size, array_to_pixels, as_size, resize_images
from intervae.data.readers.archives import open_images, open_npz
from intervae.data.readers.file_source import FileSource, choose_rows
from intervae.data.variables import Variable
from intervae.errors import unknown
from intervae.notes import Note

SOURCE = FileSource(
    "Omniglot", "omniglot", "brendenlake/omniglot on GitHub (chardata.mat: yburda/iwae on GitHub)"
)
SIDE = 28  # pixels
TEST_FRACTION = 8070 / (24345 + 8070)  # of chardata.mat
SETS = ("images_background", "images_evaluation")
IMAGES = re.compile(
    r"(?:^|/)(?:images_background|images_evaluation)/([^/]+)/character\d+/\d+_\d+\.png$"
)


@dataclass(frozen=True)
class Drawings:
    """What each form contains.

    Arguments:
        images: (N, 1, H, W) uint8 with ink 255.
        alphabets: (N,) codes.
        names: names of the alphabets.
        test: mask (N,) of the test split, or None.
        file: the files read.
    """

    images: np.ndarray
    alphabets: np.ndarray
    names: tuple[str, ...]
    test: np.ndarray | None
    file: str


def omniglot(
    *,
    file: str | None = None,
    size: int | Sequence[int] = SIDE,
    samples: int | None = None,
    validation: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Read Omniglot.

    Arguments:
        file: form to read, "chardata", "npz" or "png"; default the first that exists.
        size: resize to this many pixels, square or (height, width).
        samples: number of drawings, drawn at random; default all.
        validation, seed: fraction of the training drawings for validation. A form without a split
            gets a random test split, as large a fraction as in chardata.mat.
    """
    target = as_size(size) or (SIDE, SIDE)
    if file is not None and file not in FORMS:
        raise unknown("file of omniglot", file, FORMS)
    forms = (read(target, samples, seed) for read in ([FORMS[file]] if file else FORMS.values()))
    drawings = next((form for form in forms if form is not None), None)
    if drawings is None:
        files = {"chardata": "chardata.mat", "npz": "omniglot_28.npz"}
        SOURCE.raise_missing(
            files.get(file or "", "images_background.zip or images_evaluation.zip")
        )
    variables = []
    if len(drawings.names) > 1:
        variables.append(Variable("alphabet", "categorical", categories=drawings.names))
    dataset = build_dataset(
        "omniglot",
        drawings.images,
        drawings.alphabets.reshape(-1, 1)[:, : len(variables)],
        variables,
        validation=validation,
        test=TEST_FRACTION if drawings.test is None else drawings.test,
        seed=seed,
    )
    splits = (
        Note("random-splits", "", "splits: the test drawings are drawn at random")
        if drawings.test is None
        else Note("predefined-splits", "", "splits: the test drawings are given by the file")
    )
    return replace(dataset, notes=(Note("source-file", "", f"images: {drawings.file}"), splits))


def _read_chardata(size: Size, samples: int | None, seed: int) -> Drawings | None:
    """Read chardata.mat: `data` and `testdata` (784, N) in [0, 1], each drawing transposed.

    `target` (50, N) is the alphabet in one-hot form.
    """
    path = SOURCE.find("chardata.mat")
    if path is None:
        return None
    from scipy.io import loadmat

    keys = ("data", "testdata", "target", "testtarget")
    with SOURCE.reading(path):
        content = loadmat(path, variable_names=keys)
        for key in keys[:2]:
            if key not in content or content[key].ndim != 2 or len(content[key]) != SIDE * SIDE:
                SOURCE.raise_broken(path, f"has no array {key!r} of shape ({SIDE * SIDE}, N)")
        drawings = np.concatenate([content["data"], content["testdata"]], axis=1).T
        count = len(drawings)
        is_test = np.arange(count) >= content["data"].shape[1]
        targets = [content[key] for key in keys[2:] if key in content]
        alphabets = (
            np.concatenate([t.argmax(axis=0) for t in targets])
            if len(targets) == 2
            else np.zeros(count, np.int64)
        )
        if len(alphabets) != count:
            SOURCE.raise_broken(path, f"has {len(alphabets)} targets for {count} drawings")
        rows = choose_rows(count, samples, seed)
        upright = drawings[rows].reshape(-1, SIDE, SIDE).transpose(0, 2, 1)
        images, _ = array_to_pixels(upright, path.name)
    return Drawings(
        resize_images(images, size),
        alphabets[rows],
        _number_names(alphabets),
        is_test[rows],
        "chardata.mat",
    )


def _read_npz(size: Size, samples: int | None, seed: int) -> Drawings | None:
    """Read omniglot_28.npz: `images` (N, 28, 28) uint8 with ink 255, `alphabet` (N,) numbers."""
    path = SOURCE.find("omniglot_28.npz")
    if path is None:
        return None
    with open_npz(SOURCE, path) as open_array:
        images = open_array("images")
        if images.shape[1:] != (SIDE, SIDE) or images.dtype != np.uint8:
            SOURCE.raise_broken(
                path,
                f"has images of shape {images.shape} and type {images.dtype} "
                f"where uint8 (N, {SIDE}, {SIDE}) is expected",
            )
        check_memory(images.shape[0] * SIDE * SIDE, path.name, "check the file")
        alphabets = open_array("alphabet")
        if alphabets.shape != images.shape[:1] or alphabets.dtype.kind not in "iu":
            SOURCE.raise_broken(
                path,
                f"has alphabets of shape {alphabets.shape} and type {alphabets.dtype} "
                f"for {images.shape[0]} images",
            )
        pixels, codes = images.read(), alphabets.read()
    rows = choose_rows(len(pixels), samples, seed)
    return Drawings(
        resize_images(pixels[rows][:, None], size),
        codes[rows],
        _number_names(codes),
        None,
        "omniglot_28.npz",
    )


def _read_png(size: Size, samples: int | None, seed: int) -> Drawings | None:
    """Read images_background and images_evaluation, folders or zips, black ink on white.

    The paths are alphabet/character/drawing.png.
    """
    root = SOURCE.root("images_background.zip")
    places = [place for name in SETS if (place := _find_set(root, name)) is not None]
    if not places:
        return None
    with ExitStack() as stack:
        entries = []
        for place in places:
            listed = stack.enter_context(open_images(SOURCE, place, IMAGES))
            if not listed:
                SOURCE.raise_broken(place, "has no pictures alphabet/character01/0001_01.png in it")
            entries += listed
        chosen = [entries[row] for row in choose_rows(len(entries), samples, seed)]
        images, _ = read_images(
            [entry.file for entry in chosen],
            [entry.name for entry in chosen],
            size=size,
            channels=1,
        )
    names = sorted({entry.groups[0] for entry in entries})
    alphabets = np.array([names.index(entry.groups[0]) for entry in chosen])
    files = " and ".join(place.name for place in places)
    return Drawings(255 - np.asarray(images), alphabets, tuple(names), None, files)


def _find_set(root: Path, name: str) -> Path | None:
    """Return the folder `name`, or else its zip."""
    folder = root / SOURCE.folder
    candidates = [place / name for place in (folder, folder / "python", root)]
    zips = [candidate.with_suffix(".zip") for candidate in candidates]
    unpacked = next((path for path in candidates if path.is_dir()), None)
    return unpacked or next((path for path in zips if path.is_file()), None)


def _number_names(codes: np.ndarray) -> tuple[str, ...]:
    """Return "0", "1", ... for alphabets without names."""
    return tuple(map(str, range(int(codes.max(initial=0)) + 1)))


FORMS: dict[str, Callable[[Size, int | None, int], Drawings | None]] = {
    "chardata": _read_chardata,
    "npz": _read_npz,
    "png": _read_png,
}
