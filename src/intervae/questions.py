"""Commands that ask a trained run about pictures: `intervae intervene`, what one would have been, and `attribute`, what was done between two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intervae.commands import AsJson, Device, Run, open_run
from intervae.errors import QueryError, UsageError
from intervae.listing import err, print_changes, print_rows, say

if TYPE_CHECKING:
    from intervae.models.base import Model


def intervene(
    run: Run,
    do: Annotated[
        list[str] | None,
        typer.Option("--do", help="name=value in the variable's own units, or its category; several are done at once.", show_default=False),
    ] = None,
    path: Annotated[
        Path | None, typer.Option("--out", help="Picture to write: the original and the counterfactual.", show_default="strip.png; none with --json")
    ] = None,
    image: Annotated[Path | None, typer.Option(help="An image file; without it a test image of the run's data is used.", show_default=False)] = None,
    index: Annotated[int, typer.Option(min=0, help="Which test image or clip.")] = 0,
    steps: Annotated[int, typer.Option(min=0, help="Of a clip: how many frames after its last one; needs no --do.")] = 0,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Show what a picture or a clip would have been: abduction, action, prediction."""
    from intervae.causal.do import parse_do
    from intervae.models.causal import CausalModel

    if not do and not steps:
        raise UsageError("Missing option '--do', or --steps of a clip; see `intervae intervene --help`.")
    model, picture, more = _open(run, image, index, device)
    if steps and model.spec.frames is None:
        raise UsageError(f"--steps {steps}: {model.name} was trained on single images, after which nothing follows.")
    more |= {"steps": steps} if steps else {}
    wanted = parse_do(do or [], model.spec.categories)
    after = model.counterfactual(picture, wanted, **more)
    told = isinstance(model, CausalModel) or model.spec.frames is not None  # what changes is told by the variables
    changed = None if told else float((after - model.counterfactual(picture, {}, **more)).abs().mean())
    _note(_doubts(model, wanted, changed))
    path = path or (None if as_json else Path("strip.png"))
    if path is not None:
        _draw(path, model, picture, wanted, after, more)
    if isinstance(model, CausalModel):
        before, now = _values(model, picture, wanted, more)
        print_changes(before, now, as_json, mark=model.spec.frames is not None)
    elif as_json:
        print(json.dumps([{"variable": "picture", "change": changed or 0.0, "changed": bool(changed)}], indent=2))
    if not as_json:
        say(f"wrote {path}")


def _open(run: Path, image: Path | None, index: int, device: str) -> tuple[Any, Any, dict[str, Any]]:
    """A run's model, one picture or clip (1, ...) of a file or of its test split, and what else is known of that for `counterfactual`."""
    from intervae.models import load
    from intervae.models.cmcl_queries import CrossModalQueries
    from intervae.training import choose_device

    if image is not None:
        model = load(run, choose_device(device))
        if model.spec.frames is not None:
            raise UsageError(f"--image {image}: {model.name} was trained on clips; choose one of the test clips with --index.")
        return model, _read(model, image), {}
    model, data = open_run(run, device)
    if index >= len(data.test):
        raise QueryError(f"--index {index}: the test split has {len(data.test)} images, numbered from 0.")
    chosen, more = data.test[index : index + 1], {}
    if model.spec.frames is not None and "background" in chosen.fields:
        more["background"] = chosen.fields["background"]
    if isinstance(model, CrossModalQueries):
        more["labels"] = chosen.labels  # so that what is particular about this picture stays
    return model, chosen.images.numpy(), more


def _read(model: Model, *files: Path) -> Any:
    """Image files as the model sees pictures: (files, C, H, W) of bytes. What that changes about them is told."""
    from intervae.data.images import read_images

    channels, height, width = model.spec.image_shape
    names = [str(file) for file in files]
    pictures, notes = read_images(list(files), names, size=(height, width), channels=channels, listed=False)
    for file, name in zip(files, names, strict=True):
        whole, _ = read_images([file], [name], size=None, channels=None, listed=False)
        notes += _conversions(name, whole[0], model.spec.image_shape)
    _note(notes)
    return pictures


def _conversions(name: str, whole: Any, wanted: tuple[int, ...]) -> list[str]:
    """What is lost or made up where a picture (C, H, W) as it is in its file becomes one of the wanted shape; a mere change of size is not told."""
    (channels, height, width), notes = wanted, []
    if abs(whole.shape[1] * width / whole.shape[2] - height) >= 1 and abs(whole.shape[2] * height / whole.shape[1] - width) >= 1:
        shapes = f"{whole.shape[2]} x {whole.shape[1]} (width x height) and is stretched to {width} x {height}"
        notes.append(f"{name} is {shapes}, other proportions; crop it to those of the run's pictures.")
    if len(whole) < channels:
        notes.append(f"{name} is grey, and the run's pictures are in colour; it is read as colour.")
    if len(whole) > channels and (whole != whole[:1]).any():
        notes.append(f"{name} is in colour, and the run's pictures are grey; it is read as grey.")
    return notes


