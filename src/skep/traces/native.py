"""Skep's own format: a CSV with four required columns and optional ones as needed.

It is strict. People write these files by hand or by script, and a silently dropped row would cost them far more than an
error that names it.
"""

from __future__ import annotations

import csv
import math
import re
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any, get_args

from skep.core.errors import InputError
from skep.core.model import PRIORITIES, GroupRef, JobSpec, Shape
from skep.core.share import MIG, MIG_PARTS, MODES, Claim, Share, Tier
from skep.traces.dates import instants
from skep.traces.table import (
    BadRow,
    Columns,
    Draft,
    RowParser,
    Source,
    TableFormat,
    amount,
    bad_cell,
    gpu_types,
    identity,
    needs_something,
    printable,
    shape_cache,
    span,
    weight,
    whole,
)

REQUIRED = ("job_id", "submit_s", "duration_s", "gpus")


def _text(cell: str, column: str) -> str:
    """One object for equal texts: a million jobs have few users, models and VCs."""
    return sys.intern(cell.strip())


def _types(cell: str, column: str) -> tuple[str, ...]:
    return gpu_types(cell)


def _flag(cell: str, column: str) -> bool:
    if cell.strip().lower() in ("true", "false"):
        return cell.strip().lower() == "true"
    raise bad_cell(cell, column, "true or false")


def _needs(cell: str, column: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in re.split(r"[|\s]+", cell) if name))


def _at_least_one(cell: str, column: str) -> int:
    return whole(cell, column, least=1)


def _milli(cell: str, column: str) -> int:
    return whole(cell, column, least=1, most=1000)


def _mode(cell: str, column: str) -> str:
    return _one_of(cell, column, tuple(MODES))


def _claim(cell: str, column: str) -> str:
    return _one_of(cell, column, get_args(Claim))


def _tier(cell: str, column: str) -> str:
    return _one_of(cell, column, get_args(Tier))


def _one_of(cell: str, column: str, names: tuple[str, ...]) -> str:
    found = cell.strip().lower()
    if found not in names:
        raise bad_cell(cell, column, f"one of {', '.join(names)}")
    return found


def _priority(cell: str, column: str) -> int:
    named = PRIORITIES.get(cell.strip().lower())
    return whole(cell, column, least=-(10**9)) if named is None else named


_CHECKS: dict[str, Callable[[str, str], Any]] = {
    "vc": _text,
    "user": _text,
    "model": _text,
    "gpu_type": _types,
    "priority": _priority,
    "weight": weight,
    "min_gpus": _at_least_one,
    "max_gpus": _at_least_one,
    "batch_size": _at_least_one,
    "min_batch": _at_least_one,
    "max_batch": _at_least_one,
    "spans_types": _flag,
    "gpu_milli": _milli,
    "gpu_mem_gib": amount,
    "cpu": amount,
    "memory_gib": amount,
    "or_cpu": amount,
    "deadline_s": span,
    "steps": whole,
    "epochs": whole,
    "group": _text,
    "needs": _needs,
    "share": _mode,
    "limit_milli": _milli,
    "share_weight": _at_least_one,
    "affinity": _text,
    "anti_affinity": _text,
    "exclusion": _text,
    "persistent_gib": amount,
    "ephemeral_gib": amount,
    "claim": _claim,
    "promise_milli": _milli,
    "tier": _tier,
    "measured_milli": _milli,
}
OPTIONAL = tuple(_CHECKS)
_SIMPLE = frozenset({"vc", "user", "model", "priority", "weight", "deadline_s", "steps", "epochs"})
"""Columns whose cells become fields of the spec directly: no other column changes their meaning."""


def _parser(columns: Columns) -> RowParser:
    return _row_parser(columns, span)


def _dated_parser(columns: Columns) -> RowParser:
    return _row_parser(columns, instants())


def _row_parser(columns: Columns, moment: Callable[[str, str], float]) -> RowParser:
    id_at, submit_at, duration_at, gpus_at = (columns[name] for name in REQUIRED)
    optional = [(name, columns[name], check) for name, check in _CHECKS.items() if name in columns]
    is_simple = all(name in _SIMPLE for name, _, _ in optional)
    shapes = shape_cache()
    sizes: dict[str, int] = {}

    def member(group: str) -> GroupRef:
        """The next number in its group."""
        sizes[group] = sizes.get(group, -1) + 1
        return GroupRef(group, index=sizes[group])

    def parse(number: int, row: list[str]) -> Draft:
        id = identity(row[id_at], "job_id")
        submit_s = moment(row[submit_at], "submit_s")
        work_s = _duration(row[duration_at])
        gpus = whole(row[gpus_at], "gpus")
        # An empty optional cell means the default, as if the column did not exist.
        given = {name: check(row[at], name) for name, at, check in optional if row[at].strip()}
        if is_simple:
            needs_something(gpus, 0)
            ways = shapes(gpus)
        else:
            work_s, ways = combined(id, gpus, work_s, given)
        return submit_s, work_s, JobSpec(id, ways, expect_s=_expected(work_s), **given)

    def combined(id: str, gpus: int, work_s: float, given: dict[str, Any]) -> tuple[float, tuple[Shape, ...]]:
        """The work and the shapes; what is left of the cells are fields of the spec."""
        _check_together(id, gpus, given)
        if memory_gib := _lane_memory_gib(given):
            given.setdefault("gpu_mem_gib", memory_gib)
        if "measured_milli" in given:  # the duration with the part of a GPU that the job asks for
            asked = given.get("gpu_milli", 1000)
            work_s, given["measured_milli"] = work_s * given["measured_milli"] / asked, asked
        wants = {name: given.pop(name) for name in _OF_SHAPE if name in given}
        types = given.pop("gpu_type", ())
        if "group" in given:
            given["group"] = member(given["group"])
        of_share = {name: given.pop(name) for name in _OF_SHARE if name in given}
        if "share_weight" in of_share:
            of_share["weight"] = of_share.pop("share_weight")
        if of_share:
            given["share"] = Share(of_share.pop("share", ""), **of_share)
        ways = shapes(gpus, gpu_types=types, **wants)
        if or_cpu := given.pop("or_cpu", 0):
            ways += shapes(0, cpu=or_cpu, memory_gib=wants.get("memory_gib", 0.0))
        return work_s, ways

    return parse


