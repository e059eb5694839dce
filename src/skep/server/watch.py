"""Ends streams when the token that opened them is revoked or expires."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skep.server.tokens import Tokens

EVERY_S = 0.5

log = logging.getLogger("skep")

Task = asyncio.Task[Any]  # any result


class Watch:
    """Streaming answers are watched while they last; the tokens are read twice a second."""

    def __init__(self, tokens: Tokens, *, every_s: float = EVERY_S) -> None:
        self._tokens = tokens
        self._every_s = every_s
        self._open: dict[Task, str] = {}
        """By the task that answers, the id of its token."""
        self._ended: set[Task] = set()
        self._watcher: asyncio.Task[None] | None = None

    async def run(self, token_id: str, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and is_endless(message):
                self._add(task, token_id)
            await send(message)

        try:
            await app(scope, receive, noting)
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._open.pop(task, None)
            self._ended.discard(task)

    def _add(self, task: Task, token_id: str) -> None:
        self._open[task] = token_id
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        while self._open:
            try:
                self._end_invalid()
            except Exception as error:  # It is tried again: the file cannot be read now.
                log.warning("the tokens of open streams cannot be checked: %s", error)
            await asyncio.sleep(self._every_s)

    def _end_invalid(self) -> None:
        valid = self._tokens.valid(set(self._open.values()))
        for task in [task for task, token_id in self._open.items() if token_id not in valid]:
            del self._open[task]
            self._ended.add(task)
            task.cancel()


def is_endless(message: Message) -> bool:
    return all(name.lower() != b"content-length" for name, _ in message.get("headers", ()))
