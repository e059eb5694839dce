"""Alibaba's GPU traces: pods of 2023 (Weng et al., ATC'23), and the input of the 2020 simulator (NSDI'22)."""

from __future__ import annotations

import math
from collections.abc import Callable

from skep.core.model import JobSpec
from skep.traces.table import (
    BadRow,
    Columns,
    Draft,
    RowParser,
    TableFormat,
    amount,
    gpu_types,
    identity,
    needs_something,
    seconds,
    shape_cache,
    whole,
)


def _parser_2023(columns: Columns) -> RowParser:
    name_at, cpu_at, memory_at, gpus_at, milli_at = (columns[name] for name in ALIBABA_2023.required)
    spec_at = columns.get("gpu_spec")
    times = _pod_times(columns)
    shapes = shape_cache()

    def parse(number: int, row: list[str]) -> Draft:
        id = identity(row[name_at], "name")
        submit_s, work_s = times(row)
        gpus = whole(row[gpus_at], "num_gpu")
        cpu = amount(row[cpu_at], "cpu_milli") / 1000
        needs_something(gpus, cpu)
        wants = {
            "gpu_types": gpu_types(row[spec_at]) if spec_at is not None else (),
            "gpu_milli": _share(row[milli_at], gpus),
            "cpu": cpu,
            "memory_gib": amount(row[memory_at], "memory_mib") / 1024,
        }
        expect_s = work_s if work_s < math.inf else None
        return submit_s, work_s, JobSpec(id, shapes(gpus, **wants), expect_s=expect_s)

    return parse


def _pod_times(columns: Columns) -> Callable[[list[str]], tuple[float, float]]:
    """(submission, run time) of a row, by the time columns that the file has.

    A pod runs from being scheduled to being deleted; the time between creation and scheduling is the waiting under
    Alibaba's own scheduler. Variants without times are lists of services: present from 0 to the end.
    """
    created_at = columns.get("creation_time")
    deleted_at = columns.get("deletion_time")
    started_at = columns.get("scheduled_time", created_at)

    def times(row: list[str]) -> tuple[float, float]:
        if created_at is None or started_at is None:
            return 0.0, math.inf
        if not row[started_at].strip():
            raise BadRow("never scheduled")
        submit_s = seconds(row[created_at], "creation_time")
        start_s = seconds(row[started_at], "scheduled_time")
        if deleted_at is None or not row[deleted_at].strip():
            return submit_s, math.inf
        work_s = seconds(row[deleted_at], "deletion_time") - start_s
        if work_s <= 0:
            raise BadRow("deleted before it ran")
        return submit_s, work_s

    return times


def _share(cell: str, gpus: int) -> int:
    """Thousandths of its GPU; only a pod with one GPU may take a part, and one without GPUs has 0."""
    if gpus == 0:
        return 1000
    milli = whole(cell, "gpu_milli", least=1, most=1000)
    if gpus > 1 and milli < 1000:
        raise BadRow("shares of several GPUs")
    return milli


ALIBABA_2023 = TableFormat(
    name="alibaba-2023",
    required=("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
    optional=("gpu_spec", "creation_time", "deletion_time", "scheduled_time"),
    parser=_parser_2023,
)

PODS = ALIBABA_2023._replace(optional=("gpu_spec",))
"""The same list without its times: the requests of all pods, including those that never ran."""


def _parser_2020(columns: Columns) -> RowParser:
    id_at, gpus_at, instances_at, duration_at, submit_at = (columns[name] for name in ALIBABA_2020.required)
    cpu_at, user_at = (columns.get(name) for name in ALIBABA_2020.optional)
    shapes = shape_cache()

    def parse(number: int, row: list[str]) -> Draft:
        id = identity(row[id_at], "job_id")
        submit_s = seconds(row[submit_at], "submit_time")
        work_s = seconds(row[duration_at], "duration")
        # The counts are those of one instance; empty cells are read as that simulator does.
        instances = whole(row[instances_at].strip() or "1", "num_inst", least=1)
        gpus, milli = _gpus_2020(row[gpus_at].strip() or "0", instances)
        cpu = instances * amount(row[cpu_at].strip() or "0", "num_cpu") if cpu_at is not None else 0.0
        needs_something(gpus, cpu)
        user = row[user_at].strip() if user_at is not None else ""
        spec = JobSpec(id, shapes(gpus, gpu_milli=milli, cpu=cpu, is_apart=False), user=user, expect_s=work_s)
        return submit_s, work_s, spec

    return parse


def _gpus_2020(cell: str, instances: int) -> tuple[int, int]:
    """(GPUs, thousandths of each) of all instances: an instance may take a part of one GPU, `0.25`."""
    gpus = amount(cell, "num_gpu")
    if 0 < gpus < 1:
        return instances, max(round(gpus * 1000), 1)
    return instances * whole(cell, "num_gpu"), 1000


ALIBABA_2020 = TableFormat(
    name="alibaba-2020",
    required=("job_id", "num_gpu", "num_inst", "duration", "submit_time"),
    optional=("num_cpu", "user"),
    parser=_parser_2020,
)
