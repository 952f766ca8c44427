"""Figures of a finished run, and for CMCL a report of links, confidence and diagnostics.

run_figures.py      figures of any run
page.py             report.html of a CMCL run, with link_sections.py, link_figures.py, svg.py,
                    markup.py and stylesheet.py
findings.py         the numbers of the report, with encoded_table.py and confidence.py
diagnostics.py      checks of assumptions, with column_dependence.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intervae.report.run_figures import (
    FIGURE_CLIPS,
    FIGURE_IMAGES,
    clip_frames,
    write_figures,
)

if TYPE_CHECKING:
    from intervae.report.page import can_report as can_report
    from intervae.report.page import write_report as write_report

__all__ = [
    "FIGURE_CLIPS",
    "FIGURE_IMAGES",
    "can_report",
    "clip_frames",
    "write_figures",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name in ("can_report", "write_report"):  # imported when first used: with matplotlib
        from intervae.report import page

        return getattr(page, name)
    raise AttributeError(f"module 'intervae.report' has no attribute {name!r}")
