"""Figures of one link in the report: curve from cause to effect, images under do(), heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from intervae.data import Dataset, Split, Variable
from intervae.figures.image_arrays import as_images, as_rgb, signed_change
from intervae.figures.overlays import blend
from intervae.models.base import Model
from intervae.models.batches import query_split, spread_rows
from intervae.models.heat_maps import encoder_blocks, has_heat_maps, heat_map
from intervae.report.findings import LinkFinding
from intervae.report.markup import escape_text, image_figure, image_row, shorten
from intervae.report.svg import PlotAxis, scatter_svg

POINTS = 250  # of a scatter plot
CURVE_POINTS = 60
STRIP_IMAGES, STRIP_VALUES = 3, 7  # rows and columns of images under do()
RANGE_ROWS = 1000  # training images for the usual range of a latent
HEAT_MAP_IMAGES, REFERENCE_IMAGES = 5, 64
RECONSTRUCTIONS = 8


# ---- curve from cause to effect ------------------------------------------------------------------
def link_curve(model: Model, data: Dataset, link: LinkFinding) -> str:
    """Scatter plot of cause and effect on test images, with the model's mechanism."""
    rows = data.test[spread_rows(len(data.test), POINTS)]
    latents = query_split(model, "encode", rows)[..., 0].numpy()
    values = dict(zip(model.latent_names, latents.T, strict=True))
    values |= dict(zip(data.names, rows.labels.cpu().numpy().T, strict=True))
    rng = np.random.default_rng(0)
    axes, points = [], []
    for name in link.nodes:
        variable, numbers = _variable(data, name), values[name].astype(float)
        if _is_numeric(variable):
            axes.append(PlotAxis.of_numbers(name, numbers))
        else:
            axes.append(PlotAxis.of_categories(name, _categories(variable)))
            numbers = numbers + rng.uniform(-0.25, 0.25, len(numbers))  # so that points differ
        points.append(numbers)
    cause = _variable(data, link.cause)
    if _is_numeric(cause):
        x = values[link.cause].astype(float)
        at = np.linspace(x.min(), x.max(), CURVE_POINTS)
    else:
        at = np.arange(len(_categories(cause)), dtype=float)
    causes = {link.cause: torch.as_tensor(at, dtype=torch.float32)}
    predicted = model.effect_curve(link.effect, causes).cpu().numpy()
    # a categorical effect has one curve per category; none is drawn
    curve = np.stack([at, predicted], axis=1) if predicted.ndim == 1 else None
    description = f"{link.effect} against {link.cause} on test images, with the model's curve"
    return scatter_svg(
        axes[0], axes[1], np.stack(points, axis=1), curve, not _is_numeric(cause), description
    )


def _variable(data: Dataset, name: str) -> Variable | None:
    """Variable of a column; None for a latent."""
    return data.spec.variable(name) if name in data.names else None


def _is_numeric(variable: Variable | None) -> bool:
    return variable is None or variable.kind == "continuous"


def _categories(variable: Variable | None) -> list[str]:
    assert variable is not None
    return list(variable.categories) or [str(code) for code in range(round(variable.high) + 1)]


def _format(variable: Variable, value: float) -> str:
    return variable.format_value(value) if variable.categories else f"{value:.3g}"


# ---- images under do() ---------------------------------------------------------------------------
def strip_values(data: Dataset, column: str) -> list[float]:
    """Values to set a column to: its categories, or steps over its central 90% range."""
    variable = data.spec.variable(column)
    if variable.kind != "continuous":
        return [float(code) for code in range(min(len(_categories(variable)), STRIP_VALUES))]
    return _central_range(data.train.labels[:, data.names.index(column)].double().cpu().numpy())


def _central_range(values: np.ndarray) -> list[float]:
    """STRIP_VALUES steps from the 5% to the 95% quantile."""
    low, high = np.quantile(values, [0.05, 0.95])
    return [float(v) for v in np.linspace(low, high, STRIP_VALUES)]


