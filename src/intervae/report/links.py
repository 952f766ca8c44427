"""The pictures of one link for the page: the curve from cause to effect, what do() makes of pictures, and where in them a latent is read off."""

from __future__ import annotations

import numpy as np
import torch

from intervae.data.base import Dataset, Variable
from intervae.figures.heat_maps import blend
from intervae.figures.pixels import as_images, as_rgb, signed_change
from intervae.models.base import ask
from intervae.models.cmcl_queries import CrossModalQueries
from intervae.models.heat_maps import encoder_blocks, has_heat_maps, heat_map
from intervae.report.drawings import Axis, picture_row, scatter_svg, words
from intervae.report.findings import LinkFound
from intervae.report.pictures import SHOWN, _spread

POINTS = 250  # of a scatter
STRIP_IMAGES, STRIP_VALUES = 3, 7
HEATED, REFERENCE = 5, 64  # pictures with a heat map, and those that they are compared with
CURVE_POINTS = 60


def link_curve(model: CrossModalQueries, data: Dataset, link: LinkFound) -> str:
    """Test images as points (cause, effect) and the model's own f through them."""
    part = data.test[_spread(len(data.test), POINTS)]
    latents = ask(model, "encode", part)[..., 0].numpy()
    columns = {**dict(zip(model.latent_names, latents.T, strict=True)), **dict(zip(data.names, part.labels.cpu().numpy().T, strict=True))}
    cause, effect = (_variable(data, name) for name in (link.cause, link.effect))
    x, y = columns[link.cause].astype(float), columns[link.effect].astype(float)
    at = np.linspace(x.min(), x.max(), CURVE_POINTS) if _numeric(cause) else np.arange(len(_categories(cause)), dtype=float)
    made = model.mechanism(link.effect, {link.cause: torch.as_tensor(at, dtype=torch.float32)}).cpu().numpy()
    curve = np.stack([at, made], axis=1) if made.ndim == 1 else None  # of a categorical effect there are as many curves as categories
    rng = np.random.default_rng(0)
    points = np.stack([_spread_out(x, cause, rng), _spread_out(y, effect, rng)], axis=1)
    axes = [Axis.over(name, v) if _numeric(var) else Axis.of_codes(name, _categories(var)) for name, v, var in
            ((link.cause, x, cause), (link.effect, y, effect))]  # fmt: skip
    return scatter_svg(
        axes[0], axes[1], points, curve, not _numeric(cause), f"{link.effect} against {link.cause} on test images, with the model's curve"
    )


def _variable(data: Dataset, name: str) -> Variable | None:
    return data.spec.variable(name) if name in data.names else None


def _numeric(variable: Variable | None) -> bool:
    """Latents are numbers too."""
    return variable is None or variable.kind == "continuous"


def _categories(variable: Variable | None) -> list[str]:
    assert variable is not None
    return list(variable.categories) or [str(code) for code in range(round(variable.high) + 1)]


def _spread_out(values: np.ndarray, variable: Variable | None, rng: np.random.Generator) -> np.ndarray:
    """Codes get some room, so that points do not lie on each other."""
    return values if _numeric(variable) else values + rng.uniform(-0.25, 0.25, len(values))


# ---- do -------------------------------------------------------------------------------------------------------------
def strip_values(data: Dataset, column: str) -> list[float]:
    """The values that a column is set to: over the middle nine tenths of its range, or its categories."""
    variable = data.spec.variable(column)
    if variable.kind != "continuous":
        return [float(code) for code in range(min(len(_categories(variable)), STRIP_VALUES))]
    values = data.train.labels[:, data.names.index(column)].double().cpu().numpy()
    low, high = np.quantile(values, [0.05, 0.95])
    return [float(v) for v in np.linspace(low, high, STRIP_VALUES)]


