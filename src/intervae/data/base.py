"""The data contract: named variables, splits of uint8 images with their labels, and the Dataset that holds them.

Images are (N, C, H, W), clips (N, T, C, H, W), both uint8; a batch on the device is a plain dict of tensors with images as
floats in [0, 1]. Labels are (N, n) floats in the variables' own units; a binary label is 0 or 1, a categorical one its code.
A model is built from a `Spec`, which tells shapes and variables but neither the true graph nor the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError, unknown

if TYPE_CHECKING:
    from intervae.data.readers.dsprites import DspritesGrid
    from intervae.data.simulators.base import Simulator
    from intervae.data.transitions import DatasetTransitions

Kind = Literal["continuous", "binary", "categorical"]
KINDS: tuple[Kind, ...] = ("continuous", "binary", "categorical")
Batch = dict[str, Tensor]
CHUNK = 1024  # samples of a split that are looked at together


@dataclass(frozen=True)
class Variable:
    """A named causal quantity and its scale: `mean`, `std`, `low` and `high` are those of the training split."""

    name: str
    kind: Kind = "continuous"
    unit: str = ""
    categories: tuple[str, ...] = ()
    mean: float = 0.0
    std: float = 1.0
    low: float = -1.0
    high: float = 1.0

    def measured_on(self, values: np.ndarray) -> Variable:
        """The same variable with the scale of `values` (N,); a constant has no scale and is refused."""
        low, high = float(values.min()), float(values.max())
        if low == high:
            raise DataError(
                f"variable {self.name!r} is constant (always {low:g}) in the training split of {len(values)}, so nothing can be learned of it; "
                "leave it out."
            )
        return replace(self, mean=float(values.mean()), std=float(values.std()), low=low, high=high)

    def normalise(self, values: Any) -> Any:
        """Own units to what a network sees: standardised, or -1 / +1 for a binary variable. A categorical code stays as it is."""
        if self.kind == "continuous":
            return (values - self.mean) / self.std
        return 2.0 * values - 1.0 if self.kind == "binary" else values

    def denormalise(self, values: Any) -> Any:
        """The inverse of `normalise`."""
        if self.kind == "continuous":
            return values * self.std + self.mean
        return (values + 1.0) / 2.0 if self.kind == "binary" else values

    def show(self, value: float) -> str:
        """A value as a person writes it: the category that a code stands for, or the number."""
        return self.categories[int(value)] if value in range(len(self.categories)) else f"{value:g}"

    def doubt(self, value: float) -> str:
        """Why a value is none that the model can have learned; empty where there is no doubt."""
        if self.kind == "binary":
            words = f" ({', '.join(self.categories)})" if self.categories else ""
            return "" if value in (0, 1) else f"is neither 0 nor 1{words}"
        return "" if self.low <= value <= self.high else f"is outside the training range {self.low:.4g} to {self.high:.4g}"

    @classmethod
    def from_json(cls, parsed: dict) -> Variable:
        return cls(**{**parsed, "categories": tuple(parsed.get("categories", ()))})


@dataclass(frozen=True)
class Spec:
    """What a model may know of its data: one image's shape (C, H, W), the variables, the clip length, the actions."""

    image_shape: tuple[int, int, int]
    variables: tuple[Variable, ...] = ()
    frames: int | None = None
    actions: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.variables)

    @property
    def categories(self) -> dict[str, tuple[str, ...]]:
        """Name -> the words that a variable's codes stand for."""
        return {v.name: v.categories for v in self.variables}

    def variable(self, name: str) -> Variable:
        for candidate in self.variables:
            if candidate.name == name:
                return candidate
        raise unknown("variable", name, self.names, DataError)

    def normalise(self, labels: Tensor) -> Tensor:
        """(..., n) labels in their own units to (..., n) as a network sees them."""
        return torch.stack([v.normalise(labels[..., i]) for i, v in enumerate(self.variables)], dim=-1)

    def denormalise(self, values: Tensor) -> Tensor:
        return torch.stack([v.denormalise(values[..., i]) for i, v in enumerate(self.variables)], dim=-1)

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, parsed: dict) -> Spec:
        return cls(
            image_shape=tuple(parsed["image_shape"]),
            variables=tuple(Variable.from_json(v) for v in parsed["variables"]),
            frames=parsed.get("frames"),
            actions=tuple(parsed.get("actions", ())),
        )


