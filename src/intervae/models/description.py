"""Descriptions of a model: its repr, also for a notebook, and the model card of a run."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from intervae.data import Variable
from intervae.errors import abbreviate
from intervae.models.capabilities import Counterfactual, HasGraph, Transition
from intervae.models.checks import QUERIES

if TYPE_CHECKING:
    from intervae.models.base import Model

SHOWN_VARIABLES = 8


def describe(model: Model) -> list[tuple[str, str]]:
    """Return the lines of a model's repr as (heading, text)."""
    spec = model.spec
    shape = " x ".join(map(str, spec.image_shape))
    clips = "" if spec.frames is None else f"clips of {spec.frames} frames of "
    rows = [("data", f"{clips}images {shape} (channels, height, width)")]
    if spec.variables:
        names = [f"{v.name} ({_range(v)})" for v in spec.variables]
        rows.append(("variables", abbreviate(names, SHOWN_VARIABLES)))
    rows.append(("latents", abbreviate(model.latent_names, SHOWN_VARIABLES)))
    count = sum(p.numel() for p in model.parameters())
    rows.append(("parameters", f"{count:,}"))
    rows.append(("state", "trained" if model.trained else "not trained; call fit(data)"))
    rows.append(("answers", ", ".join(query for query in QUERIES if hasattr(type(model), query))))
    rows.append(("example", example_calls(model)[0]))
    return rows


def model_repr(model: Model) -> str:
    """Return a model's description as text."""
    rows = describe(model)
    width = max(len(heading) for heading, _ in rows)
    lines = [f"  {heading:<{width}}  {text}" for heading, text in rows]
    return "\n".join([f"{model.name}: {model.title}", *lines])


def model_html(model: Model) -> str:
    """Return a model's description as an HTML table, for notebooks."""
    rows = [
        f"<tr><th style='text-align:left'>{escape(heading)}</th>"
        f"<td style='text-align:left'>{escape(text)}</td></tr>"
        for heading, text in describe(model)
    ]
    title = f"<b>{escape(model.name)}</b>: {escape(model.title)}"
    return f"<div>{title}<table>{''.join(rows)}</table></div>"


def example_calls(model: Model) -> list[str]:
    """Return lines of Python that query this model."""
    if isinstance(model, Counterfactual):
        name = model.latent_names[0]
        values = {v.name: _example_value(v) for v in model.spec.variables}
        value = values.get(name, "0")  # a latent without a label has no range
        return [f'pictures = model.counterfactual(images, {{"{name}": {value}}})']
    if isinstance(model, Transition):
        return [
            f'after = model.act(images, "{model.spec.actions[0]}")',
            "chances = model.attribute(images, after)  # of each action",
        ]
    return ["latents = model.encode(images)"]


def model_card(model: Model, config: dict[str, Any]) -> str:
    """Return README.md of a run: data, variables, graph, example, settings.

    Arguments:
        config: the contents of config.json.
    """
    lines = [f"# {model.title}", ""]
    lines += [f"A `{model.name}` model made with intervae {config['intervae']}.", ""]
    data = config.get("data") or {}
    if data:
        lines += [f"- data: `{data.get('name') or data.get('path') or 'given in Python'}`"]
    lines += [f"- images: {' x '.join(map(str, model.spec.image_shape))} (channels, height, width)"]
    lines += [f"- parameters: {sum(p.numel() for p in model.parameters()):,}"]
    if "seed" in config:
        machine, date = config.get("hardware", "unknown hardware"), config.get("date", "")
        seconds = config.get("seconds", 0)
        lines += [f"- seed {config['seed']}, trained on {machine}, {date}, {seconds:.0f} s"]
    if model.spec.variables:
        lines += ["", "| variable | kind | unit | range in training |", "|---|---|---|---|"]
        lines += [f"| {v.name} | {v.kind} | {v.unit} | {_range(v)} |" for v in model.spec.variables]
    if isinstance(model, Transition):
        lines += ["", "Actions: " + ", ".join(f"`{action}`" for action in model.spec.actions) + "."]
    if isinstance(model, HasGraph):
        undirected = model.undirected_edges
        edges = [
            f"`{a}` {'--' if (a, b) in undirected else '->'} `{b}` ({w:.2f})"
            for a, b, w in model.graph.edges
        ]
        lines += ["", "Graph: " + (", ".join(edges) or "no edges") + "."]
        if undirected:
            lines += ["`a` -- `b`: the data leaves the direction open; the model uses a -> b."]
    lines += ["", "```python", "import intervae", "", 'model = intervae.load(".")']
    lines += [*example_calls(model), "```", ""]
    lines += ["Settings:", "", "```json", json.dumps(config["settings"], indent=2), "```", ""]
    if isinstance(model, Transition):
        caution = "The images of act() are only as accurate as what was learned about the action"
    else:
        caution = "A counterfactual is only as accurate as the graph and the mechanisms"
    lines += [f"{caution}; outside the training ranges above it extrapolates.", ""]
    return "\n".join(lines)


def _example_value(variable: Variable) -> str:
    """Return the middle of the range, the last category or 1, as written in Python."""
    if variable.categories:
        return json.dumps(variable.categories[-1])
    return "1" if variable.kind == "binary" else f"{(variable.low + variable.high) / 2:.4g}"


def _range(variable: Variable) -> str:
    """Return the categories in the order of their codes, or the range in training."""
    numbers = f"{variable.low:.4g} to {variable.high:.4g}"
    return variable.describe_values(12) if variable.categories else numbers
