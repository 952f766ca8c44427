"""Omniglot (Lake et al. 2015): 32,460 drawings of 1,623 characters from 50 alphabets, as 28 x 28 grey pixels with ink = 255.

Three forms are read: chardata.mat with its own split of 24,345 + 8,070 (Burda et al. 2016), omniglot_28.npz, and the published PNGs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.images import Size, array_to_pixels, as_size, check_memory, read_images, resize_images
from intervae.data.readers.files import Home, choose_rows, open_npz, open_pictures, read_array
from intervae.errors import unknown

HOME = Home("Omniglot", "omniglot", "brendenlake/omniglot on GitHub (chardata.mat: yburda/iwae on GitHub)")
SIDE = 28  # pixels
TEST_SHARE = 8070 / (24345 + 8070)  # of chardata.mat
SETS = ("images_background", "images_evaluation")
PICTURES = re.compile(r"(?:^|/)(?:images_background|images_evaluation)/([^/]+)/character\d+/\d+_\d+\.png$")


@dataclass(frozen=True)
class Drawings:
    """What each form gives: pictures (N, 1, H, W) with ink 255, each one's alphabet (N,), and the mask (N,) of the test split if it has one."""

    images: np.ndarray
    alphabets: np.ndarray
    names: tuple[str, ...]  # of the alphabets, all of them; empty where the form does not tell
    test: np.ndarray | None
    note: str


def omniglot(
    *, file: str | None = None, size: int | Sequence[int] = SIDE, samples: int | None = None, validation: float = 0.1, seed: int = 0
) -> Dataset:
    """Read Omniglot.

    Arguments:
        file: "chardata", "npz" or "png" to say which form; without it the first of them that is there.
        size: resize to this many pixels, square or (height, width).
        samples: keep only this many drawings, drawn at random.
        validation, seed: the fraction of the training drawings that is kept for validation. Where the form has no split of its own, the
            test split is drawn at random too, as large a part as in chardata.mat.
    """
    wanted = as_size(size) or (SIDE, SIDE)
    if file is not None and file not in FORMS:
        raise unknown("file of omniglot", file, FORMS)
    found = next((drawings for form in ((file,) if file else FORMS) if (drawings := FORMS[form](wanted, samples, seed)) is not None), None)
    if found is None:
        wants = {"chardata": "chardata.mat", "npz": "omniglot_28.npz"}
        HOME.missing(wants.get(file or "", "images_background.zip or images_evaluation.zip"))
    variables = [Variable("alphabet", "categorical", categories=found.names)] if len(found.names) > 1 else []
    labels = found.alphabets.reshape(-1, 1)[:, : len(variables)]
    test = TEST_SHARE if found.test is None else found.test
    dataset = build_dataset("omniglot", found.images, labels, variables, validation=validation, test=test, seed=seed)
    said = "splits: the test drawings are " + ("drawn at random" if found.test is None else "given by the file")
    return replace(dataset, notes=(found.note, said))


def _chardata(size: Size, samples: int | None, seed: int) -> Drawings | None:
    """chardata.mat: `data` and `testdata` (784, N) in [0, 1], each drawing column by column; `target` (50, N) marks the alphabet."""
    path = HOME.find("chardata.mat")
    if path is None:
        return None
    from scipy.io import loadmat

    keys = ("data", "testdata", "target", "testtarget")
    with HOME.reading(path):
        content = loadmat(path, variable_names=keys)
        for key in keys[:2]:
            if key not in content or content[key].ndim != 2 or len(content[key]) != SIDE * SIDE:
                HOME.broken(path, f"has no array {key!r} of shape ({SIDE * SIDE}, N)")
        both = np.concatenate([content["data"], content["testdata"]], axis=1).T
        is_test = np.arange(len(both)) >= content["data"].shape[1]
        targets = [content[key] for key in keys[2:] if key in content]
        alphabets = np.concatenate([t.argmax(axis=0) for t in targets]) if len(targets) == 2 else np.zeros(len(both), np.int64)
        if len(alphabets) != len(both):
            HOME.broken(path, f"has {len(alphabets)} targets for {len(both)} drawings")
        rows = choose_rows(len(both), samples, seed)
        upright = both[rows].reshape(-1, SIDE, SIDE).transpose(0, 2, 1)
        images, _ = array_to_pixels(upright, path.name)
    return Drawings(resize_images(images, size), alphabets[rows], _numbered(alphabets), is_test[rows], "images: chardata.mat")


def _npz(size: Size, samples: int | None, seed: int) -> Drawings | None:
    """omniglot_28.npz: `images` (N, 28, 28) uint8 with ink 255 and `alphabet` (N,) numbers."""
    path = HOME.find("omniglot_28.npz")
    if path is None:
        return None
    with open_npz(HOME, path) as array:
        images = array("images")
        if images.shape[1:] != (SIDE, SIDE) or images.dtype != np.uint8:
            HOME.broken(path, f"has images of shape {images.shape} and type {images.dtype} where uint8 (N, {SIDE}, {SIDE}) is expected")
        check_memory(images.shape[0] * SIDE * SIDE, path.name, "check the file")
        alphabets = array("alphabet")
        if alphabets.shape != images.shape[:1] or alphabets.dtype.kind not in "iu":
            HOME.broken(path, f"has alphabets of shape {alphabets.shape} and type {alphabets.dtype} for {images.shape[0]} images")
        pixels, numbers = read_array(images), read_array(alphabets)
    rows = choose_rows(len(pixels), samples, seed)
    return Drawings(resize_images(pixels[rows][:, None], size), numbers[rows], _numbered(numbers), None, "images: omniglot_28.npz")


def _png(size: Size, samples: int | None, seed: int) -> Drawings | None:
    """images_background and images_evaluation, folders or zips, black ink on white: alphabet/character/drawing.png."""
    root = HOME.root("images_background.zip")
    places = [place for name in SETS if (place := _place(root, name)) is not None]
    if not places:
        return None
    return _read_pngs(places, size, samples, seed)


def _place(root: Path, name: str) -> Path | None:
    candidates = [folder / name for folder in (root / HOME.folder, root / HOME.folder / "python", root)]
    unpacked = next((path for path in candidates if path.is_dir()), None)
    return unpacked or next((path for c in candidates if (path := c.with_suffix(".zip")).is_file()), None)


def _read_pngs(places: Sequence[Path], size: Size, samples: int | None, seed: int) -> Drawings:
    with ExitStack() as stack:
        pictures = []
        for place in places:
            found = stack.enter_context(open_pictures(HOME, place, PICTURES))
            if not found:
                HOME.broken(place, "has no pictures alphabet/character01/0001_01.png in it")
            pictures += found
        chosen = [pictures[row] for row in choose_rows(len(pictures), samples, seed)]
        images, _ = read_images([p.file for p in chosen], [p.name for p in chosen], size=size, channels=1)
    names = sorted({picture.parts[0] for picture in pictures})
    alphabets = np.array([names.index(picture.parts[0]) for picture in chosen])
    return Drawings(255 - images, alphabets, tuple(names), None, f"images: {' and '.join(place.name for place in places)}")


def _numbered(codes: np.ndarray) -> tuple[str, ...]:
    """Names of alphabets that are told by number only."""
    return tuple(map(str, range(int(codes.max(initial=0)) + 1)))


FORMS: dict[str, Callable[[Size, int | None, int], Drawings | None]] = {"chardata": _chardata, "npz": _npz, "png": _png}
