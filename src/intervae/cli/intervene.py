"""`intervae intervene`: the counterfactual of an image, a clip or a folder of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from intervae.cli.options import AsJson, Device, OtherData, Run
from intervae.cli.output import echo, err, print_changes, print_intervention, print_notes
from intervae.cli.runs import load_run, open_run
from intervae.errors import QueryError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from intervae.causal.do import Change
    from intervae.data.support import LabelSupport
    from intervae.models.base import Model
    from intervae.models.intervention_values import InterventionValues

Do = dict[str, "float | Change"]


class Input(NamedTuple):
    """An image or clip and what is known about it."""

    model: Any  # whichever has the query; a missing one raises a QueryError
    images: Any  # (1, C, H, W), or (1, T, C, H, W) for clips
    options: dict[str, Any]  # keyword arguments of `counterfactual`
    original: np.ndarray | None = None  # (C, h, w) at its own size; of image files
    simulate: Any = None  # do -> true values by name; of test images of a simulator
    support: LabelSupport | None = None


def intervene(
    run: Run,
    do: Annotated[
        list[str] | None,
        typer.Option(
            "--do",
            help="NAME=VALUE in the variable's own units, or a category; NAME=+1, =+-1 and =*1.2 "
            "change the value. May be repeated.",
            show_default=False,
        ),
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Figure to write: the original and the counterfactual. With --images a folder, "
            "or a .png or .svg that shows the first 8.",
            show_default="strip.png; none with --json",
        ),
    ] = None,
    image: Annotated[
        Path | None,
        typer.Option(
            help="Image file; without it, an image of the test split.", show_default=False
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--images",
            help="Folder of images: write the counterfactual of each, and a table, to --out.",
            show_default=False,
        ),
    ] = None,
    index: Annotated[
        int | None,
        typer.Option(min=0, help="Index of the test image or clip.", show_default="0"),
    ] = None,
    steps: Annotated[
        int,
        typer.Option(
            min=0, max=1000, help="Number of frames to predict after a clip; needs no --do."
        ),
    ] = 0,
    plain: Annotated[
        bool, typer.Option("--plain", help="Write the counterfactual alone, at its own size.")
    ] = False,
    data: OtherData = None,
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
    if folder is not None:
        from intervae.cli.intervene_folder import intervene_on_folder

        _refuse_with_folder({"--image": image, "--index": index, "--steps": steps or None})
        intervene_on_folder(run, folder, path, do or [], device, as_json)
        return
    query = _open_input(run, image, index or 0, data, device)
    model, images, options = query[:3]
    if model.spec.frames is not None and plain:
        raise UsageError(f"--plain: {model.name} was trained on clips; only images are plain.")
    if steps and not isinstance(model, Temporal):
        raise UsageError(
            f"--steps {steps}: {model.name} was trained on single images, not on clips."
        )
    if steps:
        options["steps"] = steps
    values = parse_do(do or [], model.spec.categories)
    after = model.counterfactual(images, values, **options)
    path = path or (None if as_json else Path("strip.png"))
    change = None  # of the image, mean over pixels; measured if no variables can show the change
    measured = None
    if isinstance(model, MeasuresVariables) and not isinstance(model, Temporal):
        measured = _measure(query, values, after)
    elif not isinstance(model, MeasuresVariables):
        change = float((after - model.counterfactual(images, {}, **options)).abs().mean())
    if path is not None and plain:
        _write_plain(path, query, after)
    elif path is not None:
        _draw_counterfactual(path, query, values, after)
    print_notes(_intervention_notes(query, values, change, measured), err)
    if measured is not None:
        true = query.simulate(values) if query.simulate is not None else None
        print_intervention(measured, model.spec, true, as_json)
    elif isinstance(model, MeasuresVariables):
        before, now = (_values_over_time(query, each) for each in ({}, values))
        print_changes(before, now, as_json)
    elif as_json:
        row = {"variable": "picture", "change": change or 0.0, "changed": bool(change)}
        print(json.dumps([row], indent=2))
    if not as_json:
        echo(f"wrote {path}")


def _refuse_with_folder(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} and --images name different pictures; give one of them.")


def _open_input(
    run: Path, image: Path | None, index: int, source: str | None, device: str
) -> Input:
    """Return the model of a run and an image file, or an image or clip of its test split."""
    from intervae.data.support import LabelSupport

    if image is not None:
        from intervae.data.query_images import picture_notes, read_picture, to_channels, to_shape

        model = load_run(run, device)
        shape = model.spec.image_shape
        if model.spec.frames is not None:
            raise UsageError(
                f"--image {image}: {model.name} was trained on clips; choose a test clip with "
                "--index."
            )
        pixels, conversion = read_picture(image)
        print_notes(picture_notes(str(image), pixels, conversion, shape), err)
        return Input(
            model,
            to_shape(pixels, shape)[None],
            {},
            original=to_channels(pixels, shape[0]),
            support=LabelSupport.read(run, model.spec.variables),
        )
    model, data = open_run(run, device, source)
    if index >= len(data.test):
        raise QueryError(
            f"--index {index}: the test split has {len(data.test)} images, numbered from 0."
        )
    sample, options, simulate = data.test[index : index + 1], {}, None
    if model.spec.frames is not None and "background" in sample.fields:
        options["background"] = sample.fields["background"]
    if model.counterfactual_takes_labels:
        options["labels"] = sample.labels
    simulator = data.simulator
    if simulator is not None and "exogenous" in sample.fields:
        noises = sample.fields["exogenous"].cpu().numpy()

        def simulate(do: Do) -> dict[str, tuple[float, float]]:
            """Return name -> true value before and after do()."""
            known = {name: value for name, value in do.items() if name in simulator.graph.names}
            before, after = (simulator.simulate(noises, each)[0] for each in ({}, known))
            names = [v.name for v in simulator.variables]
            return dict(zip(names, zip(before.tolist(), after.tolist(), strict=True), strict=True))

    support = LabelSupport.of(data.variables, data.train)
    return Input(model, sample.images.numpy(), options, None, simulate, support)


def _measure(query: Input, do: Do, after: Tensor) -> InterventionValues:
    from intervae.models.intervention_values import intervention_values

    return intervention_values(
        query.model, query.images, do, after, labels=query.options.get("labels")
    )


def _intervention_notes(
    query: Input, do: Do, change: float | None, measured: InterventionValues | None
) -> list[str]:
    """Return notes on values outside the training data and on what the picture does not show."""
    from intervae.models.intervention_values import not_shown_notes, off_support_note

    model: Model = query.model
    if change == 0:
        return [
            f"{' and '.join(do)} has no effect on the image in the run's graph: the figure shows "
            "its reconstruction."
        ]
    notes = range_notes(model, do, measured)
    if measured is None:
        return notes
    if not notes:  # a value outside its range is outside in every combination
        notes = off_support_note(model, measured, do, query.support)
    return notes + not_shown_notes(measured, model.spec)


def range_notes(model: Model, do: Do, measured: InterventionValues | None) -> list[str]:
    """Return notes on values of do() outside their range in the training data."""
    notes = []
    for name, value in do.items():
        if name not in model.spec.names:
            continue
        variable = model.spec.variable(name)
        targets = (
            [value]
            if isinstance(value, float)
            else measured.target[:, measured.names.index(name)].tolist()
            if measured is not None and name in measured.names
            else []
        )
        outside = [target for target in targets if variable.range_warning(target)]
        if outside:
            count = f" in {len(outside)} of {len(targets)} pictures" if len(targets) > 1 else ""
            warning = variable.range_warning(outside[0])
            notes.append(f"{name}={outside[0]:g}{count} {warning}; the image extrapolates.")
    return notes


def _write_plain(path: Path, query: Input, after: Tensor) -> None:
    """Write the counterfactual alone, at the size of an image file."""
    from intervae.data.image_files import encode_image
    from intervae.files import write_bytes
    from intervae.models.own_size import paint_own_size, to_uint8

    original = query.original
    if original is None or original.shape == tuple(after.shape[1:]):
        pixels = to_uint8(after[0])
    else:
        unchanged = query.model.counterfactual(query.images, {}, **query.options)
        pixels = paint_own_size(original, unchanged[0], after[0])
    write_bytes(path, encode_image(pixels, path))


def _draw_counterfactual(path: Path, query: Input, do: Do, after: Tensor) -> None:
    """Draw the original beside the counterfactual; for clips, also the prediction without do()."""
    from intervae import figures

    model, images, options = query[:3]
    title = label_of(model, do)
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


def label_of(model: Model, do: Do) -> str:
    """Return the interventions as a figure names them: do(light = 100 degrees), ..."""
    texts = []
    for name, value in do.items():
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        if name in model.spec.names and isinstance(value, float):
            shown = model.spec.variable(name).format_value(value)
        texts.append(f"do({name} = {shown})")
    return ", ".join(texts)


def _values_over_time(query: Input, do: Do) -> dict[str, float]:
    """Return the variables of every frame under do(), also of the predicted ones."""
    values = query.model.latents_over_time(query.images, do, **query.options)
    return {name: float(value) for name, value in values.items()}
