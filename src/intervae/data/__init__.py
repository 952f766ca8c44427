"""Data: named variables, splits of images with labels, and every way to load them."""

from intervae.data import builtin_datasets as builtin_datasets
from intervae.data.build import build_dataset, split_rows
from intervae.data.build_transitions import with_transitions
from intervae.data.column_kinds import ColumnDescription, describe_columns
from intervae.data.dataset import Batch, Dataset, Split
from intervae.data.loading import load_data, reload
from intervae.data.neighbours import Neighbours, action_ceiling
from intervae.data.packed.mapped_split import MappedSplit
from intervae.data.packed.write import pack
from intervae.data.registry import DatasetEntry, datasets, register, register_dataset
from intervae.data.transitions import (
    DatasetTransitions,
    Transitions,
    TransitionSplit,
    action_factors,
)
from intervae.data.variables import KINDS, Kind, Spec, Variable

__all__ = [
    "KINDS",
    "Batch",
    "ColumnDescription",
    "Dataset",
    "DatasetEntry",
    "DatasetTransitions",
    "Kind",
    "MappedSplit",
    "Neighbours",
    "Spec",
    "Split",
    "TransitionSplit",
    "Transitions",
    "Variable",
    "action_ceiling",
    "action_factors",
    "build_dataset",
    "datasets",
    "describe_columns",
    "load_data",
    "pack",
    "register",
    "register_dataset",
    "reload",
    "split_rows",
    "with_transitions",
]
