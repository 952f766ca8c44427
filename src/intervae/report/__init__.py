"""What a run shows of itself when it is done: its pictures, and for CMCL a page with what was found and how far to trust it."""

from intervae.report.page import tells_of, write_report
from intervae.report.pictures import SHOWN, SHOWN_CLIPS, frames_of, write_figures

__all__ = ["SHOWN", "SHOWN_CLIPS", "frames_of", "tells_of", "write_figures", "write_report"]
