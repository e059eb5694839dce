"""Streaming answers: they stop when the client disconnects or reads too slowly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, cast

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

STUCK_S = 30.0


class Stream(StreamingResponse):
    """A chunk that is not read within `STUCK_S` ends the stream; clients that reconnect continue where they were."""

    # The arguments of Starlette's own.
    def __init__(self, *args: Any, at_end: Callable[[], None] = lambda: None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._at_end()

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        # Closed here, not by the garbage collector: the generator holds open files and a listener slot.
        async with aclosing(cast(AsyncGenerator[bytes, None], self.body_iterator)) as chunks:
            try:
                async for chunk in chunks:
                    async with asyncio.timeout(STUCK_S):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except TimeoutError:
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
