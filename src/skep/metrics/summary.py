"""From the final state to a row per job and the summary of the run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import accumulate
from operator import mul, sub

import msgspec

from skep.core.job import Job, JobState
from skep.core.model import deadline_of
from skep.core.state import State
from skep.metrics.gpu_time import busy_gpu_s, held_gpu_s, part_of, useful_gpu_s
from skep.metrics.quantile import quantile
from skep.metrics.run import JobRow, Summary
from skep.metrics.tally import GpuTally

UNRUNNABLE = JobState.UNRUNNABLE
SLOWDOWN_LEAST_S = 10.0


def job_rows(state: State) -> list[JobRow]:
    """In the order of submission."""
    for waiting in state.waiting.values():
        waiting.settle(state.now_s)
    return [job_row(job, state.now_s) for job in state.jobs.values()]


def job_row(job: Job, now_s: float) -> JobRow:
    finish_s = job.finish_s
    if finish_s is None:
        jct_s = queue_s = None
        run_s, service_gpu_s = job.run_at(now_s), job.service_at(now_s)
        quota_s, fragmentation_s = job.waited_for()
    else:  # it holds nothing and waits for nothing any more
        jct_s, run_s, service_gpu_s = finish_s - job.submit_s, job.run_s, job.service_gpu_s
        queue_s = jct_s - run_s if jct_s > run_s else 0.0
        quota_s, fragmentation_s = job.quota_s, job.fragmentation_s
    return JobRow(  # by position, which is faster: every job has one
        job.id,
        job.spec.vc,
        job.gpus,
        job.submit_s,
        job.start_s,
        finish_s,
        jct_s,
        queue_s,
        quota_s,
        fragmentation_s,
        run_s,
        service_gpu_s,
        job.preemptions,
        job.migrations,
        job.resizes,
        str(job.state),
    )


class Named(msgspec.Struct, frozen=True):
    """A description of the run, for the first lines of a summary."""

    policy: str
    cluster: str
    trace: str
    seed: int
    oracle: bool = False
    estimate_error: float = 0.0
    measured_jobs: int = 0


def summarize(
    state: State, rows: list[JobRow], tally: GpuTally, named: Named, *, wall_s: float, latency_ms: tuple[float, float]
) -> Summary:
    unrunnable = sum([row.state == UNRUNNABLE for row in rows])
    jcts = sorted([row.jct_s for row in rows if row.jct_s is not None])
    queues = sorted([row.queue_s for row in rows if row.queue_s is not None])
    makespan_s = _makespan(rows)
    offered = state.cluster.gpu_total * makespan_s if makespan_s else 0.0
    jobs, now_s = state.jobs.values(), state.now_s
    held = held_gpu_s(jobs, now_s)
    busy = busy_gpu_s(jobs, now_s, held)
    waits = sorted([row.start_s - row.submit_s for row in rows if row.start_s is not None])
    fairness = finish_time_fairness(state, rows)
    ratios = [ratio for _, ratio in fairness]
    dated = [job for job in state.jobs.values() if deadline_of(job.spec) is not None]
    return Summary(
        **msgspec.structs.asdict(named),
        jobs=len(rows),
        finished=len(jcts),
        unfinished=len(rows) - len(jcts) - unrunnable,
        unrunnable=unrunnable,
        makespan_s=makespan_s,
        jct_avg_s=sum(jcts) / len(jcts) if jcts else None,
        jct_p50_s=quantile(jcts, 0.5) if jcts else None,
        jct_p90_s=quantile(jcts, 0.9) if jcts else None,
        jct_p95_s=quantile(jcts, 0.95) if jcts else None,
        jct_p99_s=quantile(jcts, 0.99) if jcts else None,
        queue_avg_s=sum(queues) / len(queues) if queues else None,
        queue_p50_s=quantile(queues, 0.5) if queues else None,
        queue_p90_s=quantile(queues, 0.9) if queues else None,
        queue_p95_s=quantile(queues, 0.95) if queues else None,
        queue_p99_s=quantile(queues, 0.99) if queues else None,
        first_wait_p90_s=quantile(waits, 0.9) if waits else None,
        first_wait_avg_s=sum(waits) / len(waits) if waits else None,
        slowdown_avg=_slowdown(jobs),
        utilization=part_of(held, offered),
        busy=part_of(busy, offered),
        fre=part_of(useful_gpu_s(jobs, now_s, busy), offered),
        preemptions=sum([row.preemptions for row in rows]),
        migrations=sum([row.migrations for row in rows]),
        resizes=sum([row.resizes for row in rows]),
        ftf_max=max(ratios) if ratios else None,
        ftf_avg=sum(ratios) / len(ratios) if ratios else None,
        jain=_jain(fairness),
        deadline_misses=sum([_is_late(job, state.now_s) for job in dated]),
        fragmented_gpus=tally.fragmented_gpu_s / makespan_s if makespan_s else None,
        idle_gpus=tally.idle_gpu_s / makespan_s if makespan_s else None,
        fragment_gpus=tally.fragment_gpu_s / makespan_s if makespan_s else None,
        arrival_utilization=_arrival_utilization(state, rows, tally),
        events=state.event_count,
        decisions=state.decision_count,
        wall_s=wall_s,
        events_per_s=state.event_count / wall_s if wall_s else 0.0,
        decision_avg_ms=latency_ms[0],
        decision_p99_ms=latency_ms[1],
    )


def _slowdown(jobs: Iterable[Job]) -> float | None:
    """The mean of what is called bounded slowdown."""
    slower = [
        max((job.finish_s - job.submit_s) / max(job.work_s, SLOWDOWN_LEAST_S), 1.0)
        for job in jobs
        if job.finish_s is not None
    ]
    return sum(slower) / len(slower) if slower else None


def _makespan(rows: list[JobRow]) -> float | None:
    """From the first submission to the last finish."""
    ends = [row.finish_s for row in rows if row.finish_s is not None]
    return max(ends) - min([row.submit_s for row in rows]) if ends else None


def _arrival_utilization(state: State, rows: list[JobRow], tally: GpuTally) -> float | None:
    """Without the end of a run, where the last long jobs leave the cluster nearly empty."""
    if tally.arrival_service_gpu_s is None:
        return None
    submits = [row.submit_s for row in rows]
    offered = state.cluster.gpu_total * (max(submits) - min(submits))
    return tally.arrival_service_gpu_s / offered if offered else None


def _is_late(job: Job, now_s: float) -> bool:
    deadline_s = deadline_of(job.spec)
    if deadline_s is None or job.state is UNRUNNABLE:
        return False
    end_s = now_s if job.finish_s is None else job.finish_s
    return end_s - job.submit_s > deadline_s


def _jain(fairness: list[tuple[str, float]]) -> float | None:
    """Over users of the average of 1 ÷ finish-time fairness of their jobs."""
    speeds: defaultdict[str, list[float]] = defaultdict(list)
    for user, ratio in fairness:
        speeds[user].append(1 / ratio)
    return jain([sum(part) / len(part) for part in speeds.values()])


def jain(values: list[float]) -> float | None:
    """Jain's fairness index: 1 if all are equal, 1 ÷ n if one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def finish_time_fairness(state: State, rows: list[JobRow]) -> list[tuple[str, float]]:
    """For each finished GPU job: its user (its VC if it names none), and its time ÷ the time it would have needed with
    an equal part of the cluster.

    The part is by the number of jobs present on average during its life.
    """
    starts = [row.submit_s for row in rows if row.state != UNRUNNABLE]
    until = presence(starts, [row.finish_s for row in rows if row.finish_s is not None])
    gpu_total = state.cluster.gpu_total
    found = []
    for job in state.jobs.values():
        finish_s, gpus, spec = job.finish_s, job.gpus, job.spec
        if finish_s is not None and gpus and job.work_s > 0:
            jct_s = finish_s - job.submit_s
            present = (until[finish_s] - until[job.submit_s]) / jct_s if jct_s > 0 else 1.0
            part = gpu_total / present if present > 1.0 else gpu_total
            alone_s = job.work_s * gpus / (part if part < gpus else gpus)
            found.append((spec.user or spec.vc, jct_s / alone_s))
    return found


def presence(starts: list[float], ends: list[float]) -> dict[float, float]:
    """The integral over time of the number of jobs in the system, at each instant when a job came or ended."""
    changes = dict(Counter(starts))
    for at_s in ends:
        changes[at_s] = changes.get(at_s, 0) - 1
    instants = sorted(changes)
    counts = accumulate(map(changes.__getitem__, instants))
    lengths = map(sub, instants[1:], instants)
    integrals = accumulate(map(mul, counts, lengths), initial=0.0)
    return dict(zip(instants, integrals, strict=False))  # without instants there is still the first integral
