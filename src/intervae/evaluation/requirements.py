"""What metrics require of a model and its data: the predicates of METRICS."""

from __future__ import annotations

from intervae.evaluation.context import HEAT_MAP_IMAGES, Context
from intervae.models.capabilities import (
    Counterfactual,
    HasGraph,
    Likelihood,
    MeasuresVariables,
    Transition,
)
from intervae.models.heat_maps import has_heat_maps


def always(context: Context) -> bool:
    return True


def has_two_images(context: Context) -> bool:
    return len(context.data.test) > 1


def has_labels(context: Context) -> bool:
    return (
        context.model.latents_are_variables
        and bool(context.data.variables)
        and len(context.labels) >= 4
        and bool(context.varying.any())
    )


def has_two_labels(context: Context) -> bool:
    return has_labels(context) and int(context.varying.sum()) > 1


def measures_labels(context: Context) -> bool:
    return (
        isinstance(context.model, MeasuresVariables)
        and context.latents_are_labels
        and bool(context.varying.any())
    )


def has_counterfactuals(context: Context) -> bool:
    return isinstance(context.model, Counterfactual) and context.latents_are_labels


def has_true_counterfactuals(context: Context) -> bool:
    return (
        has_counterfactuals(context)
        and context.data.simulator is not None
        and "exogenous" in context.data.test.fields
    )


def has_object_masks(context: Context) -> bool:
    simulator = context.data.simulator
    return has_true_counterfactuals(context) and simulator is not None and bool(simulator.objects)


def has_layers_and_objects(context: Context) -> bool:
    simulator = context.data.simulator
    return (
        bool(getattr(context.model, "layers", ()))
        and simulator is not None
        and bool(simulator.objects)
    )


def has_no_simulator(context: Context) -> bool:
    return context.data.simulator is None


def has_counterfactuals_and_graph(context: Context) -> bool:
    # answers are asked about again, and have no labels for an encoder that needs them
    return (
        has_counterfactuals(context)
        and not context.model.needs_labels
        and (context.data.graph is not None or isinstance(context.model, HasGraph))
    )


def has_comparable_graph(context: Context) -> bool:
    true = context.data.graph
    return (
        isinstance(context.model, HasGraph)
        and true is not None
        and context.latents_are_labels
        and set(true.names) == set(context.data.names)
    )


def has_graph_of_equal_size(context: Context) -> bool:
    true = context.data.graph
    return (
        isinstance(context.model, HasGraph)
        and true is not None
        and len(true) == len(context.model.graph)
    )


def has_likelihood(context: Context) -> bool:
    return isinstance(context.model, Likelihood)


def has_actions(context: Context) -> bool:
    return isinstance(context.model, Transition) and context.data.transitions is not None


def has_masks(context: Context) -> bool:
    data = context.data
    return (
        "mask" in data.train.fields
        and "mask" in data.test.fields
        and bool(context.test_subset(HEAT_MAP_IMAGES).fields["mask"].any())
        and bool(data.variables)
        and has_heat_maps(context.model, data.test)
    )
