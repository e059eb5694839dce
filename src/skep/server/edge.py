"""Limits on network connections: how many there may be, and how long a client may take.

Every connection costs a file descriptor, and the engine needs descriptors to start jobs and to read how they ended. So
connections get at most half of them, and logs that are being read a quarter. If a new connection does not fit, the
oldest one without a request in progress is closed; if there is none, the new one is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable
from typing import Any, cast

import httptools
import msgspec
from starlette.types import Message, Scope, Send
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from skep.server.answers import error_body
from skep.service.values import Json

WINDOW_S = 60.0
MOST = 20
"""The number of refusals that are written in full in one window; the others are one line with their number."""
PATH_MAX = 200
EXPECTED = ("GET", "/api/v1/me")
"""The route by which the dashboard checks whether the user is logged in."""


class Limited:
    """Lines of one kind, of which only so many are written in one window."""

    def __init__(
        self, write: Callable[[str, str], object], what: str, *, most: int = MOST, window_s: float = WINDOW_S
    ) -> None:
        """`write` gets the line, and the user whom it concerns."""
        self._write = write
        self._what = what
        self._most = most
        self._window_s = window_s
        self._written = self._left_out = 0

    def add(self, text: str, who: str = "") -> None:
        if not self._written:
            asyncio.get_running_loop().call_later(self._window_s, self._end_window)
        if self._written >= self._most:
            self._left_out += 1
            return
        self._written += 1
        self._write(text, who)

    def _end_window(self) -> None:
        left_out, self._written, self._left_out = self._left_out, 0, 0
        if left_out:
            self._write(f"{left_out:,} more {self._what} within {self._window_s:g} s", "")


class Refusals:
    """Refused requests as events, limited per minute, so that refused clients cannot fill the disk."""

    def __init__(
        self, note: Callable[[str, str, str], object], *, most: int = MOST, window_s: float = WINDOW_S
    ) -> None:
        self._lines = Limited(lambda text, who: note("refused", text, who), "requests", most=most, window_s=window_s)

    def watching(self, scope: Scope, send: Send) -> Send:
        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in (401, 403):
                self._add(scope, message["status"])
            await send(message)

        return noting

    def _add(self, scope: Scope, status: int) -> None:
        if status == 401 and (scope["method"], scope["path"]) == EXPECTED:
            return
        identity = scope.get("identity")
        client = scope.get("client") or ("?",)
        said = f": {scope['refusal']}" if "refusal" in scope else ""
        what = printable(f"{scope['method'][:20]} {scope['path'][:PATH_MAX]}")
        self._lines.add(f"{status} {what} from {client[0]}{said}", identity.who if identity is not None else "")


def printable(text: str) -> str:
    return "".join(char if " " <= char <= "~" else "?" for char in text)


SWEEP_S = 1.0
PIPELINED_MAX = 32
"""Requests of one connection that wait for their answers."""
LINES_MAX = 100
"""Lines about invalid requests in the log, per minute."""

log = logging.getLogger("skep")


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
    unread_bytes: int = 256 << 20
    """Of a body that comes after its answer: a client that reads only when it has sent everything gets the answer."""
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
        self.invalid = Limited(lambda text, _: log.warning("%s", text), "invalid requests", most=LINES_MAX)
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
        """Whatever is wrong with one connection, the others keep their time limits."""
        self._sweep = None
        for connection in [each for mine in self.clients.values() for each in mine]:
            try:
                connection.check(loop.time())
            except Exception as error:
                connection.give_up(error)
        if self.count:
            self._sweep = loop.call_later(SWEEP_S, self._look, loop)


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
        self._answered: RequestResponseCycle | None = None
        """The request that is being answered, or was last."""
        self._begun = 0
        """Requests so far."""
        self._since_s = 0.0
        """Since when it is in its present state: waiting, in a header, in a body."""
        self._header_bytes = self._header_count = self._body_bytes = 0
        self._held_bytes = 0
        """The size of an incomplete header: the parser may hold back as much."""
        self._around_bytes = 0
        """What came with a body and is not part of it: the sizes of its chunks, and trailers, which the parser holds
        back too."""
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
        """The base class tells the last request only, although an earlier one may be the one that is being answered."""
        self.edge.drop(self)
        super().connection_lost(exc)
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        """As in the base class, but what is refused is logged in one line, and only so often a minute."""
        if self.is_refused:
            return
        self._unset_keepalive_if_required()
        try:
            self._read(data)
        except httptools.HttpParserError:
            self.refuse(400, "this is not a request of HTTP/1.1")
        except Exception as error:
            self.give_up(error)

    def _read(self, data: bytes) -> None:
        was_in_header, was_in_body, begun, body_bytes = self._in_header, self._in_body, self._begun, self._body_bytes
        is_all_header = was_in_header or not was_in_body
        self._feed(data)
        # Only if no other request was in the same data, whose beginning would be unknown.
        if self._in_header and is_all_header and self._begun - begun == (not was_in_header):
            self._held_bytes += len(data)
            self._check_header()
        elif self._in_body and was_in_body and self._begun == begun:
            self._around_bytes += len(data) - (self._body_bytes - body_bytes)
            self._check_trailers()

    def _feed(self, data: bytes) -> None:
        while data and not self.is_refused:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # There is nothing to upgrade to: the request is answered normally, and the next one follows it.
                data = data[max(upgrade.args[0], 1) :]

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
        # Trailers are not used: a proxy may have checked the header without them.
        if self._in_header and self._header_count <= self.edge.bounds.header_count:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._check_header()
        self._in_header = False
        if self.is_refused:
            return
        if self.parser.get_method() == b"CONNECT" or not self.url.startswith(b"/"):
            self.refuse(400, "the target of a request must be a path of this server")
        elif self.parser.should_upgrade() and any(
            name in (b"content-length", b"transfer-encoding") for name, _ in self.headers
        ):
            # The parser would take the body for the next request.
            self.refuse(400, "a request that asks for an upgrade must have no body", "send it without Upgrade")
        elif len(self.pipeline) >= PIPELINED_MAX:
            self.refuse(400, f"at most {PIPELINED_MAX} requests of a connection may wait for their answers")
        else:
            super().on_headers_complete()
            # Only now: until here the base class may refuse the target, and there is no cycle for this request.
            self._in_body = True
            self._since_s = self.loop.time()
            self._body_bytes = self._around_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self.is_refused:
            return
        super().on_body(body)
        if self.cycle.response_complete and self._body_bytes > self.edge.bounds.unread_bytes:
            self.refuse(413, "the body is too large")

    def on_message_complete(self) -> None:
        self._in_body = False
        if not self.is_refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._since_s = self.loop.time()
        super().on_response_complete()
        if self.pipeline and not self.transport.is_closing():
            self.flow.pause_reading()  # these are answered first

    # Bounds -----------------------------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """True if no request is in progress; an incomplete header does not count as a request."""
        return (self.cycle is None or self.cycle.response_complete) and not self.pipeline

    @property
    def _may_answer(self) -> bool:
        """True if a refusal would not get into the middle of an answer."""
        if self._in_body and not self.pipeline:
            return not self.cycle.response_started
        return self.is_idle

    def _check_header(self) -> None:
        bounds = self.edge.bounds
        size = max(self._header_bytes, self._held_bytes)
        if size > bounds.header_bytes or self._header_count > bounds.header_count:
            most = f"at most {bounds.header_count} headers of {bounds.header_bytes // 1024} KiB together"
            self.refuse(431, "the header of the request is too large", most)

    def _check_trailers(self) -> None:
        """A byte in a chunk of its own costs six."""
        if self._around_bytes > self.edge.bounds.header_bytes + 8 * self._body_bytes:
            self.refuse(431, "the trailers of the request are too large")

    def check(self, now_s: float) -> None:
        """Called periodically: abort a connection whose client takes too long. What the server does not read now is
        not the client's delay."""
        bounds, passed_s = self.edge.bounds, now_s - self._since_s
        if self._in_header:
            if passed_s > bounds.header_s and not self.flow.read_paused:
                self.refuse(408, "the header of the request did not arrive in time")
        elif self._in_body:
            if passed_s > bounds.body_s + self._body_bytes / bounds.body_rate and not self.flow.read_paused:
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
        if status == 400:
            self.edge.invalid.add(f"400 {self._shown()}from {self.host}: {message}")
        if self._may_answer:
            body = error_body(message, hint)
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
            self.transport.close()
        else:
            self.transport.abort()

    def _shown(self) -> str:
        """The request as far as it is known, with a space at its end."""
        if not self._begun or not self.url:
            return ""
        return printable(f"{self.parser.get_method().decode('latin-1')} {self.url[:200].decode('latin-1')} ")

    def give_up(self, error: Exception) -> None:
        """A fault of this program must not cost more than one connection."""
        self.is_refused = True
        self.edge.drop(self)
        self.edge.invalid.add(f"a connection from {self.host} was closed: {type(error).__name__}: {error}")
        with contextlib.suppress(Exception):
            self.transport.abort()
