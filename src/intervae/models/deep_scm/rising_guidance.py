"""Guidance of a flow that rises until a reader of the classes agrees, picture by picture.

One factor for all pictures is too small for some and exaggerates others. Here every picture gets
the smallest of a few factors with which the model's own predictor reads the new classes.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from intervae.nets.flow_picture import FlowPicture
from intervae.nets.picture_mechanism import PictureNoise

FACTORS = 6  # geometric, from 1 to the largest

# pictures (b, C, H, W), their rows (b,) of the batch -> probability of the new classes (b,)
Confidence = Callable[[Tensor, Tensor], Tensor]


def predict_until_confident(
    flow: FlowPicture,
    noise: PictureNoise,
    parents: Tensor,
    factual: Tensor,
    confidence: Confidence,
    least: float,
) -> Tensor:
    """Return pictures (B, C, H, W), each with the first factor that gives `least` confidence.

    Without any it has the factor of the highest confidence: the largest may spoil a picture.
    """
    answer = flow.predict(noise, parents)
    rows = torch.arange(len(answer), device=answer.device)
    best = confidence(answer, rows)  # (B,)
    for step in range(1, FACTORS):
        rows = rows[best[rows] < least]
        if not len(rows):
            break
        part = PictureNoise(tuple(z[rows] for z in noise.latents), noise.pixels[rows])
        factor = flow.guidance ** (step / (FACTORS - 1))
        again = flow.predict(part, parents[rows], 0.0, factual[rows], factor)
        sure = confidence(again, rows)
        better = sure > best[rows]
        answer[rows[better]], best[rows[better]] = again[better], sure[better]
    return answer
