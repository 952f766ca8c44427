"""Configuration of the documentation site: `make docs` builds build/site with Sphinx and MyST.

The source folder is the repository, so that links between docs/, results/ and ARCHITECTURE.md work
here as they do in the repository. The pages request nothing from other hosts.
"""

from __future__ import annotations

import re
from typing import Any

import intervae

project = "intervae"
author = "The intervae developers"
copyright = "The intervae developers, Apache-2.0"  # noqa: A001
version = release = intervae.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "results/*.md",
    "research/*.md",
    "benchmarks/results/*.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md",
]
exclude_patterns = ["docs/make_inventory.py", "docs/conf.py", "docs/site"]
nitpicky = False  # names of types in signatures are not links

# ---- Markdown and notebooks --------------------------------------------------------------------
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # the tests run the notebooks; the stored outputs are shown
nb_merge_streams = True
suppress_warnings = ["myst.header"]  # pages of results begin sections at any level

# ---- docstrings --------------------------------------------------------------------------------
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": False}


def escape_docstring(
    app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]
) -> None:
    """Turn a docstring of plain text into reStructuredText, in place.

    `code` becomes ``code``; stars, bars and trailing underscores lose their meaning. An indented
    block after a line that ends in a colon is literal, except for the sections of arguments.
    """
    result: list[str] = []
    for line in lines:
        code = re.split(r"(`[^`]+`)", line)
        text = "".join(
            f"`{each}`" if each.startswith("`") and len(each) > 1 else _escape(each)
            for each in code
        )
        result.append(text)
    lines[:] = result


def _escape(text: str) -> str:
    return re.sub(r"([*|`])|(?<=\w)_(?!\w)", lambda match: "\\" + match[0], text)


# ---- pages -------------------------------------------------------------------------------------
html_theme = "furo"  # light and dark, its own fonts and scripts, search in the browser
html_title = f"intervae {version}"
html_static_path: list[str] = []
html_extra_path = ["site"]  # index.html, which leads to docs/index.html
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", escape_docstring, priority=100)  # before napoleon
