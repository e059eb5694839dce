"""What the benchmarks share: the machine they ran on, and tables."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
from pathlib import Path
from typing import Any


def machine() -> dict[str, object]:
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version(), "load": load}


def is_within(seen: float, limit: float | None) -> bool | None:
    """Whether a limit is kept; none where there is no limit."""
    return None if limit is None else seen <= limit


def is_ok(ratio: float | None, most: float | None) -> bool | None:
    """Whether a gate is kept; none where there is no gate."""
    return None if ratio is None or most is None else ratio <= most


def as_dict(row: Any) -> dict[str, object]:
    return {**dataclasses.asdict(row), "is_within": row.is_within, "is_ok": row.is_ok}


def print_columns(table: list[list[str]]) -> None:
    """The first row has the names; text at both ends is aligned left, figures right."""
    here = machine()
    print(f"{here['cpu']}, {here['cores']} cores, Python {here['python']}, load {here['load']:.1f}\n")
    widths = [max(map(len, cells)) for cells in zip(*table, strict=True)]
    for cells in table:
        padded = [
            cell.ljust(width) if at in (0, len(cells) - 1) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        print("  ".join(padded).rstrip())


def number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def yes_no(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "NO"
