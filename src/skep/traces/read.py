"""Reading a trace of any known format, named or recognised by the content of the file."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from skep.core.errors import InputError
from skep.traces.alibaba import ALIBABA_2020, ALIBABA_2023, PODS
from skep.traces.gavel import GAVEL, Throughputs, gavel_table
from skep.traces.helios import ACME, HELIOS
from skep.traces.native import NATIVE, native_table
from skep.traces.philly import PHILLY_CSV, read_philly_json
from skep.traces.simulators import BLOX, TIRESIAS
from skep.traces.slurm import VC_COLUMNS, slurm_table
from skep.traces.table import NOTHING_RENAMED, Source, TableFormat, load, read_table
from skep.traces.trace import Trace
from skep.traces.workload import WORKLOAD, workload_table

SLURM = slurm_table()
_WITH_HEADER = {
    table.name: table
    for table in (NATIVE, PHILLY_CSV, HELIOS, ACME, ALIBABA_2023, ALIBABA_2020, TIRESIAS, BLOX, SLURM, WORKLOAD)
}
FORMATS = (
    "native",
    "philly-json",
    "philly-csv",
    "helios",
    "acme",
    "alibaba-2023",
    "alibaba-2020",
    "gavel",
    "tiresias",
    "blox",
    "slurm",
    "workload",
)


def read_trace(
    path: str | Path,
    *,
    format: str | None = None,
    profile: Throughputs | None = None,
    keeps_unscheduled: bool = False,
    renamed: Mapping[str, str] = NOTHING_RENAMED,
) -> Trace:
    """The trace in a file; `profile` turns the steps of a Gavel trace, or the runs of a workload, into
    seconds. `keeps_unscheduled`: times do not
    matter, so pods of Alibaba's list that were never scheduled are kept. `renamed`: columns of Skep's own format by
    their names in this file, which then is a table of that format."""
    if format is not None and format not in FORMATS:
        raise InputError(f"unknown trace format {format}", hint=f"known formats: {', '.join(FORMATS)}")
    if renamed and format not in (None, NATIVE.name):
        raise InputError(f"--map is for tables of Skep's own format, not for {format}")
    source = load(path)._replace(renamed=renamed)
    return read_source(source, format=format, profile=profile, keeps_unscheduled=keeps_unscheduled)


def read_source(
    source: Source, *, format: str | None = None, profile: Throughputs | None = None, keeps_unscheduled: bool = False
) -> Trace:
    name = format or (NATIVE.name if source.renamed else recognise(source))
    with _without_collector():
        if name == "philly-json":
            return read_philly_json(source)
        if name == GAVEL.name:
            return read_table(source, gavel_table(source, profile))
        if name == WORKLOAD.name:
            return read_table(source, workload_table(source, profile))
        if name == NATIVE.name:
            return read_table(source, native_table(source))
        if name == ALIBABA_2023.name and keeps_unscheduled:
            return read_table(source, PODS)
        return read_table(source, _WITH_HEADER[name])


def read_slurm(path: str | Path, *, vc_from: str) -> Trace:
    """The output of sacct; the VC of a job is its `account` or its `partition`."""
    with _without_collector():
        return read_table(load(path), slurm_table(VC_COLUMNS[vc_from]))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Jobs have no reference cycles, and garbage collection while 80,000 are created doubles the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def recognise(source: Source) -> str:
    """The format of a file by its first line."""
    first = re.split(r"[\r\n]", source.text.lstrip(), maxsplit=1)[0]
    if first[0] in "[{":
        return "philly-json"
    if first.count("\t") >= 5:
        return GAVEL.name
    # No known header has commas within its names: no CSV reader is needed here, and none can fail.
    delimiter = SLURM.delimiter if SLURM.delimiter in first else ","
    header = {cell.strip(' "').lower() for cell in first.split(delimiter)}
    # A header that lacks a column is read as the nearest format: its reader then names the column, which helps more
    # than "unknown format".
    best = max(_WITH_HEADER.values(), key=lambda table: _nearness(table, header))
    if _nearness(best, header)[0] < 0.5:
        raise InputError(
            f"{source.path}: is not in a trace format that Skep knows",
            hint=f"name one with --format: {', '.join(FORMATS)}",
        )
    return best.name


def _nearness(table: TableFormat, header: set[str]) -> tuple[float, int]:
    """The share of the required columns that are present, then how many of all known ones."""
    there = len(header.intersection(map(str.lower, table.required)))
    return there / len(table.required), there + len(header.intersection(map(str.lower, table.optional)))
