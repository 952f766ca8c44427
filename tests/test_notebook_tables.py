"""HTML of graphs and measurements in notebooks: complete and escaped."""

from intervae.causal import CausalGraph
from intervae.metrics.base import Measurement


def test_graph_shows_its_edges() -> None:
    graph = CausalGraph.from_edges(["<a>", "b", "c"], [("<a>", "b", 0.5)])
    html = graph._repr_html_()
    assert "&lt;a&gt; &rarr; b" in html
    assert "<a>" not in html
    assert "0.5" in html
    assert "no edges" in CausalGraph.empty(["a"])._repr_html_()


def test_measurement_shows_its_values_per_variable() -> None:
    html = Measurement("r2_min", 0.25, 12, {"<light>": 0.25, "rod": 0.75})._repr_html_()
    for text in ("r2_min", "0.25", "&lt;light&gt;", "0.75", "12 samples"):
        assert text in html
