"""Decorators that compile numerical loops with numba when they are first called.

Machine code is kept in `INTERVAE_CACHE/compiled` (or where NUMBA_CACHE_DIR says), in a folder named
after the source of the function and of all that it calls: an edit of any of them compiles anew, an
installation that cannot be written to is no obstacle, and processes share the files, which numba
replaces atomically. numba reads them as code, so a folder that others can write to is not used.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from intervae.files import cache_folder

_COMPILING = threading.RLock()  # numba's configuration is global
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Compiled:
    """A function that numba compiles at its first call, with all marked functions it calls.

    Arguments:
        function: plain Python in numba's subset.
        is_inner: whether only compiled code calls it, which makes it compile faster.
    """

    def __init__(self, function: Callable[..., Any], is_inner: bool) -> None:
        self.function, self.is_inner = function, is_inner
        self._dispatcher: Any = None
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled function, outside the interpreter lock."""
        if self._dispatcher is None:
            with _COMPILING:
                self.dispatcher()
        return self._dispatcher(*arguments)

    def dispatcher(self) -> Any:
        """Return numba's function, without compiling it yet."""
        if self._dispatcher is None:
            function = self._with_dispatchers()
            self._dispatcher = _inner(function) if self.is_inner else _cached(function, self)
        return self._dispatcher

    def called(self) -> Iterator[tuple[str, Compiled]]:
        """Yield the names and the marked functions that this one calls."""
        for name in self.function.__code__.co_names:
            value = self.function.__globals__.get(name)
            if isinstance(value, Compiled):
                yield name, value

    def fingerprint(self) -> str:
        """Return a hash of the source files of this function and of all that it calls."""
        functions, open_ones = {id(self): self}, [self]
        while open_ones:
            for _, other in open_ones.pop().called():
                if id(other) not in functions:
                    functions[id(other)] = other
                    open_ones.append(other)
        files = sorted({f.function.__code__.co_filename for f in functions.values()})
        digest = hashlib.sha256()
        for file in files:
            digest.update(Path(file).read_bytes())
        return digest.hexdigest()[:16]

    def _with_dispatchers(self) -> Any:
        """Return the function with numba's functions in the place of those that it calls."""
        function = self.function
        known = dict(function.__globals__)
        known |= {name: other.dispatcher() for name, other in self.called() if other is not self}
        copy = types.FunctionType(
            function.__code__, known, function.__name__, function.__defaults__, function.__closure__
        )
        return functools.update_wrapper(copy, function)


def compiled(function: Callable[..., Any]) -> Any:
    """Compile to code that releases the interpreter lock, cached on disk where possible."""
    return Compiled(function, is_inner=False)


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function that is called from compiled code only."""
    return Compiled(function, is_inner=True)


def _inner(function: Any) -> Any:
    from numba import njit

    settings: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return njit(**settings)(function)


def _cached(function: Any, source: Compiled) -> Any:
    """Return the compiled function with its cache on disk, or without one."""
    import numba

    config: Any = numba.config  # its attributes are set when it is read
    njit: Any = numba.njit
    before = config.CACHE_DIR
    try:
        config.CACHE_DIR = before or str(_code_folder(source.fingerprint()))
        return njit(nogil=True, cache=True)(function)
    except (OSError, RuntimeError):  # no folder can be written, or none that is ours alone
        return njit(nogil=True)(function)
    finally:
        config.CACHE_DIR = before


def _code_folder(fingerprint: str) -> Path:
    """Return a folder for machine code that only this user can write to."""
    folder = cache_folder() / "compiled" / fingerprint
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (folder.parent, folder):
        state = os.stat(path)
        is_ours = not hasattr(os, "getuid") or state.st_uid == os.getuid()
        if not is_ours or state.st_mode & _OTHERS_WRITE:
            raise PermissionError(f"{path} belongs to somebody else, or others can write to it.")
    return folder
