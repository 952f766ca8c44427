"""Beyond the paper: the temporal causal-prior VAE on Sprites, animated characters (Li and Mandt 2018); what is learned and what is not."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from intervae import figures
from intervae.data.base import Dataset, Split
from intervae.experiments.base import Experiment, Numbers, Train
from intervae.models.temporal_causal_prior_vae import TemporalCausalPriorVAE

GIVEN = 3  # frames from which the others are foreseen
READ_ON = 2000  # training clips off which a reader of labels learns
SHOWN_CLIPS = 4


@dataclass(frozen=True)
class Characters(Train):
    """Train on animated characters; foresee frames, and read what is known of the character off the latents."""

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = self.load()
        model, seconds = self.train(data, seed, device, folder)
        assert isinstance(model, TemporalCausalPriorVAE)
        numbers = {"train_seconds": seconds, "edges": float(model.fixed.sum()), **foresight(model, data), **readable(model, data)}
        draw(model, data, folder / "figures")
        return numbers


def foresight(model: TemporalCausalPriorVAE, data: Dataset) -> Numbers:
    """Mean squared pixel errors on clips of unseen characters: of the frames foreseen from the first GIVEN, of copying the last of these, and of
    encoding and decoding the true frame. In all, by step, and by action."""
    sums: dict[str, list[torch.Tensor]] = {}
    for part in data.test.chunks():
        clips = part.images.float() / 255
        known, wanted = clips[:, :GIVEN], clips[:, GIVEN:]
        guesses = {
            "extrapolation_mse": model.extrapolate(known, wanted.shape[1]).cpu(),
            "copy_mse": known[:, -1:].expand_as(wanted),
            "truth_mse": model.reconstruct(clips)[:, GIVEN:].cpu(),
        }
        for name, guess in guesses.items():
            sums.setdefault(name, []).append((guess - wanted).square().mean((2, 3, 4)))
    actions = data.test.labels[:, data.names.index("action")].numpy().astype(int)
    words = data.variables[data.names.index("action")].categories
    numbers: Numbers = {}
    for name, parts in sums.items():
        errors = torch.cat(parts).numpy()  # (N, steps)
        numbers[name] = float(errors.mean())
        numbers |= {f"{name}|step {step + 1}": float(errors[:, step].mean()) for step in range(errors.shape[1])}
        numbers |= {f"{name}|{word}": float(errors[actions == code].mean()) for code, word in enumerate(words)}
    return numbers


def readable(model: TemporalCausalPriorVAE, data: Dataset) -> Numbers:
    """How often each label of an unseen character's clip is read rightly, by logistic regression, off the latents of the first window of
    frames, and off the numbers of the still picture; and how often the commonest category is right."""
    rows = np.sort(np.random.default_rng(0).permutation(len(data.train))[:READ_ON])  # the clips are stored action by action
    first, then = data.train[rows], data.test
    codes, d = [codes_of(model, split) for split in (first, then)], len(model.fixed)
    numbers: Numbers = {}
    for column, name in enumerate(data.names):
        labels = [split.labels[:, column].numpy().astype(int) for split in (first, then)]
        common = np.bincount(labels[0]).argmax()
        numbers[f"by_chance|{name}"] = float((labels[1] == common).mean())
        for what, part in (("read_off_frames", slice(0, d)), ("read_off_still", slice(d, None))):
            reader = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                reader.fit(codes[0][:, part], labels[0])
            numbers[f"{what}|{name}"] = float(reader.score(codes[1][:, part], labels[1]))
    return numbers


def codes_of(model: TemporalCausalPriorVAE, split: Split) -> np.ndarray:
    return torch.cat([model.encode(part.images)[..., 0].cpu() for part in split.chunks()]).numpy()


def draw(model: TemporalCausalPriorVAE, data: Dataset, out: Path) -> None:
    """Clips of unseen characters: what follows their first frames, above the truth."""
    out.mkdir(parents=True, exist_ok=True)
    rows = np.linspace(0, len(data.test) - 1, SHOWN_CLIPS).round().astype(int)
    clips = data.test[rows].images.float() / 255
    made = model.extrapolate(clips[:, :GIVEN], clips.shape[1] - GIVEN).cpu()
    lines = []
    for clip, after in zip(clips, made, strict=True):
        lines.append(figures.ClipRow("model", torch.cat([clip[:GIVEN], after]), made=len(after)))
        lines.append(figures.ClipRow("truth", clip))
    heads = [*(f"given {t + 1}" for t in range(GIVEN)), *(f"+{t + 1}" for t in range(clips.shape[1] - GIVEN))]
    figures.clip_rows(out / "extrapolation.png", lines, heads=heads, pairs=2)


_SETTINGS: dict[str, Any] = {
    "latents": 8,
    "background": "median",
    "background_size": 64,
    "network": "conv",
    "hidden": 256,
    "reconstruction_weight": 20.0,
    "epochs": 60,
    "refit_epochs": 20,
    "learning_rate": 1e-3,
    "schedule": "cosine",
}
_QUICK: dict[str, Any] = {
    **_SETTINGS,
    "network": "mlp",
    "widths": (256, 256),
    "reconstruction_weight": 40.0,
    "epochs": 25,
    "refit_epochs": 6,
    "warm_up": 300,
    "learning_rate": 3e-3,
}
_COLUMNS = ("extrapolation_mse", "copy_mse", "truth_mse", "edges", "train_seconds")

CAUSAL_PRIOR_SPRITES = Experiment(
    "causal-prior-sprites",
    "The temporal causal-prior VAE on animated characters (Sprites)",
    (Characters("sprites", "temporal-causal-prior-vae", {"size": 32}, _SETTINGS),),
    seeds=3,
    shown=(*_COLUMNS, "read_off_frames", "read_off_still", "by_chance"),
    columns=_COLUMNS,
    notes="Clips of 8 frames, characters of the test split never seen; the equations run over 3 frames of 8 latents, and the still picture is "
    "each pixel's middle value over the frames. Squared errors of pixels in [0, 1], means over pixels: `extrapolation_mse` of frames 4 to "
    "8 foreseen from the first 3, `copy_mse` of showing the third again, `truth_mse` of encoding and decoding the true frames. "
    "`read_off_frames`: how often a label is read rightly off the latents of the first three frames by a logistic regression, "
    "`read_off_still`: off the numbers of the still picture, `by_chance`: the commonest category.",
    pictures=("extrapolation",),
    quick=(Characters("sprites", "temporal-causal-prior-vae", {"size": 16, "samples": 3000}, _QUICK),),
)
