"""The page: valid, by itself, escaped, with every column and link on it; through the command line on a folder of one's own."""

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
from oracle import TRUE, drawn, oracle, world
from PIL import Image

from command import intervae, make_folder, refused, succeeded, train_tiny
from intervae.data.base import Variable, build_dataset
from intervae.errors import QueryError
from intervae.models import MODELS, load
from intervae.report import findings, tells_of, write_report

VOID = {"meta", "img", "br", "rect", "path", "circle"}
NASTY = "dose <script>alert(\"x\")</script> & 'mg'"
TRAIN = ["train", "cmcl", "--epochs", "2", "--device", "cpu"]
TINY = {"latents": "4", "embedding": "4", "channels": "4,4", "posterior_widths": "8", "prior_widths": "8", "graph_widths": "4", "batch_size": "16"}
SMALL = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]


class Reader(HTMLParser):
    """Checks that tags are closed in order, and keeps text, tags and attributes."""

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


def assert_stands_alone(page: str) -> Reader:
    """One file, no script, nothing loaded, readable in both colours and on paper."""
    reader = Reader(page)
    names = {tag for tag, _ in reader.tags}
    assert not names & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in reader.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                assert tag == "img"
                assert value is not None
                assert value.startswith("data:image/png;base64,")
    assert not re.search(r"https?://|//[a-z]+\.", re.sub(r'src="data:[^"]*"', "", page))
    assert "url(" not in re.sub(r"url\(#tip-\w+\)", "", page)  # arrow heads of the same file
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert "prefers-color-scheme:dark" in page
    assert "@media print" in page
    return reader


def pictures(reader: Reader) -> Iterator[Image.Image]:
    for tag, attributes in reader.tags:
        if tag == "img":
            assert attributes["alt"]
            yield Image.open(BytesIO(base64.b64decode(str(attributes["src"]).partition(",")[2])))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    data = world(twins=True)
    return write_report(oracle(data, *TRUE), data, tmp_path_factory.mktemp("page"), resamples=10).read_text(encoding="utf-8")


def test_the_page_stands_alone_and_its_pictures_can_be_read(page: str) -> None:
    reader = assert_stands_alone(page)
    sizes = {picture.size for picture in pictures(reader)}
    assert sizes == {(8, 8)}


def test_every_column_every_link_and_its_words_are_on_the_page(page: str) -> None:
    text = Reader(page).text
    for words in ("a causes z0", "b goes with z1", "c goes with z2", "( z1 → b is the model's choice)", "No link was found for d."):
        assert words in text, words
    for words in ("b is caused by z1", "c causes z2", "z1 causes b"):
        assert words not in text, words
    assert "do( a = …)" in text or "do(a = …)" in text
    assert "do(b = …): the picture does not change, whatever the value, as the model takes b for an effect, which cannot be told" in text
    assert text.count("sure of the link 100%; the direction cannot be told") == 4  # in short, and link by link
    assert "no direction" in text.partition("Checked and in order")[0]
    assert "a and d depend on each other" in text
    assert "straight" not in text.partition("Checked and in order")[0]
    assert "share of 10 tables, of 700 rows" in text
    assert "504 for training, 56 for validation, 140 for the test" in text
    assert re.search(r"sure of the link 100%, of the direction (100|9\d)%", text)
    for latent in ("z0", "z1", "z2"):
        assert latent in text


def test_the_graph_has_a_line_for_every_link_and_a_head_at_the_effect_where_that_is_known(page: str) -> None:
    svg = page[page.index('<svg class="graph"') : page.index("</svg>")]
    boxes = {name: float(x) for name, x in re.findall(r'<g class="node \w+"><title>(\w+)</title><rect x="([\d.]+)"', svg)}
    assert set(boxes) == {"a", "b", "c", "z0", "z1", "z2"}
    assert max(boxes[n] for n in "abc") < min(boxes[n] for n in ("z0", "z1", "z2"))
    kinds = re.findall(r'<g class="edge (\w+)"><path d="M([\d.]+) [\d.]+ C.* ([\d.]+) [\d.]+"([^>]*)>', svg.replace("</g>", "</g>\n"))
    assert sorted(kind for kind, *_ in kinds) == ["acts", "open", "open"]
    for kind, _, _, how in kinds:  # b and c, whose direction cannot be told, have dashes and no head
        assert ("marker-end" in how) is (kind != "open")
        assert ("stroke-dasharray" in how) is (kind == "open")
    assert "z1 goes with b" in svg
    assert all(float(end) > float(start) for kind, start, end, _ in kinds if kind == "acts")


