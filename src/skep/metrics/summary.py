"""From the jobs of a run to its summary."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from skep.core.job import JobState
from skep.core.state import State
from skep.metrics.ended import JobFacts
from skep.metrics.gpu_time import part_of
from skep.metrics.quantile import quantile
from skep.metrics.run import JobRow, Summary
from skep.metrics.tally import GpuTally

UNRUNNABLE = JobState.UNRUNNABLE
SLOWDOWN_LEAST_S = 10.0


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
    state: State,
    facts: JobFacts,
    tally: GpuTally,
    named: Named,
    *,
    events: int,
    wall_s: float,
    latency_ms: tuple[float, float],
) -> Summary:
    rows = facts.rows
    # First, because it needs the most memory.
    users, ratios = finish_time_fairness(state.cluster.gpu_total, facts)
    unrunnable = sum([row.state == UNRUNNABLE for row in rows])
    jcts = sorted([row.jct_s for row in rows if row.jct_s is not None])
    queues = sorted([row.queue_s for row in rows if row.queue_s is not None])
    makespan_s = _makespan(rows)
    offered = state.cluster.gpu_total * makespan_s if makespan_s else 0.0
    waits = sorted([row.start_s - row.submit_s for row in rows if row.start_s is not None])
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
        slowdown_avg=_slowdown(facts),
        utilization=part_of(facts.held, offered),
        busy=part_of(facts.busy, offered),
        fre=part_of(facts.useful, offered),
        preemptions=sum([row.preemptions for row in rows]),
        migrations=sum([row.migrations for row in rows]),
        resizes=sum([row.resizes for row in rows]),
        ftf_max=max(ratios) if ratios else None,
        ftf_avg=sum(ratios) / len(ratios) if ratios else None,
        jain=_jain(users, ratios),
        deadline_misses=facts.deadline_misses,
        fragmented_gpus=tally.fragmented_gpu_s / makespan_s if makespan_s else None,
        idle_gpus=tally.idle_gpu_s / makespan_s if makespan_s else None,
        fragment_gpus=tally.fragment_gpu_s / makespan_s if makespan_s else None,
        arrival_utilization=_arrival_utilization(state, rows, tally),
        events=events,
        decisions=state.decision_count,
        wall_s=wall_s,
        events_per_s=events / wall_s if wall_s else 0.0,
        decision_avg_ms=latency_ms[0],
        decision_p99_ms=latency_ms[1],
    )


def _slowdown(facts: JobFacts) -> float | None:
    """The mean of what is called bounded slowdown."""
    total, count = 0.0, 0
    for row, work_s in zip(facts.rows, facts.works, strict=True):
        if row.jct_s is not None:
            slower = row.jct_s / (work_s if work_s > SLOWDOWN_LEAST_S else SLOWDOWN_LEAST_S)
            total += slower if slower > 1.0 else 1.0
            count += 1
    return total / count if count else None


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


def _jain(users: list[str], ratios: Sequence[float]) -> float | None:
    """Over users of the average of 1 ÷ finish-time fairness of their jobs."""
    sums: defaultdict[str, float] = defaultdict(float)
    for user, ratio in zip(users, ratios, strict=True):
        sums[user] += 1 / ratio
    counts = Counter(users)
    return jain([total / counts[user] for user, total in sums.items()])


def jain(values: list[float]) -> float | None:
    """Jain's fairness index: 1 if all are equal, 1 ÷ n if one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def finish_time_fairness(gpu_total: int, facts: JobFacts) -> tuple[list[str], array[float]]:
    """For each finished GPU job: its user (its VC if it names none), and its time ÷ the time it would have needed with
    an equal part of the cluster.

    The part is by the number of jobs present on average during its life.
    """
    users, ratios = [], array("d")
    for row, work_s, user, lived in zip(facts.rows, facts.works, facts.users, presence(facts.rows), strict=True):
        finish_s, gpus = row.finish_s, row.gpus
        if finish_s is not None and gpus and work_s > 0:
            jct_s = finish_s - row.submit_s
            present = lived / jct_s if jct_s > 0 else 1.0
            part = gpu_total / present if present > 1.0 else gpu_total
            alone_s = work_s * gpus / (part if part < gpus else gpus)
            users.append(user)
            ratios.append(jct_s / alone_s)
    return users, ratios


def presence(rows: Sequence[JobRow]) -> list[float]:
    """For each job that finished, the integral over its life of the number of jobs in the system. The rows are in the
    order of submission."""
    finishes = [math.inf if row.finish_s is None else row.finish_s for row in rows]
    found = [0.0] * len(rows)  # between submission and finish: the integral up to the submission
    integral, count, since_s = 0.0, 0, 0.0
    came = 0
    for gone in sorted(range(len(rows)), key=finishes.__getitem__):
        finish_s = finishes[gone]
        if finish_s == math.inf:
            break
        while came < len(rows) and rows[came].submit_s <= finish_s:
            row = rows[came]
            integral += count * (row.submit_s - since_s)
            since_s = row.submit_s
            found[came] = integral
            count += row.state != UNRUNNABLE
            came += 1
        integral += count * (finish_s - since_s)
        since_s = finish_s
        found[gone] = integral - found[gone]
        count -= 1
    return found
