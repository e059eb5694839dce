"""Answers: JSON made by msgspec, compressed if the client accepts it, and counted; one format for all errors."""

from __future__ import annotations

import gzip
import logging
import time
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skep.core.errors import Conflict, InputError, NotFound
from skep.jobs.request import LimitReached
from skep.server.gate import Crowded
from skep.server.identity import Forbidden
from skep.service.turn import Busy
from skep.service.values import Json

if TYPE_CHECKING:
    from skep.server.metrics import ServerMetrics

log = logging.getLogger(__name__)

JSON = "application/json"
BUG = "internal error; the server's log has the details"
"""The client learns that the error is not its own; the details are in the log."""
_encode = msgspec.json.Encoder().encode

Error = Any  # of the class that the function is registered for, where Starlette declares `Exception`


def answer(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_encode(content), status, headers, JSON)


def error_answer(
    status: int, message: str, hint: str = "", headers: dict[str, str] | None = None, code: str = ""
) -> Response:
    return Response(error_body(message, hint, code), status, headers, JSON)


def error_body(message: str, hint: str = "", code: str = "") -> bytes:
    body = {"error": one_line(message), "hint": one_line(hint)}
    return _encode({**body, "code": code} if code else body)


def one_line(text: str) -> str:
    return " ".join(text.split())[:2000]


def status_of(error: InputError) -> int:
    kinds = {NotFound: 404, Conflict: 409, LimitReached: 429}
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), 400)


def add_error_answers(app: FastAPI) -> None:
    app.add_exception_handler(Forbidden, _refused)
    app.add_exception_handler(InputError, _input)
    app.add_exception_handler(Busy, _busy)
    app.add_exception_handler(Crowded, _crowded)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _bug)


def _refused(request: Request, error: Error) -> Response:
    request.scope["refusal"] = str(error)
    return error_answer(error.status, str(error), error.hint, error.headers)


def _input(_: Request, error: Error) -> Response:
    return error_answer(status_of(error), str(error), error.hint, code=getattr(error, "code", ""))


def _busy(_: Request, error: Error) -> Response:
    return error_answer(503, str(error))


def _crowded(_: Request, error: Error) -> Response:
    return error_answer(429, str(error), error.hint, error.headers, code="crowded")


def _invalid(request: Request, error: Error) -> Response:
    """The first validation error, as a readable sentence."""
    fault = error.errors()[0]
    if fault["loc"] == ("path", "id") and request.url.path.startswith("/api/v1/jobs/"):
        return error_answer(404, f"there is no job {fault['input']!r}"[:300], "a job is named by its id or its name")
    parts = [str(part) for part in fault["loc"] if part not in ("query", "path", "header", "body")] or ["body"]
    where = ".".join(part for part in parts if not part.startswith("constrained-"))  # pydantic's name of a type
    if fault["type"] == "string_pattern_mismatch":
        return error_answer(
            400, f"{where} is {str(fault['input'])[:100]!r}, which does not have the expected form", "see /openapi.json"
        )
    return error_answer(400, f"{where}: {fault['msg']}", "see /openapi.json")


def _http(request: Request, error: Error) -> Response:
    words = {404: "there is nothing at this address", 405: "this address does not support this method"}
    headers = error.headers
    if error.status_code == 405:
        headers = {"allow": ", ".join(methods_at(request.app.openapi()["paths"], request.url.path))}
    return error_answer(error.status_code, words.get(error.status_code, str(error.detail)), "", headers)


def methods_at(paths: dict[str, Json], path: str) -> list[str]:
    """The methods of all routes of this address; the router returns those of the first."""
    found = [operations for template, operations in paths.items() if compile_path(template)[0].match(path)]
    return sorted({method.upper() for operations in found for method in operations})


def _bug(_: Request, error: Exception) -> Response:
    return error_answer(500, BUG)


LEAST = 1024
"""Shorter answers fit into a packet uncompressed."""
LARGE = 64 * 1024
"""Larger answers are compressed in a thread, so that other requests need not wait."""
LEVEL = 4
KINDS = ("application/json", "text/csv", "text/html")


class Compress:
    """Compresses JSON answers for clients that accept it. Streams are not compressed: a line must not wait in a
    buffer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and takes_gzip(Headers(scope=scope).get("accept-encoding", "")):
            await self.app(scope, receive, Sender(send).send)
        else:
            await self.app(scope, receive, send)


class Sender:
    """Delays the head of an answer until it is known whether the body comes in one piece."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and is_compressible(message):
            self._head = message
        elif self._head is not None and message["type"] == "http.response.body":
            head, self._head = self._head, None
            if not message.get("more_body") and len(message.get("body", b"")) >= LEAST:
                await compress(head, message)
            await self._send(head)
            await self._send(message)
        else:
            await self._send(message)


def takes_gzip(accepted: str) -> bool:
    for part in accepted.lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def is_compressible(head: Message) -> bool:
    headers = Headers(raw=head["headers"])
    return headers.get("content-type", "").split(";")[0] in KINDS and "content-encoding" not in headers


async def compress(head: Message, message: Message) -> None:
    body = message["body"]
    if len(body) > LARGE:
        message["body"] = await run_in_threadpool(gzip.compress, body, LEVEL, mtime=0)
    else:
        message["body"] = gzip.compress(body, LEVEL, mtime=0)
    headers = MutableHeaders(raw=head["headers"])
    headers["content-encoding"] = "gzip"
    headers["content-length"] = str(len(message["body"]))
    headers.add_vary_header("Accept-Encoding")


class Measure:
    """Counts all answers, including refusals. A bug ends here: the answer was sent, and the details are logged."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began_s = time.perf_counter()
        has_begun = False

        async def counting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            if message["type"] == "http.response.start":
                self.metrics.seconds.observe(time.perf_counter() - began_s)
                self.metrics.requests.labels(_method(scope), _route(scope), str(message["status"])).inc()
            await send(message)

        try:
            await self.app(scope, receive, counting)
        except Exception:
            log.exception("a bug: %s %s", _method(scope), _route(scope))
            if not has_begun:
                await error_answer(500, BUG)(scope, receive, counting)


def _method(scope: Scope) -> str:
    """A client may send any word as a method."""
    method: str = scope["method"]
    return method if method in ("GET", "POST", "PUT", "PATCH", "DELETE") else "other"


def _route(scope: Scope) -> str:
    """The pattern and not the address: there are any number of addresses."""
    return getattr(scope.get("route"), "path", "none")