def test_names_from_the_data_are_text_and_never_markup(tmp_path: Path) -> None:
    data = world(300)
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
    reader = assert_stands_alone(text)
    assert NASTY in reader.text
    assert "b</td> goes with z1" in reader.text
    assert "<no>, y&s" in reader.text
    assert 'What causes what: <b>data</b> & "co"' in reader.text


def test_a_model_without_links_or_with_edges_among_columns_has_a_page_too(tmp_path: Path) -> None:
    data = world(200)
    empty = Reader(write_report(oracle(data), data, tmp_path, resamples=2).read_text(encoding="utf-8")).text
    assert "No link was found for a, b and c." in empty
    assert "Doubts (2)" in empty  # few rows, no links
    free = oracle(data, ("a", "c", 0.5), ("z1", "z0", 0.5), ("a", "z0", 0.7), bipartite=False)
    text = assert_stands_alone(write_report(free, data, tmp_path, resamples=2).read_text(encoding="utf-8")).text
    assert "a causes c" in text
    assert "z1 causes z0" in text


def test_only_trained_models_of_images_and_a_table_have_a_report(tmp_path: Path) -> None:
    data = world(100)
    untrained = MODELS["cmcl"](data.spec)
    with pytest.raises(QueryError, match="needs a trained model"):
        write_report(untrained, data, tmp_path)
    other = MODELS["vae"](data.spec)
    assert tells_of(untrained)
    assert not tells_of(other)
    with pytest.raises(QueryError, match="which vae does not learn; train cmcl"):
        write_report(other, data, tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---- through the command line ---------------------------------------------------------------------------------------
def test_training_on_a_folder_ends_in_a_report_and_report_makes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "FEWEST_RESAMPLES", 4)
    monkeypatch.setattr(findings, "RESAMPLES", 4)
    rng = np.random.default_rng(1)
    more = {"site": rng.choice(["left", "mid", "right"], 80).tolist(), "smoker": rng.choice(["yes", "no"], 80).tolist()}
    folder, run = make_folder(tmp_path / "mine", columns=more), tmp_path / "run"
    done = succeeded(intervae(*TRAIN, *SMALL, "--data", folder, "--set", "edge_threshold=0.0", "--out", run))
    assert f"wrote {run / 'report.html'}" in done.out
    reader = assert_stands_alone((run / "report.html").read_text(encoding="utf-8"))
    for name in ("level", "width", "site", "smoker", "share of 4 tables"):
        assert name in reader.text
    assert "Grad-CAM++" in reader.text
    assert {picture.size for picture in pictures(reader)} == {(16, 16)}
    (run / "report.html").unlink()
    assert succeeded(intervae("report", run, "--bootstrap", "3")).out == f"wrote {run / 'report.html'}\n"
    again = Reader((run / "report.html").read_text(encoding="utf-8"))
    assert "share of 3 tables" in again.text
    model = load(run)
    assert all(f"{cause} → {effect}" in again.text for cause, effect, _ in model.graph.edges)


def test_report_of_another_model_or_of_nothing_is_one_sentence(tmp_path: Path) -> None:
    run = train_tiny(tmp_path / "run")
    refused(intervae("report", run), 1, "causal-vae does not learn", "train cmcl")
    assert not (run / "report.html").exists()
    refused(intervae("report", tmp_path / "nowhere"), 1, "not a run folder")


def test_pictures_of_two_bytes_are_what_the_oracle_reads() -> None:
    latents = np.random.default_rng(0).normal(size=(20, 3))
    assert np.abs(oracle(world(60)).encode(drawn(latents))[..., 0].numpy() - latents).max() < 1e-3
