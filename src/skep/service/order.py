"""The order of a list of jobs, and the cursor from which its next page continues."""

from __future__ import annotations

import base64

import msgspec

from skep.core.errors import InputError
from skep.service.spent import ran_column
from skep.service.values import SqlValue

COLUMNS = {
    **{name: name for name in ("name", "user", "vc", "state", "gpus", "priority", "submit_s")},
    "id": "seq",
    "start_s": "coalesce(start_s, 0)",
    "finish_s": "coalesce(finish_s, 0)",
    "waited": f"coalesce(finish_s, {{now}}) - submit_s - {ran_column('{now}')}",
    "ran": ran_column("{now}"),
}
"""The sort columns; `now` is that of the first page, so that pages are consistent."""


class SortOrder(msgspec.Struct, frozen=True):
    by: str = "id"
    is_falling: bool = True
    now_s: float = 0.0

    @property
    def column(self) -> str:
        return COLUMNS[self.by].format(now=repr(float(self.now_s)))

    @property
    def clause(self) -> str:
        way = "DESC" if self.is_falling else "ASC"
        return f"ORDER BY {self.column} {way}, seq {way}" if self.by != "id" else f"ORDER BY seq {way}"

    def behind(self, place: Cursor) -> tuple[str, list[SqlValue]]:
        """A term for a WHERE clause: everything after this position."""
        sign = "<" if self.is_falling else ">"
        if self.by == "id":
            return f"seq {sign} ?", [place.seq]
        return f"({self.column}, seq) {sign} (?, ?)", [place.value, place.seq]


NEWEST = SortOrder()


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended."""

    seq: int
    value: str | float | int = 0
    now_s: float = 0.0


def parse_order(text: str, now_s: float) -> SortOrder:
    return SortOrder(text.removeprefix("-"), text.startswith("-"), now_s)


def write_cursor(place: Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def read_cursor(text: str) -> Cursor:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Cursor)
    except (ValueError, msgspec.MsgspecError):
        raise InputError(f"'{text[:80]}' is not a cursor", hint="use `next` of the page before") from None
