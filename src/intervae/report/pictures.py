"""The pictures of a run: what `train` and `reproduce` draw when they are done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from intervae import figures
from intervae.data.base import Dataset, Split, Variable
from intervae.data.neighbours import Neighbours
from intervae.errors import DataError
from intervae.models.base import Model, answers, ask
from intervae.models.causal import CausalModel
from intervae.models.cmcl_queries import CrossModalQueries
from intervae.models.ct_vae import CTVAE
from intervae.models.heat_maps import has_heat_maps, heat_map, link

SHOWN = 8  # images in a picture
SHOWN_CLIPS = 4
NEARLY, CANDIDATES = 0.85, 512  # of the most steps that lead on from a picture, and pictures that are looked at
TIMES = 6  # that an action is repeated in a picture
MECHANISM_IMAGES = 64  # over which masks and graphs are averaged


def write_figures(model: Model, data: Dataset, folder: Path) -> list[Path]:
    """Every picture that model and data allow, into `folder`/figures; returns what was written."""
    out = folder / "figures"
    part = data.test[_spread(len(data.test), SHOWN)]
    images = part.images
    written = [out / "reconstructions.png"]
    made = ask(model, "reconstruct", part)
    if data.spec.frames is None:
        figures.reconstructions(written[0], images, made, columns=SHOWN)
    else:
        figures.reconstructions(written[0], frames_of(images), frames_of(made), columns=min(data.spec.frames, SHOWN))
    lines = read_lines(folder / "metrics.jsonl")
    epochs = [line for line in lines if "train" in line]
    if epochs:
        written.append(out / "training.png")
        figures.training_curves(written[-1], epochs)
    if answers(type(model), "graph"):
        truth = data.graph if data.graph is not None and data.graph.names == model.graph.names else None
        for suffix in ("png", "svg"):
            written.append(out / f"graph.{suffix}")
            figures.draw_graph(written[-1], model.graph, true_graph=truth, undirected=model.undirected_edges)
        history = [np.array(line["adjacency"]) for line in lines if "adjacency" in line]
        if history:
            written.append(out / "adjacency.png")
            figures.adjacency_history(written[-1], history, model.latent_names, true_graph=truth)
    if isinstance(model, CausalModel) and model.latent_names == data.names and data.spec.frames is None:
        written += _label_figures(model, data, out)
    if isinstance(model, CTVAE):
        written += _transition_figures(model, data, out)
    if isinstance(model, CrossModalQueries) and has_heat_maps(model, data.test):
        written.append(out / "heat_maps.png")
        title = "Grad-CAM++, as in the paper; report.html also has maps against other pictures, which find the place more often"
        figures.heat_maps(written[-1], heat_map_rows(model, data, part), title=title)
    return written


def heat_map_rows(model: CrossModalQueries, data: Dataset, part: Split, *, block: int = -1) -> list[figures.HeatMapRow]:
    """CMCL's Fig. 5: for each column the latent that goes with it, in which direction, and where in the pictures of `part` it is read off."""
    rows = []
    for i, variable in enumerate(data.variables):
        found = link(model, data, variable.name)
        labels = part.labels if model.needs_labels else None
        maps = heat_map(model, part.images, found.latent, sign=found.sign, block=block, labels=labels)
        values = [_worded(variable, float(value)) for value in part.labels[:, i]]
        masks = part.fields["mask"].cpu().bool() if "mask" in part.fields else None
        label = f"{found.words}, map of {'-' if found.sign < 0 else ''}{found.latent}"
        rows.append(figures.HeatMapRow(label, part.images, maps, masks, values))
    return rows


def _worded(variable: Variable, value: float) -> str:
    return variable.categories[round(value)] if variable.categories else f"{value:.3g}"


def _transition_figures(model: CTVAE, data: Dataset, out: Path) -> list[Path]:
    """One picture under each action done again and again (the paper's Fig. 5); what changes, the mask and the graph of each (its Fig. 6)."""
    written = [out / "actions.png", out / "mechanisms.png"]
    rows = action_rows(model, data)
    heads = ["input", *(str(t) for t in range(1, max(len(row.clips) for row in rows)))]
    title = "A test picture under each action, done 1, 2, ... times, as far as the data go"
    title += "; a pale frame is beyond them" if any(row.beyond for row in rows) else ""
    figures.clip_rows(written[0], rows, heads=heads, title=title)
    images = data.test[_spread(len(data.test), MECHANISM_IMAGES)].images
    panels = []
    for action in model.spec.actions:
        found = model.mechanism(images, action)
        mask, changes = (each.unflatten(0, (model.settings.codebooks, *model.grid)) for each in (found.mask, found.changes))
        panels.append(figures.MechanismPanel(action, found.edges, mask, changes))
    title = "Changes: which codes become others; mask: which have parents that the action gives them; graph: which codes before a code after reads. "
    title += f"White is certain; mean of {len(images)} test pictures"
    figures.mechanisms(written[1], panels, title=title)
    return written


