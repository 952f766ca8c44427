"""The static export: a site whose scripts hold the answers of the API, on a grid of values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from command import contents, intervae, refused, succeeded
from intervae.serve import export
from intervae.serve.served_runs import ServedRuns
from page_pictures import HOSTILE


@pytest.fixture(scope="module")
def site(served: ServedRuns, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "page"
    patch = pytest.MonkeyPatch()
    patch.setattr(export, "PICTURES", 2)
    patch.setattr(export, "GRID", 3)
    results = Path(__file__).parents[2] / "results"
    export.export_site(served, folder, results)
    patch.undo()
    return folder


@pytest.fixture(scope="module")
def manifest(site: Path) -> dict[str, Any]:
    text = (site / "data/manifest.js").read_text(encoding="utf-8")
    match = re.fullmatch(r"window\.INTERVAE_EXPORT = (.*);\n", text)
    assert match
    return json.loads(match[1])


def read(site: Path, manifest: dict[str, Any], key: str) -> Any:
    text = (site / manifest["files"][key]).read_text(encoding="utf-8")
    match = re.fullmatch(r"window\.INTERVAE_EXPORT\.receive\((\".*?\"), (.*)\);\n", text)
    assert match
    assert json.loads(match[1]) == key
    return json.loads(match[2])


def test_exported_answers_are_those_of_the_api(
    site: Path, manifest: dict[str, Any], client: TestClient
) -> None:
    index = manifest["pictures"]["0"]["pictures"][1]["index"]
    entry = read(site, manifest, f"do/0/{index}/light")
    assert entry["values"] == manifest["grid"]["0"]["light"]
    for value, answer in zip(entry["values"], entry["answers"], strict=True):
        body = {"pictures": [{"index": index}], "do": {"light": value}}
        expected = client.post("/api/runs/0/do", json=body).json()
        for each in (answer, expected):
            del each["milliseconds"]
        assert answer == expected
    clip = read(site, manifest, "clip/3/0/")
    assert len(clip["predicted"]) == clip["given"] + export.STEPS
    run = client.get("/api/runs/0").json()
    assert manifest["runs"][0] == run


def test_export_has_every_kind_of_answer(manifest: dict[str, Any]) -> None:
    kinds = {key.partition("/")[0] for key in manifest["files"]}
    expected = {"do", "clip", "act", "attribute", "traverse", "heat_map", "findings", "results"}
    assert kinds == expected
    assert manifest["runs"][1]["state"] == "failed"


def test_page_loads_the_manifest_and_nothing_from_a_server(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    assert export.MANIFEST in page
    assert export.PLACEHOLDER not in page
    for reference in re.findall(r'(?:src|href)="([^"]*)"', page):
        assert not re.match(r"[a-z]+:|/", reference) or reference.startswith("data:"), reference
        path = reference.partition("#")[0]
        assert not path or (site / path).is_file(), reference


def test_names_in_the_scripts_cannot_end_them(site: Path, manifest: dict[str, Any]) -> None:
    assert any(HOSTILE in key for key in manifest["files"])
    for name, content in contents(site).items():
        if name.startswith("data"):
            assert b"<" not in content, name
            assert all(part not in name for part in ("img", "script"))


def test_export_goes_to_a_new_folder(site: Path, finished: Path, tmp_path: Path) -> None:
    refused(intervae("serve", finished, "--export", site), 2, "not an empty folder")
    export_to = tmp_path / "new"
    words = ("serve", finished, "--export", export_to, "--results", tmp_path / "none")
    assert "index.html" in succeeded(intervae(*words)).out
    assert (export_to / "index.html").is_file()
