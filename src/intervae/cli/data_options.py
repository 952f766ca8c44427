"""The options of `load_data` on the command line, and --graph, for every command with data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from intervae.errors import UsageError

if TYPE_CHECKING:
    from intervae.causal.graph import CausalGraph
    from intervae.data import Dataset


def read_data_options(
    size: int | None,
    variables: str | None,
    kinds: list[str] | None,
    group: str | None,
    options: list[str] | None,
) -> dict[str, Any]:
    """Return the keyword arguments of `load_data` for --size, --variables, --kind and so on."""
    from intervae.settings import parse_settings, plain_value

    texts = parse_settings(options or [], "--data-option")
    for key in texts:
        if key in ("size", "variables", "kinds", "group"):
            option = "--kind" if key == "kinds" else f"--{key}"
            raise UsageError(f"--data-option {key}=... has its own option, {option}.")
    return {
        "size": size,
        "variables": [name.strip() for name in variables.split(",")] if variables else None,
        "kinds": parse_settings(kinds or [], "--kind") or None,
        "group": group,
        **{key: plain_value(text) for key, text in texts.items()},
    }


def read_graph(graph: str, data: Dataset) -> CausalGraph:
    """Return the graph that --graph names."""
    from intervae.causal.known_graph import ARROW, as_graph

    if graph != "true":
        is_file = ARROW not in graph
        if is_file and not Path(graph).is_file():
            raise UsageError(
                f"--graph {graph}: there is no such file; give a graph.json, edges such as "
                "'a -> b', or `true` for the data set's own graph."
            )
        return as_graph(Path(graph) if is_file else graph, data.names)
    if data.graph is None:
        raise UsageError(
            f"--graph true: the true graph of {data.name} is not known; give a graph.json."
        )
    return data.graph
