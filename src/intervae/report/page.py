"""The report of a CMCL run: one HTML file with the graph, its confidence and diagnostics.

The file loads nothing from outside, which its policy forbids, and has no script. All text from
the data is escaped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import intervae
from intervae.data import Dataset, Variable
from intervae.errors import QueryError
from intervae.files import read_json, write_text
from intervae.models.base import Model
from intervae.models.capabilities import TableLinks
from intervae.report.column_dependence import SIGNIFICANT, ColumnDependence, column_dependences
from intervae.report.diagnostics import CHECKS, Diagnostic, diagnose
from intervae.report.findings import Findings, collect_findings
from intervae.report.link_figures import reconstruction_figure
from intervae.report.link_sections import (
    columns_section,
    graph_section,
    links_section,
    summary_section,
)
from intervae.report.markup import count, escape_text, facts_list, html_table, section
from intervae.report.stylesheet import STYLE

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
MAX_PAIRS = 10  # of columns, in the table of dependences
MAX_CATEGORIES = 12  # of a column, in the table of columns


def can_report(model: Model) -> bool:
    """Whether a model learns links between latents and columns, which a report is about."""
    return isinstance(model, TableLinks)


def write_report(
    model: Model, data: Dataset, folder: str | Path, *, resamples: int | None = None, seed: int = 0
) -> Path:
    """Write `folder`/report.html on a trained CMCL and its data, and return the path.

    Arguments:
        resamples: resampled tables for confidence; by default 25 to 100, about 20 seconds.
        seed: seed of the resampling.
    """
    if not can_report(model):
        raise QueryError(
            f"a report is about links between latents and columns, which {model.name} does not "
            "learn; train cmcl."
        )
    if not model.trained:
        raise QueryError("a report needs a trained model; call fit(data) first.")
    path, config = Path(folder) / "report.html", {}
    if (Path(folder) / "config.json").is_file():
        config = read_json(Path(folder) / "config.json", "the run's settings")
    findings = collect_findings(model, data, resamples=resamples, seed=seed)
    dependences = column_dependences(data, seed=seed)
    write_text(path, report_page(model, data, findings, dependences, config))
    return path


def report_page(
    model: Model,
    data: Dataset,
    findings: Findings,
    dependences: list[ColumnDependence],
    config: dict[str, Any],
) -> str:
    """The HTML of the report; `config` is that of the run folder, or empty."""
    diagnostics = diagnose(findings, data, dependences)
    sections = [
        _header(data, findings),
        summary_section(findings, diagnostics),
        _diagnostics_section(diagnostics),
        graph_section(findings),
        columns_section(findings, diagnostics),
        links_section(model, data, findings, diagnostics),
        _latents_section(findings),
        section("Reconstructions", reconstruction_figure(model, data)),
        _dependence_section(dependences),
        _run_section(model, data, findings, config),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_title(data)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(text for text in sections if text)
        + "\n</main>\n</body>\n</html>\n"
    )


def _title(data: Dataset) -> str:
    return f"Causal links: {escape_text(data.name)}"


def _header(data: Dataset, findings: Findings) -> str:
    nodes = {node for link in findings.links for node in link.nodes}
    linked = len(nodes - set(findings.latents))
    lead = (
        f"{sum(findings.rows):,} images and a table of {count(len(findings.columns), 'column')}. "
        f"{count(len(findings.latents), 'latent')} were learned from the images; "
        f"{count(linked, 'column')} of the table {'is' if linked == 1 else 'are'} linked to them."
    )
    return f'<header><h1>{_title(data)}</h1><p class="lead">{lead}</p></header>'


def _diagnostics_section(diagnostics: list[Diagnostic]) -> str:
    kinds = list(dict.fromkeys(d.kind for d in diagnostics))
    body = '<p class="fine">All checks passed.</p>'
    if diagnostics:
        items = ""
        for kind in kinds:
            texts = "<br>".join(escape_text(d.text) for d in diagnostics if d.kind == kind)
            items += f"<li><b>{kind}</b>{texts}</li>"
        body = f'<ul class="diagnostics">{items}</ul>'
    passed = "; ".join(text for kind, text in CHECKS.items() if kind not in kinds)
    if passed:
        body += f'<p class="note">Checks passed: {passed}.</p>'
    unchecked = (
        "Cannot be checked from data: that no variable outside the table causes both a column and "
        "a latent."
    )
    return section(f"Diagnostics ({len(diagnostics)})", body, unchecked)


def _latents_section(findings: Findings) -> str:
    rows = []
    for latent, copied in zip(findings.latents, findings.label_influence, strict=True):
        links = [
            f"{escape_text(link.cause)} → {escape_text(link.effect)}"
            for link in findings.links_of(latent)
        ]
        rows.append(
            f'<tr><td class="name">{escape_text(latent)}</td><td>{", ".join(links) or "no link"}'
            f'</td><td class="number">{copied:.0%}</td></tr>'
        )
    note = (
        "Copied from labels: how much of a latent follows the labels given to the encoder and not "
        "the image, measured by swapping labels between images. The graph and all numbers above "
        "use latents inferred from the images alone where the encoder can."
    )
    table = html_table(("latent", "links"), ("copied from labels",), rows, scroll=False)
    return section("Latents", table, note)


def _dependence_section(pairs: list[ColumnDependence]) -> str:
    if not pairs:
        return ""
    rows = []
    for d in pairs[:MAX_PAIRS]:
        mark = ' class="diagnostic"' if d.p < SIGNIFICANT else ""
        p = "&lt; 0.0001" if d.p < 1e-4 else f"{d.p:.2g}"
        rows.append(
            f'<tr{mark}><td class="name">{escape_text(d.first)}, {escape_text(d.second)}</td>'
            f'<td>{d.measure}</td><td class="number">{d.size:.2f}</td>'
            f'<td class="number">{p}</td></tr>'
        )
    note = (
        "p-values of independence by a kernel test (HSIC), corrected for "
        f"{count(len(pairs), 'pair')} (Holm)."
    )
    if len(pairs) > MAX_PAIRS:
        note += f" The {MAX_PAIRS} most dependent of {len(pairs)} pairs are shown."
    table = html_table(("columns", "measure"), ("value", "p"), rows)
    return section("Dependence between columns", table, note)


# ---- how the run was made ------------------------------------------------------------------------
def _run_section(model: Model, data: Dataset, findings: Findings, config: dict[str, Any]) -> str:
    columns = [
        f'<tr><td class="name">{escape_text(v.name)}</td><td>{v.kind}</td>'
        f"<td>{escape_text(_value_range(v))}</td></tr>"
        for v in findings.columns
    ]
    body = facts_list(_run_facts(model, findings, config))
    body += html_table(("column", "kind", "values in training"), (), columns, scroll=False)
    notes = "".join(f"<li>{escape_text(note.text)}</li>" for note in data.notes)
    if notes:
        body += f'<h3>Notes on the data</h3><ul class="note">{notes}</ul>'
    settings = "".join(
        f"<tr><td>{escape_text(name)}</td><td>{escape_text(value)}</td></tr>"
        for name, value in sorted(vars(model.settings).items())
    )
    table = f"<table><tbody>{settings}</tbody></table>"
    body += f"<details><summary>All settings</summary>{table}</details>"
    footer = (
        "<footer>The links hold under the assumptions checked above, and a latent is known only up "
        "to a monotone map. Write this page again with <code>intervae report RUN</code>.</footer>"
    )
    return section("Run", body) + footer


def _run_facts(model: Model, findings: Findings, config: dict[str, Any]) -> dict[str, Any]:
    train, validation, test = findings.rows
    shape = " x ".join(map(str, model.spec.image_shape))
    parameters = sum(p.numel() for p in model.parameters())
    facts: dict[str, Any] = {
        "model": f"{model.title}; {parameters:,} parameters",
        "images": f"{train:,} training, {validation:,} validation, {test:,} test; {shape}",
    }
    source = config.get("data") or {}
    if source.get("path") or source.get("name"):
        facts["data"] = source.get("path") or source.get("name")
    if "seconds" in config:
        hardware = config.get("hardware", "unknown hardware")
        facts["training"] = (
            f"seed {config.get('seed')}, {config['seconds']:.0f} s on {hardware}, "
            f"{config.get('date', '')}"
        )
    version = config.get("intervae", intervae.__version__)
    facts["software"] = f"intervae {version}, revision {config.get('revision') or 'unknown'}"
    if config.get("command"):
        facts["command"] = config["command"]
    return facts


def _value_range(variable: Variable) -> str:
    if not variable.categories:
        return f"{variable.low:.4g} to {variable.high:.4g} {variable.unit}".strip()
    return variable.describe_values(MAX_CATEGORIES)
