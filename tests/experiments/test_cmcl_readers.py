"""Readers of CMCL's images: known latents are read, regions hide what is outside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from intervae.data import Variable, build_dataset
from intervae.experiments import cmcl_readers
from intervae.experiments.cmcl import TABLE1
from intervae.experiments.cmcl_readers import (
    CELLS,
    CMCL_FOLDED,
    GRAPHS,
    LOGISTIC,
    TREES,
    WITH_TABLE,
    ReadCovid,
    ReadLatents,
    keep_region,
)
from intervae.experiments.cmcl_xray import binary_scores


def read(reader: str, folder: Path, **options: object) -> dict[object, float]:
    """Read one small simulator; seed 5 is outside of the tables."""
    options = {"graph": "3/6", "weakest": 2.0, "size": 16, "samples": 900, **options}
    job = ReadLatents("cross-modal", reader, options)
    return job.run(5, "cpu", folder)  # type: ignore[return-value]


def test_cells_without_noise_have_all_of_the_latents(tmp_path: Path) -> None:
    monotone = read(CELLS, tmp_path, gp="monotone", noise=0.0)
    assert monotone["mic_linked"] == pytest.approx(1.0, abs=1e-6)
    assert monotone["rank_correlation"] > 0.999
    folded = read(CELLS, tmp_path, gp="free", noise=0.0)
    assert folded["mic_linked"] > 0.9  # a fold costs no MIC, apart from 256 greys
    assert folded["rank_correlation"] < 0.9
    noisy = read(CELLS, tmp_path, gp="free", noise=1.0)
    assert noisy["mic_by_chance"] < noisy["mic_linked"] < 0.6


def test_trees_read_the_test_images_without_having_seen_them(tmp_path: Path) -> None:
    clear = read(TREES, tmp_path, gp="monotone", noise=0.0)
    assert clear["rank_correlation"] > 0.97
    blind = read(TREES, tmp_path, gp="free", noise=50.0)  # nothing is left to read
    assert blind["mic_linked"] < 0.35
    table = read(WITH_TABLE, tmp_path, gp="free", noise=50.0)
    assert table["rank_correlation"] > blind["rank_correlation"] + 0.4  # the columns are


def test_folded_rows_are_those_of_table_1() -> None:
    assert set(GRAPHS) <= set(TABLE1)
    assert {job.options["gp"] for job in CMCL_FOLDED.jobs} == {"free", "monotone"}
    for job in CMCL_FOLDED.jobs:
        assert isinstance(job, ReadLatents)
        assert job.first_seed == 100


def test_a_region_is_all_that_is_left_of_an_image() -> None:
    images = np.random.default_rng(0).integers(0, 100, (2, 1, 24, 24)).astype(np.uint8)
    centre, frame = (keep_region(images, region) for region in ("centre", "frame"))
    inside = np.zeros((24, 24), dtype=bool)
    inside[4:20, 4:20] = True
    assert (keep_region(images, "whole") == images).all()
    assert (centre[..., inside] == images[..., inside]).all()
    assert (centre[..., ~inside] == 128).all()
    assert (frame[..., ~inside] == images[..., ~inside]).all()
    assert (frame[..., inside] == 128).all()


def test_covid_is_read_where_it_is_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images in which one corner says the answer; each patient has two of them."""
    rng = np.random.default_rng(0)
    covid = np.repeat(rng.random(120) < 0.6, 2).astype(float)
    images = rng.integers(0, 60, (240, 1, 12, 12)).astype(np.uint8)
    images[:, 0, :2, :] += (150 * covid[:, None, None]).astype(np.uint8)
    data = build_dataset(
        "made",
        images,
        covid[:, None],
        [Variable("covid", "binary")],
        fields={"patient": np.arange(240) // 2},
    )
    monkeypatch.setattr(cmcl_readers, "load_shared", lambda name, options: data)
    monkeypatch.setattr(cmcl_readers, "COMPONENTS", (3, 6))
    scores = {
        region: ReadCovid("covid-cxr", LOGISTIC, region=region).run(0, "cpu", tmp_path)
        for region in ("frame", "centre")
    }
    assert scores["frame"]["accuracy"] == 1
    assert scores["centre"]["auc"] < 0.75
    assert scores["centre"]["majority_accuracy"] == scores["frame"]["majority_accuracy"]
    truth = data.test.labels[:, 0]
    majority = torch.cat([data.train.labels, data.validation.labels]).mean() >= 0.5
    assert scores["frame"]["majority_accuracy"] == (truth == float(majority)).float().mean()


def test_scores_of_known_predictions() -> None:
    labels, probability = np.array([1.0, 1, 1, 0]), np.array([0.9, 0.8, 0.2, 0.4])
    scores = binary_scores(labels, probability, majority=1.0)
    assert scores["accuracy"] == scores["majority_accuracy"] == 0.75
    assert scores["above_majority"] == 0
    assert scores["balanced_accuracy"] == pytest.approx((2 / 3 + 1) / 2)
    assert scores["auc"] == pytest.approx(2 / 3)
