"""Measures of CT-VAE's actions against the grid: repeated actions, changed factors, masks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from intervae.data import Dataset
from intervae.data.neighbours import Neighbours
from intervae.data.transitions import Transitions
from intervae.experiments.base import MetricKey, Numbers
from intervae.experiments.factor_predictor import shared_factor_predictor
from intervae.metrics import psnr
from intervae.models.base import Model
from intervae.models.ct_vae.augmentations import mean_over_augmentations

REPETITIONS = 8  # of an action
STARTS = 128  # test images from which each action is repeated
PREDICTED_PAIRS = 4096  # test pairs whose factors are predicted
SCORED_PAIRS = 1024  # test pairs of explanations and masks
BATCH = 256


def repeated_action_psnr(model: Model, data: Dataset, seed: int) -> Numbers:
    """Return mean PSNR in dB after 1, 2, ... applications of an action, from test images.

    `action_psnr`: of act() against the grid's true image, which may be of any split;
    `unchanged_psnr`: of the start image; `reconstruction_psnr`: of the reconstructed true image.
    """
    neighbours, generator = Neighbours(data), torch.Generator().manual_seed(seed)
    metrics = ("action_psnr", "unchanged_psnr", "reconstruction_psnr")
    scores: dict[str, list[list[np.ndarray]]] = {
        metric: [[] for _ in range(REPETITIONS)] for metric in metrics
    }
    for action in range(len(data.actions)):
        rows = torch.randperm(len(data.test), generator=generator)[:STARTS]
        true = neighbours.after("test", rows, action, REPETITIONS)  # (N, repetitions)
        rows, true = rows[true[:, 0] >= 0], true[true[:, 0] >= 0]
        if not len(rows):
            continue
        before = data.test[rows].images.cpu()
        after = model.act_repeatedly(before, action, REPETITIONS).cpu()
        for step in range(REPETITIONS):
            exists = true[:, step] >= 0
            if not bool(exists.any()):
                continue
            target = neighbours.images(true[exists, step])
            reconstructed = model.reconstruct(target).cpu().clamp(0, 1)
            images = (after[exists, step].clamp(0, 1), before[exists], reconstructed)
            for metric, image in zip(metrics, images, strict=True):
                scores[metric][step].append(psnr(image, target))
    numbers: Numbers = {}
    for metric, steps in scores.items():
        means = {t: float(np.concatenate(step).mean()) for t, step in enumerate(steps, 1) if step}
        numbers[metric] = means[1]
        numbers |= {MetricKey(metric, f"{t} times"): value for t, value in means.items()}
    return numbers


# ---- which factors changed -----------------------------------------------------------------------
def factor_errors(
    model: Model, data: Dataset, seed: int, steps: int, channels: tuple[int, ...]
) -> Numbers:
    """Return errors of a factor predictor on generated images, in percent of test pairs.

    The predictor is fitted on real images. Errors of the factors that an action leaves unchanged:
    `others_error_after_action` after act(), `others_error_reconstructed` on the reconstructed image
    before, `others_worse` their difference in points. Errors of the changed factor:
    `acted_error_after_action` after act(), `acted_error_reconstructed` on the reconstructed image
    after. `others_worse|car` is of that factor when others change, `others_worse|after car` of the
    others when it changes, `others_worse_by|azimuth after car` of one when another changes.

    With augmentations, `others_worse_views` compares with reconstructions averaged over them, and
    `others_worse_alone` is of act(augment=False). `predictor_error` is of all factors on the real
    images before; `action_psnr_pairs` the PSNR of act() against the image after. Empty for data
    with fewer than two factors.
    """
    assert data.transitions is not None
    neighbours, pairs = Neighbours(data), data.transitions.test
    names = neighbours.names
    if len(names) < 2:
        return {}
    if len(pairs) > PREDICTED_PAIRS:
        pairs = _sample_pairs(pairs, PREDICTED_PAIRS, seed)
    predicted, quality = _predict_factors(model, data, pairs, steps, channels)
    before, after = (
        torch.from_numpy(neighbours.codes[neighbours.numbers("test", rows)])
        for rows in (pairs.before, pairs.after)
    )  # (P, F) true values
    true = {"real": before, "plain": before, "acted": after, "target": after}
    true |= {"views": before, "alone": after}
    wrong = {name: (values != true[name]).double() for name, values in predicted.items()}
    factor = torch.tensor([names.index(name) for name in pairs.factor_names])
    factor = factor[pairs.factor_of_action[pairs.action]]  # (P,) changed factor
    changed = functional.one_hot(factor, len(names)).bool()  # (P, F)
    worse = wrong["acted"] - wrong["plain"]
    numbers: Numbers = {
        "others_error_after_action": _percent(wrong["acted"][~changed]),
        "others_error_reconstructed": _percent(wrong["plain"][~changed]),
        "others_worse": _percent(worse[~changed]),
        "acted_error_after_action": _percent(wrong["acted"][changed]),
        "acted_error_reconstructed": _percent(wrong["target"][changed]),
        "predictor_error": _percent(wrong["real"]),
        "action_psnr_pairs": quality,
    }
    if "views" in wrong:
        for name, image, reference in (("views", "acted", "views"), ("alone", "alone", "plain")):
            difference = wrong[image] - wrong[reference]
            numbers[f"others_worse_{name}"] = _percent(difference[~changed])
    for i, name in enumerate(names):
        own = changed[:, i]
        if bool((~own).any()):
            numbers[MetricKey("others_worse", name)] = _percent(worse[~own, i])
        if bool(own.any()):
            after_own = worse[own]
            numbers[MetricKey("others_worse", f"after {name}")] = _percent(after_own[~changed[own]])
            for j, other in enumerate(names):
                if j != i:
                    key = MetricKey("others_worse_by", f"{other} after {name}")
                    numbers[key] = 100 * after_own.mean(0)[j].item()
    return numbers


def _predict_factors(
    model: Model, data: Dataset, pairs: Transitions, steps: int, channels: tuple[int, ...]
) -> tuple[dict[str, Tensor], float]:
    """Return predicted factors (P, F) of each kind of image, and the mean PSNR of act()."""
    predict = shared_factor_predictor(data, str(model.device), steps, channels)
    augmentations = model.augmentations()
    kinds = ["real", "plain", "acted", "target"]
    kinds += ["views", "alone"] if len(augmentations) > 1 else []
    factors = len(Neighbours(data).names)
    predicted = {name: torch.zeros(len(pairs), factors, dtype=torch.int64) for name in kinds}
    quality = []
    for action in range(len(data.actions)):
        rows = (pairs.action == action).nonzero()[:, 0]
        for chunk in rows.split(BATCH) if len(rows) else ():
            before, after = (data.test[end[chunk]].images for end in (pairs.before, pairs.after))
            images = {
                "real": before,
                "plain": model.reconstruct(before),
                "acted": model.act(before, action),
                "target": model.reconstruct(after),
            }
            if len(augmentations) > 1:
                images["views"] = mean_over_augmentations(
                    augmentations, before, lambda _, augmented: model.reconstruct(augmented)
                )
                images["alone"] = model.act(before, action, augment=False)
            quality.append(psnr(images["acted"].cpu().clamp(0, 1), after.cpu()))
            for name, shown in images.items():
                predicted[name][chunk] = predict(shown)
    return predicted, float(np.concatenate(quality).mean())


def _percent(values: Tensor) -> float:
    return 100 * float(values.mean())


def _sample_pairs(pairs: Transitions, count: int, seed: int) -> Transitions:
    generator = torch.Generator().manual_seed(seed)
    return pairs[torch.randperm(len(pairs), generator=generator)[:count]]


# ---- explanations and masks ----------------------------------------------------------------------
@torch.no_grad()
def explanation_rates(model: Model, data: Dataset, seed: int) -> Numbers:
    """Return how often explain() names what happened, on images of the test split.

    `explained_pairs`: an action, for test pairs; `explained_equal`: no action, for an image and
    itself; `explained_unrelated`: chance, for two random images (a few are one step apart);
    `explained_noise`: chance, for an image and noise.
    """
    assert data.transitions is not None
    generator = torch.Generator().manual_seed(seed)
    pairs = data.transitions.test
    pairs = pairs[torch.randperm(len(pairs), generator=generator)[:SCORED_PAIRS]]
    rows = torch.randperm(len(data.test), generator=generator)[:SCORED_PAIRS]
    images = data.test[rows].images.cpu()
    noise = torch.randint(256, images.shape, generator=generator, dtype=torch.uint8)
    cases = {
        "pairs": (data.test[pairs.before].images, data.test[pairs.after].images, 0),
        "equal": (images, images, 1),
        "unrelated": (images, images.roll(1, 0), 2),
        "noise": (images, noise, 2),
    }
    numbers: Numbers = {}
    for name, (before, after, expected) in cases.items():
        actions, none, unrelated = model.explain(before, after)
        best = torch.stack([actions.amax(1), none, unrelated], dim=1).argmax(1)
        numbers[f"explained_{name}"] = float((best == expected).double().mean())
    return numbers


@torch.no_grad()
def mask_selectivity(model: Model, data: Dataset, seed: int) -> Numbers:
    """Return how well masks and change probabilities locate the codes that an action changes.

    `change_auc` and `mask_auc`: areas under the ROC curve, over the code positions of test pairs;
    `mask_balanced`: mean of two fractions, of changing codes whose mask is more probably open than
    shut, and of unchanging codes whose mask is more probably shut; `mask_open` and `edges_open`:
    mean masks and edges of the graph of queries; `codes_changed`: fraction of codes that change.
    """
    from sklearn.metrics import roc_auc_score

    assert data.transitions is not None
    pairs = _sample_pairs(data.transitions.test, SCORED_PAIRS, seed)
    masks, open_masks, changes, changed, edges = [], [], [], [], []
    for rows in torch.arange(len(pairs)).split(BATCH):
        chunk = pairs[rows]
        before, after = (model.codes(data.test[end].images) for end in (chunk.before, chunk.after))
        action = chunk.action.to(before.device)
        graph = model.transition.graph(model.transition.nodes(before), action)
        masks.append(graph.mask_logits[:, 0].sigmoid().cpu())
        open_masks.append(graph.mask[:, 0].cpu())
        changes.append(model.change_probability(before, action).cpu())
        changed.append((before != after).cpu())
        edges.append(graph.edges.mean((1, 2, 3)).cpu())
    numbers: Numbers = {
        "edges_open": float(torch.cat(edges).mean()),
        "mask_open": float(torch.cat(open_masks).mean()),
    }
    true = torch.cat(changed).flatten().numpy()
    numbers["codes_changed"] = float(true.mean())
    if 0 < true.sum() < len(true):
        for name, probability in (("change", changes), ("mask", masks)):
            scores = torch.cat(probability).flatten().numpy()
            numbers[f"{name}_auc"] = float(roc_auc_score(true, scores))
        guessed = torch.cat(masks).flatten().numpy() > 0.5
        numbers["mask_balanced"] = float((guessed[true].mean() + (~guessed[~true]).mean()) / 2)
    return numbers
