"""What explains a pair of images: an action, no action, or chance."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Explanations(NamedTuple):
    """Log-likelihoods of the codes after, as means over code positions.

    Arguments:
        actions: (B, A) under each action.
        none: (B,) if nothing was done to the image before.
        unrelated: (B,) of an unrelated image: each code at its frequency in training.
    """

    actions: Tensor
    none: Tensor
    unrelated: Tensor


def best_explanations(result: Explanations, same: Tensor, usual: Tensor) -> list[str]:
    """Return what explains each of B pairs best.

    Arguments:
        same: (B,) whether the images before and after have the same codes.
        usual: (A,) `CTVAE.usual`, the log-likelihood that most pairs of an action exceed.

    Returns:
        One of "action", "unusual action" (the best action is below its usual log-likelihood),
        "no action", "unrelated" and "same codes".
    """
    best, winner = result.actions.max(1)
    none = result.none > torch.maximum(best, result.unrelated)
    unrelated, unusual = result.unrelated > best, best < usual[winner]
    verdicts = ("same codes", same), ("no action", none), ("unrelated", unrelated)
    return [
        next(
            (name for name, holds in (*verdicts, ("unusual action", unusual)) if holds[i]), "action"
        )
        for i in range(len(best))
    ]


DOUBTS = {  # what explains a pair best, unless a usual action does -> what a user should know
    "same codes": "the model sees no difference between the two images (they have the same "
    "codes), so the probabilities are meaningless.",
    "no action": "the two images fit better to nothing having been done than to any action; do "
    "not trust the probabilities.",
    "unrelated": "the second image fits better to an unrelated image than to any action; do not "
    "trust the probabilities.",
    "unusual action": "the best action explains these images less well than nearly all of its own "
    "pairs; more than one step may lie between them, or a file was made in another way than the "
    "training images.",
}


def doubt(explanation: str) -> str:
    """Return why not to trust `attribute`, for an entry of `best_explanation`; "" if nothing is."""
    return DOUBTS.get(explanation, "")
