"""Figures, active units and model card of CT-VAE."""

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
from intervae.data import Dataset, Variable, build_dataset
from intervae.data.build_transitions import with_transitions
from intervae.evaluation import evaluate, variable_tables
from intervae.experiments.ctvae import CTVAE_TABLE1
from intervae.figures import clips
from intervae.models.ct_vae import figures as own_figures
from intervae.models.ct_vae.mcq_vae import MCQVAE
from intervae.models.ct_vae.model import CTVAE
from intervae.models.description import model_card
from intervae.models.storage import describe_model
from intervae.report import write_figures
from intervae.settings import build_settings, parse_settings, split_settings
from intervae.training import Options

SIZES = {"x": 9, "y": 3, "colour": 2}
SMALL = {"patch": 4, "filters": 8, "features": 8, "codes": 8, "blocks": 1, "codebooks": 2}


@pytest.fixture(scope="module")
def data() -> Dataset:
    """All images, 12 x 16, of a dot; no two are equal."""
    table = np.array(list(itertools.product(*map(range, SIZES.values()))), float)
    images = np.zeros((len(table), 1, 12, 16), np.uint8)
    for image, (x, y, colour) in zip(images, table.astype(int), strict=True):
        image[0, 3 * y + 1 : 3 * y + 4, x + 3 : x + 6] = 120 + 100 * colour
    dots = build_dataset(
        "dots",
        images,
        table,
        [Variable(name) for name in SIZES],
        validation=0.2,
        test=0.3,
        source={"name": "dots"},
    )
    return with_transitions(dots)


@pytest.fixture(scope="module")
def model(data: Dataset) -> CTVAE:
    torch.manual_seed(0)
    return CTVAE(data.spec, **SMALL, width=16, heads=2, edge_width=4).eval()


def steps(labels: list[float]) -> dict[str, int]:
    """How often each action can be repeated from these labels; the grid is complete."""
    ends = [
        (name, int(value), size - 1 - int(value))
        for (name, size), value in zip(SIZES.items(), labels, strict=True)
    ]
    return {
        f"{name}{sign}": min(left, own_figures.REPETITIONS)
        for name, below, above in ends
        for sign, left in (("+1", above), ("-1", below))
    }


def capture_call(monkeypatch: pytest.MonkeyPatch, name: str) -> dict[str, Any]:
    """Arguments that a figure function is called with."""
    call: dict[str, Any] = {}
    monkeypatch.setattr(figures, name, lambda path, rows, **more: call.update(rows=rows, **more))
    return call


