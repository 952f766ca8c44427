"""Who may call the page: Host and Origin, the token, JSON bodies of limited size, and headers.

A page on loopback is open to every site that the user visits: a foreign name can be made to resolve
to 127.0.0.1 (DNS rebinding), and any site can send a request there. The checks are made before a
body is read or a route is found.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import secrets
from collections.abc import Iterable
from typing import Any

from intervae.serve.schemas import MAX_BASE64

MAX_BODY = MAX_BASE64 + 2**16  # bytes: one file in base64 and the rest of a request
BODY_SECONDS = 30.0  # for a body to arrive
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
OPEN_API = frozenset({"/api/status"})  # needs no token
TOKEN_HEADER = "x-intervae-token"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors "
)


class RefusedRequestError(Exception):
    """A request that is answered with a status and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class AccessControl:
    """ASGI middleware with the checks of this file.

    Arguments:
        app: the application behind it.
        token: that every call of the API sends as X-Intervae-Token.
        hosts: names under which the page is reached, beside loopback.
        any_address: whether a Host that is an IP address passes, for a server beyond loopback; a
            foreign site has a name, not an address.
        frame_ancestors: who may show the page in a frame.
    """

    def __init__(
        self,
        app: Any,
        *,
        token: str,
        hosts: Iterable[str] = (),
        any_address: bool = False,
        frame_ancestors: str = "'none'",
    ) -> None:
        self.app, self.token, self.any_address = app, token.encode(), any_address
        self.hosts = LOOPBACK | {host.casefold() for host in hosts}
        self.headers = [
            (b"content-security-policy", f"{POLICY}{frame_ancestors}".encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cache-control", b"no-store"),
        ]
        if frame_ancestors == "'none'":
            self.headers.append((b"x-frame-options", b"DENY"))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self.headers]}
            await send(message)

        try:
            self.check(scope)
            if scope["method"] == "POST":
                receive = await _read_body(scope, receive)
        except RefusedRequestError as refused:
            await _answer(send_with_headers, refused)
            return
        await self.app(scope, receive, send_with_headers)

    def check(self, scope: Any) -> None:
        """Raise a RefusedRequestError for a foreign Host or Origin, and for a missing token."""
        headers = scope["headers"]
        host = _single(headers, b"host")
        if not self.knows(host):
            raise RefusedRequestError(
                403, "this Host is not served here; add it with --allow-host if it is yours."
            )
        origin = _single(headers, b"origin")
        if origin and origin.partition("://")[2].casefold() != host.casefold():
            raise RefusedRequestError(403, "requests of other sites are refused.")
        path, site = scope["path"], _single(headers, b"sec-fetch-site")
        if path != "/" and site not in ("", "same-origin", "none"):
            raise RefusedRequestError(403, "requests of other sites are refused.")
        if path.startswith("/api") and path not in OPEN_API:
            sent = _single(headers, TOKEN_HEADER.encode()).encode("utf-8", "replace")
            if not secrets.compare_digest(sent, self.token):
                raise RefusedRequestError(
                    401, "the token is missing or wrong; use the address that the command printed."
                )

    def knows(self, host: str) -> bool:
        """Whether a Host header, with or without a port, is one of this server's."""
        name = host.casefold()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") == 1:
            name = name.partition(":")[0]
        return name in self.hosts or (self.any_address and _is_address(name))


def _single(headers: Any, name: bytes) -> str:
    """Return the value of a header, "" without it; several are refused."""
    values = [value for key, value in headers if key == name]
    if len(values) > 1:
        raise RefusedRequestError(400, f"the header {name.decode()} is there more than once.")
    return values[0].decode("latin-1").strip() if values else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _read_body(scope: Any, receive: Any) -> Any:
    """Read a JSON body of limited size and time; return a `receive` that repeats it."""
    content_type = _single(scope["headers"], b"content-type").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise RefusedRequestError(415, "only JSON is read; send Content-Type: application/json.")
    length = _single(scope["headers"], b"content-length")
    if length.isdecimal() and int(length) > MAX_BODY:
        raise RefusedRequestError(413, f"the request is larger than {MAX_BODY} bytes.")
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RefusedRequestError(400, "the request ended early.")
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > MAX_BODY:
                    raise RefusedRequestError(413, f"the request is larger than {MAX_BODY} bytes.")
    except TimeoutError:
        raise RefusedRequestError(408, "the request did not arrive in time.") from None
    pending = [{"type": "http.request", "body": bytes(body), "more_body": False}]

    async def repeat() -> Any:
        return pending.pop() if pending else await receive()

    return repeat


async def _answer(send: Any, refused: RefusedRequestError) -> None:
    body = json.dumps({"error": refused.sentence}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),  # the rest of the body is not read
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
