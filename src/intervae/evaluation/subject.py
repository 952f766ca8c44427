"""What is judged: a model on the test split of its data. What several metrics need is computed once and kept."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from intervae.data.base import Dataset, Split
from intervae.metrics.base import Measurement
from intervae.metrics.concepts import concept_information
from intervae.models.base import Model, ask

MOST_FOR_INFORMATION = 2000  # images for MIC and TIC, which depend on their number


class Tables(NamedTuple):
    """The latents and the labels that vary in the test split, paired row by row."""

    latents: np.ndarray  # (N, n, k)
    latent_names: tuple[str, ...]
    labels: np.ndarray  # (N, m)
    names: tuple[str, ...]
    kinds: tuple[str, ...]  # discrete or continuous
    matching: str  # identity where the latents are the labels, else one that has to be found


class Subject:
    """A model and the data it is judged on."""

    def __init__(self, model: Model, data: Dataset) -> None:
        self.model, self.data = model, data

    @cached_property
    def labels(self) -> np.ndarray:
        """(N, n) of the test split."""
        return self.data.test.labels.cpu().numpy()

    @cached_property
    def latents(self) -> np.ndarray:
        """(N, n, k) posterior means of the test images."""
        return ask(self.model, "encode", self.data.test).numpy()

    @cached_property
    def varying(self) -> np.ndarray:
        """(n,) which variables have more than one value in the test split: a rare binary one may not."""
        return (self.labels != self.labels[:1]).any(0)

    @property
    def named_alike(self) -> bool:
        """Whether the latents are the labelled variables themselves."""
        return self.model.latent_names == self.data.names

    @cached_property
    def tables(self) -> Tables:
        latents, latent_names = self.latents, np.array(self.model.latent_names)
        if self.named_alike:
            latents, latent_names = latents[:, self.varying], latent_names[self.varying]
        chosen = [v for v, varies in zip(self.data.variables, self.varying, strict=True) if varies]
        return Tables(
            latents,
            tuple(latent_names.tolist()),
            self.labels[:, self.varying],
            tuple(v.name for v in chosen),
            tuple("continuous" if v.kind == "continuous" else "discrete" for v in chosen),
            "identity" if self.named_alike else "hungarian-mic",
        )

    @cached_property
    def information(self) -> dict[str, Measurement]:
        """MIC and TIC of every label with the variable that stands for it, by metric; `_unmatched` takes the latents in the order they come."""
        table = self.tables
        rows = self.rows(MOST_FOR_INFORMATION)
        found = concept_information(table.latents[rows], table.labels[rows], table.names, matching=table.matching)
        if table.matching != "identity" and table.latents.shape[1] >= len(table.names):
            plain = concept_information(table.latents[rows, : len(table.names)], table.labels[rows], table.names, matching="identity")
            found += [replace(m, metric=f"{m.metric}_unmatched") for m in plain]
        return {m.metric: self.named(m) for m in found}

    def rows(self, most: int) -> np.ndarray:
        """At most `most` random rows of the test split, in order; the same ones every time."""
        return np.sort(np.random.default_rng(0).permutation(len(self.data.test))[:most])

    def part(self, most: int) -> Split:
        return self.data.test[torch.as_tensor(self.rows(most))]

    def counterfactual(self, images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
        return self.model.counterfactual(images, do).cpu().numpy()

    def named(self, measurement: Measurement) -> Measurement:
        """The same with the latents' own names in the place of z0, z1, ..., and what is constant in the test split told."""
        names = {f"z{i}": name for i, name in enumerate(self.tables.latent_names)}

        def renamed(mapping: Any) -> Any:
            return {names.get(key, key): names.get(value, value) if isinstance(value, str) else value for key, value in mapping.items()}

        parameters = {key: renamed(value) if key == "matched" else value for key, value in measurement.parameters.items()}
        constant = [name for name, varies in zip(self.data.names, self.varying, strict=True) if not varies]
        parameters |= {"constant_in_test": constant} if constant else {}
        return replace(measurement, per_variable=renamed(measurement.per_variable), parameters=parameters)
