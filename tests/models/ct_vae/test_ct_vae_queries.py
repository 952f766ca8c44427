"""Queries of a trained CT-VAE: act, attribute, explain, action_mechanism, and their errors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from intervae.data import Dataset
from intervae.data.build_transitions import with_transitions
from intervae.data.neighbours import Neighbours
from intervae.errors import DataError, QueryError
from intervae.evaluation import evaluate
from intervae.models import load
from intervae.models.ct_vae.graph import NO_ACTION
from intervae.models.ct_vae.model import CTVAE


# ---- act -----------------------------------------------------------------------------------------
def test_act_repeatedly_continues_from_the_most_probable_codes(
    trained: CTVAE, data: Dataset
) -> None:
    images = data.test.images[:3]
    acted = trained.act_repeatedly(images, "x+1", 3)
    assert acted.shape == (3, 3, 3, 16, 16)
    for times in (1, 2, 3):
        assert torch.equal(trained.act(images, 0, times), acted[:, times - 1])
    codes = trained.codes(images)
    for step in range(3):
        p = trained.transition.probabilities(codes, torch.zeros(3, dtype=torch.int64))
        decoded = torch.sigmoid(trained.decode_vectors(trained.quantiser.mean(p)))
        assert torch.allclose(decoded, acted[:, step], atol=1e-5)
        codes = p.argmax(2)
    assert not torch.equal(acted[:, 0], acted[:, 1])


def test_queries_are_deterministic_without_sampled_graphs(trained: CTVAE, data: Dataset) -> None:
    """Authors' code: queries in evaluation mode stayed stochastic."""
    before, after = data.test.images[:20], data.test.images[20:40]
    plain = trained.attribute(before, after)
    assert torch.equal(plain, trained.attribute(before, after))
    assert torch.equal(trained.act(before, "x+1"), trained.act(before, "x+1"))
    codes = trained.codes(before), trained.codes(after)
    joint = trained.transition.score(*codes, None).log_likelihood  # the authors' code took the mean
    assert torch.allclose(plain, joint.softmax(1), atol=1e-5)
    assert torch.allclose(plain.sum(1), torch.ones(20), atol=1e-5)


def test_sampled_graphs_depend_on_the_seed_alone(trained: CTVAE, data: Dataset) -> None:
    before, after = data.test.images[:20], data.test.images[20:40]
    probabilities = [trained.attribute(before, after, samples=3, seed=seed) for seed in (0, 0, 1)]
    acted = [trained.act(before, "x+1", samples=2, seed=seed) for seed in (0, 0, 1)]
    for results in (probabilities, acted):
        assert torch.equal(results[0], results[1])
        assert not torch.equal(results[0], results[2])
    assert torch.allclose(probabilities[2].sum(1), torch.ones(20), atol=1e-5)
    # the answer about an image does not depend on the rest of its batch
    single = [trained.attribute(before[i], after[i], samples=3) for i in range(20)]
    torch.testing.assert_close(torch.cat(single), probabilities[0], atol=1e-4, rtol=1e-3)
    single = [trained.act(image, "x+1", samples=2) for image in before]
    torch.testing.assert_close(torch.cat(single), acted[0], atol=1e-4, rtol=1e-3)


# ---- attribute and explain -----------------------------------------------------------------------
def test_evaluation_refuses_other_actions(trained: CTVAE, data: Dataset) -> None:
    words = r"the model knows the actions x\+1, x-1, y\+1, .*but the pairs of squares have .*order"
    for factors in (("y", "x", "colour", "side"), ("x", "y", "colour")):
        with pytest.raises(DataError, match=words):
            evaluate(trained, with_transitions(data, factors=factors), ["actions"])


def test_explain_ranks_what_happened_first(trained: CTVAE, data: Dataset) -> None:
    """An action for true pairs, no action for equal images, chance for noise."""
    assert data.transitions is not None
    images, pairs = data.test.images, data.transitions.test
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, images.shape, dtype=torch.uint8, generator=generator)
    for kind, before, after in (
        (0, images[pairs.before], images[pairs.after]),
        (1, images, images),
        (2, images, noise),
    ):
        scores = trained.explain(before, after)
        best = torch.stack([scores.actions.max(1).values, scores.none, scores.unrelated]).argmax(0)
        assert (best == kind).float().mean() > 0.95
    mixed = trained.explain(images, images.roll(7, 0))  # some of these are one step apart
    assert (mixed.unrelated > mixed.actions.max(1).values).float().mean() > 0.6


def test_explain_gives_mean_log_likelihoods_per_position(trained: CTVAE, data: Dataset) -> None:
    before, after = data.test.images[:9], data.test.images[9:18]
    scores, codes = trained.explain(before, after), trained.codes(after)
    assert scores.actions.shape == (9, 8)
    assert scores.none.shape == scores.unrelated.shape == (9,)
    close = {"atol": 1e-4, "rtol": 1e-3}
    probabilities = (scores.actions * trained.positions).softmax(1)
    torch.testing.assert_close(probabilities, trained.attribute(before, after), **close)
    none = torch.full((9,), NO_ACTION)
    expected = trained.transition.score(trained.codes(before), codes, none).log_likelihood[:, 0]
    torch.testing.assert_close(scores.none, expected.detach() / 16, atol=1e-4, rtol=1e-4)
    frequencies = 0.99 * trained.marginals.double() + 0.01 / 64
    chance = [
        np.mean([math.log(frequencies[i, code].item()) for i, code in enumerate(row)])
        for row in codes.tolist()
    ]
    assert scores.unrelated.tolist() == pytest.approx(chance, rel=1e-4)
    sampled = [trained.explain(before, after, samples=3, seed=seed).actions for seed in (0, 0, 1)]
    probabilities = (sampled[0] * trained.positions).softmax(1)
    torch.testing.assert_close(probabilities, trained.attribute(before, after, samples=3), **close)
    assert torch.equal(sampled[0], sampled[1])
    assert not torch.equal(sampled[0], sampled[2])


