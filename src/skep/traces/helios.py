"""SenseTime's Helios traces (Hu et al., SC'21): `cluster_log.csv` of Earth, Saturn, Uranus and Venus."""

from __future__ import annotations

from skep.core.model import DEFAULT_VC, JobSpec
from skep.traces.dates import instant
from skep.traces.table import (
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
    user_at, vc_at, cpu_at = (columns.get(name) for name in HELIOS.optional)
    shapes = shape_cache()

    def parse(number: int, row: list[str]) -> Draft:
        # With any final state (COMPLETED, FAILED, CANCELLED, …) a job held its GPUs for its duration.
        id = identity(row[id_at], "job_id")
        work_s = seconds(row[duration_at], "duration")
        gpus = whole(row[gpus_at], "gpu_num")
        cpu = amount(row[cpu_at], "cpu_num") if cpu_at is not None else 0.0
        needs_something(gpus, cpu)
        vc = (row[vc_at].strip() if vc_at is not None else "") or DEFAULT_VC
        user = row[user_at].strip() if user_at is not None else ""
        spec = JobSpec(id, shapes(gpus, cpu=cpu), vc, user, expect_s=work_s)
        return instant(row[submit_at], "submit_time"), work_s, spec

    return parse


HELIOS = TableFormat(
    name="helios",
    required=("job_id", "gpu_num", "submit_time", "duration"),
    optional=("user", "vc", "cpu_num"),
    parser=_parser,
    is_dated=True,
)
