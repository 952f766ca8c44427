"""Registry of data sets by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from intervae.data.dataset import Dataset
from intervae.errors import UsageError
from intervae.registry import Registry

Loader = Callable[..., Dataset]


@dataclass(frozen=True)
class DatasetEntry:
    """A registered data set.

    Arguments:
        description: one line.
        needs: what it needs besides intervae, such as files; "nothing".
        open_loader: imports what is needed and returns the loader, a function whose keyword-only
            arguments are the data set's options. Listing the data sets calls none of them.
    """

    name: str
    description: str
    needs: str
    open_loader: Callable[[], Loader] = field(repr=False)


def check_loader(name: str, loader: Any) -> DatasetEntry:
    """Return the entry of a loader from an entry point; its docstring is the description."""
    if not callable(loader):
        raise UsageError(f"{loader!r} is not a function that returns a Dataset.")
    description = (inspect.getdoc(loader) or name).splitlines()[0]
    return DatasetEntry(name, description, "its package", lambda: loader)


DATASETS: Registry[DatasetEntry] = Registry("data set", "intervae.datasets", check=check_loader)


def register(name: str, description: str, needs: str, open_loader: Callable[[], Loader]) -> None:
    """Register a data set, so that `load_data(name, ...)` loads it.

    The loader gets those of `size`, `validation`, `test`, `seed`, `group` and `kinds` that it
    takes.
    """
    DATASETS.add(name, DatasetEntry(name, description, needs, open_loader))


def register_dataset(
    name: str, loader: Loader, description: str = "", needs: str = "nothing"
) -> None:
    """Register a function that returns a `Dataset`, so that `load_data(name, ...)` calls it.

    Its keyword-only arguments are the options of the data set; of `size`, `validation`, `test`,
    `seed`, `group` and `kinds` it gets those that it takes. A package can instead declare an
    entry point of the group "intervae.datasets", whose name is that of the data set.
    """
    entry = check_loader(name, loader)
    register(name, description or entry.description, needs, entry.open_loader)


def datasets() -> list[DatasetEntry]:
    """Return the registered data sets, sorted by name."""
    return [DATASETS[name] for name in sorted(DATASETS)]
