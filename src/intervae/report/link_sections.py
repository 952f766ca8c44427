"""Sections of the report about links: summary, graph, table of columns, one card per link."""

from __future__ import annotations

from intervae.data import Dataset
from intervae.models.base import Model
from intervae.report.diagnostics import Diagnostic
from intervae.report.findings import Findings, LinkFinding
from intervae.report.link_figures import column_strip, latent_strip, link_curve, link_heat_maps
from intervae.report.markup import escape_text, facts_list, html_table, join_words, section
from intervae.report.svg import graph_svg

# diagnostics that put the direction of a link in doubt
DIRECTION_DOUBTS = ("uncertain direction", "linear relation", "weak link", "copied from labels")
CLEAR_TREND = 0.3  # absolute rank correlation from which a trend is stated


def summary_section(findings: Findings, diagnostics: list[Diagnostic]) -> str:
    """All links in words."""
    items = "".join(
        f"<li>{_sentence(link, findings, diagnostics)} ({_confidence(link)})."
        f"{_diagnostic_kinds(link, diagnostics)}</li>"
        for link in findings.links
    )
    unlinked = [escape_text(v.name) for v in findings.columns if not findings.links_of(v.name)]
    body = f"<ul>{items}</ul>" if items else ""
    if unlinked:
        body += f"<p>No link was found for {join_words(unlinked)}.</p>"
    return section("Summary", body)


def graph_section(findings: Findings) -> str:
    """The graph, with a caption that defines strength and confidence."""
    if not findings.links:
        return ""
    label = "strength" if findings.confidence is None else "strength · confidence"
    caption = (
        f"Edge labels: {label}. Blue: the column causes the latent. Orange: the latent causes the "
        "column. Grey, dashed, without arrow head: the direction is not identifiable. "
        f"Strength is {_strength_definition(findings)}."
    )
    if findings.confidence is not None:
        failed = findings.failed_resamples
        unused = f" ({failed} could not be used)" if failed else ""
        caption += (
            f" Confidence is the fraction of {findings.resamples} tables{unused}, resampled with "
            f"replacement from {findings.resampled_rows:,} rows, with the same edge "
            f"({findings.seconds:.0f} s). The encoder was not retrained: confidence is about these "
            "latents."
        )
    figure = f"{graph_svg(findings)}<figcaption>{caption}</figcaption>"
    return section("Graph", f'<figure class="scroll">{figure}</figure>')


def _strength_definition(findings: Findings) -> str:
    if not findings.by_likelihood:
        return (
            "the square root of the fraction of the effect's variance that the cause explains (for "
            "a binary or categorical effect, the standard deviation of its logits)"
        )
    return (
        "the square root of R², of the better explained of the two; for a column with categories, "
        "of the latent's variance between them"
    )


def columns_section(findings: Findings, diagnostics: list[Diagnostic]) -> str:
    """Table with the link of every column."""
    rows = []
    for variable in findings.columns:
        name = escape_text(variable.name)
        first = f'<td class="name">{name}</td><td>{variable.kind}</td>'
        links = findings.links_of(variable.name)
        for link in links:
            text = f"{_relation(link, variable.name)}{_diagnostic_kinds(link, diagnostics)}"
            rows.append(f'<tr>{first}<td class="words">{text}</td>{_number_cells(link)}</tr>')
        if not links:
            rows.append(f'<tr>{first}<td colspan="5">no link</td></tr>')
    heads = ("column", "kind", "link")
    numeric = ("strength", "link confidence", "direction confidence", "explained on test images")
    note = (
        "Link confidence: fraction of the resampled tables with a link in either direction. "
        "Direction confidence: fraction of those with this direction (– where it is not "
        "identifiable). Explained on test images: fraction of the effect's variance, or of its "
        "log-likelihood if it has categories."
    )
    return section("Columns", html_table(heads, numeric, rows), note)


def links_section(
    model: Model, data: Dataset, findings: Findings, diagnostics: list[Diagnostic]
) -> str:
    """One card per link: facts, diagnostics, curve, images under do(), heat maps."""
    cards, with_strip = [], set()
    for link in findings.links:
        own = [d for d in diagnostics if set(d.nodes) == set(link.nodes)]
        items = "".join(f"<li>{escape_text(d.text)}</li>" for d in own)
        text = (
            f"<h3>{escape_text(link.cause)} → {escape_text(link.effect)}</h3>"
            f"<p>{_sentence(link, findings, diagnostics)}.</p>{facts_list(_facts(link))}"
        )
        text += f'<ul class="diagnostics">{items}</ul>' if items else ""
        curve = link_curve(model, data, link)
        card = f'<div class="two"><div>{text}</div><div>{curve}</div></div>'
        if link.cause not in with_strip and (strip := _strip(model, data, findings, link)):
            with_strip.add(link.cause)
            card += strip
        if link.effect in data.names and not findings.changes_images(link.effect):
            card += f'<p class="note">{_no_change(link, diagnostics)}</p>'
        latents = [node for node in link.nodes if node in findings.latents]
        card += "".join(link_heat_maps(model, data, latent, link) for latent in latents)
        cards.append(f"<article>{card}</article>")
    return section("Links", "".join(cards)) if cards else ""


