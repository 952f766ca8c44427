"""SHD on the tables of the public implementations: the best of them, or our own number."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from intervae.causal.graph import CausalGraph
from intervae.discovery import UnitsWarning, discover
from intervae.metrics.graphs import compare

LINEAR_20, LINEAR_50 = "linear_gauss_ER2_d20_n1000_s0", "linear_gauss_ER2_d50_n1000_s0"
NETWORKS_10, NETWORKS_20 = "nonlinear_mlp_ER2_d10_n1000_s0", "nonlinear_mlp_ER2_d20_n1000_s0"
SMALL = "ges_mlp_ER1_d10_n300_s0"
AUTHORS = 0.3  # threshold of the authors of NOTEARS and DAGMA; ours for networks is 0.5

# lowest SHD of any public NOTEARS or DAGMA in peers_results.json; on SMALL, of any public GES
BEST = {
    ("dagma", LINEAR_20): 0,
    ("dagma", LINEAR_50): 2,
    ("notears-mlp", NETWORKS_10): 6,
    ("dagma-mlp", NETWORKS_10): 6,
    ("notears-mlp", NETWORKS_20): 23,
    ("dagma-mlp", NETWORKS_20): 23,
    ("ges-generalised", SMALL): 6,  # the public PC with kernel tests has 4
}
# our SHD where it is not the best: linear NOTEARS (public: 13 and 15), and networks with the
# authors' threshold
OURS = {
    ("notears", LINEAR_20): 17,
    ("notears", LINEAR_50): 15,
    ("notears-mlp", NETWORKS_10): 9,
    ("dagma-mlp", NETWORKS_10): 8,
    ("notears-mlp", NETWORKS_20): 25,
    ("dagma-mlp", NETWORKS_20): 20,
}


@pytest.mark.slow
@pytest.mark.parametrize(("method", "name"), dict.fromkeys([*BEST, *OURS]), ids=lambda word: word)
def test_shd_is_at_most_that_of_the_best_peer_or_our_own(method: str, name: str) -> None:
    folder = os.environ.get("INTERVAE_ORACLES")
    if not folder:
        pytest.skip("INTERVAE_ORACLES names no folder with graphs/")
    data = np.load(Path(folder) / "graphs" / f"graphs_{name}.npz", allow_pickle=False)
    true = data["B"].astype(int)
    if method.startswith("ges"):
        assert compare(true, discover(data["X"], method).pattern).shd <= BEST[method, name]
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnitsWarning)
        # already a DAG: a higher threshold only drops edges
        learned = discover(data["X"], method, standardise=False, threshold=AUTHORS).graph

    def distance(graph: CausalGraph) -> int:
        return compare(true, graph.adjacency).shd

    if (method, name) in OURS:
        assert distance(learned) <= OURS[method, name]
    if (method, name) in BEST:
        assert (
            distance(learned.threshold(0.5 if method.endswith("mlp") else AUTHORS))
            <= BEST[method, name]
        )
