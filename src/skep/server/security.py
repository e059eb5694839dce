"""Checks of every request, before any route sees it.

A server on the loopback address is still reachable by every web page that a user of this machine opens: by plain
requests to 127.0.0.1, and by a name whose owner lets it point to 127.0.0.1 (DNS rebinding). So the `Host` must be a
name of this server, an `Origin` must be its own, and a body must be of a type that a page cannot send without a
preflight request.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections import Counter

from fastapi import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skep.core.errors import InputError
from skep.server.answers import error_answer
from skep.server.config import Config, is_loopback
from skep.server.edge import KNOWN, Refusals
from skep.server.gate import Crowded
from skep.server.identity import Forbidden, identify, obeys_root_alone, only_root, with_session
from skep.server.pages import is_page
from skep.server.studies.records import TRACE_MAX
from skep.server.tokens import Tokens
from skep.server.watch import Watch

MIB = 1024 * 1024
BODY_MAX, BATCH_MAX = MIB, 32 * MIB
SESSION_MAX = 8192
"""A login needs no token, so it must not take much memory."""
HELD_MAX = 256 * MIB
"""Bodies of all requests that are kept in memory at the same time."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
WRITES = ("POST", "PUT", "PATCH", "DELETE")
HEALTH, SESSION = "/api/v1/health", "/api/v1/session"
"""Routes that need no token: health, and the login."""
YAML = (b"application/yaml", b"application/x-yaml", b"text/yaml", b"text/x-yaml")
TAKES_YAML = ("/api/v1/jobs", "/api/v1/jobs:plan", "/api/v1/cluster")
DECIDING = (b"host", b"origin", b"content-type", b"authorization", b"x-skep-user", b"cookie", b"x-requested-with")
"""Headers that must be present exactly once: two readers could use different ones."""
TRACES = "/api/v1/traces"
TABLES = (b"text/csv", b"application/octet-stream")
"""Types of bodies that a form cannot send."""
PROTECT = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
]


