"""The report of a CMCL run: one HTML file with everything inside, for a person who wants to know what causes what and how far to trust it.

Nothing is loaded from outside (a policy in the file forbids it), there is no script, and every word that comes from the data is escaped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import intervae
from intervae.data.base import Dataset
from intervae.errors import QueryError
from intervae.files import read_json, write_text
from intervae.models.base import Model
from intervae.models.cmcl_queries import CrossModalQueries
from intervae.report.doubts import CHECKS, SIGNIFICANT, Dependence, Doubt, column_dependences, doubts
from intervae.report.drawings import graph_svg, words
from intervae.report.findings import Findings, LinkFound, find
from intervae.report.links import latent_strip, link_curve, link_heat_maps, link_strip, reconstruction_rows
from intervae.report.stylesheet import STYLE

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
SHOWN_PAIRS = 10  # of columns, in the table of dependences


def tells_of(model: Model) -> bool:
    """Whether there is a report of such a model: it must learn links between latents of pictures and columns of a table."""
    return isinstance(model, CrossModalQueries)


def write_report(model: Model, data: Dataset, folder: str | Path, *, resamples: int | None = None, seed: int = 0) -> Path:
    """Write `folder`/report.html on a trained CMCL and the data it was trained on; returns its path.

    Arguments:
        resamples: tables drawn for the confidence of links; without, 25 to 100, as many as take about 20 seconds.
        seed: which rows are drawn.
    """
    if not isinstance(model, CrossModalQueries):
        raise QueryError(f"a report tells of links between latents and columns, which {model.name} does not learn; train cmcl.")
    if not model.trained:
        raise QueryError("a report needs a trained model; call fit(data) first.")
    path = Path(folder) / "report.html"
    config = read_json(Path(folder) / "config.json", "the run's settings") if (Path(folder) / "config.json").is_file() else {}
    found = find(model, data, resamples=resamples, seed=seed)
    write_text(path, page(model, data, found, column_dependences(data, seed=seed), config))
    return path


def page(model: CrossModalQueries, data: Dataset, found: Findings, dependences: list[Dependence], config: dict[str, Any]) -> str:
    """The whole file."""
    said = doubts(found, data, dependences)
    parts = [
        _opening(data, found),
        _in_short(found, said),
        _doubts(said),
        _graph(found),
        _columns(found, said),
        _links(model, data, found, said),
        _latents(found),
        _sees(model, data),
        _dependences(dependences),
        _made(model, data, found, config),
    ]
    title = f"What causes what: {words(data.name)}"
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


# ---- what was found -------------------------------------------------------------------------------------------------
def _opening(data: Dataset, found: Findings) -> str:
    linked = {node for link in found.links for node in (link.cause, link.effect)} - set(found.latents)
    lead = (
        f"{sum(found.rows):,} images and a table of {_count(len(found.columns), 'column')}. {_count(len(found.latents), 'latent')} were learned "
        f"from the pictures, and {_count(len(linked), 'column')} of the table {'is' if len(linked) == 1 else 'are'} linked with them."
    )
    return f'<header><h1>What causes what: {words(data.name)}</h1><p class="lead">{lead}</p></header>'


def _in_short(found: Findings, said: list[Doubt]) -> str:
    items = "".join(f"<li>{_sentence(link, found)} ({_sure(link)}).{_mark(link, said)}</li>" for link in found.links)
    loose = [words(v.name) for v in found.columns if not found.of(v.name)]
    none = f"<p>No link was found for {_listed(loose)}.</p>" if loose else ""
    return f"<section><h2>In short</h2>{f'<ul>{items}</ul>' if items else ''}{none}</section>"


def _sentence(link: LinkFound, found: Findings) -> str:
    cause, effect = (f'<span class="name">{words(name)}</span>' for name in (link.cause, link.effect))
    if not link.directed:
        column, latent = (effect, cause) if link.cause in found.latents else (cause, effect)
        text = f"{column} goes with {latent}; which of the two is the cause cannot be told ({cause} → {effect} is the model's choice)"
    elif link.cause not in found.latents and link.effect in found.latents:
        text = f'{cause} <span class="acts-word">causes</span> {effect}: changing {cause} would change the picture'
    elif link.cause in found.latents and link.effect not in found.latents:
        text = f'{effect} <span class="shows-word">is caused by</span> {cause}: what {cause} shows in the picture makes {effect}'
        text += "" if acts(found, link.effect) else f", and changing {effect} would not change the picture"
    else:
        text = f"{cause} causes {effect}"
    return text + _trend(link)


def acts(found: Findings, column: str) -> bool:
    """Whether do() of a column changes pictures."""
    return any(node in found.latents for node in found.graph.descendants(column))


def _trend(link: LinkFound) -> str:
    if link.trend is None or abs(link.trend) < 0.3:
        return ""
    return f"; {words(link.effect)} {'grows' if link.trend > 0 else 'falls'} with {words(link.cause)}"


def _sure(link: LinkFound) -> str:
    if link.present is None:
        return "too few rows to tell how sure that is"
    if not link.directed:
        return f"sure of the link {link.present:.0%}; the direction cannot be told"
    return f"sure of the link {link.present:.0%}, of the direction {'–' if link.direction is None else f'{link.direction:.0%}'}"


def _mark(link: LinkFound, said: list[Doubt]) -> str:
    kinds = list(dict.fromkeys(d.kind for d in said if set(d.about) >= {link.cause, link.effect}))
    return f" <em>Doubt: {', '.join(kinds)}.</em>" if kinds else ""


def _doubts(said: list[Doubt]) -> str:
    passed = [text for kind, text in CHECKS.items() if kind not in {d.kind for d in said}]
    kinds = list(dict.fromkeys(d.kind for d in said))
    items = "".join(f"<li><b>{kind}</b>{'<br>'.join(words(d.text) for d in said if d.kind == kind)}</li>" for kind in kinds)
    listed = f'<ul class="doubts">{items}</ul>' if said else '<p class="fine">Nothing that was checked speaks against the assumptions.</p>'
    checked = f'<p class="note">Checked and in order: {"; ".join(passed)}.</p>' if passed else ""
    never = '<p class="note">Not checked, as no data can tell: that nothing causes a column and a latent together without being in the table.</p>'
    return f"<section><h2>Doubts ({len(said)})</h2>{listed}{checked}{never}</section>"


def _graph(found: Findings) -> str:
    if not found.links:
        return ""
    sure = "strength · confidence" if found.confidence is not None else "strength"
    caption = (
        f"On the arrows: {sure}. Blue: a column acts on the picture. Orange: the picture shows the cause of a column. Grey, dashed and "
        f"without a head: the direction cannot be told. Strength is {_strength(found)}."
    )
    if found.confidence is not None:
        lost = f" ({found.unused} could not be used)" if found.unused else ""
        caption += (
            f" Confidence is the share of {found.resamples} tables{lost}, of {found.resampled_rows:,} rows drawn anew with replacement, in which the "
            f"arrow is found again ({found.seconds:.0f} s). The encoder was not trained again: it is about these latents."
        )
    return f'<section><h2>The graph</h2><figure class="scroll">{graph_svg(found)}<figcaption>{caption}</figcaption></figure></section>'


def _strength(found: Findings) -> str:
    if not found.by_likelihood:
        return "the root of the share of the effect's variance that the cause explains (of a binary or categorical effect, the spread of its logits)"
    return (
        "the root of the share of its variance that one of the two owes to the other, of the better explained one; where a column has categories, of "
        "the latent's variance between them"
    )


def _columns(found: Findings, said: list[Doubt]) -> str:
    heads = ("column", "kind", "link"), ("strength", "sure of the link", "of the direction", "on test images")
    rows = []
    for variable in found.columns:
        first = f'<td class="name">{words(variable.name)}</td><td>{variable.kind}</td>'
        links = found.of(variable.name)
        told = [f'<td class="words">{_in_words(link, variable.name)}{_mark(link, said)}</td>{_numbers(link)}' for link in links]
        rows += [f"<tr>{first}{cells}</tr>" for cells in told]
        if not links:
            rows.append(f'<tr>{first}<td colspan="5">no link</td></tr>')
    head = "".join(f"<th>{h}</th>" for h in heads[0]) + "".join(f'<th class="number">{h}</th>' for h in heads[1])
    note = (
        "Sure of the link: share of the resampled tables in which the two have an arrow either way; of the direction: share of those that point as "
        "told (– where it cannot be told); on test images: share of the effect's variance that the model predicts there, or of its log-"
        "likelihood if it is not a number."
    )
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    return f'<section><h2>Column by column</h2>{table}<p class="note">{note}</p></section>'


def _in_words(link: LinkFound, column: str) -> str:
    other = link.effect if link.cause == column else link.cause
    if not link.directed:
        return f"goes with {words(other)}{_trend(link)}."
    word = '<span class="acts-word">causes</span>' if link.cause == column else '<span class="shows-word">is caused by</span>'
    return f"{word} {words(other)}{_trend(link)}."


def _numbers(link: LinkFound) -> str:
    held = f"{link.held_out:.0%}" + (f", {link.accuracy:.0%} right" if link.accuracy is not None else "")
    shown = [f"{link.strength:.2f}", *("–" if share is None else f"{share:.0%}" for share in (link.present, link.direction)), held]
    return "".join(f'<td class="number">{text}</td>' for text in shown)


def _links(model: CrossModalQueries, data: Dataset, found: Findings, said: list[Doubt]) -> str:
    cards, shown = [], set()
    for link in found.links:
        own = "".join(f"<li>{words(d.text)}</li>" for d in said if set(d.about) == {link.cause, link.effect})
        facts = {
            "strength": f"{link.strength:.2f}" + ("" if link.margin is None else f"; for this direction {link.margin:.0f} nats"),
            "confidence": _sure(link),
            "on test images": f"{link.held_out:.0%} explained" + (f", {link.accuracy:.0%} right" if link.accuracy is not None else ""),
            "from the picture alone": f"strength {link.alone:.2f}",
        }
        pieces = [f'<div class="two"><div><h3>{words(link.cause)} → {words(link.effect)}</h3><p>{_sentence(link, found)}.</p>{_facts(facts)}']
        pieces.append(f"{f'<ul class=doubts>{own}</ul>' if own else ''}</div><div>{link_curve(model, data, link)}</div></div>")
        if link.cause in data.names and link.effect in found.latents and link.cause not in shown:
            shown.add(link.cause)
            pieces.append(link_strip(model, data, link.cause))
        if link.cause in found.latents and link.effect in data.names and link.cause not in shown:
            shown.add(link.cause)
            effects = [other.effect for other in found.of(link.cause) if other.cause == link.cause and other.effect in data.names]
            pieces.append(latent_strip(model, data, link.cause, effects))
        if link.effect in data.names and not acts(found, link.effect):
            effect = words(link.effect)
            why = f"{effect} is only an effect" if link.directed else f"the model takes {effect} for an effect, which cannot be told"
            pieces.append(f'<p class="note">do({effect} = …): the picture does not change, whatever the value, as {why}.</p>')
        latents = [node for node in (link.cause, link.effect) if node in found.latents]
        pieces += [link_heat_maps(model, data, latent, link) for latent in latents]
        cards.append(f"<article>{''.join(pieces)}</article>")
    return f"<section><h2>Link by link</h2>{''.join(cards)}</section>" if cards else ""


def _latents(found: Findings) -> str:
    rows = []
    for latent, copied in zip(found.latents, found.label_influence, strict=True):
        linked = ", ".join(f"{words(link.cause)} → {words(link.effect)}" for link in found.of(latent)) or "no link"
        rows.append(f'<tr><td class="name">{words(latent)}</td><td>{linked}</td><td class="number">{copied:.0%}</td></tr>')
    note = (
        "Copied from the table: how much of a latent follows the row of the table that the encoder is shown and not the picture, when rows are "
        "exchanged between pictures. The graph and all numbers above use latents that were read off the pictures alone where the encoder can."
    )
    head = '<tr><th>latent</th><th>links</th><th class="number">copied from the table</th></tr>'
    return f'<section><h2>Latents</h2><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table><p class="note">{note}</p></section>'


def _sees(model: CrossModalQueries, data: Dataset) -> str:
    caption = "Test images, and what the latents keep of them. What is not in the second line cannot have a link."
    rows = reconstruction_rows(model, data)
    table = f'<div class="scroll"><table class="pictures"><tbody>{rows}</tbody></table></div>'
    return f"<section><h2>What the model sees</h2><figure>{table}<figcaption>{caption}</figcaption></figure></section>"


def _dependences(pairs: list[Dependence]) -> str:
    if not pairs:
        return ""
    rows = []
    for d in pairs[:SHOWN_PAIRS]:
        mark = ' class="doubt"' if d.p < SIGNIFICANT else ""
        p = "&lt; 0.0001" if d.p < 1e-4 else f"{d.p:.2g}"
        cells = f'<td>{d.measure}</td><td class="number">{d.size:.2f}</td><td class="number">{p}</td>'
        rows.append(f'<tr{mark}><td class="name">{words(d.first)}, {words(d.second)}</td>{cells}</tr>')
    left = f" The {SHOWN_PAIRS} most dependent of {len(pairs)} pairs are shown." if len(pairs) > SHOWN_PAIRS else ""
    note = f"p of independence by a kernel test (HSIC), corrected for {len(pairs)} {'pair' if len(pairs) == 1 else 'pairs'} (Holm).{left}"
    head = '<tr><th>columns</th><th>measure</th><th class="number">size</th><th class="number">p</th></tr>'
    table = f'<div class="scroll"><table><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'
    return f'<section><h2>Columns against each other</h2>{table}<p class="note">{note}</p></section>'


# ---- how it was made ------------------------------------------------------------------------------------------------
def _made(model: CrossModalQueries, data: Dataset, found: Findings, config: dict[str, Any]) -> str:
    shape = " x ".join(map(str, model.spec.image_shape))
    facts: dict[str, Any] = {
        "model": f"{model.title}; {sum(p.numel() for p in model.parameters()):,} parameters",
        "images": f"{found.rows[0]:,} for training, {found.rows[1]:,} for validation, {found.rows[2]:,} for the test; {shape}",
    }
    source = config.get("data") or {}
    if source.get("path") or source.get("name"):
        facts["data"] = source.get("path") or source.get("name")
    if "seconds" in config:
        facts["training"] = (
            f"seed {config.get('seed')}, {config['seconds']:.0f} s on {config.get('hardware', 'unknown hardware')}, {config.get('date', '')}"
        )
    facts["software"] = f"intervae {config.get('intervae', intervae.__version__)}, revision {config.get('revision') or 'unknown'}"
    if config.get("command"):
        facts["command"] = config["command"]
    columns = "".join(f'<tr><td class="name">{words(v.name)}</td><td>{v.kind}</td><td>{words(_range(v))}</td></tr>' for v in found.columns)
    settings = "".join(f"<tr><td>{words(name)}</td><td>{words(value)}</td></tr>" for name, value in sorted(vars(model.settings).items()))
    notes = "".join(f"<li>{words(note)}</li>" for note in data.notes)
    return (
        f"<section><h2>How it was made</h2>{_facts(facts)}"
        f"<table><thead><tr><th>column</th><th>kind</th><th>values in training</th></tr></thead><tbody>{columns}</tbody></table>"
        f"{f'<h3>Notes on the data</h3><ul class=note>{notes}</ul>' if notes else ''}"
        f"<details><summary>All settings</summary><table><tbody>{settings}</tbody></table></details></section>"
        "<footer>A link is only as right as the assumptions above, and a latent is known only up to a transformation that the model chose. "
        "Make this page again with <code>intervae report RUN</code>.</footer>"
    )


def _range(variable: Any) -> str:
    if variable.categories:
        more = f", ... ({len(variable.categories)} in all)" if len(variable.categories) > 12 else ""
        return ", ".join(variable.categories[:12]) + more
    return f"{variable.low:.4g} to {variable.high:.4g} {variable.unit}".strip()


def _facts(facts: dict[str, Any]) -> str:
    return '<dl class="facts">' + "".join(f"<dt>{words(name)}</dt><dd>{words(value)}</dd>" for name, value in facts.items()) + "</dl>"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"