def _note(notes: list[str]) -> None:
    if notes:
        err.print("\n".join(f"note: {text}" for text in notes), style="yellow", markup=False, highlight=False)


def _doubts(model: Model, do: dict[str, float], changed: float | None) -> list[str]:
    """What to know before trusting the picture; `changed` is by how much it did, None where the variables tell."""
    notes = []
    for name, value in do.items():
        doubt = model.spec.variable(name).doubt(value) if name in model.spec.names else ""
        if doubt and changed != 0:
            notes.append(f"{name}={value:g} {doubt}; the picture extrapolates.")
    if changed == 0:
        notes.append(f"{' and '.join(do)} changes nothing that the picture shows, by the run's graph: what is drawn is its reconstruction.")
    return notes


def _draw(path: Path, model: Model, picture: Any, do: dict[str, float], after: Any, more: dict[str, Any]) -> None:
    """The original beside the counterfactual; of clips, what goes on without do() too."""
    from intervae import figures

    shown = {name: model.spec.variable(name).show(value) if name in model.spec.names else f"{value:g}" for name, value in do.items()}
    done = ", ".join(f"do({name} = {value})" for name, value in shown.items())
    if model.spec.frames is None:
        figures.strip(path, picture[0], after.cpu(), [done])
        return
    made = {"without do()": model.counterfactual(picture, {}, **more)} | ({done: after} if done else {})
    rows = [figures.ClipRow(label, clips[0].cpu(), made=clips.shape[1]) for label, clips in made.items()]
    figures.clip_rows(path, [figures.ClipRow("original", picture[0]), *rows], heads=[str(t + 1) for t in range(after.shape[1])], pairs=3)


def _values(model: Any, picture: Any, do: dict[str, float], more: dict[str, Any]) -> list[dict[str, float]]:
    """The variables before and after do(), in their own units; of a clip, those of every frame and of the frames that are yet to come."""
    if model.spec.frames is not None:
        return [{name: float(value) for name, value in model.latents_over_time(picture, wanted, **more).items()} for wanted in ({}, do)]
    latents = model.encode(picture)
    both = (latents, model.intervene(latents, {name: value for name, value in do.items() if name in model.latent_names}))
    return [{name: float(model.to_units(i, z[:, i])) for i, name in enumerate(model.latent_names)} for z in both]


def attribute(
    run: Run,
    before: Annotated[Path, typer.Argument(help="An image file, before the action.", show_default=False)],
    after: Annotated[Path, typer.Argument(help="An image file, after it.", show_default=False)],
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Tell which action turned one picture into another, with the probability of each."""
    from intervae.models import load
    from intervae.models.ct_vae import CTVAE
    from intervae.training import choose_device

    model = load(run, choose_device(device))
    pictures = _read(model, before, after)
    chances = model.attribute(pictures[:1], pictures[1:])[0].tolist()
    assert isinstance(model, CTVAE)  # the only one that answers attribute()
    found = model.explain(pictures[:1], pictures[1:])
    same = bool((model.codes(pictures[:1]) == model.codes(pictures[1:])).all())
    top, winner = (one.item() for one in found.actions[0].max(0))
    best = _explained_best_by(same, top, found.none.item(), found.unrelated.item())
    unusual = best == "action" and top < model.usual[int(winner)].item()
    _note([DOUBTS[best]] if best in DOUBTS else [UNUSUAL] if unusual else [])
    alone = {"log_likelihood_of_no_action": found.none.item(), "log_likelihood_unrelated": found.unrelated.item(), "explained_best_by": best}
    alone |= {"unusual": unusual}
    ranked = sorted(zip(chances, found.actions[0].tolist(), model.spec.actions, strict=True), reverse=True)
    rows = [
        {"action": name, "probability": chance if as_json else f"{chance:.3f}", "log_likelihood": fit, **alone}  # for each code place
        for chance, fit, name in ranked
    ]
    if best in DOUBTS and not as_json:  # beside the note, which may not be seen
        say(f"explained best by: {best}; had it been one of the actions:")
    print_rows(rows, ("action", "probability"), as_json)


UNUSUAL = (
    "the best action explains these pictures less well than nearly all pairs of its own; more than one step may lie between them, or a file was made "
    "in another way than the training pictures."
)
DOUBTS = {  # where an action is told that may not have been, by what explains the pair best
    "same codes": "the run sees no difference between the two pictures (they have the same codes), so the probabilities say nothing.",
    "no action": "that nothing was done explains the two pictures better than any action does; trust the probabilities little.",
    "unrelated": "the second picture is likelier as an unrelated one than as what any action makes of the first; trust the probabilities little.",
}


def _explained_best_by(same: bool, action: float, none: float, unrelated: float) -> str:
    """What explains a pair best, by log-likelihoods of the codes after under the best action, none, and any picture: `action`, or one of `DOUBTS`."""
    if same:
        return "same codes"
    if none > max(action, unrelated):
        return "no action"
    return "unrelated" if unrelated > action else "action"
