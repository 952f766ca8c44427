"""MorphoMNIST: its equations, pictures against morphometry, counterfactuals, and its cache."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from intervae.data import load_data, reload
from intervae.data.simulators import MorphoMnist
from intervae.errors import DataError, QueryError, UsageError
from intervae.files import cache_folder
from intervae.metrics import morphometry
from mnist_files import draw_strokes, write_mnist

IMAGES, DIGITS = draw_strokes()
TRAIN = 40
TEST = np.arange(len(IMAGES)) >= TRAIN
SIMULATOR = MorphoMnist(IMAGES, DIGITS, TEST)
NOISES = SIMULATOR.published_grid()[0]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """Folders of MNIST (60 strokes) and of the cache."""
    monkeypatch.setenv("INTERVAE_DATA", str(tmp_path))
    monkeypatch.setenv("INTERVAE_CACHE", str(tmp_path / "cache"))
    write_mnist(tmp_path / "mnist", IMAGES, DIGITS, TRAIN)
    return tmp_path


# ---- equations -----------------------------------------------------------------------------------
def test_equations_have_the_published_moments():
    """t - 0.5 is Gamma(10, rate 5): mean 2, variance 0.4; eps is recovered from i, t as N(0, 1)."""
    noises = SIMULATOR.sample_exogenous(20_000, np.random.default_rng(0))
    digit, thickness, intensity = SIMULATOR.simulate(noises).T
    assert thickness.mean() == pytest.approx(2.5, abs=0.02)
    assert thickness.var() == pytest.approx(0.4, rel=0.04)
    assert stats.skew(thickness) == pytest.approx(2 / np.sqrt(10), abs=0.08)
    fraction = (intensity - 64) / 191
    eps = 2 * (np.log(fraction / (1 - fraction)) - 2 * (thickness - 2.5))
    np.testing.assert_allclose(eps, noises[:, 2], atol=1e-2)
    assert stats.kstest(eps, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(eps, thickness)[0, 1]) < 0.02
    assert np.bincount(digit.astype(int)).min() > 1500


def test_graph_has_one_edge_and_the_slant_is_a_root():
    assert [(a, b) for a, b, _ in SIMULATOR.graph.edges] == [("thickness", "intensity")]
    assert SIMULATOR.graph.names == ("digit", "thickness", "intensity")
    slanted = MorphoMnist(IMAGES, DIGITS, TEST, slant=True)
    assert slanted.graph.names == ("digit", "thickness", "intensity", "slant")
    assert not slanted.graph.parents("slant")
    values = slanted.simulate(slanted.sample_exogenous(5000, np.random.default_rng(0)))
    assert values[:, 3].mean() == pytest.approx(7, abs=1)
    assert values[:, 3].std() == pytest.approx(15, rel=0.05)


def test_do_thickness_changes_the_intensity_with_its_noise():
    values = SIMULATOR.simulate(NOISES, {"thickness": 3.0})
    expected = 64 + 191 / (1 + np.exp(-(1.0 + 0.5 * NOISES[:, 2])))
    np.testing.assert_allclose(values[:, 2], expected, rtol=1e-6)
    np.testing.assert_array_equal(values[:, 0], DIGITS)
    before = SIMULATOR.simulate(NOISES)
    after = SIMULATOR.simulate(NOISES, {"intensity": 100.0})
    np.testing.assert_array_equal(after[:, 1], before[:, 1])


# ---- pictures ------------------------------------------------------------------------------------
def test_pictures_have_the_thickness_and_intensity_of_their_labels():
    values = SIMULATOR.simulate(NOISES)
    measured = morphometry(SIMULATOR.render(values, NOISES))
    thick = values[:, 1] > 1.4  # below, the grid of pixels blurs a stroke
    assert np.abs(measured.thickness - values[:, 1])[thick].mean() < 0.03
    assert np.abs(measured.intensity - values[:, 2]).mean() < 0.5


def test_several_actions_at_once_are_all_measured():
    images, values = SIMULATOR.counterfactual(NOISES, {"thickness": 4.0, "intensity": 200.0})
    measured = morphometry(images)
    assert np.abs(measured.thickness - 4.0).mean() < 0.02
    np.testing.assert_allclose(measured.intensity, 200.0, atol=1.5)
    assert (values[:, 1:] == [4.0, 200.0]).all()


def test_do_intensity_keeps_thickness_and_place():
    factual, values = SIMULATOR.counterfactual(NOISES, {"thickness": 3.0, "intensity": 240.0})
    dim, _ = SIMULATOR.counterfactual(NOISES, {"thickness": 3.0, "intensity": 80.0})
    before, after = morphometry(factual), morphometry(dim)
    assert np.abs(after.thickness - before.thickness).mean() < 0.02
    np.testing.assert_allclose(after.thickness, before.thickness, atol=0.2)
    np.testing.assert_allclose(after.slant, before.slant, atol=1)
    np.testing.assert_allclose(dim / 80, factual / 240, atol=0.25)
    assert values[0, 2] == 240.0


def test_slant_is_set_with_thickness_and_intensity():
    slanted = MorphoMnist(IMAGES, DIGITS, TEST, slant=True)
    noises = slanted.published_grid()[0]
    images, values = slanted.counterfactual(noises, {"slant": 15.0, "thickness": 3.0})
    measured = morphometry(images)
    np.testing.assert_allclose(measured.slant, 15.0, atol=0.5)
    assert np.abs(measured.thickness - 3.0).mean() < 0.02
    assert np.abs(measured.intensity - values[:, 2]).mean() < 0.5


def test_values_out_of_range_are_drawn():
    nothing = SIMULATOR.counterfactual(NOISES[:3], {"intensity": 0.0})[0]
    assert nothing.max() == 0
    bright, _ = SIMULATOR.counterfactual(NOISES[:3], {"intensity": 1000.0})
    assert (morphometry(bright).intensity == 255).all()
    full, _ = SIMULATOR.counterfactual(NOISES[:3], {"thickness": 1e5, "intensity": 255.0})
    assert full.mean() > 250
    thin, _ = SIMULATOR.counterfactual(NOISES[:3], {"thickness": -1.0})
    assert thin.mean() < full.mean() / 20


def test_border_is_black_and_other_sizes_are_refused():
    values = SIMULATOR.simulate(NOISES)
    small, large = (SIMULATOR.render(values, NOISES, size=size) for size in (28, 32))
    assert large.shape == (60, 1, 32, 32)
    np.testing.assert_array_equal(large[:, :, 2:30, 2:30], small)
    assert large.sum() == small.sum()
    for size in (20, 28.5):
        with pytest.raises(UsageError, match=rf"^size={size}: morpho-mnist is 28 x 28 pixels"):
            SIMULATOR.render(values, NOISES, size=size)


# ---- do(digit) -----------------------------------------------------------------------------------
def test_do_digit_takes_the_image_at_the_same_quantile_of_slant():
    assert SIMULATOR.without_true_image == ("digit",)
    images, values = SIMULATOR.counterfactual(NOISES, {"digit": 3})
    assert (values[:, 0] == 3).all()
    own = DIGITS == 3
    factual = SIMULATOR.render(SIMULATOR.simulate(NOISES), NOISES)
    np.testing.assert_array_equal(images[own], factual[own])
    assert (images[~own] != factual[~own]).any((1, 2, 3)).all()
    np.testing.assert_array_equal(values[:, 1:], SIMULATOR.simulate(NOISES)[:, 1:])
    natural = morphometry(IMAGES[:, None]).slant
    for digit in (0, 7):  # the order of the slants is kept, in each part of MNIST
        for part in (~TEST, TEST):
            rows = np.flatnonzero(part & (digit == DIGITS))
            chosen = SIMULATOR._with_digit(rows, np.full(len(rows), 3))
            assert (DIGITS[chosen] == 3).all()
            assert (TEST[chosen] == TEST[rows]).all()
            order = np.argsort(natural[rows])
            assert (np.diff(natural[chosen][order]) > 0).all()


def test_wrong_values_get_one_sentence():
    with pytest.raises(DataError, match=r"^'digit' must be a whole number from 0 to 9\.$"):
        SIMULATOR.counterfactual(NOISES, {"digit": 10})
    with pytest.raises(DataError, match=r"^the noise 'image' must be .* from 0 to 59\.$"):
        SIMULATOR.simulate(NOISES + np.array([60, 0, 0]))
    with pytest.raises(QueryError, match="unknown variable"):
        SIMULATOR.counterfactual(NOISES, {"slant": 10})
    few = MorphoMnist(IMAGES[:5], DIGITS[:5], TEST[:5])
    with pytest.raises(DataError, match=r"^there is no image of the digit 9 among the training"):
        few.counterfactual(few.published_grid()[0], {"digit": 9})


def test_render_without_noises_takes_one_image_of_each_digit():
    values = np.array([[3, 2.0, 200.0], [3, 2.0, 200.0], [5, 2.0, 200.0]])
    images = SIMULATOR.render(values)
    np.testing.assert_array_equal(images[0], images[1])
    assert (images[0] != images[2]).any()


# ---- data set and cache --------------------------------------------------------------------------
def test_data_set_has_the_split_of_mnist_and_true_counterfactuals(home):
    data = load_data("morpho-mnist", size=32, validation=0.25)
    assert (len(data.train), len(data.validation), len(data.test)) == (30, 10, 20)
    assert data.names == ("digit", "thickness", "intensity")
    assert data.spec.variable("digit").categories == tuple("0123456789")
    assert data.spec.image_shape == (1, 32, 32)
    np.testing.assert_array_equal(data.test.labels[:, 0].numpy(), DIGITS[TRAIN:])
    labels, noises = data.test.labels, data.test.fields["exogenous"]
    do = dict(zip(data.names, labels.T, strict=True))
    images, values = data.simulator.counterfactual(noises, do, size=32)
    assert np.array_equal(images, data.test.images.numpy())  # bit for bit
    np.testing.assert_array_equal(values, labels.numpy())
    again = reload(data.source)
    assert torch.equal(again.train.images, data.train.images)


def test_cache_is_reused_and_a_subset_has_the_same_pictures(home, monkeypatch):
    alone = load_data("morpho-mnist", samples=30, seed=1)
    assert not list((home / "cache").glob("*.npz"))
    data = load_data("morpho-mnist")
    (note,) = data.notes
    assert note.kind == "cache"
    assert note.text.startswith("made 60 pictures of morpho-mnist in ")
    monkeypatch.setattr(MorphoMnist, "render", None)  # nothing may be drawn any more
    again, subset = load_data("morpho-mnist"), load_data("morpho-mnist", samples=30, seed=1)
    assert not again.notes
    for split in ("train", "validation", "test"):
        assert torch.equal(data.splits[split].images, again.splits[split].images)
        assert torch.equal(alone.splits[split].images, subset.splits[split].images)
        assert torch.equal(alone.splits[split].labels, subset.splits[split].labels)


@pytest.mark.parametrize("damage", ["cut", "text", "changed"])
def test_damaged_cache_is_made_anew(home, damage):
    data = load_data("morpho-mnist")
    (path,) = (home / "cache").glob("*.npz")
    content = path.read_bytes()
    if damage == "changed":
        with np.load(path) as file:
            arrays = dict(file)
        arrays["pictures"] = 255 - arrays["pictures"]
        np.savez(path, **arrays)
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"no archive")
    again = load_data("morpho-mnist")
    (note,) = again.notes
    assert "because the cache" in note.text
    assert torch.equal(data.test.images, again.test.images)
    assert not load_data("morpho-mnist").notes


def test_cache_of_other_digits_or_another_version_is_not_used(home, monkeypatch):
    load_data("morpho-mnist")
    write_mnist(home / "mnist", IMAGES[::-1], DIGITS[::-1], TRAIN)
    assert "was made from other data" in load_data("morpho-mnist").notes[0].text
    monkeypatch.setattr("intervae.data.simulators.morpho_mnist.VERSION", 99)
    assert "another version" in load_data("morpho-mnist").notes[0].text
    load_data("morpho-mnist", slant=True)
    assert len(list((home / "cache").glob("*.npz"))) == 2


def test_unwritable_cache_is_a_note(home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("INTERVAE_CACHE", str(home / "file"))
    (note,) = load_data("morpho-mnist").notes
    assert "could not be kept for the next time" in note.text
    assert "INTERVAE_CACHE" in note.text


def test_cache_folder_is_the_users_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("INTERVAE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "intervae"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "intervae"


def test_missing_files_and_wrong_options_get_one_sentence(home, monkeypatch):
    with pytest.raises(UsageError, match=r"samples=61 must be a whole number from 1 to 60"):
        load_data("morpho-mnist", samples=61)
    with pytest.raises(UsageError, match="size=20"):
        load_data("morpho-mnist", size=20)
    with pytest.raises(UsageError, match="slant='left' must be true or false"):
        load_data("morpho-mnist", slant="left")
    (home / "mnist" / "t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"^there is no t10k-images-idx3-ubyte.gz in .* put it"):
        load_data("morpho-mnist")
    monkeypatch.delenv("INTERVAE_DATA")
    with pytest.raises(DataError, match=r"^MNIST is read from your disk: get train-images"):
        load_data("morpho-mnist")


@pytest.mark.skipif(
    not os.path.isdir(os.path.join(os.environ.get("INTERVAE_DATA", "."), "mnist")),
    reason="INTERVAE_DATA with MNIST is not set",
)
def test_real_digits_measure_as_their_labels(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERVAE_CACHE", str(tmp_path))
    data = load_data("morpho-mnist", samples=200, size=32)
    measured, labels = morphometry(data.train.images), data.train.labels.numpy()
    error = np.abs(measured.thickness - labels[:, 1])
    assert np.median(error) < 0.01
    assert error.mean() < 0.05  # with the blots that no erosion thins
    assert np.abs(measured.intensity - labels[:, 2]).mean() < 0.5
