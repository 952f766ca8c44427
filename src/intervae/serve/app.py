"""The application: the page at /, its files, the API of routes.py, and errors as one sentence."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

import intervae
from intervae.errors import IntervaeError
from intervae.serve import schemas
from intervae.serve.access import TOKEN_HEADER, AccessControl
from intervae.serve.results import ResultsFolder
from intervae.serve.routes import query_routes, result_routes, run_routes
from intervae.serve.served_runs import BusyError, FailedRunError, ServedRuns

STATIC = Path(__file__).parent / "static"
MEDIA = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
MEDIA |= {".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon"}
RETRY_AFTER = "1"  # second
STATUSES = (400, 401, 403, 404, 409, 413, 415, 422, 503)


def create_app(
    runs: ServedRuns,
    token: str,
    *,
    results: Path | None = None,
    hosts: Iterable[str] = (),
    any_address: bool = False,
    frame_ancestors: str = "'none'",
) -> FastAPI:
    """Return the application of a page; the runs are loaded when it starts.

    Arguments:
        results: a folder of result tables.
        hosts, any_address, frame_ancestors: see `AccessControl`.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        runs.start_loading()
        yield
        runs.close()

    app = FastAPI(
        title="intervae",
        version=intervae.__version__,
        description="Ask trained models what if. Every call but /api/status needs the token of "
        f"the server's address in the header {TOKEN_HEADER}.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": schemas.ErrorAnswer} for status in STATUSES
    }
    tables = ResultsFolder(results)
    for router in (run_routes(runs, tables), query_routes(runs), result_routes(tables)):
        app.include_router(router, prefix="/api", responses=errors)
    _add_files(app)
    _add_error_handlers(app)
    app.add_middleware(
        AccessControl,
        token=token,
        hosts=hosts,
        any_address=any_address,
        frame_ancestors=frame_ancestors,
    )
    return app


# ---- files and errors ---------------------------------------------------------------------------
def _add_files(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        return _file("index.html")

    @app.get("/static/{name}", include_in_schema=False)
    def static(name: str) -> Response:
        return _file(name)


def static_files() -> dict[str, Path]:
    """Return the files of the page by name; a request can name no other."""
    return {path.name: path for path in sorted(STATIC.iterdir()) if path.suffix in MEDIA}


def _file(name: str) -> Response:
    files = static_files()
    if name not in files:
        raise HTTPException(404, "there is no such file.")
    path = files[name]
    return Response(path.read_bytes(), media_type=MEDIA[path.suffix])


def error_response(status: int, sentence: str, **headers: str) -> JSONResponse:
    text = " ".join(sentence.split()).encode("utf-8", "replace").decode("utf-8")
    return JSONResponse({"error": text}, status, headers)


def _add_error_handlers(app: FastAPI) -> None:
    async def invalid(request: Request, error: Any) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(place)[:60] for place in first["loc"][1:5])
        return error_response(
            422, f"{where or 'the request'}: {first['msg'].removeprefix('Value error, ')}."
        )

    async def http(request: Request, error: Any) -> JSONResponse:
        return error_response(error.status_code, str(error.detail))

    async def busy(request: Request, error: Exception) -> JSONResponse:
        return error_response(503, str(error), **{"Retry-After": RETRY_AFTER})

    async def failed(request: Request, error: Exception) -> JSONResponse:
        return error_response(409, str(error))

    async def refused(request: Request, error: Exception) -> JSONResponse:
        return error_response(422, str(error))

    async def bug(request: Request, error: Exception) -> JSONResponse:
        logging.getLogger("intervae.serve").error("%s failed", request.url.path, exc_info=error)
        return error_response(500, f"this is a bug ({type(error).__name__}); please report it.")

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(BusyError, busy)
    app.add_exception_handler(FailedRunError, failed)
    app.add_exception_handler(IntervaeError, refused)
    app.add_exception_handler(Exception, bug)