class Split:
    """Samples that belong together: images, labels, and any further field with one row per sample.

    Arguments:
        images: (N, C, H, W) or (N, T, C, H, W) uint8; may be missing where other fields stand for them, such as cached codes.
        labels: (N, n) floats in the variables' own units; (N, 0) when there are none.
        fields: more tensors with N rows: `exogenous` (a simulator's true noises), `after` and `action` of a transition, `codes`, ...

    Data that are gathered in another way (pairs of rows of one pool of images, say) override `__len__`, `__getitem__`, `to` and `batch`;
    pictures that are kept in another form (packed bits, say) override `images`, `shape` and `batch`, and `with_fields` where they share
    something that has no row per sample.
    """

    def __init__(self, images: Tensor | None = None, labels: Tensor | None = None, **fields: Tensor) -> None:
        given = {name: tensor for name, tensor in {"images": images, "labels": labels, **fields}.items() if tensor is not None}
        if not given:
            raise DataError("a split needs images or another field with one row per sample.")
        first = next(iter(given.values()))
        rows = len(first)
        self.fields: dict[str, Tensor] = {**given, "labels": given.get("labels", torch.zeros(rows, 0, device=first.device))}
        for name, tensor in self.fields.items():
            if len(tensor) != rows:
                raise DataError(f"field {name!r} has {len(tensor)} rows, but there are {rows} {next(iter(given))}.")

    @property
    def images(self) -> Tensor:
        return self.fields["images"]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `images`, known without making them."""
        return tuple(self.images.shape)

    @property
    def labels(self) -> Tensor:
        return self.fields["labels"]

    @property
    def device(self) -> torch.device:
        return self.labels.device

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Any) -> Split:
        """The chosen rows (a slice, a list, a tensor) as a Split."""
        return self.with_fields({name: tensor[rows] for name, tensor in self.fields.items()})

    def with_fields(self, fields: dict[str, Tensor]) -> Split:
        """A split of the same kind with these fields instead."""
        return type(self)(**fields)

    def chunks(self, rows: int = CHUNK) -> Iterator[Split]:
        """The samples in their order, `rows` at a time, so that pictures kept packed are never all unpacked at once."""
        return (self[start : start + rows] for start in range(0, len(self), rows))

    def to(self, device: torch.device | str) -> Split:
        return self.with_fields({name: tensor.to(device) for name, tensor in self.fields.items()})

    def batch(self, rows: Tensor) -> Batch:
        """The rows as a batch: everything stays on the device, pictures (uint8 of four axes or more) become floats in [0, 1]."""
        batch = {name: tensor.index_select(0, rows) for name, tensor in self.fields.items()}
        return {name: t.float().div_(255) if t.dtype == torch.uint8 and t.ndim >= 4 else t for name, t in batch.items()}


@dataclass(frozen=True)
class Dataset:
    """Training, validation and test splits with their variables and, where they are known, the true graph and the simulator.

    `graph` is over the variables, and for data that are simulated from latents over these too: [latents, variables].
    `grid` looks up the picture of any combination of factors, where the data set holds them all.
    `transitions` are pairs of rows of each split and the action between them, one of `actions` (see data/transitions.py).
    `source` is how to make it again: a registered name or a path, with the options used; a run keeps it.
    `notes` are what a person should know of how it was read: how each column's kind was decided, what was left out.
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
    notes: tuple[str, ...] = ()
    grid: DspritesGrid | None = None
    transitions: DatasetTransitions | None = None

    @property
    def spec(self) -> Spec:
        shape = self.train.shape
        return Spec((shape[-3], shape[-2], shape[-1]), self.variables, shape[1] if len(shape) == 5 else None, self.actions)

    @property
    def names(self) -> tuple[str, ...]:
        return self.spec.names

    def __repr__(self) -> str:
        sizes = "/".join(str(len(s)) for s in (self.train, self.validation, self.test))
        samples = "images of" if self.spec.frames is None else f"clips of {self.spec.frames} frames of"
        return f"Dataset({self.name}: {sizes} {samples} {self.spec.image_shape}, variables {', '.join(self.names) or '(none)'})"

    def select(self, names: Sequence[str]) -> Dataset:
        """The same images with only these variables, in this order; the true graph keeps its latents, which are no variables of the data."""
        columns = [self.names.index(self.spec.variable(name).name) for name in names]

        def cut(split: Split) -> Split:
            return split.with_fields({**split.fields, "labels": split.labels[:, columns]})

        latents = [node for node in self.graph.names if node not in self.names] if self.graph is not None else []
        graph = self.graph.subgraph([*latents, *names]) if self.graph is not None else None
        return replace(
            self,
            train=cut(self.train),
            validation=cut(self.validation),
            test=cut(self.test),
            variables=tuple(self.variables[c] for c in columns),
            graph=graph,
            source={**self.source, "variables": list(names)},
        )


