"""DIP-VAE: penalties against numpy's covariance and sampled latents; default weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from intervae.causal.gaussian import reparametrise
from intervae.errors import UsageError
from intervae.models import DIPVAE, VAE

SMALL: dict[str, Any] = {
    "latents": 3,
    "dims": 2,
    "channels": (8, 8),
    "hidden": 32,
    "epochs": 1,
    "batch_size": 16,
}


def setup(make_data: Any, **settings: Any) -> tuple[DIPVAE, dict[str, Tensor]]:
    data = make_data()
    model = DIPVAE(data.spec, **{**SMALL, **settings})
    with torch.no_grad():
        model.encoder.dense[-1].weight.mul_(150)  # means and variances differ between images
    return model, {**data.train.batch(torch.arange(12)), "step": torch.zeros(())}


def penalties(matrix: np.ndarray) -> tuple[float, float]:
    """Sum of (C_ii - 1)^2 and of C_ij^2 over i != j."""
    size = len(matrix)
    off = sum(matrix[i, j] ** 2 for i in range(size) for j in range(size) if i != j)
    return sum((matrix[i, i] - 1) ** 2 for i in range(size)), off


@pytest.mark.parametrize("kind", ["i", "ii"])
@pytest.mark.parametrize("weights", [None, (3.0, 0.5), (0.0, 0.0)])
def test_the_penalties_match_numpys_covariance(kind: Any, weights: Any, make_data: Any) -> None:
    settings_of_weights = (
        {}
        if weights is None
        else {"diagonal_weight": weights[0], "off_diagonal_weight": weights[1]}
    )
    model, batch = setup(make_data, kind=kind, **settings_of_weights)
    terms = {
        key: value.item()
        for key, value in model.loss(batch, torch.Generator().manual_seed(0)).items()
    }
    with torch.no_grad():
        mean, log_variance = (
            t.flatten(1).double().numpy() for t in model.posterior(batch["images"])
        )
    matrix = np.cov(mean.T, bias=True)
    if kind == "ii":
        matrix = matrix + np.diag(np.exp(log_variance).mean(0))
    diagonal, off = penalties(matrix)
    assert terms["diagonal"] == pytest.approx(diagonal, rel=1e-4)
    assert terms["off_diagonal"] == pytest.approx(off, rel=1e-4)
    plain = VAE(model.spec, **SMALL)
    plain.load_state_dict(model.state_dict())
    elbo = plain.loss(batch, torch.Generator().manual_seed(0))["loss"].item()
    diagonal_weight, off_weight = (
        weights if weights is not None else {"i": (100, 10), "ii": (80, 80)}[kind]
    )
    assert terms["loss"] == pytest.approx(
        elbo + diagonal_weight * diagonal + off_weight * off, rel=1e-5
    )


def test_type_two_is_the_covariance_of_sampled_latents(make_data: Any) -> None:
    model, batch = setup(make_data, kind="ii")
    with torch.no_grad():
        mean, log_variance = model.posterior(batch["images"])
        generator = torch.Generator().manual_seed(0)
        draws = torch.cat(
            [reparametrise(mean, log_variance, generator).flatten(1) for _ in range(4000)]
        )
    diagonal, off = penalties(np.cov(draws.double().numpy().T, bias=True))
    terms = model.loss(batch, generator)
    assert terms["diagonal"].item() == pytest.approx(diagonal, rel=0.1)
    assert terms["off_diagonal"].item() == pytest.approx(off, rel=0.1)


def test_latents_with_identity_covariance_have_no_penalty(
    make_data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Corners of a cube as means are uncorrelated with variance 1; type II adds the variances."""
    model, batch = setup(make_data, kind="i", dims=1)
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 3)[:, :, None]
    small, unit = torch.full_like(corners, -12.0), torch.zeros_like(corners)
    kinds = {kind: DIPVAE(model.spec, **{**SMALL, "dims": 1, "kind": kind}) for kind in ("i", "ii")}

    def cost(kind: str, mean: Tensor, log_variance: Tensor) -> tuple[float, float]:
        _, terms = kinds[kind].regularisation(mean, log_variance, mean, batch, None)
        return terms["diagonal"].item(), terms["off_diagonal"].item()

    assert cost("i", corners, unit) == pytest.approx((0, 0), abs=1e-8)
    assert cost("ii", corners, small) == pytest.approx((0, 0), abs=1e-8)
    assert cost("ii", corners, unit) == pytest.approx((3, 0), abs=1e-6)
    assert cost("ii", 0 * corners, unit) == pytest.approx((0, 0), abs=1e-8)  # three unused dims
    assert cost("i", 0 * corners, unit) == pytest.approx((3, 0), abs=1e-8)
    same = corners[:, :1].expand(-1, 3, -1)
    assert cost("i", same, small) == pytest.approx((0, 6), abs=1e-6)


def test_wrong_settings_are_refused(make_data: Any) -> None:
    for wrong in ({"kind": "iii"}, {"diagonal_weight": -1.0}, {"off_diagonal_weight": -1.0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            DIPVAE(make_data().spec, **wrong)
