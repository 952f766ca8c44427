"""CelebA (Liu et al. 2015): aligned faces with 40 yes/no attributes, of which CausalVAE (Yang et al. 2021) uses two sets of four.

SMILE has the paper's graph; the paper states none for BEARD. The data are for non-commercial research only.
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
from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.images import Crop, as_size, read_images
from intervae.data.readers.files import Home, Picture, choose_rows, open_pictures, read_text
from intervae.errors import UsageError, unknown

HOME = Home("CelebA", "celeba", "mmlab.ie.cuhk.edu.hk/projects/CelebA.html")
PICTURES = re.compile(r"(?:^|/)img_align_celeba/(\d{6}\.jpg)$")
WIDTH, HEIGHT = 178, 218  # of the published aligned pictures


@dataclass(frozen=True)
class Concept:
    """A variable made of an attribute; `negated` where it says the opposite."""

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
        labels: "smile" (gender, smile, eyes_open, mouth_open) or "beard" (age, gender, bald, beard).
        attributes: any of the 40 attributes instead, by their published names; also as one text with commas.
        size: resize to this many pixels, square or (height, width).
        crop: "square" keeps the largest centre square, a number the centre square of so many of the 178 published pixels (of a picture
            that was published smaller, the same part), "none" everything.
        samples: keep only this many pictures, drawn at random.
        validation, test, seed: random splits; list_eval_partition.txt decides instead where it is there and leaves no split empty.
    """
    concepts = _concepts(labels, attributes)
    wanted, part = as_size(size) or (64, 64), _crop(crop)
    with _pictures() as pictures:
        files, table = _read_attributes([c.attribute for c in concepts])
        row_of = {name: row for row, name in enumerate(files)}
        known = [picture for picture in pictures if picture.parts[0] in row_of]
        if not known:
            HOME.missing("picture that list_attr_celeba.txt names")
        chosen = [known[row] for row in choose_rows(len(known), samples, seed)]
        images, notes = read_images([p.file for p in chosen], [p.name for p in chosen], size=wanted, channels=3, crop=part)
    values = table[[row_of[picture.parts[0]] for picture in chosen]]
    values = np.where([c.negated for c in concepts], 1 - values, values)
    official = _partition([picture.parts[0] for picture in chosen])
    dataset = build_dataset(
        "celeba",
        images,
        values,
        [Variable(c.name, "binary", categories=c.words) for c in concepts],
        validation=validation if official is None else official == 1,
        test=test if official is None else official == 2,
        seed=seed,
        graph=CausalGraph.from_edges([c.name for c in concepts], GRAPHS[labels]) if attributes is None and labels in GRAPHS else None,
    )
    said = "splits: drawn at random" if official is None else "splits: given by list_eval_partition.txt"
    return replace(dataset, notes=(*notes, said))


def _concepts(labels: str, attributes: Sequence[str] | None) -> tuple[Concept, ...]:
    if attributes is not None:
        names = [name.strip() for name in attributes.split(",")] if isinstance(attributes, str) else list(attributes)
        if not names or len(set(names)) != len(names):
            raise UsageError(f"attributes={attributes!r} must name different attributes, such as Smiling,Male.")
        return tuple(Concept(name, name) for name in names)
    if labels not in LABELS:
        raise unknown("labels", labels, LABELS)
    return LABELS[labels]


def _crop(crop: int | str) -> Crop | None:
    if crop == "none":
        return None
    is_number = isinstance(crop, int) and not isinstance(crop, bool) and 1 <= crop <= WIDTH
    if crop != "square" and not is_number:
        raise UsageError(f'crop={crop!r} must be "square", "none" or a number of pixels from 1 to {WIDTH}.')
    share = int(crop) / WIDTH if is_number else 1.0

    def box(width: int, height: int) -> tuple[float, float, float, float]:
        side = min(share * width, height)
        left, top = (width - side) / 2, (height - side) / 2
        return left, top, left + side, top + side

    return box


@contextmanager
def _pictures() -> Iterator[list[Picture]]:
    """The faces of the folder img_align_celeba, or else of the first zip that has some: img_align_celeba.zip, then the others by name."""
    wanted = "img_align_celeba.zip"
    root = HOME.root(wanted) / HOME.folder
    folders = [folder for folder in (root, root / "Img") if folder.is_dir()]
    zips = [path for folder in folders for path in folder.glob("*.zip") if not path.name.startswith("list_")]
    unpacked = [folder / "img_align_celeba" for folder in folders if (folder / "img_align_celeba").is_dir()]
    for place in (*unpacked, *sorted(zips, key=lambda path: (path.name != wanted, path.name))):
        with open_pictures(HOME, place, PICTURES) as found:
            if found:
                yield found
                return
    HOME.missing(f"{wanted} (or other zip, or folder img_align_celeba) with pictures img_align_celeba/000001.jpg")


def _find(name: str, folder: str) -> Path | None:
    return HOME.find(f"{name}.txt", f"{folder}{os.sep}{name}.txt", f"{name}.zip")


def _read_attributes(attributes: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The picture of each row of list_attr_celeba.txt, and its chosen attributes (N, a) as 0 and 1."""
    path = _find("list_attr_celeba", "Anno") or HOME.missing("list_attr_celeba.txt")
    lines = read_text(HOME, path, "list_attr_celeba.txt").splitlines()
    if len(lines) < 3 or not lines[0].strip().isdigit():
        HOME.broken(path, "does not begin with the number of pictures and a line of attributes")
    names, rows = lines[1].split(), lines[2:]
    if len(rows) != int(lines[0]):
        HOME.broken(path, f"has {len(rows)} rows where its first line says {lines[0].strip()}")
    for attribute in attributes:
        if attribute not in names:
            raise unknown("attribute", attribute, names)
    columns = [names.index(attribute) + 1 for attribute in attributes]
    files, table = [], np.empty((len(rows), len(columns)), np.uint8)
    codes = {"-1": 0, "1": 1}
    for row, line in enumerate(rows):
        cells = line.split()
        if len(cells) != len(names) + 1 or not all(cells[column] in codes for column in columns):
            HOME.broken(path, f"has on line {row + 3} something else than a picture and {len(names)} times 1 or -1")
        files.append(cells[0])
        table[row] = [codes[cells[column]] for column in columns]
    return files, table


def _partition(files: Sequence[str]) -> np.ndarray | None:
    """The published split of each picture (0 training, 1 validation, 2 test); None where it is not there or leaves one of them empty."""
    path = _find("list_eval_partition", "Eval")
    if path is None:
        return None
    parts: dict[str, int] = {}
    for number, line in enumerate(read_text(HOME, path, "list_eval_partition.txt").splitlines(), 1):
        cells = line.split()
        if len(cells) != 2 or cells[1] not in ("0", "1", "2"):
            HOME.broken(path, f"has on line {number} something else than a picture and 0, 1 or 2")
        parts[cells[0]] = int(cells[1])
    if any(name not in parts for name in files):
        return None
    of_each = np.array([parts[name] for name in files])
    return of_each if len(np.unique(of_each)) == 3 else None
