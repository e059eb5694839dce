"""Fabricated runs for the tests of the report: plausible, seeded, as large as asked for."""

from __future__ import annotations

import heapq
from random import Random

from skep.metrics.run import JobRow, Run, RunHistory, Span, Summary


def make_row(job_id: str = "job-1", **changes: object) -> JobRow:
    """A finished job of one gpu that waited a minute and ran for an hour."""
    values: dict = {
        "job_id": job_id,
        "vc": "default",
        "gpus": 1.0,
        "submit_s": 0.0,
        "start_s": 60.0,
        "finish_s": 3660.0,
        "jct_s": 3660.0,
        "queue_s": 60.0,
        "queue_quota_s": 0.0,
        "queue_fragmentation_s": 0.0,
        "run_s": 3600.0,
        "service_gpu_s": 3600.0,
        "preemptions": 0,
        "migrations": 0,
        "resizes": 0,
        "state": "succeeded",
    }
    return JobRow(**(values | changes))


def waiting_row(job_id: str, state: str = "pending") -> JobRow:
    """A job that never got anything."""
    nothing = dict.fromkeys(("start_s", "finish_s", "jct_s", "queue_s"))
    return make_row(job_id, **nothing, run_s=0.0, service_gpu_s=0.0, state=state)


def make_run(rows: list[JobRow], *, policy: str = "fifo", node_gpus: list[int] | None = None, **changes: object) -> Run:
    """A run with the summary that these rows have."""
    nodes = [8] if node_gpus is None else node_gpus
    summary = summarize(rows, policy=policy, gpu_total=sum(nodes))
    fields = {key: changes.pop(key) for key in list(changes) if hasattr(summary, key) and key != "unrunnable"}
    for key, value in fields.items():
        setattr(summary, key, value)
    names = [f"node-{index}" for index in range(len(nodes))]
    return Run(summary=summary, rows=rows, gpu_total=sum(nodes), node_names=names, node_gpus=nodes, **changes)


def summarize(rows: list[JobRow], *, policy: str, gpu_total: int) -> Summary:
    jcts = sorted(row.jct_s for row in rows if row.jct_s is not None)
    queues = sorted(row.queue_s for row in rows if row.queue_s is not None)
    unrunnable = sum(row.state == "unrunnable" for row in rows)
    makespan_s = max((row.finish_s for row in rows if row.finish_s is not None), default=None)
    service_gpu_s = sum(row.service_gpu_s for row in rows)
    share = service_gpu_s / (gpu_total * makespan_s) if makespan_s and gpu_total else None
    return Summary(
        policy=policy,
        cluster="1x8",
        trace="philly.csv",
        seed=0,
        jobs=len(rows),
        finished=len(jcts),
        unfinished=len(rows) - len(jcts) - unrunnable,
        unrunnable=unrunnable,
        makespan_s=makespan_s,
        jct_avg_s=sum(jcts) / len(jcts) if jcts else None,
        jct_p50_s=_quantile(jcts, 0.5),
        jct_p90_s=_quantile(jcts, 0.9),
        jct_p95_s=_quantile(jcts, 0.95),
        jct_p99_s=_quantile(jcts, 0.99),
        queue_avg_s=sum(queues) / len(queues) if queues else None,
        queue_p50_s=_quantile(queues, 0.5),
        queue_p90_s=_quantile(queues, 0.9),
        queue_p95_s=_quantile(queues, 0.95),
        queue_p99_s=_quantile(queues, 0.99),
        first_wait_p90_s=60.0 if jcts else None,
        first_wait_avg_s=30.0 if jcts else None,
        slowdown_avg=1.5 if jcts else None,
        utilization=share,
        busy=share and share * 0.99,
        fre=share and share * 0.98,
        preemptions=sum(row.preemptions for row in rows),
        migrations=0,
        resizes=0,
        ftf_max=12.3 if jcts else None,
        ftf_avg=1.4 if jcts else None,
        jain=0.8 if jcts else None,
        deadline_misses=0,
        fragmented_gpus=1.5 if jcts else None,
        idle_gpus=2.0 if jcts else None,
        fragment_gpus=0.5 if jcts else None,
        arrival_utilization=share,
        events=3 * len(rows),
        decisions=2 * len(rows),
        wall_s=1.0,
        events_per_s=3.0 * len(rows),
        decision_avg_ms=0.1,
        decision_p99_ms=0.5,
    )


def _quantile(ordered: list[float], share: float) -> float | None:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None


