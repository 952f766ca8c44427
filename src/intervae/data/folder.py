"""A folder of images, with a `labels.csv` where they have labels: one row per image, one column per variable, no path in it trusted."""

from __future__ import annotations

import csv
import io
import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.data.base import Dataset, build_dataset
from intervae.data.columns import MISSING, decide_columns
from intervae.data.images import SUFFIXES, as_size, read_images
from intervae.errors import DataError, UsageError, unknown

FILE_COLUMNS = ("file", "filename", "image", "path")
FEWEST = 4  # rows: two to train on, for in one no column varies, and one each for validation and test
SPLITS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
    "testing": "test",
}


def load_folder(
    folder: str | Path,
    *,
    size: int | Sequence[int] | None = None,
    variables: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    validation: float = 0.1,
    test: float = 0.2,
    seed: int = 0,
    group: str | None = None,
    channels: int | None = None,
) -> Dataset:
    """Read a folder of images with `labels.csv` and, if it is there, the true graph in `graph.json`; without a table all images, no labels.

    Arguments:
        size: resize every image to this many pixels, square or (height, width).
        variables: the columns to use, in this order; all of them without it.
        kinds: column -> "continuous", "binary" or "categorical" where the inferred kind is not the right one.
        validation, test: fractions; a column called `split` decides instead where there is one.
        group: a column such as `patient`: rows with the same value stay in the same split.
        channels: 1 reads everything as grey, 3 as colour.
    """
    if channels not in (None, 1, 3):
        raise UsageError(f"channels={channels!r} must be 1 (grey) or 3 (colour).")
    root = Path(os.path.abspath(folder))
    has_table = os.path.lexists(root / "labels.csv")
    table = read_table(root / "labels.csv") if has_table else _without_table(root)
    if group is not None and group not in table.columns:
        raise unknown("group column", group, table.columns)
    paths, ignored = _locate(root, table)
    seen = [*table.notes, *([f"images: {len(ignored)} not in labels.csv and ignored, such as {ignored[0]!r}"] if ignored else [])]
    with _telling(seen):
        if has_table:
            _refuse_few(table, len(ignored))
        not_variables = [name for name in table.columns if name in ("split", group)]
        columns = decide_columns(table.columns, rows=len(table), where=table.where, variables=variables, kinds=kinds, not_variables=not_variables)
        groups = table.complete(group) if group is not None else None
        masks = _given_split(table, groups, group)
        images, said = read_images(paths, table.files, size=as_size(size), channels=channels)
        dataset = build_dataset(
            root.name,
            images,
            columns.labels,
            columns.variables,
            validation=validation if masks is None or "validation" not in masks else masks["validation"],
            test=test if masks is None else masks["test"],
            seed=seed,
            groups=groups,
            graph=_true_graph(root / "graph.json", [v.name for v in columns.variables]) if has_table else None,
        )
    if masks is not None:
        said.append(
            "splits: given by the column 'split'" + ("" if "validation" in masks else ", which names no validation rows: a part of train is drawn")
        )
    return replace(dataset, notes=(*columns.notes, *seen, *said))


@contextmanager
def _telling(notes: Sequence[str]) -> Iterator[None]:
    """Errors of the data carry these notes: what was left aside may be why."""
    try:
        yield
    except DataError as error:
        for note in notes:
            error.add_note(note)
        raise


def _refuse_few(table: Table, ignored: int) -> None:
    """Refuse a table that cannot be split, before anything is said of columns that vary too little in so few rows."""
    if len(table) < FEWEST:
        rows = "a single row with an image" if len(table) == 1 else f"{len(table)} rows with an image each"
        beside = f" and {ignored} images without a row" if ignored else ""
        raise DataError(
            f"{table.path} has {rows}{beside}, but {FEWEST} rows are the least to split (two to train on, one to validate, one to test), and a model "
            "takes hundreds; add rows."
        )


