"""Columns as a data frame, if pandas or polars is installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

LIBRARIES = ("pandas", "polars")


# A frame of a library that may be missing: no type of it can be named here.
def frame(columns: Mapping[str, Sequence[object]]) -> Any:
    """A frame of the library that the program already uses, else of one that is installed, else a list of rows."""
    for name in sorted(LIBRARIES, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name).DataFrame(dict(columns))
        except ImportError:
            continue
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def columns_of(kind: type[msgspec.Struct], rows: Sequence[msgspec.Struct]) -> dict[str, list[object]]:
    """The fields of structs, one list for each. Floats have six decimals, as in jobs.csv."""
    return {name: [rounded(getattr(row, name)) for row in rows] for name in kind.__struct_fields__}


def rounded(value: object) -> object:
    return round(value, 6) if type(value) is float else value


def rows_of(source: Any) -> list[dict[str, Any]]:
    """The rows of a frame, or rows as they are."""
    if hasattr(source, "to_dicts"):  # polars
        return list(source.to_dicts())
    if hasattr(source, "to_dict"):  # pandas
        return list(source.to_dict("records"))
    return [dict(row) for row in source]
