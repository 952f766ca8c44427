"""Conditions of a measurement (machine, load, versions), and the files that benchmarks write."""

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
from intervae.models.environment import revision, versions


def conditions(command: str, packages: Sequence[str] = ()) -> dict[str, Any]:
    """Return command, revision, date, machine, load and versions, with those of `packages`."""
    installed: dict[str, str] = {}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[package] = importlib.metadata.version(package)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, one thread used"
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    return {
        "command": command,
        "revision": revision(),
        "date": when,
        "machine": machine,
        "load_at_start": load,
        "versions": versions() | installed,
    }


def footer(document: dict[str, Any]) -> list[str]:
    """Return the last lines of a page: the conditions and the command."""
    packages = ", ".join(f"{name} {number}" for name, number in document["versions"].items())
    machine = f"{document['machine']}, load {document['load_at_start']} at the start"
    line = f"{machine}, revision {document['revision']}, {document['date']}; {packages}."
    return [line, "Made by:", "", "```", document["command"], "```", ""]


def write_results(out: Path, document: dict[str, Any], page: str) -> None:
    """Write OUT.json and OUT.md."""
    write_json(out.with_suffix(".json"), document)
    write_text(out.with_suffix(".md"), page)
