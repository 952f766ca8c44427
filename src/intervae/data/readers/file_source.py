"""FileSource: where the files of a published data set are on disk, and where to get them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from intervae.errors import DataError, IntervaeError, MissingDataError, UsageError
from intervae.files import check_regular

VARIABLE = "INTERVAE_DATA"  # environment variable


@dataclass(frozen=True)
class FileSource:
    """Location of a published data set.

    Arguments:
        title: name of the data set in errors.
        folder: its folder below INTERVAE_DATA; files in INTERVAE_DATA itself are found too.
        page: public page to get the files from.
    """

    title: str
    folder: str
    page: str

    def root(self, file: str) -> Path:
        """Return the folder INTERVAE_DATA; without one, an error says how to get `file`."""
        setting = os.environ.get(VARIABLE, "")
        if not setting:
            raise MissingDataError(
                f"{self.title} is read from your disk: get {file} from {self.page}, put it into "
                f"{self.folder}/ in a folder of your choice, and set the environment variable "
                f"{VARIABLE} to that folder."
            )
        root = Path(os.path.abspath(Path(setting).expanduser()))
        if not root.is_dir():
            raise MissingDataError(
                f"{VARIABLE} is {setting!r}, which is not a folder; "
                f"set it to the one that holds {self.folder}/{file}."
            )
        return root

    def find(self, *names: str) -> Path | None:
        """Return the first of these files that exists."""
        root = self.root(names[0])
        places = [folder / name for name in names for folder in (root / self.folder, root)]
        return next((path for path in places if os.path.isfile(path)), None)

    def require(self, *names: str) -> Path:
        """Return the first of these files that exists, or raise an error."""
        return self.find(*names) or self.raise_missing(names[0])

    def raise_missing(self, file: str) -> NoReturn:
        """Raise the error for a file that does not exist."""
        raise MissingDataError(
            f"there is no {file} in {self.root(file) / self.folder}; "
            f"get it from {self.page} and put it there."
        )

    def raise_broken(self, path: Path, problem: str) -> NoReturn:
        """Raise the error for a file with unexpected content."""
        raise DataError(f"{path.name} {problem}; get it again from {self.page}.")

    @contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        """Turn whatever a damaged file raises into one sentence; a pipe is not opened."""
        try:
            if not path.is_dir():
                check_regular(path)
            yield
        except (IntervaeError, MemoryError):
            raise
        except Exception as error:  # a damaged file may raise nearly anything
            text = str(getattr(error, "strerror", None) or error)
            reason = " ".join(text.split()).rstrip(".") or type(error).__name__
            self.raise_broken(path, f"cannot be read ({reason})")


def choose_rows(n: int, samples: int | None, seed: int) -> np.ndarray:
    """Return `samples` of n row numbers at random, sorted; all of them for None."""
    if samples is None:
        return np.arange(n)
    if (
        isinstance(samples, bool)
        or not isinstance(samples, int | np.integer)
        or not 1 <= samples <= n
    ):
        raise UsageError(
            f"samples={samples!r} must be a whole number from 1 to {n}, "
            "the number of images that there are."
        )
    return np.sort(np.random.default_rng([seed, 1]).choice(n, int(samples), replace=False))