def action_rows(model: CTVAE, data: Dataset) -> list[figures.ClipRow]:
    """A row for each action: a test picture, and what the model makes of it as often as the data's grid allows, but once at least."""
    chosen, steps = _start(data, model.spec.actions)
    start, rows = data.test[torch.tensor([chosen])].images, []
    for action, there in zip(model.spec.actions, steps, strict=True):
        times = max(1, there)
        frames = torch.cat([start.cpu().float() / 255, model.act_repeatedly(start, action, times).cpu()[0]])
        label = action if there else f"{action}, beyond the data"
        rows.append(figures.ClipRow(label, frames, made=times, beyond=times - there))
    return rows


def _start(data: Dataset, actions: tuple[str, ...]) -> tuple[int, list[int]]:
    """The row of a test picture and how often each action can be repeated from it, TIMES at most; where no grid tells, any row and TIMES.

    From the row chosen most steps lead on, or nearly so, the t-th of an action counting 1/t, so that few actions are left out for the sake of
    others; and of such rows it has the strongest contrast, as a green thing on green shows little.
    """
    near = _grid(data, actions)
    if near is None:
        return int(_spread(len(data.test), MECHANISM_IMAGES).median()), [TIMES] * len(actions)
    rows = torch.arange(len(data.test))
    there = torch.stack([(near.after("test", rows, a, TIMES) >= 0).cumprod(1) for a in range(len(actions))], dim=1)  # (N, actions, times)
    worth = (there / torch.arange(1, TIMES + 1)).sum((1, 2))
    best = (worth >= NEARLY * worth.max()).nonzero()[:CANDIDATES, 0]
    chosen = int(best[data.test[best].images.cpu().float().std((2, 3)).mean(1).argmax()])
    return chosen, there[chosen].sum(1).tolist()


def _grid(data: Dataset, actions: tuple[str, ...]) -> Neighbours | None:
    """Which picture an action leads to, where the labels tell; None where several may follow, or pairs do not come from the labels."""
    pairs = data.transitions
    if pairs is None or not pairs.unique or data.actions != actions:
        return None
    try:
        near = Neighbours(data)
    except DataError:
        return None
    return near if set(pairs.train.factor_names) <= set(near.names) else None


def _label_figures(model: CausalModel, data: Dataset, out: Path) -> list[Path]:
    """Pictures that need latents with the data's own names and units."""
    written = [out / "variables.png", out / "interventions.png", out / "sweep.png"]
    measured, labels = ask(model, "measure", data.test).numpy(), data.test.labels.cpu().numpy()
    figures.scatter(written[0], measured, labels, data.names, [v.unit for v in data.variables])
    part = data.test[_spread(len(data.test), SHOWN)]
    rows = [intervention_row(model, data, part, v) for v in data.variables]
    figures.interventions(written[1], rows, part.images)
    middle = data.test[len(data.test) // 2 : len(data.test) // 2 + 1].images
    figures.sweep(written[2], middle[0], [sweep_row(model, middle, v, i) for i, v in enumerate(data.variables)])
    return written


def intervention_row(model: CausalModel, data: Dataset, part: Any, variable: Variable) -> figures.InterventionRow:
    """One row of the paper's Fig. 3: every image with this variable set to the middle of its range, and the simulator's truth below."""
    value = 1.0 if variable.kind == "binary" else round((variable.low + variable.high) / 2, 2)
    generated = model.counterfactual(part.images, {variable.name: value}).cpu()
    truth = None
    if data.simulator is not None and "exogenous" in part.fields:
        truth = data.simulator.counterfactual(part.fields["exogenous"].cpu().numpy(), {variable.name: value}, size=data.spec.image_shape[-1])[0]
    label = f"do({variable.name} = {value:g}{' ' + variable.unit if variable.unit else ''})"
    return figures.InterventionRow(label, generated, truth)


def sweep_row(model: CausalModel, image: Any, variable: Variable, index: int) -> figures.SweepRow:
    """One variable moved over its range in one image."""
    values = np.array([0.0, 1.0]) if variable.kind == "binary" else np.linspace(variable.low, variable.high, 7)
    pictures = torch.cat([model.counterfactual(image, {variable.name: float(v)}) for v in values]).cpu()
    return figures.SweepRow(variable.name, values.tolist(), pictures, variable.unit, float(model.measure(image)[0, index]))


def frames_of(clips: torch.Tensor) -> torch.Tensor:
    """The first clips (N, T, C, H, W) as pictures (n, C, H, W), clip after clip: at most SHOWN frames of each, from its first to its last."""
    at = np.linspace(0, clips.shape[1] - 1, min(clips.shape[1], SHOWN)).round().astype(int)
    return clips[:SHOWN_CLIPS, at].flatten(0, 1)


def _spread(n: int, count: int) -> torch.Tensor:
    """`count` row numbers spread over n in a fixed shuffled order, so that a sorted grid shows more than one corner."""
    return torch.as_tensor(np.sort(np.random.default_rng(0).permutation(n)[:count]))


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
