"""One function for each entry of METRICS: from a context to measurements.

Those of counterfactual images are in counterfactual_measures.py.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from intervae import metrics
from intervae.data import Split
from intervae.data.dataset import CHUNK
from intervae.errors import DataError
from intervae.evaluation.context import HEAT_MAP_IMAGES, Context
from intervae.metrics.base import Measurement
from intervae.models.base import Model
from intervae.models.batches import query_split
from intervae.models.heat_maps import heat_map, link_column

LIKELIHOOD_IMAGES, LIKELIHOOD_SAMPLES = 128, 64
DIVERSITY_IMAGES = 512
ACTION_PAIRS = 20_000


# ---- reconstructions, measured variables, samples ------------------------------------------------
def r2(context: Context) -> list[Measurement]:
    varying = context.varying
    measured = query_split(context.model, "measure", context.data.test).numpy()
    names = context.labelled_latents.label_names
    result = metrics.r2(measured[:, varying], context.labels[:, varying], names)
    return [context.with_names(result)]


def reconstruction(context: Context) -> list[Measurement]:
    errors = np.concatenate(
        [_pixel_errors(context.model, chunk) for chunk in context.data.test.chunks()]
    )
    return [
        Measurement(
            "reconstruction_pixel_mae",
            float(errors.mean()),
            len(errors),
            spread=float(errors.std()),
            higher_is_better=False,
        )
    ]


def _pixel_errors(model: Model, chunk: Split) -> np.ndarray:
    """Mean absolute error of every image, (N,), or of every frame of the clips, (N T,)."""
    reconstructed, images = query_split(model, "reconstruct", chunk), chunk.images
    frame_shape = images.shape[-3:]
    return metrics.pixel_mae(
        reconstructed.reshape(-1, *frame_shape), images.reshape(-1, *frame_shape)
    )


def diversity(context: Context) -> list[Measurement]:
    """As many samples of the model as test images, both with pixels in [0, 1]."""
    images = context.test_subset(DIVERSITY_IMAGES).images
    samples = context.model.sample(len(images), seed=0).cpu().numpy()
    return [metrics.diversity(samples, images.cpu().numpy() / 255)]


def likelihood(context: Context) -> list[Measurement]:
    model, images = context.model, context.test_subset(LIKELIHOOD_IMAGES)
    bounds = metrics.likelihood_bounds(
        model.log_weights,
        images.images,
        images.labels if context.data.variables else None,
        samples=LIKELIHOOD_SAMPLES,
    )
    return bounds.measurements(reading=getattr(model, "likelihood_description", ""))


def active_units(context: Context) -> list[Measurement]:
    """The total; also per latent, unless the latents are codes at places, perhaps hundreds."""
    model = context.model
    names = model.latent_names if model.latents_are_variables else ()
    return [metrics.active_units(context.latents, names)]


# ---- graphs --------------------------------------------------------------------------------------
def graph(context: Context) -> list[Measurement]:
    assert context.data.graph is not None
    return metrics.graph_metrics(context.data.graph, context.model.graph).rows()


def edges(context: Context) -> list[Measurement]:
    """Areas under the ROC and the precision-recall curve over thresholds of edge strength."""
    assert context.data.graph is not None
    curves = metrics.edge_curves(context.data.graph, context.model.graph)
    return [curves.auroc, curves.auprc]


def permuted_graph(context: Context) -> list[Measurement]:
    """Graph metrics under the best permutation, for latents without names of their own."""
    assert context.data.graph is not None
    true, estimated = context.data.graph.adjacency, context.model.graph.adjacency
    return metrics.best_permutation(true, estimated).rows()


# ---- actions and heat maps -----------------------------------------------------------------------
def actions(context: Context) -> list[Measurement]:
    """At most ACTION_PAIRS random test pairs; the training split decides the majority class."""
    model, data = context.model, context.data
    assert data.transitions is not None
    pairs, training = data.transitions.test, data.transitions.train.action.cpu()
    if model.spec.actions != pairs.action_names:
        raise DataError(
            f"the model knows the actions {', '.join(model.spec.actions)}, but the pairs of "
            f"{data.name} have {', '.join(pairs.action_names)}; load the data with the same "
            "factors, in the same order (transitions=, factors=)."
        )
    if len(pairs) > ACTION_PAIRS:
        generator = torch.Generator().manual_seed(0)
        pairs = pairs[torch.randperm(len(pairs), generator=generator)[:ACTION_PAIRS]]
    chunks = zip(pairs.before.split(CHUNK), pairs.after.split(CHUNK), strict=True)
    scores = torch.cat(
        [
            model.attribute(data.test[before].images, data.test[after].images).cpu()
            for before, after in chunks
        ]
    )
    true, factors = pairs.action.cpu(), pairs.factor_of_action.cpu()
    return [
        *metrics.action_accuracy(scores, true, pairs.action_names, training_actions=training),
        *metrics.factor_accuracy(
            scores, true, factors, pairs.factor_names, training_actions=training
        ),
    ]


def heat_maps(context: Context) -> list[Measurement]:
    """Heat maps of the latent linked to the column that predicts masks best on training rows."""
    model, data, subset = context.model, context.data, context.test_subset(HEAT_MAP_IMAGES)
    column = data.names[int(np.abs(_mask_correlations(data.train)).argmax())]
    linked = link_column(model, data, column)
    labels = subset.labels if model.needs_labels else None
    maps = heat_map(model, subset.images, linked.latent, sign=linked.sign, labels=labels).numpy()
    masks = subset.fields["mask"].cpu().numpy()
    parameters = {
        "column": column,
        "latent": linked.latent,
        "edge": linked.text,
        "sign": linked.sign,
    }
    return [
        replace(m, parameters={**m.parameters, **parameters})
        for m in (metrics.heat_map_energy(maps, masks), metrics.heat_map_iou(maps, masks))
    ]


def _mask_correlations(split: Split) -> np.ndarray:
    """Correlation (n,) of each column with whether an image has a mask."""
    has_mask = split.fields["mask"].flatten(1).any(1).double().cpu().numpy()
    columns = split.labels.double().cpu().numpy().T
    return np.array(
        [
            np.corrcoef(column, has_mask)[0, 1] if column.std() > 0 and has_mask.std() > 0 else 0.0
            for column in columns
        ]
    )


# ---- information and disentanglement: latents against labels -------------------------------------
def mic(context: Context) -> list[Measurement]:
    """MIC with the mean over a variable's dims, and with its best dim."""
    return _information(context, "mic", "mic_best_dim", "mic_unmatched", "mic_best_dim_unmatched")


