"""Rising keys kept in one list per speed give what sorting and scanning all running jobs would."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.core.cluster import Allocation
from skep.core.job import Job, JobState
from skep.policies.lines import Entry
from skep.policies.order.simple import LeastAttained
from skep.policies.running import GRID, Running
from skep.testing import job

# Thirds and a coarse grid: many keys are equal, or equal but for rounding.
amounts = st.integers(0, 40).map(lambda number: number * 100 / 3)


@st.composite
def running_jobs(draw: st.DrawFn) -> list[Job]:
    found = []
    for seq in range(draw(st.integers(1, 25))):
        gpus = draw(st.sampled_from([0, 1, 2, 8]))
        each = Job(job(max(gpus, 1), id=f"job-{seq}").spec, seq, 0.0)
        each.rank = draw(st.sampled_from([0, 0, 0, -1, 1]))
        each.allocation = Allocation((), gpus)
        each.service_gpu_s, each.run_s, each.held_since_s = draw(amounts), draw(amounts), draw(amounts)
        each.state = draw(st.sampled_from([JobState.RUNNING, JobState.RUNNING, JobState.LAUNCHING]))
        each.held_gpus = gpus if each.state is JobState.RUNNING else 0
        found.append(each)
    return found


def scanned(order: LeastAttained, there: list[Job], head: Entry, missing: int, now_s: float) -> float:
    """When the running jobs that have passed the pending one hold enough, by looking at each of them."""
    cutoff = order.cutoff(head[3], head[1])
    passing = []
    for each in there:
        has_run = each.state is JobState.RUNNING
        if each.rank > 0 or (each.rank == 0 and has_run and (0, order.running_key(each, now_s), each.seq) > cutoff):
            missing -= each.gpu_count if has_run else 0
        elif each.rank == 0:
            passing.append((order.reaches(each, head[1], now_s), each.gpu_count))
    for at_s, gpus in sorted(passing):
        missing -= gpus
        if missing <= 0 and at_s < math.inf:
            return max(round(at_s * GRID), math.floor(now_s * GRID) + 1) / GRID
    return math.inf


@settings(max_examples=300, deadline=None)
@given(
    jobs=running_jobs(),
    leaving=st.sets(st.integers(0, 24)),
    by_size=st.booleans(),
    lead=st.sampled_from([0.0, 100 / 3, 1e7]),
    key=amounts,
    missing=st.integers(-1, 20),
    wait_s=amounts,
)
def test_lists_by_speed_answer_like_a_sort_and_a_scan(
    jobs: list[Job], leaving: set[int], by_size: bool, lead: float, key: float, missing: int, wait_s: float
) -> None:
    head = (0, key, 12, Job(job(id="head").spec, 12, 0.0))
    order = LeastAttained(by_size=by_size, lead=lead)
    running = Running()
    now_s = 4000 / 3
    for each in jobs:
        running.add((each.rank, order.key(each, now_s), each.seq, each))
    for moment_s in (now_s, now_s + wait_s):
        there = [entry[3] for entry in running.entries]
        keyed = [(each.rank, order.running_key(each, moment_s), each.seq, each) for each in there]
        is_running = [entry for entry in sorted(keyed, reverse=True) if entry[3].state is JobState.RUNNING]
        assert list(running.latest(order, (0,), moment_s)) == is_running
        assert running.next_crossing(order, [(head, missing)], moment_s) == scanned(
            order, there, head, missing, moment_s
        )
        for each in there:
            if each.seq in leaving:
                running.remove(each)
