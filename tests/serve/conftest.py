"""A page with tiny models of each kind, called without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the page needs pip install 'intervae[serve]'")
pytest.importorskip("httpx2", reason="tests of the page need httpx2, of the extra dev")

import numpy as np
from starlette.testclient import TestClient

from intervae.data import Dataset, Variable, build_dataset
from intervae.data.simulators import Motion
from intervae.serve.app import create_app
from intervae.serve.served_runs import ServedRun, ServedRuns
from page_pictures import HOSTILE, TOKEN
from squares import squares, tiny

RESULTS = Path(__file__).parents[2] / "results"


def hostile_data() -> Dataset:
    """Images whose variables have names that are HTML."""
    rng = np.random.default_rng(0)
    table = rng.uniform(0, 1, (40, 2))
    images = (255 * table[:, :1, None, None] * np.ones((1, 1, 16, 16))).astype(np.uint8)
    variables = [Variable(HOSTILE), Variable("</script><script>alert(2)</script>")]
    return build_dataset("hostile", images, table, variables, source={"name": "hostile"})


@pytest.fixture(scope="session")
def served(
    finished: Path,
    pendulum: Dataset,
    make_model: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> ServedRuns:
    """Runs of several models, a damaged folder, names that are HTML, and a model without data."""
    damaged = tmp_path_factory.mktemp("damaged") / "broken"
    damaged.mkdir()
    (damaged / "config.json").write_text("{")
    cells, clips, html = squares(5, 5, 3, 2), Motion(size=12).dataset(samples=40), hostile_data()

    def trained(name: str, data: Dataset) -> Any:
        model = make_model(name, data)
        model.fit(data, seed=0)
        return model

    transition = tiny(cells)
    transition.fit(cells, seed=0)
    runs = [
        ServedRun(0, finished),
        ServedRun(1, damaged),
        ServedRun(2, None, model=trained("vae", pendulum), data=pendulum),
        ServedRun(3, None, model=trained("temporal-causal-prior-vae", clips), data=clips),
        ServedRun(4, None, model=trained("cmcl", pendulum), data=pendulum),
        ServedRun(5, None, model=transition, data=cells),
        ServedRun(6, None, model=trained("condition-vae", html), data=html),
        ServedRun(7, None, model=trained("causal-vae", pendulum)),
    ]
    page = ServedRuns(runs)
    page.load_all()
    return page


@pytest.fixture(scope="session")
def client(served: ServedRuns) -> Iterator[TestClient]:
    """A client with the token, on loopback."""
    app = create_app(served, TOKEN, results=RESULTS)
    with TestClient(
        app, "http://127.0.0.1", headers={"X-Intervae-Token": TOKEN}, raise_server_exceptions=False
    ) as opened:
        yield opened


@pytest.fixture
def stranger(client: TestClient) -> TestClient:
    """A client without the token."""
    return TestClient(client.app, "http://127.0.0.1", raise_server_exceptions=False)
