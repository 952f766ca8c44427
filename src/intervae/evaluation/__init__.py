"""Evaluate a trained model on the test split of its data: every metric that model and data allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from intervae.data.base import Dataset
from intervae.errors import DataError, UsageError, unknown
from intervae.evaluation import measures
from intervae.evaluation.measures import Measure
from intervae.evaluation.subject import Subject
from intervae.evaluation.tables import headlines, same_data, variable_tables, write_evaluation
from intervae.metrics.base import Measurement
from intervae.models.base import Model

__all__ = ["METRICS", "Metric", "evaluate", "headlines", "same_data", "variable_tables", "write_evaluation"]


@dataclass(frozen=True)
class Metric:
    """An entry of METRICS.

    Arguments:
        about: one line on it.
        needs: what model and data must give.
        applies: whether they do.
        measure: the numbers.
        on_request: measured only when named: it takes long, or few people ask for it.
    """

    about: str
    needs: str
    applies: Callable[[Subject], bool]
    measure: Measure
    on_request: bool = False


_LABELS = "labels that vary in the test split, of four images or more, and a model whose latents are variables"
_DO = "a model that answers counterfactual() about the labelled variables"

METRICS: dict[str, Metric] = {
    "r2": Metric(
        "R^2 of each variable read off the images, in its own units",
        "a model whose variables are the labels, and labels that vary in the test split",
        measures.reads_labels,
        measures.r2,
    ),
    "reconstruction": Metric("mean absolute pixel error of reconstructions", "nothing", lambda _: True, measures.reconstruction),
    "mic": Metric("MIC of each label with its variable, and what chance scores", _LABELS, measures.with_labels, measures.information("mic")),
    "tic": Metric(
        "normalised TIC of each label with its variable, and what chance scores", _LABELS, measures.with_labels, measures.information("tic")
    ),
    "counterfactual": Metric(
        "do() pictures against the simulator's truth: pixels, PSNR, SSIM, every variable in its own units, what must not move",
        f"data with a simulator, and {_DO}",
        measures.with_truth,
        measures.counterfactual,
    ),
    "shd": Metric(
        "the graph against the true one: SHD, TPR, FPR, FDR",
        "data with a known graph, and a model that has one over the same variables",
        measures.with_graphs,
        measures.graph,
    ),
    "likelihood": Metric(
        "ELBO and importance-weighted bound of the log-likelihood",
        "a model that answers log_weights()",
        measures.with_weights,
        measures.likelihood,
    ),
    "actions": Metric(
        "which action it was: accuracy of actions and of the factors they change, and what the majority scores",
        "data with transitions, and a model that answers attribute()",
        measures.with_actions,
        measures.actions,
    ),
    "heat_map": Metric(
        "heat maps of the latent that goes with a column: their share inside the true mask, and their overlap with it",
        "data with masks, some of them in the test split, and a model whose encoder has convolutions",
        measures.with_masks,
        measures.heat_maps,
    ),
    "active_units": Metric("latent dims that the encoder uses", "two test images or more", lambda s: len(s.labels) > 1, measures.active_units),
    "mig": Metric("mutual information gap", _LABELS, measures.with_labels, measures.disentanglement("mig")),
    "dci": Metric("disentanglement, completeness and informativeness", f"two {_LABELS}", measures.with_two_labels, measures.disentanglement("dci")),
    "sap": Metric("separated attribute predictability", _LABELS, measures.with_labels, measures.disentanglement("sap")),
    "irs": Metric("interventional robustness score", _LABELS, measures.with_labels, measures.disentanglement("irs")),
    "mcc": Metric("mean correlation of each label with its variable", _LABELS, measures.with_labels, measures.disentanglement("mcc")),
    "modularity": Metric(
        "whether each variable is about one label", f"two {_LABELS}", measures.with_two_labels, measures.disentanglement("modularity"), True
    ),
    "explicitness": Metric(
        "whether the labels follow linearly from the variables", _LABELS, measures.with_labels, measures.disentanglement("explicitness"), True
    ),
    "beta_vae_score": Metric("the beta-VAE metric", f"two {_LABELS}", measures.with_two_labels, measures.disentanglement("beta_vae_score"), True),
    "factor_vae_score": Metric(
        "the FactorVAE metric", f"two {_LABELS}", measures.with_two_labels, measures.disentanglement("factor_vae_score"), True
    ),
    "edges": Metric(
        "AUROC and AUPRC of the edges, by their strengths",
        "data with a known graph, and a model that has one over the same variables",
        measures.with_graphs,
        measures.edges,
        True,
    ),
    "shd_permuted": Metric(
        "the graph against the true one under the best renaming of the latents",
        "data with a known graph, and a model that has one with as many variables",
        measures.with_as_many_nodes,
        measures.permuted_graph,
        True,
    ),
    "diversity": Metric(
        "how far apart the model's samples are, compared with the test images: near 0 where a generator collapsed",
        "two test images or more",
        lambda s: len(s.data.test) > 1,
        measures.diversity,
        True,
    ),
    "axioms": Metric(
        "do() pictures without truth: composition, reversibility, effectiveness, minimality",
        f"{_DO}, and a graph",
        measures.with_some_graph,
        measures.axioms,
        True,
    ),
}


def evaluate(
    model: Model, data: Dataset, metrics: Sequence[str] | None = None, *, tell: Callable[[str], None] = lambda text: None
) -> list[Measurement]:
    """Measure on the test split.

    Arguments:
        metrics: entries of METRICS; without it, all that apply and are not on request.
        tell: called with a line for each metric that nobody named and that these samples do not allow, such as one class only.
    """
    subject = Subject(model, data)
    model.eval()
    found = []
    for name in dict.fromkeys(metrics or ()):
        if name not in METRICS:
            raise unknown("metric", name, METRICS)
        if not METRICS[name].applies(subject):
            raise UsageError(f"metric {name!r} does not apply to {model.name} on {data.name}: it needs {METRICS[name].needs}.")
    for name in dict.fromkeys(metrics or (n for n, metric in METRICS.items() if not metric.on_request and metric.applies(subject))):
        try:
            found += METRICS[name].measure(subject)
        except DataError as error:
            if metrics:
                raise
            tell(f"{name} left out: {error}")
    return found
