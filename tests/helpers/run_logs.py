"""The metrics log of a run folder."""

import json
from pathlib import Path
from typing import Any


def read_lines(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl; NaN and Infinity, which are not JSON, are refused."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return [
        json.loads(line, parse_constant=refuse)
        for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
