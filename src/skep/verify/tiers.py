"""Checks of Singularity: promised parts of every hour, on two jobs and on an overloaded cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator

from skep.core.chance import MASK, draw
from skep.core.job import JobState
from skep.core.model import JobSpec, gpu_shape
from skep.core.share import Share, Tier
from skep.metrics.run import Run
from skep.traces.trace import TraceJob
from skep.verify.check import Check, Finding, near, same
from skep.verify.play import finishes, play_jobs, preemptions, starts

HOUR_S = 3600.0
PROMISED: dict[Tier, float] = {"premium": 0.95, "standard": 0.7}
DEMAND: dict[Tier, float] = {"premium": 0.2, "standard": 0.3, "basic": 0.5}
"""Parts of what is asked for."""
SIZES = (1, 1, 1, 1, 2, 2, 2, 4, 4, 8)
WORK_H = (0.5, 6.0)
RESTART_S = 30.0


def overload(seed: int, *, gpus: int = 64, hours: float = 48.0, load: float = 1.5) -> list[TraceJob]:
    """Jobs of all tiers that arrive one by one, at random, and request `load` times what this many GPUs have."""
    jobs = []
    usual_gpu_h = sum(SIZES) / len(SIZES) * sum(WORK_H) / 2
    for number, (tier, part) in enumerate(DEMAND.items()):
        gap_h = usual_gpu_h / (load * part * gpus)
        at_h = 0.0
        for index in range(round(hours / gap_h)):
            gap, size, work = (draw(seed, number, index, what) / (MASK + 1) for what in range(3))
            at_h -= math.log(1 - gap) * gap_h
            shape = gpu_shape(SIZES[int(size * len(SIZES))])
            work_s = HOUR_S * (WORK_H[0] + work * (WORK_H[1] - WORK_H[0]))
            jobs.append(TraceJob(at_h * HOUR_S, work_s, JobSpec(f"{tier}-{index}", (shape,), share=Share(tier=tier))))
    return sorted(jobs, key=lambda job: job.submit_s)


def hourly(run: Run, row: int, restart_s: float = 0.0) -> Iterator[float]:
    """The part of the requested GPU time that a job had in each full hour from its submission to its end, without the
    first seconds of every start except the first."""
    assert run.history is not None
    found = run.rows[row]
    assert found.finish_s is not None
    spans = [span for span in run.history.spans if span.job == row]
    for hour in range(int((found.finish_s - found.submit_s + 1e-6) // HOUR_S)):
        begin_s = found.submit_s + hour * HOUR_S
        held_s = 0.0
        for span in spans:
            used_s = span.start_s + (restart_s if span.start_s != found.start_s else 0.0)
            over_s = min(span.end_s, begin_s + HOUR_S) - max(used_s, begin_s)
            held_s += max(over_s, 0.0) * span.gpus.bit_count()
        yield held_s / (found.gpus * HOUR_S)


def job(name: str, at_s: float, work_s: float, gpus: int, tier: Tier = "basic") -> TraceJob:
    return TraceJob(at_s, work_s, JobSpec(name, (gpu_shape(gpus),), share=Share(tier=tier)))


def promised_hours() -> list[Finding]:
    jobs = [job("a", 0.0, 6000.0, 4), job("b", 100.0, 9000.0, 4, "standard")]
    run = play_jobs("singularity:restart=0", "1x4", jobs)
    first, second = list(hourly(run, 1))[:2]
    return [
        same("starts of a and b", (0.0, 1180.0), starts(run)),
        near("part of the first hour of b", 0.7, first),
        near("part of its second hour", 0.7, second),
        same("stops of a and b", (4, 3), preemptions(run)),
    ]


def scale_down() -> list[Finding]:
    jobs = [job("a", 0.0, 3000.0, 4), job("b", 100.0, 2000.0, 2, "premium")]
    run = play_jobs("singularity:restart=0", "1x4", jobs)
    end_s = finishes(run)[0]
    assert end_s is not None
    return [
        same("starts of a and b", (0.0, 280.0), starts(run)),
        same("stops and changes of size of a", (0, 2), (run.rows[0].preemptions, run.rows[0].resizes)),
        near("end of a", 2280.0 + 3000.0 - 280.0 - 2000.0 / 2.06, end_s),
    ]


def refused() -> list[Finding]:
    jobs = [
        job("a", 0.0, 3000.0, 4, "standard"),
        job("b", 100.0, 100.0, 2, "premium"),
        job("c", 3000.0, 100.0, 2, "premium"),
    ]
    run = play_jobs("singularity:restart=0", "1x4", jobs)
    return [same("a, b and c end as", ("succeeded", "unrunnable", "succeeded"), tuple(row.state for row in run.rows))]


def turns() -> list[Finding]:
    run = play_jobs("singularity:restart=0", "1x4", [job("a", 0.0, 3600.0, 4), job("b", 0.0, 3600.0, 4)])
    return [
        same("starts of a and b", (0.0, 900.0), starts(run)),
        same("ends of a and b", (7200.0, 6300.0), finishes(run)),
        same("stops of a and b", (2, 1), preemptions(run)),
        *three_turns(),
    ]


def three_turns() -> list[Finding]:
    run = play_jobs("singularity:restart=0", "1x2", [job(name, 0.0, 3600.0, 1) for name in "abc"])
    return [
        same("starts of three jobs on two GPUs", (0.0, 0.0, 900.0), starts(run)),
        same("their ends", (5400.0, 4500.0, 5400.0), finishes(run)),
        same("their stops", (1, 1, 1), preemptions(run)),
    ]


def overloaded() -> list[Finding]:
    jobs = overload(1)
    run = play_jobs("singularity", "8x8", jobs, restart_s=RESTART_S)
    findings = []
    for tier, part in PROMISED.items():
        rows = [at for at, each in enumerate(jobs) if each.spec.share is not None and each.spec.share.tier == tier]
        taken = [at for at in rows if run.rows[at].state != JobState.UNRUNNABLE]
        hours = [got for at in taken for got in hourly(run, at, RESTART_S)]
        what = (
            f"of {len(hours):,} hours of {len(taken)} {tier} jobs ({len(rows) - len(taken)} were refused), those below"
        )
        findings.append(same(f"{what} {part:g}", 0, sum(got < part - 1e-6 for got in hours)))
    basic = [row.state for at, row in enumerate(run.rows) if jobs[at].spec.id.startswith("basic")]
    return [*findings, same("basic jobs that did not end", 0, sum(state != JobState.SUCCEEDED for state in basic))]


CHECKS = (
    Check(
        name="promised-hours",
        policy="singularity",
        title="A standard job starts at the last moment that leaves it 0.7 of its hour, and lends the rest of the next",
        source="by hand: b is ready at 100 s and needs 2,520 s of 3,600; it has them from 1,180 s on, and gives its "
        "GPUs to a for 1,080 s whenever an hour begins: at 3,700, 7,300 and 10,900 s",
        ask=promised_hours,
    ),
    Check(
        name="scale-down",
        policy="singularity",
        title="A gang in the way of a promise keeps all its workers on half of its GPUs",
        source="Singularity, replica splicing: t_iter * n/k * 1.03, by hand; premium has 3,420 s of an hour, so b "
        "starts 180 s after it is ready",
        ask=scale_down,
    ),
    Check(
        name="refused-promise",
        policy="singularity",
        title="A promise that does not fit is refused, and taken when another job has ended",
        source="by hand: 0.7 of 4 GPUs and 0.95 of 2 are 4.7 of 4",
        ask=refused,
    ),
    Check(
        name="basic-turns",
        policy="singularity",
        title="Jobs without a promise take turns, the most under-served first",
        source="by hand: a job gives way when another has had 900 s less than it, so turns change at 900, 2,700 and "
        "4,500 s; b ends at 6,300 s, and a has 900 s left. Of three, the newest of equally served ones gives way: b at "
        "900 s, a at 1,800 s and c at 3,600 s",
        ask=turns,
    ),
    Check(
        name="tiers-overload",
        policy="singularity",
        title="At 150 % load every premium and standard job has its part of every full hour",
        source="the promise itself: 20 % of what is asked for is premium, 30 % standard, 50 % basic; promises are 60 % "
        "of the cluster. Restarts of 30 s do not count as time that a job has",
        ask=overloaded,
    ),
)
