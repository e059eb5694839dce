"""Events as they happen, for any number of listeners.

Events are kept once, in a short ring that all listeners share, and each listener has only the number of the last event
it has sent. One that falls out of the ring reads from the store, so a slow client costs no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator

import msgspec
from starlette.concurrency import run_in_threadpool

from skep.service.live import Live
from skep.service.reads import Reads
from skep.service.sight import JOB_NAMED, Sight, hide_in
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


EVERY_S = 0.25
BATCHES = 64
"""The number of batches that are kept for listeners that are behind."""
JOBS_MAX = 2000
"""The most jobs of one batch; if more change at once, reading everything again is cheaper."""
MISSED_MAX = 500
"""The most events that are resent after a broken connection."""

log = logging.getLogger("skep")
_encode = msgspec.json.Encoder().encode


class ChangeBatch(msgspec.Struct):
    """The changes within a quarter of a second; no jobs if there were too many."""

    number: int
    seq: int
    events: list[Event]
    jobs: list[Json]
    is_too_large: bool
    vcs: dict[str, str] = {}
    """The VCs of the jobs that the events and the reasons of these jobs name."""
    whole: bytes = b""
    """The message for readers that may see everything."""

    def message(self, sight: Sight, after: int) -> bytes:
        if sight.is_whole and (not self.events or self.events[0]["seq"] > after):
            self.whole = self.whole or self._message(sight, 0)
            return self.whole
        return self._message(sight, after)

    def _message(self, sight: Sight, after: int) -> bytes:
        jobs = hide_in("reason", [job for job in self.jobs if sight.sees(job["vc"])], sight, self.vcs)
        seen = {job["id"] for job in jobs}
        events = [
            event for event in self.events if event["seq"] > after and (sight.is_whole or event["job_id"] in seen)
        ]
        events = hide_in("text", events, sight, self.vcs)
        return message(self.seq, events, jobs, is_cluster=any(event["job_id"] is None for event in self.events))


class ChangeStream:
    """Changes for dashboards: events together with the jobs they changed.

    Everything within a quarter of a second is collected into one batch, whose rows are read once for all listeners. A
    listener that was away for long, or reads slowly, is asked to read everything again, so a slow client costs no
    memory.
    """

    def __init__(self, live: Live, hub: Hub) -> None:
        self._live = live
        self._hub = hub
        self._batches: deque[ChangeBatch] = deque(maxlen=BATCHES)
        self._number = 0
        self._events: list[Event] = []
        self._jobs: set[str] = set()
        self._listeners = 0
        self._gatherer: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._unsubscribe = self._live.subscribe(
            lambda events, jobs: loop.call_soon_threadsafe(self._add, events, jobs)
        )

    def close(self) -> None:
        self._unsubscribe()

    def _add(self, events: list[Event], jobs: list[str]) -> None:
        if self._listeners:
            self._events += events
            self._jobs.update(jobs, (event["job_id"] for event in events if event["job_id"] is not None))
            self._gatherer = self._gatherer or asyncio.create_task(self._gather())

    async def _gather(self) -> None:
        """Runs as long as there are changes."""
        try:
            while self._events or self._jobs:
                await self._hub.pause(EVERY_S)
                events, jobs = self._events, self._jobs
                self._events, self._jobs = [], set()
                self._number += 1
                try:
                    batch = await run_in_threadpool(self._batch, self._number, events, jobs)
                except Exception as error:  # the listeners must not miss what was in it: they read everything again
                    log.warning("changes cannot be read now: %s", error)
                    batch = ChangeBatch(self._number, events[-1]["seq"] if events else 0, [], [], True, {})
                self._batches.append(batch)
                bell, self._bell = self._bell, asyncio.Event()
                bell.set()
        finally:
            self._gatherer = None

    def _batch(self, number: int, events: list[Event], jobs: set[str]) -> ChangeBatch:
        is_too_large = len(jobs) > JOBS_MAX
        rows = [] if is_too_large else self._live.rows(jobs)
        texts = [*(row["reason"] for row in rows), *(event["text"] for event in events)]
        named = {id for text in texts for id in JOB_NAMED.findall(text)}
        vcs = self._live.vcs_of(named) if named else {}
        seq = events[-1]["seq"] if events else self._live.last_seq()
        return ChangeBatch(number, seq, events, rows, is_too_large, vcs)

    async def stream(self, after: int | None, reads: Reads) -> AsyncIterator[bytes]:
        """Messages for one listener: one at once, then with every change."""
        self._listeners += 1
        try:
            last = self._number
            seq, first = await run_in_threadpool(first_message, reads, after)
            yield first
            while not self._hub.is_closing:
                bell = self._bell
                behind = [batch for batch in self._batches if batch.number > last]
                if behind:
                    is_lost = behind[0].number > last + 1 or any(batch.is_too_large for batch in behind)
                    if is_lost:
                        yield message(behind[-1].seq, [], [], is_resync=True)
                    else:
                        yield b"".join(batch.message(reads.sight, seq) for batch in behind)
                    last = behind[-1].number
                elif not await self._rung(bell):
                    yield b": still here\n\n"
        finally:
            self._listeners -= 1
            if not self._listeners:
                self._batches.clear()

    async def _rung(self, bell: asyncio.Event) -> bool:
        """False after a while without changes; the hub's event is also set at the end of the server."""
        waits = [asyncio.ensure_future(bell.wait()), asyncio.ensure_future(self._hub.pause(HEARTBEAT_S))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        return bell.is_set() or self._hub.is_closing


def first_message(reads: Reads, after: int | None) -> tuple[int, bytes]:
    """What was missed after number `after`, or only the present position; and the number of the last event."""
    seq = reads.last_seq()
    if after is None or after == seq:
        return seq, message(seq, [], [])
    missed = reads.events(after, None, MISSED_MAX + 1) if after < seq else []
    if after > seq or len(missed) > MISSED_MAX:
        return seq, message(seq, [], [], is_resync=True)
    jobs = reads.rows({event["job_id"] for event in missed if event["job_id"] is not None})
    return seq, message(seq, missed, jobs, is_cluster=any(event["job_id"] is None for event in missed))


def message(
    seq: int, events: list[Event], jobs: list[Json], *, is_resync: bool = False, is_cluster: bool = False
) -> bytes:
    """Without an event name, so that `onmessage` of a browser receives it."""
    change = {"seq": seq, "resync": is_resync, "events": events, "jobs": jobs, "cluster": is_cluster}
    return b"id: %d\ndata: %s\n\n" % (seq, _encode(change))
