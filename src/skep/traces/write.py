"""Writing a trace in the native format, so that reading it again gives the same jobs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from skep.core.errors import InputError
from skep.core.model import DEFAULT_VC, Role, Shape, gpu_shape, told
from skep.core.share import Share
from skep.files.text import write_aside
from skep.traces.native import OPTIONAL, REQUIRED
from skep.traces.table import printable
from skep.traces.trace import Trace, TraceJob


def write_native(trace: Trace, path: str | Path) -> None:
    """Write the trace atomically, replacing an existing file."""
    write_aside(path, native_text(trace))


def native_text(trace: Trace) -> str:
    """The trace as CSV, with only those optional columns that some job uses."""
    columns = {name: [_OPTIONAL_CELLS[name](job) for job in trace.jobs] for name in OPTIONAL}
    used = {name: cells for name, cells in columns.items() if any(cells)}
    required = map(_required_cells, trace.jobs)
    rows = [[*cells, *optional] for cells, *optional in zip(required, *used.values(), strict=True)]
    text = _csv([[*REQUIRED, *used], *rows], csv.QUOTE_MINIMAL)
    # The csv module does not notice that a carriage return within a name needs quotes.
    return text if "\r" not in text else _csv([[*REQUIRED, *used], *rows], csv.QUOTE_ALL)


def _csv(rows: list[list[str]], quoting: Literal[0, 1]) -> str:
    out = io.StringIO()
    # Unix line ends on every machine: the same trace is the same bytes.
    csv.writer(out, lineterminator="\n", quoting=quoting).writerows(rows)
    return out.getvalue()


def _required_cells(job: TraceJob) -> list[str]:
    _check_expressible(job)
    spec = job.spec
    return [spec.id, _number(job.submit_s), _number(job.work_s), str(spec.shapes[0].gpus)]


def _check_expressible(job: TraceJob) -> None:
    """A row has one task per GPU, all equal; a job of other roles or shapes would be read as another job."""
    shape = job.spec.shapes[0]
    role = shape.roles[0]
    same = gpu_shape(
        shape.gpus,
        gpu_types=shape.gpu_types,
        spans_types=shape.spans_types,
        gpu_milli=role.gpu_milli,
        gpu_mem_gib=role.gpu_mem_gib,
        cpu=_total(role.cpu, role.count),
        memory_gib=_total(role.memory_gib, role.count),
    )
    ways: tuple[Shape, ...] = (same,)
    if len(job.spec.shapes) == 2 and shape.gpus:
        cpu = job.spec.shapes[1].roles[0].cpu
        ways += (gpu_shape(0, cpu=cpu, memory_gib=_total(role.memory_gib, role.count)),)
    if job.spec.shapes != ways:
        raise InputError(
            f"job {printable(job.spec.id)} cannot be written: its tasks do not fit one row",
            hint="a row is one task per GPU, and parts of several GPUs are of different ones",
        )


def _role(job: TraceJob) -> Role:
    return job.spec.shapes[0].roles[0]


NO_SHARE = Share()


def _share(job: TraceJob) -> Share:
    return job.spec.share or NO_SHARE


def _total(share: float, tasks: int) -> float:
    """The value that, divided by the tasks, gives exactly this share: rounding may put it next to the product."""
    product = share * tasks
    near = (round(product, 6), product, math.nextafter(product, 0), math.nextafter(product, math.inf))
    return next((total for total in near if total / tasks == share), product)


def _number(value: float | None) -> str:
    """The shortest text that reads as the same number; empty for None."""
    if value is None:
        return ""
    return str(int(value)) if value == value // 1 and abs(value) < 2**53 else repr(value)


def _unless_zero(value: float) -> str:
    return _number(value) if value else ""


_OPTIONAL_CELLS: dict[str, Callable[[TraceJob], str]] = {
    "vc": lambda job: "" if job.spec.vc == DEFAULT_VC else job.spec.vc,
    "user": lambda job: job.spec.user,
    "model": lambda job: job.spec.model,
    "gpu_type": lambda job: "|".join(job.spec.shapes[0].gpu_types),
    "spans_types": lambda job: "true" if job.spec.shapes[0].spans_types else "",
    "priority": lambda job: _unless_zero(job.spec.priority),
    "weight": lambda job: "" if job.spec.weight == 1 else _number(job.spec.weight),
    "min_gpus": lambda job: _number(job.spec.min_gpus),
    "max_gpus": lambda job: _number(job.spec.max_gpus),
    "batch_size": lambda job: _number(job.spec.batch_size),
    "min_batch": lambda job: _number(job.spec.min_batch),
    "max_batch": lambda job: _number(job.spec.max_batch),
    "gpu_milli": lambda job: "" if _role(job).gpu_milli == 1000 else str(_role(job).gpu_milli),
    "gpu_mem_gib": lambda job: _unless_zero(_role(job).gpu_mem_gib),
    "cpu": lambda job: _unless_zero(_total(_role(job).cpu, _role(job).count)),
    "memory_gib": lambda job: _unless_zero(_total(_role(job).memory_gib, _role(job).count)),
    "or_cpu": lambda job: _unless_zero(job.spec.shapes[1].roles[0].cpu) if len(job.spec.shapes) > 1 else "",
    "deadline_s": lambda job: _number(told(job.spec).deadline_s),
    "steps": lambda job: _number(told(job.spec).steps),
    "epochs": lambda job: _number(told(job.spec).epochs),
    "group": lambda job: job.spec.group.id if job.spec.group is not None else "",
    "needs": lambda job: "|".join(job.spec.needs),
    "share": lambda job: _share(job).mode,
    "limit_milli": lambda job: _unless_zero(_share(job).limit_milli),
    "share_weight": lambda job: "" if _share(job).weight == 1 else str(_share(job).weight),
    "affinity": lambda job: _share(job).affinity,
    "anti_affinity": lambda job: _share(job).anti_affinity,
    "exclusion": lambda job: _share(job).exclusion,
    "persistent_gib": lambda job: _unless_zero(_share(job).persistent_gib),
    "ephemeral_gib": lambda job: _unless_zero(_share(job).ephemeral_gib),
    "claim": lambda job: "" if _share(job).claim == "guaranteed" else _share(job).claim,
    "promise_milli": lambda job: _unless_zero(_share(job).promise_milli),
    "tier": lambda job: "" if _share(job).tier == "basic" else _share(job).tier,
    "measured_milli": lambda job: _unless_zero(_share(job).measured_milli),
}