# ---- labels.csv ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Table:
    """`labels.csv` as text: the image of each row, the line it stands on, and the other columns."""

    path: Path
    files: list[str]
    lines: list[int]
    columns: dict[str, np.ndarray]
    notes: list[str]

    def __len__(self) -> int:
        return len(self.files)

    def where(self, row: int) -> str:
        return f"{self.path.name}, line {self.lines[row]}"

    def complete(self, name: str) -> np.ndarray:
        """A column (N,) of text without gaps."""
        for row, value in enumerate(self.columns[name]):
            if value.lower() in MISSING:
                raise DataError(f"{self.where(row)}: {name!r} has no value; fill it in or remove the row.")
        return self.columns[name]


def read_table(path: Path) -> Table:
    """Read a table of text cells; the separator is the comma, or the semicolon or tab where the header has no comma."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DataError(f"there is no {path.name} in {path.parent}; write one with a row per image: its file name, then its variables.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text; save it again as CSV UTF-8.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check what it is and its permissions.") from None
    first = text.lstrip("\r\n").partition("\n")[0]
    separator = next((mark for mark in ",;\t" if mark in first), ",")
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True, strict=True)
    try:
        numbered = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise DataError(f"{path.name}, line {reader.line_num}: this is not valid CSV ({error}); correct the quotes there.") from None
    if len(numbered) < 2:
        raise DataError(f"{path} has {'a header but no rows' if numbered else 'nothing in it'}; write one row per image below a header.")
    return _checked(path, numbered[0][1], numbered[1:])


def _checked(path: Path, header: list[str], numbered: list[tuple[int, list[str]]]) -> Table:
    for name in header:
        if name and header.count(name) > 1:
            raise DataError(f"{path.name}: the column {name!r} appears twice in the header; rename or remove one.")
    for line, row in numbered:
        if len(row) != len(header):
            raise DataError(
                f"{path.name}, line {line}: {len(row)} cells for {len(header)} columns; add or remove cells, or quote a text that holds a separator."
            )
    lowered = [name.lower() for name in header]
    file_at = next((lowered.index(name) for name in FILE_COLUMNS if name in lowered), 0)
    cells = list(zip(*(row for _, row in numbered), strict=True))
    nameless = [at + 1 for at, name in enumerate(header) if not name and at != file_at]
    notes = [f"labels: column {at} has no name and was left out" for at in nameless]
    columns = {name: np.array(cells[at], dtype=object) for at, name in enumerate(header) if name and at != file_at}
    return Table(path, list(cells[file_at]), [line for line, _ in numbered], columns, notes)


def _without_table(root: Path) -> Table:
    """The table of a folder that has none: all of its images by name, and no column."""
    files = sorted(_listed(root))
    if not files:
        raise DataError(
            f"there is no labels.csv in {root}, and no image ({', '.join(sorted(SUFFIXES))}) either; put images there, with a labels.csv "
            "if they have labels."
        )
    notes = ["labels: there is no labels.csv, so all images are taken, without labels"]
    if (root / "graph.json").exists():
        notes.append("graph: graph.json is left aside, as there are no labels")
    return Table(root / "labels.csv", files, list(range(len(files))), {}, notes)


def _given_split(table: Table, groups: np.ndarray | None, group: str | None) -> dict[str, np.ndarray] | None:
    """The masks (N,) of a `split` column: always of test, of validation where it is named; None without such a column."""
    if "split" not in table.columns:
        return None
    words = table.complete("split")
    for row, word in enumerate(words):
        if word.lower() not in SPLITS:
            raise DataError(
                f"{table.where(row)}: 'split' is {word!r}; write train, validation or test, or rename the column if it means something else."
            )
    split = np.array([SPLITS[word.lower()] for word in words])
    for name in ("train", "test"):
        if not (split == name).any():
            raise DataError(f"{table.path.name}: the column 'split' names no {name} rows; mark some, or remove the column to split at random.")
    if groups is not None:
        first: dict[str, int] = {}
        for row, member in enumerate(groups):
            other = first.setdefault(member, row)
            if split[other] != split[row]:
                here, there = f"in {split[row]} here", f"in {split[other]} on line {table.lines[other]}"
                raise DataError(f"{table.where(row)}: {group} {member!r} is {here} but {there}; keep it in one split.")
    return {name: split == name for name in ("validation", "test") if (split == name).any()}


def _true_graph(path: Path, names: list[str]) -> CausalGraph | None:
    if not path.exists():
        return None
    try:
        graph = CausalGraph.from_json(path.read_text(encoding="utf-8"))
    except (DataError, UnicodeDecodeError, OSError) as error:
        raise DataError(f"{path}: {error}") from None
    return restrict_graph(graph, names, path.name)


def restrict_graph(graph: CausalGraph, names: Sequence[str], where: str) -> CausalGraph:
    """The true graph over the chosen variables only, which must all be in it."""
    for name in names:
        if name not in graph.names:
            raise DataError(f"{where} does not have the variable {name!r}; add it there, or choose others with variables= (--variables).")
    if not graph.is_acyclic:
        raise DataError(f"{where} has a cycle, so it cannot be the true causal graph; remove one of its edges.")
    return graph.subgraph(names)


# ---- the files it names -------------------------------------------------------------------------------------------------
def _locate(root: Path, table: Table) -> tuple[list[Path], list[str]]:
    """Where each row's image is, and the images that no row names."""
    found = _listed(root)
    used: dict[str, int] = {}
    paths = []
    for row, written in enumerate(table.files):
        name = written if written in found else _relative(written, table.where(row))
        if name in used:
            raise DataError(f"{table.where(row)}: the image {written!r} already stands on line {table.lines[used[name]]}; keep one row per image.")
        used[name] = row
        paths.append(found[name] if name in found else _unlisted(root, name, written, table.where(row), found))
    return paths, [name for name in found if name not in used]


