"""do() over the API: pictures equal the model's, truth the simulator's, values and warnings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import intervae
from intervae.data import Dataset
from intervae.serve.served_runs import ServedRuns
from page_pictures import as_base64, decode_png, image_file


def as_bytes(image: Any) -> np.ndarray:
    return np.rint(np.asarray(image) * 255).astype(np.uint8)


def ask(client: TestClient, path: str, **body: Any) -> Any:
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_do_equals_the_counterfactual_of_the_model(
    client: TestClient, finished: Path, pendulum: Dataset
) -> None:
    model, data = intervae.load(finished), intervae.load_data("pendulum", samples=96, size=16)
    pictures = [{"index": 3}, {"index": 7}]
    answer = ask(client, "runs/0/do", pictures=pictures, do={"light": 100.0})
    images = data.test.images[[3, 7]]
    expected = model.counterfactual(images, {"light": 100.0})
    exogenous = data.test.fields["exogenous"][[3, 7]].numpy()
    truth, values = data.simulator.counterfactual(exogenous, {"light": 100.0}, size=16)
    for i, result in enumerate(answer["answers"]):
        np.testing.assert_array_equal(
            decode_png(result["counterfactual"]), as_bytes(expected[i].numpy())
        )
        np.testing.assert_array_equal(decode_png(result["factual"]), images[i].numpy())
        np.testing.assert_array_equal(decode_png(result["truth"]), truth[i])
        error = np.abs(expected[i].numpy() - truth[i] / 255).mean()
        assert result["errors"]["pixel_mae"] == pytest.approx(error, abs=1e-6)
        by_name = {value["name"]: value for value in result["values"]}
        assert by_name["light"]["after"] == pytest.approx(100, abs=1e-3)
        for j, name in enumerate(data.names):
            assert by_name[name]["true_after"] == pytest.approx(values[i, j])
            error = abs(by_name[name]["after"] - values[i, j])
            assert by_name[name]["error"] == pytest.approx(error)
        assert not by_name["pendulum"]["changed"]


def test_do_cuts_the_edges_into_what_it_sets_and_marks_descendants(client: TestClient) -> None:
    effect = ask(client, "runs/0/do", pictures=[{"index": 0}], do={"shadow_length": 5.0})
    assert sorted(effect["cut"]) == [["light", "shadow_length"], ["pendulum", "shadow_length"]]
    assert effect["changed"] == []
    cause = ask(client, "runs/0/do", pictures=[{"index": 0}], do={"light": 90.0})
    assert (cause["cut"], cause["changed"]) == ([], ["shadow_length", "shadow_position"])
    soft = ask(client, "runs/0/do", pictures=[{"index": 0}], do={"shadow_length": {"add": 1}})
    assert soft["cut"] == []


def test_soft_do_adds_and_multiplies(client: TestClient) -> None:
    for change, function in (({"add": 5}, lambda v: v + 5), ({"multiply": 1.2}, lambda v: 1.2 * v)):
        answer = ask(client, "runs/0/do", pictures=[{"index": 2}], do={"light": change})
        (light,) = (v for v in answer["answers"][0]["values"] if v["name"] == "light")
        assert light["after"] == pytest.approx(function(light["before"]), rel=1e-4)
        assert light["true_after"] == pytest.approx(function(light["true_before"]))


def test_values_outside_the_training_range_warn(client: TestClient) -> None:
    answer = ask(client, "runs/0/do", pictures=[{"index": 0}], do={"light": 400})
    assert answer["warnings"]["light"].startswith("is outside the training range")
    assert answer["notes"][0].startswith("light=400 is outside")
    inside = ask(client, "runs/0/do", pictures=[{"index": 0}], do={"light": 100})
    assert inside["warnings"] == {}


def test_upload_is_answered_as_the_same_picture_without_truth(client: TestClient) -> None:
    png = client.get("/api/runs/0/pictures?start=4&count=1").json()["pictures"][0]["png"]
    uploaded = ask(client, "runs/0/upload", file=png)
    assert uploaded["notes"] == []
    both = [
        ask(client, "runs/0/do", pictures=[picture], do={"light": 90})["answers"][0]
        for picture in ({"index": 4}, {"png": uploaded["png"]})
    ]
    assert both[0]["counterfactual"] == both[1]["counterfactual"]
    assert both[1]["truth"] is None
    assert both[1]["truth_error"]


def test_upload_of_another_shape_is_converted_with_a_note(client: TestClient) -> None:
    file = image_file(np.full((20, 60), 128, np.uint8), "JPEG")
    answer = ask(client, "runs/0/upload", file=as_base64(file))
    assert decode_png(answer["png"]).shape == (3, 16, 16)
    assert any("stretched" in note for note in answer["notes"])
    assert any("grey" in note for note in answer["notes"])


def test_sweep_equals_one_do_per_value(client: TestClient) -> None:
    values = [60.0, 90.0, 120.0]
    held = {"pendulum": 10.0}
    swept = ask(
        client, "runs/0/sweep", picture={"index": 1}, do=held, variable="light", values=values
    )
    for value, frame, truth in zip(values, swept["frames"], swept["truth"], strict=True):
        single = ask(client, "runs/0/do", pictures=[{"index": 1}], do={**held, "light": value})
        alone = decode_png(single["answers"][0]["counterfactual"]).astype(int)
        assert np.abs(alone - decode_png(frame)).max() <= 1  # a batch may round otherwise
        assert single["answers"][0]["truth"] == truth
    spread = ask(client, "runs/0/sweep", picture={"index": 1}, variable="light", count=5)
    assert len(spread["frames"]) == 5


def test_compare_gives_the_standard_deviation_over_runs(
    client: TestClient, served: ServedRuns
) -> None:
    png = client.get("/api/runs/0/pictures?start=2&count=1").json()["pictures"][0]["png"]
    answer = ask(client, "compare", runs=[0, 7, 2], picture={"png": png}, do={"light": 100})
    images = torch.from_numpy(decode_png(png))[None]
    pair = np.stack(
        [served.runs[n].model.counterfactual(images, {"light": 100})[0].numpy() for n in (0, 7)]
    )
    assert answer["std_mean"] == pytest.approx(pair.std(0, ddof=1).mean(), rel=1e-4)
    expected = as_bytes(pair.mean(0)).astype(int)
    assert np.abs(decode_png(answer["mean"]) - expected).max() <= 1
    assert [bool(each["error"]) for each in answer["answers"]] == [False, False, True]


def test_python_line_of_an_answer_repeats_the_view(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    do = {"light": {"add": 5}, "pendulum": 10.5}
    answer = ask(client, "runs/0/do", pictures=[{"index": 3}], do=do)
    names: dict[str, Any] = {}
    exec(answer["code"]["python"], names)  # what a user would paste
    shown = decode_png(answer["answers"][0]["counterfactual"])
    np.testing.assert_array_equal(shown, as_bytes(names["pictures"][0].numpy()))


@pytest.mark.parametrize(
    "do",
    [
        {"light": {"add": 5}, "pendulum": 10.5},
        {"shadow_position": 19, "light": 60},  # unlike the training data
        {"light": 400},
    ],
)
def test_command_line_of_an_answer_repeats_the_view(client: TestClient, do: Any) -> None:
    import json
    import shlex

    from command import intervae as command

    answer = ask(client, "runs/0/do", pictures=[{"index": 3}], do=do)
    words = shlex.split(answer["code"]["cli"])
    assert words[0] == "intervae"
    output = command(*words[1:], "--json")
    printed = json.loads(output.out)
    values = answer["answers"][0]["values"]
    for column, field in (("set", "after"), ("after", "shown"), ("true_after", "true_after")):
        command_line = {row["variable"]: row[column] for row in printed}
        page = {value["name"]: value[field] for value in values}
        assert page == pytest.approx(command_line, rel=1e-4), column
    assert len(answer["notes"]) >= (0 if "pendulum" in do else 1)
    assert " ".join(f"note: {note}" for note in answer["notes"]) == " ".join(output.err.split())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"pictures": [{"index": 0}], "do": {"lihgt": 1}}, "light"),
        ({"pictures": [{"index": 10**6}], "do": {}}, "numbered from 0"),
        ({"pictures": [{"index": 0}], "do": {"light": "bright"}}, "not a number"),
        ({"pictures": []}, "pictures"),
        ({"pictures": [{"index": 0}], "do": {"light": {"add": 1, "multiply": 2}}}, "light"),
        ({"pictures": [{"index": 0}, {"png": "aaaa"}]}, "not both"),
    ],
)
def test_wrong_requests_are_one_sentence(client: TestClient, body: Any, words: str) -> None:
    answer = client.post("/api/runs/0/do", json=body)
    assert answer.status_code == 422
    assert words in answer.json()["error"]


def test_a_number_that_is_not_finite_is_refused(client: TestClient) -> None:
    body = '{"pictures": [{"index": 0}], "do": {"light": NaN}}'
    headers = {"Content-Type": "application/json"}
    answer = client.post("/api/runs/0/do", content=body, headers=headers)
    assert answer.status_code == 422
