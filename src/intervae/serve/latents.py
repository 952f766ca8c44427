"""Queries about latents: traversals, heat maps, findings of links, and samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from intervae.errors import QueryError, unknown
from intervae.figures.image_arrays import as_images
from intervae.figures.overlays import blend
from intervae.models.capabilities import TableLinks
from intervae.models.heat_maps import heat_map, link_column
from intervae.report.findings import MIN_RESAMPLES, collect_findings
from intervae.serve import answers
from intervae.serve.describe import can
from intervae.serve.inputs import read_do, read_pictures
from intervae.serve.pictures import heat_png, to_png, to_pngs
from intervae.serve.repeat_code import extra_arguments, python_do, repeat
from intervae.serve.schemas import HeatMapRequest, SampleRequest, TraverseRequest

if TYPE_CHECKING:
    from intervae.serve.served_runs import ServedRun


@torch.no_grad()
def traverse(run: ServedRun, request: TraverseRequest) -> answers.TraverseAnswer:
    """Answer POST traverse: one picture with one dim of a latent at several values."""
    model, known = run.model, {latent.name: latent for latent in run.description.latents}
    if request.latent not in known:
        raise unknown("latent", request.latent, known, QueryError)
    latent = known[request.latent]
    if request.dim >= latent.dims:
        raise QueryError(f"dim {request.dim}: {latent.name} has {latent.dims}, numbered from 0.")
    numbers = request.values
    if numbers is None:
        numbers = np.linspace(latent.low or 0.0, latent.high or 0.0, request.count).tolist()
    pictures = read_pictures(run, [request.picture])
    labels = {"labels": pictures.options["labels"]} if model.needs_labels else {}
    z = model.encode(pictures.images, **labels)
    index = model.latent_names.index(latent.name)
    moved = z.repeat(len(numbers) + 1, 1, 1)
    moved[:-1, index, request.dim] = torch.tensor(numbers, dtype=z.dtype, device=z.device)
    rest = _rest_of_picture(model, pictures.images, len(moved))
    decoded = model.decode(moved, **rest).cpu()  # the last one is the reconstruction
    keep, others = ("rest = model.abduct_picture(images)\n", ", **rest") if rest else ("", "")
    query = (
        f"z = model.encode(images{extra_arguments(labels)})\n{keep}"
        f"pictures = []\nfor value in {[round(v, 6) for v in numbers]}:\n"
        f"    z[:, {index}, {request.dim}] = value\n"
        f"    pictures.append(model.decode(z{others}))"
    )
    return answers.TraverseAnswer(
        run=run.number,
        latent=latent.name,
        dim=request.dim,
        value=float(z[0, index, request.dim]),
        values=numbers,
        frames=to_pngs(decoded[:-1]),
        factual=to_png(pictures.images[0]),
        reconstruction=to_png(decoded[-1]),
        code=repeat(run, [request.picture], query, None),
    )


def _rest_of_picture(model: Any, images: torch.Tensor, rows: int) -> dict[str, Any]:
    """Return what the picture shows beside its latents, `rows` times, as arguments of decode."""
    if not hasattr(model, "abduct_picture"):
        return {}
    rest = model.abduct_picture(images)
    return {name: value.repeat(rows, *[1] * (value.ndim - 1)) for name, value in rest.items()}


def heat_maps(run: ServedRun, request: HeatMapRequest) -> answers.HeatMapAnswer:
    """Answer POST heat_map: where pictures have what raises or lowers a latent."""
    pictures = read_pictures(run, request.pictures)
    labels = pictures.options.get("labels") if run.model.needs_labels else None
    maps = heat_map(run.model, pictures.images, request.latent, sign=request.sign, labels=labels)
    overlays = blend(as_images(pictures.images, "pictures"), maps.numpy())  # (N, H, W, 3)
    arguments = f"{request.latent!r}, sign={request.sign}"
    if labels is not None:
        arguments += ", labels=rows.labels"
    query = f"maps = intervae.heat_map(model, images, {arguments})"
    return answers.HeatMapAnswer(
        run=run.number,
        latent=request.latent,
        sign=request.sign,
        overlays=to_pngs(overlays.transpose(0, 3, 1, 2)),
        maps=[heat_png(each, 1.0) for each in maps.numpy()],
        pictures=to_pngs(pictures.images),
        code=repeat(run, request.pictures, query, None),
    )


def findings(run: ServedRun) -> answers.FindingsAnswer:
    """Answer GET findings: links between latents and columns; measured once, some 20 seconds."""
    if not can(run.model, TableLinks) or run.data is None:
        raise QueryError(f"{run.model.name} has no findings here; they need cmcl and its data.")
    if "findings" not in run.cache:
        run.cache["findings"] = _measure_findings(run)
    return run.cache["findings"]


def _measure_findings(run: ServedRun) -> answers.FindingsAnswer:
    model, data = run.model, run.data.complete()
    measured = collect_findings(model, data, resamples=MIN_RESAMPLES)
    links = []
    for link in measured.links:
        is_column = link.cause in model.spec.names
        arrow = "->" if link.direction_identifiable else "--"
        links.append(
            answers.LinkAnswer(
                cause=link.cause,
                effect=link.effect,
                column=link.cause if is_column else link.effect,
                latent=link.effect if is_column else link.cause,
                text=f"{link.cause} {arrow} {link.effect}",
                strength=link.strength,
                direction_identifiable=link.direction_identifiable,
                link_confidence=link.link_confidence,
                direction_confidence=link.direction_confidence,
                test_explained=link.test_explained,
                test_accuracy=link.test_accuracy,
                trend=link.trend,
            )
        )
    columns = [link_column(model, data, name) for name in data.names]
    return answers.FindingsAnswer(
        run=run.number,
        links=links,
        columns=[
            answers.ColumnAnswer(
                column=link.column,
                latent=link.latent,
                text=link.text,
                edge=link.edge,
                association=link.association,
                sign=link.sign,
            )
            for link in columns
        ],
        threshold=measured.threshold,
        resamples=measured.resamples,
    )


def sample(run: ServedRun, request: SampleRequest) -> answers.SampleAnswer:
    """Answer POST sample: pictures drawn from the model, under do() if it is causal."""
    do = read_do(run, request.do)
    drawn = run.model.sample(request.count, do or None, seed=request.seed).cpu()
    images = drawn if drawn.ndim == 4 else drawn[:, 0]
    argument = f", do={python_do(do)}" if do else ""
    query = f"pictures = model.sample({request.count}{argument}, seed={request.seed})"
    return answers.SampleAnswer(
        run=run.number, pictures=to_pngs(images), code=repeat(run, [], query, None)
    )
