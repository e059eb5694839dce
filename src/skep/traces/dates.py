"""Dates of published traces as seconds."""

from __future__ import annotations

from datetime import UTC, datetime

from skep.traces.table import bad_cell

_ORIGIN = datetime.fromisoformat("2000-01-01")
"""An arbitrary origin: dated traces are rebased to their first submission."""


def instant(cell: str, column: str) -> float:
    """`YYYY-MM-DD HH:MM:SS` as seconds. Without a zone every day has 24 hours, regardless of daylight saving time."""
    try:
        moment = datetime.fromisoformat(cell.strip())
    except ValueError:
        raise bad_cell(cell, column, "a date YYYY-MM-DD HH:MM:SS") from None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - _ORIGIN).total_seconds()
