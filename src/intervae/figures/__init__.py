"""Every plot. Figures know arrays, graphs and the answers of queries, not models; each writes one PNG or SVG, by the suffix of its path."""

from intervae.figures.curves import scatter, training_curves
from intervae.figures.graphs import draw_graph
from intervae.figures.images import InterventionRow, interventions, reconstructions
from intervae.figures.matrices import adjacency_history
from intervae.figures.queries import SweepRow, strip, sweep
from intervae.figures.results import depth_curves, grouped_bars, ranking

__all__ = [
    "InterventionRow",
    "SweepRow",
    "adjacency_history",
    "depth_curves",
    "draw_graph",
    "grouped_bars",
    "interventions",
    "ranking",
    "reconstructions",
    "scatter",
    "strip",
    "sweep",
    "training_curves",
]