_OF_SHARE = ("share", *("share_weight" if name == "weight" else name for name in Share.__struct_fields__[1:]))
_OF_SHAPE = ("spans_types", "gpu_milli", "gpu_mem_gib", "cpu", "memory_gib")


def _duration(cell: str) -> float:
    """`inf` is a job that never ends, such as a service."""
    if cell.strip().lower() in ("inf", "+inf", "infinity"):
        return math.inf
    return span(cell, "duration_s")


def _expected(work_s: float) -> float | None:
    return work_s if work_s < math.inf else None


def _check_together(id: str, gpus: int, given: dict[str, Any]) -> None:
    """Constraints between two cells of a row."""
    needs_something(gpus, given.get("cpu", 0))
    if given.get("or_cpu") and not gpus:
        raise bad_cell("0", "gpus", "at least 1 where or_cpu is given")
    if given.get("gpu_milli", 1000) < 1000 and not gpus:
        raise bad_cell(str(gpus), "gpus", f"at least 1 where gpu_milli is {given['gpu_milli']}")
    if given.get("limit_milli", 1000) < given.get("gpu_milli", 1000):
        raise bad_cell(str(given["limit_milli"]), "limit_milli", f"at least gpu_milli {given.get('gpu_milli', 1000)}")
    if not gpus and any(name in given for name in _OF_SHARE):
        raise bad_cell("0", "gpus", "at least 1 where the row says how to share")
    _check_mode(given.get("share", ""), given.get("gpu_milli", 1000), given.get("limit_milli", 0))
    if given.get("gpu_mem_gib", math.inf) < _lane_memory_gib(given):
        needed = f"at least persistent_gib and ephemeral_gib together, {_lane_memory_gib(given):g}"
        raise bad_cell(f"{given['gpu_mem_gib']:g}", "gpu_mem_gib", needed)
    if "promise_milli" in given and given.get("tier", "basic") != "basic":
        raise bad_cell(given["tier"], "tier", "basic or nothing where promise_milli is given")
    for least, most in (("min_gpus", "max_gpus"), ("min_batch", "max_batch")):
        if given.get(least, 0) > given.get(most, math.inf):
            raise BadRow(f"{least} is {given[least]}, expected at most {most} {given[most]}")
    if id in given.get("needs", ()):
        raise BadRow(f"needs is {printable(id)}, expected other jobs than itself")


def _lane_memory_gib(given: dict[str, Any]) -> float:
    found: float = given.get("persistent_gib", 0.0) + given.get("ephemeral_gib", 0.0)
    return found


def _check_mode(mode: str, milli: int, limit: int) -> None:
    if mode == MIG and milli not in MIG_PARTS:
        raise bad_cell(str(milli), "gpu_milli", f"one of {', '.join(map(str, MIG_PARTS))} in mode mig")
    if limit > milli and mode and not MODES[mode].may_exceed:
        raise bad_cell(str(limit), "limit_milli", f"gpu_milli {milli}: mode {mode} gives no more")


def _check_needs(source: Source, drafts: list[Draft], lines: dict[str, int]) -> None:
    """Check that every needed job is in the trace, and no job waits for itself through others."""
    needs = {spec.id: spec.needs for _, _, spec in drafts if spec.needs}
    for id, names in needs.items():
        for name in names:
            if name not in lines:
                where = f"{source.path}:{lines[id]}"
                raise InputError(f"{where}: needs is {printable(name)}, expected a job_id of this trace")
    if needs:
        _check_circles(source, needs, lines)


def _check_circles(source: Source, needs: dict[str, tuple[str, ...]], lines: dict[str, int]) -> None:
    from graphlib import CycleError, TopologicalSorter

    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = error.args[1]
        shown = " → ".join(map(printable, reversed(circle)))
        raise InputError(
            f"{source.path}:{lines[circle[0]]}: needs go in a circle: {shown}",
            hint="none of these jobs could ever start",
        ) from None


NATIVE = TableFormat(
    name="native",
    required=REQUIRED,
    optional=OPTIONAL,
    parser=_parser,
    is_strict=True,
    check=_check_needs,
)


def native_table(source: Source) -> TableFormat:
    """The format, with dates instead of seconds if the first job has one: a file has either, never both."""
    rows = csv.reader(source.text[:65536].splitlines())
    given = list(islice((row for row in rows if any(cell.strip() for cell in row)), 2))
    names = [source.renamed.get(cell.strip(), cell.strip()) for cell in given[0]] if given else []
    if len(given) < 2 or "submit_s" not in names:
        return NATIVE
    cell = given[1][names.index("submit_s")] if len(given[1]) == len(names) else ""
    is_dated = re.match(r"\s*\d{4}-\d", cell) is not None
    return NATIVE._replace(parser=_dated_parser, is_dated=True) if is_dated else NATIVE
