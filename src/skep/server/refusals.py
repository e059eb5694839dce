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


class Refusals:
    def __init__(
        self, note: Callable[[str, str, str], object], *, most: int = MOST, window_s: float = WINDOW_S
    ) -> None:
        self._note = note
        self._most = most
        self._window_s = window_s
        self._written = self._left_out = 0

    def watching(self, scope: Scope, send: Send) -> Send:
        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in (401, 403):
                self._add(scope, message["status"])
            await send(message)

        return noting

    def _add(self, scope: Scope, status: int) -> None:
        if status == 401 and (scope["method"], scope["path"]) == EXPECTED:
            return
        if not self._written:
            asyncio.get_running_loop().call_later(self._window_s, self._end_window)
        if self._written >= self._most:
            self._left_out += 1
            return
        self._written += 1
        identity = scope.get("identity")
        client = scope.get("client") or ("?",)
        said = f": {scope['refusal']}" if "refusal" in scope else ""
        what = printable(f"{scope['method'][:20]} {scope['path'][:PATH_MAX]}")
        self._note("refused", f"{status} {what} from {client[0]}{said}", identity.who if identity is not None else "")

    def _end_window(self) -> None:
        left_out, self._written, self._left_out = self._left_out, 0, 0
        if left_out:
            self._note("refused", f"{left_out:,} more requests within {self._window_s:g} s", "")


def printable(text: str) -> str:
    return "".join(char if " " <= char <= "~" else "?" for char in text)
