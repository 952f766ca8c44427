"""The pictures of one link for the page: the curve from cause to effect, what do() makes of pictures, and where in them a latent is read off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from intervae.data.base import Dataset, Split, Variable
from intervae.figures.heat_maps import blend
from intervae.figures.pixels import as_images, as_rgb, signed_change
from intervae.models.base import ask
from intervae.models.cmcl_queries import CrossModalQueries
from intervae.models.heat_maps import encoder_blocks, has_heat_maps, heat_map
from intervae.report.drawings import Axis, picture_row, scatter_svg, shorten, words
from intervae.report.findings import LinkFound
from intervae.report.pictures import SHOWN, _spread

POINTS = 250  # of a scatter
STRIP_IMAGES, STRIP_VALUES = 3, 7
USUAL_ROWS = 1000  # training images over which the usual range of a latent is taken
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
    return _usual(data.train.labels[:, data.names.index(column)].double().cpu().numpy())


def _usual(values: np.ndarray) -> list[float]:
    """STRIP_VALUES steps over the middle nine tenths of some values."""
    low, high = np.quantile(values, [0.05, 0.95])
    return [float(v) for v in np.linspace(low, high, STRIP_VALUES)]


def link_strip(model: CrossModalQueries, data: Dataset, column: str) -> str:
    """Test pictures had the column been this or that, each picture's own residual kept, and below what that changes."""
    variable, values, name = data.spec.variable(column), strip_values(data, column), words(column)
    own = [_short(variable, float(v)) for v in _shown(data).labels[:, data.names.index(column)]]
    told, unit = [_short(variable, v) for v in values], f" {words(variable.unit)}" if variable.unit else ""
    if variable.kind == "continuous":
        reach = f"{name} goes from {told[0]} to {told[-1]}{unit}, between which nine tenths of the training images lie"
    else:
        reach = f"{name} takes {'all' if len(values) == len(_categories(variable)) else f'the first {len(values)} of'} its categories"
    return _strip(
        model, data, column, values, told, own, f"do({name} = …){f' in{unit}' if unit else ''}: the same pictures had {name} been this. {reach}."
    )


def latent_strip(model: CrossModalQueries, data: Dataset, latent: str, effects: Sequence[str]) -> str:
    """What a latent shows: test pictures with it moved over its usual range and all others kept, and what the model then expects of its `effects`."""
    place = model.latent_names.index(latent)
    centre, spread = float(model.centre[place]), float(model.spread[place])
    values = _usual(ask(model, "encode", data.train[_spread(len(data.train), USUAL_ROWS)])[:, place, 0].double().numpy())
    own = [_deviations(float(z), centre, spread) for z in ask(model, "encode", _shown(data))[:, place, 0]]
    told, name = [_deviations(value, centre, spread) for value in values], words(latent)
    moved = [node for node in model.latent_names if node in model.graph.descendants(latent)]
    follow = f" but {', '.join(moved)}, which it causes" if moved else ""
    expected = {f"{shorten(effect)}, expected": _expected(model, latent, values, effect) for effect in effects}
    caption = (
        f"What {name} shows: the same pictures with {name} moved and every other latent kept{follow}. {name} goes from {told[0]} to {told[-1]} "
        f"standard deviations from its mean, between which nine tenths of the training images lie; do() takes it in its own units, from "
        f"{values[0]:.3g} to {values[-1]:.3g}."
    )
    return _strip(model, data, latent, values, told, own, caption, expected)


def _deviations(value: float, centre: float, spread: float) -> str:
    return f"{(value - centre) / spread + 0.0:.2f}".replace("-", "−")


def _expected(model: CrossModalQueries, latent: str, values: Sequence[float], effect: str) -> list[str]:
    """What the model expects of a column at values of its cause: a number, or the likeliest category and its probability."""
    variable = model.spec.variable(effect)
    made = model.mechanism(effect, {latent: torch.tensor(values)}).cpu()
    if variable.kind == "continuous":
        return [_short(variable, float(value)) for value in made]
    chances = torch.stack([1 - made, made], dim=1) if variable.kind == "binary" else made
    return [f"{_short(variable, float(row.argmax()))} {float(row.max()):.0%}" for row in chances]


def _shown(data: Dataset) -> Split:
    return data.test[_spread(len(data.test), STRIP_IMAGES)]


def _strip(
    model: CrossModalQueries,
    data: Dataset,
    node: str,
    values: Sequence[float],
    told: Sequence[str],
    own: Sequence[str],
    caption: str,
    expected: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Test pictures under do() of a node, one column for each value, the values in words (`told`) above, the `own` one of a picture above it."""
    part, blank = _shown(data), [""] * len(values)
    made = torch.stack([model.counterfactual(part.images, {node: value}, part.labels).cpu() for value in values], dim=1)  # (N, K, C, H, W)
    heads = {f"{shorten(node)} ={' (standard units)' if node in model.latent_names else ''}": told} | dict(expected or {})
    rows = [picture_row([None] * (len(values) + 1), ["", *texts], label, "") for label, texts in heads.items()]
    for k, pictures in enumerate(made):
        original = as_rgb(as_images(part.images[k], "the picture"))[0]
        shown = [original, *as_rgb(as_images(pictures, "pictures of do()"))]
        rows.append(picture_row(shown, [f"own: {own[k]}", *blank], f"image {k + 1}", f"do({node} = …)"))
    first = as_images(made[0], "pictures of do()")
    change = signed_change(first, first[:1])
    rows.append(picture_row([None, *change], [""] * (len(change) + 1), "change in image 1", "change"))
    reach = made.amax(1) - made.amin(1)
    moved = (
        f"Over these values a pixel changes by {float(reach.mean()):.1%} of the range from black to white on average, by {float(reach.max()):.0%} at "
        "most. Left: the picture itself and its own value. Last line: change against the first value, blue darker, red brighter."
    )
    return _figure("".join(rows), f"{caption} {moved}")


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
