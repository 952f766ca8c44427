"""What a measured number depends on beside what is measured, and the JSON and the page that a benchmark writes."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from intervae.files import write_json, write_text
from intervae.models.storage import revision, versions


def conditions(command: str, packages: Sequence[str] = ()) -> dict[str, Any]:
    """Command, revision, date, machine, load and versions, those of `packages` included where they are installed."""
    installed: dict[str, str] = {}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[package] = importlib.metadata.version(package)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, one thread used"
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    return {"command": command, "revision": revision(), "date": when, "machine": machine, "load_at_start": load, "versions": versions() | installed}


def told(document: dict[str, Any]) -> list[str]:
    """The last lines of a page: the conditions, and the command that makes it again."""
    used = ", ".join(f"{name} {number}" for name, number in document["versions"].items())
    where = f"{document['machine']}, load {document['load_at_start']} at the start, revision {document['revision']}, {document['date']}; {used}."
    return [where, "Made by:", "", "```", document["command"], "```", ""]


def write(out: Path, document: dict[str, Any], page: str) -> None:
    """OUT.json and the page made of it, OUT.md."""
    write_json(out.with_suffix(".json"), document)
    write_text(out.with_suffix(".md"), page)
