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
    "benchmarks/README.md",
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
nb_output_stderr = "remove"  # progress of the training
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

    `code` becomes ``code``; stars, bars and trailing underscores lose their meaning. What is
    returned becomes a list. The sections of arguments are those of Google's style.
    """
    result: list[str] = []
    in_returns = False
    for line in lines:
        if re.match(r"Returns\b.*:$", line):
            in_returns = True
            result += [f"**Returns**{_escape(line.removeprefix('Returns'))}", ""]
            continue
        in_returns = in_returns and (not line or line.startswith(" "))
        if in_returns:  # one item per line `name: meaning`, continued with a deeper indent
            line = re.sub(r"^    (?=\w+: )", "- ", line)
            in_list = any(each.startswith("- ") for each in result)
            line = re.sub(r"^ {4,8}", "  " if in_list else "", line)
        result.append("".join(map(_mark, re.split(r"(`[^`]+`)", line))))
    lines[:] = result


def _mark(text: str) -> str:
    is_code = text.startswith("`") and len(text) > 1
    return f"`{text}`" if is_code else _escape(text)


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
