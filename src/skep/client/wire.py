"""HTTP requests and answers, and the exceptions for HTTP errors. No other module of the client uses HTTP."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import httpx_sse

from skep.client.profile import DEFAULT_URL, find_token, find_url
from skep.core.errors import Conflict, InputError, NotFound, SkepError

CONNECT_S, ANSWER_S = 5.0, 60.0
PAUSES_S = (0.05, 0.2, 0.8, 3.2)
USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class NoServer(InputError):
    """No server answers at that address."""


class Denied(InputError):
    """The server refuses the caller."""


class ServerFault(SkepError):
    """The server failed, not the caller; the same call may succeed later."""


class LostAnswer(NoServer):
    """The connection was lost; whether the request was executed is not known."""


class Wire:
    """A server, and the identity of the caller."""

    def __init__(self, url: str, token: str, transport: httpx.BaseTransport | None) -> None:
        self.url = checked_url(find_url(url))
        token = checked_token(find_token(token, self.url))
        is_local = urlsplit(self.url).hostname in ("127.0.0.1", "localhost", "::1")
        self._http = httpx.Client(
            base_url=f"{self.url}/api/v1",
            headers=identity(token),
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            # No proxy for this machine. Loading the certificates costs as much as the rest of `skep ps`.
            trust_env=not is_local,
            verify=self.url.startswith("https:"),
            transport=transport,
        )

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, **content: Any) -> Any:
        """Every call of the API is idempotent, and one whose answer was lost is repeated: the server may be
        restarting."""
        try:
            return self._once(method, path, **content)
        except LostAnswer:
            for pause_s in PAUSES_S:
                time.sleep(pause_s)
                with contextlib.suppress(NoServer):
                    return self._once(method, path, **content)
            raise

    def _once(self, method: str, path: str, **content: Any) -> Any:
        try:
            answer = self._http.request(method, path, **content)
        except httpx.HTTPError as error:
            raise self._lost(error) from error
        if answer.is_error:
            raise refused(answer)
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError:
            raise self._other() from None

    def is_there(self) -> bool:
        """True if a Skep server answers now: one attempt."""
        try:
            self._once("GET", "/health")
        except NoServer:
            return False
        return True

    @contextlib.contextmanager
    def _open(self, method: str, path: str, **content: Any) -> Iterator[httpx.Response]:
        """An answer that is read while it is sent; hours may pass between two pieces."""
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        try:
            with self._http.stream(method, path, timeout=timeout, **content) as answer:
                if answer.is_error:
                    answer.read()
                    raise refused(answer)
                yield answer
        except httpx_sse.SSEError:
            raise self._other() from None
        except httpx.HTTPError as error:
            raise self._lost(error) from error

    def stream(self, method: str, path: str, **content: Any) -> Iterator[bytes]:
        """Pieces as they arrive."""
        with self._open(method, path, **content) as answer:
            yield from answer.iter_bytes()

    def event_stream(self, after: int | None, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
        headers = {"Accept": "text/event-stream", **({} if after is None else {"Last-Event-ID": str(after)})}
        with self._open("GET", "/events", params=params, headers=headers) as answer:
            for event in httpx_sse.EventSource(answer).iter_sse():
                if event.data:  # a comment that keeps the connection open has none
                    yield event.json()

    def _other(self) -> InputError:
        return InputError(f"the server at {self.url} is not a Skep server")

    def _lost(self, error: httpx.HTTPError) -> NoServer:
        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            return NoServer(f"no server at {self.url}", hint="`skep up` starts one; --url or SKEP_URL names another")
        return LostAnswer(f"lost the connection to {self.url}: {error or type(error).__name__}")


def checked_url(url: str) -> str:
    """`host:7437` is enough."""
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_good = False
    if not is_good:
        raise InputError(f"'{url}' is not the address of a server", hint=f"expected something like {DEFAULT_URL}")
    return full.rstrip("/").removesuffix("/api/v1")


def checked_token(token: str) -> str:
    """A file or a variable often ends with a newline; error messages must not contain the token."""
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise InputError("SKEP_TOKEN is not a token", hint="it is the one line that `skep token create` printed")
    return token


def identity(token: str) -> dict[str, str]:
    """A token identifies the caller; a server without tokens trusts the name of this machine's user."""
    if token:
        return {"Authorization": f"Bearer {token}"}
    user = user_name()
    return {"X-Skep-User": user} if user else {}


def user_name() -> str:
    """The name of this user; empty for a user id without a name, as in containers."""
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        return ""
    return user if USER.fullmatch(user) else ""


def refused(answer: httpx.Response) -> SkepError:
    """The server's message, as the corresponding exception."""
    try:
        said = answer.json()
    except ValueError:
        said = None
    if not isinstance(said, dict) or "error" not in said:
        said = {"error": f"the server answered {answer.status_code} {answer.reason_phrase} to {answer.url.path}"}
    message, hint = str(said["error"]), str(said.get("hint") or "")
    if answer.status_code >= 500:
        return ServerFault(message)
    if answer.status_code == 401 and not hint:
        hint = "SKEP_TOKEN holds the token; `skep token create` makes one"
    kinds: dict[int, type[InputError]] = {401: Denied, 403: Denied, 404: NotFound, 409: Conflict}
    return kinds.get(answer.status_code, InputError)(message, hint=hint)
