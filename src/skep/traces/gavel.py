"""Gavel's `.trace` files (Narayanan et al., OSDI'20): tab-separated, no header, work in training steps."""

from __future__ import annotations

from typing import Protocol

from skep.core.errors import InputError
from skep.core.model import JobSpec
from skep.traces.table import (
    BadRow,
    Columns,
    Draft,
    RowParser,
    Source,
    TableFormat,
    amount,
    identity,
    seconds,
    shape_cache,
    weight,
    whole,
)

REFERENCE_TYPE = "v100"
"""Gavel generates its steps from durations on this GPU type."""


class Throughputs(Protocol):
    """What a profile must provide to turn steps, or whole training runs, into seconds."""

    def steps_per_s(self, model: str, gpus: int, gpu_type: str) -> float | None: ...
    def run_s(self, model: str, gpus: int, batch_size: int) -> float | None: ...
    def gpus_max(self, model: str) -> int | None: ...
    def batches(self, model: str) -> tuple[int, int] | None: ...


def gavel_table(source: Source, profile: Throughputs | None) -> TableFormat:
    if profile is None:
        raise InputError(
            f"{source.path}: a Gavel trace counts work in steps and needs --profile to time them",
            hint="add --profile simulation_throughputs.json, published with Gavel",
        )
    return GAVEL._replace(parser=lambda columns: _parser(columns, profile))


def _no_profile(columns: Columns) -> RowParser:
    raise AssertionError("a Gavel table is made by gavel_table")


def _parser(columns: Columns, profile: Throughputs) -> RowParser:
    shapes = shape_cache()

    def parse(number: int, row: list[str]) -> Draft:
        # The file has no ids: the number of the row is used.
        model = identity(row[columns["job_type"]], "job_type")
        steps = whole(row[columns["total_steps"]], "total_steps")
        gpus = whole(row[columns["scale_factor"]], "scale_factor", least=1)
        steps_per_s = profile.steps_per_s(model, gpus, REFERENCE_TYPE)
        if not steps_per_s:
            raise BadRow(f"no throughput of its job type and GPUs on {REFERENCE_TYPE}")
        work_s = steps / steps_per_s
        spec = JobSpec(
            str(number),
            shapes(gpus),
            model=model,
            expect_s=work_s,
            deadline_s=_deadline(row[columns["slo"]], work_s),
            steps=steps,
            weight=weight(row[columns["priority_weight"]], "priority_weight"),
        )
        return seconds(row[columns["arrival_s"]], "arrival_s"), work_s, spec

    return parse


def _deadline(cell: str, work_s: float) -> float | None:
    """Gavel's SLO is a multiple of the job's own duration; -1 is none."""
    if cell.strip().startswith("-"):
        return None
    factor = amount(cell, "slo")
    return factor * work_s if factor else None


GAVEL = TableFormat(
    name="gavel",
    required=(
        "job_type",
        "command",
        "working_directory",
        "steps_argument",
        "needs_data",
        "total_steps",
        "scale_factor",
        "priority_weight",
        "slo",
        "arrival_s",
    ),
    optional=(),
    parser=_no_profile,
    has_header=False,
    delimiter="\t",
)
