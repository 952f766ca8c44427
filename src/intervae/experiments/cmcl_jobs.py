"""Jobs of CMCL on simulated data: train a model, or learn a graph of its latents."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from intervae import figures
from intervae.causal.graph import CausalGraph
from intervae.data import Dataset, load_data
from intervae.discovery import discover
from intervae.discovery.registry import method_settings
from intervae.errors import UsageError
from intervae.experiments.base import Job, Numbers
from intervae.experiments.cmcl_score import (
    EncodedSplits,
    bipartite,
    decide_weights,
    graph_numbers,
    latent_numbers,
    learner_table,
    match_latents,
    reorder,
)
from intervae.experiments.jobs import Train
from intervae.files import write_bytes
from intervae.models.base import Model
from intervae.models.batches import query_split
from intervae.models.capabilities import TableLinks

LATENTS = "latents.npz"
DECISION = "decision"  # the rule by which CMCL decides its final edges, as a graph learner
_TRAINING: dict[str, threading.Lock] = {}  # run folder -> lock of its training


@dataclass(frozen=True)
class TrainOnSimulation(Train):
    """Train on one simulator per seed; score latents, and the graph if the model has one.

    Arguments:
        first_seed: simulator, rows and training of seed k use first_seed + k. The settings were
            chosen on other simulators.
    """

    first_seed: int = 100

    def check(self) -> None:
        """Simulated data are never missing."""

    def simulated_data(self, seed: int) -> Dataset:
        """Return the simulated data set of a seed."""
        return load_world(self.data, self.options, seed + self.first_seed)

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data, stored = self.simulated_data(seed), self.latents(seed, device, folder)
        encoded = EncodedSplits(stored["train"], stored["test"])
        orders = match_latents(encoded, data)
        numbers = {
            "train_seconds": float(stored["seconds"]),
            "reconstruction_mse": float(stored["mse"]),
            **latent_numbers(encoded, data, orders, seed),
        }
        if "graph" in stored:
            graph, weights = (reorder(stored[key], orders[0]) for key in ("graph", "influence"))
            numbers |= graph_numbers(graph, weights, data)
            numbers["label_influence"] = float(stored["label_influence"].max())
        return numbers

    def latents(self, seed: int, device: str, folder: Path) -> dict[str, np.ndarray]:
        """Return the latents of the run in `folder`; train it if there is none yet."""
        identity = {
            "data": self.data,
            "options": dict(self.options),
            "model": self.model,
            "settings": dict(self.settings),
            "seed": seed + self.first_seed,
        }
        config_key, path = json.dumps(identity, sort_keys=True), folder / LATENTS
        with _TRAINING.setdefault(str(folder), threading.Lock()):
            if not path.is_file():
                data = self.simulated_data(seed)
                model, seconds = self.train(data, seed + self.first_seed, device, folder)
                arrays: dict[str, Any] = {"made_for": config_key, "seconds": seconds}
                buffer = BytesIO()
                np.savez_compressed(buffer, **(arrays | encode_run(model, data)))
                write_bytes(path, buffer.getvalue())
        stored = read_latents(folder)
        if str(stored["made_for"]) != config_key:
            raise UsageError(
                f"{folder} holds the latents of other settings; "
                "remove it or choose another --runs folder."
            )
        return stored


def load_world(name: str, options: Mapping[str, Any], seed: int) -> Dataset:
    """Return a data set whose simulator and rows are those of one seed."""
    return load_data(name, **options, world=seed, seed=seed)


@dataclass(frozen=True)
class LearnGraph(Job):
    """Learn a graph of the latents of a trained model and the columns.

    Edges are restricted to latent-column pairs, as in CMCL. The learner is part of `model`, see
    `figures.split_method`; NOTEARS runs on the device.

    Arguments:
        training_job: the job that trains the model, in a folder beside this one's.
    """

    training_job: TrainOnSimulation | None = None

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        training = self.training_job
        assert training is not None
        stored = training.latents(seed, device, folder.with_name(f"{training.key}-{seed}"))
        data = training.simulated_data(seed)
        encoded = EncodedSplits(stored["train"], stored["test"])
        table = learner_table(encoded, data, seed)
        m, method = encoded.train.shape[1], figures.split_method(self.model)[1]
        started = time.perf_counter()
        if method == DECISION:
            weights = decide_weights(table, m, **self.settings)
            pattern = (weights != 0).astype(np.int64)
        else:
            latents = [f"z{i}" for i in range(m)]
            settings = {"knowledge": bipartite(latents, data.names), **self.settings}
            if "device" in method_settings(method):
                settings["device"] = device
            names = [*latents, *data.names]
            result = discover(table, method, names=names, seed=seed, **settings)
            weights, pattern = result.graph.weights, result.pattern
        seconds, order = time.perf_counter() - started, match_latents(encoded, data)[0]
        numbers = graph_numbers(reorder(pattern, order), reorder(weights, order), data)
        undirected = float((pattern == -1).sum() / 2)
        return {**numbers, "undirected": undirected, "learner_seconds": seconds}


def encode_run(model: Model, data: Dataset) -> dict[str, np.ndarray]:
    """Return latents, the reconstruction error and any graph.

    Latents are inferred from images alone, unless the encoder needs the labels.
    """
    train, test = (query_split(model, "encode", part)[..., 0] for part in (data.train, data.test))
    reconstructed = model.decode(test[..., None].to(model.device)).cpu()
    arrays = {
        "train": train.numpy(),
        "test": test.numpy(),
        "mse": (reconstructed - data.test.images.float() / 255).square().mean().numpy(),
    }
    if isinstance(model, TableLinks):
        influence = model.label_influence(data.test.images, data.test.labels)
        arrays["graph"] = model.graph.adjacency
        arrays["influence"] = model.edge_strengths.cpu().numpy()
        arrays["label_influence"] = influence.cpu().numpy()
    return arrays


def read_latents(folder: Path) -> dict[str, np.ndarray]:
    """Read the arrays that `TrainOnSimulation.latents` stored in a run folder."""
    with np.load(folder / LATENTS, allow_pickle=False) as arrays:
        return dict(arrays)


def draw_bars(
    path: Path, rows: Sequence[Mapping[str, Any]], *, jobs: Sequence[Job], **options: Any
) -> None:
    """Draw bars; the paper's numbers also of those `jobs` that have not been run."""
    figures.grouped_bars(path, with_unmeasured(rows, jobs), **options)


