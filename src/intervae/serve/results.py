"""Tables of a folder of results: `results/NAME.json` with the figures `NAME*.png` beside it."""

from __future__ import annotations

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any

from intervae.serve import schemas

TEXTS = ("command", "revision", "hardware", "date")


class ResultsFolder:
    """The tables of a folder, listed once; a request names them by number only."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    @cached_property
    def tables(self) -> list[tuple[str, dict[str, Any], list[Path]]]:
        """Name, document and figures of every table that can be read."""
        if self.folder is None or not self.folder.is_dir():
            return []
        names = sorted(path.stem for path in self.folder.glob("*.json"))
        tables = []
        for name in names:
            document = _read(self.folder / f"{name}.json")
            if document is None:
                continue
            # a figure belongs to the table with the longest name that it begins with
            figures = [
                path
                for path in sorted(self.folder.glob(f"{glob_escape(name)}*.png"))
                if max((n for n in names if path.stem.startswith(n)), key=len) == name
            ]
            tables.append((name, document, figures))
        return tables

    def listing(self) -> schemas.ResultsAnswer:
        return schemas.ResultsAnswer(
            results=[
                schemas.ResultAnswer(
                    id=i,
                    name=name,
                    title=self._title(name),
                    date=str(document.get("date", "")),
                    rows=len(document["rows"]),
                    figures=len(figures),
                )
                for i, (name, document, figures) in enumerate(self.tables)
            ]
        )

    def table(self, number: int) -> schemas.TableAnswer:
        name, document, figures = self.tables[number]
        return schemas.TableAnswer(
            id=number,
            name=name,
            title=self._title(name),
            **{key: str(document.get(key, "")) for key in TEXTS},
            rows=[_row(row) for row in document["rows"] if isinstance(row, dict)],
            figures=[
                schemas.FigureAnswer(id=i, name=figure.name) for i, figure in enumerate(figures)
            ],
        )

    def figure(self, number: int, figure: int) -> bytes:
        return self.tables[number][2][figure].read_bytes()

    def _title(self, name: str) -> str:
        """Return the heading of NAME.md, or the name."""
        page = (self.folder or Path()) / f"{name}.md"
        if page.is_file():
            with page.open(encoding="utf-8", errors="replace") as lines:
                first = lines.readline().strip()
            if first.startswith("# "):
                return first[2:]
        return name


def glob_escape(text: str) -> str:
    """Return a name as a pattern that matches only itself."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)


def _read(path: Path) -> dict[str, Any] | None:
    """Return a document with rows; None for a file that has none."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return (
        document if isinstance(document, dict) and isinstance(document.get("rows"), list) else None
    )


def _row(row: dict[str, Any]) -> dict[str, Any]:
    """Return the columns that the page shows; a number that is not finite is None."""
    shown: dict[str, Any] = {
        key: str(row.get(key, "")) for key in ("data", "model", "variant", "metric")
    }
    for key in ("mean", "std", "paper"):
        value = row.get(key)
        shown[key] = value if isinstance(value, int | float) and math.isfinite(value) else None
    seeds = row.get("per_seed")
    return {**shown, "seeds": len(seeds) if isinstance(seeds, dict) else 0}
