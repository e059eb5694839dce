"""Compresses JSON answers for clients that accept it. Streams are not compressed: a line must not wait in a buffer."""

from __future__ import annotations

import gzip

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LEAST = 1024
"""Shorter answers fit into a packet uncompressed."""
LARGE = 64 * 1024
"""Larger answers are compressed in a thread, so that other requests need not wait."""
LEVEL = 4
KINDS = ("application/json", "text/csv", "text/html")


class Compress:
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
