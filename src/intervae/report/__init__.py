"""Figures of a finished run, and for CMCL a report of links, confidence and diagnostics.

run_figures.py      figures of any run
page.py             report.html of a CMCL run, with link_sections.py, link_figures.py, svg.py,
                    markup.py and stylesheet.py
findings.py         the numbers of the report, with encoded_table.py and confidence.py
diagnostics.py      checks of assumptions, with column_dependence.py
"""

from intervae.report.page import can_report, write_report
from intervae.report.run_figures import (
    FIGURE_CLIPS,
    FIGURE_IMAGES,
    clip_frames,
    write_figures,
)

__all__ = [
    "FIGURE_CLIPS",
    "FIGURE_IMAGES",
    "can_report",
    "clip_frames",
    "write_figures",
    "write_report",
]
