"""Access to the page: Host, Origin, token, bodies, uploads, paths, headers; nothing is written."""

from __future__ import annotations

import io
import json
import struct
import tempfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from command import contents
from intervae.serve.access import MAX_BODY, AccessControl
from intervae.serve.app import static_files
from intervae.serve.pictures import MAX_PIXELS
from intervae.serve.schemas import MAX_FILE
from page_pictures import HOSTILE, TOKEN, as_base64, decode_png, image_file

DO = {"pictures": [{"index": 0}], "do": {"light": 90}}


# ---- Host, Origin and token --------------------------------------------------------------------
@pytest.mark.parametrize("path", ["/", "/static/style.css", "/api/status", "/api/runs"])
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "192.168.1.7", ""]
)
def test_foreign_host_is_refused_everywhere(client: TestClient, path: str, host: str) -> None:
    """A name that resolves to this machine (DNS rebinding) is still a foreign name."""
    assert client.get(path, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1:1", "[::1]:8765"])
def test_loopback_names_are_served_on_any_port(client: TestClient, host: str) -> None:
    assert client.get("/api/runs", headers={"Host": host}).status_code == 200


def test_server_beyond_loopback_takes_its_names_and_addresses_only() -> None:
    access = AccessControl(None, token="t", hosts=["lab.example"], any_address=True)
    for host in ("lab.example", "LAB.example:443", "10.1.2.3:8765", "[fe80::1]:80", "localhost"):
        assert access.knows(host), host
    for host in ("evil.example", "lab.example.evil.example", "10.1.2.3.evil.example", ""):
        assert not access.knows(host), host


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},  # another server on this machine
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_requests_of_other_sites_are_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/api/runs/0/do", json=DO, headers=headers).status_code == 403
    assert client.get("/api/runs", headers=headers).status_code == 403


def test_own_origin_is_accepted_and_no_other_origin_may_read(client: TestClient) -> None:
    own = {"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}
    answer = client.post("/api/runs/0/do", json=DO, headers=own)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "\xff"])
def test_api_needs_the_token(stranger: TestClient, token: str | None) -> None:
    headers = {} if token is None else {"X-Intervae-Token": token.encode("latin-1")}
    assert stranger.post("/api/runs/0/do", json=DO, headers=headers).status_code == 401
    for path in ("/api/runs", "/api/runs/0/pictures", "/api/results", "/api/unknown"):
        assert stranger.get(path, headers=headers).status_code == 401
    assert stranger.get("/api/status", headers=headers).status_code == 200
    assert stranger.get("/", headers=headers).status_code == 200


def test_token_is_not_in_the_page_or_its_description(stranger: TestClient) -> None:
    paths = ["/", "/openapi.json", "/api/status", *(f"/static/{name}" for name in static_files())]
    for path in paths:
        assert TOKEN not in stranger.get(path).text


def test_every_answer_has_the_headers(client: TestClient, stranger: TestClient) -> None:
    answers = [client.get("/"), client.get("/api/runs"), stranger.get("/api/runs")]
    answers += [client.get("/nothing"), client.post("/api/runs/0/do", content=b"x")]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"


# ---- bodies ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kind",
    ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain", "", "text/json"],
)
def test_bodies_that_are_not_json_are_refused(client: TestClient, kind: str) -> None:
    """A form of another site can send these without a preflight."""
    headers = {"Content-Type": kind} if kind else {}
    answer = client.post("/api/runs/0/do", content=json.dumps(DO).encode(), headers=headers)
    assert answer.status_code == 415


