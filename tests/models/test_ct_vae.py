"""CT-VAE and its codebooks: the three modes by hand, questions, and a small world of coloured squares in which it must beat the majority."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from intervae.causal.transition import NONE
from intervae.data.base import Batch, Dataset, Split
from intervae.data.transitions import with_transitions
from intervae.errors import DataError, UsageError
from intervae.evaluation import evaluate
from intervae.models import create
from intervae.models.ct_vae import CTVAE
from pairs import random_pairs
from squares import squares, tiny, trained_squares


@pytest.fixture(scope="module")
def data() -> Dataset:
    return squares()


@pytest.fixture(scope="module")
def few() -> Dataset:
    """Where nothing is to be learned: 64 pictures."""
    return random_pairs(squares(4, 4, 2, 2))


@pytest.fixture(scope="module")
def trained() -> CTVAE:
    return trained_squares()


def pairs_of(model: CTVAE, data: Dataset, rows: int = 8) -> Batch:
    return {**model.encode_once(data, 0).train.batch(torch.arange(rows) * 97), "step": torch.zeros(())}


# ---- it works -------------------------------------------------------------------------------------------------------
def test_it_knows_the_actions_of_a_small_world_far_better_than_the_majority(trained: CTVAE, data: Dataset) -> None:
    found = {m.metric: m for m in evaluate(trained, data, ["actions"])}
    assert found["majority_accuracy"].value < 0.25
    assert found["action_accuracy"].value > 0.9
    assert found["factor_accuracy"].value > 0.9


def test_codes_at_places_are_not_judged_as_variables(trained: CTVAE, data: Dataset) -> None:
    measured = {m.metric for m in evaluate(trained, data)}
    assert {"reconstruction_pixel_mae", "action_accuracy", "factor_majority_accuracy"} <= measured
    assert not measured & {"mic", "mig", "dci_disentanglement", "sap"}
    with pytest.raises(UsageError, match="latents are variables"):
        evaluate(trained, data, ["mic"])


def test_acting_makes_the_picture_that_the_action_makes(trained: CTVAE, data: Dataset) -> None:
    assert data.transitions is not None
    pairs, images = data.transitions.test, data.test.images.float() / 255
    to_truth, to_start = [], []
    for number in range(len(data.actions)):
        some = pairs[pairs.action == number]
        made = trained.act(data.test.images[some.before], data.actions[number])
        to_truth.append((made - images[some.after]).abs().mean((1, 2, 3)))
        to_start.append((made - images[some.before]).abs().mean((1, 2, 3)))
    assert (torch.cat(to_truth) < torch.cat(to_start)).float().mean() > 0.85  # of a model that leaves everything as it was next to none


def test_no_action_changes_nothing(trained: CTVAE, data: Dataset) -> None:
    codes = trained.codes(data.test.images)
    layer, none = trained.transition, torch.full((len(codes),), NONE)
    nodes = layer.nodes(codes)
    after = layer.logits(codes, nodes, layer.graph(nodes, none).edges, none).argmax(-1)[:, 0]
    assert (after == codes).float().mean() > 0.99


def test_a_person_sees_the_picture_in_its_codes(trained: CTVAE, data: Dataset) -> None:
    truth = data.train.images[:100].float() / 255
    error = (trained.reconstruct(data.train.images[:100]) - truth).square().mean().item()
    assert -10 * math.log10(error) > 30  # dB; the mean picture has about 17


def test_the_use_of_the_codes_is_reported(trained: CTVAE, data: Dataset) -> None:
    used, perplexity = trained.code_usage()
    counts = np.bincount(trained.codes(data.train.images).flatten().numpy(), minlength=64)
    share = counts[counts > 0] / counts.sum()
    assert used.item() == (counts > 0).mean()
    assert perplexity.item() == pytest.approx(math.exp(-(share * np.log(share)).sum()), rel=1e-4)
    assert used > 0.3


# ---- the three modes ------------------------------------------------------------------------------------------------
def test_the_loss_is_the_weighted_sum_of_the_modes(data: Dataset) -> None:
    model = tiny(data, attribution=2.0, standard=0.5, identity=0.03, edge_kl=0.01, edge_norm=0.02, dependency=0.3, mask_norm=0.2).eval()
    batch = pairs_of(model, data)
    terms = {name: value.item() for name, value in model.transition_loss(batch).items()}
    x, y, action = batch["codes"].long(), batch["after_codes"].long(), batch["action"]
    rows = torch.arange(len(x))
    every = model.transition.score(x, y, None)
    alone = model.transition.score(x, x, torch.full_like(action, NONE))
    assert terms["action"] == pytest.approx(-every.log_likelihood[rows, action].mean().item(), rel=1e-4)
    assert terms["standard"] == pytest.approx(-alone.log_likelihood.mean().item(), rel=1e-4)
    assert terms["causal"] == pytest.approx(
        -every.log_likelihood.log_softmax(1)[rows, action].mean().item(), rel=1e-4
    )  # Eq. 10, of joint likelihoods
    assert terms["edge_norm"] == pytest.approx((alone.norm.mean() + every.norm[rows, action].mean()).item() / 2, rel=1e-4)
    weights = {"action": 1.0, "standard": 0.5, "causal": 2.0, "identity_codes": 0.03, "identity_graph": 0.03, "edge_kl": 0.01, "edge_norm": 0.02}
    weights |= {"dependency": 0.3, "mask_norm": 0.2}
    assert terms["mask_norm"] == pytest.approx(every.masked[rows, action].mean().item(), rel=1e-4)
    assert terms["loss"] == pytest.approx(sum(weight * terms[name] for name, weight in weights.items()), rel=1e-4)


@pytest.mark.parametrize("share", [1.0, 0.5, 0.01])
def test_in_training_a_share_of_the_pairs_serves_all_modes_and_every_pair_the_action_mode(share: float, data: Dataset) -> None:
    model = tiny(data, causal_share=share).train()
    batch = pairs_of(model, data)
    x, y, action = batch["codes"].long(), batch["after_codes"].long(), batch["action"]
    terms = {name: value.item() for name, value in model.transition_loss(batch, torch.Generator().manual_seed(3)).items()}
    draw = model.transition.draw(len(x), torch.Generator().manual_seed(3), x.device)
    first, rows = max(1, round(share * len(x))), torch.arange(len(x))
    every = model.transition.score(x, y, None, draw)
    alone = model.transition.score(x, x, torch.full_like(action, NONE), draw)
    assert terms["action"] == pytest.approx(-every.log_likelihood[rows, action].mean().item(), rel=1e-4)
    assert terms["standard"] == pytest.approx(-alone.log_likelihood[:first].mean().item(), rel=1e-4)
    assert terms["causal"] == pytest.approx(-every.log_likelihood.log_softmax(1)[rows, action][:first].mean().item(), rel=1e-4)
    for name, of_all, of_none in zip(("edge_kl", "edge_norm", "dependency"), every[1:4], alone[1:4], strict=True):
        assert terms[name] == pytest.approx((of_all[rows, action].mean() + of_none[:first].mean()).item() / 2, rel=1e-4, abs=1e-6)
    assert terms["mask_norm"] == pytest.approx(every.masked[rows, action].mean().item(), rel=1e-4)
    assert alone.masked.max() < 1e-6  # no action intervenes on nothing


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_small_batches_have_all_terms(batch: int, data: Dataset) -> None:
    model = tiny(data).train()
    terms = model.transition_loss(pairs_of(model, data, batch), torch.Generator().manual_seed(0))
    assert all(torch.isfinite(value) for value in terms.values())


def test_the_transition_loss_is_a_pure_function(data: Dataset) -> None:
    models = [tiny(data, seed=seed).train() for seed in range(2)]
    batch = pairs_of(models[0], data)
    before = {name: value.clone() for name, value in models[0].state_dict().items()}
    separately = [m.transition_loss(batch, torch.Generator().manual_seed(0))["loss"] for m in models]
    assert all(torch.equal(value, before[name]) for name, value in models[0].state_dict().items())
    layer = _Loss(models[0])

    def one(parameters: Any, buffers: Any) -> Any:
        return functional_call(layer, ({f"model.{k}": v for k, v in parameters.items()}, {f"model.{k}": v for k, v in buffers.items()}), (batch,))

    together = vmap(one, randomness="same")(*stack_module_state(models))  # type: ignore[arg-type]
    assert together.tolist() == pytest.approx([value.item() for value in separately], rel=1e-3)


class _Loss(torch.nn.Module):
    def __init__(self, model: CTVAE) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        return self.model.transition_loss(batch, torch.Generator().manual_seed(0))["loss"]


def test_the_codebooks_stay_as_they_are_while_transitions_are_learned(few: Dataset) -> None:
    model = tiny(few, picture_epochs=0)
    model.fit(few, seed=0)
    alone = tiny(few, transition_epochs=0, picture_epochs=0)
    alone.fit(few, seed=0)
    for name, value in model.state_dict().items():
        assert name.startswith(("transition.", "usual")) != torch.equal(value, alone.state_dict()[name]), name


def test_the_last_phase_teaches_the_decoder_alone_to_paint_what_is_expected(few: Dataset) -> None:
    before, after = (tiny(few, picture_epochs=epochs) for epochs in (0, 2))
    for model in (before, after):
        model.fit(few, seed=0)
    for name, value in after.state_dict().items():
        assert name.startswith("decoder.") != torch.equal(value, before.state_dict()[name]), name
    batch = {**after.encode_beside(few, 0).train.batch(torch.arange(16)), "step": torch.zeros(())}
    first, second = (model.picture_loss(batch)["loss"].item() for model in (before, after))
    assert second < first
    terms = after.picture_loss(batch)
    acted = torch.cat([after.act(picture, action) for picture, action in zip(batch["images"], batch["action"].tolist(), strict=True)])
    by_hand = torch.nn.functional.binary_cross_entropy(acted, batch["after_images"], reduction="sum") / 16
    assert terms["expected"].item() == pytest.approx(by_hand.item(), rel=1e-3)  # what act() paints is what was trained


@pytest.mark.parametrize("optimiser", ["muon", "adamw"])
def test_transitions_are_learned_by_the_optimiser_that_is_named(optimiser: Any, few: Dataset) -> None:
    model = tiny(few, transition_optimiser=optimiser, transition_rate=0.25, weight_decay=0.5)
    (player,) = next(phase for phase in model.phases() if phase.name == "transitions").players
    assert (player.optimiser, player.learning_rate, player.weight_decay) == (optimiser, 0.25, 0.5)
    assert all(other.optimiser == "adam" for phase in model.phases() if phase.name != "transitions" for other in phase.players)


@pytest.mark.parametrize("number", [0, 1, 64])
def test_the_last_phase_paints_as_many_drawn_graphs_as_answers_take(number: int, few: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the decoder would learn to paint other means than act() gives it."""
    model = tiny(few, graph_samples=number)
    model.initialise(0)
    batch, asked = {**model.encode_beside(few, 0).train.batch(torch.arange(4)), "step": torch.zeros(())}, []
    graph = model.transition.graph

    def ask(nodes: Tensor, action: Any, draw: Any = None) -> Any:
        asked.append(None if draw is None else draw.edges[0, 0, 0].item())
        return graph(nodes, action, draw)

    monkeypatch.setattr(model.transition, "graph", ask)
    model.picture_loss(batch, torch.Generator().manual_seed(0))
    in_training, asked = asked, []
    model.trained = True
    model.act(batch["images"], 0)
    assert len(in_training) == len(asked) == len(set(asked)) == max(1, number)
    assert (None in in_training, None in asked) == (number == 0, number == 0)