def with_unmeasured(
    rows: Sequence[Mapping[str, Any]], jobs: Sequence[Job]
) -> list[Mapping[str, Any]]:
    """Rows in the order of `jobs`, with one of the paper's number alone for each job without any.

    Rows of other jobs, as those of a quick form, are returned as they are.
    """
    order = {(job.data, job.model, job.variant): k for k, job in enumerate(jobs)}
    measured = {(row["data"], row["model"], row["variant"]) for row in rows}
    if not measured <= order.keys():
        return list(rows)
    added = [
        {**dict(zip(("data", "model", "variant"), key, strict=True)), "metric": metric}
        | {"part": "", "paper": value}
        for key, k in order.items()
        if key not in measured
        for metric, value in jobs[k].paper.items()
    ]
    return sorted([*rows, *added], key=lambda row: order[row["data"], row["model"], row["variant"]])


def draw_panels(folders: Mapping[str, Path], stem: Path) -> None:
    """Draw NAME-a.png, ...: estimated influences of each panel, matched, beside the truth."""
    for folder in folders.values():
        if not (folder / LATENTS).is_file():
            continue
        stored = read_latents(folder)
        identity = json.loads(str(stored["made_for"]))
        seed = identity["seed"]
        data = load_world(identity["data"], identity["options"], seed)
        assert data.graph is not None
        order = match_latents(EncodedSplits(stored["train"], stored["test"]), data)[0]
        truth = CausalGraph(data.graph.names, data.graph.adjacency.astype(float))
        panel = identity["options"]["graph"]
        figures.adjacency_history(
            stem.with_name(f"{stem.name}-{panel}.png"),
            [reorder(stored["influence"], order)],
            truth.names,
            true_graph=truth,
            captions=["estimated"],
            title=f"Panel {panel}",
        )
