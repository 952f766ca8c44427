"""`intervae models`, `datasets`, `metrics`, `experiments`: complete lists, settings of models."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from typing import Any

import pytest

import intervae as package
from command import (
    intervae,
    is_plain_text,
    refused,
    succeeded,
)
from intervae import evaluation
from intervae.cli import lists, settings_tables
from intervae.settings import build_settings


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("models", set(package.MODELS)),
        ("datasets", {entry.name for entry in package.datasets()}),
        ("metrics", set(evaluation.METRICS)),
        ("experiments", {experiment.name for experiment in package.experiments.EXPERIMENTS}),
    ],
)
def test_lists_are_complete_as_text_and_json(command: str, expected: set[str]) -> None:
    people, programs = (
        succeeded(intervae(command)).out,
        json.loads(succeeded(intervae(command, "--json")).out),
    )
    assert {row["name"] for row in programs} == expected
    for row in programs:
        assert row["description"].strip()
        line = next(line for line in people.splitlines() if line.split()[:1] == [row["name"]])
        assert row["description"].split()[0] in line
    assert is_plain_text(people)


@pytest.mark.parametrize("kind", list(lists.REGISTRIES))
def test_the_file_of_lists_is_used_unless_another_package_adds_entries(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, module = lists.REGISTRIES[kind]
    expected = json.loads(json.dumps(read()))  # first: it imports the module for the whole process
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(lists.REGISTRIES, kind, (lambda: [{"name": "registry"}], module))
    assert lists.listed(kind) == expected  # `make inventory` writes the file
    monkeypatch.setattr(lists, "entry_points", lambda group: [group])
    assert lists.listed(kind) == [{"name": "registry"}]


def test_models_list_their_queries() -> None:
    rows = {row["name"]: row["answers"] for row in json.loads(intervae("models", "--json").out)}
    assert {"encode", "decode", "sample", "graph", "counterfactual"} <= set(rows["causal-vae"])
    assert not {"act", "attribute", "extrapolate"} & set(
        rows["causal-vae"]
    )  # it knows neither actions nor time


@pytest.mark.parametrize("name", list(package.MODELS))
def test_every_setting_has_type_default_and_help(name: str) -> None:
    rows = json.loads(succeeded(intervae("models", name, "--json")).out)
    listed = next(
        row for row in json.loads(intervae("models", "--json").out) if row["name"] == name
    )["settings"]
    cls: Any = package.MODELS[name].Settings
    assert [row["name"] for row in rows] == [field.name for field in fields(cls)] == list(listed)
    assert {row["name"]: row["default"] for row in rows} == listed
    people = succeeded(intervae("models", name, "--all")).out
    for row in rows:
        assert row["type"]
        assert len(row["help"].split()) > 1, row["name"]
        assert row["name"] in people
    as_set = {field.name: settings_tables.setting_text(field.default) for field in fields(cls)}
    assert build_settings(cls, as_set) == cls()  # what is shown can be given to --set


def test_settings_are_shown_as_set_accepts_them() -> None:
    shown = {row["name"]: row for row in settings_tables.list_settings("causal-vae")}
    assert shown["patience"]["type"] == "int or none"
    assert shown["decoder"]["type"] == "joint or per-concept or layers"
    assert shown["dims"].pop("help")
    assert shown["dims"] == {"name": "dims", "type": "int", "default": 4, "advanced": False}
    assert [
        settings_tables.setting_text(value) for value in (None, True, (32, 64), 0.03, "conv")
    ] == [
        "none",
        "true",
        "32,64",
        "0.03",
        "conv",
    ]
    refused(
        intervae("models", "causal-vea"), 2, "unknown model 'causal-vea'; did you mean 'causal-vae'"
    )


@pytest.mark.parametrize("name", list(package.MODELS))
def test_advanced_settings_are_listed_last_and_on_request(name: str) -> None:
    rows = settings_tables.list_settings(name)
    advanced = [row["name"] for row in rows if row["advanced"]]
    common = [row["name"] for row in rows if not row["advanced"]]

    def listed(*words: str) -> list[str]:
        lines = succeeded(intervae("models", name, *words)).out.splitlines()
        names = [line.split()[0] for line in lines if line[:1].strip()]
        return [word for word in names if word in common + advanced]

    assert listed() == common
    assert listed("--all") == common + advanced
    count = f"{len(advanced)} advanced settings: intervae models {name} --all"
    assert (count in intervae("models", name).out) == bool(advanced)
