"""Dates of published traces as seconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from skep.traces.table import bad_cell

_ORIGIN = datetime.fromisoformat("2000-01-01")
"""An arbitrary origin: dated traces are rebased to their first submission."""


def instant(cell: str, column: str) -> float:
    """`YYYY-MM-DD HH:MM:SS` as seconds. Without a zone every day has 24 hours, regardless of daylight saving time."""
    return _since_origin(_moment(cell, column))


def instants() -> Callable[[str, str], float]:
    """The same for the dates of one file, which must all have a zone or all have none: otherwise they cannot be
    compared."""
    with_zone: list[bool] = []

    def parse(cell: str, column: str) -> float:
        moment = _moment(cell, column)
        has_zone = moment.tzinfo is not None
        with_zone[:] = with_zone or [has_zone]
        if has_zone != with_zone[0]:
            raise bad_cell(cell, column, f"a date with{'' if with_zone[0] else 'out'} a zone, as in the rows before")
        return _since_origin(moment)

    return parse


def _moment(cell: str, column: str) -> datetime:
    try:
        return datetime.fromisoformat(cell.strip())
    except ValueError:
        raise bad_cell(cell, column, "a date YYYY-MM-DD HH:MM:SS") from None


def _since_origin(moment: datetime) -> float:
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return (moment - _ORIGIN).total_seconds()
