"""`intervae attribute`: which action turned one image into another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from intervae.cli.images import read_input_images
from intervae.cli.options import AsJson, Device, Run
from intervae.cli.output import echo, err, print_notes, print_rows
from intervae.cli.runs import load_run


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
