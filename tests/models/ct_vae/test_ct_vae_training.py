"""CT-VAE's training: the losses of the three modes, and what each phase trains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from intervae.data import Batch, Dataset, Split
from intervae.models.ct_vae.graph import NO_ACTION
from intervae.models.ct_vae.model import CTVAE
from squares import tiny


def pairs_of(model: CTVAE, data: Dataset, rows: int = 8) -> Batch:
    """Return a batch of encoded training pairs."""
    pairs = model.encode_pairs(data, 0).train
    return {**pairs.batch(torch.arange(rows) * 97), "step": torch.zeros(())}


def image_pairs_of(model: CTVAE, data: Dataset, rows: int) -> Batch:
    """Return a batch of training pairs with images."""
    pairs = model.encode_pairs_with_images(data, 0).train
    return {**pairs.batch(torch.arange(rows)), "step": torch.zeros(())}


# ---- the three modes -----------------------------------------------------------------------------
def test_transition_loss_is_the_weighted_sum_of_its_terms(data: Dataset) -> None:
    settings = {
        "attribution_weight": 2.0,
        "standard_weight": 0.5,
        "identity_weight": 0.03,
        "edge_kl": 0.01,
        "edge_norm": 0.02,
        "dependency": 0.3,
    }
    model = tiny(data, **settings).eval()
    batch = pairs_of(model, data)
    terms = {name: value.item() for name, value in model.transition_loss(batch).items()}
    x, y, action = batch["codes"].long(), batch["after_codes"].long(), batch["action"]
    rows = torch.arange(len(x))
    actions = model.transition.score(x, y, None)
    none = model.transition.score(x, x, torch.full_like(action, NO_ACTION))
    expected = {
        "action": -actions.log_likelihood[rows, action].mean(),
        "standard": -none.log_likelihood.mean(),
        "causal": -actions.log_likelihood.log_softmax(1)[rows, action].mean(),  # Eq. 10
        "edge_norm": (none.norm.mean() + actions.norm[rows, action].mean()) / 2,
    }
    for name, value in expected.items():
        assert terms[name] == pytest.approx(value.item(), rel=1e-4), name
    weights = {
        "action": 1.0,
        "standard": 0.5,
        "causal": 2.0,
        "identity_codes": 0.03,
        "identity_graph": 0.03,
        "edge_kl": 0.01,
        "edge_norm": 0.02,
        "dependency": 0.3,
    }
    assert terms["loss"] == pytest.approx(
        sum(weight * terms[name] for name, weight in weights.items()), rel=1e-4
    )


@pytest.mark.parametrize("share", [1.0, 0.5, 0.01])
def test_causal_share_of_a_batch_is_scored_in_all_modes(share: float, data: Dataset) -> None:
    model = tiny(data, causal_share=share).train()
    batch = pairs_of(model, data)
    x, y, action = batch["codes"].long(), batch["after_codes"].long(), batch["action"]
    losses = model.transition_loss(batch, torch.Generator().manual_seed(3))
    terms = {name: value.item() for name, value in losses.items()}
    noise = model.transition.draw_noise(len(x), torch.Generator().manual_seed(3), x.device)
    first, rows = max(1, round(share * len(x))), torch.arange(len(x))
    actions = model.transition.score(x, y, None, noise)
    none = model.transition.score(x, x, torch.full_like(action, NO_ACTION), noise)
    probability = actions.log_likelihood.log_softmax(1)
    expected = {
        "action": -actions.log_likelihood[rows, action].mean(),
        "standard": -none.log_likelihood[:first].mean(),
        "causal": -probability[rows, action][:first].mean(),
    }
    for name, of_actions, of_none in zip(
        ("edge_kl", "edge_norm", "dependency"), actions[1:4], none[1:4], strict=True
    ):
        expected[name] = (of_actions[rows, action].mean() + of_none[:first].mean()) / 2
    for name, value in expected.items():
        assert terms[name] == pytest.approx(value.item(), rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_small_batches_have_all_terms(batch: int, data: Dataset) -> None:
    model = tiny(data).train()
    terms = model.transition_loss(pairs_of(model, data, batch), torch.Generator().manual_seed(0))
    assert all(torch.isfinite(value) for value in terms.values())


def test_transition_loss_is_a_pure_function(data: Dataset) -> None:
    models = [tiny(data, seed=seed).train() for seed in range(2)]
    batch = pairs_of(models[0], data)
    before = {name: value.clone() for name, value in models[0].state_dict().items()}
    separate = [m.transition_loss(batch, torch.Generator().manual_seed(0))["loss"] for m in models]
    assert all(torch.equal(value, before[name]) for name, value in models[0].state_dict().items())
    module = _Loss(models[0])

    def loss(parameters: Any, buffers: Any) -> Any:
        state = [{f"model.{k}": v for k, v in part.items()} for part in (parameters, buffers)]
        return functional_call(module, tuple(state), (batch,))

    stacked = vmap(loss, randomness="same")(*stack_module_state(models))  # type: ignore[arg-type]
    assert stacked.tolist() == pytest.approx([value.item() for value in separate], rel=1e-3)


class _Loss(torch.nn.Module):
    def __init__(self, model: CTVAE) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Tensor:
        return self.model.transition_loss(batch, torch.Generator().manual_seed(0))["loss"]


# ---- phases --------------------------------------------------------------------------------------
def test_transition_phase_leaves_the_codebooks_unchanged(random_data: Dataset) -> None:
    model = tiny(random_data, decoder_epochs=0)
    model.fit(random_data, seed=0)
    codebooks = tiny(random_data, transition_epochs=0, decoder_epochs=0)
    codebooks.fit(random_data, seed=0)
    for name, value in model.state_dict().items():
        changed = not torch.equal(value, codebooks.state_dict()[name])
        assert changed == name.startswith(("transition.", "usual")), name


def test_picture_phase_trains_only_the_decoder(random_data: Dataset) -> None:
    before, after = (tiny(random_data, decoder_epochs=epochs) for epochs in (0, 2))
    for model in (before, after):
        model.fit(random_data, seed=0)
    for name, value in after.state_dict().items():
        changed = not torch.equal(value, before.state_dict()[name])
        assert changed == name.startswith("decoder."), name
    batch = image_pairs_of(after, random_data, 16)
    assert after.picture_loss(batch)["loss"] < before.picture_loss(batch)["loss"]


def test_picture_phase_trains_on_the_images_of_act(random_data: Dataset) -> None:
    model = tiny(random_data)
    model.fit(random_data, seed=0)
    batch = image_pairs_of(model, random_data, 16)
    actions = batch["action"].tolist()
    images = [model.act(x, a) for x, a in zip(batch["images"], actions, strict=True)]
    cross_entropy = torch.nn.functional.binary_cross_entropy(
        torch.cat(images), batch["after_images"], reduction="sum"
    )
    expected = model.picture_loss(batch)["expected"].item()
    assert expected == pytest.approx(cross_entropy.item() / 16, rel=1e-3)


@pytest.mark.parametrize("optimiser", ["muon", "adamw"])
def test_transition_settings_reach_its_optimiser(optimiser: Any, random_data: Dataset) -> None:
    settings = {"transition_rate": 0.25, "weight_decay": 0.5}
    model = tiny(random_data, transition_optimiser=optimiser, **settings)
    (player,) = next(phase for phase in model.phases() if phase.name == "transitions").players
    assert (player.optimiser, player.learning_rate, player.weight_decay) == (optimiser, 0.25, 0.5)
    for phase in model.phases():
        if phase.name != "transitions":
            assert all(player.optimiser == "adam" for player in phase.players)


def test_images_are_encoded_once_per_phase(
    random_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    encode = CTVAE.split_codes

    def record(self: CTVAE, split: Split, *augmentation: Any) -> Tensor:
        sizes.append(len(split))
        return encode(self, split, *augmentation)

    monkeypatch.setattr(CTVAE, "split_codes", record)
    model = tiny(random_data, transition_epochs=3)
    model.fit(random_data, seed=0)
    train, validation = len(random_data.train), len(random_data.validation)
    # marginals; transitions; pictures; usual
    assert sizes == [train, train, validation, train, validation, validation]


class Untouchable(Split):
    """A split that fails when anything but its size is read."""

    @property
    def images(self) -> Tensor:
        raise AssertionError("the test split was read")

    def __getitem__(self, rows: Any) -> Split:
        raise AssertionError("the test split was read")

    def batch(self, rows: Tensor) -> Batch:
        raise AssertionError("the test split was read")

    def to(self, device: torch.device | str) -> Split:
        raise AssertionError("the test split was moved")


def test_training_never_reads_the_test_split(random_data: Dataset) -> None:
    """Authors' code: the model was selected on the test split."""
    test = random_data.test
    inverted = replace(random_data, test=Split(images=255 - test.images, labels=test.labels))
    untouchable = replace(random_data, test=Untouchable(images=test.images, labels=test.labels))
    states = []
    for data in (random_data, inverted, untouchable):
        model = tiny(data, transition_epochs=2)
        model.fit(data, seed=0)
        states.append(model.state_dict())
    for state in states[1:]:
        assert all(torch.equal(value, state[name]) for name, value in states[0].items())


