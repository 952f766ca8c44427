"""Runs on the page: capabilities, damaged folders, missing data, other kinds of models, results."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from intervae.data import Dataset
from intervae.serve.app import create_app
from intervae.serve.served_runs import QUEUE, ServedRun, ServedRuns, open_folders
from page_pictures import decode_png


@pytest.fixture(scope="module")
def runs(client: TestClient) -> list[dict[str, Any]]:
    return client.get("/api/runs").json()["runs"]


def test_damaged_run_is_listed_with_its_error_and_the_others_open(
    client: TestClient, runs: list[dict[str, Any]]
) -> None:
    states = [run["state"] for run in runs]
    assert states == ["ready", "failed", *["ready"] * (len(runs) - 2)]
    assert "config.json" in runs[1]["error"]
    answer = client.post("/api/runs/1/do", json={"pictures": [{"index": 0}]})
    assert answer.status_code == 409
    assert answer.json()["error"] == runs[1]["error"]


def test_capabilities_are_those_of_the_model(runs: list[dict[str, Any]]) -> None:
    able = {run["id"]: set(run["capabilities"]) for run in runs}
    assert able[0] >= {"graph", "do", "truth", "upload", "traverse", "heat_map", "sample_do"}
    assert "do" not in able[2]
    assert {"upload", "traverse"} <= able[2]
    assert able[3] >= {"clip", "graph"}
    assert "do" not in able[3]
    assert able[4] >= {"findings", "do"}
    assert able[5] >= {"act", "attribute"}
    assert "traverse" not in able[5]
    assert "truth" not in able[7]


def test_new_model_appears_without_a_change_of_the_page(pendulum: Dataset) -> None:
    """A model that nobody has heard of, with a query the page knows."""
    from intervae.models.vae import VAE

    class Mirror(VAE):
        name = "mirror"

        def counterfactual(self, images: Any, do: Any, labels: Any = None) -> torch.Tensor:
            return self.as_images(images).flip(-1)

    page = ServedRuns([ServedRun(0, None, model=Mirror(pendulum.spec), data=pendulum)])
    page.load_all()
    assert "do" in page.runs[0].description.capabilities
    client = TestClient(
        create_app(page, "t"), "http://localhost", headers={"X-Intervae-Token": "t"}
    )
    answer = client.post("/api/runs/0/do", json={"pictures": [{"index": 0}]}).json()
    picture = pendulum.test.images[0].numpy()[:, :, ::-1]
    np.testing.assert_array_equal(decode_png(answer["answers"][0]["counterfactual"]), picture)


def test_graph_has_the_boxes_and_edges_of_the_drawing(
    runs: list[dict[str, Any]], served: ServedRuns
) -> None:
    graph = runs[0]["graph"]
    model = served.runs[0].model
    assert [node["name"] for node in graph["nodes"]] == list(model.graph.names)
    arrows = {(edge["cause"], edge["effect"]) for edge in graph["edges"]}
    assert arrows == {(cause, effect) for cause, effect, _ in model.graph.edges}
    boxes = {node["name"]: node for node in graph["nodes"]}
    for edge in graph["edges"]:
        words = edge["path"].split()
        assert (words[0], words[3]) == ("M", "C")
        end = float(words[-1])
        assert end == pytest.approx(boxes[edge["effect"]]["y"], abs=0.1)  # arrives at its top
    for node in graph["nodes"]:
        assert 0 <= node["x"] <= graph["width"] - node["width"] + 0.1
        assert 0 <= node["y"] <= graph["height"] - node["height"] + 0.1


def test_variables_have_units_and_training_range(
    runs: list[dict[str, Any]], pendulum: Dataset
) -> None:
    variables = {v["name"]: v for v in runs[0]["variables"]}
    light = pendulum.spec.variable("light")
    assert variables["light"]["unit"] == light.unit
    assert variables["light"]["low"] == pytest.approx(light.low)
    assert variables["light"]["high"] == pytest.approx(light.high)
    assert variables["light"]["label"]


def test_missing_data_is_said_and_uploads_still_work(finished: Path, tmp_path: Path) -> None:
    import shutil

    run = tmp_path / "moved"
    shutil.copytree(finished, run)
    config = json.loads((run / "config.json").read_text())
    config["data"] = {"path": str(tmp_path / "gone")}
    (run / "config.json").write_text(json.dumps(config))
    page = open_folders([run])
    page.load_all()
    client = TestClient(
        create_app(page, "t"), "http://localhost", headers={"X-Intervae-Token": "t"}
    )
    about = client.get("/api/runs/0").json()
    assert "no longer at" in about["pictures"]["error"]
    assert "upload" in about["capabilities"]
    listed = client.get("/api/runs/0/pictures").json()
    assert (listed["count"], listed["pictures"]) == (0, [])
    assert "no longer at" in listed["error"]
    refused = client.post("/api/runs/0/do", json={"pictures": [{"index": 0}]})
    assert "no test pictures" in refused.json()["error"]
    from page_pictures import as_base64, image_file

    picture = {"png": as_base64(image_file(np.zeros((16, 16, 3), np.uint8)))}
    done = client.post("/api/runs/0/do", json={"pictures": [picture], "do": {"light": 90}})
    assert done.status_code == 200


def test_thumbnails_are_the_test_pictures(client: TestClient, pendulum: Dataset) -> None:
    answer = client.get("/api/runs/2/pictures?start=5&count=3").json()
    assert answer["count"] == len(pendulum.test)
    for i, picture in zip((5, 6, 7), answer["pictures"], strict=True):
        assert picture["index"] == i
        np.testing.assert_array_equal(decode_png(picture["png"]), pendulum.test.images[i].numpy())
        labels = dict(zip(pendulum.names, pendulum.test.labels[i].tolist(), strict=True))
        assert picture["values"] == pytest.approx(labels)
    assert client.get("/api/runs/2/pictures?start=100000").json()["pictures"] == []


# ---- other kinds of models ---------------------------------------------------------------------
def test_traversal_moves_one_dim(client: TestClient, served: ServedRuns, pendulum: Dataset) -> None:
    model = served.runs[2].model
    latent = model.latent_names[1]
    body = {"picture": {"index": 0}, "latent": latent, "values": [-1.0, 2.0]}
    answer = client.post("/api/runs/2/traverse", json=body).json()
    z = model.encode(pendulum.test.images[:1])
    assert answer["value"] == pytest.approx(float(z[0, 1, 0]), abs=1e-5)
    for value, frame in zip((-1.0, 2.0), answer["frames"], strict=True):
        z[0, 1, 0] = value
        expected = model.decode(z)[0].detach().numpy() * 255
        assert np.abs(decode_png(frame) - expected).max() < 1


def test_act_and_attribute_equal_the_model(client: TestClient, served: ServedRuns) -> None:
    model, data = served.runs[5].model, served.runs[5].data
    action = data.actions[2]
    body = {"picture": {"index": 1}, "action": action, "times": 2}
    answer = client.post("/api/runs/5/act", json=body).json()
    expected = model.act_repeatedly(data.test.images[1:2], action, 2)[0]
    for frame, image in zip(answer["pictures"], expected, strict=True):
        assert np.abs(decode_png(frame) - image.numpy() * 255).max() < 1
    pair = client.get("/api/runs/5/pairs?start=3&count=1").json()["pairs"][0]
    result = client.post("/api/runs/5/attribute", json={"pair": 3}).json()
    before, after = pair["before_index"], pair["after_index"]
    images = data.test.images
    expected = model.attribute(images[before : before + 1], images[after : after + 1])[0]
    shown = {a["name"]: a["probability"] for a in result["actions"]}
    assert [shown[name] for name in data.actions] == pytest.approx(expected.tolist(), abs=1e-5)
    assert result["true_action"] == pair["action"]
    same = {"before": {"index": 0}, "after": {"index": 0}}
    doubtful = client.post("/api/runs/5/attribute", json=same).json()
    assert doubtful["best"] == "same codes"
    assert "no difference" in doubtful["note"]
    unknown = {"picture": {"index": 0}, "action": "fly"}
    assert client.post("/api/runs/5/act", json=unknown).status_code == 422


def test_clip_is_extrapolated_beside_the_truth(client: TestClient, served: ServedRuns) -> None:
    model, data = served.runs[3].model, served.runs[3].data
    rows = data.test[0:1]
    options = {"background": rows.fields["background"], "steps": 2}
    body = {"picture": {"index": 0}, "steps": 2, "do": {"z2_0": 1.5}}
    answer = client.post("/api/runs/3/clip", json=body).json()
    expected = model.counterfactual(rows.images, {"z2_0": 1.5}, **options)[0]
    assert len(answer["counterfactual"]) == len(expected) == answer["given"] + 2
    for frame, image in zip(answer["counterfactual"], expected, strict=True):
        assert np.abs(decode_png(frame) - image.numpy() * 255).max() < 1
    values = {value["name"]: value for value in answer["values"]}
    assert (values["z2_0"]["frame"], values["z2_0"]["after"]) == (2, 1.5)
    assert not values["z1_0"]["changed"]
    plain = client.post("/api/runs/3/clip", json={"picture": {"index": 0}, "steps": 2}).json()
    exogenous = rows.fields["exogenous"].numpy()
    truth, _ = data.simulator.extrapolate(rows.labels.double().numpy(), exogenous, 2, size=12)
    np.testing.assert_array_equal(decode_png(plain["truth"][-1]), truth[0, -1])
    assert plain["counterfactual"] == plain["predicted"]


def test_heat_map_and_findings(client: TestClient, served: ServedRuns) -> None:
    from intervae import heat_map

    model, data = served.runs[0].model, served.runs[0].data
    latent = model.latent_names[0]
    body = {"pictures": [{"index": 0}], "latent": latent, "sign": -1}
    answer = client.post("/api/runs/0/heat_map", json=body).json()
    expected = heat_map(model, data.test.images[:1], latent, sign=-1)[0].numpy()
    brightness = decode_png(answer["maps"][0]).sum(0)
    order = np.corrcoef(brightness.ravel(), expected.ravel())[0, 1] if expected.std() else 1
    assert order > 0.9
    findings = client.get("/api/runs/4/findings").json()
    assert [column["column"] for column in findings["columns"]] == list(data.names)
    assert client.get("/api/runs/0/findings").status_code == 422


def test_sample_under_do(client: TestClient, served: ServedRuns) -> None:
    body = {"count": 2, "seed": 3, "do": {"light": 100}}
    answer = client.post("/api/runs/0/sample", json=body).json()
    expected = served.runs[0].model.sample(2, {"light": 100.0}, seed=3)
    for picture, image in zip(answer["pictures"], expected, strict=True):
        assert np.abs(decode_png(picture) - image.numpy() * 255).max() < 1
    assert client.post("/api/runs/2/sample", json={"do": {"light": 1}}).status_code == 422


# ---- results and the queue ---------------------------------------------------------------------
def test_results_are_the_files(client: TestClient) -> None:
    folder = Path(__file__).parents[2] / "results"
    listed = client.get("/api/results").json()["results"]
    names = [each["name"] for each in listed]
    assert names == sorted(path.stem for path in folder.glob("*.json"))
    number = names.index("causalvae-table1")
    table = client.get(f"/api/results/{number}").json()
    document = json.loads((folder / "causalvae-table1.json").read_text())
    assert [row["mean"] for row in table["rows"]] == [row.get("mean") for row in document["rows"]]
    assert [row["paper"] for row in table["rows"]] == [r.get("paper") for r in document["rows"]]
    figure = client.get(f"/api/results/{number}/figures/0")
    assert figure.content == (folder / "causalvae-table1.png").read_bytes()
    figures = sum(each["figures"] for each in listed)
    assert figures == len(list(folder.glob("*.png")))
    assert client.get("/api/results/999").status_code == 404


def test_full_queue_is_503_with_retry_after(pendulum: Dataset) -> None:
    from intervae.models.vae import VAE

    entered, release = threading.Event(), threading.Event()

    class Slow(VAE):
        name = "slow"

        def sample(self, n: int, do: Any = None, *, seed: int | None = None) -> torch.Tensor:
            if n == 2:
                entered.set()
                release.wait(20)
            return super().sample(n, do, seed=seed)

    page = ServedRuns([ServedRun(0, None, model=Slow(pendulum.spec), data=pendulum)])
    page.load_all()
    statuses: list[int] = []
    with TestClient(
        create_app(page, "t"), "http://localhost", headers={"X-Intervae-Token": "t"}
    ) as client:

        def call() -> None:
            statuses.append(client.post("/api/runs/0/sample", json={"count": 2}).status_code)

        threads = [threading.Thread(target=call) for _ in range(QUEUE)]
        for thread in threads:
            thread.start()
        entered.wait(20)
        for _ in range(200):
            if page.runs[0]._waiting == QUEUE:
                break
            threading.Event().wait(0.05)
        refused = client.post("/api/runs/0/sample", json={"count": 2})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert client.get("/api/status").status_code == 200  # the page itself still answers
        release.set()
        for thread in threads:
            thread.join(20)
    assert statuses == [200] * QUEUE


def test_run_that_is_loading_is_503(pendulum: Dataset) -> None:
    page = ServedRuns([ServedRun(0, Path("somewhere"))])
    client = TestClient(
        create_app(page, "t"), "http://localhost", headers={"X-Intervae-Token": "t"}
    )
    answer = client.get("/api/runs/0/pictures")  # without the lifespan, nothing is loaded
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert client.get("/api/runs").json()["runs"][0]["state"] == "loading"
