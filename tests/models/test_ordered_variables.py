"""Ordered categories in models: deep-scm has ordinal mechanisms, others treat them as classes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intervae
from command import intervae as run
from command import make_folder, succeeded
from intervae.causal.graph import CausalGraph
from intervae.causal.variable_mechanisms import GumbelMaxMechanism, OrdinalMechanism
from intervae.data import Dataset, Variable, build_dataset
from intervae.errors import QueryError
from intervae.models import CausalVAE
from intervae.models.deep_scm import DeepSCM
from lit_squares import draw_squares

STAGES = ("I", "II", "III", "IV")
THRESHOLDS = np.array([-1.5, 0.0, 2.0])
EFFECT = 1.5  # of the dose, in units of the noise
GRAPH = CausalGraph.from_edges(("dose", "stage", "ground"), [("dose", "stage")])
SMALL: dict[str, Any] = {
    "channels": (8, 8),
    "hidden": 16,
    "latents": 4,
    "batch_size": 64,
    "learning_rate": 5e-3,
    "mechanism_hidden": 32,
}


def stages(dose: Any, noise: np.ndarray) -> np.ndarray:
    """Return the number of thresholds below the effect of the dose and logistic noise."""
    return ((EFFECT * dose + noise)[:, None] > THRESHOLDS).sum(1)


@pytest.fixture(scope="module")
def data() -> Dataset:
    """Squares whose side is the stage, an effect of the dose; the ground is a cause of nothing."""
    rng = np.random.default_rng(0)
    dose, noise = rng.uniform(-2, 2, 1500), rng.logistic(size=1500)
    stage, ground = stages(dose, noise), rng.integers(0, 3, 1500)
    light = np.full(1500, 200.0)
    return build_dataset(
        "stages",
        draw_squares(4 + stage, light, ground, np.full((1500, 2), 3)),
        np.stack([dose, stage, ground], axis=1),
        [
            Variable("dose"),
            Variable("stage", "categorical", categories=STAGES, ordered=True),
            Variable("ground", "categorical", categories=("black", "grey", "striped")),
        ],
        fields={"noise": noise.astype(np.float32)},
        graph=GRAPH,
        source={"name": "stages"},
    )


@pytest.fixture(scope="module")
def trained(data: Dataset) -> DeepSCM:
    model = DeepSCM(data.spec, graph=GRAPH, **SMALL, epochs=20)
    model.fit(data, seed=0)
    return model


def stage_under(model: DeepSCM, data: Dataset, do: dict[str, Any]) -> torch.Tensor:
    """Return the stage (B,) of the test pictures under do(), with their labels."""
    before = model.encode(data.test.images, data.test.labels)
    return model.intervene(before, do)[:, 1, 0]


# ---- deep-scm ------------------------------------------------------------------------------------
def test_only_ordered_categories_have_ordinal_mechanisms(data: Dataset) -> None:
    model = DeepSCM(data.spec, graph=GRAPH, **SMALL)
    assert isinstance(model.variables.mechanism("stage"), OrdinalMechanism)
    assert isinstance(model.variables.mechanism("ground"), GumbelMaxMechanism)


def test_a_higher_dose_never_lowers_the_stage(trained: DeepSCM, data: Dataset) -> None:
    doses = np.linspace(-1.8, 1.8, 10)
    answers = torch.stack([stage_under(trained, data, {"dose": dose}) for dose in doses])
    assert (answers.diff(dim=0) >= 0).all()
    assert (answers[-1] > answers[0]).float().mean() > 0.8
    noise = np.random.default_rng(1).logistic(size=20_000)
    for dose, answer in zip(doses, answers, strict=True):
        truth = stages(np.full(20_000, dose), noise).mean()
        # 300 pictures: a standard error of 0.05, and that of the fitted thresholds
        assert float(answer.mean()) == pytest.approx(truth, abs=0.2), dose


def test_stages_change_together_as_in_the_world(trained: DeepSCM, data: Dataset) -> None:
    """Gumbel noise has the same probabilities, but another joint one of before and after."""
    labels = data.train.labels
    noise, before = data.train.fields["noise"].double().numpy(), labels[:, 1].long().numpy()
    latents = data.spec.normalise(labels)[..., None]
    for dose in (-1.0, 1.0):
        after = trained.intervene(latents, {"dose": dose})[:, 1, 0].long().numpy()
        truth = stages(np.full(len(noise), dose), noise)
        tables = [
            np.bincount(4 * before + stage, minlength=16) / len(before) for stage in (after, truth)
        ]
        assert abs(tables[0] - tables[1]).sum() / 2 < 0.15  # Gumbel: 0.33


def test_abducted_noise_gives_the_factual_stage(trained: DeepSCM, data: Dataset) -> None:
    factual = data.test.labels[:, 1]
    assert torch.equal(stage_under(trained, data, {}), factual)
    own = {"dose": data.test.labels[:, 0]}
    assert torch.equal(stage_under(trained, data, own), factual)
    values = data.spec.normalise(data.test.labels)
    noises = trained.variables.abduct(values, torch.Generator().manual_seed(0))
    # predicted by the mechanism, not copied
    assert torch.equal(trained.variables.predict(noises)[:, 1], factual)


def test_stages_are_set_by_name(trained: DeepSCM, data: Dataset) -> None:
    images, labels = data.test.images[:8], data.test.labels[:8]
    for code, name in enumerate(STAGES):
        assert (stage_under(trained, data, {"stage": name}) == code).all()
        by_name = trained.counterfactual(images, {"stage": name}, labels)
        assert torch.equal(by_name, trained.counterfactual(images, {"stage": code}, labels))
    with pytest.raises(QueryError, match="I, II, III, IV"):
        trained.counterfactual(images, {"stage": "V"}, labels)
    with pytest.raises(QueryError, match="stage"):
        trained.counterfactual(images, {"stage": 1.5}, labels)


def test_likelihood_sample_and_median(trained: DeepSCM, data: Dataset) -> None:
    rows = np.array([[dose, stage, 0] for dose in (-1.0, 1.0) for stage in range(4)])
    probability = trained.log_likelihood(rows)[:, 1].exp().reshape(2, 4)
    torch.testing.assert_close(probability.sum(1), torch.ones(2))
    for row, dose in zip(probability.numpy(), (-1.0, 1.0), strict=True):
        below = np.concatenate([[0], 1 / (1 + np.exp(EFFECT * dose - THRESHOLDS)), [1]])
        np.testing.assert_allclose(row, np.diff(below), atol=0.12)
    assert trained.sample(3, {"stage": "IV"}, seed=0).shape == (3, 1, 16, 16)
    latents = trained.encode(data.test.images, data.test.labels)
    assert set(trained.mechanism(1, latents).unique().tolist()) <= {0.0, 1.0, 2.0, 3.0}


def test_the_order_is_stored(trained: DeepSCM, data: Dataset, tmp_path: Path) -> None:
    trained.save(tmp_path / "run")
    again = intervae.load(tmp_path / "run")
    assert again.spec == data.spec
    assert isinstance(again.variables.mechanism("stage"), OrdinalMechanism)
    assert "I < II < III < IV" in (tmp_path / "run" / "README.md").read_text()


# ---- other models --------------------------------------------------------------------------------
def test_causal_vae_takes_ordered_categories_as_classes(data: Dataset) -> None:
    settings = {name: SMALL[name] for name in ("channels", "hidden", "batch_size")}
    model = CausalVAE(data.spec, graph=GRAPH, epochs=1, **settings)
    model.fit(data, seed=0)
    assert model.dims == len(STAGES)
    images = data.test.images[:4]
    by_name = model.counterfactual(images, {"stage": "III"})
    assert torch.equal(by_name, model.counterfactual(images, {"stage": 2.0}))


# ---- command line --------------------------------------------------------------------------------
def test_train_and_intervene_with_an_order(tmp_path: Path) -> None:
    columns = {"stage": [STAGES[i % 3] for i in range(80)], "grade": [1 + i % 4 for i in range(80)]}
    folder, out = make_folder(tmp_path / "data", columns=columns), tmp_path / "run"
    words = ["train", "deep-scm", "--data", folder, "--out", out, "--epochs", "1"]
    words += [
        "--kind",
        "stage=I < II < III",
        "--kind",
        "grade=ordinal",
        "--graph",
        "level -> width",
    ]
    words += ["--set", "channels=8,8", "--set", "hidden=16", "--set", "batch_size=16"]
    shown = succeeded(run(*words, "--no-evaluate", "--device", "cpu"))
    assert re.search(
        r"^stage +categorical +I < II < III +given in kinds *$", shown.out, re.MULTILINE
    )
    assert re.search(
        r"^grade +categorical +1 < 2 < 3 < 4 +given in kinds *$", shown.out, re.MULTILINE
    )
    picture = tmp_path / "answer.png"
    shown = run("intervene", out, "--do", "stage=II", "--do", "grade=4", "--out", picture)
    assert shown.code == 0, shown
    assert re.search(r"^stage +\S+ +II +\S+ *$", shown.out, re.MULTILINE)
    assert re.search(r"^grade +\S+ +4 +\S+ *$", shown.out, re.MULTILINE)
