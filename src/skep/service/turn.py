"""One turn of the writer: what is collected before the planner is called, and what is written afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from skep.core.errors import SkepError
from skep.core.events import Event, in_order
from skep.core.group import GroupSpec
from skep.service.store import Notice, Store, StoredJob, Writes

if TYPE_CHECKING:
    from skep.core.ports import EngineCommands
    from skep.service.writer import Writer


class Busy(SkepError):
    """The server cannot write any more; nothing was done."""


class NotYet(Exception):
    """Earlier commands of the same turn must be applied first."""


class Command(msgspec.Struct):
    """A command for the writer; `future` is completed when it is durable."""

    prepare: Callable[[Writer, Turn], object]
    future: Future[Any]  # the result of `prepare`


class Turn:
    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.events: list[Event] = []
        self.changes: list[list[Event]] = []
        """Changes of policy or cluster: each is a step by itself."""
        self.touched: set[str] = set()
        """Jobs, by their owners' ids, with commands that the state has not applied yet."""
        self.then: list[Callable[[EngineCommands, int], None]] = []
        """Calls of the engine besides actions, made once this turn is durable, with the server's epoch."""
        self.writes = Writes()
        self.answers: list[tuple[Future[Any], object]] = []  # each with its result
        self.formed: dict[str, GroupSpec] = {}
        """Groups, by id, with changes that the state has not applied yet."""
        self.keys: dict[tuple[str, str], tuple[str, list[str]]] = {}
        """Idempotency keys of this turn, which the store does not have yet."""

    @property
    def has_writes(self) -> bool:
        return self.writes != Writes()

    def notify(self, kind: str, text: str, job: str | None = None, who: str = "") -> None:
        self.writes.notices.append(Notice(self.at_s, kind, text, job, who))

    def take_events(self) -> list[Event]:
        """All collected events, in order."""
        events, self.events, self.touched, self.formed = self.events, [], set(), {}
        return in_order(events)

    def take_changes(self) -> list[list[Event]]:
        changes, self.changes = self.changes, []
        return changes

    def alone(self) -> None:
        """For commands that must see the effect of all earlier ones."""
        if self.events:
            raise NotYet

    def row(self, seq: int, store: Store) -> StoredJob | None:
        """A job as it is listed, including the changes of this turn."""
        if seq in self.writes.jobs:
            return self.writes.jobs[seq]
        new = next((row for row, _ in self.writes.new_jobs if row.seq == seq), None)
        kept = store.job(seq) if new is None else None
        return kept[0] if kept is not None else new


PIECE = 250
"""The number of jobs that are processed before the lock is lent: a few milliseconds."""

T = TypeVar("T")


class Lendable:
    """The lock of the state, which the writer lends to readers during long operations.

    A thread that waits for a plain lock wakes up too late if it is released and acquired again at once. This lock is
    fair: no thread overtakes the one that waited first, so each time the lock is lent at least one reader gets it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line = threading.Lock()
        """Held by the first waiting thread."""

    def __enter__(self) -> None:
        with self._line:
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the lock. The caller holds it, and does not need it meanwhile."""
        self._lock.release()
        try:
            yield
        finally:
            self.__enter__()

    def in_pieces(self, items: Iterable[T]) -> Iterator[T]:
        """Iterate over these, for a caller that holds the lock and can lend it between any two of them."""
        for number, item in enumerate(items, 1):
            yield item
            if number % PIECE == 0:
                with self.lent():
                    pass
