"""PCA, ICA, raw pixels and the untrained VAE, against numpy and known mixtures."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import decomposition

from intervae.data import Dataset, Spec, Variable, build_dataset
from intervae.errors import DataError, UsageError
from intervae.evaluation import evaluate
from intervae.models import MODELS, create, load
from intervae.models.batches import repeat_rows
from intervae.models.decompositions import fast_ica, principal_components
from intervae.report import write_figures

WITHOUT_GRADIENT_STEPS = ["pca", "ica", "raw-pixels", "untrained-vae"]


def whiten(samples: np.ndarray) -> torch.Tensor:
    left = np.linalg.svd(samples - samples.mean(0), full_matrices=False)[0]
    return torch.tensor(left * np.sqrt(len(samples)))


def sources(n: int, rng: np.random.Generator) -> np.ndarray:
    """Independent non-Gaussian sources (n, 4)."""
    return np.stack(
        [
            rng.uniform(-1, 1, n),
            rng.laplace(size=n),
            rng.exponential(size=n),
            rng.integers(0, 2, n) - 0.5,
        ],
        axis=1,
    )


def best_match(estimates: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Return |correlation| of each true column with its best match; matches are unique."""
    table = np.abs(np.corrcoef(estimates.T, true.T)[: estimates.shape[1], estimates.shape[1] :])
    assert len(set(table.argmax(0))) == true.shape[1]
    return table.max(0)


def mixed_images(n: int = 3000) -> tuple[Dataset, np.ndarray]:
    """8 x 8 images that are sums of four patterns, weighted by independent sources."""
    rng = np.random.default_rng(0)
    true = sources(n, rng)
    true = true / true.std(0)
    brightness = 0.5 + 0.03 * true @ rng.normal(size=(4, 64))
    images = (255 * brightness.clip(0, 1)).round().astype(np.uint8).reshape(n, 1, 8, 8)
    return build_dataset("mixed", images, true, [Variable(name) for name in "abcd"]), true


# ---- mathematics ---------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(400, 300), (60, 500), (300, 12), (6, 40)])
def test_principal_components_match_scikit_learn(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    samples = (rng.normal(size=shape) * np.exp(-np.arange(shape[1]) / 20) + 2).astype(np.float32)
    result = principal_components(lambda: iter(torch.tensor(samples).split(64)), 5, seed=0)
    expected = decomposition.PCA(5, svd_solver="full").fit(samples.astype(np.float64))
    assert np.allclose(
        result.variances.numpy(),
        expected.explained_variance_ * (len(samples) - 1) / len(samples),
        rtol=1e-3,
    )
    assert np.allclose(
        np.abs(np.sum(result.components.numpy() * expected.components_, axis=1)), 1, atol=1e-3
    )
    assert np.allclose(result.components @ result.components.T, np.eye(5), atol=1e-5)
    assert np.allclose(result.mean, samples.mean(0), atol=1e-5)
    assert result.total == pytest.approx(samples.astype(np.float64).var(0).sum(), rel=1e-4)
    assert (result.components.gather(1, result.components.abs().argmax(1, keepdim=True)) > 0).all()


def test_fast_ica_finds_the_sources_of_a_mixture() -> None:
    rng = np.random.default_rng(2)
    true = sources(20_000, rng)
    result = fast_ica(
        white := whiten(true @ rng.normal(size=(4, 4))), seed=0, tolerance=1e-6, iterations=100
    )
    assert torch.allclose(
        result.rotation @ result.rotation.T, torch.eye(4, dtype=torch.float64), atol=1e-10
    )
    assert result.change <= 1e-6
    assert result.iterations < 100
    assert best_match((white @ result.rotation.T).numpy(), true).min() > 0.999


def test_fast_ica_stops_at_its_iteration_limit() -> None:
    noise = whiten(np.random.default_rng(3).normal(size=(500, 6)))  # Gaussian: no sources
    result = fast_ica(noise, seed=0, tolerance=1e-12, iterations=7)
    assert result.iterations == 7
    assert result.change > 1e-12


# ---- PCA -----------------------------------------------------------------------------------
def test_pca_matches_the_svd_of_the_training_images(make_data: Any) -> None:
    data = make_data((2, 8, 8), samples=200)
    model = create("pca", data, latents=4)
    model.fit(data)
    train, test = (
        part.images.flatten(1).double().numpy() / 255 for part in (data.train, data.test)
    )
    mean = train.mean(0)
    _, lengths, right = np.linalg.svd(train - mean, full_matrices=False)
    expected = (test - mean) @ right[:4].T / (lengths[:4] / np.sqrt(len(train)))
    codes = model.encode(data.test.images)[..., 0].numpy()
    signs = np.sign((codes * expected).sum(0))
    assert np.allclose(codes * signs, expected, atol=1e-2)
    assert np.allclose(model.encode(data.train.images)[..., 0].numpy().std(0), 1, atol=1e-3)
    projected = (mean + (test - mean) @ right[:4].T @ right[:4]).clip(0, 1)
    assert np.allclose(model.reconstruct(data.test.images).flatten(1).numpy(), projected, atol=1e-3)
    batch = data.test.batch(torch.arange(len(data.test)))
    expected_loss = 0.5 * ((projected - test) ** 2).sum(1).mean() + 64 * np.log(2 * np.pi)
    assert model.loss(batch)["loss"].item() == pytest.approx(expected_loss, rel=1e-4)


def test_pca_is_fitted_on_random_images_of_the_seed(make_data: Any) -> None:
    data = make_data((1, 8, 8), samples=300)
    means = []
    for seed in (0, 0, 1):
        model = create("pca", data, latents=2, fitted_on=30)
        model.fit(data, seed=seed)
        means.append(model.mean)
    assert torch.equal(means[0], means[1])
    rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))[:30]
    assert torch.allclose(
        means[0], data.train.images[rows].flatten(1).float().mean(0) / 255, atol=1e-6
    )
    assert not torch.allclose(means[0], means[2], atol=1e-4)