def link_strip(model: CrossModalQueries, data: Dataset, column: str) -> str:
    """Test pictures had the column been this or that, each picture's own residual kept, and below what that changes."""
    variable, values = data.spec.variable(column), strip_values(data, column)
    part = data.test[_spread(len(data.test), STRIP_IMAGES)]
    made = torch.stack([model.counterfactual(part.images, {column: value}, part.labels).cpu() for value in values], dim=1)  # (N, K, C, H, W)
    captions = [_short(variable, value) for value in values]
    alternative = f"do({column} = …)"
    rows = []
    for k, pictures in enumerate(made):
        original = as_rgb(as_images(part.images[k], "the picture"))[0]
        shown = [original, *as_rgb(as_images(pictures, "pictures of do()"))]
        label = f"image {k + 1}"
        rows.append(picture_row(shown, ["original", *captions] if k == 0 else [""] * len(shown), label, alternative))
    first = as_images(made[0], "pictures of do()")
    change = signed_change(first, first[:1])
    rows.append(picture_row([None, *change], [""] * (len(change) + 1), "change in image 1", "change"))
    size = float((made.amax(1) - made.amin(1)).mean())
    largest = float((made.amax(1) - made.amin(1)).max())
    unit = f" in {words(variable.unit)}" if variable.unit else ""
    caption = (
        f"do({words(column)} = …){unit}: the same pictures had {words(column)} been this. Over these values a pixel changes by {size:.1%} of the "
        f"range from black to white on average, by {largest:.0%} at most. Last line: change against the first value, blue darker, red brighter."
    )
    return _figure("".join(rows), caption)


def _figure(rows: str, caption: str) -> str:
    return f'<figure><div class="scroll"><table class="pictures"><tbody>{rows}</tbody></table></div><figcaption>{caption}</figcaption></figure>'


# ---- where ----------------------------------------------------------------------------------------------------------
def link_heat_maps(model: CrossModalQueries, data: Dataset, latent: str, link: LinkFound) -> str:
    """Heat maps of a latent on the test images in which it is strongest, in the direction that goes with more of the column; empty without any."""
    if not has_heat_maps(model, data.test):
        return ""
    sign = -1 if link.trend is not None and link.trend < 0 else 1
    order = (sign * ask(model, "encode", data.test)[:, model.latent_names.index(latent), 0]).argsort(descending=True)
    part = data.test[order[:HEATED]]
    images = as_images(part.images, "test images")
    column = link.cause if link.cause in data.names else link.effect
    variable, blank = _variable(data, column), [""] * len(images)
    captions = blank if variable is None else [_short(variable, float(value)) for value in part.labels[:, data.names.index(column)]]
    rows = picture_row(list(as_rgb(images)), captions, "picture", "test image")
    maps = heat_map(model, part.images, latent, sign=sign, labels=part.labels if model.needs_labels else None).numpy()
    rows += picture_row(list(blend(images, maps)), blank, "Grad-CAM++", f"heat map of {latent}")
    compared = ""
    if not model.needs_labels:
        others = data.test[order[-max(1, len(order) // 4) :][:REFERENCE]].images
        block = -min(2, len(encoder_blocks(model, part.images[:1])))
        against = heat_map(model, part.images, latent, sign=sign, block=block, reference=others).numpy()
        rows += picture_row(list(blend(images, against)), blank, "against others", f"what adds to {latent}")
        ends = ("smallest", "largest") if sign < 0 else ("largest", "smallest")
        compared = f" Against others: what each place adds beyond the images in which it is {ends[1]}, which is the more local of the two maps."
    above = f" Above each picture: {words(column)}." if variable is not None else ""
    caption = f"Where {words(latent)} is read off, in the test images in which it is {'smallest' if sign < 0 else 'largest'}.{compared}{above}"
    return _figure(rows, caption)


def _short(variable: Variable, value: float) -> str:
    return variable.show(value) if variable.categories else f"{value:.3g}"


def reconstruction_rows(model: CrossModalQueries, data: Dataset) -> str:
    """Test images, and below each what the latents keep of it."""
    part = data.test[_spread(len(data.test), SHOWN)]
    originals, made = (as_rgb(as_images(images, "pictures")) for images in (part.images, ask(model, "reconstruct", part)))
    blank = [""] * len(originals)
    return picture_row(list(originals), blank, "image", "test image") + picture_row(list(made), blank, "kept", "reconstruction")
