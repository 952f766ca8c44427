"""Runs of an earlier version load and encode as they did.

tests/fixtures/old_runs holds runs made before the settings and modules got their present names;
oracle_encode.npy has the latents of the test split of `ramps()` as that version encoded it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import intervae
from intervae.causal.graph import CausalGraph
from intervae.errors import UsageError
from intervae.files import read_json, write_json
from intervae.settings import upgrade_settings
from intervae.testing import ramps, random_pairs

RUNS = Path(__file__).parents[1] / "fixtures" / "old_runs"
NAMES = sorted(path.name for path in RUNS.iterdir())


def test_there_are_old_runs() -> None:
    assert NAMES == ["causal-prior-vae", "causal-vae", "cmcl", "ct-vae"]


@pytest.mark.parametrize("name", NAMES)
def test_an_old_run_loads_and_encodes_the_same(name: str) -> None:
    model = intervae.load(RUNS / name)
    data = random_pairs(ramps()) if name == "ct-vae" else ramps()
    assert model.name == name
    assert model.spec.image_shape == data.spec.image_shape
    latents = model.encode(data.test.images).numpy()
    assert np.abs(latents - np.load(RUNS / name / "oracle_encode.npy")).max() < 1e-5


@pytest.mark.parametrize("name", NAMES)
def test_an_old_run_answers_and_can_be_saved_again(name: str, tmp_path: Path) -> None:
    model = intervae.load(RUNS / name)
    images = ramps().test.images
    if (RUNS / name / "graph.json").is_file():
        stored = CausalGraph.from_json(read_json(RUNS / name / "graph.json", "the graph"))
        assert model.graph == stored
        assert torch.isfinite(model.counterfactual(images, {model.graph.names[0]: 0.5})).all()
    else:
        assert torch.isfinite(model.act(images, model.spec.actions[0])).all()
    model.save(tmp_path)
    again = intervae.load(tmp_path)
    assert again.settings == model.settings
    assert torch.equal(again.encode(images), model.encode(images))


def test_a_removed_setting_of_a_finished_run_is_a_warning(tmp_path: Path) -> None:
    """Its weights are as they were; only training it further is refused."""
    run = Path(shutil.copytree(RUNS / "ct-vae", tmp_path / "run"))
    config = read_json(run / "config.json", "the settings")
    config["settings"]["temperature"] = 0.7
    write_json(run / "config.json", config)
    with pytest.warns(UserWarning, match=r"temperature=0.7 .* no longer available"):
        model = intervae.load(run)
    assert model.name == "ct-vae"
    with pytest.raises(UsageError, match=r"temperature=0.7 .* train the model again"):
        upgrade_settings(type(model).Settings, config["settings"], strict=True)