def test_too_few_pixels_images_or_directions_are_refused(make_data: Any) -> None:
    data = make_data((1, 4, 4), samples=64)
    with pytest.raises(UsageError, match="latents=17 are more than the 16 pixel values"):
        create("pca", data, latents=17)
    with pytest.raises(
        DataError, match="5 training images are too few for 6 components; set latents=5"
    ):
        create("pca", data, latents=6, fitted_on=5).fit(data)
    images = np.zeros((60, 1, 4, 4), np.uint8)
    images[:, 0, 0, 0], images[:, 0, 2, 3] = np.arange(60), np.arange(60)[::-1] ** 2 // 20
    flat = build_dataset("flat", images, np.arange(60.0)[:, None], [Variable("a")])
    with pytest.raises(DataError, match="vary in 2 directions only, fewer than latents=3"):
        create("pca", flat, latents=3).fit(flat)
    with pytest.raises(UsageError, match="fitted_on=0"):
        create("pca", data, fitted_on=0)
    with pytest.raises(DataError, match="single images, not clips"):
        MODELS["pca"](Spec((1, 8, 8), frames=4))


# ---- ICA -----------------------------------------------------------------------------------
def test_ica_recovers_sources_that_pca_mixes() -> None:
    data, _ = mixed_images()
    matches = {}
    for name in ("ica", "pca"):
        model = create(name, data, latents=4)
        history = model.fit(data).history
        codes = model.encode(data.train.images)[..., 0]
        assert torch.allclose(codes.T @ codes / len(codes), torch.eye(4), atol=1e-3), name
        assert history[0]["explained_variance"] > 0.98
        table = np.abs(np.corrcoef(codes.T.numpy(), data.train.labels.T.numpy())[:4, 4:])
        matches[name] = table.max(0).min()
        assert (model.reconstruct(data.test.images) - data.test.images / 255).abs().max() < 0.05
    assert matches["ica"] > 0.99
    assert matches["pca"] < 0.9


