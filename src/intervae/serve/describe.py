"""What a run can do, asked from its model and its data: capabilities, variables, graph, latents.

No model is known by name here; a capability is a protocol of `models.capabilities`, or a call that
works.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import intervae.serve.schemas as schemas
from intervae.causal.graph import CausalGraph
from intervae.data import Split, Variable
from intervae.errors import DataError, IntervaeError
from intervae.figures.graph_edges import edges_to_draw
from intervae.figures.graph_placement import place_graph
from intervae.models.capabilities import (
    Counterfactual,
    HasGraph,
    TableLinks,
    Temporal,
    Transition,
)
from intervae.models.heat_maps import has_heat_maps

if TYPE_CHECKING:
    from intervae.serve.served_runs import ServedRun

RANGE_PICTURES = 128  # test pictures that decide the range of a latent
ASSUMED = 3.0  # largest value of a latent whose range is not known
MAX_NODES = 200  # of a graph that is drawn


def describe_run(run: ServedRun) -> schemas.RunAnswer:
    """Return the description of a run whose model is loaded."""
    model, data, spec = run.model, run.data, run.model.spec
    latents = latent_ranges(run)
    graph, notes = None, []
    if isinstance(model, HasGraph) and 0 < len(model.graph) <= MAX_NODES:
        graph = describe_graph(model, None if data is None else data.graph)
    elif isinstance(model, HasGraph):
        notes.append(f"a graph of {len(model.graph)} variables is not drawn")
    channels, height, width = spec.image_shape
    source = run.config.get("data", {})
    name = str(source.get("name") or source.get("path") or "") if data is None else data.name
    error = run.data_error
    if data is None and error is None:
        error = "no data was passed with the model, so there are no test pictures."
    return run.description.model_copy(
        update={
            "state": "ready",
            "model": model.name,
            "title": model.title,
            "seed": run.config.get("seed"),
            "image": schemas.ImageAnswer(
                channels=channels, height=height, width=width, frames=spec.frames
            ),
            "capabilities": capabilities(run, bool(latents)),
            "variables": [_describe_variable(*entry) for entry in settable_variables(run)],
            "latents": latents,
            "graph": graph,
            "actions": list(spec.actions),
            "pictures": schemas.TestPicturesAnswer(
                count=0 if data is None else len(data.test), error=error, data=name
            ),
            "pairs": 0 if data is None or data.transitions is None else len(data.transitions.test),
            "simulator": data.simulator.name if data is not None and data.simulator else None,
            "notes": notes,
        }
    )


def capabilities(run: ServedRun, has_latents: bool) -> list[str]:
    """Return what the page may ask this run, see docs/page.md."""
    model, data = run.model, run.data
    images = model.spec.frames is None
    causal = isinstance(model, Counterfactual) and images
    checks: dict[str, Callable[[], bool]] = {
        "graph": lambda: isinstance(model, HasGraph),
        "do": lambda: causal,
        "soft": lambda: causal,
        "truth": lambda: causal and has_truth(run),
        "upload": lambda: images and not model.needs_labels,
        "act": lambda: isinstance(model, Transition),
        "attribute": lambda: isinstance(model, Transition),
        "clip": lambda: isinstance(model, Temporal) and data is not None,
        "findings": lambda: isinstance(model, TableLinks) and data is not None,
        "heat_map": lambda: images and data is not None and has_heat_maps(model, data.test),
        "traverse": lambda: has_latents,
        "sample": lambda: len(model.sample(1, seed=0)) == 1,
        "sample_do": lambda: can(model, HasGraph) and accepts(model.sample, "do"),
    }
    return [name for name, check in checks.items() if works(check)]


def works(check: Callable[[], bool]) -> bool:
    """Whether a check holds; a model that refuses the call lacks the capability."""
    try:
        return check()
    except (IntervaeError, RuntimeError, TypeError, ValueError):
        return False


def can(model: Any, protocol: type) -> bool:
    """Whether a model has the queries of a protocol of `models.capabilities`."""
    return isinstance(model, protocol)


def accepts(function: Callable, argument: str) -> bool:
    """Whether a function has an argument of this name."""
    return argument in inspect.signature(function).parameters


def has_truth(run: ServedRun) -> bool:
    """Whether the simulator can answer do() of some variable of this model."""
    data = run.data
    return (
        data is not None
        and data.simulator is not None
        and "exogenous" in data.test.fields
        and bool(label_names(run) & set(data.simulator.graph.names))
    )


def label_names(run: ServedRun) -> set[str]:
    """Return the variables of do() that are labels of the data, not latents of the same name."""
    return {variable.name for variable, is_label, _ in settable_variables(run) if is_label}


# ---- variables ---------------------------------------------------------------------------------
def settable_variables(run: ServedRun) -> list[tuple[Variable, bool, bool]]:
    """Return the variables that do() may set, whether each is a label, and has a known range."""
    if not isinstance(run.model, Counterfactual | HasGraph):
        return []
    if "settable" not in run.cache:
        run.cache["settable"] = _settable_variables(run)
    return run.cache["settable"]


def _settable_variables(run: ServedRun) -> list[tuple[Variable, bool, bool]]:
    model, spec = run.model, run.model.spec
    latents = model.latent_names
    names = model.graph.names if isinstance(model, HasGraph) else latents
    values: dict[str, np.ndarray] = {}
    if isinstance(model, Temporal) and run.data is not None:
        part = pictures_of_range(run)
        over_time = model.latents_over_time(part.images, {}, **clip_options(run, part))
        values = {name: value.cpu().numpy() for name, value in over_time.items()}
        names = tuple(values)
    elif run.data is not None:
        encoded = encoded_latents(run)
        if encoded is not None:
            values = {name: encoded[:, i].mean(1) for i, name in enumerate(latents)}
    labels = () if getattr(model, "anonymous_latents", False) else spec.names
    return [
        (spec.variable(name), True, True) if name in labels else _latent(name, values.get(name))
        for name in names
    ]


def _latent(name: str, values: np.ndarray | None) -> tuple[Variable, bool, bool]:
    """Return a latent as a variable with the range of `values` (N,)."""
    variable = Variable(name, low=-ASSUMED, high=ASSUMED)
    if values is None or not np.isfinite(values).all() or values.min() == values.max():
        return variable, False, False
    return replace(variable.with_scale_of(values.astype(np.float64))), False, True


def _describe_variable(variable: Variable, label: bool, known: bool) -> schemas.VariableAnswer:
    codes = [] if variable.kind == "continuous" else list(range(round(variable.high) + 1))
    return schemas.VariableAnswer(
        name=variable.name,
        kind=variable.kind,
        unit=variable.unit,
        low=variable.low,
        high=variable.high,
        mean=variable.mean,
        std=variable.std,
        categories=list(variable.categories),
        codes=codes,
        label=label,
        known_range=known,
    )


# ---- latents -----------------------------------------------------------------------------------
def pictures_of_range(run: ServedRun) -> Split:
    """Return test pictures evenly over the split, which may be sorted."""
    count = len(run.data.test)
    rows = np.linspace(0, count - 1, min(count, RANGE_PICTURES)).round().astype(np.int64)
    return run.data.test[torch.from_numpy(rows)]


def encoded_latents(run: ServedRun) -> np.ndarray | None:
    """Return the latents (N, n, k) of some test pictures; None where they cannot be encoded."""
    if "encoded" not in run.cache:
        run.cache["encoded"] = None
        if run.data is not None and run.model.spec.frames is None:
            part = pictures_of_range(run)
            labels = {"labels": part.labels} if run.model.needs_labels else {}

            def encode() -> bool:
                with torch.no_grad():
                    run.cache["encoded"] = run.model.encode(part.images, **labels).cpu().numpy()
                return True

            works(encode)
    return run.cache["encoded"]


def latent_ranges(run: ServedRun) -> list[schemas.LatentAnswer]:
    """Return the latents that a traversal may move; none if the model has no such latents."""
    model = run.model
    if model.spec.frames is not None or not model.latents_are_variables:
        return []
    encoded = encoded_latents(run)
    dims = 0

    def decode() -> bool:
        nonlocal dims
        images = torch.zeros(1, *model.spec.image_shape)
        labels = {}
        if model.needs_labels:
            labels = {"labels": torch.tensor([[v.low for v in model.spec.variables]])}
        with torch.no_grad():
            latents = model.encode(images, **labels)
            dims = latents.shape[2]
            return model.decode(latents).shape[1:] == images.shape[1:]

    if not works(decode):
        return []
    answers = []
    for i, name in enumerate(model.latent_names):
        low, high = -ASSUMED, ASSUMED
        if encoded is not None and encoded[:, i].max() > encoded[:, i].min():
            low, high = float(encoded[:, i].min()), float(encoded[:, i].max())
        answers.append(schemas.LatentAnswer(name=name, dims=dims, low=low, high=high))
    return answers


def clip_options(run: ServedRun, part: Any) -> dict[str, Any]:
    """Return the keyword arguments that queries about clips take beside the frames."""
    if "background" in part.fields:
        return {"background": part.fields["background"]}
    return {}


# ---- graph -------------------------------------------------------------------------------------
def describe_graph(model: Any, true_graph: CausalGraph | None) -> schemas.GraphAnswer:
    """Return boxes and curves as the library draws them, against the true graph if comparable."""
    graph, true = model.graph, None
    if true_graph is not None and set(true_graph.names) == set(graph.names):
        true = true_graph.subgraph(graph.names)
    edges = edges_to_draw(graph, true, None, model.undirected_edges)
    try:
        plan = place_graph(graph, true, edges)
    except (ValueError, IndexError) as error:
        raise DataError(f"the graph of {model.name} cannot be placed ({error}).") from None
    nodes = [
        schemas.NodeAnswer(name=name, x=x, y=y, width=w, height=h)
        for name, (x, y, w, h) in zip(graph.names, plan.boxes.round(2).tolist(), strict=True)
    ]
    arrows = [
        schemas.EdgeAnswer(
            cause=graph.names[edge.cause],
            effect=graph.names[edge.effect],
            weight=edge.weight,
            label=edge.label,
            directed=edge.directed,
            kind=edge.kind,
            path=_svg_path(np.asarray(curve.vertices)),
        )
        for edge, curve in zip(edges, plan.curves, strict=True)
    ]
    return schemas.GraphAnswer(
        width=round(plan.width, 2),
        height=round(plan.height, 2),
        nodes=nodes,
        edges=arrows,
        compared=true is not None,
    )


def _svg_path(vertices: np.ndarray) -> str:
    """Return the cubic pieces of a curve as the path of an SVG."""
    (x, y), *rest = vertices.round(2).tolist()
    pieces = [" ".join(f"{a:g} {b:g}" for a, b in rest[k : k + 3]) for k in range(0, len(rest), 3)]
    return f"M {x:g} {y:g} " + " ".join(f"C {piece}" for piece in pieces)
