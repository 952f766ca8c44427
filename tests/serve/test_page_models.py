"""Every registered model appears on the page and answers what it is said to be able to do."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from intervae.models import MODELS
from intervae.serve.app import create_app
from intervae.serve.served_runs import ServedRun, ServedRuns
from intervae.testing import ModelCase
from page_pictures import as_base64, image_file
from quick_settings import QUICK

PICTURE = {"index": 0}
QUERIES = {
    "do": lambda run: ("do", {"pictures": [PICTURE], "do": first_value(run)}),
    "truth": lambda run: ("sweep", {"picture": PICTURE, "variable": variable(run), "count": 2}),
    "act": lambda run: ("act", {"picture": PICTURE, "action": run["actions"][0]}),
    "attribute": lambda run: ("attribute", {"pair": 0}),
    "clip": lambda run: ("clip", {"picture": PICTURE, "do": first_value(run), "steps": 1}),
    "traverse": lambda run: ("traverse", {"picture": PICTURE, "latent": latent(run), "count": 2}),
    "heat_map": lambda run: ("heat_map", {"pictures": [PICTURE], "latent": latent(run)}),
    "sample": lambda run: ("sample", {"count": 2}),
}


def variable(run: dict[str, Any]) -> str:
    return str(run["variables"][0]["name"])


def latent(run: dict[str, Any]) -> str:
    return str(run["latents"][0]["name"])


def first_value(run: dict[str, Any]) -> dict[str, float]:
    return {variable(run): run["variables"][0]["high"]}


@pytest.mark.parametrize("name", MODELS)
def test_registered_model_answers_all_that_the_page_shows_of_it(name: str) -> None:
    case = ModelCase(MODELS[name], QUICK.get(name, lambda data: {}))
    data = case.simulated()
    page = ServedRuns([ServedRun(0, None, model=case.model(data), data=data)])
    page.load_all()
    with TestClient(
        create_app(page, "t"), "http://127.0.0.1", headers={"X-Intervae-Token": "t"}
    ) as client:
        run = client.get("/api/runs/0").json()
        assert (run["state"], run["model"]) == ("ready", name), run["error"]
        assert run["capabilities"], "the page would have nothing to show"
        for capability, query in QUERIES.items():
            if capability in run["capabilities"]:
                path, body = query(run)
                answer = client.post(f"/api/runs/0/{path}", json=body)
                assert answer.status_code == 200, (capability, answer.text)
        if "upload" in run["capabilities"]:
            pixels = data.test.images[0].numpy().transpose(1, 2, 0).squeeze()
            file = {"file": as_base64(image_file(pixels))}
            png = client.post("/api/runs/0/upload", json=file).json()["png"]
            if "do" in run["capabilities"]:
                body = {"pictures": [{"png": png}], "do": first_value(run)}
                answer = client.post("/api/runs/0/do", json=body)
                assert answer.status_code == 200, answer.text
