"""The pictures, the numbers and the card of a model of transitions: which actions are drawn how often, and that mechanisms are the model's own."""

from __future__ import annotations

import itertools
import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intervae import figures
from intervae.data.base import Dataset, Variable, build_dataset
from intervae.data.transitions import with_transitions
from intervae.evaluation import evaluate, variable_tables
from intervae.experiments.ctvae import CTVAE_TABLE1
from intervae.figures import clips
from intervae.models.ct_vae import CTVAE
from intervae.models.mcq_vae import MCQVAE
from intervae.models.storage import describe_model, model_card
from intervae.report import pictures, write_figures
from intervae.settings import build_settings, parse_settings, split_settings
from intervae.training import Options

SIZES = {"x": 9, "y": 3, "colour": 2}
SMALL = {"patch": 4, "filters": 8, "features": 8, "codes": 8, "blocks": 1, "codebooks": 2}


@pytest.fixture(scope="module")
def data() -> Dataset:
    """All pictures, 12 x 16, of a dot: every one differs from every other."""
    table = np.array(list(itertools.product(*map(range, SIZES.values()))), float)
    images = np.zeros((len(table), 1, 12, 16), np.uint8)
    for image, (x, y, colour) in zip(images, table.astype(int), strict=True):
        image[0, 3 * y + 1 : 3 * y + 4, x + 3 : x + 6] = 120 + 100 * colour
    made = build_dataset("dots", images, table, [Variable(name) for name in SIZES], validation=0.2, test=0.3, source={"name": "dots"})
    return with_transitions(made)


@pytest.fixture(scope="module")
def model(data: Dataset) -> CTVAE:
    torch.manual_seed(0)
    return CTVAE(data.spec, **SMALL, width=16, heads=2, edge_width=4).eval()


def steps(labels: list[float]) -> dict[str, int]:
    """How often each action can be done from here, by arithmetic: the grid is whole."""
    ends = [(name, int(value), size - 1 - int(value)) for (name, size), value in zip(SIZES.items(), labels, strict=True)]
    return {f"{name}{sign}": min(left, pictures.TIMES) for name, below, above in ends for sign, left in (("+1", above), ("-1", below))}


