"""Evaluation of other data: unmatched latents, constant labels, few images, clips, chunks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from intervae import metrics
from intervae.data import Split
from intervae.data.dataset import CHUNK
from intervae.evaluation import evaluate
from intervae.evaluation.context import Context
from intervae.report import write_figures
from pixel_means import PixelMeans


def test_latents_without_label_names_are_matched(make_data: Any) -> None:
    data = make_data(samples=400)
    measurements = {m.metric: m for m in evaluate(PixelMeans(data.spec), data)}
    # the model has neither labels nor counterfactuals nor a graph
    assert not {"r2_min", "counterfactual_pixel_mae", "shd", "elbo"} & set(measurements)
    assert measurements["mic"].parameters["matching"] == "hungarian-mic"
    assert measurements["mic"].parameters["matched"] == {"a": "level", "b": "across", "c": "down"}
    assert measurements["mcc"].parameters["matched"] == measurements["mic"].parameters["matched"]
    assert measurements["mcc"].parameters["matching"] == "hungarian"
    assert measurements["mcc"].value > 0.95
    assert "mic_best_dim" not in measurements  # one dim each
    assert set(measurements["irs"].per_variable) == {"down", "level", "across"}


def test_only_encoders_that_need_labels_get_them(make_model: Any, make_data: Any) -> None:
    data = make_data()
    images, labels = data.test.images, data.test.labels
    dependent = make_model("ivae", data, label_dropout=0.0)
    independent = make_model("causal-vae", data, encode_labels=True)
    for model in (dependent, independent):
        model.requires_grad_(False)
        for weights in model.parameters():
            weights.mul_(3)  # so that the inputs of an untrained encoder matter
    assert (dependent.needs_labels, independent.needs_labels) == (True, False)
    assert torch.equal(
        torch.tensor(Context(dependent, data).latents), dependent.encode(images, labels)
    )
    assert torch.equal(torch.tensor(Context(independent, data).latents), independent.encode(images))
    assert not torch.allclose(
        independent.encode(images), independent.encode(images, labels), atol=1e-3
    )
    (error,) = evaluate(dependent, data, ["reconstruction"])
    assert error.value == pytest.approx(
        metrics.pixel_mae(dependent.decode(dependent.encode(images, labels)), images).mean(),
        rel=1e-6,
    )
    (r2,) = evaluate(independent, data, ["r2"])
    assert r2.per_variable == pytest.approx(
        metrics.r2(independent.measure(images).numpy(), labels.numpy(), data.names).per_variable
    )


def test_labels_constant_in_the_test_split_are_left_out_and_named(
    make_data: Any, make_model: Any
) -> None:
    data = make_data(kinds=("continuous", "binary", "continuous"))
    labels = data.test.labels.clone()
    labels[:, 1] = 1.0
    data = replace(data, test=Split(images=data.test.images, labels=labels))
    measurements = {m.metric: m for m in evaluate(make_model("causal-vae", data), data)}
    for name in ("r2_min", "mic", "mig", "mcc", "dci_disentanglement"):
        assert set(measurements[name].per_variable) == {"a", "c"}, name
        assert measurements[name].parameters["constant_in_test"] == ["b"], name


def test_a_test_split_of_two_images_is_evaluated(make_data: Any, make_model: Any) -> None:
    data = make_data()
    data = replace(data, test=data.test[:2])
    messages: list[str] = []
    model = make_model("causal-vae", data)
    names = {m.metric for m in evaluate(model, data, notify=messages.append)}
    assert not messages  # metrics that do not apply are not tried
    assert {"r2_min", "reconstruction_pixel_mae", "log_likelihood", "active_units", "shd"} <= names
    assert not {"mic", "tic", "mig"} & names


def test_clips_are_reconstructed_frame_by_frame(make_data: Any) -> None:
    data = make_data()

    def clips(split: Split) -> Split:
        return Split(images=split.images[:, None].repeat(1, 3, 1, 1, 1), labels=split.labels)

    data = replace(
        data, train=clips(data.train), validation=clips(data.validation), test=clips(data.test)
    )
    (error,) = evaluate(PixelMeans(data.spec), data, ["reconstruction"])
    x = data.test.images.float() / 255
    assert error.value == pytest.approx(float(((x - 0.25).abs() - x).abs().mean()), rel=1e-5)
    assert error.n == 3 * len(data.test)


class CountingSplit(Split):
    """A split that records how many images are read at a time."""

    counts: ClassVar[list[int]] = []

    @property
    def images(self) -> Tensor:
        self.counts.append(len(self))
        return self.fields["pixels"]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.fields["pixels"].shape)


def test_chunks_of_the_test_split_give_the_same_numbers(
    make_model: Any, make_data: Any, tmp_path: Path
) -> None:
    data = make_data((1, 8, 8), samples=3100)
    data = replace(data, validation=data.validation[:20], test=data.train[:2100])
    split, model = data.test, make_model("causal-vae", data)
    data = replace(data, test=CountingSplit(pixels=split.images, labels=split.labels))
    CountingSplit.counts.clear()
    measurements = {
        m.metric: m
        for m in evaluate(
            model,
            data,
            ["r2", "reconstruction", "active_units", "likelihood", "diversity", "axioms"],
        )
    }
    write_figures(model, data, tmp_path)
    assert max(CountingSplit.counts) == CHUNK < len(split)
    context = Context(model, data)
    np.testing.assert_allclose(context.latents, model.encode(split.images).numpy(), atol=1e-6)
    errors = metrics.pixel_mae(model.reconstruct(split.images), split.images)
    reconstruction = measurements["reconstruction_pixel_mae"]
    assert reconstruction.n == len(split)
    assert reconstruction.value == pytest.approx(errors.mean(), rel=1e-6)
    assert reconstruction.spread == pytest.approx(errors.std(), rel=1e-5)
    expected = metrics.r2(model.measure(split.images).numpy(), split.labels.numpy(), data.names)
    assert measurements["r2_min"].per_variable == pytest.approx(expected.per_variable, rel=1e-5)
