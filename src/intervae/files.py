"""Atomic writes, locks of run folders, and errors for files that cannot be read or written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
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


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of files atomically; it replaces an earlier one as a whole.

    The files go to a temporary folder beside it, which is then renamed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    replaced = path.with_name(f".{path.name}.{os.getpid()}.old.tmp")
    try:
        temporary.mkdir(parents=True)
        for name, content in files.items():
            write_bytes(temporary / name, content)
        if path.exists():
            os.replace(path, replaced)
        os.replace(temporary, path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        if replaced.exists() and not path.exists():
            os.replace(replaced, path)
        for folder in (temporary, replaced):
            shutil.rmtree(folder, ignore_errors=True)


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


def parse_json(content: bytes, path: Path, what: str) -> Any:
    """Parse JSON; `path` and `what` (its role) name it in the error."""
    try:
        return json.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RunError(f"{path} ({what}) cannot be read: {error}.") from None


def read_json(path: Path, what: str) -> Any:
    """Parse a JSON file of a run; `what` names its role in the error."""
    try:
        return parse_json(path.read_bytes(), path, what)
    except FileNotFoundError:
        raise RunError(
            f"{path.parent} has no {path.name} ({what}), so it is not a complete run folder."
        ) from None
    except OSError as error:
        raise RunError(f"{path} ({what}) cannot be read: {error}.") from None
