"""Checks of files, seeds, shapes and the loss."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import SkipTest
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

import intervae.training.loop as loop
from intervae.data import Batch
from intervae.errors import DataError
from intervae.models.base import Model
from intervae.models.storage import load_model
from intervae.testing.case import (
    ModelCase,
    assert_close,
    assert_equal,
    assert_raises,
    first_batch,
    no_noise,
    state_of,
    without_seconds,
)


# ---- files -------------------------------------------------------------------------------------
def check_save_and_load(case: ModelCase, trained: bool) -> None:
    """A loaded model gives the same answers, bit for bit."""
    data = case.data((3, 20, 17))
    model = case.model(data, seed=3)
    with tempfile.TemporaryDirectory() as folder:
        if trained:
            model.fit(data, seed=3, out=Path(folder) / "run")
        else:
            model.save(Path(folder) / "run")
        loaded = load_model(Path(folder) / "run", model=case.cls)
    assert type(loaded) is type(model)
    assert loaded.settings == model.settings
    assert loaded.spec == model.spec
    assert loaded.latent_names == model.latent_names
    assert_equal(state_of(model), state_of(loaded))
    latents = model.encode(data.test.images)
    assert torch.equal(latents, loaded.encode(data.test.images))
    assert torch.equal(model.decode(latents), loaded.decode(latents))
    assert torch.equal(model.sample(5, seed=1), loaded.sample(5, seed=1))
    if hasattr(type(model), "graph"):
        assert loaded.graph == model.graph
    losses = [m.loss(first_batch(data), _generator()) for m in (model, loaded)]
    assert_equal(*losses)


def check_resume(case: ModelCase) -> None:
    """A run that is stopped after any epoch and resumed equals one that is not stopped."""
    data, epochs = case.data(), case.epochs(3)
    write, calls, stop_at = loop.save_checkpoint, 0, 0

    def stop(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == stop_at:
            raise KeyboardInterrupt  # the epoch is done and logged, but its checkpoint is lost
        write(*arguments)

    options: dict[str, Any] = {"seed": 1, "checkpoint_seconds": 0, "tensorboard": False}
    with tempfile.TemporaryDirectory() as name, patch.object(loop, "save_checkpoint", stop):
        folder = Path(name)
        model = case.model(data, **epochs)
        uninterrupted = model.fit(data, out=folder / "uninterrupted", **options)
        weights = (folder / "uninterrupted" / "model.safetensors").read_bytes()
        for stop_at in range(1, calls + 1):
            calls, run = 0, folder / f"stopped{stop_at}"
            stopped = case.model(data, **epochs)
            assert_raises(KeyboardInterrupt, "", partial(stopped.fit, data, out=run, **options))
            again = case.model(data, seed=7, **epochs)
            resumed = again.fit(data, out=run, resume=True, **options)
            assert_equal(state_of(model), state_of(again))
            assert without_seconds(resumed.history) == without_seconds(uninterrupted.history)
            assert (run / "model.safetensors").read_bytes() == weights


# ---- seeds -------------------------------------------------------------------------------------
def check_seed_of_training(case: ModelCase) -> None:
    """The seed of fit() decides every weight; the seed of the constructor then has no effect."""
    data = case.data()
    histories, states = [], []
    for initial_seed, seed in ((0, 0), (5, 0), (0, 1)):
        model = case.model(data, seed=initial_seed)
        histories.append(without_seconds(model.fit(data, seed=seed).history))
        states.append(state_of(model))
    assert histories[0] == histories[1]
    assert_equal(states[0], states[1])
    if not any(phase.players for phase in model.phases()):
        return  # a closed form is the same for every seed
    assert histories[1] != histories[2]
    random_keys = [
        key
        for key, parameter in model.named_parameters()
        if parameter.numel() > 1 and states[0][key].std() > 0
    ]
    assert random_keys
    assert not [key for key in random_keys if torch.equal(states[0][key], states[2][key])]


def check_global_generators(case: ModelCase) -> None:
    """Building, training and sampling leave the global random generators alone."""
    data = case.data()
    before = _generator_states()
    model = case.model(data)
    model.fit(data)
    model.sample(3, seed=0)
    model.encode(data.test.images)
    assert before == _generator_states()


def _generator_states() -> tuple[Any, ...]:
    """Return the states of the generators of torch, numpy and Python."""
    numpy_state: Any = np.random.get_state()
    return torch.get_rng_state().tolist(), numpy_state[1].tolist(), random.getstate()


def check_seed_of_sampling(case: ModelCase) -> None:
    """sample() depends on its seed alone, and is random without one."""
    model = case.model(case.data())
    assert torch.equal(model.sample(4, seed=2), model.sample(4, seed=2))
    assert not torch.equal(model.sample(4, seed=2), model.sample(4, seed=3))
    assert not torch.equal(model.sample(4), model.sample(4))


# ---- shapes ------------------------------------------------------------------------------------
def check_image_shape(case: ModelCase, shape: tuple[int, int, int]) -> None:
    """A model of images of any shape trains, encodes, decodes and samples."""
    data = case.data(shape)
    model = case.model(data, **case.epochs(1))
    start = state_of(model)
    model.fit(data)
    learns = any(phase.players for phase in model.phases())
    changed = [key for key, value in state_of(model).items() if not torch.equal(start[key], value)]
    assert changed or not learns
    latents = model.encode(data.test.images)
    assert latents.shape[:2] == (len(data.test), len(model.latent_names))
    assert latents.ndim == 3
    for images in (
        model.decode(latents),
        model.reconstruct(data.test.images),
        model.sample(3, seed=0),
    ):
        assert tuple(images.shape[1:]) == data.train.shape[1:]
        assert torch.isfinite(images).all()
        assert images.min() >= 0
        assert images.max() <= 1
    assert len(set(model.latent_names)) == len(model.latent_names)


# ---- missing labels ----------------------------------------------------------------------------
def check_missing_labels(case: ModelCase) -> None:
    """Rows with some or no labels are trained on and encoded, or refused in one sentence."""
    data = case.data()
    labels = data.train.labels.clone()
    labels[::2], labels[1::4, :1] = torch.nan, torch.nan
    train = data.train.with_fields({**data.train.fields, "labels": labels})
    data = replace(data, train=train)
    model = case.model(data)
    if not case.cls.accepts_missing_labels:
        text = assert_raises(DataError, "has no value", lambda: model.fit(data))
        assert text.endswith("."), text
        assert f"{case.cls.name} takes no missing labels" in text, text
        return
    model.fit(data)  # a loss that is not finite is an error
    assert torch.isfinite(model.encode(train.images[:4], labels[:4])).all()


# ---- the loss ----------------------------------------------------------------------------------
def check_loss_terms(case: ModelCase) -> None:
    """Every loss term is finite and a mean over the batch."""
    data = case.simulated()
    with no_noise():
        model = case.model(data).eval()
        terms = model.loss(first_batch(data))
        singles = [model.loss(first_batch(data, [i])) for i in range(8)]
    assert "loss" in terms
    for key, value in terms.items():
        assert value.ndim == 0, key
        assert torch.isfinite(value), key
        if key not in case.batch_terms:
            mean = float(np.mean([single[key].item() for single in singles]))
            assert_close(value.item(), mean, tolerance=1e-4, what=key)


def check_reconstruction_sum(case: ModelCase) -> None:
    """The reconstruction term is a sum over pixels."""
    values = []
    for shape in ((1, 16, 16), (1, 32, 32), (2, 32, 32)):
        data = case.data(shape)
        terms = case.model(data).loss(first_batch(data), _generator())
        if "reconstruction" not in terms:
            raise SkipTest(f"{case.cls.name} has no reconstruction term")
        values.append(terms["reconstruction"].item())
    assert abs(values[1] / values[0] - 4) < 0.8
    assert abs(values[2] / values[1] - 2) < 0.4


class _Loss(nn.Module):
    """A model's loss as the forward of a module, for `functional_call`."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.model.loss(batch, _generator())