def test_pictures_are_encoded_once(few: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    encode = CTVAE.split_codes
    monkeypatch.setattr(CTVAE, "split_codes", lambda self, split, *view: seen.append(len(split)) or encode(self, split, *view))
    model = tiny(few, transition_epochs=3)
    model.fit(few, seed=0)
    assert seen[:5] == [len(few.train), *[len(few.train), len(few.validation)] * 2]  # the marginals, then the pairs, once more beside the pictures
    assert seen[5:] == [len(few.validation)]  # how well actions explain pairs


# ---- defects of the authors' code that concern the whole model -----------------------------------------------------
def test_answers_are_always_the_same_unless_graphs_are_drawn(trained: CTVAE, data: Dataset) -> None:
    """Defect 8: answers in evaluation mode stayed stochastic."""
    before, after = data.test.images[:20], data.test.images[20:40]
    plain = trained.attribute(before, after)
    assert torch.equal(plain, trained.attribute(before, after))
    joint = trained.transition.score(trained.codes(before), trained.codes(after), None).log_likelihood
    assert torch.allclose(plain, joint.softmax(1), atol=1e-5)  # defect 7 again: of the joint likelihoods, not of their means
    assert torch.allclose(plain.sum(1), torch.ones(20), atol=1e-5)
    drawn = [trained.attribute(before, after, samples=3, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.allclose(drawn[2].sum(1), torch.ones(20), atol=1e-5)
    assert torch.equal(trained.act(before, "x+1"), trained.act(before, "x+1"))
    acted = [trained.act(before, "x+1", samples=2, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(acted[0], acted[1])
    assert not torch.equal(acted[0], acted[2])
    for ask, whole in ((trained.attribute, drawn[0]), (lambda x, _, samples: trained.act(x, "x+1", samples=2), acted[0])):
        alone = torch.cat([ask(x[None], y[None], samples=3) for x, y in zip(before, after, strict=True)])
        torch.testing.assert_close(alone, whole, atol=1e-4, rtol=1e-3)  # what is drawn for a picture does not depend on those beside it


class Untouchable(Split):
    """Raises when anything but its size is asked for."""

    @property
    def images(self) -> Tensor:
        raise AssertionError("the test split was read")

    def __getitem__(self, rows: Any) -> Split:
        raise AssertionError("the test split was read")

    def batch(self, rows: Tensor) -> Batch:
        raise AssertionError("the test split was read")

    def to(self, device: torch.device | str) -> Split:
        raise AssertionError("the test split was moved")


def test_the_test_split_decides_nothing(few: Dataset) -> None:
    """Defect 9: the model was selected on the test split."""
    other = replace(few, test=Split(images=255 - few.test.images, labels=few.test.labels))
    states = []
    for some in (few, other, replace(few, test=Untouchable(images=few.test.images, labels=few.test.labels))):
        model = tiny(some, transition_epochs=2)
        model.fit(some, seed=0)
        states.append(model.state_dict())
    assert all(torch.equal(value, state[name]) for state in states[1:] for name, value in states[0].items())


@pytest.mark.parametrize("name", ["transitions", "pictures"])
def test_each_phase_that_flies_apart_keeps_the_best_weights(name: str, few: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate grows a hundredfold with every epoch of the phase, so that the last are ruined."""
    declared = CTVAE.phases
    ruined: dict[str, Any] = {"schedule": "exponential", "decay": 100.0, "epochs": 3}
    monkeypatch.setattr(CTVAE, "phases", lambda self: [replace(p, **ruined) if p.name == name else p for p in declared(self)])
    model = tiny(few, picture_epochs=int(name == "pictures"), clip=None)
    history = model.fit(few, seed=0).history
    losses = [epoch["validation"]["loss"] for epoch in history if epoch["phase"] == name and "validation" in epoch]
    assert len(losses) == 3
    assert min(losses) < losses[-1] / 1.05
    loss, data = (model.transition_loss, model.encode_once(few, 0)) if name == "transitions" else (model.picture_loss, model.encode_beside(few, 0))
    kept = loss(data.validation.batch(torch.arange(len(data.validation))))["loss"].item()
    assert kept == pytest.approx(min(losses), rel=1e-4)


def test_few_steps_and_coarse_patches_are_told_before_training(few: Dataset) -> None:
    pairs = len(few.transitions.train) // 16  # type: ignore[union-attr]
    coarse, passes, more = CTVAE(few.spec, batch_size=16, transition_batch=16, transition_epochs=1).doubts(few)
    assert coarse.startswith("patch=8 cuts the pictures in 2 x 2 places")
    assert passes == f"epochs=20 are only {20 * (len(few.train) // 16)} steps on data this small; epochs=250 would be 500"
    assert more.startswith(f"transition_epochs=1 are only {pairs} steps")
    enough = {"patch": 4, "batch_size": 16, "epochs": 100, "transition_batch": 16, "transition_epochs": -(-200 // pairs)}
    assert CTVAE(few.spec, **enough).doubts(few) == []


def test_data_without_actions_or_pairs_are_refused(data: Dataset) -> None:
    with pytest.raises(DataError, match=r"actions between pictures.*transitions=True"):
        create("ct-vae", replace(data, actions=()))
    with pytest.raises(DataError, match=r"pairs of pictures.*transitions=True"):
        tiny(data).fit(replace(data, transitions=None))


@pytest.mark.parametrize("picture_epochs", [0, 1])
def test_fewer_pairs_than_a_batch_of_them_are_refused_before_the_codebooks_are_trained(picture_epochs: int, few: Dataset, tmp_path: Path) -> None:
    assert few.transitions is not None
    pairs = len(few.transitions.train)
    model = tiny(few, batch_size=8, transition_batch=pairs + 1, picture_epochs=picture_epochs)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    words = f"there are {pairs} training pairs, fewer than one transition_batch of {pairs + 1}; set transition_batch={pairs} or less"
    with pytest.raises(DataError, match=words):
        model.fit(few, seed=0, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    tiny(few, batch_size=8, transition_batch=pairs, picture_epochs=picture_epochs).fit(few, seed=0)


def test_painting_the_mean_of_unlike_pictures_is_refused(data: Dataset) -> None:
    """Where pairs are of faces, say, which differ in all that has no name."""
    assert data.transitions is not None
    unlike = with_transitions(data, factors="colour", unique=False)
    with pytest.raises(UsageError, match=r"picture_epochs=2.*unique=False.*set picture_epochs=0"):
        tiny(unlike).fit(unlike, seed=0)
    tiny(unlike, picture_epochs=0).fit(unlike, seed=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"features": 10, "codebooks": 4}, "features=10"),
        ({"width": 10, "heads": 4}, "width=10"),
        ({"edge_prior": 1.0}, "edge_prior"),
        ({"causal_share": 0.0}, "causal_share"),
        ({"codes": 40000}, "32768 at most"),
        ({"patch": 17}, "larger than the pictures of 16 x 16"),
        ({"code_decay": 1.0}, "code_decay"),
        ({"clip": 0.0}, "clip=0.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], words: str, data: Dataset) -> None:
    with pytest.raises(UsageError, match=words):
        create("ct-vae", data, **settings)


def test_one_codebook_is_the_vq_vae(data: Dataset) -> None:
    with pytest.raises(UsageError, match="use mcq-vae"):
        create("vq-vae", data, codebooks=2)


def test_several_codebooks_have_their_own_places(few: Dataset) -> None:
    model = tiny(few, codebooks=4)
    assert model.places == 4 * 16 == len(model.latent_names)
    model.fit(few, seed=0)
    assert model.attribute(few.test.images[:3], few.test.images[:3]).shape == (3, 4)
    assert model.encode(few.test.images[:3]).shape == (3, 64, 2)


def test_vectors_are_taken_for_the_code_next_to_them(trained: CTVAE, data: Dataset) -> None:
    latents = trained.encode(data.test.images[:3])
    assert torch.equal(trained.decode(latents + 1e-4), trained.decode(latents))


def test_samples_have_codes_as_often_as_the_pictures_have_them(trained: CTVAE, data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Tensor] = []
    monkeypatch.setattr(trained, "draw_codes", lambda codes: drawn.append(codes) or torch.zeros(len(codes), 3, 16, 16))
    trained.sample(4000, seed=0)
    codes = torch.cat(drawn)
    shares = torch.stack([(codes == c).float().mean(0) for c in range(64)], dim=1)
    assert torch.allclose(shares, trained.marginals, atol=0.04)