def test_actions_are_repeated_as_often_as_the_grid_allows(
    data: Dataset, model: CTVAE, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call = capture_call(monkeypatch, "clip_rows")
    write_figures(model, data, tmp_path)
    rows = call["rows"]
    first = (rows[0].clips[0] * 255).round().to(torch.uint8)
    chosen = next(i for i, image in enumerate(data.test.images) if torch.equal(image, first))
    possible = [steps(labels) for labels in data.test.labels.tolist()]
    expected = possible[chosen]
    assert sum(expected.values()) == max(sum(each.values()) for each in possible)
    # one of colour+1 and colour-1 always leaves the grid; all other actions are possible
    assert sorted(expected.values())[0:2] == [0, 1]
    assert len(rows) == len(data.actions) == 6
    for action, row in zip(data.actions, rows, strict=True):
        times = max(1, expected[action])
        assert row.label == (action if expected[action] else f"{action}, beyond the data")
        assert (row.generated, row.beyond) == (times, int(expected[action] == 0))
        assert torch.equal(row.clips[0], data.test.images[chosen].float() / 255)
        assert torch.allclose(
            row.clips[1:],
            model.act_repeatedly(data.test.images[chosen], action, times)[0],
            atol=1e-6,
        )
    assert call["heads"] == ["input", *map(str, range(1, max(expected.values()) + 1))]
    assert "a pale frame is beyond the data" in call["title"]


def test_every_action_is_repeated_where_several_images_may_follow(
    data: Dataset, model: CTVAE
) -> None:
    assert data.transitions is not None
    rows = own_figures.action_rows(
        model, replace(data, transitions=replace(data.transitions, unique=False))
    )
    assert [(row.label, row.generated, row.beyond) for row in rows] == [
        (action, own_figures.REPETITIONS, 0) for action in data.actions
    ]


def test_images_beyond_the_data_have_a_pale_frame(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    frames: list[str] = []
    monkeypatch.setattr(clips.Canvas, "image", lambda *_, frame, **more: frames.append(frame))
    figures.clip_rows(
        tmp_path / "a.png",
        [figures.ClipRow("x+1", np.zeros((4, 1, 8, 8), np.uint8), generated=3, beyond=1)],
    )
    assert frames == [clips.RULE, clips.ORANGE, clips.ORANGE, clips.PALE_ORANGE]


def test_the_mechanism_figure_shows_the_models_mechanisms(
    data: Dataset, model: CTVAE, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    call = capture_call(monkeypatch, "action_mechanisms")
    write_figures(model, data, tmp_path)
    assert len(data.test) <= own_figures.MECHANISM_IMAGES  # so that all of them count
    assert [panel.label for panel in call["rows"]] == list(data.actions)
    for panel in call["rows"]:
        mechanism = model.action_mechanism(data.test.images, panel.label)
        assert torch.allclose(panel.edges, mechanism.edges, atol=1e-5)
        for shown, own in ((panel.mask, mechanism.mask), (panel.changes, mechanism.changes)):
            assert shown.shape == (2, 3, 4)
            for book, row, column in itertools.product(range(2), range(3), range(4)):
                assert shown[book, row, column].item() == pytest.approx(
                    own[12 * book + 4 * row + column].item(), abs=1e-5
                )
        assert (mechanism.edges - mechanism.edges.T).abs().max() > 1e-2
        assert (mechanism.mask - (1 - mechanism.mask)).abs().max() > 1e-2
        assert mechanism.changes.std() > 1e-3


def test_active_units_count_all_codes_together(data: Dataset) -> None:
    results = evaluate(MCQVAE(data.spec, **SMALL), data, ["active_units"])
    assert [m.metric for m in results] == ["active_units"]
    assert results[0].parameters["units"] == 2 * 12 * 4
    assert variable_tables(results) == []


def test_the_model_card_lists_the_actions_and_a_query(data: Dataset, model: CTVAE) -> None:
    card = model_card(model, describe_model(model))
    assert "\nActions: `x+1`, `x-1`, `y+1`, `y-1`, `colour+1`, `colour-1`.\n" in card
    assert 'model.act(images, "x+1")' in card
    words = replace(
        data.spec,
        variables=(
            replace(data.spec.variables[0], kind="categorical", categories=("red", "green")),
            *data.spec.variables[1:],
        ),
    )
    card = model_card(CTVAE(words, **SMALL), describe_model(model))
    assert f"| {words.variables[0].name} | categorical |  | red, green |" in card
    plain = MCQVAE(data.spec, **SMALL)
    assert "Actions" not in model_card(plain, describe_model(plain))


def test_the_command_in_the_docs_is_the_experiments_job() -> None:
    """`intervae train ct-vae --data cars3d ...` in docs/ct-vae.md has the settings of the job."""
    page = (
        (Path(__file__).parents[2] / "docs" / "ct-vae.md")
        .read_text(encoding="utf-8")
        .replace("\\\n", " ")
    )
    words = shlex.split(
        next(
            line
            for line in page.splitlines()
            if line.strip().startswith("intervae train ct-vae --data cars3d")
        )
    )
    options = {
        option: [value for name, value in pairwise(words) if name == option]
        for option in ("--data", "--data-option", "--set")
    }
    only = next(re.finditer(r"--only (\S+) --seeds 1`", page))[1]
    (job,) = (job for job in CTVAE_TABLE1.jobs if only in job.key)
    model_settings, training = split_settings(
        parse_settings(options["--set"]), CTVAE.Settings, Options
    )
    assert options["--data"] == [job.data]
    assert build_settings(CTVAE.Settings, job.settings) == build_settings(
        CTVAE.Settings, model_settings
    )
    assert job.training == training
    seed, pairs = parse_settings(options["--data-option"]).items()
    assert job.options == {
        seed[0]: int(seed[1]),
        pairs[0]: {
            key: int(value) for key, value in (part.split("=") for part in pairs[1].split(";"))
        },
    }