def check_pure_loss(case: ModelCase, shape: tuple[int, int, int], shared_batch: bool) -> None:
    """The loss is a pure function of parameters and batch, so that it can be vmapped."""
    data = case.data(shape)
    losses = [_Loss(case.model(data, seed=seed)).train() for seed in range(2)]
    second_rows = slice(0, 8) if shared_batch else slice(8, 16)
    batches = [first_batch(data), first_batch(data, second_rows)]
    separate = [loss(batch) for loss, batch in zip(losses, batches, strict=True)]
    before = state_of(losses[0].model)
    assert_equal(separate[0], losses[0](batches[0]))
    assert_equal(before, state_of(losses[0].model))

    parameters, buffers = stack_module_state(losses)
    stacked = {key: torch.stack([batch[key] for batch in batches]) for key in batches[0]}

    def call(parameters: Any, buffers: Any, batch: Any) -> Any:
        return functional_call(losses[0], (parameters, buffers), (batch,))

    in_dims = (0, 0, None if shared_batch else 0)
    joint = vmap(call, in_dims=in_dims, randomness="same")(
        parameters, buffers, batches[0] if shared_batch else stacked
    )
    for seed in range(2):
        for key, value in separate[seed].items():
            assert_close(joint[key][seed].item(), value.item(), tolerance=1e-4, what=key)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
