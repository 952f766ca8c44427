"""Questions to a trained CT-VAE: acting again, what explains two pictures, mechanisms, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from intervae.causal.transition import NONE
from intervae.data.base import Dataset
from intervae.data.neighbours import Neighbours
from intervae.data.transitions import with_transitions
from intervae.errors import DataError, QueryError
from intervae.evaluation import evaluate
from intervae.models import load
from intervae.models.ct_vae import CTVAE
from squares import squares, trained_squares


@pytest.fixture(scope="module")
def data() -> Dataset:
    return squares()


@pytest.fixture(scope="module")
def trained() -> CTVAE:
    return trained_squares()


def test_acting_again_is_acting_on_what_came_out(trained: CTVAE, data: Dataset) -> None:
    images = data.test.images[:3]
    each = trained.act_repeatedly(images, "x+1", 3)
    assert each.shape == (3, 3, 3, 16, 16)
    for times in (1, 2, 3):
        assert torch.equal(trained.act(images, 0, times), each[:, times - 1])
    codes = trained.codes(images)
    for times in range(3):
        chances = trained._after(codes, torch.zeros(3, dtype=torch.int64))
        assert torch.allclose(torch.sigmoid(trained.paint(trained.quantiser.mean(chances))), each[:, times], atol=1e-5)
        codes = chances.argmax(2)
    assert not torch.equal(each[:, 0], each[:, 1])


def test_actions_of_other_names_or_in_another_order_are_not_judged(trained: CTVAE, data: Dataset) -> None:
    for factors in (("y", "x", "colour", "side"), ("x", "y", "colour")):
        with pytest.raises(DataError, match=r"the model knows the actions x\+1, x-1, y\+1, .*but the pairs of squares have .*same order"):
            evaluate(trained, with_transitions(data, factors=factors), ["actions"])


def test_what_explains_a_pair_best_is_what_happened(trained: CTVAE, data: Dataset) -> None:
    """An action between true pairs, none between a picture and itself, and chance where the second is noise."""
    assert data.transitions is not None
    images, pairs = data.test.images, data.transitions.test
    noise = torch.randint(0, 256, images.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for kind, before, after in ((0, images[pairs.before], images[pairs.after]), (1, images, images), (2, images, noise)):
        found = trained.explain(before, after)
        best = torch.stack([found.actions.max(1).values, found.none, found.unrelated]).argmax(0)
        assert (best == kind).float().mean() > 0.95
    mixed = trained.explain(images, images.roll(7, 0))
    assert (mixed.unrelated > mixed.actions.max(1).values).float().mean() > 0.6  # some of these are one step apart


def test_how_well_an_action_usually_explains_its_own_pairs(trained: CTVAE, data: Dataset) -> None:
    """The lowest hundredth of its validation pairs; pairs two steps apart are below it more often than those of one."""
    assert data.transitions is not None
    pairs, images = data.transitions.validation, data.validation.images
    own = trained.explain(images[pairs.before], images[pairs.after]).actions.gather(1, pairs.action[:, None])[:, 0]
    for action in range(len(data.actions)):
        some = own[pairs.action == action]
        assert trained.usual[action].item() == pytest.approx((some if len(some) else own).quantile(0.01).item(), abs=1e-4)

    def unusual(before: Tensor, after: Tensor) -> float:
        best, action = trained.explain(before, after).actions.max(1)
        return (best < trained.usual[action]).double().mean().item()

    images, pairs, near = data.test.images, data.transitions.test, Neighbours(data)
    twice = near.after("test", torch.arange(len(images)), data.actions.index("x+1"), 2)[:, 1]
    before, after = images[twice >= 0], near.images(twice[twice >= 0])
    assert unusual(images[pairs.before], images[pairs.after]) < 0.3 < 0.8 < unusual(before, after)


def test_a_run_of_an_earlier_version_can_be_loaded(trained: CTVAE, data: Dataset, tmp_path: Path) -> None:
    trained.save(tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    save_file({name: tensor for name, tensor in load_file(path).items() if name != "usual"}, path)
    kept = load(tmp_path / "run")
    assert isinstance(kept, CTVAE)
    assert torch.equal(kept.usual, torch.full((len(data.actions),), -math.inf))  # nothing is called unusual
    assert torch.equal(kept.act(data.test.images[:2], 0), trained.act(data.test.images[:2], 0))


def test_explanations_are_likelihoods_for_each_place(trained: CTVAE, data: Dataset) -> None:
    before, after = data.test.images[:9], data.test.images[9:18]
    found, codes = trained.explain(before, after), trained.codes(after)
    assert found.actions.shape == (9, 8)
    assert found.none.shape == found.unrelated.shape == (9,)
    torch.testing.assert_close((found.actions * trained.places).softmax(1), trained.attribute(before, after), atol=1e-4, rtol=1e-3)
    of_none = trained.transition.score(trained.codes(before), codes, torch.full((9,), NONE)).log_likelihood[:, 0]
    torch.testing.assert_close(found.none, of_none.detach() / 16, atol=1e-4, rtol=1e-4)
    by_hand = [np.mean([math.log(0.99 * trained.marginals[i, c].item() + 0.01 / 64) for i, c in enumerate(row)]) for row in codes.tolist()]
    assert found.unrelated.tolist() == pytest.approx(by_hand, rel=1e-4)
    drawn = [trained.explain(before, after, samples=3, seed=seed).actions for seed in (0, 0, 1)]
    torch.testing.assert_close((drawn[0] * trained.places).softmax(1), trained.attribute(before, after, samples=3), atol=1e-4, rtol=1e-3)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_the_mechanism_of_an_action_is_a_mean_over_pictures(trained: CTVAE, data: Dataset) -> None:
    images = data.test.images[:5]
    whole = trained.mechanism(images, "colour+1")
    assert whole.edges.shape == (16, 16)
    assert whole.mask.shape == (16,)
    parts = [trained.mechanism(image, "colour+1") for image in images]
    assert torch.allclose(whole.edges, torch.stack([p.edges for p in parts]).mean(0), atol=1e-5)
    assert torch.allclose(whole.mask, torch.stack([p.mask for p in parts]).mean(0), atol=1e-5)
    assert torch.allclose(whole.changes, torch.stack([p.changes for p in parts]).mean(0), atol=1e-5)
    assert trained.mechanism(images).mask.max() < 1e-6  # no action intervenes nowhere


def test_what_changes_is_what_does_not_stay_and_tells_the_places(trained: CTVAE, data: Dataset) -> None:
    assert data.transitions is not None
    pairs = data.transitions.test
    before, after = (trained.codes(data.test.images[rows]) for rows in (pairs.before, pairs.after))
    found, layer = trained.changes(before, pairs.action), trained.transition
    nodes = layer.nodes(before)
    logits = layer.logits(before, nodes, layer.graph(nodes, pairs.action).edges, pairs.action)[:, 0]
    by_hand = torch.stack([1 - logits[:, i].softmax(1)[torch.arange(len(before)), before[:, i]] for i in range(16)], dim=1)
    torch.testing.assert_close(found, by_hand, atol=1e-5, rtol=1e-4)
    assert not found.requires_grad
    changed = before != after
    assert found[changed].mean() > 0.8 > 0.3 > found[~changed].mean()
    assert trained.changes(before, torch.full_like(pairs.action, NONE)).max() < 0.1
    assert not torch.equal(trained.changes(before, pairs.action, samples=3), found)


def test_wrong_questions_are_refused(trained: CTVAE, data: Dataset) -> None:
    images = data.test.images[:2]
    for ask, words in (
        (lambda: trained.act(images, "colur+1"), "unknown action 'colur\\+1'; did you mean 'colour\\+1'"),
        (lambda: trained.act(images, 8), "unknown action"),
        (lambda: trained.act(images, "x+1", 0), "times=0 must be a whole number, 1 or more"),
        (lambda: trained.act(images, "x+1", 2.5), "times=2.5 must be a whole number"),
        (lambda: trained.act(images, "x+1", "2"), "times='2' must be a whole number"),
        (lambda: trained.attribute(images, images, samples=2.5), "samples=2.5 must be a whole number"),
        (lambda: trained.attribute(images, images, samples=2, seed="x"), "seed='x' must be a whole number"),
        (lambda: trained.explain(images, images[:1]), "2 pictures before and 1 after"),
        (lambda: trained.attribute(images, images[:1]), "2 pictures before and 1 after"),
        (lambda: trained.attribute(images, images, samples=-1), "0 or more"),
        (lambda: trained.attribute(images[..., :8], images), "resize"),
    ):
        with pytest.raises(QueryError, match=words):
            ask()
