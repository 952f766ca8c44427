"""Split and Dataset: uint8 images with their labels, in training, validation and test splits.

Images are (N, C, H, W), clips (N, T, C, H, W), both uint8. Labels are (N, n) floats in the
variables' own units; a binary label is 0 or 1, a categorical one its code, a missing one NaN. A
batch on the device is a dict of tensors with images as floats in [0, 1].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from intervae.causal.graph import CausalGraph
from intervae.data.display import (
    dataset_html,
    dataset_line,
    dataset_text,
    split_html,
    split_text,
)
from intervae.data.variables import Spec, Variable
from intervae.errors import DataError, UsageError
from intervae.notes import Note

if TYPE_CHECKING:
    from intervae.data.readers.dsprites import DspritesGrid
    from intervae.data.simulators.base import Simulator
    from intervae.data.transitions import DatasetTransitions

Batch = dict[str, Tensor]
CHUNK = 1024  # samples processed at a time


class Split:
    """Images, labels, and any further field with one row per sample.

    Arguments:
        images: (N, C, H, W) or (N, T, C, H, W) uint8; None where another field, such as cached
            codes, replaces them.
        labels: (N, n) floats in the variables' own units, NaN where one is missing; (N, 0)
            without labels.
        fields: more tensors with N rows, such as `exogenous` (a simulator's true noises).

    A subclass that stores images in another form (of packed data: MappedSplit) overrides `images`,
    `shape` and `batch`, and `with_fields` if it has attributes without one row per sample. A
    subclass whose samples are not the rows of its fields also overrides `__len__`, `__getitem__`
    and `to`.
    """

    file_names: Sequence[str] = ()  # of all splits of a folder; the field `file` counts them

    def __init__(
        self, images: Tensor | None = None, labels: Tensor | None = None, **fields: Tensor
    ) -> None:
        tensors = {
            name: tensor
            for name, tensor in {"images": images, "labels": labels, **fields}.items()
            if tensor is not None
        }
        if not tensors:
            raise DataError("a split needs images or another field with one row per sample.")
        first = next(iter(tensors.values()))
        rows = len(first)
        self.fields: dict[str, Tensor] = {
            **tensors,
            "labels": tensors.get("labels", torch.zeros(rows, 0, device=first.device)),
        }
        for name, tensor in self.fields.items():
            if len(tensor) != rows:
                raise DataError(
                    f"field {name!r} has {len(tensor)} rows, "
                    f"but there are {rows} {next(iter(tensors))}."
                )

    @property
    def images(self) -> Tensor:
        return self.fields["images"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `images`, without decoding them."""
        return tuple(self.images.shape)

    @property
    def labels(self) -> Tensor:
        return self.fields["labels"]

    @property
    def missing(self) -> Tensor:
        """Mask (N, n) of the labels that have no value."""
        return self.labels.isnan()

    @property
    def files(self) -> list[str]:
        """The image file of each row, as labels.csv names it; only of a folder of images."""
        if not self.file_names or "file" not in self.fields:
            raise DataError("these rows have no file names; only a folder of images has them.")
        return [self.file_names[row] for row in self.fields["file"].tolist()]

    @property
    def device(self) -> torch.device:
        return self.labels.device

    @property
    def streamed(self) -> bool:
        """Whether a batch reads its images from the disk, so that it cannot be captured."""
        return False

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Any) -> Split:
        """Return the rows (a slice, a list or a tensor) as a Split."""
        return self.with_fields({name: tensor[rows] for name, tensor in self.fields.items()})

    def with_fields(self, fields: dict[str, Tensor]) -> Split:
        """Return a split of the same class with these fields."""
        split = type(self)(**fields)
        split.file_names = self.file_names
        return split

    def chunks(self, rows: int = CHUNK) -> Iterator[Split]:
        """Yield the samples in their order, `rows` at a time."""
        return (self[start : start + rows] for start in range(0, len(self), rows))

    def to(self, device: torch.device | str) -> Split:
        return self.with_fields({name: tensor.to(device) for name, tensor in self.fields.items()})

    def batch(self, rows: Tensor) -> Batch:
        """Return the rows as tensors on the same device, images as floats in [0, 1]."""
        batch = {name: tensor.index_select(0, rows) for name, tensor in self.fields.items()}
        return {
            name: t.float().div_(255) if t.dtype == torch.uint8 and t.ndim >= 4 else t
            for name, t in batch.items()
        }

    def __repr__(self) -> str:
        return split_text(self)

    def _repr_html_(self) -> str:
        return split_html(self)


@dataclass(frozen=True)
class Dataset:
    """Training, validation and test splits with their variables.

    Arguments:
        graph: the true graph over the variables, if known; for data simulated from latents, over
            [latents, variables].
        simulator: the simulator that made the data, for true counterfactuals.
        actions: names of the actions of `transitions`.
        source: how to load the data again: a registered name or a path, with the options used.
        notes: what a user should know about how the data were read.
        grid: lookup of the image of any combination of factors, if the data set has them all.
        transitions: pairs of rows of each split and the action between them.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    variables: tuple[Variable, ...]
    graph: CausalGraph | None = None
    simulator: Simulator | None = None
    actions: tuple[str, ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    grid: DspritesGrid | None = None
    transitions: DatasetTransitions | None = None

    @property
    def spec(self) -> Spec:
        """What a model may know about the data."""
        shape = self.train.shape
        return Spec(
            (shape[-3], shape[-2], shape[-1]),
            self.variables,
            shape[1] if len(shape) == 5 else None,
            self.actions,
        )

    @property
    def names(self) -> tuple[str, ...]:
        return self.spec.names

    @property
    def splits(self) -> dict[str, Split]:
        """The three splits by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def missing(self) -> dict[str, int]:
        """Name -> number of rows without its label, for each variable that lacks some."""
        counts = torch.stack([s.missing.sum(0).cpu() for s in self.splits.values()]).sum(0)
        return {v.name: int(counts[i]) for i, v in enumerate(self.variables) if counts[i]}

    def complete(self) -> Dataset:
        """Return the data set with only the rows that have all labels."""
        if not self.missing:
            return self
        complete = {name: split[~split.missing.any(1)] for name, split in self.splits.items()}
        for name, split in complete.items():
            if not len(split):
                raise DataError(
                    f"{self.name}: no row of the {name} split has all labels; fill in some, "
                    "or leave out a column with variables= (--variables)."
                )
        return replace(self, **complete)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return dataset_line(self)

    def __repr__(self) -> str:
        return dataset_text(self)

    def _repr_html_(self) -> str:
        return dataset_html(self)

    def select(self, names: Sequence[str]) -> Dataset:
        """Return the same images with only these variables, in this order.

        The true graph keeps its latents.
        """
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise UsageError(f"select({names!r}) must be a list of names.")
        columns = [self.names.index(self.spec.variable(name).name) for name in names]

        def select_columns(split: Split) -> Split:
            return split.with_fields({**split.fields, "labels": split.labels[:, columns]})

        graph = self.graph
        if graph is not None:
            latents = [node for node in graph.names if node not in self.names]
            graph = graph.subgraph([*latents, *names])
        return replace(
            self,
            train=select_columns(self.train),
            validation=select_columns(self.validation),
            test=select_columns(self.test),
            variables=tuple(self.variables[c] for c in columns),
            graph=graph,
            source={**self.source, "variables": list(names)},
        )
