"""Limit of memory of this process, errors that mean too little of it, and their sentence."""

from __future__ import annotations

import contextlib
import errno
import platform

# texts of torch, the dynamic loader, OpenMP and LLVM
TEXTS = (
    "can't allocate memory",
    "cannot allocate memory",
    "unable to allocate",
    "failed to map segment",
    "can't start new thread",
    "out of memory",
    "bad_alloc",
    "size calculation overflowed",
    "overflow when unpacking",
)
NEEDED = 3 * 2**29  # bytes of address space; a small training took 1.2 GiB


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or one from which it was raised, means too little memory."""
    while error is not None:
        if (
            isinstance(error, MemoryError)
            or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
            or type(error).__name__ == "OutOfMemoryError"  # torch is not imported for it
            or any(text in str(error).lower() for text in TEXTS)
        ):
            return True
        error = error.__cause__ or error.__context__
    limit = address_limit()  # with little, imports fail in many ways
    return limit is not None and limit < NEEDED


def address_limit() -> int | None:
    """Return the limit of `ulimit -v` in bytes, None without one."""
    with contextlib.suppress(ImportError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        return None if soft == resource.RLIM_INFINITY else soft
    return None


def check_address_limit() -> None:
    """Raise an error for a `ulimit -v` with which torch fails or never ends its start."""
    limit = address_limit()
    if limit is not None and limit < NEEDED:
        raise MemoryError


def out_of_memory() -> str:
    """Return the sentence for too little memory."""
    limit = address_limit()
    if limit is not None:
        return (
            f"not enough memory: this process may use {limit / 2**30:.1f} GiB (`ulimit -v`); raise "
            "the limit, or use smaller images (--size), fewer of them, or a smaller --set "
            "batch_size."
        )
    return (
        "not enough memory; use smaller images (--size), fewer of them, or a smaller --set "
        "batch_size."
    )


def keep_freed_memory() -> bool:
    """Let freed memory stay with this process, and return whether that is possible (glibc).

    A training step frees what the next one needs again. Given back to the system in between, its
    pages are cleared anew in every step, a fifth of the CPU time of small networks.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    import ctypes

    mmap_threshold, trim_threshold = -3, -1  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD of malloc.h
    library = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError):
        options = ((mmap_threshold, 2**30), (trim_threshold, 2**31 - 1))
        return all(library.mallopt(option, value) == 1 for option, value in options)
    return False
