"""Data: named variables, splits of images with labels, and every way to load them."""

from intervae.data.base import KINDS, Batch, Dataset, Kind, Spec, Split, Variable, build_dataset, split_rows
from intervae.data.columns import ColumnDescription, describe_columns
from intervae.data.neighbours import Neighbours, best_guess
from intervae.data.registry import Entry, datasets, load_data, register, reload
from intervae.data.transitions import DatasetTransitions, Transitions, TransitionSplit, action_factors, with_transitions

__all__ = [
    "KINDS",
    "Batch",
    "ColumnDescription",
    "Dataset",
    "DatasetTransitions",
    "Entry",
    "Kind",
    "Neighbours",
    "Spec",
    "Split",
    "TransitionSplit",
    "Transitions",
    "Variable",
    "action_factors",
    "best_guess",
    "build_dataset",
    "datasets",
    "describe_columns",
    "load_data",
    "register",
    "reload",
    "split_rows",
    "with_transitions",
]
