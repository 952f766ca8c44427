"""Diagnostics of a CMCL run: checks of the model's assumptions and of the support of each link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intervae.data import Dataset
from intervae.report.column_dependence import SIGNIFICANT, ColumnDependence
from intervae.report.findings import Findings, LinkFinding

CONFIDENT = 0.7  # confidence of a link or direction below which it is reported
REVERSE_RATIO = 0.9  # reverse strength over strength above which a direction is uncertain
MIN_MARGIN = 3.0  # margin of a direction below which it is uncertain: odds of 20 to 1
CHANCE_STDS = 2.0  # standard deviations of the chance margin that the margin must exceed
MIN_UNEXPLAINED = 0.02  # unexplained variance below which margins are no evidence (docs/cmcl.md)
MIN_ROWS, MIN_ROWS_PER_NODE = 300, 15  # training images
MIN_PER_CATEGORY = 10  # training images


@dataclass(frozen=True)
class Diagnostic:
    """One failed check.

    Arguments:
        kind: a key of CHECKS.
        nodes: the latents and columns concerned.
        text: one or two sentences.
    """

    kind: str
    nodes: tuple[str, ...]
    text: str


# kind -> what holds where the check is passed
CHECKS = {
    "dependent columns": "columns of the table are independent of each other",
    "several links": "every latent and every column has at most one link",
    "unidentifiable direction": "all links are with numeric columns",
    "uncertain direction": f"every direction has a confidence of {CONFIDENT:.0%} and a clear "
    "margin",
    "linear relation": "links between numbers are curved",
    "weak link": f"every link has a confidence of {CONFIDENT:.0%}",
    "no test fit": "links explain something on test images",
    "copied from labels": "links hold for latents inferred from the images alone",
    "few latents": "there are at least as many latents as columns",
    "few rows": "there are enough images, and enough of every category",
    "no links": "there are links",
}


def diagnose(
    findings: Findings, data: Dataset, dependences: Sequence[ColumnDependence]
) -> list[Diagnostic]:
    """Run all checks and return those that failed, the most basic first."""
    diagnostics = [_dependent_columns(d) for d in dependences if d.p < SIGNIFICANT]
    diagnostics += _several_links(findings)
    for link in findings.links:
        diagnostics += _check_link(link, findings)
    if len(findings.latents) < len(findings.columns):
        text = (
            f"There are {len(findings.columns)} columns but only {len(findings.latents)} latents. "
            "With at most one link each, some columns cannot have one; train with more latents."
        )
        diagnostics.append(Diagnostic("few latents", (), text))
    diagnostics += _few_rows(findings, data)
    if not findings.links:
        text = (
            f"No column has a link with a strength of {findings.threshold:g} or more. Try more "
            "epochs, more images, or likelihood=gaussian with a small scale; or there is no link."
        )
        diagnostics.append(Diagnostic("no links", (), text))
    return diagnostics


def _dependent_columns(d: ColumnDependence) -> Diagnostic:
    p = "below 0.0001" if d.p < 1e-4 else f"{d.p:.2g}"
    text = (
        f"{d.first} and {d.second} depend on each other ({d.measure} {d.size:.2f}, p {p}), but "
        "columns are assumed to be independent. A link of one may be a link of the other; train "
        "again with only one of them."
    )
    return Diagnostic("dependent columns", (d.first, d.second), text)


def _several_links(findings: Findings) -> list[Diagnostic]:
    diagnostics = []
    for node in findings.graph.names:
        links = findings.links_of(node)
        partners = [link.effect if link.cause == node else link.cause for link in links]
        if len(partners) > 1:
            text = (
                f"{node} has {len(partners)} links ({', '.join(partners)}), but at most one is "
                "assumed. Several latents may encode one feature of the image, or several columns "
                "may describe it."
            )
            diagnostics.append(Diagnostic("several links", (node, *partners), text))
    return diagnostics


def _check_link(link: LinkFinding, findings: Findings) -> list[Diagnostic]:
    diagnostics = []

    def add(kind: str, text: str) -> None:
        diagnostics.append(Diagnostic(kind, link.nodes, f"{link.cause} → {link.effect}: {text}"))

    weak = link.link_confidence is not None and link.link_confidence < CONFIDENT
    if weak:
        add(
            "weak link",
            f"the two are linked in only {link.link_confidence:.0%} of the resampled tables.",
        )
    latent, column = link.nodes if link.cause in findings.latents else link.nodes[::-1]
    if not link.direction_identifiable:
        add(
            "unidentifiable direction",
            f"{column} has categories, and a latent is known only up to a monotone map, so both "
            "directions fit the same rows. The direction is arbitrary and is not evidence.",
        )
    elif not weak:
        diagnostics += _check_direction(link)
    if link.test_explained <= 0:
        add(
            "no test fit",
            f"on the {findings.rows[2]} test images the model predicts {link.effect} no better "
            "than a constant.",
        )
    if link.strength_without_labels < findings.threshold <= link.strength_with_labels:
        add(
            "copied from labels",
            f"the link disappears (strength {link.strength_without_labels:.2f} instead of "
            f"{link.strength_with_labels:.2f}) when {latent} is inferred without its own labels. "
            f"{latent} copies the labels, so the link says nothing about the images. Train with "
            "label_dropout=0.5 or more.",
        )
    return diagnostics


def _check_direction(link: LinkFinding) -> list[Diagnostic]:
    """Return the first reason to mistrust an identifiable direction, if any."""
    kind, text = "uncertain direction", ""
    unexplained = 1 - link.strength**2
    if link.linear_gaussian:
        kind = "linear relation"
        text = "the relation looks linear and Gaussian, which has no identifiable direction."
    elif link.margin is not None and unexplained < MIN_UNEXPLAINED:
        text = (
            f"only {unexplained:.1%} of the variance is unexplained, so both directions fit. "
            f"Below {MIN_UNEXPLAINED:.0%} the margin has favoured the wrong direction by more than "
            f"200 nats, so {link.margin:.0f} nats are no evidence."
        )
    elif link.direction_confidence is not None and link.direction_confidence < CONFIDENT:
        text = (
            f"only {link.direction_confidence:.0%} of the resampled tables with this link have "
            "this direction."
        )
        if link.direction_confidence < 0.5:
            text += " Most have the opposite one."
    elif link.margin is not None and link.margin < max(
        MIN_MARGIN, CHANCE_STDS * (link.chance_std or 0.0)
    ):
        text = f"the margin for this direction is only {link.margin:.1f} nats"
        if link.chance_std is not None:
            text += f"; with unrelated latents it has a standard deviation of {link.chance_std:.1f}"
        text += "."
    elif link.reverse_strength > REVERSE_RATIO * link.strength:
        text = (
            f"the model gives the opposite direction nearly the same weight "
            f"({link.reverse_strength:.2f} and {link.strength:.2f})."
        )
    if not text:
        return []
    return [Diagnostic(kind, link.nodes, f"{link.cause} → {link.effect}: {text}")]


def _few_rows(findings: Findings, data: Dataset) -> list[Diagnostic]:
    diagnostics = []
    nodes, train = len(findings.graph), findings.rows[0]
    needed = max(MIN_ROWS, MIN_ROWS_PER_NODE * nodes)
    if train < needed:
        text = (
            f"There are {train} training images for {nodes} latents and columns; directions need "
            f"at least {needed}."
        )
        if findings.confidence is None:
            text += f" {findings.resampled_rows} rows are too few to estimate confidence."
        diagnostics.append(Diagnostic("few rows", (), text))
    for i, variable in enumerate(data.variables):
        if variable.kind == "continuous":
            continue
        codes, counts = np.unique(data.train.labels[:, i].cpu().numpy(), return_counts=True)
        rare = [
            f"{variable.format_value(code)} ({count})"
            for code, count in zip(codes, counts, strict=True)
            if count < MIN_PER_CATEGORY
        ]
        if rare:
            more = f" and {len(rare) - 5} more" if len(rare) > 5 else ""
            text = (
                f"{variable.name}: fewer than {MIN_PER_CATEGORY} training images have the value "
                f"{', '.join(rare[:5])}{more}; merge rare values."
            )
            diagnostics.append(Diagnostic("few rows", (variable.name,), text))
    return diagnostics
