"""Registries of models, data sets and metrics, open to other packages by entry points."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from intervae.errors import UsageError

Entry = TypeVar("Entry")


class PluginWarning(UserWarning):
    """An entry point of another package that cannot be used."""


class Registry(MutableMapping[str, Entry], Generic[Entry]):
    """Entries by name; entry points of other packages are loaded at the first lookup.

    An entry point that fails to load gives a `PluginWarning` and is left out.

    Arguments:
        kind: noun of an entry, as in "a model called ... is already registered".
        group: group of the entry points, such as "intervae.models".
        entries: the built-in entries.
        check: (name, object of an entry point) -> entry; raises an error for what is none.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        entries: Mapping[str, Entry] | None = None,
        check: Callable[[str, Any], Entry] = lambda name, entry: entry,
    ) -> None:
        self.kind, self.group, self.check = kind, group, check
        self._entries = dict(entries or {})
        self._loaded = False

    def add(self, name: str, entry: Entry) -> None:
        """Add an entry under a new name."""
        if name in self._entries:
            raise UsageError(
                f"a {self.kind} called {name!r} is already registered; choose another name."
            )
        self._entries[name] = entry

    def copy(self) -> Registry[Entry]:
        """Return a registry with the same entries."""
        return Registry(self.kind, self.group, dict(self), self.check)

    def _load(self) -> None:
        """Add the entry points of other packages, once."""
        if self._loaded:
            return
        self._loaded = True
        for point in entry_points(group=self.group):
            try:
                self.add(point.name, self.check(point.name, point.load()))
            except (Exception, SystemExit) as error:  # a plugin can fail in any way
                warnings.warn(self._refusal(point, error), PluginWarning, stacklevel=4)

    def _refusal(self, point: EntryPoint, error: BaseException) -> str:
        package = point.dist.name if point.dist is not None else point.module
        reason = " ".join(str(error).split()).rstrip(".")
        return (
            f"the {self.kind} {point.name!r} of the package {package!r} is left out "
            f"({type(error).__name__}: {reason}); repair or uninstall that package."
        )

    # ---- mapping ------------------------------------------------------------------------------
    def __getitem__(self, name: str) -> Entry:
        if name not in self._entries:
            self._load()
        return self._entries[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(dict(self._entries))

    def __len__(self) -> int:
        self._load()
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Registry({', '.join(self)})"