def column_strip(model: Model, data: Dataset, column: str) -> str:
    """Test images under do(column) with their residuals kept, and what changes."""
    variable, values = data.spec.variable(column), strip_values(data, column)
    factual = _strip_rows(data).labels[:, data.names.index(column)]
    texts, name = [_format(variable, v) for v in values], escape_text(column)
    unit = f" {escape_text(variable.unit)}" if variable.unit else ""
    if variable.kind == "continuous":
        value_range = (
            f"{name} ranges from {texts[0]} to {texts[-1]}{unit}, the central 90% of the training "
            "images"
        )
    elif len(values) == len(_categories(variable)):
        value_range = f"{name} takes all its categories"
    else:
        value_range = f"{name} takes the first {len(values)} of its categories"
    in_unit = f" in{unit}" if unit else ""
    caption = f"Images under do({name} = …){in_unit}. {value_range}."
    own = [_format(variable, float(v)) for v in factual]
    return _strip(model, data, column, values, texts, own, caption)


def latent_strip(model: Model, data: Dataset, latent: str, effects: Sequence[str]) -> str:
    """Test images with one latent varied, and what the model then expects of its `effects`."""
    index = model.latent_names.index(latent)
    mean, std = float(model.latent_mean[index]), float(model.latent_std[index])

    def standardise(value: float) -> str:
        return f"{(value - mean) / std + 0.0:.2f}".replace("-", "−")

    train = data.train[spread_rows(len(data.train), RANGE_ROWS)]
    values = _central_range(query_split(model, "encode", train)[:, index, 0].double().numpy())
    factual = query_split(model, "encode", _strip_rows(data))[:, index, 0]
    texts, name = [standardise(value) for value in values], escape_text(latent)
    descendants = model.graph.descendants(latent)
    moved = [node for node in model.latent_names if node in descendants]
    exception = f" except {', '.join(moved)}, which it causes" if moved else ""
    expected = {
        f"{shorten(effect)}, expected": _expected_values(model, latent, values, effect)
        for effect in effects
    }
    caption = (
        f"Images with {name} varied and every other latent fixed{exception}. {name} ranges from "
        f"{texts[0]} to {texts[-1]} standard deviations around its mean, the central 90% of the "
        f"training images. In its own units, which do() takes, that is from {values[0]:.3g} to "
        f"{values[-1]:.3g}."
    )
    own = [standardise(float(z)) for z in factual]
    return _strip(model, data, latent, values, texts, own, caption, expected)


def _expected_values(model: Model, latent: str, values: Sequence[float], effect: str) -> list[str]:
    """What the model expects of a column: a number, or the likeliest category."""
    variable = model.spec.variable(effect)
    predicted = model.effect_curve(effect, {latent: torch.tensor(values)}).cpu()
    if variable.kind == "continuous":
        return [_format(variable, float(value)) for value in predicted]
    probabilities = predicted
    if variable.kind == "binary":
        probabilities = torch.stack([1 - predicted, predicted], dim=1)
    return [
        f"{_format(variable, float(row.argmax()))} {float(row.max()):.0%}" for row in probabilities
    ]


def _strip_rows(data: Dataset) -> Split:
    return data.test[spread_rows(len(data.test), STRIP_IMAGES)]


