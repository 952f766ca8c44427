"""Start of the page: ports, address, warnings, the notebook, and the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from command import ENVIRONMENT, PROGRAM, intervae, refused
from intervae.data import Dataset
from intervae.errors import UsageError
from intervae.serve.launch import FIRST_PORT, PageServer, bind
from intervae.serve.served_runs import ServedRuns, open_folders


def get(address: str, path: str, **headers: str) -> tuple[int, Any]:
    """Return status and JSON of a call to a page with its address."""
    base, _, token = address.partition("#token=")
    request = urllib.request.Request(base + path, headers={"X-Intervae-Token": token, **headers})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_port_in_use_moves_on_or_is_an_error() -> None:
    first = bind("127.0.0.1", None)
    second = bind("127.0.0.1", None)
    ports = [listener.getsockname()[1] for listener in (first, second)]
    assert FIRST_PORT <= ports[0] < ports[1]
    with pytest.raises(UsageError, match=rf"--port {ports[0]} cannot be used .*in use"):
        bind("127.0.0.1", ports[0])
    for listener in (first, second):
        listener.close()
    asked = bind("127.0.0.1", ports[0])
    assert asked.getsockname()[1] == ports[0]
    asked.close()
    with pytest.raises(UsageError, match="--host"):
        bind("no such host.invalid", None)


def test_beyond_loopback_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    page = PageServer(ServedRuns([]), host="0.0.0.0", token="t")
    assert page.beyond_loopback
    assert socket.gethostname() in page.address
    page.socket.close()
    page = PageServer(ServedRuns([]))
    assert not page.beyond_loopback
    assert len(page.token) >= 32
    page.socket.close()


@pytest.mark.parametrize("token", ["a/b=", "two words", "\u00fc", "a#b"])
def test_token_that_an_address_cannot_hold_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="INTERVAE_TOKEN"):
        PageServer(ServedRuns([]), token=token)


def test_model_serves_itself_in_a_notebook(make_model: Any, pendulum: Dataset) -> None:
    model = make_model("causal-vae", pendulum)
    page = model.serve(pendulum)
    try:
        html = page._repr_html_()
        assert f'<iframe src="{page.address}"' in html
        for _ in range(600):
            run = get(page.address, "api/runs")[1]["runs"][0]
            if run["state"] != "loading":
                break
            time.sleep(0.05)
        assert (run["state"], run["model"]) == ("ready", "causal-vae")
        assert run["pictures"]["count"] == len(pendulum.test)
        assert get(page.address, "api/runs", Host="evil.example")[0] == 403
        base = page.address.partition("#")[0]
        with urllib.request.urlopen(base, timeout=30) as answer:
            policy = answer.headers["content-security-policy"]
        assert "frame-ancestors http://localhost:*" in policy
        assert answer.headers["x-frame-options"] is None
    finally:
        page.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", page.port), timeout=1)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_command_serves_until_interrupted(finished: Path, tmp_path: Path) -> None:
    words = [PROGRAM, "serve", str(finished), str(tmp_path / "missing"), "--no-open"]
    environment = {**ENVIRONMENT, "INTERVAE_TOKEN": "chosen"}
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/#token=chosen", line)
        assert address, line
        for _ in range(600):
            states = [run["state"] for run in get(address[0], "api/runs")[1]["runs"]]
            if "loading" not in states:
                break
            time.sleep(0.1)
        assert states == ["ready", "failed"]
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    assert out.endswith("stopped\n")


def test_command_refuses_a_port_in_use_in_one_sentence(finished: Path) -> None:
    taken = bind("127.0.0.1", None)
    port = taken.getsockname()[1]
    refused(intervae("serve", finished, "--port", port, "--no-open"), 2, f"--port {port}")
    taken.close()


def test_missing_extra_is_one_sentence(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    refused(intervae("serve", finished, "--no-open"), 2, "intervae[serve]")


def test_page_is_there_before_torch_is_imported() -> None:
    """Imports of the server up to the first answer; models are imported in the background."""
    code = (
        "import sys; from intervae.serve.launch import PageServer; "
        "from intervae.serve.served_runs import open_folders; "
        "PageServer(open_folders([])).socket.close(); "
        "print([m for m in ('torch', 'numpy', 'matplotlib', 'pandas') if m in sys.modules])"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_runs_are_numbered_in_the_order_of_the_command_line(finished: Path) -> None:
    page = open_folders([finished, Path("elsewhere"), finished])
    assert [run.number for run in page.runs] == [0, 1, 2]
    assert page.runs[1].description.name == "elsewhere"


def test_files_of_the_page_are_small_and_packaged() -> None:
    from intervae.serve.app import STATIC, static_files

    assert {path.name for path in STATIC.iterdir()} == set(static_files())
    assert sum(path.stat().st_size for path in static_files().values()) < 300_000
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert '"serve/static/*"' in project
