"""From a model and its data to the arrays and callables that metrics take: one function for each entry of METRICS."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from intervae import metrics
from intervae.data.base import CHUNK, Split
from intervae.data.simulators.base import Simulator
from intervae.errors import DataError
from intervae.evaluation.subject import Subject
from intervae.metrics.base import Measurement
from intervae.models.base import Model, answers, ask
from intervae.models.causal import CausalModel
from intervae.models.heat_maps import has_heat_maps, heat_map, link

Measure = Callable[[Subject], list[Measurement]]
COUNTERFACTUAL_IMAGES = 512
AXIOM_IMAGES = 128  # each is asked about some 30 times for every variable
FITTING = threading.Lock()
LIKELIHOOD_IMAGES, LIKELIHOOD_SAMPLES = 128, 64
DIVERSITY_IMAGES = 512
ACTION_PAIRS = 20_000
HEAT_MAP_IMAGES = 512


def r2(subject: Subject) -> list[Measurement]:
    model, varying = subject.model, subject.varying
    assert isinstance(model, CausalModel)
    measured = ask(model, "measure", subject.data.test).numpy()
    return [subject.named(metrics.r2(measured[:, varying], subject.labels[:, varying], subject.tables.names))]


def reconstruction(subject: Subject) -> list[Measurement]:
    error = np.concatenate([_pixel_errors(subject.model, part) for part in subject.data.test.chunks()])
    return [Measurement("reconstruction_pixel_mae", float(error.mean()), len(error), spread=float(error.std()), higher_is_better=False)]


def _pixel_errors(model: Model, part: Split) -> np.ndarray:
    """(N,) of the pictures of a part, or (N T,) of the frames of its clips."""
    pair = ask(model, "reconstruct", part), part.images
    return metrics.pixel_mae(*(pictures.reshape(-1, *pictures.shape[-3:]) for pictures in pair))


def information(key: str) -> Measure:
    """MIC or TIC, of the mean over a variable's dims and of its best dim."""
    return lambda subject: [m for name, m in subject.information.items() if name.startswith(key)]


def counterfactual(subject: Subject) -> list[Measurement]:
    """Against the simulator's truth; the variables re-measured by a reader trained on the simulator's pictures, whose quality comes last."""
    model, data, part = subject.model, subject.data, subject.part(COUNTERFACTUAL_IMAGES)
    assert data.simulator is not None
    with FITTING:
        reader, quality = _reader(data.simulator, data.spec.image_shape[-1])
    images, exogenous = part.images.cpu().numpy(), part.fields["exogenous"].cpu().numpy()
    found = metrics.counterfactual_errors(subject.counterfactual, data.simulator, images, exogenous, data.variables, reader=reader)
    if isinstance(model, CausalModel):
        latents = subject.latents[subject.rows(COUNTERFACTUAL_IMAGES)]

        def intervene(before: np.ndarray, do: dict[str, Any]) -> np.ndarray:
            return model.intervene(torch.as_tensor(before, device=model.device), do).cpu().numpy()

        moved = metrics.latent_movement(intervene, latents, data.variables, model.graph)
        found += [moved] if moved is not None else []
    return found + quality


@functools.lru_cache(maxsize=2)
def _reader(simulator: Simulator, size: int) -> Any:
    """Fitted once for all models that are judged on the same data."""
    return metrics.simulator_reader(simulator, size)


def axioms(subject: Subject) -> list[Measurement]:
    """Without truth; the predictor is trained on the validation split, which no model has learned from, and its quality comes last."""
    data, part = subject.data, subject.part(AXIOM_IMAGES)
    predictor = metrics.fit_reader(data.validation.images, data.validation.labels.cpu().numpy(), data.variables)
    asked = subject.counterfactual, part.images.cpu().numpy()
    labels = part.labels.cpu().numpy()
    graph = data.graph.subgraph(data.names) if data.graph is not None else subject.model.graph  # without the latents of a simulator
    found = [
        *metrics.composition(*asked, labels, data.variables),
        *metrics.reversibility(*asked, labels, data.variables),
        *metrics.effectiveness(*asked, data.variables, predictor),
        *metrics.minimality(*asked, labels, data.variables, predictor, graph),
    ]
    whose = {"graph": "true" if data.graph is not None else "the model's"}
    found = [replace(m, parameters={**m.parameters, **whose}) if m.metric.startswith("minimality") else m for m in found]
    judged = subject.part(COUNTERFACTUAL_IMAGES)
    return found + predictor.quality(judged.images, judged.labels.cpu().numpy(), name="predictor")


def graph(subject: Subject) -> list[Measurement]:
    true, found = subject.data.graph, subject.model.graph
    assert true is not None
    return metrics.graph_metrics(true, found).rows()


def edges(subject: Subject) -> list[Measurement]:
    """Thresholds of the model's edge strengths swept: areas under the ROC and the precision-recall curve."""
    assert subject.data.graph is not None
    curves = metrics.edge_curves(subject.data.graph, subject.model.graph)
    return [curves.auroc, curves.auprc]


def permuted_graph(subject: Subject) -> list[Measurement]:
    """The graph metrics under the best renaming of the latents, for models whose latents have no names of their own."""
    true, found = subject.data.graph, subject.model.graph
    assert true is not None
    return metrics.best_permutation(true.adjacency, found.adjacency).rows()


def likelihood(subject: Subject) -> list[Measurement]:
    model, part = subject.model, subject.part(LIKELIHOOD_IMAGES)
    labels = part.labels if subject.data.variables else None
    bounds = metrics.likelihood_bounds(model.log_weights, part.images, labels, samples=LIKELIHOOD_SAMPLES)
    return bounds.measurements(reading=(type(model).log_weights.__doc__ or "").partition("\n")[0])


