"""`intervae intervene` and `intervae attribute`: queries to a trained run about images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from intervae.cli.images import read_input_images
from intervae.cli.options import AsJson, Device, Run
from intervae.cli.output import echo, err, print_changes, print_notes, print_rows
from intervae.cli.runs import load_run, open_run
from intervae.errors import QueryError, UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from intervae.models.base import Model


# ---- intervene ----------------------------------------------------------------------------------
class Input(NamedTuple):
    """An image or clip and what `counterfactual` needs beside it."""

    model: Any  # whichever has the query; a missing one raises a QueryError
    images: Any  # (1, C, H, W), or (1, T, C, H, W) for clips
    options: dict[str, Any]  # keyword arguments of `counterfactual`


def intervene(
    run: Run,
    do: Annotated[
        list[str] | None,
        typer.Option(
            "--do",
            help="NAME=VALUE in the variable's own units, or a category; NAME+=VALUE and "
            "NAME*=VALUE change the present value; may be repeated.",
            show_default=False,
        ),
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Figure to write: the original and the counterfactual.",
            show_default="strip.png; none with --json",
        ),
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(
            help="Image file; without it, an image of the test split.", show_default=False
        ),
    ] = None,
    index: Annotated[int, typer.Option(min=0, help="Index of the test image or clip.")] = 0,
    steps: Annotated[
        int, typer.Option(min=0, help="Number of frames to predict after a clip; needs no --do.")
    ] = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Show the counterfactual of an image or clip: abduction, action, prediction."""
    from intervae.causal.do import parse_do
    from intervae.models.capabilities import MeasuresVariables, Temporal

    if not do and not steps:
        raise UsageError(
            "Missing option '--do', or --steps of a clip; see `intervae intervene --help`."
        )
    query = _open_input(run, image, index, device)
    model, images, options = query
    if steps and not isinstance(model, Temporal):
        raise UsageError(
            f"--steps {steps}: {model.name} was trained on single images, not on clips."
        )
    if steps:
        options["steps"] = steps
    values = parse_do(do or [], model.spec.categories)
    after = model.counterfactual(images, values, **options)
    change = None  # of the image, mean over pixels; measured if no variables can show the change
    if not isinstance(model, MeasuresVariables | Temporal):
        change = float((after - model.counterfactual(images, {}, **options)).abs().mean())
    print_notes(_intervention_notes(model, values, change), err)
    path = path or (None if as_json else Path("strip.png"))
    if path is not None:
        _draw_counterfactual(path, query, values, after)
    if isinstance(model, MeasuresVariables):
        before, now = _latent_values(query, values)
        print_changes(before, now, as_json, mark=isinstance(model, Temporal))
    elif as_json:
        row = {"variable": "picture", "change": change or 0.0, "changed": bool(change)}
        print(json.dumps([row], indent=2))
    if not as_json:
        echo(f"wrote {path}")


def _open_input(run: Path, image: Path | None, index: int, device: str) -> Input:
    """Return the model of a run and an image file, or an image or clip of its test split."""
    if image is not None:
        model = load_run(run, device)
        if model.spec.frames is not None:
            raise UsageError(
                f"--image {image}: {model.name} was trained on clips; choose a test clip with "
                "--index."
            )
        return Input(model, read_input_images(model, image), {})
    model, data = open_run(run, device)
    if index >= len(data.test):
        raise QueryError(
            f"--index {index}: the test split has {len(data.test)} images, numbered from 0."
        )
    sample, options = data.test[index : index + 1], {}
    if model.spec.frames is not None and "background" in sample.fields:
        options["background"] = sample.fields["background"]
    if model.counterfactual_takes_labels:
        options["labels"] = sample.labels
    return Input(model, sample.images.numpy(), options)


def _intervention_notes(model: Model, do: dict[str, Any], change: float | None) -> list[str]:
    """Return notes on values outside the training data and on interventions without effect."""
    if change == 0:
        return [
            f"{' and '.join(do)} has no effect on the image in the run's graph: the figure shows "
            "its reconstruction."
        ]
    notes = []
    for name, value in do.items():
        if name not in model.spec.names or callable(value):
            continue
        warning = model.spec.variable(name).range_warning(value)
        if warning:
            notes.append(f"{name}={value:g} {warning}; the image extrapolates.")
    return notes


def _draw_counterfactual(path: Path, query: Input, do: dict[str, Any], after: Tensor) -> None:
    """Draw the original beside the counterfactual; for clips, also the prediction without do()."""
    from intervae import figures

    model, images, options = query
    texts = []
    for name, value in do.items():
        shown = str(value) if callable(value) else f"{value:g}"
        if name in model.spec.names and not callable(value):
            shown = model.spec.variable(name).format_value(value)
        texts.append(f"do({name} = {shown})")
    title = ", ".join(texts)
    if model.spec.frames is None:
        figures.counterfactual_strip(path, images[0], after.cpu(), [title])
        return
    clips = {"without do()": model.counterfactual(images, {}, **options)}
    if title:
        clips[title] = after
    rows = [figures.ClipRow("original", images[0])]
    for label, clip in clips.items():
        rows.append(figures.ClipRow(label, clip[0].cpu(), generated=clip.shape[1]))
    heads = [str(t + 1) for t in range(after.shape[1])]
    figures.clip_rows(path, rows, heads=heads, pairs=3)


def _latent_values(query: Input, do: dict[str, Any]) -> list[dict[str, float]]:
    """Return the variables before and after do(), in their own units.

    For clips these are the variables of every frame, also of the predicted ones.
    """
    model, images, options = query
    if model.spec.frames is not None:
        pair = [model.latents_over_time(images, values, **options) for values in ({}, do)]
        return [{name: float(value) for name, value in values.items()} for values in pair]
    latents = model.encode(images)
    latent_do = {name: value for name, value in do.items() if name in model.latent_names}
    return [
        {name: float(model.to_units(i, z[:, i])) for i, name in enumerate(model.latent_names)}
        for z in (latents, model.intervene(latents, latent_do))
    ]


# ---- attribute ----------------------------------------------------------------------------------
def attribute(
    run: Run,
    before: Annotated[
        Path, typer.Argument(help="Image file, before the action.", show_default=False)
    ],
    after: Annotated[
        Path, typer.Argument(help="Image file, after the action.", show_default=False)
    ],
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """List the actions that may have turned one image into another, with their probabilities."""
    from intervae.models.ct_vae.explanations import doubt

    model: Any = load_run(run, device)
    images = read_input_images(model, before, after)
    probabilities = model.attribute(images[:1], images[1:])[0].tolist()
    scores = model.explain(images[:1], images[1:])
    (best,) = model.best_explanation(images[:1], images[1:])
    doubtful = doubt(best)
    print_notes([doubtful] if doubtful else [], err)
    unusual = best == "unusual action"
    best = "action" if unusual else best
    ranked = sorted(
        zip(probabilities, scores.actions[0].tolist(), model.spec.actions, strict=True),
        reverse=True,
    )
    rows = [
        {
            "action": name,
            "probability": probability if as_json else f"{probability:.3f}",
            "log_likelihood": score,  # mean over code places
            "log_likelihood_of_no_action": scores.none.item(),
            "log_likelihood_unrelated": scores.unrelated.item(),
            "explained_best_by": best,
            "unusual": unusual,
        }
        for probability, score, name in ranked
    ]
    if best != "action" and not as_json:  # repeats the note, which goes to standard error
        echo(f"explained best by: {best}; if it was one of the actions:")
    print_rows(rows, ("action", "probability"), as_json)
