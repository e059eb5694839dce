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
    TasksExited,
    TasksMoved,
    TasksStarted,
    TimerDue,
)
from skep.service.store import Told, Writes

if TYPE_CHECKING:
    from skep.service.writer import Writer

ORDER: dict[type, int] = {
    TasksExited: 0,
    TasksMoved: 0,
    TasksStarted: 0,
    NodeLost: 1,
    NodeBack: 1,
    NodeDrained: 1,
    NodeUndrained: 1,
    JobSubmitted: 3,
    TimerDue: 4,
}
"""What happened at one moment: exits, node changes, what owners ask, submissions, timers."""


class Busy(SkepError):
    """The server cannot write any more; nothing was done."""


class Command(msgspec.Struct):
    """Something to be done by the writer; `future` is answered when it is on the disk."""

    prepare: Callable[[Writer, Turn], Any]
    future: Future[Any]


class Turn:
    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.events: list[Event] = []
        self.changes: list[Event] = []
        """Of policy or cluster: each is a step by itself."""
        self.writes = Writes()
        self.answers: list[tuple[Future[Any], Any]] = []
        self.keys: dict[tuple[str, str], tuple[str, list[str]]] = {}
        """Idempotency keys of this turn, which the store does not have yet."""

    @property
    def has_writes(self) -> bool:
        return self.writes != Writes()

    def say(self, kind: str, text: str, job: str | None = None, who: str = "") -> None:
        self.writes.told.append(Told(self.at_s, kind, text, job, who))

    def in_order(self) -> list[Event]:
        return sorted(self.events, key=lambda event: ORDER.get(type(event), 2))
