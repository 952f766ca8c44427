"""Atomic writes, locks of run folders, and errors for files that cannot be read or written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from intervae.errors import RunError


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: `path` holds the old or the new bytes, never a mixture.

    The bytes go to a temporary file in the same folder, which is flushed and then renamed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:  # Ctrl-C included
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` at the end, and is removed after an error.

    So `path` is complete or does not exist. It may exist before as an empty folder.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            what = "is a file" if path.is_file() else "is not empty"
            raise RunError(f"{path} {what}; choose another folder for the output.")
        temporary.mkdir(parents=True)
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:  # Ctrl-C included
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(
                f"no space left to write {path}, so nothing was written; free some space, or "
                "choose another folder."
            ) from error
        if isinstance(error, OSError):
            raise cannot_write(path / "output", error) from error
        raise


def leftovers(folder: Path) -> list[Path]:
    """Return temporary files in `folder` of processes that were killed during `write_bytes`."""
    return [
        path
        for path in folder.glob(".*.tmp")
        if path.name.removesuffix(".tmp").rpartition(".")[2].isdigit()
    ]


@contextlib.contextmanager
def only_writer(folder: Path | None) -> Iterator[None]:
    """Lock a run folder during training, so that no second process writes into it.

    The lock ends with the process. Nothing is locked if the folder does not exist yet or the
    system has no such locks.
    """
    lock = None
    try:
        import fcntl

        if folder is not None and folder.is_dir():
            lock = os.open(folder, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass
    except OSError as error:  # other errors: no locks here, or a folder that cannot be read
        if lock is not None and error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            os.close(lock)
            raise RunError(
                f"{folder} is being trained by another process; "
                "wait for its end, or choose another out= (--out)."
            ) from None
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def cannot_write(path: Path, error: OSError) -> RunError:
    """Return the error for a write that failed."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            f"no space left to write {path}; free some and go on with resume=True (--resume): "
            "what was written before is intact."
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return RunError(
            f"{path.parent} cannot be written to ({error.strerror}); "
            "choose another folder or change its permissions."
        )
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return RunError(f"{path.parent} is not a folder; choose another place for the output.")
    return RunError(f"{path} could not be written ({error.strerror or error}).")


def read_json(path: Path, what: str) -> Any:
    """Parse a JSON file of a run; `what` names its role in the error."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(
            f"{path.parent} has no {path.name} ({what}), so it is not a complete run folder."
        ) from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RunError(f"{path} ({what}) cannot be read: {error}.") from None