def caught(monkeypatch: pytest.MonkeyPatch, name: str) -> dict[str, Any]:
    """What a figure is called with."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(figures, name, lambda path, given, **more: seen.update(given=given, **more))
    return seen


def test_actions_are_repeated_as_often_as_the_grid_allows_from_where_most_steps_lead_on(
    data: Dataset, model: CTVAE, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn = caught(monkeypatch, "clip_rows")
    write_figures(model, data, tmp_path)
    rows = drawn["given"]
    first = (rows[0].clips[0] * 255).round().to(torch.uint8)
    chosen = next(i for i, image in enumerate(data.test.images) if torch.equal(image, first))
    possible = [steps(labels) for labels in data.test.labels.tolist()]
    wanted = possible[chosen]
    assert sum(wanted.values()) == max(sum(each.values()) for each in possible)
    assert sorted(wanted.values())[0:2] == [0, 1]  # of colour+1 and colour-1 one is always beyond the end; all others can be done
    assert len(rows) == len(data.actions) == 6
    for action, row in zip(data.actions, rows, strict=True):
        times = max(1, wanted[action])
        assert row.label == (action if wanted[action] else f"{action}, beyond the data")
        assert (row.made, row.beyond) == (times, int(wanted[action] == 0))
        assert torch.equal(row.clips[0], data.test.images[chosen].float() / 255)
        assert torch.allclose(row.clips[1:], model.act_repeatedly(data.test.images[chosen], action, times)[0], atol=1e-6)
    assert drawn["heads"] == ["input", *map(str, range(1, max(wanted.values()) + 1))]
    assert "a pale frame is beyond them" in drawn["title"]


def test_where_several_pictures_may_follow_every_action_is_repeated(data: Dataset, model: CTVAE) -> None:
    assert data.transitions is not None
    rows = pictures.action_rows(model, replace(data, transitions=replace(data.transitions, unique=False)))
    assert [(row.label, row.made, row.beyond) for row in rows] == [(action, pictures.TIMES, 0) for action in data.actions]


def test_pictures_beyond_the_data_have_a_pale_frame(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    frames: list[str] = []
    monkeypatch.setattr(clips.Canvas, "image", lambda *_, frame, **more: frames.append(frame))
    figures.clip_rows(tmp_path / "a.png", [figures.ClipRow("x+1", np.zeros((4, 1, 8, 8), np.uint8), made=3, beyond=1)])
    assert frames == [clips.RULE, clips.ORANGE, clips.ORANGE, clips.PALE_ORANGE]


def test_the_mechanisms_drawn_are_the_models_own(data: Dataset, model: CTVAE, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn = caught(monkeypatch, "mechanisms")
    write_figures(model, data, tmp_path)
    assert len(data.test) <= pictures.MECHANISM_IMAGES  # so that all of them count
    assert [panel.label for panel in drawn["given"]] == list(data.actions)
    for panel in drawn["given"]:
        found = model.mechanism(data.test.images, panel.label)
        assert torch.allclose(panel.edges, found.edges, atol=1e-5)
        for shown, own in ((panel.mask, found.mask), (panel.changes, found.changes)):
            assert shown.shape == (2, 3, 4)
            for book, row, column in itertools.product(range(2), range(3), range(4)):
                assert shown[book, row, column].item() == pytest.approx(own[12 * book + 4 * row + column].item(), abs=1e-5)
        assert (found.edges - found.edges.T).abs().max() > 1e-2  # otherwise the above shows nothing
        assert (found.mask - (1 - found.mask)).abs().max() > 1e-2
        assert found.changes.std() > 1e-3


def test_codes_at_places_are_counted_together(data: Dataset) -> None:
    found = evaluate(MCQVAE(data.spec, **SMALL), data, ["active_units"])
    assert [m.metric for m in found] == ["active_units"]
    assert found[0].parameters["units"] == 2 * 12 * 4
    assert variable_tables(found) == []


def test_the_card_lists_the_actions_and_how_to_ask(data: Dataset, model: CTVAE) -> None:
    card = model_card(model, describe_model(model))
    assert "\nActions: `x+1`, `x-1`, `y+1`, `y-1`, `colour+1`, `colour-1`.\n" in card
    assert 'model.act(images, "x+1")' in card
    words = replace(data.spec, variables=(replace(data.spec.variables[0], kind="categorical", categories=("red", "green")), *data.spec.variables[1:]))
    card = model_card(CTVAE(words, **SMALL), describe_model(model))
    assert f"| {words.variables[0].name} | categorical |  | red, green |" in card
    plain = MCQVAE(data.spec, **SMALL)
    assert "Actions" not in model_card(plain, describe_model(plain))


def test_the_command_of_the_docs_is_the_run_of_the_experiment() -> None:
    """docs/ct-vae.md: `intervae train ct-vae --data cars3d ...` has the settings of the job that its `--only` names."""
    page = (Path(__file__).parents[2] / "docs" / "ct-vae.md").read_text(encoding="utf-8").replace("\\\n", " ")
    words = shlex.split(next(line for line in page.splitlines() if line.strip().startswith("intervae train ct-vae --data cars3d")))
    given = {option: [value for name, value in pairwise(words) if name == option] for option in ("--data", "--data-option", "--set")}
    only = next(re.finditer(r"--only (\S+) --seeds 1`", page))[1]
    (job,) = (job for job in CTVAE_TABLE1.jobs if only in job.key)
    of_model, of_training = split_settings(parse_settings(given["--set"]), CTVAE.Settings, Options)
    assert given["--data"] == [job.data]
    assert build_settings(CTVAE.Settings, job.settings) == build_settings(CTVAE.Settings, of_model)
    assert job.training == of_training
    seed, pairs = parse_settings(given["--data-option"]).items()
    assert job.options == {seed[0]: int(seed[1]), pairs[0]: {key: int(value) for key, value in (part.split("=") for part in pairs[1].split(";"))}}