class Guard:
    """The outermost layer; it sets `scope["identity"]`."""

    def __init__(self, app: ASGIApp, config: Config, tokens: Tokens | None, refusals: Refusals) -> None:
        self.app = app
        self.tokens = tokens
        self.refusals = refusals
        self.watch = Watch(tokens) if tokens is not None else None
        self.names = allowed_names(config)
        self.is_local = is_loopback(config.host)
        self.obeys_root_alone = obeys_root_alone(needs_token=tokens is not None)
        self.held = Budget(HELD_MAX)

    def _only_root(self, scope: Scope) -> None:
        """The kernel is queried once per connection, not for each of its requests."""
        known = scope.get(KNOWN, {})
        if not known.get("is_root"):
            only_root(scope.get("client"), scope.get("server"))
            known["is_root"] = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, protecting(send))
        else:
            raise RuntimeError(f"{scope['type']} is not supported")

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._check(scope)
        send = self.refusals.watching(scope, send)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        user = scope["identity"].user if "identity" in scope else ""
        # A trace goes to the disk, and only so many are received at once.
        budget = self.held if scope["path"] != TRACES else None
        body = LimitedBody(receive, body_max(scope["path"]), budget, user)
        token_id = scope["identity"].token_id if "identity" in scope else ""
        try:
            if self.watch is not None and token_id:
                await self.watch.run(token_id, self.app, scope, body.receive, send)
            else:
                await self.app(scope, body.receive, send)
        finally:
            body.give_back()

    def _check(self, scope: Scope) -> Response | None:
        try:
            headers = single_headers(scope)
            self._check_names(scope, headers)
            if scope["method"] in WRITES:
                check_body(scope["path"], headers)
            if scope["path"] == HEALTH:
                with contextlib.suppress(Forbidden):
                    self._identify(scope, headers)
            elif scope["path"] != SESSION and not is_page(scope):
                self._identify(scope, headers)
        except Forbidden as refused:
            scope["refusal"] = str(refused)
            return error_answer(refused.status, str(refused), refused.hint, refused.headers)
        except InputError as error:
            return error_answer(400, str(error), error.hint)
        return None

    def _identify(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        if self.obeys_root_alone:
            self._only_root(scope)
        headers = with_session(headers, is_write=scope["method"] in WRITES)
        scope["identity"] = identify(headers, self.tokens)

    def _check_names(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = host_name(host)
        if name not in self.names and (self.is_local or not is_address(name)):
            raise Forbidden(403, "this server is not known by that name", "`names` in the config file adds one")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() not in (f"http://{host}", f"https://{host}"):
            raise Forbidden(403, "web pages of another origin may not use this server")
        # A link on another site may lead here: that site learns nothing from it.
        follows_link = headers.get(b"sec-fetch-mode") == b"navigate" and is_page(scope)
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin") and not follows_link:
            raise Forbidden(403, "web pages of another site may not use this server")


def single_headers(scope: Scope) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in found and name in DECIDING:
            raise Forbidden(400, f"the header {name.decode('latin-1')} is given twice")
        found[name] = value
    return found


def body_max(path: str) -> int:
    return {"/api/v1/jobs:batch": BATCH_MAX, TRACES: TRACE_MAX, SESSION: SESSION_MAX}.get(path, BODY_MAX)


def check_body(path: str, headers: dict[bytes, bytes]) -> None:
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    length = headers.get(b"content-length", b"")
    if not kind and length in (b"", b"0") and b"transfer-encoding" not in headers:
        return
    if length.isdigit() and int(length) > body_max(path):
        raise Forbidden(413, too_large(body_max(path)), "", {"connection": "close"})
    if kind == b"application/json" or (kind in YAML and path in TAKES_YAML) or (kind in TABLES and path == TRACES):
        return
    takes = "application/json" + (" or application/yaml" if path in TAKES_YAML else "")
    takes = "text/csv" if path == TRACES else takes
    raise Forbidden(
        415, f"content type {kind.decode('latin-1')[:80] or 'is missing,'} is not supported here", f"send {takes}"
    )


def allowed_names(config: Config) -> frozenset[str]:
    """The machine's own name is accepted only if other machines may connect."""
    own = () if is_loopback(config.host) else (config.host, socket.gethostname())
    return frozenset(name.lower() for name in (*LOOPBACK, *own, *config.names))


def host_name(host: str) -> str:
    """`[::1]:7437` → `::1`; empty for an invalid host."""
    name, bracket, port = host[1:].partition("]") if host.startswith("[") else host.partition(":")
    if bracket == "]":
        port = port.removeprefix(":")
    return name if not port or (port.isascii() and port.isdigit()) else ""


def is_address(name: str) -> bool:
    """A numeric address cannot be pointed elsewhere (DNS rebinding)."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class LimitedBody:
    """Limits the size of a body, whatever its Content-Length says, and of all bodies together."""

    def __init__(self, receive: Receive, most: int, budget: Budget | None, user: str) -> None:
        self._receive = receive
        self._most = self._left = most
        self._budget = budget
        self._user = user
        self._held = 0
        self._is_whole = False

    def give_back(self) -> None:
        if self._budget is not None:
            self._budget.give(self._user, self._held)

    def _hold(self, size: int) -> None:
        if self._budget is not None:
            try:
                self._budget.take(self._user, size)
            except Crowded as error:
                raise HTTPException(429, str(error), error.headers) from None
            self._held += size

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect" and not self._is_whole:
            raise HTTPException(400, "the client left in the middle of its request")
        if message["type"] == "http.request":
            self._is_whole = not message.get("more_body", False)
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                # Of this class because FastAPI turns any other that is raised while it reads into a 400.
                raise HTTPException(413, too_large(self._most), {"connection": "close"})
            self._hold(len(message.get("body", b"")))
        return message


def too_large(most: int) -> str:
    return f"the body is too large, the limit here is {f'{most // MIB} MiB' if most >= MIB else f'{most:,} bytes'}"


def protecting(send: Send) -> Send:
    async def sender(message: Message) -> None:
        if message["type"] == "http.response.start":
            said = {name for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(pair for pair in PROTECT if pair[0] not in said)]
        await send(message)

    return sender


class Budget:
    """Bytes that requests hold in memory until they are answered: in all, and for each user."""

    def __init__(self, most: int, share: float = 0.5) -> None:
        self.most = most
        self.most_each = round(most * share)
        self.used: Counter[str] = Counter()

    def take(self, user: str, count: int) -> None:
        if self.used.total() + count > self.most or self.used[user] + count > self.most_each:
            raise Crowded("too many large requests at once")
        self.used[user] += count

    def give(self, user: str, count: int) -> None:
        self.used[user] -= count
        self.used += Counter()
