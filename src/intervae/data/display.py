"""How a Split and a Dataset look in a terminal and in a notebook."""

from __future__ import annotations

import base64
import io
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

from intervae.errors import abbreviate

if TYPE_CHECKING:
    from intervae.data.dataset import Dataset, Split

PICTURES = 8  # shown of a split
PICTURE_WIDTH = 72  # screen pixels of one picture
GAP = 2  # white pixels between pictures


def dataset_line(dataset: Dataset) -> str:
    """Return one line: name, sizes of the splits, image shape, names of the variables."""
    sizes = "/".join(str(len(split)) for split in dataset.splits.values())
    frames = dataset.spec.frames
    samples = "images of" if frames is None else f"clips of {frames} frames of"
    names = ", ".join(dataset.names) or "(none)"
    missing = sum(dataset.missing.values())
    lacks = f", {missing} labels missing" if missing else ""
    shape = dataset.spec.image_shape
    return f"Dataset({dataset.name}: {sizes} {samples} {shape}, variables {names}{lacks})"


def dataset_text(dataset: Dataset) -> str:
    """Return several lines: what `dataset_facts` has, and one line per variable."""
    lines = [f"Dataset {dataset.name}"]
    lines += [f"  {key:<11}{value}" for key, value in dataset_facts(dataset).items()]
    lines += [f"  variables  {'' if dataset.variables else 'none'}".rstrip()]
    rows = variable_rows(dataset)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append(("    " + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def dataset_html(dataset: Dataset) -> str:
    """Return the same as `dataset_text` as two HTML tables, all text escaped."""
    facts = _html_table([(key, value) for key, value in dataset_facts(dataset).items()])
    variables = _html_table(variable_rows(dataset), ("variable", "kind", "values"))
    return f"<div><strong>Dataset {escape(dataset.name)}</strong>{facts}{variables}</div>"


def dataset_facts(dataset: Dataset) -> dict[str, str]:
    """Return the sizes of the splits, the image shape, the true graph and the simulator."""
    frames = dataset.spec.frames
    clips = "" if frames is None else f", clips of {frames} frames"
    graph = dataset.graph
    edges = [] if graph is None else [f"{cause} -> {effect}" for cause, effect, _ in graph.edges]
    facts = {
        "splits": ", ".join(f"{name} {len(split)}" for name, split in dataset.splits.items()),
        "images": f"{dataset.spec.image_shape} uint8{clips}",
        "true graph": "unknown" if graph is None else abbreviate(edges) or "no edges",
        "simulator": "none" if dataset.simulator is None else type(dataset.simulator).__name__,
    }
    if dataset.missing:
        rows = sum(len(split) for split in dataset.splits.values())
        counts = ", ".join(
            f"{name} {int(split.missing.sum())}" for name, split in dataset.splits.items()
        )
        cells = f"{sum(dataset.missing.values())} of {rows * len(dataset.variables)}"
        facts["missing"] = f"{cells} labels: {counts}"
    if dataset.actions:
        facts["actions"] = abbreviate(dataset.actions)
    if dataset.notes:
        facts["notes"] = f"{len(dataset.notes)}, see .notes"
    return facts


def variable_rows(dataset: Dataset) -> list[tuple[str, str, str]]:
    """Return name, kind, and range with unit (or categories) of each variable."""
    missing = dataset.missing
    return [
        (
            v.name,
            v.kind,
            v.describe_values() + (f" ({missing[v.name]} missing)" if v.name in missing else ""),
        )
        for v in dataset.variables
    ]


def split_text(split: Split) -> str:
    """Return one line: number of samples, device, and shape and type of each field per sample."""
    fields = ", ".join(f"{name} {shape} {dtype}" for name, shape, dtype in _field_rows(split))
    lacks = f"; {_missing_cells(split)}" if _missing_cells(split) else ""
    return f"{type(split).__name__}({len(split)} samples on {split.device}: {fields}{lacks})"


def split_html(split: Split) -> str:
    """Return the fields as an HTML table above the first pictures as an inline PNG."""
    title = f"<strong>{escape(type(split).__name__)}</strong> of {len(split)} samples"
    title += f" on {escape(str(split.device))}"
    title += f"; {_missing_cells(split)}" if _missing_cells(split) else ""
    fields = _html_table(_field_rows(split), ("field", "shape per sample", "type"))
    return f"<div>{title}{fields}{_picture_strips(split)}</div>"


def _missing_cells(split: Split) -> str:
    """Return how many labels are missing; "" if none is."""
    missing = split.missing
    return f"{int(missing.sum())} of {missing.numel()} labels missing" if missing.any() else ""


def _field_rows(split: Split) -> list[tuple[str, str, str]]:
    """Return name, shape of one sample, and type of each field, images first."""
    shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    with suppress(KeyError):  # a split of cached codes has no images
        shapes["images"] = (tuple(split.shape[1:]), torch.uint8)
    for name, tensor in split.fields.items():
        shapes.setdefault(name, (tuple(tensor.shape[1:]), tensor.dtype))
    return [
        (name, str(shape), str(dtype).removeprefix("torch."))
        for name, (shape, dtype) in shapes.items()
    ]


def _picture_strips(split: Split) -> str:
    """Return the first pictures side by side; those after a transition in a second row."""
    batch = split.batch(torch.arange(min(PICTURES, len(split)), device=split.device))
    strips = []
    for name in ("images", "after_images"):
        if name in batch and len(batch[name]):
            images = batch[name] if batch[name].ndim == 4 else batch[name][:, 0]  # (B, C, H, W)
            pixels = images.mul(255).round().to(torch.uint8).cpu().numpy()
            source = base64.b64encode(_png(pixels)).decode("ascii")
            strips.append(
                f'<img alt="{name}" width="{PICTURE_WIDTH * len(pixels)}" '
                f'style="image-rendering: pixelated; display: block; margin: 4px 0" '
                f'src="data:image/png;base64,{source}">'
            )
    return "".join(strips)


def _png(pixels: np.ndarray) -> bytes:
    """Return (B, C, H, W) uint8 side by side as a PNG; grey of the first channel unless C = 3."""
    channels = pixels if pixels.shape[1] == 3 else pixels[:, :1].repeat(3, axis=1)
    padded = np.pad(channels, ((0, 0), (0, 0), (0, 0), (0, GAP)), constant_values=255)
    strip = padded.transpose(2, 0, 3, 1).reshape(pixels.shape[2], -1, 3)[:, :-GAP]  # (H, B W, 3)
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(strip)).save(file, "PNG")
    return file.getvalue()


def _html_table(rows: list, header: tuple[str, ...] = ()) -> str:
    """Return rows of texts as an HTML table, all text escaped."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(title)}</th>" for title in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table>{f'<tr>{head}</tr>' if head else ''}{body}</table>"
