"""Figures of arrays, graphs and results; each function writes one PNG or SVG file."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# name -> module; imported when first used, as matplotlib takes half a second
_EXPORTS = {
    "ActionPanel": "intervae.figures.action_panels",
    "action_mechanisms": "intervae.figures.action_panels",
    "adjacency_history": "intervae.figures.adjacency_matrices",
    "class_scatter": "intervae.figures.class_scatters",
    "ClipRow": "intervae.figures.clips",
    "clip_interventions": "intervae.figures.clips",
    "clip_rows": "intervae.figures.clips",
    "overlay": "intervae.figures.clips",
    "response_maps": "intervae.figures.clips",
    "NumberGrid": "intervae.figures.coloured_numbers",
    "number_grids": "intervae.figures.coloured_numbers",
    "SweepRow": "intervae.figures.counterfactuals",
    "counterfactual_strip": "intervae.figures.counterfactuals",
    "intervention_sweep": "intervae.figures.counterfactuals",
    "factor_bars": "intervae.figures.factor_counts",
    "draw_graph": "intervae.figures.graph_drawing",
    "InterventionRow": "intervae.figures.image_grids",
    "interventions": "intervae.figures.image_grids",
    "reconstructions": "intervae.figures.image_grids",
    "prior_and_posterior": "intervae.figures.latents",
    "training_curves": "intervae.figures.loss_curves",
    "HeatMapRow": "intervae.figures.overlays",
    "heat_maps": "intervae.figures.overlays",
    "grouped_bars": "intervae.figures.result_bars",
    "horizontal_bars": "intervae.figures.result_bars",
    "curves_over_depth": "intervae.figures.result_curves",
    "curves_over_parameter": "intervae.figures.result_curves",
    "scatter": "intervae.figures.scatter_plots",
    "search_progress": "intervae.figures.search_curves",
    "curves_over_size": "intervae.figures.size_curves",
    "split_method": "intervae.figures.size_curves",
}

if TYPE_CHECKING:
    from intervae.figures.action_panels import ActionPanel as ActionPanel
    from intervae.figures.action_panels import action_mechanisms as action_mechanisms
    from intervae.figures.adjacency_matrices import adjacency_history as adjacency_history
    from intervae.figures.class_scatters import class_scatter as class_scatter
    from intervae.figures.clips import ClipRow as ClipRow
    from intervae.figures.clips import clip_interventions as clip_interventions
    from intervae.figures.clips import clip_rows as clip_rows
    from intervae.figures.clips import overlay as overlay
    from intervae.figures.clips import response_maps as response_maps
    from intervae.figures.coloured_numbers import NumberGrid as NumberGrid
    from intervae.figures.coloured_numbers import number_grids as number_grids
    from intervae.figures.counterfactuals import SweepRow as SweepRow
    from intervae.figures.counterfactuals import counterfactual_strip as counterfactual_strip
    from intervae.figures.counterfactuals import intervention_sweep as intervention_sweep
    from intervae.figures.factor_counts import factor_bars as factor_bars
    from intervae.figures.graph_drawing import draw_graph as draw_graph
    from intervae.figures.image_grids import InterventionRow as InterventionRow
    from intervae.figures.image_grids import interventions as interventions
    from intervae.figures.image_grids import reconstructions as reconstructions
    from intervae.figures.latents import prior_and_posterior as prior_and_posterior
    from intervae.figures.loss_curves import training_curves as training_curves
    from intervae.figures.overlays import HeatMapRow as HeatMapRow
    from intervae.figures.overlays import heat_maps as heat_maps
    from intervae.figures.result_bars import grouped_bars as grouped_bars
    from intervae.figures.result_bars import horizontal_bars as horizontal_bars
    from intervae.figures.result_curves import curves_over_depth as curves_over_depth
    from intervae.figures.result_curves import curves_over_parameter as curves_over_parameter
    from intervae.figures.scatter_plots import scatter as scatter
    from intervae.figures.search_curves import search_progress as search_progress
    from intervae.figures.size_curves import curves_over_size as curves_over_size
    from intervae.figures.size_curves import split_method as split_method

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'intervae.figures' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
