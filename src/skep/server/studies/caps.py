"""How much all users together may keep, and how much of that one user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from skep.server.studies.records import StudyRecord, TraceRecord


class Cap(NamedTuple):
    each: int
    all: int

    def excess(self, what: str, mine: int, whole: int, user: str) -> str:
        """What there would be too much of; empty if both limits hold."""
        if mine > self.each:
            return f"{user or 'an unnamed user'} may have {self.each:,} {what}"
        return f"all users together may have {self.all:,} {what}" if whole > self.all else ""


TRACES, TRACE_MIB = Cap(25, 100), Cap(1024, 4096)
STUDIES, WAITING = Cap(100, 400), Cap(5, 20)


def of_user(records: Sequence[TraceRecord | StudyRecord], user: str) -> int:
    return sum(record.user == user for record in records)
