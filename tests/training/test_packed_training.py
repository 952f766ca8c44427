"""Training on packed data: bit for bit as in memory, resumed too; the thread that reads ahead."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intervae as package
from intervae.data import Dataset, MappedSplit, load_data, pack
from intervae.data.packed.shards import ImageShards
from intervae.models import create
from intervae.training import epochs
from intervae.training import read_ahead as module
from intervae.training.ranks import Ranks
from intervae.training.read_ahead import read_ahead
from intervae.training.stepper import Stepper

TINY: dict[str, Any] = {"channels": (4, 4), "hidden": 16, "batch_size": 16, "epochs": 3}
CASES: dict[str, dict[str, Any]] = {
    "vae": TINY,
    "causal-vae": {**TINY, "dims": 2, "decoder": "layers"},
    "cmcl": {**TINY, "latents": 4},
    "factor-vae": {**TINY, "epochs": 2},  # two players
}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    """The same pictures in memory and packed, in several shards."""
    out = tmp_path_factory.mktemp("pack") / "packed"
    options = {"samples": 150, "size": 16, "seed": 1}
    packed = pack("pendulum", out, shard_mb=0.01, **options)
    assert len(list(out.glob("images-*"))) > 5
    return {"memory": load_data("pendulum", **options), "packed": packed}


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def losses(result: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "seconds"} for line in result.history]


@pytest.mark.filterwarnings("ignore::intervae.errors.DataWarning")
@pytest.mark.parametrize("name", list(CASES))
def test_packed_run_equals_the_run_in_memory(name: str, both: dict[str, Dataset]) -> None:
    results, models = {}, {}
    for where, data in both.items():
        models[where] = create(name, data, seed=1, **_known(name, CASES[name]))
        results[where] = models[where].fit(data, seed=4, threads=1)
    packed, memory = weights(models["packed"]), weights(models["memory"])
    assert packed.keys() == memory.keys()
    for key, tensor in memory.items():
        assert torch.equal(packed[key], tensor), key
    assert losses(results["packed"]) == losses(results["memory"])


def _known(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    fields = package.MODELS[name].Settings.__dataclass_fields__
    return {key: value for key, value in settings.items() if key in fields}


@pytest.mark.parametrize("stop", [1, 2])
def test_resumed_packed_run_equals_memory(
    stop: int, both: dict[str, Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"seed": 4, "threads": 1, "checkpoint_seconds": 0, "tensorboard": False}
    whole = create("vae", both["memory"], seed=1, **TINY)
    whole.fit(both["memory"], **options)
    original, calls = epochs.validation_terms, []

    def interrupted(*arguments: Any) -> dict[str, float]:
        calls.append(1)
        if len(calls) == stop + 1:
            raise KeyboardInterrupt
        return original(*arguments)

    model = create("vae", both["packed"], seed=1, **TINY)
    with monkeypatch.context() as patched:
        patched.setattr(epochs, "validation_terms", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(both["packed"], out=tmp_path / "run", **options)
    again = create("vae", both["packed"], seed=1, **TINY)
    again.fit(both["packed"], out=tmp_path / "run", resume=True, **options)
    for key, tensor in weights(whole).items():
        assert torch.equal(weights(again)[key], tensor), key
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["data"]["path"] == both["packed"].source["path"]


def test_steps_read_only_from_the_thread(
    both: dict[str, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps and the validation take what the thread has read, each row once an epoch."""
    read: dict[str, list[int]] = {}
    original = ImageShards.read

    def counted(shards: ImageShards, rows: np.ndarray, out: Any = None) -> np.ndarray:
        read.setdefault(threading.current_thread().name, []).extend(rows.tolist())
        return original(shards, rows, out)

    monkeypatch.setattr(ImageShards, "read", counted)
    data = both["packed"]
    assert isinstance(data.train, MappedSplit)
    create("vae", data, **{**TINY, "epochs": 1}).fit(data, threads=1)
    assert set(read) == {"read-ahead"}
    steps = len(data.train) // 16
    expected = 16 * steps + len(data.validation)
    assert len(read["read-ahead"]) == len(set(read["read-ahead"])) == expected
    assert not [t for t in threading.enumerate() if t.name == "read-ahead"]


def rows_of(count: int, size: int) -> list[torch.Tensor]:
    return list(torch.randperm(count, generator=torch.Generator().manual_seed(0)).split(size))


def test_images_come_in_order_and_are_bounded(
    both: dict[str, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    train, memory = both["packed"].train, both["memory"].train
    assert isinstance(train, MappedSplit)
    monkeypatch.setattr(module, "AHEAD_BYTES", 1)  # two batches
    read: list[int] = []
    original, full = ImageShards.read, threading.Event()

    def counted(shards: ImageShards, rows: np.ndarray, out: Any = None) -> np.ndarray:
        read.append(len(rows))
        if len(read) == 4:  # one taken, two waiting, one that waits for room
            full.set()
        return original(shards, rows, out)

    monkeypatch.setattr(ImageShards, "read", counted)
    batches = rows_of(len(train), 8)
    with contextlib.closing(read_ahead(train, batches)) as images:
        first = next(images).clone()
        assert full.wait(20)
        assert not threading.Event().wait(0.2)
        assert len(read) <= 4
        rest = [pixels.clone() for pixels in images]
    for rows, pixels in zip(batches, [first, *rest], strict=True):
        assert torch.equal(pixels, memory.images[rows])


def test_error_of_the_thread_is_raised_in_the_step(
    both: dict[str, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(ImageShards, "read", broken)
    data = both["packed"]
    with pytest.raises(OSError, match="Input/output error"):
        create("vae", data, **TINY).fit(data, threads=1)
    assert not [t for t in threading.enumerate() if t.name == "read-ahead"]


def test_a_rank_reads_its_own_rows_only(
    both: dict[str, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = []
    read = ImageShards.read
    monkeypatch.setattr(
        ImageShards, "read", lambda self, own, out: (rows.append(own), read(self, own, out))
    )
    model = create("vae", both["packed"], **TINY)
    split = both["packed"].train
    stepper = Stepper(
        model, model.phases()[0], split, 15, cuda_graph=False, bf16=False, ranks=Ranks(1, 2, 1)
    )
    stepper.begin_epoch(0, 1, 3)
    for step, _ in enumerate(stepper._images_of_steps()):
        own = stepper.order[step, 7:]  # the first rank has 7 rows of 15
        assert torch.equal(stepper.pixels, both["memory"].train.images[own])
    assert [len(each) for each in rows] == [8] * stepper.steps_per_epoch