def test_usual_is_the_lowest_percentile_of_validation_pairs(trained: CTVAE, data: Dataset) -> None:
    assert data.transitions is not None
    pairs, images = data.transitions.validation, data.validation.images
    scores = trained.explain(images[pairs.before], images[pairs.after]).actions
    scores = scores.gather(1, pairs.action[:, None])[:, 0]
    for action in range(len(data.actions)):
        own = scores[pairs.action == action]
        expected = (own if len(own) else scores).quantile(0.01).item()
        assert trained.usual[action].item() == pytest.approx(expected, abs=1e-4)


def test_pairs_two_steps_apart_are_mostly_unusual(trained: CTVAE, data: Dataset) -> None:
    assert data.transitions is not None

    def unusual_fraction(before: Tensor, after: Tensor) -> float:
        best, action = trained.explain(before, after).actions.max(1)
        return (best < trained.usual[action]).double().mean().item()

    images, pairs, neighbours = data.test.images, data.transitions.test, Neighbours(data)
    rows = torch.arange(len(images))
    two_steps = neighbours.after("test", rows, data.actions.index("x+1"), 2)[:, 1]
    exists = two_steps >= 0
    assert unusual_fraction(images[pairs.before], images[pairs.after]) < 0.3
    assert unusual_fraction(images[exists], neighbours.images(two_steps[exists])) > 0.8


def test_runs_without_usual_load(trained: CTVAE, data: Dataset, tmp_path: Path) -> None:
    """Earlier versions did not store it; then no pair is unusual."""
    trained.save(tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    save_file({name: tensor for name, tensor in load_file(path).items() if name != "usual"}, path)
    loaded = load(tmp_path / "run")
    assert isinstance(loaded, CTVAE)
    assert torch.equal(loaded.usual, torch.full((len(data.actions),), -math.inf))
    images = data.test.images[:2]
    assert torch.equal(loaded.act(images, 0), trained.act(images, 0))


# ---- action_mechanism ----------------------------------------------------------------------------
def test_action_mechanism_is_a_mean_over_images(trained: CTVAE, data: Dataset) -> None:
    images = data.test.images[:5]
    mean = trained.action_mechanism(images, "colour+1")
    assert mean.edges.shape == (16, 16)
    assert mean.mask.shape == mean.changes.shape == (16,)
    separate = [trained.action_mechanism(image, "colour+1") for image in images]
    for values, answers in zip(mean, zip(*separate, strict=True), strict=True):
        assert torch.allclose(values, torch.stack(answers).mean(0), atol=1e-5)
    assert trained.action_mechanism(images).mask.max() < 1e-6  # no action intervenes on nothing


def test_change_probability_is_high_where_codes_change(trained: CTVAE, data: Dataset) -> None:
    assert data.transitions is not None
    pairs = data.transitions.test
    before, after = (trained.codes(data.test.images[rows]) for rows in (pairs.before, pairs.after))
    changes, layer = trained.change_probability(before, pairs.action), trained.transition
    nodes = layer.nodes(before)
    logits = layer.logits(before, nodes, layer.graph(nodes, pairs.action).edges, pairs.action)[:, 0]
    rows = torch.arange(len(before))
    stays = [logits[:, i].softmax(1)[rows, before[:, i]] for i in range(16)]
    torch.testing.assert_close(changes, 1 - torch.stack(stays, dim=1), atol=1e-5, rtol=1e-4)
    assert not changes.requires_grad
    changed = before != after
    assert changes[changed].mean() > 0.8
    assert changes[~changed].mean() < 0.3
    none = torch.full_like(pairs.action, NO_ACTION)
    assert trained.change_probability(before, none).max() < 0.1
    assert not torch.equal(trained.change_probability(before, pairs.action, samples=3), changes)


def test_invalid_queries_raise(trained: CTVAE, data: Dataset) -> None:
    images = data.test.images[:2]
    typo = "unknown action 'colur\\+1'; did you mean 'colour\\+1'"
    different = "2 images before and 1 after"
    for query, words in (
        (lambda: trained.act(images, "colur+1"), typo),
        (lambda: trained.act(images, 8), "unknown action"),
        (lambda: trained.act(images, "x+1", 0), "times=0 must be a whole number, 1 or more"),
        (lambda: trained.act(images, "x+1", 2.5), "times=2.5 must be a whole number"),
        (lambda: trained.act(images, "x+1", "2"), "times='2' must be a whole number"),
        (lambda: trained.attribute(images, images, samples=2.5), "samples=2.5 must be a whole"),
        (
            lambda: trained.attribute(images, images, samples=2, seed="x"),
            "seed='x' must be a whole",
        ),
        (lambda: trained.explain(images, images[:1]), different),
        (lambda: trained.attribute(images, images[:1]), different),
        (lambda: trained.attribute(images, images, samples=-1), "0 or more"),
        (lambda: trained.attribute(images[..., :8], images), "resize"),
    ):
        with pytest.raises(QueryError, match=words):
            query()