def _strip(model: Model, data: Dataset, findings: Findings, link: LinkFinding) -> str:
    """Images under do() on the cause; "" for a link among columns or among latents."""
    if link.cause in data.names and link.effect in findings.latents:
        return column_strip(model, data, link.cause)
    if link.cause in findings.latents and link.effect in data.names:
        links = [other for other in findings.links_of(link.cause) if other.cause == link.cause]
        effects = [other.effect for other in links if other.effect in data.names]
        return latent_strip(model, data, link.cause, effects)
    return ""


# ---- one link in words ---------------------------------------------------------------------------
def _doubt(link: LinkFinding, diagnostics: list[Diagnostic]) -> str:
    """The condition under which a sentence about the direction of a link holds; "" if none."""
    kinds = [d.kind for d in diagnostics if set(d.nodes) == set(link.nodes)]
    doubts = [kind for kind in DIRECTION_DOUBTS if kind in kinds]
    return f"if this direction is right, which is doubtful ({doubts[0]}), " if doubts else ""


def _sentence(link: LinkFinding, findings: Findings, diagnostics: list[Diagnostic]) -> str:
    cause, effect = (f'<span class="name">{escape_text(name)}</span>' for name in link.nodes)
    cause_is_latent, effect_is_latent = (node in findings.latents for node in link.nodes)
    doubt = _doubt(link, diagnostics)
    if not link.direction_identifiable:
        column, latent = (effect, cause) if cause_is_latent else (cause, effect)
        text = (
            f"{column} is linked to {latent}; the direction is not identifiable ({cause} → "
            f"{effect} is the model's choice)"
        )
    elif effect_is_latent and not cause_is_latent:
        text = (
            f'{cause} <span class="acts-word">causes</span> {effect}: {doubt}changing {cause} '
            "would change the image"
        )
    elif cause_is_latent and not effect_is_latent:
        text = f'{effect} <span class="shows-word">is caused by</span> {cause}'
        if not findings.changes_images(link.effect):
            text += f": {doubt}changing {effect} would not change the image"
    else:
        text = f"{cause} causes {effect}"
    return text + _trend(link)


def _relation(link: LinkFinding, column: str) -> str:
    """Link as seen from a column, such as "causes z0; z0 increases with dose."."""
    partner = escape_text(link.effect if link.cause == column else link.cause)
    if not link.direction_identifiable:
        word = "linked to"
    elif link.cause == column:
        word = '<span class="acts-word">causes</span>'
    else:
        word = '<span class="shows-word">is caused by</span>'
    return f"{word} {partner}{_trend(link)}."


def _trend(link: LinkFinding) -> str:
    if link.trend is None or abs(link.trend) < CLEAR_TREND:
        return ""
    verb = "increases" if link.trend > 0 else "decreases"
    return f"; {escape_text(link.effect)} {verb} with {escape_text(link.cause)}"


def _confidence(link: LinkFinding) -> str:
    if link.link_confidence is None:
        return "too few rows for a confidence"
    text = f"link confidence {link.link_confidence:.0%}"
    if not link.direction_identifiable:
        return f"{text}, direction not identifiable"
    return f"{text}, direction confidence {_percent(link.direction_confidence)}"


def _diagnostic_kinds(link: LinkFinding, diagnostics: list[Diagnostic]) -> str:
    own = [d.kind for d in diagnostics if set(d.nodes) >= set(link.nodes)]
    kinds = ", ".join(dict.fromkeys(own))
    return f" <em>Diagnostic: {kinds}.</em>" if kinds else ""


def _no_change(link: LinkFinding, diagnostics: list[Diagnostic]) -> str:
    effect = escape_text(link.effect)
    if doubt := _doubt(link, diagnostics):
        condition = doubt.removesuffix(", ")
        return (
            f"do({effect} = …) does not change the image: {effect} is only an effect {condition}."
        )
    if link.direction_identifiable:
        reason = f"{effect} is only an effect"
    else:
        reason = f"the model treats {effect} as an effect; the direction is not identifiable"
    return f"do({effect} = …) does not change the image: {reason}."


def _facts(link: LinkFinding) -> dict[str, str]:
    margin = "" if link.margin is None else f"; margin for this direction {link.margin:.0f} nats"
    return {
        "strength": f"{link.strength:.2f}{margin}",
        "confidence": _confidence(link),
        "on test images": f"{link.test_explained:.0%} explained{_accuracy(link)}",
        "from the image alone": f"strength {link.strength_without_labels:.2f}",
    }


def _number_cells(link: LinkFinding) -> str:
    texts = [
        f"{link.strength:.2f}",
        _percent(link.link_confidence),
        _percent(link.direction_confidence),
        f"{link.test_explained:.0%}{_accuracy(link)}",
    ]
    return "".join(f'<td class="number">{text}</td>' for text in texts)


def _accuracy(link: LinkFinding) -> str:
    return "" if link.test_accuracy is None else f", accuracy {link.test_accuracy:.0%}"


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else f"{fraction:.0%}"
