"""Limits on network connections: how many there may be, and how long a client may take.

Every connection costs a file descriptor, and the engine needs descriptors to start jobs and to read how they ended. So
connections get at most half of them, and logs that are being read a quarter. If a new connection does not fit, the
oldest one without a request in progress is closed; if there is none, the new one is refused.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any, cast

import httptools
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from skep.server.answers import error_body
from skep.service.values import Json

SWEEP_S = 1.0


class Bounds(msgspec.Struct, frozen=True):
    """What one client, and all clients together, may use."""

    connections: int = 4096
    per_client: int = 2048
    header_bytes: int = 64 * 1024
    header_count: int = 100
    first_byte_s: float = 15.0
    """From the connection to the first byte of a request."""
    header_s: float = 10.0
    """From there to the end of the header."""
    idle_s: float = 65.0
    """Between two requests; longer than clients keep an idle connection, so that none is closed just as it is used."""
    body_s: float = 30.0
    """For a body, plus one second for every `body_rate` bytes received."""
    body_rate: int = 16 * 1024
    stuck_s: float = 60.0
    """An answer that the client does not read for this long is aborted."""
    log_files: int = 16_384
    """Open logs of all readers."""


def bounds_for(files: int) -> Bounds:
    """Half of the descriptors for connections (half of those for one client), a quarter for logs that are being
    read."""
    wanted = Bounds()
    most = max(min(files // 2, wanted.connections), 8) if files > 0 else wanted.connections
    logs = max(min(files // 4, wanted.log_files), 8) if files > 0 else wanted.log_files
    return Bounds(connections=most, per_client=max(most // 2, 4), log_files=logs)


class Edge:
    """The open connections, by client."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.clients: dict[str, dict[Connection, None]] = {}
        """The connections of one client in the order in which they came."""
        self.count = 0
        self.refused = 0
        self._sweep: asyncio.TimerHandle | None = None

    @property
    # Uvicorn expects a class or a function here, as `type[asyncio.Protocol]`.
    def protocol(self) -> Any:
        """For uvicorn: creates the protocol of a new connection."""
        return functools.partial(Connection, edge=self)

    def add(self, new: Connection) -> bool:
        """True if the connection is accepted, perhaps after closing an idle one."""
        mine = self.clients.get(new.host, {})
        is_admitted = True
        if len(mine) >= self.bounds.per_client:
            is_admitted = close_idle(mine)
        if is_admitted and self.count >= self.bounds.connections:
            is_admitted = close_idle(max(self.clients.values(), key=len))
        if not is_admitted:
            self.refused += 1
            return False
        self.clients.setdefault(new.host, {})[new] = None
        self.count += 1
        if self._sweep is None:
            self._sweep = new.loop.call_later(SWEEP_S, self._look, new.loop)
        return True

    def drop(self, old: Connection) -> None:
        mine = self.clients.get(old.host, {})
        if old in mine:
            del mine[old]
            self.count -= 1
            if not mine:
                del self.clients[old.host]

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        for connection in [each for mine in self.clients.values() for each in mine]:
            connection.check(loop.time())
        self._sweep = loop.call_later(SWEEP_S, self._look, loop) if self.count else None


def close_idle(connections: dict[Connection, None]) -> bool:
    """Close the oldest one without a request in progress. True if there was one."""
    oldest = next((each for each in connections if each.is_idle), None)
    if oldest is None:
        return False
    oldest.edge.drop(oldest)
    oldest.transport.close()
    return True


KNOWN = "skep.known"
"""Where the application finds `Connection.known`."""


