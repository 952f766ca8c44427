"""The lines of Python that stand beside a view give the same pictures, for each kind of model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from intervae.data import Dataset
from intervae.data.simulators import Motion
from intervae.serve import describe
from intervae.serve.app import create_app
from intervae.serve.served_runs import ServedRun, ServedRuns
from page_pictures import decode_png
from squares import squares, tiny

PICTURE = {"index": 1}
NAMES = ("deep-scm", "ivae", "temporal-causal-prior-vae", "ct-vae")


@pytest.fixture(scope="module")
def page(
    finished: Path, pendulum: Dataset, make_model: Callable[..., Any]
) -> Iterator[tuple[TestClient, ServedRuns]]:
    """A run folder, then models of NAMES in memory: noise of pictures, labels, clips, actions."""
    clips, cells = Motion(size=12).dataset(samples=40), squares(5, 5, 3, 2)
    data = (pendulum, pendulum, clips, cells)
    models = [make_model(name, each) for name, each in zip(NAMES[:3], data, strict=False)]
    runs = [ServedRun(0, finished)]
    for number, (model, each) in enumerate(zip([*models, tiny(cells)], data, strict=True), 1):
        model.fit(each, seed=0)
        runs.append(ServedRun(number, None, model=model, data=each))
    served = ServedRuns(runs)
    served.load_all()
    app = create_app(served, "t")
    with TestClient(app, "http://127.0.0.1", headers={"X-Intervae-Token": "t"}) as client:
        yield client, served


def ask(page: tuple[TestClient, ServedRuns], number: int, query: str, **body: Any) -> Any:
    """Return an answer, and the names that its lines define."""
    client, served = page
    answer = client.post(f"/api/runs/{number}/{query}", json=body)
    assert answer.status_code == 200, answer.text
    run = served.runs[number]
    names = {"model": run.model, "data": run.data} if run.folder is None else {}
    exec(answer.json()["code"]["python"], names)  # what a reader would paste
    return answer.json(), names


def equal(shown: list[str], expected: Any) -> None:
    assert len(shown) == len(expected)
    for png, image in zip(shown, expected, strict=True):
        array = np.rint(image.detach().numpy() * 255)
        assert np.abs(decode_png(png) - array).max() <= 1  # a batch may round otherwise


@pytest.mark.parametrize("number", [0, 1, 2])
def test_traversal(page: tuple[TestClient, ServedRuns], number: int) -> None:
    latent = page[1].runs[number].description.latents[0].name
    answer, names = ask(page, number, "traverse", picture=PICTURE, latent=latent, count=3)
    equal(answer["frames"], [pictures[0] for pictures in names["pictures"]])


@pytest.mark.parametrize("number", [0, 1])
def test_do_and_sweep(page: tuple[TestClient, ServedRuns], number: int) -> None:
    do = {"light": {"add": 3}}
    answer, names = ask(page, number, "do", pictures=[PICTURE], do=do)
    equal([answer["answers"][0]["counterfactual"]], names["pictures"])
    answer, names = ask(page, number, "sweep", picture=PICTURE, do=do, variable="pendulum", count=3)
    equal(answer["frames"], [pictures[0] for pictures in names["pictures"]])


@pytest.mark.parametrize("number", [0, 2])
def test_heat_map(page: tuple[TestClient, ServedRuns], number: int) -> None:
    latent = page[1].runs[number].description.latents[0].name
    answer, names = ask(page, number, "heat_map", pictures=[PICTURE], latent=latent)
    assert len(names["maps"]) == len(answer["maps"])


def test_clip_actions_and_samples(page: tuple[TestClient, ServedRuns]) -> None:
    answer, names = ask(page, 3, "clip", picture=PICTURE, do={"z2_0": 1.0}, steps=2)
    equal(answer["counterfactual"], names["frames"][0])
    action = page[1].runs[4].data.actions[1]
    answer, names = ask(page, 4, "act", picture=PICTURE, action=action, times=2)
    equal(answer["pictures"], names["pictures"][0])
    answer, names = ask(page, 4, "attribute", pair=1)
    best = max(each["probability"] for each in answer["actions"])
    assert float(names["probabilities"].max()) == pytest.approx(best, abs=1e-5)
    answer, names = ask(page, 0, "sample", count=2, seed=3)
    equal(answer["pictures"], names["pictures"])


def test_several_runs(finished: Path) -> None:
    served = ServedRuns([ServedRun(0, finished), ServedRun(1, finished)])
    served.load_all()
    client = TestClient(
        create_app(served, "t"), "http://127.0.0.1", headers={"X-Intervae-Token": "t"}
    )
    body = {"runs": [1, 0], "picture": PICTURE, "do": {"light": {"add": 3}}}
    answer = client.post("/api/compare", json=body).json()
    names: dict[str, Any] = {}
    exec(answer["code"]["python"], names)
    shown = [each["counterfactual"] for each in answer["answers"]]
    equal(shown, [pictures[0] for pictures in names["pictures"]])


def test_range_of_latents_is_taken_over_the_whole_split(
    pendulum: Dataset, make_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test split of a grid is sorted: its first pictures are all alike."""
    monkeypatch.setattr(describe, "RANGE_PICTURES", 4)
    run = ServedRun(0, None, model=make_model("vae", pendulum), data=pendulum)
    rows = describe.pictures_of_range(run)
    last = pendulum.test.labels[[0, len(pendulum.test) - 1]]
    np.testing.assert_array_equal(rows.labels[[0, -1]], last)
    assert len(rows) == 4
