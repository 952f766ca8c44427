"""Counterfactual training of deep-scm: random do(), fixed predictor, what it changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from intervae.data import Dataset
from intervae.errors import UsageError
from intervae.models import DeepSCM
from intervae.models.deep_scm.counterfactual_loss import counterfactual_loss, random_interventions
from lit_squares import GRAPH, lit_squares

SMALL: dict[str, Any] = {"channels": (16, 32), "hidden": 64, "batch_size": 32}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return lit_squares(600)


def prepared(data: Dataset, **settings: Any) -> tuple[DeepSCM, torch.Tensor, torch.Tensor]:
    model = DeepSCM(data.spec, graph=GRAPH, **SMALL, **settings)
    images, labels = data.train.images[:64] / 255, data.train.labels[:64]
    return model, images, data.spec.normalise(labels)


def test_each_row_has_one_variable_of_another_row_and_its_effects(data: Dataset) -> None:
    model, _, values = prepared(data)
    after = random_interventions(model, values, torch.Generator().manual_seed(0))
    side, light, ground = (after != values).unbind(1)
    assert not (ground & (side | light)).any()
    assert (light & ~side).any()  # do(light) leaves its cause
    assert (side & light).any()  # do(side) moves its effect
    assert ground.any()
    for i in (0, 2):  # roots have values of other rows
        assert torch.isin(after[:, i], values[:, i]).all()


def test_predictor_gets_no_gradient_and_the_picture_does(data: Dataset) -> None:
    model, images, values = prepared(data)
    known = torch.ones_like(values, dtype=torch.bool)
    latents = model.picture.infer(model.pad(images), model.parents(values)).latents
    loss = counterfactual_loss(model, latents, values, known, torch.Generator().manual_seed(0))
    assert loss.shape == (64,)
    loss.mean().backward()
    assert all(p.grad is None for p in model.predictor.parameters())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.picture.parameters())


def test_rows_with_missing_labels_do_not_count(data: Dataset) -> None:
    model, images, values = prepared(data)
    known = torch.ones_like(values, dtype=torch.bool)
    known[::2, 1] = False
    latents = model.picture.infer(model.pad(images), model.parents(values)).latents
    loss = counterfactual_loss(model, latents, values, known, torch.Generator().manual_seed(0))
    assert (loss[::2] == 0).all()
    assert (loss[1::2] > 0).all()


def test_training_with_the_term_shows_more_of_what_was_set(data: Dataset) -> None:
    """The same steps with and without the term; read by a predictor of a third model."""
    reader = DeepSCM(data.spec, graph=GRAPH, epochs=15, **SMALL)
    reader.fit(data, seed=5, device="cpu")

    def misread(**settings: Any) -> float:
        model = DeepSCM(data.spec, graph=GRAPH, epochs=10, warm_up=0.2, **SMALL, **settings)
        model.fit(data, seed=0, device="cpu")
        images, labels = data.test.images, data.test.labels
        sides = labels[torch.arange(len(labels)).roll(1), 0]
        after = model.counterfactual(images, {"side": sides}, labels)
        return float((reader.measure(after)[:, 0] - sides).abs().mean())

    assert misread(counterfactual_weight=100.0) < 0.8 * misread()


def test_negative_weight_is_refused(data: Dataset) -> None:
    with pytest.raises(UsageError, match="counterfactual_weight"):
        DeepSCM(data.spec, graph=GRAPH, counterfactual_weight=-1.0)


def test_term_counts_from_its_start_on(data: Dataset) -> None:
    model, _, _ = prepared(data, counterfactual_weight=3.0, counterfactual_start=0.5, epochs=4)
    model.prepare_training(data, seed=0)
    half = 2 * (len(data.train) // SMALL["batch_size"])
    rows = {"images": data.train.images[:32] / 255, "labels": data.train.labels[:32]}

    def terms(step: int) -> dict[str, torch.Tensor]:
        batch = {**rows, "step": torch.tensor(float(step))}
        return model.loss(batch, torch.Generator().manual_seed(0))

    before, after = terms(half - 1), terms(half)
    assert before["counterfactual"] == after["counterfactual"]
    added = after["loss"] - before["loss"]
    torch.testing.assert_close(added, 3 * after["counterfactual"], rtol=0, atol=1e-3)


def test_first_kl_weights_are_geometric_over_resolutions_and_steps(data: Dataset) -> None:
    settings: dict[str, Any] = {"widths": (8,), "layers": (1, 2, 1), "encoder_blocks": (1,)}
    model, _, _ = prepared(
        data,
        picture="hvae",
        first_kl_weight=2.0,
        first_fine_kl_factor=16.0,
        kl_weight=0.5,
        warm_up=0.5,
        epochs=4,
        **settings,
    )
    model.prepare_training(data, seed=0)
    steps = 2 * (len(data.train) // SMALL["batch_size"])
    sizes = [shape[1] for shape in model.picture.latent_shapes]
    ranks = torch.tensor([sorted(set(sizes)).index(size) for size in sizes])
    first = 2.0 * 16.0 ** (ranks / ranks.max())

    def weights(share: float) -> torch.Tensor:
        return model.kl_weights({"step": torch.tensor(share * steps)})

    torch.testing.assert_close(weights(0), first)
    torch.testing.assert_close(weights(0.5), (first * 0.5).sqrt())
    torch.testing.assert_close(weights(1), torch.full_like(first, 0.5))
    torch.testing.assert_close(weights(1.9), torch.full_like(first, 0.5))
