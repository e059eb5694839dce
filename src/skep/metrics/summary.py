"""From the final state to a row per job and the summary of the run."""

from __future__ import annotations

import bisect
import itertools

import msgspec

from skep.core.job import Job, JobState
from skep.core.state import State
from skep.metrics.quantile import quantile
from skep.metrics.run import JobRow, Summary
from skep.metrics.tally import GpuTally


def job_rows(state: State) -> list[JobRow]:
    """In the order of submission."""
    for waiting in state.waiting.values():
        waiting.settle(state.now_s)
    return [job_row(job, state.now_s) for job in state.jobs.values()]


def job_row(job: Job, now_s: float) -> JobRow:
    run_s = job.run_at(now_s)
    jct_s = None if job.finish_s is None else job.finish_s - job.submit_s
    quota_s, fragmentation_s = job.waited_for()
    return JobRow(
        job_id=job.id,
        vc=job.spec.vc,
        gpus=job.gpus,
        submit_s=job.submit_s,
        start_s=job.start_s,
        finish_s=job.finish_s,
        jct_s=jct_s,
        queue_s=None if jct_s is None else max(jct_s - run_s, 0.0),
        queue_quota_s=quota_s,
        queue_fragmentation_s=fragmentation_s,
        run_s=run_s,
        service_gpu_s=job.service_at(now_s),
        preemptions=job.preemptions,
        migrations=job.migrations,
        resizes=job.resizes,
        state=str(job.state),
    )


class Named(msgspec.Struct, frozen=True):
    """A description of the run, for the first lines of a summary."""

    policy: str
    cluster: str
    trace: str
    seed: int
    oracle: bool = False
    estimate_error: float = 0.0


def summarize(
    state: State, rows: list[JobRow], tally: GpuTally, named: Named, *, wall_s: float, latency_ms: tuple[float, float]
) -> Summary:
    finished = [row for row in rows if row.jct_s is not None]
    unrunnable = sum(row.state == JobState.UNRUNNABLE for row in rows)
    jcts = sorted(row.jct_s for row in finished if row.jct_s is not None)
    queues = sorted(row.queue_s for row in finished if row.queue_s is not None)
    makespan_s = _makespan(rows)
    offered = state.cluster.gpu_total * makespan_s if makespan_s else 0.0
    work = sum(job.work_at(state.now_s) * job.gpus for job in state.jobs.values())
    fairness = finish_time_fairness(state)
    ratios = list(fairness.values())
    return Summary(
        **msgspec.structs.asdict(named),
        jobs=len(rows),
        finished=len(finished),
        unfinished=len(rows) - len(finished) - unrunnable,
        unrunnable=unrunnable,
        makespan_s=makespan_s,
        jct_avg_s=sum(jcts) / len(jcts) if jcts else None,
        jct_p50_s=quantile(jcts, 0.5) if jcts else None,
        jct_p90_s=quantile(jcts, 0.9) if jcts else None,
        jct_p95_s=quantile(jcts, 0.95) if jcts else None,
        jct_p99_s=quantile(jcts, 0.99) if jcts else None,
        queue_avg_s=sum(queues) / len(queues) if queues else None,
        queue_p95_s=quantile(queues, 0.95) if queues else None,
        queue_p99_s=quantile(queues, 0.99) if queues else None,
        utilization=sum(row.service_gpu_s for row in rows) / offered if offered else None,
        fre=work / offered if offered else None,
        preemptions=sum(row.preemptions for row in rows),
        migrations=sum(row.migrations for row in rows),
        resizes=sum(row.resizes for row in rows),
        ftf_max=max(ratios) if ratios else None,
        ftf_avg=sum(ratios) / len(ratios) if ratios else None,
        jain=_jain(state, fairness),
        deadline_misses=sum(_is_late(job, state.now_s) for job in state.jobs.values()),
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


def _makespan(rows: list[JobRow]) -> float | None:
    """From the first submission to the last finish."""
    ends = [row.finish_s for row in rows if row.finish_s is not None]
    return max(ends) - min(row.submit_s for row in rows) if ends else None


def _arrival_utilization(state: State, rows: list[JobRow], tally: GpuTally) -> float | None:
    """Without the end of a run, where the last long jobs leave the cluster nearly empty."""
    if tally.arrival_service_gpu_s is None:
        return None
    arrivals_s = max(row.submit_s for row in rows) - min(row.submit_s for row in rows)
    offered = state.cluster.gpu_total * arrivals_s
    return tally.arrival_service_gpu_s / offered if offered else None


def _is_late(job: Job, now_s: float) -> bool:
    if job.spec.deadline_s is None or job.state is JobState.UNRUNNABLE:
        return False
    end_s = now_s if job.finish_s is None else job.finish_s
    return end_s - job.submit_s > job.spec.deadline_s


def _jain(state: State, fairness: dict[str, float]) -> float | None:
    """Over users (VCs if jobs name none) of the average of 1 ÷ finish-time fairness of their jobs."""
    speeds: dict[str, list[float]] = {}
    for job_id, ratio in fairness.items():
        spec = state.jobs[job_id].spec
        speeds.setdefault(spec.user or spec.vc, []).append(1 / ratio)
    return jain([sum(part) / len(part) for part in speeds.values()])


def jain(values: list[float]) -> float | None:
    """Jain's fairness index: 1 if all are equal, 1 ÷ n if one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def finish_time_fairness(state: State) -> dict[str, float]:
    """For each finished GPU job: its time ÷ the time it would have needed with an equal part of the cluster.

    The part is by the number of jobs present on average during its life.
    """
    presence = Presence(list(state.jobs.values()))
    gpu_total = state.cluster.gpu_total
    found = {}
    for job in state.jobs.values():
        if job.finish_s is not None and job.gpus and job.work_s > 0:
            present = presence.average(job.submit_s, job.finish_s)
            alone_s = job.work_s * job.gpus / min(gpu_total / present, job.gpus)
            found[job.id] = (job.finish_s - job.submit_s) / alone_s
    return found


class Presence:
    """The number of jobs in the system, as an integral over time that can be evaluated for any interval."""

    def __init__(self, jobs: list[Job]) -> None:
        changes = [(job.submit_s, 1) for job in jobs if job.state is not JobState.UNRUNNABLE]
        changes += [(job.finish_s, -1) for job in jobs if job.finish_s is not None]
        changes.sort()
        self.times = [at_s for at_s, _ in changes]
        self.counts = list(itertools.accumulate(change for _, change in changes))
        steps = zip(self.counts, itertools.pairwise(self.times), strict=False)
        self.integrals = [0.0, *itertools.accumulate(count * (end - start) for count, (start, end) in steps)]

    def average(self, start_s: float, end_s: float) -> float:
        if end_s <= start_s:
            return 1.0
        return max((self._until(end_s) - self._until(start_s)) / (end_s - start_s), 1.0)

    def _until(self, at_s: float) -> float:
        index = bisect.bisect_right(self.times, at_s) - 1
        return self.integrals[index] + self.counts[index] * (at_s - self.times[index])