def _strip(
    model: Model,
    data: Dataset,
    node: str,
    values: Sequence[float],
    texts: Sequence[str],
    own: Sequence[str],
    caption: str,
    expected: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Test images under do() on a node, one column per value.

    Arguments:
        texts: the values as text, above the columns.
        own: the factual value of each image, above it.
        expected: further rows of text, by label.
    """
    rows, blank = _strip_rows(data), [""] * len(values)
    generated = torch.stack(
        [model.counterfactual(rows.images, {node: v}, rows.labels).cpu() for v in values],
        dim=1,
    )  # (N, K, C, H, W)
    unit = " (standard deviations)" if node in model.latent_names else ""
    heads = {f"{shorten(node)} ={unit}": texts, **(expected or {})}
    no_images = [None] * (len(values) + 1)
    lines = [image_row(no_images, ["", *cells], label, "") for label, cells in heads.items()]
    for k, images in enumerate(generated):
        original = as_rgb(as_images(rows.images[k], "the image"))[0]
        shown = [original, *as_rgb(as_images(images, "images under do()"))]
        captions = [f"own: {own[k]}", *blank]
        lines.append(image_row(shown, captions, f"image {k + 1}", f"do({node} = …)"))
    first = as_images(generated[0], "images under do()")
    change = signed_change(first, first[:1])
    captions = [""] * (len(change) + 1)
    lines.append(image_row([None, *change], captions, "change in image 1", "change"))
    pixel_range = generated.amax(1) - generated.amin(1)
    changes = (
        f"Over these values a pixel changes by {float(pixel_range.mean()):.1%} of the range from "
        f"black to white on average, and by at most {float(pixel_range.max()):.0%}. First column: "
        "the image and its own value. Last row: change from the first value, blue darker, red "
        "brighter."
    )
    return image_figure("".join(lines), f"{caption} {changes}")


# ---- heat maps -----------------------------------------------------------------------------------
def link_heat_maps(model: Model, data: Dataset, latent: str, link: LinkFinding) -> str:
    """Heat maps of a latent on the test images in which it is most extreme; "" without any.

    The end of its range is the one that goes with larger values of the column.
    """
    if not has_heat_maps(model, data.test):
        return ""
    sign = -1 if link.trend is not None and link.trend < 0 else 1
    latents = query_split(model, "encode", data.test)[:, model.latent_names.index(latent), 0]
    order = (sign * latents).argsort(descending=True)
    rows = data.test[order[:HEAT_MAP_IMAGES]]
    images = as_images(rows.images, "test images")
    column = link.cause if link.cause in data.names else link.effect
    variable, blank = _variable(data, column), [""] * len(images)
    captions = blank
    if variable is not None:
        labels = rows.labels[:, data.names.index(column)]
        captions = [_format(variable, float(value)) for value in labels]
    lines = image_row(list(as_rgb(images)), captions, "image", "test image")
    label_input = rows.labels if model.needs_labels else None
    maps = heat_map(model, rows.images, latent, sign=sign, labels=label_input).numpy()
    lines += image_row(list(blend(images, maps)), blank, "Grad-CAM++", f"heat map of {latent}")
    ends = ("smallest", "largest") if sign < 0 else ("largest", "smallest")
    comparison = ""
    if not model.needs_labels:
        reference = data.test[order[-max(1, len(order) // 4) :][:REFERENCE_IMAGES]].images
        block = -min(2, len(encoder_blocks(model, rows.images[:1])))
        maps = heat_map(
            model, rows.images, latent, sign=sign, block=block, reference=reference
        ).numpy()
        label = "against reference"
        lines += image_row(list(blend(images, maps)), blank, label, f"what adds to {latent}")
        comparison = (
            " Against reference: what each place adds to it compared with the images in which it "
            f"is {ends[1]}; this map is the more local one."
        )
    above = f" Above each image: {escape_text(column)}." if variable is not None else ""
    caption = (
        f"Heat maps of {escape_text(latent)} in the test images in which it is {ends[0]}."
        f"{comparison}{above}"
    )
    return image_figure(lines, caption)


# ---- reconstructions -----------------------------------------------------------------------------
def reconstruction_figure(model: Model, data: Dataset) -> str:
    """Test images and their reconstructions."""
    rows = data.test[spread_rows(len(data.test), RECONSTRUCTIONS)]
    reconstructed = query_split(model, "reconstruct", rows)
    blank = [""] * len(reconstructed)
    lines = ""
    for images, label in ((rows.images, "image"), (reconstructed, "reconstruction")):
        lines += image_row(list(as_rgb(as_images(images, label))), blank, label, f"test {label}")
    caption = (
        "Test images and their reconstructions from the latents. What a reconstruction does not "
        "show cannot have a link."
    )
    return image_figure(lines, caption)
