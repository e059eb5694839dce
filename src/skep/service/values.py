"""The types of the service's answers and of the store's rows."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]  # one answer; `server/schemas.py` declares the fields of each, and tests verify them

SqlValue = str | int | float | bytes | None

SqlRow = tuple[Any, ...]  # the result of a query: its text determines the types of the columns
