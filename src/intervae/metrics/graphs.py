"""An estimated graph against the true one: SHD, TPR, FPR and FDR as NOTEARS (Zheng et al. 2018) counts them, and curves over thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from intervae.causal.graph import CausalGraph
from intervae.errors import DataError
from intervae.metrics.base import Measurement
from intervae.metrics.samples import numbers

Graph = CausalGraph | np.ndarray
UNDIRECTED = -1  # in an array of an estimated graph

# What two variables j < i have between them, and how far two such states are apart: edges to add, remove or turn round, a reversal counting once.
NOTHING, FORWARD, BACKWARD, BOTH, EITHER = range(5)  # EITHER: an undirected edge, judged favourably
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
    """SHD is the headline; TPR, FPR and FDR are its parts."""

    @property
    def shd(self) -> int:
        return int(self.value)

    @property
    def tpr(self) -> float:
        return self.parts[self.metric.replace("shd", "tpr")].value

    @property
    def fpr(self) -> float:
        return self.parts[self.metric.replace("shd", "fpr")].value

    @property
    def fdr(self) -> float:
        return self.parts[self.metric.replace("shd", "fdr")].value

    @property
    def permutation(self) -> tuple[int, ...] | None:
        """The estimated variable that stands for each true one; None where it was not searched for."""
        found = self.parameters.get("permutation")
        return None if found is None else tuple(found)


class EdgeCurves(NamedTuple):
    """What the graph of all edges with |weight| >= threshold scores, for every threshold that matters, from strict to lax."""

    thresholds: np.ndarray  # (T,) falling; the first is inf: no edge
    tpr: np.ndarray  # (T,) true edges found / true edges: the recall
    fpr: np.ndarray  # (T,) wrong edges found / ordered pairs without an edge
    precision: np.ndarray  # (T,) true edges found / edges found; 1 where none is
    shd: np.ndarray  # (T,)
    auroc: Measurement
    auprc: Measurement


def graph_metrics(true: Graph, estimated: Graph) -> GraphMetrics:
    """Structural Hamming distance, and the true positive, false positive and false discovery rates of edges.

    Arguments:
        true: a CausalGraph, or an array of 0 and 1 with `true[j, i] = 1` for j -> i.
        estimated: the same; an array may also hold -1 in one or both entries of a pair for an undirected edge, as in a CPDAG. Two CausalGraphs
            are compared by the names of their variables, arrays by position.

    SHD = missing + extra + reversed edges; a reversal costs 1. With R reversed and F extra edges, P edges found, E true ones, d variables:
    TPR = right / E, FPR = (R + F) / (d (d - 1) / 2 - E), FDR = (R + F) / P, with 1 for a denominator of 0. An undirected edge counts once, and
    as right where the true graph has an edge in either direction. j -> i and i -> j both found are two edges.
    """
    if isinstance(true, CausalGraph) and isinstance(estimated, CausalGraph):
        estimated = by_name(true, estimated)
    truth, found = adjacency(true, "true", undirected=False), adjacency(estimated, "estimated", undirected=True)
    if truth.shape != found.shape:
        raise DataError(f"the true graph has {len(truth)} variables and the estimated one {len(found)}; they must be the same.")
    return compare(truth, found)


def edge_curves(true: Graph, weights: Graph) -> EdgeCurves:
    """Every threshold on the weights (or probabilities) of edges at once; every ordered pair of variables is a candidate edge.

    Arguments:
        true: as in `graph_metrics`.
        weights: a CausalGraph or an (n, n) array of finite numbers; an edge is the surer the larger its absolute weight. The diagonal is ignored.

    AUROC is the chance that a true edge weighs more than a pair without one, ties counting half; 0.5 is chance. AUPRC is the average precision
    (mean precision at the true edges); its chance level, the share of true edges, is in its parameters. FPR is over all ordered pairs without
    an edge here, not over d (d - 1) / 2 - E as in `graph_metrics`. A weight of 0 is no edge at any threshold: the curves end at the least
    weight above 0, the areas count pairs of weight 0 as tied.
    """
    if isinstance(true, CausalGraph) and isinstance(weights, CausalGraph):
        weights = by_name(true, weights)
    truth = adjacency(true, "true", undirected=False)
    strength = np.abs(_square(weights.weights if isinstance(weights, CausalGraph) else weights, "weights"))
    if strength.shape != truth.shape:
        raise DataError(f"the true graph has {len(truth)} variables and the weights {len(strength)}; they must be the same.")
    pairs = ~np.eye(len(truth), dtype=bool)
    scores, labels = strength[pairs], truth[pairs]
    edges, others = int(labels.sum()), int((1 - labels).sum())
    if not edges or not others:
        raise DataError(f"the true graph has {edges} of {len(labels)} possible edges: a curve needs pairs with an edge and pairs without.")
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)  # the last of each run of equal weights
    thresholds = np.append(np.inf, scores[order][ends])
    hits, misses = (np.append(0, np.cumsum(marks[order])[ends]) for marks in (labels, 1 - labels))
    tpr, fpr, precision = hits / edges, misses / others, np.where(hits + misses > 0, hits / np.maximum(hits + misses, 1), 1.0)

    def area(metric: str, value: float, chance: float) -> Measurement:
        parameters = {"variables": len(truth), "true_edges": edges, "chance": chance}
        return Measurement(metric, float(value), len(labels), parameters=parameters, higher_is_better=True)

    auroc = area("edge_auroc", (np.diff(fpr) * (tpr[1:] + tpr[:-1])).sum() / 2, 0.5)
    auprc = area("edge_auprc", (np.diff(tpr) * precision[1:]).sum(), edges / len(labels))
    kept = thresholds > 0
    return EdgeCurves(thresholds[kept], tpr[kept], fpr[kept], precision[kept], _swept_shd(truth, strength, thresholds[kept]), auroc, auprc)


def adjacency(graph: Graph, which: str, *, undirected: bool) -> np.ndarray:
    """A graph as a checked array of 0 and 1, and of -1 for undirected edges where these are allowed."""
    if isinstance(graph, CausalGraph):
        return graph.adjacency
    array = _square(graph, f"the {which} graph")
    allowed = (0, 1, UNDIRECTED) if undirected else (0, 1)
    if not np.isin(array, allowed).all():
        odd = array[~np.isin(array, allowed)][0]
        meaning = "0, 1 and -1 (undirected)" if undirected else "0 and 1"
        raise DataError(f"the {which} graph holds {odd:g}, but an array of edges holds {meaning}; pass (abs(W) > threshold), or a CausalGraph.")
    if np.diagonal(array).any():
        raise DataError(f"variable {int(np.flatnonzero(np.diagonal(array))[0])} of the {which} graph causes itself; set the diagonal to 0.")
    clash = np.argwhere((array == UNDIRECTED) & (array.T == 1))
    if len(clash):
        j, i = clash[0]
        raise DataError(
            f"the {which} graph has both an undirected (-1) and a directed (1) edge between variables {j} and {i}; leave one. "
            "(An array that marks the two ends of every edge, as causal-learn's, must be converted first.)"
        )
    return array.astype(np.int64)


def by_name(true: CausalGraph, other: CausalGraph) -> CausalGraph:
    """`other` with its variables in the order of `true`."""
    different = sorted(set(true.names) ^ set(other.names))
    if different:
        raise DataError(f"graphs over different variables cannot be compared ({', '.join(different)} in one only); name latents by best_permutation.")
    return other.subgraph(true.names)


def states(graph: np.ndarray) -> np.ndarray:
    """(n, n) what each ordered pair has between it: an index into DISTANCE."""
    directed = (graph == 1) * FORWARD + (graph.T == 1) * BACKWARD
    return np.where((graph == UNDIRECTED) | (graph.T == UNDIRECTED), EITHER, directed)


def compare(true: np.ndarray, found: np.ndarray) -> GraphMetrics:
    """The metrics of two checked arrays (n, n): true of 0 and 1, found of 0, 1 and -1."""
    undirected = np.triu(states(found) == EITHER, 1)
    directed, skeleton, variables = found == 1, (true | true.T).astype(bool), len(true)
    edges, predicted = int(true.sum()), int(directed.sum() + undirected.sum())
    right = int((directed & (true == 1)).sum() + (undirected & skeleton).sum())
    wrong = predicted - right  # reversed or extra
    shd = int(np.triu(DISTANCE[states(true), states(found)], 1).sum())
    absent = variables * (variables - 1) / 2 - edges
    parameters = {"variables": variables, "true_edges": edges, "found_edges": predicted, "undirected_edges": int(undirected.sum())}

    def rate(metric: str, value: float, better: bool) -> Measurement:
        return Measurement(metric, float(value), 1, parameters=parameters, higher_is_better=better)

    rates = (
        rate("tpr", right / max(edges, 1), True),
        rate("fpr", wrong / max(absent, 1), False),
        rate("fdr", wrong / max(predicted, 1), False),
    )
    return GraphMetrics("shd", float(shd), 1, parameters=parameters, higher_is_better=False, parts={part.metric: part for part in rates})


def _swept_shd(true: np.ndarray, strength: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(T,) SHD at every threshold (falling): each pair of variables changes it when its stronger direction comes in, and when its weaker does."""
    j, i = np.triu_indices(len(true), 1)
    strong, weak = np.maximum(strength[j, i], strength[i, j]), np.minimum(strength[j, i], strength[i, j])
    state = states(true)[j, i]
    first = np.where(strength[j, i] >= strength[i, j], FORWARD, BACKWARD)
    change = np.zeros(len(thresholds) + 1, dtype=np.int64)  # weights of 0 fall behind the last threshold, into the surplus place
    for weight, before, after in ((strong, NOTHING, first), (weak, first, BOTH)):
        np.add.at(change, np.searchsorted(-thresholds, -weight), DISTANCE[state, after] - DISTANCE[state, before])
    return int(true.sum()) + np.cumsum(change[:-1])


def _square(values: np.ndarray, name: str) -> np.ndarray:
    array = numbers(values, name)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not len(array):
        raise DataError(f"{name} must be a square table, variables by variables, not of shape {array.shape}.")
    return array
