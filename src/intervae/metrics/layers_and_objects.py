"""Layers of a decoder against the objects of a simulator: does one set of variables paint each?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from intervae.metrics.base import Measurement


def object_layers(
    layers: Iterable[Sequence[str]], objects: Mapping[str, Sequence[str]]
) -> Measurement:
    """Fraction of the objects for which a layer has exactly the variables that draw the object.

    Arguments:
        layers: the variables of each layer.
        objects: object -> variables that draw it, as in `Simulator.objects`.

    Returns:
        `object_layers`, 1 for each object with such a layer. The parameter `other_layers` lists the
        layers that belong to no object.
    """
    painted = [frozenset(layer) for layer in layers]
    drawn = {name: frozenset(variables) for name, variables in objects.items()}
    per_object = {name: float(variables in painted) for name, variables in drawn.items()}
    others = ["+".join(sorted(layer)) for layer in painted if layer not in drawn.values()]
    return Measurement(
        "object_layers",
        sum(per_object.values()) / len(per_object),
        len(per_object),
        per_object,
        parameters={"other_layers": others},
        higher_is_better=True,
    )
