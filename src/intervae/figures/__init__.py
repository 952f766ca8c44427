"""Every plot. Figures know arrays, graphs and the answers of queries, not models; each writes one PNG or SVG, by the suffix of its path."""

from intervae.figures.clips import ClipRow, clip_interventions, clip_rows, overlay, response_maps
from intervae.figures.curves import scatter, training_curves
from intervae.figures.graphs import draw_graph
from intervae.figures.heat_maps import HeatMapRow, heat_maps
from intervae.figures.images import InterventionRow, interventions, reconstructions
from intervae.figures.latents import prior_and_posterior
from intervae.figures.matrices import adjacency_history
from intervae.figures.mechanisms import MechanismPanel, mechanisms
from intervae.figures.queries import SweepRow, strip, sweep
from intervae.figures.results import curves_over, depth_curves, grouped_bars, ranking
from intervae.figures.sizes import lines_over_sizes

__all__ = [
    "ClipRow",
    "HeatMapRow",
    "InterventionRow",
    "MechanismPanel",
    "SweepRow",
    "adjacency_history",
    "clip_interventions",
    "clip_rows",
    "curves_over",
    "depth_curves",
    "draw_graph",
    "grouped_bars",
    "heat_maps",
    "interventions",
    "lines_over_sizes",
    "mechanisms",
    "overlay",
    "prior_and_posterior",
    "ranking",
    "reconstructions",
    "response_maps",
    "scatter",
    "strip",
    "sweep",
    "training_curves",
]