@pytest.mark.parametrize("name", ["transitions", "pictures"])
def test_each_phase_keeps_its_best_weights(
    name: str, random_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learning rate that grows a hundredfold per epoch makes the last epochs diverge."""
    phases = CTVAE.phases
    diverging: dict[str, Any] = {"schedule": "exponential", "decay": 100.0, "epochs": 3}

    def patched(self: CTVAE) -> list[Any]:
        return [replace(p, **diverging) if p.name == name else p for p in phases(self)]

    monkeypatch.setattr(CTVAE, "phases", patched)
    model = tiny(random_data, decoder_epochs=int(name == "pictures"), clip=None)
    history = model.fit(random_data, seed=0).history
    losses = [
        epoch["validation"]["loss"]
        for epoch in history
        if epoch["phase"] == name and "validation" in epoch
    ]
    assert len(losses) == 3
    assert min(losses) < losses[-1] / 1.05
    if name == "transitions":
        loss, pairs = model.transition_loss, model.encode_pairs(random_data, 0)
    else:
        loss, pairs = model.picture_loss, model.encode_pairs_with_images(random_data, 0)
    final = loss(pairs.validation.batch(torch.arange(len(pairs.validation))))["loss"].item()
    assert final == pytest.approx(min(losses), rel=1e-4)
