"""The forms in which the service answers, and in which the store is read and written."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]  # one answer; `server/schemas.py` declares the fields of each, and tests hold them to it

SqlValue = str | int | float | bytes | None

SqlRow = tuple[Any, ...]  # what a query gives: the types of its columns are in its text
