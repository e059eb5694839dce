"""Events as they happen, for any number of listeners.

Events are kept once, in a short ring that all listeners share, and each listener has only the number of the last event
it has sent. One that falls out of the ring reads from the store, so a slow client costs no memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import msgspec
from starlette.concurrency import run_in_threadpool

from skep.service.live import Live
from skep.service.reads import Reads
from skep.service.values import Json

RING = 4096
PAGE = 500
HEARTBEAT_S = 15.0
_encode = msgspec.json.Encoder().encode

Event = Json


class Hub:
    def __init__(self, live: Live, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._live = live
        self._heartbeat_s = heartbeat_s
        self._ring: deque[Event] = deque(maxlen=RING)
        self._newest: int | None = None
        """The latest event since this server started; None before the first one."""
        self._vcs: dict[str, str] = {}
        """By id, the VC of jobs that restricted readers asked about."""
        self._listeners = 0
        self._bell = asyncio.Event()
        self.is_closing = False

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._unsubscribe = self._live.subscribe(lambda events, _: loop.call_soon_threadsafe(self._add, events))

    def close(self) -> None:
        """End all streams, so that a server that stops does not wait for them."""
        if not self.is_closing:
            self.is_closing = True
            self._unsubscribe()
            self._ring_bell()

    async def pause(self, seconds: float) -> None:
        """Sleep, but not beyond the end of the server."""
        by_s = asyncio.get_running_loop().time() + seconds
        while not self.is_closing and (left := by_s - asyncio.get_running_loop().time()) > 0:
            await self._wait(left)

    async def stream(self, after: int | None, job_id: str | None, reads: Reads) -> AsyncIterator[bytes]:
        """Server-sent events after number `after`, or from now on, as far as `reads` may see them."""
        last = self._newest if after is None else after
        self._listeners += 1
        try:
            yield b": hello\n\n"
            if after and (gone := await run_in_threadpool(forgotten_since, reads, after)) is not None:
                yield sse(gone)
            while not self.is_closing:
                newest = self._newest
                found = await self._behind(last, job_id, reads)
                if found:
                    last = found[-1]["seq"]
                    yield b"".join(sse(event) for event in found)
                elif newest == self._newest:
                    # What has been examined need not be examined again.
                    last = newest if newest is not None and (last is None or newest > last) else last
                    if not await self._wait(self._heartbeat_s):
                        yield b": still here\n\n"
        finally:
            self._listeners -= 1
            if not self._listeners:
                self._ring.clear()
                self._vcs.clear()

    async def _behind(self, last: int | None, job_id: str | None, reads: Reads) -> list[Event]:
        if last is None or (self._ring and self._ring[0]["seq"] <= last + 1):
            found = [event for event in self._ring if last is None or event["seq"] > last]
            if job_id is not None:
                found = [event for event in found if event["job_id"] == job_id]
            return found if reads.sight.is_whole else await self._in_sight(found, reads)
        if last == self._newest:
            return []
        found = await run_in_threadpool(reads.events, last, job_id, PAGE)
        return list(found)

    async def _in_sight(self, events: list[Event], reads: Reads) -> list[Event]:
        """Events of jobs that `reads` may see. The VC of a job never changes, so it is looked up once."""
        unknown = {event["job_id"] for event in events} - self._vcs.keys() - {None}
        if unknown:
            self._vcs |= await run_in_threadpool(reads.vcs_of, unknown)
        vcs = [self._vcs.get(event["job_id"]) for event in events]
        seen = [event for event, vc in zip(events, vcs, strict=True) if vc is not None and reads.sight.sees(vc)]
        return await run_in_threadpool(reads.hide_jobs, "text", seen)

    def _add(self, events: list[Event]) -> None:
        if events:
            self._newest = events[-1]["seq"]
            if self._listeners:
                self._ring.extend(events)
            self._ring_bell()

    def _ring_bell(self) -> None:
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def _wait(self, seconds: float) -> bool:
        """True if the event was set."""
        bell = self._bell
        try:
            async with asyncio.timeout(seconds):
                await bell.wait()
        except TimeoutError:
            return False
        return True


def forgotten_since(reads: Reads, after: int) -> Event | None:
    """For a client that returns so late that events after its last one were deleted."""
    oldest = reads.first_event()
    if oldest is None or oldest <= after + 1:
        return None
    text = f"{oldest - after - 1:,} events were deleted before they were read"
    return {
        "seq": oldest - 1,
        "at_s": reads.clock(),
        "kind": "missed",
        "job_id": None,
        "name": "",
        "who": "",
        "text": text,
    }


def sse(event: Event) -> bytes:
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event["seq"], event["kind"].encode(), _encode(event))
