"""One turn of the writer: what is gathered before the scheduler is asked, and what is to be written after."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec

from skep.core.errors import SkepError
from skep.core.events import (
    Event,
    JobSubmitted,
    NodeBack,
    NodeDrained,
    NodeLost,
    NodeUndrained,
    OthersChanged,
    ProgressReported,
    TasksExited,
    TasksMoved,
    TasksStarted,
    TimerDue,
)
from skep.core.group import GroupSpec
from skep.service.store import Notice, Store, StoredJob, Writes

if TYPE_CHECKING:
    from skep.core.ports import Engine
    from skep.service.writer import Writer

ORDER: dict[type, int] = {
    TasksExited: 0,
    TasksMoved: 0,
    TasksStarted: 0,
    ProgressReported: 0,
    NodeLost: 1,
    NodeBack: 1,
    NodeDrained: 1,
    NodeUndrained: 1,
    OthersChanged: 1,
    JobSubmitted: 3,
    TimerDue: 4,
}
"""What happened at one moment: exits, node changes, what owners ask, submissions, timers."""


class Busy(SkepError):
    """The server cannot write any more; nothing was done."""


class NotYet(Exception):
    """What was asked before in the same turn has to be taken in first."""


class Command(msgspec.Struct):
    """Something to be done by the writer; `future` is answered when it is on the disk."""

    prepare: Callable[[Writer, Turn], object]
    future: Future[Any]  # of what `prepare` returns


class Turn:
    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.events: list[Event] = []
        self.changes: list[list[Event]] = []
        """Of policy or cluster: each is a step by itself."""
        self.touched: set[str] = set()
        """Jobs, by their owners' ids, about which something was asked that the state does not know yet."""
        self.then: list[Callable[[Engine, int], None]] = []
        """What the engine is to do beside actions, once this turn is on the disk; it is given our epoch."""
        self.writes = Writes()
        self.answers: list[tuple[Future[Any], object]] = []  # each with what it is to return
        self.formed: dict[str, GroupSpec] = {}
        """Groups, by id, that the state does not know so yet."""
        self.keys: dict[tuple[str, str], tuple[str, list[str]]] = {}
        """Idempotency keys of this turn, which the store does not have yet."""

    @property
    def has_writes(self) -> bool:
        return self.writes != Writes()

    def notify(self, kind: str, text: str, job: str | None = None, who: str = "") -> None:
        self.writes.notices.append(Notice(self.at_s, kind, text, job, who))

    def take_events(self) -> list[Event]:
        """All that has gathered, in order."""
        events, self.events, self.touched, self.formed = self.events, [], set(), {}
        return sorted(events, key=lambda event: ORDER.get(type(event), 2))

    def take_changes(self) -> list[list[Event]]:
        changes, self.changes = self.changes, []
        return changes

    def alone(self) -> None:
        """For what must see the state as all that was asked before has made it."""
        if self.events:
            raise NotYet

    def row(self, seq: int, store: Store) -> StoredJob | None:
        """A job as it is listed, with what this turn has changed about it."""
        if seq in self.writes.jobs:
            return self.writes.jobs[seq]
        new = next((row for row, _ in self.writes.new_jobs if row.seq == seq), None)
        kept = store.job(seq) if new is None else None
        return kept[0] if kept is not None else new
