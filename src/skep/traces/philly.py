"""Microsoft's Philly trace (Jeon et al., ATC'19): the JSON job log, and the CSV made of it for Sia."""

from __future__ import annotations

from functools import cache
from typing import Any

from skep.core.errors import InputError
from skep.core.model import DEFAULT_VC, JobSpec, Shape, gpu_shape
from skep.traces.dates import instant
from skep.traces.table import (
    BadRow,
    Columns,
    Draft,
    RowParser,
    Source,
    TableFormat,
    build_trace,
    identity,
    seconds,
    shape_cache,
    whole,
)
from skep.traces.trace import Trace


def _csv_parser(columns: Columns) -> RowParser:
    time_at, duration_at, gpus_at, vc_at = (columns[name] for name in PHILLY_CSV.required)

    @cache
    def shapes(cell: str) -> tuple[Shape, ...]:
        return (gpu_shape(whole(cell, "num_gpus", least=1)),)

    def parse(number: int, row: list[str]) -> Draft:
        # The file has no ids: the number of the row is used.
        work_s = seconds(row[duration_at], "duration")
        vc = row[vc_at].strip() or DEFAULT_VC
        spec = JobSpec(str(number), shapes(row[gpus_at]), vc, expect_s=work_s)
        return instant(row[time_at], "timestamp"), work_s, spec

    return parse


PHILLY_CSV = TableFormat(
    name="philly-csv",
    required=("timestamp", "duration", "num_gpus", "cluster"),
    optional=("gpu_time",),
    parser=_csv_parser,
    is_dated=True,
)


def read_philly_json(source: Source) -> Trace:
    """The job log: one object per job, with all its attempts."""
    shapes = shape_cache()
    drafts: list[Draft] = []
    dropped: dict[str, int] = {}
    seen: set[str] = set()
    for entry in _entries(source):
        try:
            submit_s, work_s, spec = _job(entry, shapes)
            if spec.id in seen:
                raise BadRow("jobid is used twice")
        except BadRow as bad:
            dropped[bad.reason] = dropped.get(bad.reason, 0) + 1
        else:
            seen.add(spec.id)
            drafts.append((submit_s, work_s, spec))
    return build_trace(source, "philly-json", drafts, dropped, is_dated=True)


def _entries(source: Source) -> list[Any]:
    import msgspec

    try:
        entries = msgspec.json.decode(source.text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"{source.path}: is not JSON: {error}") from None
    if not isinstance(entries, list):
        raise InputError(f"{source.path}: is not a Philly job log, expected a JSON list of jobs")
    return entries


def _job(entry: Any, shapes: Any) -> Draft:
    if not isinstance(entry, dict):
        raise BadRow("not an object")
    id = identity(_cell(entry, "jobid"), "jobid")
    submit_s = instant(_cell(entry, "submitted_time"), "submitted_time")
    attempts = [item for item in _list(entry, "attempts") if isinstance(item, dict)]
    if not attempts:
        raise BadRow("never ran")
    work_s = sum(_run_times(attempts))
    gpus = next(filter(None, map(_gpus, attempts)), 0)
    if not gpus:
        raise BadRow("no attempt held GPUs")
    vc = _cell(entry, "vc").strip() or DEFAULT_VC
    spec = JobSpec(id, shapes(gpus), vc, _cell(entry, "user").strip(), expect_s=work_s)
    return submit_s, work_s, spec


def _run_times(attempts: list[dict[str, Any]]) -> list[float]:
    """Seconds of each attempt, except those without a start or an end in the log."""
    times = []
    for attempt in attempts:
        start, end = _cell(attempt, "start_time"), _cell(attempt, "end_time")
        if start and end:
            times.append(instant(end, "end_time") - instant(start, "start_time"))
    if not times:
        raise BadRow("no attempt with a start and an end")
    if min(times) < 0:
        raise BadRow("an attempt ends before it starts")
    return times


def _gpus(attempt: dict[str, Any]) -> int:
    hosts = [host for host in _list(attempt, "detail") if isinstance(host, dict)]
    return sum(len(_list(host, "gpus")) for host in hosts)


def _cell(entry: dict[str, Any], key: str) -> str:
    """Text of a field; null, and the word None that scripts write for it, are empty."""
    value = entry.get(key)
    return "" if value is None or value == "None" else str(value)


def _list(entry: dict[str, Any], key: str) -> list[Any]:
    value = entry.get(key)
    return value if isinstance(value, list) else []
