"""What CT-VAE's actions do to pictures, measured against the grid: repeated actions, factors that should have stayed, and where an action acts."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor
from torch.nn import functional

from intervae.data.base import Dataset
from intervae.data.neighbours import Neighbours
from intervae.experiments.base import Numbers
from intervae.metrics import psnr
from intervae.models.ct_vae import CTVAE
from intervae.models.views import mean_over
from intervae.nets.images import ConvEncoder

TIMES = 8  # that an action is repeated
STARTS = 128  # test pictures from which each action is repeated
ASKED_PAIRS = 4096  # test pairs on which a predictor looks at what changed
ASKED_PICTURES = 1024  # test pairs by which masks are judged
AT_ONCE = 256  # pictures
FITTING = threading.Lock()


# ---- pictures after 1, 2, ... actions -------------------------------------------------------------------------------------
def repeated(model: CTVAE, data: Dataset, seed: int) -> Numbers:
    """Mean PSNR against the grid's own picture after each number of the same action; of leaving the picture as it was; of the reconstructed truth.

    The pictures from which an action starts are drawn from the test split; the true one may be of any split.
    """
    near, rng = Neighbours(data), torch.Generator().manual_seed(seed)
    found: dict[str, list[list[np.ndarray]]] = {name: [[] for _ in range(TIMES)] for name in ("action_psnr", "unchanged_psnr", "reconstruction_psnr")}
    for action in range(len(data.actions)):
        rows = torch.randperm(len(data.test), generator=rng)[:STARTS]
        truth = near.after("test", rows, action, TIMES)  # (N, times)
        rows, truth = rows[truth[:, 0] >= 0], truth[truth[:, 0] >= 0]
        if not len(rows):
            continue
        before = data.test[rows].images.cpu()
        after = model.act_repeatedly(before, action, TIMES).cpu()
        for times in range(TIMES):
            there = truth[:, times] >= 0
            if bool(there.any()):
                wanted = near.images(truth[there, times])
                guesses = (after[there, times], before[there], model.reconstruct(wanted).cpu())
                for parts, guess in zip(found.values(), guesses, strict=True):
                    parts[times].append(psnr(guess if guess.dtype == torch.uint8 else guess.clamp(0, 1), wanted))
    numbers: Numbers = {}
    for name, parts in found.items():
        each = {times: float(np.concatenate(part).mean()) for times, part in enumerate(parts, 1) if part}
        numbers |= {name: each[1], **{f"{name}|{times} times": value for times, value in each.items()}}
    return numbers


# ---- which factors changed --------------------------------------------------------------------------------------------------
def others(model: CTVAE, data: Dataset, seed: int, steps: int, channels: tuple[int, ...]) -> Numbers:
    """Of factors read off pictures by a predictor that has seen only real ones, in percent of test pairs.

    `others_error_after_action`: the factors that the action leaves alone, after act(); `others_error_reconstructed`: the same of the
    picture before, reconstructed; `others_worse` is the difference, in points. `acted_error_after_action` and `acted_error_reconstructed`: the
    factor that changes, after act() and in the reconstructed true picture. `others_worse|car` is of that factor where others are acted on,
    `others_worse|after car` of the others where it is acted on; `others_worse_by|azimuth after car` is of one where another is acted on.
    `action_psnr_pairs` is of act() on the picture before, against that after, both of the test split. `predictor_error` is of all factors, on the
    real pictures before: where the predictor sees little, it sees no difference either. Where act() is the mean of a picture and its mirror image,
    `others_worse_views` is the difference from the picture before, reconstructed as such a mean too, and `others_worse_alone` is of act() on the
    picture alone.
    Nothing of it where no two factors are there.
    """
    assert data.transitions is not None
    near, pairs = Neighbours(data), data.transitions.test
    if len(near.names) < 2:
        return {}
    predict = _predictor(data, str(model.device), steps, channels)
    if len(pairs) > ASKED_PAIRS:
        pairs = pairs[torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed))[:ASKED_PAIRS]]
    truth = [torch.from_numpy(near.codes[near.numbers("test", rows)]) for rows in (pairs.before, pairs.after)]  # (P, F) each
    sides = {"real": 0, "plain": 0, "acted": 1, "target": 1}  # what the predictor looks at, and which of the two pictures that is
    views = model.views()
    if len(views) > 1:
        sides |= {"views": 0, "alone": 1}
    read = {name: torch.zeros_like(truth[0]) for name in sides}  # (P, F) what it sees
    quality = []
    for action in range(len(data.actions)):
        rows = (pairs.action == action).nonzero()[:, 0]
        for part in rows.split(AT_ONCE) if len(rows) else ():  # an action may have no test pair
            before, after = (data.test[which[part]].images for which in (pairs.before, pairs.after))
            pictures = {"real": before, "plain": model.reconstruct(before), "acted": model.act(before, action), "target": model.reconstruct(after)}
            if len(views) > 1:
                pictures["views"] = mean_over(views, before, lambda _, seen: model.reconstruct(seen))
                pictures["alone"] = model.act(before, action, alone=True)
            quality.append(psnr(pictures["acted"].cpu().clamp(0, 1), after.cpu()))
            for name, shown in pictures.items():
                read[name][part] = predict(shown)
    wrong = {name: (read[name] != truth[side]).double() for name, side in sides.items()}
    factor = torch.tensor([near.names.index(name) for name in pairs.factor_names])[pairs.factor_of_action[pairs.action]]  # (P,) that is acted on
    changed = functional.one_hot(factor, len(near.names)).bool()
    worse = wrong["acted"] - wrong["plain"]
    numbers: Numbers = {
        "others_error_after_action": 100 * float(wrong["acted"][~changed].mean()),
        "others_error_reconstructed": 100 * float(wrong["plain"][~changed].mean()),
        "others_worse": 100 * float(worse[~changed].mean()),
        "acted_error_after_action": 100 * float(wrong["acted"][changed].mean()),
        "acted_error_reconstructed": 100 * float(wrong["target"][changed].mean()),
        "predictor_error": 100 * float(wrong["real"].mean()),
        "action_psnr_pairs": float(np.concatenate(quality).mean()),
    }
    if len(views) > 1:
        for name, one, other in (("views", "acted", "views"), ("alone", "alone", "plain")):
            numbers[f"others_worse_{name}"] = 100 * float((wrong[one] - wrong[other])[~changed].mean())
    for i, name in enumerate(near.names):
        left_alone, acted_on = ~changed[:, i], changed[:, i]
        numbers |= {f"others_worse|{name}": 100 * float(worse[left_alone, i].mean())} if bool(left_alone.any()) else {}
        if bool(acted_on.any()):
            numbers[f"others_worse|after {name}"] = 100 * float(worse[acted_on][~changed[acted_on]].mean())
            each = zip(near.names, worse[acted_on].mean(0).tolist(), strict=True)
            numbers |= {f"others_worse_by|{other} after {name}": 100 * value for other, value in each if other != name}
    return numbers


@torch.no_grad()
def explained(model: CTVAE, data: Dataset, seed: int) -> Numbers:
    """Of pictures of the test split, how often explain() names what happened.

    `explained_pairs`: an action, of test pairs; `explained_equal`: no action, of a picture and itself; `explained_unrelated`: neither, of two
    pictures drawn at random (of which a few may be a step apart); `explained_noise`: neither, of a picture and noise.
    """
    assert data.transitions is not None
    rng = torch.Generator().manual_seed(seed)
    pairs = data.transitions.test
    pairs = pairs[torch.randperm(len(pairs), generator=rng)[:ASKED_PICTURES]]
    images = data.test[torch.randperm(len(data.test), generator=rng)[:ASKED_PICTURES]].images.cpu()
    asked = {
        "pairs": (data.test[pairs.before].images, data.test[pairs.after].images, 0),
        "equal": (images, images, 1),
        "unrelated": (images, images.roll(1, 0), 2),
        "noise": (images, torch.randint(256, images.shape, generator=rng, dtype=torch.uint8), 2),
    }
    numbers: Numbers = {}
    for name, (before, after, right) in asked.items():
        actions, none, unrelated = model.explain(before, after)
        best = torch.stack([actions.amax(1), none, unrelated], dim=1).argmax(1)
        numbers[f"explained_{name}"] = float((best == right).double().mean())
    return numbers


@torch.no_grad()
def selectivity(model: CTVAE, data: Dataset, seed: int) -> Numbers:
    """How far it can be read where an action acts, of test pairs, given the action that was.

    `change_auc`: how well the probability that a code changes tells the places where it does from those where it stays, an area under the ROC
    curve (0.5 by chance); `mask_auc`: the same of the mask's probability; `mask_open`, `edges_open`: mean probability of mask and edges.
    """
    assert data.transitions is not None
    pairs = data.transitions.test
    pairs = pairs[torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed))[:ASKED_PICTURES]]
    masks, expected, changes, edges = [], [], [], []
    for part in torch.arange(len(pairs)).split(AT_ONCE):
        some = pairs[part]
        before, after = (model.codes(data.test[rows].images) for rows in (some.before, some.after))
        action = some.action.to(before.device)
        graph = model.transition.graph(model.transition.nodes(before), action)
        masks.append(graph.mask[:, 0].cpu())
        expected.append(model.changes(before, action).cpu())
        changes.append((before != after).cpu())
        edges.append(graph.edges.mean((1, 2, 3)).cpu())
    changed = torch.cat(changes).flatten()
    found: Numbers = {"edges_open": float(torch.cat(edges).mean()), "mask_open": float(torch.cat(masks).mean())}
    if 0 < int(changed.sum()) < len(changed):
        found |= {
            f"{name}_auc": float(roc_auc_score(changed.numpy(), torch.cat(of).flatten().numpy()))
            for name, of in (("change", expected), ("mask", masks))
        }
    return found


def _predictor(data: Dataset, device: str, steps: int, channels: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    """Fitted once for all seeds that share the data."""
    with FITTING:
        key = (json.dumps(data.source, sort_keys=True, default=str), device, steps, channels)
        if key not in _FITTED:
            _FITTED[key] = fit_predictor(data, device, steps, channels)
            if device.startswith("cuda"):
                torch.cuda.current_stream().synchronize()  # runs on other streams read the weights
        return _FITTED[key]


_FITTED: dict[Any, Any] = {}


def fit_predictor(data: Dataset, device: str, steps: int, channels: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    """A small network that reads the number of every factor's value off a picture, trained on the training split.

    Returns:
        pictures (B, C, H, W), uint8 or floats in [0, 1], to (B, F) whole numbers.
    """
    assert data.transitions is not None
    near = Neighbours(data)
    train, sizes = data.train.to(device), list(near.cells.sizes)
    codes = torch.from_numpy(near.codes[: len(train)]).to(device)
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        torch.manual_seed(0)
        network = ConvEncoder(data.spec.image_shape, sum(sizes), channels, 4 * channels[-1]).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-3, total_steps=steps)
    generator = torch.Generator(device).manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(len(train), (AT_ONCE,), generator=generator, device=device)
        logits = network(train.batch(rows)["images"]).split(sizes, dim=1)
        loss = torch.stack([functional.cross_entropy(part, codes[rows, i]) for i, part in enumerate(logits)]).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return functools.partial(_read, network.eval(), sizes, device)


@torch.no_grad()
def _read(network: ConvEncoder, sizes: list[int], device: str, pictures: Tensor) -> Tensor:
    images = pictures.to(device)
    images = images.float() / 255 if images.dtype == torch.uint8 else images
    parts = [network(chunk).split(sizes, dim=1) for chunk in images.split(AT_ONCE)]
    return torch.cat([torch.stack([part.argmax(1) for part in logits], dim=1) for logits in parts]).cpu()
