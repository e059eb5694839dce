"""A thin client of the Kubernetes API: requests on kept connections, streams on their own.

A request costs a small part of the CPU time of httpx (docs/decisions).
"""

from __future__ import annotations

import http.client
import queue
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from skep.core.errors import SkepError
from skep.engines.kube.connection import AnswerHead, KubeConnection
from skep.engines.kube.credentials import Credentials

REQUEST_S = 30.0
RETRIES = 4
"""After a 429."""
FAILURES = (OSError, ValueError, http.client.HTTPException)
JSON, MERGE = "application/json", "application/merge-patch+json"


class ApiError(SkepError):
    """The answer of the API server was not a success; status 0: there was no answer."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


class Unreachable(ApiError):
    def __init__(self, url: str, error: Exception) -> None:
        super().__init__(0, "Unreachable", f"the API server {url} cannot be reached: {error}")


class Status(msgspec.Struct):
    """What the API server answers instead of an object."""

    reason: str = ""
    message: str = ""


class Api:
    """For any number of threads."""

    def __init__(self, credentials: Credentials) -> None:
        self.credentials = credentials
        self.namespace = credentials.namespace
        parts = urlsplit(credentials.url)
        self._host, self._port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self._prefix = parts.path.rstrip("/")
        self._idle: queue.LifoQueue[KubeConnection] = queue.LifoQueue()
        self._is_closed = False
        self._encode = msgspec.json.Encoder().encode

    def request(self, method: str, path: str, body: Any = None, kind: str = JSON) -> bytes:
        """The body of the answer. Raises `ApiError`."""
        content = b"" if body is None else self._encode(body)
        for left in range(RETRIES, -1, -1):
            answer, text = self._exchange(method, path, content, kind)
            if answer.status < 300:
                return text
            if answer.status == 429 and left and method != "POST":
                time.sleep(min(float(answer.headers.get("retry-after") or 1), 5.0))
                continue
            raise failure(answer.status, text)
        raise AssertionError("unreachable")

    def _exchange(self, method: str, path: str, content: bytes, kind: str) -> tuple[AnswerHead, bytes]:
        """A used connection may have been closed by the server before it read anything: then with another one."""
        while True:
            connection, is_used = self._connection()
            try:
                answer = connection.send(method, self._prefix + path, self._headers(kind), content)
                text = b"".join(connection.pieces(answer))
            except FAILURES as error:
                connection.close()
                if is_used and isinstance(error, http.client.RemoteDisconnected | ConnectionError):
                    continue
                raise Unreachable(self.credentials.url, error) from None
            if self._is_closed or answer.headers.get("connection") == "close":
                connection.close()
            else:
                self._idle.put(connection)
            return answer, text

    def get(self, path: str, **query: Any) -> bytes:
        return self.request("GET", with_query(path, query))

    def post(self, path: str, body: Any) -> bytes:
        return self.request("POST", path, body)

    def put(self, path: str, body: Any) -> bytes:
        return self.request("PUT", path, body)

    def patch(self, path: str, body: Any) -> bytes:
        return self.request("PATCH", path, body, MERGE)

    def delete(self, path: str, grace_s: int | None = None) -> bytes:
        return self.request("DELETE", path, {} if grace_s is None else {"gracePeriodSeconds": grace_s})

    def stream(self, path: str, *, idle_s: float | None = None, **query: Any) -> ApiStream:
        """An answer that is read as it comes. Silence of `idle_s` seconds ends it."""
        connection, answer = self.open(with_query(path, query), idle_s=idle_s)
        if answer.status >= 300:
            text = b"".join(connection.pieces(answer))
            connection.close()
            raise failure(answer.status, text)
        return ApiStream(connection, answer, self.credentials)

    def open(
        self, path: str, headers: dict[str, str] | None = None, *, idle_s: float | None = None
    ) -> tuple[KubeConnection, AnswerHead]:
        """A connection of its own, which may leave HTTP. Its answer is not checked."""
        connection = self._connect(idle_s)
        try:
            return connection, connection.send("GET", self._prefix + path, self._headers() | (headers or {}))
        except FAILURES as error:
            connection.close()
            raise Unreachable(self.credentials.url, error) from None

    def of(self, kind: str, name: str = "", version: str = "v1") -> str:
        """The path of the objects of a kind in our namespace, or of one of them."""
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        return f"{root}/namespaces/{self.namespace}/{kind}" + (f"/{name}" if name else "")

    def close(self) -> None:
        """Requests that come later use a connection each."""
        self._is_closed = True
        while not self._idle.empty():
            self._idle.get_nowait().close()

    def _connection(self) -> tuple[KubeConnection, bool]:
        """And whether it was used before."""
        try:
            return self._idle.get_nowait(), True
        except queue.Empty:
            return self._connect(REQUEST_S), False

    def _connect(self, timeout: float | None) -> KubeConnection:
        try:
            return KubeConnection(self._host, self._port, self.credentials.tls, timeout)
        except OSError as error:
            raise Unreachable(self.credentials.url, error) from None

    def _headers(self, kind: str = JSON) -> dict[str, str]:
        headers = {"Accept": "application/json", "Content-Type": kind}
        if token := self.credentials.token():
            headers["Authorization"] = f"Bearer {token}"
        return headers


class ApiStream:
    """Pieces of a long answer. `close` from another thread ends it."""

    def __init__(self, connection: KubeConnection, answer: AnswerHead, credentials: Credentials) -> None:
        self._connection, self._answer, self.credentials = connection, answer, credentials
        self.is_closed = False

    def pieces(self) -> Iterator[bytes]:
        """Until the server ends it; an error of the connection ends it too."""
        try:
            yield from self._connection.pieces(self._answer)
        except FAILURES as error:
            if not self.is_closed and not isinstance(error, TimeoutError):
                raise Unreachable(self.credentials.url, error) from None
        finally:
            self._connection.close()

    def lines(self) -> Iterator[bytes]:
        rest = b""
        for piece in self.pieces():
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines

    def close(self) -> None:
        self.is_closed = True
        self._connection.shut()


def failure(status: int, text: bytes) -> ApiError:
    try:
        found = msgspec.json.decode(text, type=Status)
    except (msgspec.DecodeError, msgspec.ValidationError):
        found = Status("", " ".join(text[:1000].decode(errors="replace").split())[:200])
    return ApiError(status, found.reason, found.message or f"the API server answered {status}")


def with_query(path: str, query: dict[str, Any]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
