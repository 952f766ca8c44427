"""The documentation site: every page is reachable from the menu, as `make docs` requires."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_every_page_is_in_the_menu() -> None:
    """Sphinx warns about other pages, and `make docs` turns warnings into errors."""
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    menus = re.findall(r"^:::\{toctree\}\n(.*?)^:::$", index, re.MULTILINE | re.DOTALL)
    entries = [
        line for menu in menus for line in menu.splitlines() if line and not line.startswith(":")
    ]
    pages = {
        str(path.relative_to(DOCS).with_suffix(""))
        for pattern in ("*.md", "*.rst", "tutorials/*.ipynb")
        for path in DOCS.glob(pattern)
    }
    assert pages - {"index"} == {entry for entry in entries if not entry.startswith("../")}
    assert len(entries) == len(set(entries))