def fabricate(
    policy: str,
    *,
    jobs: int,
    nodes: int = 40,
    load: float = 0.92,
    rank: str = "submit",
    vcs: int = 8,
    seed: int = 1,
) -> Run:
    """A run of a small real schedule: gangs on nodes of 8 gpus, day and night, long-tailed durations.

    `rank` says who goes first among those waiting: `submit`, `work` or `gpus`; whoever fits starts.
    """
    chance = Random(seed)
    drawn = [_draw(chance, index, vcs) for index in range(jobs)]
    work = sum(duration * gpus for _, duration, gpus, _ in drawn)
    length_s = work / (nodes * 8 * load)
    submits = sorted(_daytime(chance, length_s) for _ in range(jobs))
    drawn = [(submit, duration, gpus, vc) for submit, (_, duration, gpus, vc) in zip(submits, drawn, strict=True)]
    return _schedule(policy, drawn, nodes=nodes, rank=rank, length_s=length_s)


def _draw(chance: Random, index: int, vcs: int) -> tuple[float, float, int, str]:
    gpus = chance.choices((1, 2, 4, 8, 16, 32), (60, 12, 12, 12, 3, 1))[0]
    duration = min(max(chance.lognormvariate(6.9, 1.9), 5.0), 3 * 86400.0)
    vc = f"vc-{min(int(chance.expovariate(0.35)), vcs - 1):02d}"
    return 0.0, duration, gpus, vc


def _daytime(chance: Random, length_s: float) -> float:
    while True:
        at_s = chance.uniform(0.0, length_s)
        hour = at_s / 3600 % 24
        if chance.random() < (1.0 if 9 <= hour < 19 else 0.35):
            return at_s


def _schedule(policy: str, drawn: list, *, nodes: int, rank: str, length_s: float) -> Run:
    keys = {
        "submit": lambda job: job,
        "work": lambda job: drawn[job][1] * drawn[job][2],
        "gpus": lambda job: (drawn[job][2], job),
    }
    key = keys[rank]
    free = [0xFF] * nodes
    history = RunHistory()
    pending: list = []
    ends: list = []
    rows: list[JobRow | None] = [None] * len(drawn)
    busy = submitted = 0
    while submitted < len(drawn) or ends:
        due_s = ends[0][0] if ends else float("inf")
        if submitted < len(drawn) and drawn[submitted][0] <= due_s:
            now_s = drawn[submitted][0]
            heapq.heappush(pending, (key(submitted), submitted))
            submitted += 1
        else:
            now_s, job, parts = heapq.heappop(ends)
            for node, mask in parts:
                free[node] |= mask
            busy -= drawn[job][2]
        busy += _start(now_s, drawn, pending, free, ends, rows, history, walk=1 if rank == "submit" else 12)
        history.at_s.append(now_s)
        history.pending_jobs.append(len(pending))
        history.busy_gpus.append(float(busy))
    run = make_run([row for row in rows if row], policy=policy, node_gpus=[8] * nodes, history=history)
    run.summary.cluster = f"{nodes}x8:v100"
    return run


def _start(
    now_s: float, drawn: list, pending: list, free: list, ends: list, rows: list, history: RunHistory, walk: int
) -> int:
    started, passed = 0, []
    for _ in range(walk):
        while pending:
            job = pending[0][1]
            parts = _fit(drawn[job][2], free)
            if parts is None:
                break
            heapq.heappop(pending)
            started += _launch(now_s, job, parts, drawn, free, ends, rows, history)
        if pending:
            passed.append(heapq.heappop(pending))
    for entry in passed:
        heapq.heappush(pending, entry)
    return started


def _launch(
    now_s: float, job: int, parts: list, drawn: list, free: list, ends: list, rows: list, history: RunHistory
) -> int:
    submit_s, duration, gpus, vc = drawn[job]
    end_s = now_s + duration
    for node, mask in parts:
        free[node] &= ~mask
        history.spans.append(Span(job=job, node=node, gpus=mask, start_s=now_s, end_s=end_s))
    heapq.heappush(ends, (end_s, job, parts))
    wait_s = now_s - submit_s
    rows[job] = make_row(
        f"application_{job:06d}",
        vc=vc,
        gpus=float(gpus),
        submit_s=submit_s,
        start_s=now_s,
        finish_s=end_s,
        jct_s=end_s - submit_s,
        queue_s=wait_s,
        queue_quota_s=wait_s * 0.2 * (job % 3),
        queue_fragmentation_s=wait_s * 0.1 * (gpus > 4),
        run_s=duration,
        service_gpu_s=duration * gpus,
        preemptions=job % 7 == 0,
    )
    return gpus


def _fit(gpus: int, free: list[int]) -> list[tuple[int, int]] | None:
    """Fullest node that has room; larger gangs take idle nodes."""
    if gpus > 8:
        idle = [node for node, mask in enumerate(free) if mask == 0xFF][: gpus // 8]
        return [(node, 0xFF) for node in idle] if len(idle) == gpus // 8 else None
    fits = [(mask.bit_count(), node) for node, mask in enumerate(free) if mask.bit_count() >= gpus]
    if not fits:
        return None
    node = min(fits)[1]
    mask, rest = 0, free[node]
    for _ in range(gpus):
        bit = rest & -rest
        mask, rest = mask | bit, rest & ~bit
    return [(node, mask)]