def _listed(root: Path) -> dict[str, Path]:
    """Relative name -> path of the images below `root`."""
    try:
        return dict(_images_below(root))
    except OSError as error:
        raise DataError(f"{error.filename} cannot be listed ({error.strerror}); check its permissions.") from None


def _images_below(root: Path) -> list[tuple[str, Path]]:
    """The plain image files below `root`, by relative name; links and hidden files are not followed or listed."""
    found, folders = [], [(root, "")]
    while folders:
        folder, prefix = folders.pop()
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda e: e.name):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append((Path(entry.path), f"{prefix}{entry.name}/"))
                elif entry.is_file(follow_symlinks=False) and os.path.splitext(entry.name)[1].lower() in SUFFIXES:
                    found.append((unicodedata.normalize("NFC", prefix + entry.name), Path(entry.path)))
    return found


def _relative(written: str, where: str) -> str:
    """The name of an image as labels.csv writes it, checked to point inside the folder."""
    if not written:
        raise DataError(f"{where}: the image has no file name; write one or remove the row.")
    windows = PureWindowsPath(written)
    name = PurePosixPath(written.replace("\\", "/"))
    if name.is_absolute() or windows.drive or ".." in name.parts or "\0" in written:
        raise DataError(f"{where}: the image {written!r} lies outside the folder; write its path relative to the folder, without '..'.")
    return unicodedata.normalize("NFC", name.as_posix())


def _unlisted(root: Path, name: str, written: str, where: str, found: Mapping[str, Path]) -> Path:
    """An image that is not a plain file below `root`: reached by a link that stays inside, or else an error."""
    path = root / name
    if not path.exists():
        stem = PurePosixPath(name).stem.lower()
        near = next((other for other in found if PurePosixPath(other).stem.lower() == stem), None)
        advice = f"did you mean {near!r}?" if near else "correct its name or remove the row."
        raise DataError(f"{where}: the image {written!r} is not in the folder; {advice}")
    if not path.resolve().is_relative_to(root.resolve()):
        raise DataError(f"{where}: the image {written!r} is a link that leaves the folder; copy the file into it.")
    if not path.is_file():
        raise DataError(f"{where}: {written!r} is a folder or a device, not an image file; correct its name or remove the row.")
    return path