def test_body_is_counted_while_it_is_read(client: TestClient) -> None:
    sent = 0

    def chunks() -> object:
        nonlocal sent
        for _ in range(3 * MAX_BODY // 2**20):
            sent += 2**20
            yield b" " * 2**20

    headers = {"Content-Type": "application/json"}  # no Content-Length
    answer = client.post("/api/runs/0/do", content=chunks(), headers=headers)
    assert answer.status_code == 413
    large = b" " * (MAX_BODY + 1)
    assert client.post("/api/runs/0/do", content=large, headers=headers).status_code == 413


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b'{"pictures": [{"index": 1e999}]}', b"null"]
)
def test_broken_json_is_refused(client: TestClient, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = client.post("/api/runs/0/do", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]


# ---- paths -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e%2fapp.py",
        "/static/..%5capp.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/style.css%00.py",
        "/api/runs/..%2f..",
        "/api/results/..%2fpyproject/figures/0",
        "/api/results/0/figures/..%2f..%2fpyproject.toml",
        "/api/runs/-1",
    ],
)
def test_no_path_reaches_the_disk(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (404, 422)
    assert "import" not in answer.text


# ---- uploads -----------------------------------------------------------------------------------
def png_of(width: int, height: int, rows: bytes) -> bytes:
    """Return a PNG file that claims a size, with compressed `rows`."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + check

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows, 9)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def gif() -> bytes:
    return image_file(np.zeros((8, 8), np.uint8), "GIF")


def text_bomb() -> bytes:
    """A small PNG whose text expands to 100 MB."""
    file = image_file(np.zeros((8, 8), np.uint8))
    body = b"Comment\x00\x00" + zlib.compress(b"a" * 10**8, 9)
    check = struct.pack(">I", zlib.crc32(b"zTXt" + body))
    return file[:33] + struct.pack(">I", len(body)) + b"zTXt" + body + check + file[33:]


UPLOADS = {
    "bomb of many pixels": lambda: png_of(60_000, 60_000, bytes(10**6)),
    "just too many pixels": lambda: png_of(5000, MAX_PIXELS // 5000 + 1, bytes(100)),
    "text bomb": text_bomb,
    "truncated": lambda: image_file(_noise())[:300],
    "claims more rows than it has": lambda: png_of(64, 64, bytes(10)),
    "svg": lambda: b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"></svg>',
    "svg with a declaration": lambda: (
        b'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a "b">]><svg/>'
    ),
    "html": lambda: b"<!doctype html><script>alert(1)</script>",
    "gif": gif,
    "zip": lambda: _zip(),
    "text": lambda: b"hello, world",
    "postscript": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "png header only": lambda: b"\x89PNG\r\n\x1a\n",
    "too many bytes": lambda: bytes(MAX_FILE + 1),
}


def _noise() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 255, (16, 16, 3)).astype(np.uint8)


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.png", b"x")
    return file.getvalue()


@pytest.mark.parametrize("kind", UPLOADS)
def test_hostile_uploads_are_refused(client: TestClient, kind: str) -> None:
    file = as_base64(UPLOADS[kind]())
    answer = client.post("/api/runs/0/upload", json={"file": file})
    assert answer.status_code == 422, kind
    assert answer.json()["error"].startswith(("the picture was refused", "file: "))
    picture = {"pictures": [{"png": file}], "do": {}}
    assert client.post("/api/runs/0/do", json=picture).status_code == 422


def test_polyglot_is_reduced_to_its_pixels(client: TestClient) -> None:
    """A PNG that is also HTML and a zip: only the pixels come back, as a PNG of our own."""
    script = b"<script>alert(1)</script>"
    answer = client.post(
        "/api/runs/0/upload", json={"file": as_base64(image_file(_noise()) + script + _zip())}
    )
    assert answer.status_code == 200
    np.testing.assert_array_equal(decode_png(answer.json()["png"]), _noise().transpose(2, 0, 1))
    assert as_base64(script)[4:-4] not in answer.json()["png"]
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP"])
def test_usual_formats_are_read(client: TestClient, kind: str) -> None:
    file = as_base64(image_file(_noise(), kind))
    answer = client.post("/api/runs/0/upload", json={"file": file})
    assert decode_png(answer.json()["png"]).shape == (3, 16, 16)


def test_nothing_is_written(
    client: TestClient, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = contents(finished)
    file = as_base64(image_file(np.zeros((3000, 3000, 3), np.uint8)))
    assert client.post("/api/runs/0/upload", json={"file": file}).status_code == 200
    assert client.post("/api/runs/0/do", json=DO).status_code == 200
    assert contents(finished) == before
    assert list(tmp_path.iterdir()) == []


# ---- names are text ----------------------------------------------------------------------------
def test_names_that_are_html_stay_text(client: TestClient) -> None:
    run = client.get("/api/runs/6")
    names = [variable["name"] for variable in run.json()["variables"]]
    assert HOSTILE in names
    assert run.headers["content-type"] == "application/json"
    answer = client.post("/api/runs/6/do", json={"pictures": [{"index": 0}], "do": {HOSTILE: 0.5}})
    assert answer.json()["set"] == [HOSTILE]
    wrong = client.post("/api/runs/6/do", json={"pictures": [{"index": 0}], "do": {"<b>": 0.5}})
    assert wrong.headers["content-type"] == "application/json"
    assert wrong.status_code == 422


def test_image_files_of_the_tests_are_what_they_claim() -> None:
    assert Image.open(io.BytesIO(png_of(60_000, 10, bytes(10)))).size == (60_000, 10)
