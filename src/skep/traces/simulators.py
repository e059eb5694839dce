"""Job lists of other simulators: Tiresias (NSDI'19) and Blox (EuroSys'24)."""

from __future__ import annotations

from skep.core.model import JobSpec
from skep.traces.table import Columns, Draft, RowParser, TableFormat, identity, seconds, shape_cache, whole


def _tiresias_parser(columns: Columns) -> RowParser:
    id_at, gpus_at, submit_at, duration_at, model_at = (columns[name] for name in TIRESIAS.required)
    steps_at = columns.get("iterations")
    shapes = shape_cache()

    def parse(number: int, row: list[str]) -> Draft:
        id = identity(row[id_at], "job_id")
        work_s = seconds(row[duration_at], "duration")
        gpus = whole(row[gpus_at], "num_gpu", least=1)
        steps = row[steps_at].strip() if steps_at is not None else ""
        spec = JobSpec(
            id,
            shapes(gpus),
            model=row[model_at].strip(),
            expect_s=work_s,
            steps=whole(steps, "iterations") if steps else None,
        )
        return seconds(row[submit_at], "submit_time"), work_s, spec

    return parse


TIRESIAS = TableFormat(
    name="tiresias",
    required=("job_id", "num_gpu", "submit_time", "duration", "model_name"),
    optional=("iterations", "interval"),
    parser=_tiresias_parser,
)


def _blox_parser(columns: Columns) -> RowParser:
    id_at, gpus_at, arrival_at, duration_at = (columns[name] for name in BLOX.required)
    shapes = shape_cache()

    def parse(number: int, row: list[str]) -> Draft:
        id = identity(row[id_at], "job_id")
        work_s = seconds(row[duration_at], "duration_s")
        spec = JobSpec(id, shapes(whole(row[gpus_at], "num_gpu", least=1)), expect_s=work_s)
        return seconds(row[arrival_at], "arrival_s"), work_s, spec

    return parse


BLOX = TableFormat(
    name="blox",
    required=("job_id", "num_gpu", "arrival_s", "duration_s"),
    optional=(),
    parser=_blox_parser,
)
