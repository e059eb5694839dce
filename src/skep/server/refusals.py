"""Refused requests as events, limited per minute, so that refused clients cannot fill the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Message, Scope, Send

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
