"""The OpenAPI description, fuzzed by schemathesis: no request makes the server fail."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import hypothesis
import pytest
from starlette.testclient import TestClient

schemathesis = pytest.importorskip("schemathesis", reason="fuzzing needs the extra dev")

EXAMPLES = int(os.environ.get("INTERVAE_FUZZ_EXAMPLES", "12"))  # of each operation
STATUSES: Counter[int] = Counter()  # of all answers
OPERATIONS = [
    ("GET", "/api/status"),
    ("GET", "/api/runs"),
    ("GET", "/api/runs/{number}"),
    ("GET", "/api/runs/{number}/pictures"),
    ("GET", "/api/runs/{number}/pairs"),
    ("POST", "/api/runs/{number}/upload"),
    ("POST", "/api/runs/{number}/do"),
    ("POST", "/api/runs/{number}/sweep"),
    ("POST", "/api/compare"),
    ("POST", "/api/runs/{number}/act"),
    ("POST", "/api/runs/{number}/attribute"),
    ("POST", "/api/runs/{number}/clip"),
    ("GET", "/api/runs/{number}/findings"),
    ("POST", "/api/runs/{number}/heat_map"),
    ("POST", "/api/runs/{number}/traverse"),
    ("POST", "/api/runs/{number}/sample"),
    ("GET", "/api/results"),
    ("GET", "/api/results/{number}"),
    ("GET", "/api/results/{number}/figures/{figure}"),
]


def test_every_operation_is_described_and_fuzzed(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    described = [
        (method.upper(), path) for path, item in description["paths"].items() for method in item
    ]
    assert sorted(described) == sorted(OPERATIONS)


@pytest.mark.filterwarnings("ignore")  # of schemathesis and its parts
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_no_request_makes_the_server_fail(client: TestClient, method: str, path: str) -> None:
    """Valid and invalid requests to every kind of run get an answer of the description."""
    schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    operation = schema[path][method]
    generation = schemathesis.GenerationMode

    for mode in (generation.POSITIVE, generation.NEGATIVE):
        try:
            strategy = operation.as_strategy(generation_mode=mode)
        except Exception as error:  # nothing to make wrong, as in a GET without parameters
            assert mode == generation.NEGATIVE, error  # noqa: PT017
            continue

        whole = hypothesis.strategies.integers

        @hypothesis.given(case=strategy, number=whole(0, 8), pick=whole(0, 40))
        @hypothesis.settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        def check(case: object, number: int, pick: int) -> None:
            send(client, case, number, pick)

        try:
            check()
        except hypothesis.errors.Unsatisfiable:
            assert mode == generation.NEGATIVE


def send(client: TestClient, case: Any, number: int, pick: int) -> None:
    """Send a case, mostly to a run that exists and half of the time with names that it knows."""
    parameters = dict(case.path_parameters or {})
    if "number" in parameters and number < 8:
        parameters["number"] = number
    case.path_parameters = parameters
    if pick % 2 and isinstance(case.body, dict):
        case.body = with_known_names(client, case.body, number % 8, pick // 2)
    arguments = case.as_transport_kwargs(base_url="http://127.0.0.1")
    headers = {
        name: value
        for name, value in dict(arguments.pop("headers", None) or {}).items()
        if name.lower() in ("content-type", "accept") and str(value).isascii()
    }
    wanted = {"method", "url", "params", "json", "data", "content"}
    chosen = {name: value for name, value in arguments.items() if name in wanted}
    answer = client.request(**chosen, headers=headers)
    STATUSES[answer.status_code] += 1
    assert answer.status_code < 500, (chosen, answer.text)
    if answer.status_code >= 400:
        assert answer.json()["error"]


def with_known_names(client: TestClient, body: dict[str, Any], run: int, pick: int) -> Any:
    """Return a body that names pictures, variables, latents and actions of a run."""
    about = client.get(f"/api/runs/{run}").json()
    body = {**body}
    for key, known in (("variable", "variables"), ("latent", "latents")):
        if key in body and about[known]:
            body[key] = about[known][pick % len(about[known])]["name"]
    if "action" in body and about["actions"]:
        body["action"] = about["actions"][pick % len(about["actions"])]
    if isinstance(body.get("do"), dict) and about["variables"]:
        names = [variable["name"] for variable in about["variables"]]
        values = body["do"].values()
        body["do"] = dict(zip(names[pick % len(names) :], values, strict=False))
    for key in ("picture", "before", "after"):
        if body.get(key) is not None:
            body[key] = {"index": pick % 8}
    if isinstance(body.get("pictures"), list):
        body["pictures"] = [{"index": (pick + i) % 8} for i in range(len(body["pictures"]))]
    return body


def test_fuzzing_reached_answers_as_well_as_refusals() -> None:
    """Runs last in this file: requests that are all refused would show little."""
    if sum(STATUSES.values()) < len(OPERATIONS):
        pytest.skip("the tests above did not run in this process")
    assert STATUSES[200] > 0.1 * sum(STATUSES.values())
    assert STATUSES[422] > 0