def test_ica_samples_components_independently() -> None:
    data, _ = mixed_images()
    model = create("ica", data, latents=4)
    model.fit(data)
    drawn = model.draw_codes(20_000, torch.Generator().manual_seed(0))
    codes = model.encode(data.train.images)[..., 0]
    for i in range(4):
        nearest = (drawn[:300, i, None] - codes[:, i]).abs().min(1).values
        assert nearest.max() < 1e-4
    assert np.allclose(np.corrcoef(drawn.T.numpy()), np.eye(4), atol=0.03)
    assert (codes.pow(3).mean(0) > -1e-6).all()


def test_ica_without_convergence_warns_once_and_is_usable(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data, _ = mixed_images(400)
    model = create("ica", data, latents=4, iterations=1, tolerance=1e-9)
    with caplog.at_level(logging.WARNING):
        history = model.fit(data).history
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert "FastICA did not converge in 1 iterations" in messages[0]
    assert history[0]["converged"] is False
    assert torch.isfinite(model.reconstruct(data.test.images)).all()
    with pytest.raises(UsageError, match="iterations=0"):
        create("ica", data, iterations=0)


# ---- raw pixels and random weights ---------------------------------------------------------
def test_raw_pixels_are_their_own_code(make_data: Any) -> None:
    data = make_data((2, 5, 7), samples=400)
    model = create("raw-pixels", data)
    model.fit(data)
    images = data.test.images
    assert torch.equal(model.encode(images)[..., 0], images.flatten(1) / 255)
    assert torch.equal(model.reconstruct(images), images / 255)
    assert model.latent_names[:2] == ("p0", "p1")
    assert len(model.latent_names) == 70
    pixels = data.train.images.flatten(1).float() / 255
    assert torch.allclose(model.mean, pixels.mean(0), atol=1e-5)
    assert torch.allclose(model.std, pixels.std(0, correction=0), atol=1e-4)
    drawn = model.sample(4000, seed=0).flatten(1)
    assert (drawn.mean(0) - pixels.mean(0)).abs().max() < 0.05
    correlation = torch.corrcoef(drawn.T) - torch.eye(70)
    assert correlation.abs().max() < 0.1  # up to 1 in the training pixels
    assert (torch.corrcoef(pixels.T) - torch.eye(70)).abs().max() > 0.9


def test_the_untrained_vae_equals_the_vae_before_training(make_model: Any, make_data: Any) -> None:
    data = make_data()
    untrained, vae = make_model("untrained-vae", data, seed=9), make_model("vae", data, seed=4)
    untrained.fit(data, seed=4)
    assert torch.equal(untrained.encode(data.test.images), vae.encode(data.test.images))
    vae.fit(data, seed=4)
    assert not torch.allclose(
        untrained.encode(data.test.images), vae.encode(data.test.images), atol=1e-2
    )


# ---- runs without epochs -------------------------------------------------------------------
@pytest.mark.parametrize("name", WITHOUT_GRADIENT_STEPS)
def test_runs_without_epochs_are_saved_and_resumed(
    name: str, make_model: Any, pendulum: Dataset, tmp_path: Path
) -> None:
    model = make_model(name, pendulum)
    result = model.fit(pendulum, out=tmp_path / "run")
    assert not [line for line in result.history if "train" in line]
    loaded = load(tmp_path / "run")
    assert [path.name for path in write_figures(loaded, pendulum, tmp_path / "run")] == [
        "reconstructions.png"
    ]
    assert (tmp_path / "run" / "figures" / "reconstructions.png").stat().st_size > 1000
    metrics = {m.metric: m.value for m in evaluate(loaded, pendulum, ["reconstruction", "mcc"])}
    assert all(np.isfinite(value) for value in metrics.values())
    if name == "raw-pixels":
        assert metrics["reconstruction_pixel_mae"] == pytest.approx(0, abs=1e-6)
    again = make_model(name, pendulum)
    again.fit(pendulum, out=tmp_path / "run", resume=True)
    assert torch.equal(again.encode(pendulum.test.images), model.encode(pendulum.test.images))


def test_repeat_rows_fills_the_bank() -> None:
    values = torch.arange(6).reshape(3, 2)
    assert repeat_rows(values, 7)[:, 0].tolist() == [0, 2, 4, 0, 2, 4, 0]
    assert repeat_rows(values, 2).tolist() == [[0, 1], [2, 3]]
