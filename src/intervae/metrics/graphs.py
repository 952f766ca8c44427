"""Estimated against true graphs: SHD, TPR, FPR, FDR as in NOTEARS (Zheng et al. 2018), curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError
from intervae.metrics.base import Measurement
from intervae.metrics.codes_and_factors import as_finite_array

Graph = CausalGraph | np.ndarray
UNDIRECTED = -1  # in an array of an estimated graph

# States of a pair of variables j < i. EITHER: an undirected edge, counted as the true direction.
NOTHING, FORWARD, BACKWARD, BOTH, EITHER = range(5)
# Edges to add, remove or reverse between a true (row) and an estimated state (column).
DISTANCE = np.array(
    [
        [0, 1, 1, 2, 1],  # true: no edge
        [1, 0, 1, 1, 0],  # j -> i
        [1, 1, 0, 1, 0],  # j <- i
        [2, 1, 1, 0, 1],  # both
    ]
)


@dataclass(frozen=True)
class GraphMetrics(Measurement):
    """Measurement with SHD as headline, TPR, FPR and FDR as components."""

    @property
    def shd(self) -> int:
        return int(self.value)

    @property
    def tpr(self) -> float:
        return self.components[self.metric.replace("shd", "tpr")].value

    @property
    def fpr(self) -> float:
        return self.components[self.metric.replace("shd", "fpr")].value

    @property
    def fdr(self) -> float:
        return self.components[self.metric.replace("shd", "fdr")].value

    @property
    def permutation(self) -> tuple[int, ...] | None:
        """The estimated variable of each true one; None where it was not searched for."""
        order = self.parameters.get("permutation")
        return None if order is None else tuple(order)


class EdgeCurves(NamedTuple):
    """Scores of the edges with |weight| >= threshold, for each distinct threshold."""

    thresholds: np.ndarray  # (T,) decreasing; the first is inf: no edge
    tpr: np.ndarray  # (T,) correct edges / true edges: the recall
    fpr: np.ndarray  # (T,) wrong edges / ordered pairs without a true edge
    precision: np.ndarray  # (T,) correct edges / estimated edges; 1 without any
    shd: np.ndarray  # (T,)
    auroc: Measurement
    auprc: Measurement


def graph_metrics(true: Graph, estimated: Graph) -> GraphMetrics:
    """Return the structural Hamming distance, and TPR, FPR and FDR of the edges.

    SHD = missing + extra + reversed edges. With d variables, E true edges, P estimated edges, of
    which C are correct, R reversed and F extra: TPR = C / E, FPR = (R + F) / (d (d - 1) / 2 - E),
    FDR = (R + F) / P; a denominator of 0 is replaced by 1. An undirected edge counts once, and is
    correct where the true graph has an edge in either direction. j -> i and i -> j are two edges.

    Arguments:
        true: a CausalGraph, or an array of 0 and 1 with `true[j, i] = 1` for j -> i.
        estimated: the same; an array may also have -1 in one or both entries of a pair for an
            undirected edge, as in a CPDAG. Two CausalGraphs are compared by variable names, arrays
            by position.
    """
    if isinstance(true, CausalGraph) and isinstance(estimated, CausalGraph):
        estimated = reorder_variables(true, estimated)
    truth = adjacency(true, "true", undirected=False)
    edges = adjacency(estimated, "estimated", undirected=True)
    if truth.shape != edges.shape:
        raise DataError(
            f"the true graph has {len(truth)} variables and the estimated one {len(edges)}; "
            "they must be the same."
        )
    return compare(truth, edges)


def edge_curves(true: Graph, weights: Graph) -> EdgeCurves:
    """Return ROC and precision-recall curves over thresholds of the weights of edges.

    Every ordered pair of variables is a candidate. AUROC is the probability that a true edge has a
    larger weight than a pair without an edge, ties counting half; 0.5 is chance. AUPRC is the
    average precision; its chance level, the fraction of true edges, is in its parameters. FPR is
    over all ordered pairs without an edge, not over d (d - 1) / 2 - E as in `graph_metrics`. A
    weight of 0 is never an edge: the curves end at the smallest positive weight; the areas count
    pairs of weight 0 as tied.

    Arguments:
        true: as in `graph_metrics`.
        weights: a CausalGraph or an (n, n) array of finite numbers, ranked by absolute value. The
            diagonal is ignored.
    """
    if isinstance(true, CausalGraph) and isinstance(weights, CausalGraph):
        weights = reorder_variables(true, weights)
    truth = adjacency(true, "true", undirected=False)
    strength = np.abs(
        _square(weights.weights if isinstance(weights, CausalGraph) else weights, "weights")
    )
    if strength.shape != truth.shape:
        raise DataError(
            f"the true graph has {len(truth)} variables and the weights {len(strength)}; "
            "they must be the same."
        )
    pairs = ~np.eye(len(truth), dtype=bool)
    scores, labels = strength[pairs], truth[pairs]
    edges, others = int(labels.sum()), int((1 - labels).sum())
    if not edges or not others:
        raise DataError(
            f"the true graph has {edges} of {len(labels)} possible edges: "
            "a curve needs pairs with an edge and pairs without."
        )
    order = np.argsort(-scores, kind="stable")
    # the last of each run of equal weights
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)
    thresholds = np.append(np.inf, scores[order][ends])
    correct, wrong = (np.append(0, np.cumsum(marks[order])[ends]) for marks in (labels, 1 - labels))
    tpr, fpr = correct / edges, wrong / others
    precision = np.where(correct + wrong > 0, correct / np.maximum(correct + wrong, 1), 1.0)

    def area(metric: str, value: float, chance: float) -> Measurement:
        parameters = {"variables": len(truth), "true_edges": edges, "chance": chance}
        return Measurement(
            metric, float(value), len(labels), parameters=parameters, higher_is_better=True
        )

    auroc = area("edge_auroc", (np.diff(fpr) * (tpr[1:] + tpr[:-1])).sum() / 2, 0.5)
    auprc = area("edge_auprc", (np.diff(tpr) * precision[1:]).sum(), edges / len(labels))
    positive = thresholds > 0
    return EdgeCurves(
        thresholds[positive],
        tpr[positive],
        fpr[positive],
        precision[positive],
        _shd_over_thresholds(truth, strength, thresholds[positive]),
        auroc,
        auprc,
    )


def adjacency(graph: Graph, name: str, *, undirected: bool) -> np.ndarray:
    """Return a graph as a checked array of 0 and 1, and -1 for undirected edges if allowed."""
    if isinstance(graph, CausalGraph):
        return graph.adjacency
    array = _square(graph, f"the {name} graph")
    allowed = (0, 1, UNDIRECTED) if undirected else (0, 1)
    if not np.isin(array, allowed).all():
        value = array[~np.isin(array, allowed)][0]
        meaning = "0, 1 and -1 (undirected)" if undirected else "0 and 1"
        raise DataError(
            f"the {name} graph holds {value:g}, but an array of edges holds {meaning}; "
            "pass (abs(W) > threshold), or a CausalGraph."
        )
    if np.diagonal(array).any():
        variable = int(np.flatnonzero(np.diagonal(array))[0])
        raise DataError(
            f"variable {variable} of the {name} graph causes itself; set the diagonal to 0."
        )
    clash = np.argwhere((array == UNDIRECTED) & (array.T == 1))
    if len(clash):
        j, i = clash[0]
        raise DataError(
            f"the {name} graph has both an undirected (-1) and a directed (1) edge between "
            f"variables {j} and {i}; keep one. (An array that marks the two ends of every edge, "
            "as causal-learn's, must be converted first.)"
        )
    return array.astype(np.int64)


def reorder_variables(true: CausalGraph, graph: CausalGraph) -> CausalGraph:
    """Return `graph` with its variables in the order of `true`."""
    different = sorted(set(true.names) ^ set(graph.names))
    if different:
        raise DataError(
            "graphs over different variables cannot be compared "
            f"({', '.join(different)} in one only); match latents with best_permutation."
        )
    return graph.subgraph(true.names)


def pair_states(graph: np.ndarray) -> np.ndarray:
    """Return the state (n, n) of each ordered pair, an index into DISTANCE."""
    directed = (graph == 1) * FORWARD + (graph.T == 1) * BACKWARD
    return np.where((graph == UNDIRECTED) | (graph.T == UNDIRECTED), EITHER, directed)


def compare(true: np.ndarray, estimated: np.ndarray) -> GraphMetrics:
    """Return the metrics of checked arrays (n, n): true of 0 and 1, estimated of 0, 1 and -1."""
    undirected = np.triu(pair_states(estimated) == EITHER, 1)
    directed, skeleton, variables = estimated == 1, (true | true.T).astype(bool), len(true)
    edges, predicted = int(true.sum()), int(directed.sum() + undirected.sum())
    correct = int((directed & (true == 1)).sum() + (undirected & skeleton).sum())
    wrong = predicted - correct  # reversed or extra
    shd = int(np.triu(DISTANCE[pair_states(true), pair_states(estimated)], 1).sum())
    absent = variables * (variables - 1) / 2 - edges
    parameters = {
        "variables": variables,
        "true_edges": edges,
        "found_edges": predicted,
        "undirected_edges": int(undirected.sum()),
    }

    def rate(metric: str, value: float, higher_is_better: bool) -> Measurement:
        return Measurement(
            metric, float(value), 1, parameters=parameters, higher_is_better=higher_is_better
        )

    rates = (
        rate("tpr", correct / max(edges, 1), True),
        rate("fpr", wrong / max(absent, 1), False),
        rate("fdr", wrong / max(predicted, 1), False),
    )
    return GraphMetrics(
        "shd",
        float(shd),
        1,
        parameters=parameters,
        higher_is_better=False,
        components={rate.metric: rate for rate in rates},
    )


def _shd_over_thresholds(
    true: np.ndarray, strength: np.ndarray, thresholds: np.ndarray
) -> np.ndarray:
    """Return the SHD (T,) at every threshold, in decreasing order.

    Each pair of variables changes it twice: at its stronger and at its weaker direction.
    """
    j, i = np.triu_indices(len(true), 1)
    strong = np.maximum(strength[j, i], strength[i, j])
    weak = np.minimum(strength[j, i], strength[i, j])
    state = pair_states(true)[j, i]
    first = np.where(strength[j, i] >= strength[i, j], FORWARD, BACKWARD)
    change = np.zeros(len(thresholds) + 1, dtype=np.int64)  # the last entry is for weights of 0
    for weight, before, after in ((strong, NOTHING, first), (weak, first, BOTH)):
        np.add.at(
            change,
            np.searchsorted(-thresholds, -weight),
            DISTANCE[state, after] - DISTANCE[state, before],
        )
    return int(true.sum()) + np.cumsum(change[:-1])


def _square(values: np.ndarray, name: str) -> np.ndarray:
    array = as_finite_array(values, name)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not len(array):
        raise DataError(
            f"{name} must be a square table, variables by variables, not of shape {array.shape}."
        )
    return array
