"""Layers against the objects of a simulator."""

from intervae.data.simulators.pendulum import Pendulum
from intervae.metrics import object_layers

OBJECTS = Pendulum.objects


def test_every_object_has_its_layer():
    layers = [("light",), ("shadow_position", "shadow_length"), ("pendulum",)]
    result = object_layers(layers, OBJECTS)
    assert result.value == 1.0
    assert result.parameters["other_layers"] == []


def test_a_layer_with_another_variable_does_not_count():
    layers = [("light",), ("pendulum", "shadow_length"), ("pendulum",)]
    result = object_layers(layers, OBJECTS)
    assert result.per_variable == {"rod and ball": 1.0, "sun": 1.0, "shadow": 0.0}
    assert result.value == 2 / 3
    assert result.parameters["other_layers"] == ["pendulum+shadow_length"]
