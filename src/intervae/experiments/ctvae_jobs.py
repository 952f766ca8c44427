"""Jobs of the CT-VAE experiment: transitions with all their measures, and codebooks alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from intervae.data.neighbours import action_ceiling
from intervae.evaluation import evaluate, write_evaluation
from intervae.experiments.base import MetricKey, Numbers
from intervae.experiments.ctvae_measures import (
    explanation_rates,
    factor_errors,
    mask_selectivity,
    repeated_action_psnr,
)
from intervae.experiments.jobs import Train
from intervae.metrics import psnr, ssim
from intervae.report import write_figures

CODEBOOK_IMAGES = 1024  # test images that codebooks reconstruct


@dataclass(frozen=True)
class TrainActions(Train):
    """Train on a grid's transitions; measure accuracy, repeated actions and changed factors.

    Arguments:
        truth: whether the data has the true image after an action.
        predictor_steps: batches of 256 images that train the factor predictor.
        predictor_channels: of the factor predictor.
    """

    truth: bool = True
    predictor_steps: int = 4000
    predictor_channels: tuple[int, ...] = (32, 64, 128, 128)

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        model, seconds = self.train(data, seed, device, folder)
        assert data.transitions is not None
        measurements = evaluate(model, data, ["actions", "reconstruction"])
        write_evaluation(folder, measurements)
        write_figures(model, data, folder)
        numbers: Numbers = {
            "train_seconds": seconds,
            "train_pairs": float(len(data.transitions.train)),
            "test_pairs": float(len(data.transitions.test)),
        }
        for m in measurements:
            numbers[m.metric] = m.value
            numbers |= {MetricKey(m.metric, name): value for name, value in m.per_variable.items()}
        numbers |= mask_selectivity(model, data, seed) | explanation_rates(model, data, seed)
        if self.truth:
            numbers["action_ceiling"] = action_ceiling(data)
            numbers |= repeated_action_psnr(model, data, seed)
            predictor = (self.predictor_steps, self.predictor_channels)
            numbers |= factor_errors(model, data, seed, *predictor)
        return numbers


@dataclass(frozen=True)
class TrainCodebooks(Train):
    """Train codebooks alone; measure reconstructions of test images and the usage of codes."""

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        model, seconds = self.train(data, seed, device, folder)
        write_figures(model, data, folder)
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randperm(len(data.test), generator=generator)[:CODEBOOK_IMAGES]
        images = data.test[rows].images
        reconstructed = model.reconstruct(images).cpu().clamp(0, 1)
        used, perplexity = model.code_usage()
        return {
            "train_seconds": seconds,
            "codes_psnr": float(psnr(reconstructed, images).mean()),
            "codes_ssim": float(ssim(reconstructed, images).mean()),
            "code_usage": float(used.mean()),
            "code_perplexity": float(perplexity.mean()),
        }
