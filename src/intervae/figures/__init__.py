"""Figures of arrays, graphs and results; each function writes one PNG or SVG file."""

from intervae.figures.action_mechanisms import ActionPanel, action_mechanisms
from intervae.figures.adjacency_matrices import adjacency_history
from intervae.figures.class_scatter import class_scatter
from intervae.figures.clips import ClipRow, clip_interventions, clip_rows, overlay, response_maps
from intervae.figures.counterfactuals import SweepRow, counterfactual_strip, intervention_sweep
from intervae.figures.graph_drawing import draw_graph
from intervae.figures.image_grids import InterventionRow, interventions, reconstructions
from intervae.figures.latents import prior_and_posterior
from intervae.figures.loss_curves import training_curves
from intervae.figures.overlays import HeatMapRow, heat_maps
from intervae.figures.result_bars import grouped_bars, horizontal_bars
from intervae.figures.result_curves import curves_over_depth, curves_over_parameter
from intervae.figures.scatter_plots import scatter
from intervae.figures.size_curves import curves_over_size, split_method

__all__ = [
    "ActionPanel",
    "ClipRow",
    "HeatMapRow",
    "InterventionRow",
    "SweepRow",
    "action_mechanisms",
    "adjacency_history",
    "class_scatter",
    "clip_interventions",
    "clip_rows",
    "counterfactual_strip",
    "curves_over_depth",
    "curves_over_parameter",
    "curves_over_size",
    "draw_graph",
    "grouped_bars",
    "heat_maps",
    "horizontal_bars",
    "intervention_sweep",
    "interventions",
    "overlay",
    "prior_and_posterior",
    "reconstructions",
    "response_maps",
    "scatter",
    "split_method",
    "training_curves",
]
