"""Decorators that compile numerical loops with numba.

numba's cache on disk notices changes of a compiled function's own file only: after editing an
`inner` function that another file calls, delete `__pycache__`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

_WITHOUT_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner = njit(**_WITHOUT_WRAPPERS)  # for functions called from compiled code only; compiles faster


def compiled(function: Callable[..., Any]) -> Any:
    """Compile to code that releases the interpreter lock; cache it on disk where possible."""
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # numba has no writable cache folder
        return njit(nogil=True)(function)
