"""Checks of jobs that share GPUs or sit on several GPU types."""

from __future__ import annotations

from skep.core.model import JobSpec, Shape, gpu_shape
from skep.profiles.native import read_native
from skep.traces.trace import TraceJob
from skep.verify.check import Check, Finding, same
from skep.verify.play import finishes, play_jobs, row_names, starts

HALF = gpu_shape(1, gpu_milli=500)
HALVES = gpu_shape(2, gpu_milli=500)


def jobs(*rows: tuple[float, Shape]) -> list[TraceJob]:
    """(seconds of work, shape) of each, all submitted at the beginning."""
    return [
        TraceJob(0.0, work_s, JobSpec(name, (shape,), expect_s=work_s))
        for name, (work_s, shape) in zip("abc", rows, strict=False)
    ]


def neighbours_leave() -> list[Finding]:
    speed = read_native("default: {sharing: 0.5}", "profile").speed
    run = play_jobs("fifo", "1x1", jobs((1000.0, HALF), (100.0, HALF), (100.0, HALF)), speed=speed)
    return [same(f"ends of {row_names(run)}", (1200.0, 200.0, 400.0), finishes(run))]


def halves() -> list[Finding]:
    run = play_jobs("fifo", "1x2", jobs((100.0, HALVES), (100.0, HALVES), (100.0, gpu_shape(1))))
    alone = play_jobs("fifo", "1x1", jobs((100.0, HALVES)))
    return [
        same(f"starts of {row_names(run)}", (0.0, 0.0, 100.0), starts(run)),
        same("GPU-seconds of a", 100.0, run.rows[0].service_gpu_s),
        same("of a single GPU", "unrunnable", alone.rows[0].state),
    ]


def slowest_member() -> list[Finding]:
    speed = read_native("default: {types: {v100: 1.0, k80: 0.25}}", "profile").speed
    rows = ((100.0, gpu_shape(8, spans_types=True)), (100.0, gpu_shape(8)))
    run = play_jobs("fifo:walk=skip", "1x4:v100+1x4:k80", jobs(*rows), speed=speed)
    return [
        same("end of a, which allows several GPU types", 400.0, run.rows[0].finish_s),
        same("b, which does not", "unrunnable", run.rows[1].state),
    ]


CHECKS = (
    Check(
        name="neighbours",
        policy="fifo",
        title="A neighbour on a shared GPU slows the others while it is there, and no longer",
        source="by hand, half speed beside a neighbour: a has 100 of 1000 s when b ends at 200, 200 when c ends at 400",
        ask=neighbours_leave,
    ),
    Check(
        name="halves",
        policy="fifo",
        title="2 GPUs at 500 thousandths are half of each of two GPUs",
        source="by hand: two such jobs fill two GPUs, and a third job of one GPU waits for both to end",
        ask=halves,
    ),
    Check(
        name="slowest-member",
        policy="fifo",
        title="A gang that may span GPU types runs at its slowest member",
        source="by hand: 100 s of work at a quarter of the speed",
        ask=slowest_member,
    ),
)
