"""Helios (Hu et al., SC'21: `cluster_log.csv` of Earth, Saturn, Uranus and Venus) and Acme (Hu et al., NSDI'24: Seren
and Kalos, clusters for large language models): two traces with nearly the same columns."""

from __future__ import annotations

from skep.core.model import DEFAULT_VC, JobSpec
from skep.traces.dates import instant
from skep.traces.table import (
    BadRow,
    Columns,
    Draft,
    RowParser,
    TableFormat,
    amount,
    identity,
    needs_something,
    seconds,
    shape_cache,
    whole,
)


def _parser(columns: Columns) -> RowParser:
    id_at, gpus_at, submit_at, duration_at = (columns[name] for name in HELIOS.required)
    start_at = columns.get("start_time")
    cpu_at, user_at, vc_at, type_at = (columns.get(name) for name in ("cpu_num", "user", "vc", "type"))
    shapes = shape_cache()

    def parse(number: int, row: list[str]) -> Draft:
        # With any final state (COMPLETED, FAILED, CANCELLED, …) a job held its GPUs for its duration.
        id = identity(row[id_at], "job_id")
        if start_at is not None and row[start_at].strip().lower() in _NO_TIME:
            raise BadRow("has no start_time", reason="never ran")
        work_s = seconds(row[duration_at], "duration")
        gpus = whole(row[gpus_at], "gpu_num")
        cpu = amount(row[cpu_at], "cpu_num") if cpu_at is not None else 0.0
        needs_something(gpus, cpu)
        vc, user, kind = (row[at].strip() if at is not None else "" for at in (vc_at, user_at, type_at))
        # Acme has the kind of work instead of a model.
        spec = JobSpec(id, shapes(gpus, cpu=cpu), vc or DEFAULT_VC, user, model=kind, expect_s=work_s)
        return instant(row[submit_at], "submit_time"), work_s, spec

    return parse


_NO_TIME = ("", "nan", "nat", "none")

HELIOS = TableFormat(
    name="helios",
    required=("job_id", "gpu_num", "submit_time", "duration"),
    optional=("user", "vc", "cpu_num"),
    parser=_parser,
    is_dated=True,
)
ACME = TableFormat(
    name="acme",
    required=(*HELIOS.required, "start_time", "type"),
    optional=("user", "cpu_num"),
    parser=_parser,
    is_dated=True,
)
