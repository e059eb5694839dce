"""Workloads of Pollux (OSDI'21) and Sia (SOSP'23): models to be trained to the end, and what their owners request.

`num_replicas` and `batch_size` are for policies that do not adapt them; every job may run on one GPU or more. How long
a job takes follows from the profile.
"""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.model import JobSpec
from skep.traces.gavel import Throughputs
from skep.traces.table import (
    BadRow,
    Columns,
    Draft,
    RowParser,
    Source,
    TableFormat,
    identity,
    seconds,
    shape_cache,
    whole,
)


def workload_table(source: Source, profile: Throughputs | None) -> TableFormat:
    if profile is None:
        raise InputError(
            f"{source.path}: a workload names models to be trained and needs --profile to time them",
            hint="add --profile FOLDER, with the tables of goodput published with Pollux or Sia",
        )
    return WORKLOAD._replace(parser=lambda columns: _parser(columns, profile))


def _no_profile(columns: Columns) -> RowParser:
    raise AssertionError("a workload is read by workload_table")


def _parser(columns: Columns, profile: Throughputs) -> RowParser:
    id_at, submit_at, model_at, gpus_at, batch_at = (columns[name] for name in WORKLOAD.required)
    shapes = shape_cache()

    def parse(number: int, row: list[str]) -> Draft:
        id, model = identity(row[id_at], "name"), row[model_at].strip()
        gpus = whole(row[gpus_at], "num_replicas", least=1)
        batch_size = whole(row[batch_at], "batch_size", least=1)
        work_s, most, batches = (
            profile.run_s(model, gpus, batch_size),
            profile.gpus_max(model),
            profile.batches(model),
        )
        if work_s is None or most is None or batches is None:
            raise BadRow("the profile has no training run of its application")
        spec = JobSpec(
            id,
            shapes(gpus),
            model=model,
            min_gpus=1,
            max_gpus=max(most, gpus),
            expect_s=work_s,
            batch_size=batch_size,
            min_batch=batches[0],
            max_batch=batches[1],
        )
        return seconds(row[submit_at], "time"), work_s, spec

    return parse


WORKLOAD = TableFormat(
    name="workload",
    required=("name", "time", "application", "num_replicas", "batch_size"),
    optional=(),
    parser=_no_profile,
)
