"""Context: a model, its data, and the arrays that several metrics share, computed once."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from intervae.data import Dataset, Split
from intervae.metrics.base import Measurement
from intervae.metrics.concept_mic_tic import concept_information
from intervae.metrics.interventions import CounterfactualQuery
from intervae.models.base import Model
from intervae.models.batches import query_split
from intervae.models.capabilities import without_pixel_noise

INFORMATION_IMAGES = 2000  # images for MIC and TIC, which depend on their number
HEAT_MAP_IMAGES = 512


class LabelledLatents(NamedTuple):
    """Latents and the labels that vary in the test split, paired row by row."""

    latents: np.ndarray  # (N, n, k)
    latent_names: tuple[str, ...]
    labels: np.ndarray  # (N, m)
    label_names: tuple[str, ...]
    kinds: tuple[str, ...]  # "discrete" or "continuous"
    matching: str  # "identity" where the latents are the labels, else a matching to search for


class Context:
    """A model and the data it is evaluated on."""

    def __init__(self, model: Model, data: Dataset) -> None:
        self.model, self.data = model, data

    @cached_property
    def labels(self) -> np.ndarray:
        """Labels of the test split, (N, n)."""
        return self.data.test.labels.cpu().numpy()

    @cached_property
    def latents(self) -> np.ndarray:
        """Posterior means of the test images, (N, n, k)."""
        return query_split(self.model, "encode", self.data.test).numpy()

    @cached_property
    def varying(self) -> np.ndarray:
        """Mask (n,) of the labels with more than one value in the test split."""
        return (self.labels != self.labels[:1]).any(0)

    @property
    def latents_are_labels(self) -> bool:
        """Whether the latents are the labelled variables themselves."""
        return self.model.latent_names == self.data.names

    @cached_property
    def labelled_latents(self) -> LabelledLatents:
        latents, latent_names = self.latents, np.array(self.model.latent_names)
        if self.latents_are_labels:
            latents, latent_names = latents[:, self.varying], latent_names[self.varying]
        variables = [
            variable
            for variable, varies in zip(self.data.variables, self.varying, strict=True)
            if varies
        ]
        return LabelledLatents(
            latents,
            tuple(latent_names.tolist()),
            self.labels[:, self.varying],
            tuple(v.name for v in variables),
            tuple("continuous" if v.kind == "continuous" else "discrete" for v in variables),
            "identity" if self.latents_are_labels else "hungarian-mic",
        )

    @cached_property
    def mic_and_tic(self) -> dict[str, Measurement]:
        """MIC and TIC of every label with its variable, by metric name.

        Names that end in `_unmatched` take latent i for label i instead of a matching.
        """
        table = self.labelled_latents
        rows = self.subset_rows(INFORMATION_IMAGES)
        measurements = concept_information(
            table.latents[rows], table.labels[rows], table.label_names, matching=table.matching
        )
        count = len(table.label_names)
        if table.matching != "identity" and table.latents.shape[1] >= count:
            in_order = concept_information(
                table.latents[rows, :count],
                table.labels[rows],
                table.label_names,
                matching="identity",
            )
            measurements += [replace(m, metric=f"{m.metric}_unmatched") for m in in_order]
        return {m.metric: self.with_names(m) for m in measurements}

    def subset_rows(self, max_rows: int) -> np.ndarray:
        """Sorted indices of at most `max_rows` random test images, always the same ones."""
        return np.sort(np.random.default_rng(0).permutation(len(self.data.test))[:max_rows])

    def test_subset(self, max_rows: int) -> Split:
        """At most `max_rows` random test images, those of `subset_rows`."""
        return self.data.test[torch.as_tensor(self.subset_rows(max_rows))]

    def decoder_answers(
        self, images: np.ndarray, do: dict[str, Any], *labels: Tensor
    ) -> np.ndarray:
        """Counterfactuals without the images' own pixel noise, for models that keep it."""
        options = without_pixel_noise(self.model)
        return self.model.counterfactual(images, do, *labels, **options).cpu().numpy()

    def counterfactuals_of(self, subset: Split) -> CounterfactualQuery:
        """The query for exactly the images of `subset`, with their labels if the model needs any.

        A model that can do without labels must not see them in an evaluation.
        """
        labels = self._needed_labels(subset)

        def query(images: np.ndarray, do: dict[str, Any]) -> np.ndarray:
            return self.model.counterfactual(images, do, *labels).cpu().numpy()

        return query

    def decoder_alone(self, subset: Split) -> CounterfactualQuery | None:
        """The same query without pixel noise; None for models that keep none."""
        labels = self._needed_labels(subset)
        if not without_pixel_noise(self.model):
            return None
        return lambda images, do: self.decoder_answers(images, do, *labels)

    def _needed_labels(self, subset: Split) -> tuple[Tensor, ...]:
        return (subset.labels,) if self.model.needs_labels else ()

    def with_names(self, measurement: Measurement) -> Measurement:
        """Replace z0, z1, ... by the latents' names, and list labels that are constant."""
        names = {f"z{i}": name for i, name in enumerate(self.labelled_latents.latent_names)}

        def renamed(mapping: Any) -> Any:
            return {
                names.get(key, key): names.get(value, value) if isinstance(value, str) else value
                for key, value in mapping.items()
            }

        parameters = {
            key: renamed(value) if key == "matched" else value
            for key, value in measurement.parameters.items()
        }
        constant = [
            name for name, varies in zip(self.data.names, self.varying, strict=True) if not varies
        ]
        parameters |= {"constant_in_test": constant} if constant else {}
        return replace(
            measurement, per_variable=renamed(measurement.per_variable), parameters=parameters
        )
