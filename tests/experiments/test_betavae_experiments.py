"""The protocol of the beta-VAE metric, and the sweep over beta and latents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from intervae import create, figures
from intervae.data import Variable, build_dataset
from intervae.data.readers.dsprites import DspritesGrid
from intervae.experiments import MetricKey
from intervae.experiments.betavae import FACTORS, GridSimulator
from intervae.experiments.betavae_protocol import (
    BETA_VAE_PROTOCOL,
    GUESS,
    METRIC,
    OURS,
    PROTOCOLS,
    Protocol,
    ProtocolJob,
    accuracy_of,
    draw_scores,
)
from intervae.experiments.betavae_sweep import (
    BETA_VAE_SWEEP,
    REACH,
    STEPS,
    draw_sweep,
    latent_kl,
    parse_variant,
    traversals,
    variant_of,
)
from intervae.experiments.grid_codes import own_scale, posterior_deviations
from intervae.experiments.page import part_table
from intervae.metrics import beta_vae_score_from_simulator
from intervae.metrics.pair_points import PairPoints

SIZES = (3, 6, 4, 8, 8)


@pytest.fixture
def grid() -> DspritesGrid:
    """A grid of small size whose images are noise."""
    n = int(np.prod(SIZES))
    bits = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (n, 1, 64, 8), np.uint8))
    values = tuple(np.arange(size, dtype=float) for size in SIZES)
    return DspritesGrid(bits, torch.arange(n), values)


# ---- protocols -----------------------------------------------------------------------------------
def test_the_first_protocol_is_the_metric(
    grid: DspritesGrid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProtocolJob, "load", lambda self: SimpleNamespace(grid=grid))
    names = (OURS, "signed differences", "shape as a fifth factor", GUESS)
    job = ProtocolJob("dsprites", "ground-truth", protocols=names, share=0.05)
    numbers = job.run(3, "cpu", tmp_path)
    simulator = GridSimulator(grid, 3)
    codes = grid.values(grid.classes(np.arange(len(grid))))[:, 1:]
    expected = beta_vae_score_from_simulator(
        lambda rows: codes[rows] / codes.std(0),
        simulator.rows,
        simulator.draw,
        names=FACTORS,
        training=500,
        test=250,
        seed=3,
    )
    assert numbers[MetricKey(METRIC, OURS)] == expected.value
    assert numbers[MetricKey(METRIC, GUESS)] > 0.98
    assert numbers[MetricKey(METRIC, "signed differences")] < 0.4
    assert list(numbers) == [MetricKey(METRIC, name) for name in names]


def test_simulated_rows_have_the_factors_given_and_the_shapes_asked_for(grid: DspritesGrid) -> None:
    rng = np.random.default_rng(0)
    for options, shapes in (({}, {0, 1, 2}), ({"shape": 1}, {1})):
        simulator = GridSimulator(grid, 0, **options)
        factors = simulator.draw(500, rng)
        classes = grid.classes(simulator.rows(factors))
        assert (classes[:, 1:] == factors).all()
        assert set(classes[:, 0]) == shapes
        assert (factors.max(0) == np.array(SIZES[1:]) - 1).all()
    five = GridSimulator(grid, 0, ("shape", *FACTORS))
    factors = five.draw(500, rng)
    assert (grid.classes(five.rows(factors)) == factors).all()
    assert (GridSimulator(grid, 0, halved=True).draw(500, rng).max(0) == [2, 1, 3, 3]).all()


def test_scale_matters_only_without_standardising() -> None:
    rng = np.random.default_rng(0)
    shared = rng.integers(4, size=4000)
    distances = rng.gamma(4, 1, (4000, 4))
    distances[np.arange(4000), shared] *= 0.5
    halves = [PairPoints(distances[k::2], shared[k::2]) for k in range(2)]
    scores = {
        (standardised, scale): accuracy_of(
            Protocol(standardised=standardised, own_scale=True, steps=2000), *halves, scale, 0
        )
        for standardised in (True, False)
        for scale in (1.0, 1e-3)
    }
    assert scores[True, 1.0] == scores[True, 1e-3] > 0.5
    assert scores[False, 1e-3] < scores[False, 1.0] - 0.15
    assert accuracy_of(Protocol(), *halves, 1.0, 0) >= scores[True, 1.0] - 0.01


def test_own_scales_are_those_of_projections_and_of_sources_with_unit_norm(
    make_data: Callable[..., Any],
) -> None:
    data = make_data((1, 6, 6), samples=300)
    count = len(data.train)
    pca, ica, vae = (create(name, data, latents=3) for name in ("pca", "ica", "vae"))
    for model in (pca, ica):
        model.fit(data, tensorboard=False)
    pixels = data.train.images.flatten(1).double() / 255
    deviations = torch.linalg.svdvals(pixels - pixels.mean(0))[:3] / count**0.5
    codes = pca.encode(data.train.images)[..., 0].numpy() * own_scale(pca)
    np.testing.assert_allclose(codes.std(0), deviations.numpy(), rtol=1e-3)
    fitted = replace(ica.settings, fitted_on=count)
    codes = ica.encode(data.train.images)[..., 0].numpy() * own_scale(
        SimpleNamespace(name="ica", settings=fitted)
    )
    np.testing.assert_allclose((codes**2).sum(0), 1, rtol=1e-2)
    assert own_scale(vae) == 1


def test_posterior_deviations_are_those_of_every_image(grid: DspritesGrid) -> None:
    images = grid.images(grid.classes(np.arange(5)))
    data = build_dataset(
        "made", images.numpy(), np.arange(5.0)[:, None], [Variable("a")], validation=0.2, test=0.2
    )
    model = create("vae", data, latents=2, channels=(4, 4), hidden=8)
    model.initialise(0)
    with torch.no_grad():
        expected = (0.5 * model.posterior(model.as_images(images))[1]).exp()[..., 0].numpy()
    np.testing.assert_allclose(posterior_deviations(model, grid)[:5], expected, rtol=1e-4)


def test_every_job_has_known_protocols_and_the_paper_is_beside_two_of_them() -> None:
    for job in (*BETA_VAE_PROTOCOL.jobs, *BETA_VAE_PROTOCOL.quick):
        assert isinstance(job, ProtocolJob)
        assert set(job.protocols) <= set(PROTOCOLS)
        assert set(job.paper) <= {f"{METRIC}|{name}" for name in job.protocols}
    (ica,) = (job for job in BETA_VAE_PROTOCOL.jobs if job.key == "dsprites-ica")
    assert ica.paper == {f"{METRIC}|{OURS}": 0.4203, f"{METRIC}|{GUESS}": 0.4203}


def test_the_page_has_a_line_per_protocol_and_the_papers_numbers(drawn_rows: Any) -> None:
    document = {"rows": [{**row, "variant": row["part"]} for row in drawn_rows]}
    assert part_table(BETA_VAE_PROTOCOL, document) == [
        "|  | pca | ica |",
        "| --- | --- | --- |",
        "| ours | 0.9 ± 0.01 | 0.8 ± 0.01 |",
        f"| {GUESS} | 0.85 ± 0.01 |  |",
        "| the paper's number | 0.849 |  |",
    ]


@pytest.fixture
def drawn_rows() -> list[dict[str, Any]]:
    row = {"data": "dsprites", "variant": "", "metric": METRIC, "std": 0.01, "per_seed": {"0": 1}}
    return [
        {**row, "model": "pca", "part": OURS, "mean": 0.9},
        {**row, "model": "pca", "part": GUESS, "mean": 0.85, "paper": 0.849},
        {**row, "model": "ica", "part": OURS, "mean": 0.8},
    ]


def test_the_figure_has_a_row_per_protocol_and_one_of_the_paper(
    drawn_rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    grids: list[Any] = []
    monkeypatch.setattr(figures, "number_grids", lambda path, made, title: grids.extend(made))
    draw_scores(Path("a.png"), drawn_rows)
    assert list(grids[0].rows) == [OURS, GUESS, "paper"]
    assert list(grids[0].columns) == ["pca", "ica"]
    assert grids[0].values == [[0.9, 0.8], [0.85, None], [0.849, None]]


# ---- the sweep -----------------------------------------------------------------------------------
def test_weights_are_normalised_by_sizes_and_variants_name_both() -> None:
    for job in (*BETA_VAE_SWEEP.jobs, *BETA_VAE_SWEEP.quick):
        size, weight = parse_variant(job.variant) or (0, 0.0)
        assert job.settings["latents"] == size
        assert job.settings["beta"] * size / 4096 == pytest.approx(weight)
        assert variant_of(size, weight) == job.variant
    assert parse_variant("other") is None
    keys = [job.key for job in BETA_VAE_SWEEP.jobs]
    assert len(set(keys)) == len(keys) == 35


def test_the_figure_places_each_run_by_latents_and_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    grids: list[Any] = []
    monkeypatch.setattr(figures, "number_grids", lambda path, made, title: grids.extend(made))
    rows = [
        {"metric": metric, "part": "", "variant": variant_of(size, weight), "mean": mean}
        for metric, size, weight, mean in (
            ("beta_vae_score", 20, 0.1, 0.7),
            ("beta_vae_score", 5, 0.1, 0.6),
            ("beta_vae_score", 5, 0.001, 0.5),
            ("reconstruction", 5, 0.001, 30.0),
        )
    ]
    draw_sweep(Path("a.png"), rows)
    scores, losses = grids
    assert (list(scores.rows), list(scores.columns)) == (["5", "20"], ["0.001", "0.1"])
    assert scores.values == [[0.5, 0.6], [None, 0.7]]
    assert losses.values == [[30.0, None], [None, None]]
    assert scores.high_is_dark
    assert not losses.high_is_dark


def test_a_traversal_moves_one_latent_of_the_code(make_data: Callable[..., Any]) -> None:
    data = make_data((1, 8, 8))
    model = create("beta-vae", data, latents=3, channels=(4, 4), hidden=8)
    model.initialise(0)
    image = data.test.images[:1]
    moved = traversals(model, image, [2, 0])
    assert moved.shape == (2, STEPS, 1, 8, 8)
    code = model.encode(image)
    for k, latent in enumerate((2, 0)):
        for step in (0, STEPS - 1):
            expected = code.clone()
            expected[0, latent] = REACH * (2 * step / (STEPS - 1) - 1)
            torch.testing.assert_close(moved[k, step], model.decode(expected)[0])


def test_the_kl_of_latents_equals_a_monte_carlo_estimate(make_data: Callable[..., Any]) -> None:
    data = make_data((1, 8, 8))
    model = create("beta-vae", data, latents=3, channels=(4, 4), hidden=8)
    model.initialise(0)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            parameter += 0.3 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(1)
            )
        mean, log_variance = model.posterior(model.as_images(data.test.images))
    torch.manual_seed(0)
    posterior = torch.distributions.Normal(mean, (0.5 * log_variance).exp())
    z = posterior.sample((4000,))
    estimate = (posterior.log_prob(z) - torch.distributions.Normal(0, 1).log_prob(z)).mean((0, 1))
    torch.testing.assert_close(latent_kl(model, data), estimate[:, 0], rtol=0.05, atol=0.02)
