"""Regular files only, atomic writes, locks of run folders, and errors of reading and writing."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import io
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from intervae.errors import RunError, UsageError

CACHE_VARIABLE = "INTERVAE_CACHE"  # environment variable
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


# ---- reading ------------------------------------------------------------------------------------
def check_regular(path: str | Path) -> None:
    """Raise an OSError for a path that is missing or not a regular file.

    Opening a named pipe waits for a writer, and a device may have no end. Every file of a user is
    therefore checked here before it is opened.
    """
    _check_mode(path, os.stat(path).st_mode)


def _check_mode(path: str | Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder, not a file", str(path))
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a regular file for reading bytes; another kind of path raises an OSError at once."""
    check_regular(path)
    # does not wait if the path has become a pipe since
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_mode(path, os.fstat(number).st_mode)
    except OSError:
        os.close(number)
        raise
    return os.fdopen(number, "rb")


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """Return the text of a regular file; every kind of line end becomes a newline."""
    with io.TextIOWrapper(open_regular(path), encoding=encoding) as file:
        return file.read()


def parse_json(content: bytes, path: Path, what: str) -> Any:
    """Parse JSON; `path` and `what` (its role) name it in the error."""
    try:
        return json.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RunError(f"{path} ({what}) cannot be read: {error}.") from None


def read_json(path: Path, what: str) -> Any:
    """Parse a JSON file of a run; `what` names its role in the error."""
    try:
        with open_regular(path) as file:
            return parse_json(file.read(), path, what)
    except FileNotFoundError:
        raise RunError(
            f"{path.parent} has no {path.name} ({what}), so it is not a complete run folder."
        ) from None
    except OSError as error:
        raise RunError(f"{path} ({what}) cannot be read: {error.strerror or error}.") from None


def as_path(value: Any, name: str) -> Path:
    """Return the path of an argument called `name`; what cannot be one raises a UsageError."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        text = " ".join(repr(value).split())[:80]
        raise UsageError(f"{name}={text} is not a path; give the path of a file or folder.")
    try:
        path = Path(value)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            os.lstat(path)
    except (OSError, TypeError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or error)
        raise UsageError(f"{name}={str(value)[:80]!r} is not a path ({reason}).") from None
    return path


# ---- writing ------------------------------------------------------------------------------------


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
def new_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that becomes `path` at the end, and is removed after an error.

    So `path` is complete or does not exist. It may exist before as an empty folder, or as any
    folder with `replace`, which is then replaced as a whole.
    """
    temporary, replaced = (
        path.with_name(f".{path.name}.{os.getpid()}{s}.tmp") for s in ("", ".old")
    )
    try:
        if path.is_file() or (path.is_dir() and any(path.iterdir()) and not replace):
            what = "is a file" if path.is_file() else "is not empty"
            raise RunError(f"{path} {what}; choose another folder for the output.")
        temporary.mkdir(parents=True)
        yield temporary
        if replace and path.exists():
            os.replace(path, replaced)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise RunError(
                f"no space left to write {path}, so nothing was written; free some space, or "
                "choose another folder."
            ) from error
        raise cannot_write(path / "output", error) from error
    finally:  # after Ctrl-C too
        if replaced.exists() and not path.exists():
            os.replace(replaced, path)
        for folder in (temporary, replaced):
            shutil.rmtree(folder, ignore_errors=True)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of files atomically; it replaces an earlier one as a whole."""
    with new_folder(path, replace=True) as folder:
        for name, content in files.items():
            write_bytes(folder / name, content)


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


def backup_path(path: Path) -> Path:
    """Return NAME.bak beside a file."""
    return path.with_name(f"{path.name}.bak")


@contextlib.contextmanager
def keep_until_complete(paths: Iterable[Path]) -> Iterator[None]:
    """Keep files as NAME.bak while they are rewritten, and remove the copies at the end.

    After an error or a kill the copies of changed files stay. One of an earlier attempt is not
    replaced: it is what was there before. A file that is appended to must end in .jsonl.
    """
    paths = list(paths)
    for path in paths:
        copy = backup_path(path)
        try:
            if path.is_file() and not copy.exists():
                if path.suffix == ".jsonl":
                    write_bytes(copy, path.read_bytes())
                else:
                    _link_or_copy(path, copy)
        except OSError as error:
            raise cannot_write(copy, error) from error
    try:
        yield
    except BaseException:  # Ctrl-C included
        paths = [path for path in paths if _same_content(path, backup_path(path))]
        raise
    finally:
        for path in paths:
            backup_path(path).unlink(missing_ok=True)


def _same_content(path: Path, copy: Path) -> bool:
    if not (path.is_file() and copy.is_file()):
        return False
    return os.path.samefile(path, copy) or filecmp.cmp(path, copy, shallow=False)


def _link_or_copy(path: Path, copy: Path) -> None:
    """Keep the content of a file that will be replaced; a link takes no space."""
    try:
        os.link(path, copy)
    except OSError:  # a file system without hard links
        write_bytes(copy, path.read_bytes())


def write_text(path: Path, text: str) -> None:
    """Write UTF-8; a byte of a file name that is not UTF-8 is written as an escape."""
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


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


# ---- folders ------------------------------------------------------------------------------------
def cache_folder() -> Path:
    """Return the folder INTERVAE_CACHE, by default `intervae` in the user's cache folder."""
    setting = os.environ.get(CACHE_VARIABLE, "")
    if setting:
        return Path(os.path.abspath(Path(setting).expanduser()))
    user = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(user) if os.path.isabs(user) else Path.home() / ".cache") / "intervae"
