"""What the Gavel policies remember: how far jobs are behind their shares."""

from __future__ import annotations

import msgspec

from skep.core.memory import Of, Slot


class AloneTime(msgspec.Struct, frozen=True, array_like=True):
    """What a job's work would have taken on an equal part of the cluster."""

    alone_s: float
    work_s: float
    """The work that is counted in it."""
    speed: float
    """On an equal part, since then."""


class ShareBook(msgspec.Struct, frozen=True):
    """What is kept from one answer to the next, by seq of jobs."""

    answer: int
    """The number of the answer."""
    at_s: float
    behind: dict[int, tuple[float, ...]]
    """By how many seconds a job was behind its shares on each type when the answer came; `compat` orders by it."""
    shares: dict[int, tuple[float, ...]] = {}
    """The shares of the answer."""
    alone: dict[int, AloneTime] = {}


class ReceivedTime(msgspec.Struct, frozen=True, array_like=True):
    """Seconds that a job has run on each type since an answer, up to when it was last stopped or moved."""

    answer: int
    times: tuple[float, ...]


BOOK = Slot("gavel book", ShareBook, Of.ALL)
RECEIVED = Slot("gavel received", ReceivedTime)
EMPTY = ShareBook(-1, 0.0, {})