def actions(subject: Subject) -> list[Measurement]:
    """At most ACTION_PAIRS random pairs of the test split; what the majority is, the training split decides."""
    model, data = subject.model, subject.data
    assert data.transitions is not None
    known = model.spec.actions
    if known != data.transitions.test.action_names:
        raise DataError(
            f"the model knows the actions {', '.join(known)}, but the pairs of {data.name} have {', '.join(data.transitions.test.action_names)}; "
            "load the data with the same factors, in the same order (transitions=, factors=)."
        )
    pairs, seen = data.transitions.test, data.transitions.train.action.cpu()
    if len(pairs) > ACTION_PAIRS:
        pairs = pairs[torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0))[:ACTION_PAIRS]]
    chunks = zip(pairs.before.split(CHUNK), pairs.after.split(CHUNK), strict=True)
    scores = torch.cat([model.attribute(data.test[before].images, data.test[after].images).cpu() for before, after in chunks])
    factors = pairs.factor_of_action.cpu()
    return [
        *metrics.action_accuracy(scores, pairs.action.cpu(), pairs.action_names, seen=seen),
        *metrics.factor_accuracy(scores, pairs.action.cpu(), factors, pairs.factor_names, seen=seen),
    ]


def heat_maps(subject: Subject) -> list[Measurement]:
    """Of the latent that goes with the column which best tells, on training rows, whether there is a mask."""
    model, data, part = subject.model, subject.data, subject.part(HEAT_MAP_IMAGES)
    column = data.names[int(np.abs(_with_masks(data.train)).argmax())]
    chosen = link(model, data, column)
    labels = part.labels if model.needs_labels else None
    maps = heat_map(model, part.images, chosen.latent, sign=chosen.sign, labels=labels).numpy()
    masks = part.fields["mask"].cpu().numpy()
    about = {"column": column, "latent": chosen.latent, "edge": chosen.words, "sign": chosen.sign}
    found = metrics.heat_map_energy(maps, masks), metrics.heat_map_iou(maps, masks)
    return [replace(m, parameters={**m.parameters, **about}) for m in found]


def _with_masks(split: Split) -> np.ndarray:
    """(n,) correlation of each column with whether a picture has a mask."""
    there = split.fields["mask"].flatten(1).any(1).double().cpu().numpy()
    columns = split.labels.double().cpu().numpy().T
    return np.array([np.corrcoef(column, there)[0, 1] if column.std() > 0 and there.std() > 0 else 0.0 for column in columns])


def active_units(subject: Subject) -> list[Measurement]:
    """The count of each latent too, unless they are codes at places, of which there may be hundreds."""
    return [metrics.active_units(subject.latents, subject.model.latent_names if subject.model.latents_are_variables else ())]


def diversity(subject: Subject) -> list[Measurement]:
    """As many samples of the model as test images; both with pixels in [0, 1]."""
    images = subject.part(DIVERSITY_IMAGES).images
    return [metrics.diversity(subject.model.sample(len(images), seed=0).cpu().numpy(), images.cpu().numpy() / 255)]


def disentanglement(name: str, **settings: Any) -> Measure:
    """A metric of codes and factors; a variable's code is the mean over its dims."""

    def measure(subject: Subject) -> list[Measurement]:
        table = subject.tables
        matching = {"matching": "identity" if table.matching == "identity" else "hungarian"} if name == "mcc" else {}
        result = getattr(metrics, name)(table.latents, table.labels, names=table.names, kinds=table.kinds, dims="mean", **settings, **matching)
        return [subject.named(row) for row in result.rows() if not row.metric.endswith("_train")]

    return measure


# ---- when they apply -------------------------------------------------------------------------------------------------
def with_labels(subject: Subject) -> bool:
    return subject.model.latents_are_variables and bool(subject.data.variables) and len(subject.labels) >= 4 and bool(subject.varying.any())


def with_two_labels(subject: Subject) -> bool:
    return with_labels(subject) and int(subject.varying.sum()) > 1


def reads_labels(subject: Subject) -> bool:
    return isinstance(subject.model, CausalModel) and subject.named_alike and bool(subject.varying.any())


def answers_do(subject: Subject) -> bool:
    return answers(type(subject.model), "counterfactual") and subject.named_alike


def with_truth(subject: Subject) -> bool:
    return answers_do(subject) and subject.data.simulator is not None and "exogenous" in subject.data.test.fields


def with_graphs(subject: Subject) -> bool:
    graph = subject.data.graph
    return answers(type(subject.model), "graph") and graph is not None and subject.named_alike and set(graph.names) == set(subject.data.names)


def with_as_many_nodes(subject: Subject) -> bool:
    graph = subject.data.graph
    return answers(type(subject.model), "graph") and graph is not None and len(graph) == len(subject.model.graph)


def with_some_graph(subject: Subject) -> bool:
    return answers_do(subject) and (subject.data.graph is not None or answers(type(subject.model), "graph"))


def with_actions(subject: Subject) -> bool:
    return answers(type(subject.model), "attribute") and subject.data.transitions is not None


def with_masks(subject: Subject) -> bool:
    data = subject.data
    marked = "mask" in data.train.fields and "mask" in data.test.fields and bool(subject.part(HEAT_MAP_IMAGES).fields["mask"].any())
    return marked and bool(data.variables) and has_heat_maps(subject.model, data.test)


def with_weights(subject: Subject) -> bool:
    return answers(type(subject.model), "log_weights")