class Connection(HttpToolsProtocol):
    """Uvicorn's protocol, which has no time limit for headers and bodies and no size limit for headers."""

    # The arguments of uvicorn's own.
    def __init__(self, *args: Any, edge: Edge, **more: Any) -> None:
        super().__init__(*args, **more)
        self.edge = edge
        self.host = ""
        self.is_refused = False
        self._in_header = self._in_body = False
        self._begun = 0
        """Requests so far."""
        self._since_s = 0.0
        """Since when it is in its present state: waiting, in a header, in a body."""
        self._header_bytes = self._header_count = self._body_bytes = 0
        self._held_bytes = 0
        """The size of an incomplete header: the parser may hold back as much."""
        self._unsent = 0
        self._unsent_since_s = 0.0
        self.known: dict[str, bool] = {}
        """What is known about the client; it stays the same for all requests of a connection."""

    # What uvicorn calls -----------------------------------------------------------------------------------------

    # Uvicorn's own narrows it too.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.host = self.client[0] if self.client else ""
        self._since_s = self.loop.time()
        if not self.edge.add(self):
            self.refuse(503, "the server has too many connections", "try again later")

    def connection_lost(self, exc: Exception | None) -> None:
        self.edge.drop(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """As in the base class, but refusals are not logged, because many of them would fill the disk."""
        if self.is_refused:
            return
        self._unset_keepalive_if_required()
        was_in_header, begun = self._in_header, self._begun
        is_all_header = was_in_header or not self._in_body
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.refuse(400, "this is not a request of HTTP/1.1")
        except httptools.HttpParserUpgrade:
            pass  # there is nothing to upgrade to: the request is answered normally
        # Only if no other request was in the same data, whose beginning would be unknown.
        if self._in_header and is_all_header and self._begun - begun == (not was_in_header):
            self._held_bytes += len(data)
            self._check_header()

    # What the parser calls --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast(Json, self.scope)[KNOWN] = self.known
        self._in_header = True
        self._begun += 1
        self._since_s = self.loop.time()
        self._header_bytes = self._header_count = self._held_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._header_bytes += len(url)
        if len(self.url) + len(url) <= self.edge.bounds.header_bytes:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_count += 1
        self._header_bytes += len(name) + len(value)
        if self._header_count <= self.edge.bounds.header_count:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._check_header()
        self._in_header = False
        if self.is_refused:
            return
        self._in_body = True
        self._since_s = self.loop.time()
        self._body_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if not self.is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        if not self.is_refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._since_s = self.loop.time()
        super().on_response_complete()

    # Bounds -----------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if no request is in progress; an incomplete header does not count as a request."""
        return (self.cycle is None or self.cycle.response_complete) and not self.pipeline

    def _check_header(self) -> None:
        bounds = self.edge.bounds
        size = max(self._header_bytes, self._held_bytes)
        if size > bounds.header_bytes or self._header_count > bounds.header_count:
            most = f"at most {bounds.header_count} headers of {bounds.header_bytes // 1024} KiB together"
            self.refuse(431, "the header of the request is too large", most)

    def check(self, now_s: float) -> None:
        """Called periodically: abort a connection whose client takes too long."""
        bounds, passed_s = self.edge.bounds, now_s - self._since_s
        if self._in_header:
            if passed_s > bounds.header_s:
                self.refuse(408, "the header of the request did not arrive in time")
        elif self._in_body:
            # What the server has not read yet is not the client's delay.
            waits = len(self.cycle.body) > HIGH_WATER_LIMIT
            if passed_s > bounds.body_s + self._body_bytes / bounds.body_rate and not waits:
                self.refuse(408, "the body of the request did not arrive in time")
        elif self.is_idle and passed_s > (bounds.idle_s if self._begun else bounds.first_byte_s):
            self.transport.close()
        self._check_unsent(now_s)

    def _check_unsent(self, now_s: float) -> None:
        unsent = 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent:
            self._unsent, self._unsent_since_s = unsent, now_s
        elif now_s - self._unsent_since_s > self.edge.bounds.stuck_s:
            self.transport.abort()

    def refuse(self, status: int, message: str, hint: str = "") -> None:
        """Answer, unless the request already has an answer or another one is in progress, and close the connection."""
        if self.is_refused:
            return
        self.is_refused = True
        if not self.cycle.response_started if self._in_body else self.is_idle:
            body = error_body(message, hint)
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
            self.transport.close()
        else:
            self.transport.abort()