def split_rows(
    n: int, *, validation: float | np.ndarray, test: float | np.ndarray, seed: int, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row numbers of the training, validation and test splits, each sorted.

    Arguments:
        validation: the fraction of the rows that are not test, or a mask (n,) where the split is given.
        test: a fraction of all rows, or a mask (n,) where the split is given.
        groups: (n,) ids, such as patients: rows of one group stay in one split.
    """
    rng = np.random.default_rng(seed)
    unit = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
    is_test = test.astype(bool) if isinstance(test, np.ndarray) else np.isin(unit, _draw(np.unique(unit), test, rng))
    rest = np.unique(unit[~is_test])
    is_validation = ~is_test & (validation.astype(bool) if isinstance(validation, np.ndarray) else np.isin(unit, _draw(rest, validation, rng)))
    parts = tuple(np.flatnonzero(mask) for mask in (~is_test & ~is_validation, is_validation, is_test))
    for part, name in zip(parts, ("training", "validation", "test"), strict=True):
        if len(part) == 0:
            asked = [f"{key}={'given' if isinstance(v, np.ndarray) else v}" for key, v in (("validation", validation), ("test", test))]
            raise DataError(f"{n} samples leave none for the {name} split; give more data or other fractions ({', '.join(asked)}).")
    return parts  # type: ignore[return-value]


def _draw(units: np.ndarray, fraction: float, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(units)[: max(1, round(fraction * len(units)))]


def build_dataset(
    name: str,
    images: np.ndarray | Tensor,
    labels: np.ndarray,
    variables: Sequence[Variable],
    *,
    validation: float | np.ndarray = 0.1,
    test: float | np.ndarray = 0.2,
    seed: int = 0,
    groups: np.ndarray | None = None,
    fields: Mapping[str, np.ndarray] | None = None,
    graph: CausalGraph | None = None,
    simulator: Simulator | None = None,
    source: Mapping[str, Any] | None = None,
) -> Dataset:
    """Check arrays, split them, and measure the variables' scale on the training split.

    Arguments:
        images: (N, C, H, W) or (N, T, C, H, W) uint8.
        labels: (N, n) in the variables' own units.
    """
    pixels = torch.as_tensor(images)
    if pixels.dtype != torch.uint8 or pixels.ndim not in (4, 5):
        raise DataError(f"{name}: images must be uint8 of shape (N, C, H, W) or (N, T, C, H, W), not {pixels.dtype} {tuple(pixels.shape)}.")
    table = np.asarray(labels, dtype=np.float64)
    if table.shape != (len(pixels), len(variables)):
        raise DataError(
            f"{name}: labels must be ({len(pixels)}, {len(variables)}), one row per image and one column per variable, not {table.shape}."
        )
    names = [v.name for v in variables]
    if len(set(names)) != len(names):
        raise DataError(f"{name}: the column {next(n for n in names if names.count(n) > 1)!r} appears twice; rename or remove one.")
    if not np.isfinite(table).all():
        row, column = np.argwhere(~np.isfinite(table))[0]
        raise DataError(f"{name}: label {names[column]!r} of sample {row} is {table[row, column]}; every label must be a finite number.")
    rows = split_rows(len(pixels), validation=validation, test=test, seed=seed, groups=groups)
    if names and len(rows[0]) == 1:
        raise DataError(f"{name}: {len(pixels)} samples leave a single one for the training split, of which nothing can be learned; give more data.")
    extra = {key: torch.as_tensor(np.asarray(value)) for key, value in (fields or {}).items()}
    values = torch.as_tensor(table, dtype=torch.float32)
    parts = [Split(images=pixels[r], labels=values[r], **{k: v[r] for k, v in extra.items()}) for r in map(torch.as_tensor, rows)]
    measured = tuple(v.measured_on(table[rows[0], i]) for i, v in enumerate(variables))
    return Dataset(name, parts[0], parts[1], parts[2], variables=measured, graph=graph, simulator=simulator, source=dict(source or {}))
