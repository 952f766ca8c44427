"""The report page: valid, self-contained, escaped, complete; also from the command line."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import TRUE, encode_in_pixels, oracle, simulate
from PIL import Image

from command import intervae, make_folder, refused, succeeded, train_tiny
from intervae.data import Variable, build_dataset
from intervae.errors import QueryError
from intervae.models import MODELS, load
from intervae.report import can_report, findings, write_report

VOID = {"meta", "img", "br", "rect", "path", "circle"}
NASTY = "dose <script>alert(\"x\")</script> & 'mg'"
TRAIN = ["train", "cmcl", "--epochs", "2", "--device", "cpu"]
TINY = {
    "latents": "4",
    "embedding": "4",
    "channels": "4,4",
    "posterior_widths": "8",
    "prior_widths": "8",
    "graph_widths": "4",
    "batch_size": "16",
}
SMALL = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]


class PageParser(HTMLParser):
    """Checks that tags are closed in order, and collects text, tags and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def assert_self_contained(page: str) -> PageParser:
    """One file, no script, nothing loaded, with styles for dark mode and print."""
    parser = PageParser(page)
    names = {tag for tag, _ in parser.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in parser.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                assert tag == "img"
                assert value is not None
                assert value.startswith("data:image/png;base64,")
    assert not re.search(r"https?://|//[a-z]+\.", re.sub(r'src="data:[^"]*"', "", page))
    assert "url(" not in re.sub(r"url\(#tip-\w+\)", "", page)  # arrow heads in the same file
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert "prefers-color-scheme:dark" in page
    assert "@media print" in page
    return parser


def embedded_images(parser: PageParser) -> Iterator[Image.Image]:
    for tag, attributes in parser.tags:
        if tag == "img":
            assert attributes["alt"]
            yield Image.open(BytesIO(base64.b64decode(str(attributes["src"]).partition(",")[2])))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    data = simulate(dependent_column=True)
    return write_report(
        oracle(data, *TRUE), data, tmp_path_factory.mktemp("page"), resamples=10
    ).read_text(encoding="utf-8")


def test_the_page_is_self_contained_and_its_images_load(page: str) -> None:
    parser = assert_self_contained(page)
    sizes = {image.size for image in embedded_images(parser)}
    assert sizes == {(8, 8)}


def test_the_page_describes_every_column_and_link(page: str) -> None:
    text = PageParser(page).text
    for phrase in (
        "a causes z0",
        "b is linked to z1",
        "c is linked to z2",
        "( z1 → b is the model's choice)",
        "No link was found for d.",
    ):
        assert phrase in text, phrase
    for phrase in ("b is caused by z1", "c causes z2", "z1 causes b"):
        assert phrase not in text, phrase
    assert "do( a = …)" in text or "do(a = …)" in text
    assert "do(b = …) does not change the image: the model treats b as an effect" in text
    # in the summary and in the cards
    assert text.count("link confidence 100%, direction not identifiable") == 4
    failed = text.partition("Checks passed")[0]
    assert "unidentifiable direction" in failed
    assert "linear relation" not in failed
    assert "a and d depend on each other" in text
    assert "fraction of 10 tables, resampled with replacement from 700 rows" in text
    assert "504 training, 56 validation, 140 test" in text
    assert re.search(r"link confidence 100%, direction confidence (100|9\d)%", text)
    for latent in ("z0", "z1", "z2"):
        assert latent in text


def test_the_graph_has_arrow_heads_only_on_identifiable_directions(
    page: str,
) -> None:
    svg = page[page.index('<svg class="graph"') : page.index("</svg>")]
    boxes = {
        name: float(x)
        for name, x in re.findall(
            r'<g class="node \w+"><title>(\w+)</title><rect x="([\d.]+)"', svg
        )
    }
    assert set(boxes) == {"a", "b", "c", "z0", "z1", "z2"}
    assert max(boxes[n] for n in "abc") < min(boxes[n] for n in ("z0", "z1", "z2"))
    kinds = re.findall(
        r'<g class="edge (\w+)"><path d="M([\d.]+) [\d.]+ C.* ([\d.]+) [\d.]+"([^>]*)>',
        svg.replace("</g>", "</g>\n"),
    )
    assert sorted(kind for kind, *_ in kinds) == ["acts", "open", "open"]
    for kind, _, _, style in kinds:  # b and c have dashes and no head
        assert ("marker-end" in style) is (kind != "open")
        assert ("stroke-dasharray" in style) is (kind == "open")
    assert "z1 is linked to b" in svg
    assert all(float(end) > float(start) for kind, start, end, _ in kinds if kind == "acts")


def test_names_from_the_data_are_escaped(tmp_path: Path) -> None:
    data = simulate(300)
    nasty = build_dataset(
        '<b>data</b> & "co"',
        torch.cat([data.train.images, data.validation.images, data.test.images]),
        torch.cat([data.train.labels, data.validation.labels, data.test.labels]).numpy(),
        [
            Variable(NASTY, unit="<i>"),
            Variable("b</td>", "binary", categories=("<no>", "y&s")),
            Variable("c", "categorical", categories=("<", ">", "'\"")),
        ],
    )
    model = oracle(nasty, (NASTY, "z0", 0.8), ("z1", "b</td>", 1.5), ("c", "z2", 0.9))
    text = write_report(model, nasty, tmp_path, resamples=2).read_text(encoding="utf-8")
    parser = assert_self_contained(text)
    assert NASTY in parser.text
    assert "b</td> is linked to z1" in parser.text
    assert "<no>, y&s" in parser.text
    assert 'Causal links: <b>data</b> & "co"' in parser.text


def test_graphs_without_links_or_with_edges_among_columns_have_a_page(tmp_path: Path) -> None:
    data = simulate(200)
    empty = PageParser(
        write_report(oracle(data), data, tmp_path, resamples=2).read_text(encoding="utf-8")
    ).text
    assert "No link was found for a, b and c." in empty
    assert "Diagnostics (2)" in empty  # few rows, no links
    free = oracle(data, ("a", "c", 0.5), ("z1", "z0", 0.5), ("a", "z0", 0.7), bipartite=False)
    text = assert_self_contained(
        write_report(free, data, tmp_path, resamples=2).read_text(encoding="utf-8")
    ).text
    assert "a causes c" in text
    assert "z1 causes z0" in text


def test_only_trained_cross_modal_models_have_a_report(tmp_path: Path) -> None:
    data = simulate(100)
    untrained = MODELS["cmcl"](data.spec)
    with pytest.raises(QueryError, match="needs a trained model"):
        write_report(untrained, data, tmp_path)
    other = MODELS["vae"](data.spec)
    assert can_report(untrained)
    assert not can_report(other)
    with pytest.raises(QueryError, match="which vae does not learn; train cmcl"):
        write_report(other, data, tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---- through the command line --------------------------------------------------------------------
def test_train_writes_a_report_and_the_report_command_writes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "MIN_RESAMPLES", 4)
    monkeypatch.setattr(findings, "RESAMPLES", 4)
    rng = np.random.default_rng(1)
    more = {
        "site": rng.choice(["left", "mid", "right"], 80).tolist(),
        "smoker": rng.choice(["yes", "no"], 80).tolist(),
    }
    folder, run = make_folder(tmp_path / "mine", columns=more), tmp_path / "run"
    done = succeeded(
        intervae(*TRAIN, *SMALL, "--data", folder, "--set", "edge_threshold=0.0", "--out", run)
    )
    assert f"wrote {run / 'report.html'}" in done.out
    parser = assert_self_contained((run / "report.html").read_text(encoding="utf-8"))
    for name in ("level", "width", "site", "smoker", "fraction of 4 tables"):
        assert name in parser.text
    assert "Grad-CAM++" in parser.text
    assert {image.size for image in embedded_images(parser)} == {(16, 16)}
    (run / "report.html").unlink()
    assert (
        succeeded(intervae("report", run, "--bootstrap", "3")).out
        == f"wrote {run / 'report.html'}\n"
    )
    again = PageParser((run / "report.html").read_text(encoding="utf-8"))
    assert "fraction of 3 tables" in again.text
    model = load(run)
    assert all(f"{cause} → {effect}" in again.text for cause, effect, _ in model.graph.edges)


def test_the_report_command_refuses_other_models_and_missing_runs(tmp_path: Path) -> None:
    run = train_tiny(tmp_path / "run")
    refused(intervae("report", run), 1, "causal-vae does not learn", "train cmcl")
    assert not (run / "report.html").exists()
    refused(intervae("report", tmp_path / "nowhere"), 1, "not a run folder")


def test_the_oracle_reads_the_latents_from_the_pixels() -> None:
    latents = np.random.default_rng(0).normal(size=(20, 3))
    assert (
        np.abs(
            oracle(simulate(60)).encode(encode_in_pixels(latents))[..., 0].numpy() - latents
        ).max()
        < 1e-3
    )