def tic(context: Context) -> list[Measurement]:
    """Normalised TIC with the mean over a variable's dims, and with its best dim."""
    return _information(context, "tic", "tic_best_dim", "tic_unmatched", "tic_best_dim_unmatched")


def _information(context: Context, *names: str) -> list[Measurement]:
    return [context.mic_and_tic[name] for name in names if name in context.mic_and_tic]


def mig(context: Context) -> list[Measurement]:
    return _disentanglement(context, metrics.mig)


def dci(context: Context) -> list[Measurement]:
    """All scores but informativeness on the training rows."""
    rows = _disentanglement(context, metrics.dci)
    return [row for row in rows if row.metric != "dci_informativeness_train"]


def sap(context: Context) -> list[Measurement]:
    return _disentanglement(context, metrics.sap)


def irs(context: Context) -> list[Measurement]:
    return _disentanglement(context, metrics.irs)


def mcc(context: Context) -> list[Measurement]:
    matching = "identity" if context.latents_are_labels else "hungarian"
    return _disentanglement(context, functools.partial(metrics.mcc, matching=matching))


def modularity(context: Context) -> list[Measurement]:
    return _disentanglement(context, metrics.modularity)


def explicitness(context: Context) -> list[Measurement]:
    return _disentanglement(context, metrics.explicitness)


def beta_vae_score(context: Context) -> list[Measurement]:
    return _disentanglement(context, metrics.beta_vae_score)


def factor_vae_score(context: Context) -> list[Measurement]:
    return _disentanglement(context, metrics.factor_vae_score)


def _disentanglement(context: Context, score: Any) -> list[Measurement]:
    """A score of codes and factors; a variable's code is the mean over its dims."""
    table = context.labelled_latents
    result = score(
        table.latents, table.labels, names=table.label_names, kinds=table.kinds, dims="mean"
    )
    return [context.with_names(row) for row in result.rows()]
