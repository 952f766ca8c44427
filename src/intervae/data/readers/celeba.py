"""CelebA (Liu et al. 2015): aligned faces with 40 binary attributes.

CausalVAE (Yang et al. 2021) uses two sets of four: SMILE, with the paper's graph, and BEARD, for
which the paper states none. The data are for non-commercial research only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.build import build_dataset
from intervae.data.dataset import Dataset
from intervae.data.image_files import Box, Crop, read_images
from intervae.data.options import read_names
from intervae.data.pixel_arrays import as_size
from intervae.data.readers.archives import ImageEntry, open_images, read_text
from intervae.data.readers.file_source import FileSource, choose_rows
from intervae.data.variables import Variable
from intervae.errors import UsageError, unknown
from intervae.notes import Note

SOURCE = FileSource("CelebA", "celeba", "mmlab.ie.cuhk.edu.hk/projects/CelebA.html")
IMAGES = re.compile(r"(?:^|/)img_align_celeba/(\d{6}\.jpg)$")
WIDTH = 178  # pixels of the published aligned images, which are 218 high


@dataclass(frozen=True)
class Concept:
    """A variable from an attribute; `negated` if it means the opposite."""

    name: str
    attribute: str
    words: tuple[str, ...] = ("no", "yes")
    negated: bool = False


LABELS = {
    "smile": (
        Concept("gender", "Male", ("female", "male")),
        Concept("smile", "Smiling"),
        Concept("eyes_open", "Narrow_Eyes", negated=True),
        Concept("mouth_open", "Mouth_Slightly_Open"),
    ),
    "beard": (
        Concept("age", "Young", ("old", "young")),
        Concept("gender", "Male", ("female", "male")),
        Concept("bald", "Bald"),
        Concept("beard", "No_Beard", negated=True),
    ),
    "faces": (
        Concept("gender", "Male", ("female", "male")),
        Concept("age", "Young", ("old", "young")),
        Concept("smile", "Smiling"),
        Concept("eyes_open", "Narrow_Eyes", negated=True),
        Concept("mouth_open", "Mouth_Slightly_Open"),
        Concept("bald", "Bald"),
        Concept("beard", "No_Beard", negated=True),
        Concept("glasses", "Eyeglasses"),
    ),
}
GRAPHS = {"smile": (("gender", "eyes_open"), ("smile", "eyes_open"), ("smile", "mouth_open"))}


def celeba(
    *,
    labels: str = "smile",
    attributes: Sequence[str] | None = None,
    size: int | Sequence[int] = 64,
    crop: int | str = "square",
    samples: int | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """Read the aligned faces of CelebA from a folder or a zip.

    Arguments:
        labels: "smile" (gender, smile, eyes_open, mouth_open), "beard" (age, gender, bald,
            beard), or "faces" (those and glasses).
        attributes: any of the 40 attributes instead, by their published names; also as one text
            with commas.
        size: resize to this many pixels, square or (height, width).
        crop: "square" for the largest centre square, "none" for the full image, or the side of
            the centre square in pixels of the published width of 178.
        samples: number of images, drawn at random; default all.
        validation, test, seed: random splits, unless list_eval_partition.txt exists and leaves no
            split empty.
    """
    concepts = _concepts(labels, attributes)
    target, box = as_size(size) or (64, 64), _crop_box(crop)
    with _open_faces() as entries:
        files, table = _read_attributes([c.attribute for c in concepts])
        row_of = {name: row for row, name in enumerate(files)}
        labelled = [entry for entry in entries if entry.groups[0] in row_of]
        if not labelled:
            SOURCE.raise_missing("picture that list_attr_celeba.txt names")
        chosen = [labelled[row] for row in choose_rows(len(labelled), samples, seed)]
        images, notes = read_images(
            [entry.file for entry in chosen],
            [entry.name for entry in chosen],
            size=target,
            channels=3,
            crop=box,
        )
    values = table[[row_of[entry.groups[0]] for entry in chosen]]
    values = np.where([c.negated for c in concepts], 1 - values, values)
    partition = _read_partition([entry.groups[0] for entry in chosen])
    has_graph = attributes is None and labels in GRAPHS
    names = [c.name for c in concepts]
    dataset = build_dataset(
        "celeba",
        images,
        values,
        [Variable(c.name, "binary", categories=c.words) for c in concepts],
        validation=validation if partition is None else partition == 1,
        test=test if partition is None else partition == 2,
        seed=seed,
        graph=CausalGraph.from_edges(names, GRAPHS[labels]) if has_graph else None,
    )
    splits = (
        Note("random-splits", "", "splits: drawn at random")
        if partition is None
        else Note("predefined-splits", "", "splits: given by list_eval_partition.txt")
    )
    return replace(dataset, notes=(*notes, splits))


def _concepts(labels: str, attributes: Sequence[str] | None) -> tuple[Concept, ...]:
    if attributes is not None:
        names = read_names(attributes, "attributes")
        if not names or len(set(names)) != len(names):
            raise UsageError(
                f"attributes={attributes!r} must name different attributes, such as Smiling,Male."
            )
        return tuple(Concept(name, name) for name in names)
    if labels not in LABELS:
        raise unknown("labels", labels, LABELS)
    return LABELS[labels]


def _crop_box(crop: int | str) -> Crop | None:
    """Return the function from image size to crop box; None for the full image."""
    if crop == "none":
        return None
    is_number = isinstance(crop, int) and not isinstance(crop, bool) and 1 <= crop <= WIDTH
    if crop != "square" and not is_number:
        raise UsageError(
            f'crop={crop!r} must be "square", "none" or a number of pixels from 1 to {WIDTH}.'
        )
    fraction = int(crop) / WIDTH if is_number else 1.0

    def box(width: int, height: int) -> Box:
        side = min(fraction * width, height)
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side

    return box


@contextmanager
def _open_faces() -> Iterator[list[ImageEntry]]:
    """List the faces of the folder img_align_celeba, or of the first zip that has some.

    img_align_celeba.zip comes first, then the other zips by name.
    """
    archive = "img_align_celeba.zip"
    root = SOURCE.root(archive) / SOURCE.folder
    folders = [folder for folder in (root, root / "Img") if folder.is_dir()]
    zips = [
        path
        for folder in folders
        for path in folder.glob("*.zip")
        if not path.name.startswith("list_")
    ]
    zips.sort(key=lambda path: (path.name != archive, path.name))
    unpacked = [folder / "img_align_celeba" for folder in folders]
    for place in (*(path for path in unpacked if path.is_dir()), *zips):
        with open_images(SOURCE, place, IMAGES) as entries:
            if entries:
                yield entries
                return
    SOURCE.raise_missing(
        f"{archive} (or other zip, or folder img_align_celeba) "
        "with pictures img_align_celeba/000001.jpg"
    )


def _find_list(name: str, folder: str) -> Path | None:
    return SOURCE.find(f"{name}.txt", f"{folder}{os.sep}{name}.txt", f"{name}.zip")


def _read_attributes(attributes: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return the image of each row of list_attr_celeba.txt, and its attributes (N, a) as 0, 1."""
    path = _find_list("list_attr_celeba", "Anno") or SOURCE.raise_missing("list_attr_celeba.txt")
    lines = read_text(SOURCE, path, "list_attr_celeba.txt").splitlines()
    if len(lines) < 3 or not lines[0].strip().isdigit():
        SOURCE.raise_broken(
            path, "does not begin with the number of pictures and a line of attributes"
        )
    names, rows = lines[1].split(), lines[2:]
    if len(rows) != int(lines[0]):
        SOURCE.raise_broken(
            path, f"has {len(rows)} rows where its first line says {lines[0].strip()}"
        )
    for attribute in attributes:
        if attribute not in names:
            raise unknown("attribute", attribute, names)
    columns = [names.index(attribute) + 1 for attribute in attributes]
    files, table = [], np.empty((len(rows), len(columns)), np.uint8)
    codes = {"-1": 0, "1": 1}
    for row, line in enumerate(rows):
        cells = line.split()
        if len(cells) != len(names) + 1 or not all(cells[column] in codes for column in columns):
            SOURCE.raise_broken(
                path,
                f"has on line {row + 3} something else than a picture "
                f"and {len(names)} times 1 or -1",
            )
        files.append(cells[0])
        table[row] = [codes[cells[column]] for column in columns]
    return files, table


def _read_partition(files: Sequence[str]) -> np.ndarray | None:
    """Return the published split of each image: 0 training, 1 validation, 2 test.

    None without the file, or if it leaves a split empty.
    """
    path = _find_list("list_eval_partition", "Eval")
    if path is None:
        return None
    split_of: dict[str, int] = {}
    lines = read_text(SOURCE, path, "list_eval_partition.txt").splitlines()
    for number, line in enumerate(lines, 1):
        cells = line.split()
        if len(cells) != 2 or cells[1] not in ("0", "1", "2"):
            SOURCE.raise_broken(
                path, f"has on line {number} something else than a picture and 0, 1 or 2"
            )
        split_of[cells[0]] = int(cells[1])
    if any(name not in split_of for name in files):
        return None
    partition = np.array([split_of[name] for name in files])
    return partition if len(np.unique(partition)) == 3 else None
