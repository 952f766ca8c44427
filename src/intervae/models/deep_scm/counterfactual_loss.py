"""Counterfactual training of De Sousa Ribeiro et al. 2023: pictures under do() show what was set.

The picture noise of a training picture is abducted, one random variable of each row is set to the
value of another row, and the predictor must read the new values on the predicted picture. There it
is a fine-tuning under a constraint on the free energy; here it is a weighted term of the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call

from intervae.causal.do import Action
from intervae.models.deep_scm.queries import DeepSCMQueries
from intervae.nets.latent_pictures import LatentPictureMechanism


def counterfactual_loss(
    model: DeepSCMQueries,
    latents: tuple[Tensor, ...],
    values: Tensor,
    known: Tensor,
    generator: torch.Generator | None,
) -> Tensor:
    """Return -log q(values under do | picture under do), (B,); 0 for rows with missing labels.

    The weights of the predictor get no gradient: it would learn to read the model's pictures.

    Arguments:
        latents: noise of the latents of B pictures, drawn from the posterior.
        values: (B, n) in normalised units, finite.
        known: (B, n).
    """
    after = random_interventions(model, values, generator)
    assert isinstance(model.picture, LatentPictureMechanism)  # checked by the model
    mean, _ = model.picture.mean_scale(latents, model.parents(after))
    pictures = model.crop(mean.clamp(0, 1))
    predictor = model.predictor
    fixed = {name: tensor.detach() for name, tensor in predictor.named_parameters()}
    outputs = functional_call(predictor, fixed, (pictures,))
    complete = known.all(1)
    terms = predictor.loss(outputs, after, known, predictor.log_std.detach()).sum(1)
    return torch.where(complete, terms, 0.0)


@torch.no_grad()
def random_interventions(
    model: DeepSCMQueries, values: Tensor, generator: torch.Generator | None
) -> Tensor:
    """Return values (B, n) under do() of one random variable per row, to that of another row."""
    rows, count = values.shape
    draws = torch.rand(rows, 2, device=values.device, generator=generator)
    others = values[draws[:, 0].argsort()]
    chosen = (draws[:, 1] * count).long().clamp(max=count - 1)  # (B,)
    noises = model.variables.abduct(values, generator)
    answers = [
        model.variables.predict(noises, {name: _set_to(others[:, i])}, values)
        for i, name in enumerate(model.spec.names)
    ]
    index = chosen[:, None, None].expand(-1, 1, count)
    return torch.stack(answers, dim=1).gather(1, index)[:, 0]


def _set_to(target: Tensor) -> Action:
    """Return the action that sets a variable to `target` (B,)."""
    return lambda value: target
