"""Counterfactuals of a trained model on the test split of a simulator: every variable, every do().

    measurements = measure_counterfactuals(model, load_data("morpho-mnist"))

The model gets the labels of the test images, as in Melistas et al. 2024. What does not depend on
the model, true images and the networks that read them, is made once per process; the weights of
the networks are also kept in the cache folder.
"""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from intervae import metrics
from intervae.data import Dataset
from intervae.data.cache import checksum, read_cached, write_cached
from intervae.data.simulators.base import Simulator
from intervae.errors import DataError, RunError
from intervae.files import cache_folder
from intervae.metrics.base import Measurement
from intervae.metrics.counterfactual_cells import (
    Answer,
    CellReader,
    TrueCounterfactuals,
    answers_to_all,
    cycle_errors,
    true_counterfactuals,
    true_picture_errors,
)
from intervae.metrics.digit_morphometry import MorphometryRegressor
from intervae.metrics.variable_networks import (
    EPOCHS,
    VariableNetworks,
    build_variable_networks,
    fit_variable_networks,
    independent_draws,
)
from intervae.models.base import Model
from intervae.models.batches import spread_rows
from intervae.models.capabilities import without_pixel_noise

TEST_IMAGES = 2000
PREDICTOR_IMAGES = 60_000
CYCLES = (1, 10)
UNDO_CYCLES = (1,)
VERSION = 1  # of the networks; increase it when they change, so that caches are made anew
PREDICTOR_SEED = 1
FINGERPRINT_IMAGES = 16
_LOCK = threading.Lock()  # concurrent runs make networks and true images only once
_REFERENCES: dict[str, References] = {}


@dataclass(frozen=True)
class References:
    """What all models are compared with: true images, readers, and quality of the networks."""

    truth: TrueCounterfactuals
    networks: VariableNetworks
    readers: tuple[CellReader, ...]
    quality: list[Measurement]


def measure_counterfactuals(
    model: Model,
    data: Dataset,
    device: str | torch.device | None = None,
    *,
    images: int = TEST_IMAGES,
    cycles: Sequence[int] = CYCLES,
    undo_cycles: Sequence[int] = UNDO_CYCLES,
    labels: bool = True,
    predictor_images: int = PREDICTOR_IMAGES,
    predictor_epochs: int = EPOCHS,
) -> list[Measurement]:
    """Measure a model on test images of `data`, which has a simulator.

    Arguments:
        device: of the networks that read the variables; by default the model's.
        images: number of test images, always the same ones.
        cycles: numbers of repeated do({}).
        undo_cycles: numbers of repeated do() and undo.
        labels: whether the model gets the labels of the images, if it can take them.
        predictor_images: number of images to train the networks on.
    """
    made = make_references(
        data,
        model.device if device is None else device,
        images=images,
        predictor_images=predictor_images,
        predictor_epochs=predictor_epochs,
    )
    truth, use_labels = made.truth, labels and model.counterfactual_takes_labels
    query = functools.partial(answer, model, use_labels=use_labels)
    answers = answers_to_all(query, truth)
    assert data.graph is not None
    return [
        *cycle_errors(query, truth, cycles=cycles, undo_cycles=undo_cycles),
        true_picture_errors(answers, truth),
        *(m for reader in made.readers for m in reader.effectiveness(answers)),
        *metrics.minimality(
            lambda x, do: query(x, truth.labels, do).images,
            truth.images,
            truth.labels,
            truth.variables,
            made.networks,
            data.graph,
            interventions=truth.interventions,
        ),
        *made.quality,
    ]


@torch.no_grad()
def answer(
    model: Model,
    images: np.ndarray,
    labels: np.ndarray,
    do: dict[str, Any],
    *,
    use_labels: bool = True,
) -> Answer:
    """Return the model's images under `do`, and its own values of the variables as new labels.

    The decoder answers alone, without the images' own pixel noise.

    Arguments:
        use_labels: whether the model gets `labels` (N, n); else they are returned as they are.
    """
    pictures = torch.as_tensor(images, device=model.device)
    actions = {name: torch.as_tensor(value).float() for name, value in do.items()}
    table = torch.as_tensor(labels).float() if use_labels else None
    options = {**without_pixel_noise(model), **({"labels": table} if use_labels else {})}
    after = model.counterfactual(pictures, actions, **options)
    if use_labels:
        latents = model.intervene(model.encode(pictures, table), actions)
        values = [model.to_units(i, latents[:, i]) for i in range(latents.shape[1])]
        labels = torch.stack(values, dim=1).cpu().double().numpy()
    return Answer(after.clamp(0, 1).cpu().numpy(), labels)


def make_references(
    data: Dataset,
    device: str | torch.device = "cpu",
    *,
    images: int = TEST_IMAGES,
    predictor_images: int = PREDICTOR_IMAGES,
    predictor_epochs: int = EPOCHS,
) -> References:
    """Return the references of `data`, made once per process for the same arguments."""
    if data.simulator is None:
        raise DataError(f"{data.name} has no simulator, so nobody knows its counterfactuals.")
    split = data.test[spread_rows(len(data.test), images)]
    size = split.images.shape[-1]
    key = json.dumps(
        [
            checksum({"images": split.images.cpu().numpy()}),
            str(device),
            predictor_images,
            predictor_epochs,
        ]
    )
    with _LOCK:
        if key not in _REFERENCES:
            networks = _networks(data.simulator, size, device, predictor_images, predictor_epochs)
            truth = true_counterfactuals(
                data.simulator,
                split.images.cpu().numpy(),
                split.labels.cpu().numpy(),
                split.fields["exogenous"].cpu().numpy(),
                variables=data.variables,
            )
            _REFERENCES[key] = _with_readers(truth, networks)
        return _REFERENCES[key]


def _with_readers(truth: TrueCounterfactuals, networks: VariableNetworks) -> References:
    readers = [CellReader(networks, truth)]
    morphometry = MorphometryRegressor(truth.variables)
    if morphometry.variables:
        readers.append(CellReader(morphometry, truth, suffix="_morphometry"))
    quality = networks.quality(truth.images, truth.labels, name="predictor")
    return References(truth, networks, tuple(readers), quality)


def _networks(
    simulator: Simulator, size: int, device: str | torch.device, count: int, epochs: int
) -> VariableNetworks:
    """Return trained networks, from the cache folder where it has them."""
    fingerprint = independent_draws(simulator, FINGERPRINT_IMAGES, size, seed=PREDICTOR_SEED)
    key = {
        "version": VERSION,
        "draws": checksum(dict(zip(("images", "values"), fingerprint, strict=True))),
        "images": count,
        "epochs": epochs,
        "size": size,
    }
    path = cache_folder() / f"{simulator.name}-predictors-{count}-{epochs}.npz"
    stored, _ = read_cached(path, key)
    if stored is not None:
        columns = stored.pop("values").T
        scaled = [v.with_scale_of(c) for v, c in zip(simulator.variables, columns, strict=True)]
        return build_variable_networks(
            stored, scaled, fingerprint[0].shape[1:], count, device=device
        )
    pictures, values = independent_draws(simulator, count, size, seed=PREDICTOR_SEED)
    networks = fit_variable_networks(
        pictures, values, simulator.variables, device=device, epochs=epochs
    )
    with contextlib.suppress(RunError):  # a cache that cannot be written only costs time
        write_cached(path, key, {**networks.arrays(), "values": values})
    return networks
