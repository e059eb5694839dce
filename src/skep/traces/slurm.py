"""Slurm's accounting, as printed by `sacct --parsable2`: how a Slurm site gets a trace of its own history."""

from __future__ import annotations

import re

from skep.core.errors import InputError
from skep.core.model import DEFAULT_VC, JobSpec
from skep.traces.dates import instant
from skep.traces.table import (
    BadRow,
    Columns,
    Draft,
    RowParser,
    TableFormat,
    bad_cell,
    identity,
    shape_cache,
    span,
    whole,
)

REQUIRED = ("JobID", "Submit", "Start")
ENDS = ("End", "Elapsed")
TRES = ("AllocTRES", "ReqTRES")
"""One of each is needed, the first of them where a row has it."""
OPTIONAL = (*ENDS, *TRES, "User", "Account", "Partition")
VC_COLUMNS = {"account": "Account", "partition": "Partition"}

_NO_TIME = ("", "unknown", "none", "n/a")
_UNITS_GIB = {"K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0, "P": 1024.0**2}


def slurm_table(vc_column: str = VC_COLUMNS["account"]) -> TableFormat:
    """The format, with the VC of a job taken from this column."""

    def parser(columns: Columns) -> RowParser:
        return _parser(columns, vc_column)

    return TableFormat(name="slurm", required=REQUIRED, optional=OPTIONAL, parser=parser, is_dated=True, delimiter="|")


def _parser(columns: Columns, vc_column: str) -> RowParser:
    id_at, submit_at, start_at = (columns[name] for name in REQUIRED)
    end_at, elapsed_at = (columns.get(name) for name in ENDS)
    tres_at = [columns[name] for name in TRES if name in columns]
    for names in (ENDS, TRES):
        if not any(name in columns for name in names):
            raise InputError(f"no column {' or '.join(names)}", hint="sacct --format names the columns")
    vc_at, user_at = columns.get(vc_column), columns.get("User")
    shapes = shape_cache()

    def parse(number: int, row: list[str]) -> Draft:
        id = identity(row[id_at], "JobID")
        if "." in id:
            raise BadRow(f"JobID {id} is a step", reason="a step of a job")
        submit_s, start_s = (_moment(row[at], name) for at, name in ((submit_at, "Submit"), (start_at, "Start")))
        if submit_s is None or start_s is None:
            raise BadRow("has no Start", reason="never ran")
        end_s = None if end_at is None else _moment(row[end_at], "End")
        if end_at is None and elapsed_at is not None:
            end_s = start_s + span(row[elapsed_at], "Elapsed")
        if end_s is None:
            raise BadRow("has no End", reason="still runs")
        if not submit_s <= start_s <= end_s:
            raise BadRow("Submit, Start and End are not in this order", reason="times out of order")
        gpus, gpu_type, cpu, memory_gib = _resources(next(filter(None, (row[at].strip() for at in tres_at)), ""))
        work_s = end_s - start_s
        vc = (row[vc_at].strip() if vc_at is not None else "") or DEFAULT_VC
        user = row[user_at].strip() if user_at is not None else ""
        shape = shapes(gpus, gpu_types=gpu_type, cpu=cpu, memory_gib=memory_gib)
        return submit_s, work_s, JobSpec(id, shape, vc, user, expect_s=work_s)

    return parse


def _moment(cell: str, column: str) -> float | None:
    """A date, or seconds since 1970 (SLURM_TIME_FORMAT=%s); None for what has not happened."""
    cell = cell.strip()
    if cell.lower() in _NO_TIME:
        return None
    return float(cell) if cell.isdecimal() else instant(cell, column)


def _resources(cell: str) -> tuple[int, tuple[str, ...], float, float]:
    """GPUs, their type, CPUs and GiB of memory of `cpu=8,mem=64G,gres/gpu=4,gres/gpu:a100=4,…`."""
    amounts = dict(part.split("=", 1) for part in cell.split(",") if "=" in part)
    types = {name.partition(":")[2].lower(): count for name, count in amounts.items() if name.startswith("gres/gpu:")}
    total = whole(amounts["gres/gpu"], "gres/gpu") if "gres/gpu" in amounts else 0
    total = total or sum(whole(count, "gres/gpu") for count in types.values())
    cpu = float(whole(amounts.get("cpu", "0"), "cpu"))
    if not total and not cpu:
        raise BadRow("names neither GPUs nor CPUs", reason="asks for neither GPUs nor CPUs")
    return total, tuple(types) if total else (), cpu, _gib(amounts.get("mem", "0"))


def _gib(cell: str) -> float:
    """`64G`, `512000M`; a plain number is MiB."""
    match = re.fullmatch(r"([0-9.]+)([KMGTP]?)", cell.strip().upper())
    if match is None:
        raise bad_cell(cell, "mem", "an amount such as 64G")
    return float(match[1]) * _UNITS_GIB[match[2] or "M"]
