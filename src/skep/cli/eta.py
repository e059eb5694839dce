"""Forecasts in words: when a job starts and ends, how sure that is, and how old."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from skep.cli.live import clock, many

POOR = "poorly known"
SHORT_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "m"), (1.0, "s"))


def eta_cell(job: dict[str, Any], now_s: float) -> str:
    """For a table: `starts in 12m (5m-40m)`; empty if nothing was forecast."""
    eta = job.get("eta")
    if not eta:
        return ""
    what = "start" if eta["start"] else "end"
    return f"{what}s {span(eta[what], eta, now_s)}"


def eta_sentence(job: dict[str, Any], now_s: float) -> str:
    """`starts in 12m (5m-40m), ends in 2h (1h-5h); 35 s old, 32 samples, its length from its owner`."""
    eta = job.get("eta")
    if not eta:
        return ""
    said = ", ".join(f"{what}s {span(eta[what], eta, now_s)}" for what in ("start", "end") if eta[what])
    return f"{said}; {age(eta, now_s)}, {many(eta['samples'], 'sample')}, length {SOURCES[eta['lengths']]}"


SOURCES = {
    "progress": "from its progress",
    "owner": "as its owner expects",
    "history": "like similar jobs that ended",
    "none": "unknown",
}


def age(eta: dict[str, Any], now_s: float) -> str:
    return f"{clock(now_s - eta['made_s'])} old"


def made_ago(jobs: Iterable[dict[str, Any]], now_s: float) -> str:
    """How old the forecasts in a table are; empty without any."""
    eta = next((eta for job in jobs if (eta := job.get("eta"))), None)
    return "" if eta is None else f"; the forecast is {age(eta, now_s)}"


def span(times: dict[str, Any], eta: dict[str, Any], now_s: float) -> str:
    """Times from now: `in 12m (5m-40m)`, `in more than 24h`, `poorly known`."""
    if times["poor"]:
        return POOR
    reach = short(eta["until_s"] - eta["made_s"])
    known = (times[key] for key in ("p10_s", "p50_s", "p90_s"))
    early, middle, late = (f">{reach}" if at_s is None else short(at_s - now_s) for at_s in known)
    if times["p50_s"] is None:
        return f"in more than {reach}" + (f" ({early}-{late})" if times["p10_s"] is not None else "")
    return f"in {middle}" if early == late else f"in {middle} ({early}-{late})"


def short(seconds: float) -> str:
    """In one unit, of which there are at least two: `90s`, `12m`, `26h`, `3d`."""
    for unit_s, name in SHORT_UNITS:
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f}{name}"
    return f"{max(seconds, 0.0):.0f}s"
