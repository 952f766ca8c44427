"""CMCL on chest X-rays (Mao et al. 2022, sec. 4.3, Fig. 5): which way the edge goes, what the latent tells, and where its heat map is hot.

intervae reproduce cmcl-xray [--only xray-like] [--quick]    (the real pictures are read from the folder that INTERVAE_DATA names)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from torch import Tensor

from intervae import figures
from intervae.data.base import Dataset, Split
from intervae.experiments.base import Experiment, Numbers, Train, copy_pictures
from intervae.metrics import heat_map_energy, heat_map_iou
from intervae.models.base import ask
from intervae.models.cmcl_queries import CrossModalQueries
from intervae.models.heat_maps import Link, encoder_blocks, heat_map, link
from intervae.report import write_figures

SHOWN = 8  # pictures in the figure
REFERENCE = 256  # pictures without what is looked for
UNMARKED_BLOCK = -3  # of the map against them, where no mask can tell which is best


@dataclass(frozen=True)
class Chests(Train):
    """Train on X-rays, each seed with its own draw or its own patients held out; ask about one yes-or-no column."""

    column: str = "disease"

    def run(self, seed: int, device: str, folder: Path) -> Numbers:
        data = replace(self, options={**self.options, "seed": seed}).load()
        model, seconds = self.train(data, seed, device, folder)
        assert isinstance(model, CrossModalQueries)
        write_figures(model, data, folder)
        found = link(model, data, self.column)
        numbers = {"train_seconds": seconds, **direction(found), **tells(model, data, found)}
        blocks = {"last block": -1, "reference": UNMARKED_BLOCK}
        if "mask" in data.test.fields:
            places, blocks = heat(model, data, found)
            numbers |= places
        draw(model, data, found, blocks["reference"], folder / "figures" / "ill.png")
        return numbers


# ---- numbers --------------------------------------------------------------------------------------------------------
def direction(found: Link) -> Numbers:
    """Which way the edge between the column and its latent goes: one of the two is 1, or none."""
    return {"column_causes": float(found.edge == "column -> latent"), "latent_causes": float(found.edge == "latent -> column")}


def tells(model: CrossModalQueries, data: Dataset, found: Link) -> Numbers:
    """A logistic regression of the column, fitted on training pictures and judged on test pictures: on its latent alone, and on all of them."""
    place = data.names.index(found.column)
    train, test = (ask(model, "encode", split)[..., 0].numpy() for split in (data.train, data.test))
    seen, wanted = (split.labels[:, place].cpu().numpy() for split in (data.train, data.test))
    majority = float(seen.mean() >= 0.5)
    numbers: Numbers = {"majority_accuracy": float((wanted == majority).mean()), "test_pictures": float(len(wanted))}
    for name, chosen in (("link", [model.latent_names.index(found.latent)]), ("all_latents", list(range(train.shape[1])))):
        centre, spread = train[:, chosen].mean(0), train[:, chosen].std(0) + 1e-9
        fitted = LogisticRegression(max_iter=1000).fit((train[:, chosen] - centre) / spread, seen)
        chance = fitted.predict_proba((test[:, chosen] - centre) / spread)[:, 1]
        numbers |= {
            f"{name}_accuracy": float(((chance > 0.5) == wanted).mean()),
            f"{name}_balanced_accuracy": float(balanced_accuracy_score(wanted, chance > 0.5)),
            f"{name}_auc": float(roc_auc_score(wanted, chance)),
        }
    return numbers


def heat(model: CrossModalQueries, data: Dataset, found: Link) -> tuple[Numbers, dict[str, int]]:
    """Heat inside the true masks of test pictures, by the kind of map, and the block of each kind.

    `last block`: Grad-CAM++ as the paper has it. `best block`: Grad-CAM++ of the block that is best on validation pictures. `reference`: what is
    beyond training pictures in which the column is 0, at the block that is best on validation pictures.
    """
    usual = without(data, found)
    tried = [-1 - k for k in range(len(encoder_blocks(model, data.test.images[:1])))]
    cam, against = ({b: _score(model, data.validation, found, b, r)["heat_map_energy"] for b in tried} for r in (None, usual))
    blocks = {"last block": -1, "best block": max(cam, key=lambda b: cam[b]), "reference": max(against, key=lambda b: against[b])}
    numbers: Numbers = {}
    for kind, block in blocks.items():
        scores = _score(model, data.test, found, block, usual if kind == "reference" else None)
        numbers |= {f"{name}|{kind}": value for name, value in scores.items()} | {f"block|{kind}": float(block)}
    place = model.latent_names.index(found.latent)
    latents, truth = ask(model, "encode", data.test)[:, place, 0].numpy(), data.test.fields["latents"][:, 0].cpu().numpy()
    correlation = abs(float(np.corrcoef(latents, truth)[0, 1])) if latents.std() > 0 else 0.0
    share = float(data.test.fields["mask"][_marked(data.test)].float().mean())
    return {**numbers, "mask_share": share, "opacity_correlation": correlation}, blocks


def without(data: Dataset, found: Link) -> Tensor:
    """Training pictures in which the column is 0."""
    return data.train.images[(data.train.labels[:, data.names.index(found.column)] == 0).nonzero()[:REFERENCE, 0]]


def _marked(split: Split) -> Tensor:
    return split.fields["mask"].flatten(1).any(1).nonzero()[:, 0]


def _score(model: CrossModalQueries, split: Split, found: Link, block: int, reference: Tensor | None) -> Numbers:
    part = split[_marked(split)]
    maps = heat_map(model, part.images, found.latent, sign=found.sign, block=block, reference=reference).numpy()
    masks = part.fields["mask"].cpu().numpy()
    return {"heat_map_energy": heat_map_energy(maps, masks).value, "heat_map_iou": heat_map_iou(maps, masks).value}


# ---- pictures -------------------------------------------------------------------------------------------------------
def draw(model: CrossModalQueries, data: Dataset, found: Link, block: int, path: Path) -> None:
    """Fig. 5: test pictures in which the column is 1 under Grad-CAM++ of its latent, and below against training pictures in which it is 0."""
    part = data.test[(data.test.labels[:, data.names.index(found.column)] == 1).nonzero()[:SHOWN, 0]]
    masks = part.fields["mask"].cpu().bool() if "mask" in part.fields else None
    label = f"{found.words}, map of {'-' if found.sign < 0 else ''}{found.latent}"
    plain = heat_map(model, part.images, found.latent, sign=found.sign)
    against = heat_map(model, part.images, found.latent, sign=found.sign, block=block, reference=without(data, found))
    rows = [
        figures.HeatMapRow(f"{label}: Grad-CAM++", part.images, plain, masks),
        figures.HeatMapRow(f"{label}: beyond pictures without {found.column}", part.images, against, masks),
    ]
    figures.heat_maps(path, rows, title=f"Test pictures with {found.column}")


# ---- the table ------------------------------------------------------------------------------------------------------
SETTINGS: dict[str, Any] = {
    "latents": 10,
    "network": "pairs",
    "channels": (16, 32, 64),
    "contrast": False,  # it needs edges of both kinds
    "likelihood": "gaussian",
    "scale": 0.2,
    "annealing": 0.7,
    "rate_schedule": "cosine",
    "learning_rate": 2e-3,
    "epochs": 100,
}
_COLUMNS = (
    "column_causes",
    "latent_causes",
    "link_accuracy",
    "majority_accuracy",
    "link_balanced_accuracy",
    "link_auc",
    "mask_share",
)
_REST = (
    "heat_map_energy",
    "heat_map_iou",
    "block",
    "opacity_correlation",
    "all_latents_accuracy",
    "all_latents_balanced_accuracy",
    "all_latents_auc",
    "test_pictures",
    "train_seconds",
)
PICTURES = ("causal", "anti-causal")  # on the page: none of patients, whose licences differ from picture to picture
_STAND_IN = tuple((direction, {"direction": direction}) for direction in PICTURES)

CMCL_XRAY = Experiment(
    "cmcl-xray",
    "CMCL on chest X-rays, and on drawings with a known mask",
    (
        *(Chests("xray-like", "cmcl", options, SETTINGS, variant) for variant, options in _STAND_IN),
        Chests("covid-cxr", "cmcl", {"size": 64}, {**SETTINGS, "epochs": 300}, "covid", column="covid"),
    ),
    seeds=5,
    shown=(*_COLUMNS, *_REST),
    columns=_COLUMNS,
    notes="`xray-like` are 64 x 64 drawings with an opacity that a disease causes (`causal`) or that causes it (`anti-causal`), 2,000 for each "
    "seed; `covid-cxr` are the real frontal pictures, split by patient, each seed holding out other patients. `column_causes` and `latent_causes`: "
    "which way the edge between the column and its latent goes, as a share of the seeds; this is no evidence, as the columns are binary and a latent "
    "is known up to a monotone map, so that either direction could have made the rows and only the latent's own scale breaks the tie. "
    "`link_accuracy` is that of a logistic regression on that latent alone, fitted on training pictures and judged on test pictures, "
    "`all_latents_accuracy` on all of them; `majority_accuracy` is the "
    "training split's more frequent answer. `heat_map_energy` is the share of the heat inside the true mask of test pictures with an opacity, and "
    "`mask_share` the mask's share of the picture, which an even map scores. `last block` is Grad-CAM++ of the last block, the paper's; `best "
    "block` Grad-CAM++ of the block that is best on validation pictures; `reference` is not Grad-CAM++ but what each place adds beyond training "
    "pictures without the disease, at the block that is best on validation pictures (docs/cmcl-pictures.md). In the real pictures most COVID cases "
    "come from few hospitals, so that a latent that tells them may tell the hospital; the maps over them are in `figures/ill.png` of the runs and "
    "not here, as each picture has a licence of its own.",
    pictures=PICTURES,
    gather=partial(copy_pictures, "ill.png", PICTURES),
    quick=(Chests("xray-like", "cmcl", {"size": 16, "samples": 120}, {**SETTINGS, "channels": (4, 8), "epochs": 2}, "causal"),),
)
