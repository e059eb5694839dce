"""A server that follows the HTTP API and schedules nothing: tests of clients define its answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec


class FakeRequest(msgspec.Struct):
    """One request as received."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class FakeAnswer(msgspec.Struct):
    status: int = 200
    body: Any = None
    pieces: list[bytes | Callable[[], None]] | None = None
    """Sent one after the other; callables are called between them, and may wait or change something."""
    is_cut: bool = False
    """The connection breaks instead of ending."""
    media_type: str = "application/json"


def events(*pieces: bytes | Callable[[], None], is_cut: bool = False) -> FakeAnswer:
    """A stream of events."""
    return FakeAnswer(pieces=list(pieces), is_cut=is_cut, media_type="text/event-stream")


def job(job_id: str = "1", **other: Any) -> dict[str, Any]:
    """A job as the API shows it."""
    found: dict[str, Any] = {"id": job_id, "name": "train", "state": "running", "vc": "default", "user": "ann"}
    found |= {"gpus": 2, "priority": 10, "submit_s": 1000.0, "start_s": 1010.0, "finish_s": None, "reason": ""}
    found |= {"group": "", "tags": [], "attempts": 1, "nodes": ["n0"], "progress": None}
    found |= {"waited_s": 10.0, "ran_s": 90.0, "service_gpu_s": 180.0, "held_gpus": 2, "at_s": 1100.0}
    return found | other


class FakeApi:
    """`answers` by "METHOD /path": a `FakeAnswer` or its body, a list of them in turn (the last for ever), or a
    function that returns one."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[FakeRequest] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def bodies(self, method: str, path: str) -> list[Any]:
        """The requests to this path."""
        return [asked.json for asked in self.asked if (asked.method, asked.path) == (method, path)]

    def answer(self, asked: FakeRequest) -> FakeAnswer:
        self.asked.append(asked)
        found = self.answers.get(f"{asked.method} {asked.path}")
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if callable(found):
            found = found(asked)
        if found is None:
            return FakeAnswer(404, {"error": f"there is nothing at {asked.path}", "hint": ""})
        return found if isinstance(found, FakeAnswer) else FakeAnswer(200, found)


def _handler(api: FakeApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            path = unquote(parts.path).removeprefix("/api/v1")
            answer = api.answer(FakeRequest(self.command, path, parse_qs(parts.query), headers, body))
            if answer.pieces is None and not answer.is_cut:
                self.send_whole(answer)
            else:
                self.send_pieces(answer)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any

        def send_whole(self, answer: FakeAnswer) -> None:
            body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_response(answer.status)
            self.send_header("content-type", answer.media_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def send_pieces(self, answer: FakeAnswer) -> None:
            self.close_connection = answer.is_cut
            if answer.pieces is None:
                return
            self.send_response(answer.status)
            self.send_header("content-type", answer.media_type)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in answer.pieces:
                if callable(piece):
                    piece()
                else:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if not answer.is_cut:
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: Any) -> None:
            """Tests print no log."""

    return Handler
