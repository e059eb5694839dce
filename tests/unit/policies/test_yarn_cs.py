"""Capacity queues worked out by hand: who goes first, who gives GPUs back, and what a VC is said to use."""

from __future__ import annotations

import itertools

import pytest
from tests.support import World, cluster, job, role, trace

from skep.core.job import Job
from skep.core.state import State
from skep.policies.order.shares import EQUAL, USAGE, CapacityQueues
from skep.verify.play import play_jobs


def test_the_vc_that_uses_least_of_its_quota_goes_first() -> None:
    jobs = [job(1, work=100, id=f"a{n}", vc="a") for n in range(4)]
    jobs += [job(1, work=10, id=f"b{n}", vc="b", at=1) for n in range(2)]
    rows = {row.job_id: row for row in play_jobs("yarn-cs:take_back=2", "1x2", jobs).rows}
    # At 100 both GPUs are free: one for b, which has none, then one for a, whose next job came first.
    assert [rows[name].start_s for name in ("a0", "a1", "b0", "a2", "b1", "a3")] == [0, 0, 100, 100, 110, 120]


@pytest.mark.parametrize(("take_back", "start_s", "preempted"), [("0.9", 5, "a1"), ("2", 100, None)])
def test_a_vc_below_its_quota_takes_back_from_the_newest(take_back: str, start_s: float, preempted: str | None) -> None:
    jobs = [job(1, work=100, id="a0", vc="a"), job(1, work=100, id="a1", vc="a", at=1), job(1, at=5, id="b", vc="b")]
    run = play_jobs(f"yarn-cs:take_back={take_back}", "1x2", jobs)
    rows = {row.job_id: row for row in run.rows}
    assert rows["b"].start_s == start_s
    assert [row.job_id for row in run.rows if row.preemptions] == ([preempted] if preempted else [])


def test_quotas_by_use_look_at_the_past() -> None:
    """Nothing has run before, so both VCs start with equal quotas, whatever the jobs will turn out to need."""
    state = State(cluster("1x8"))
    order = CapacityQueues(USAGE, ("a", "b"))
    order.attach(state)
    assert order.quotas == {"a": 4.0, "b": 4.0}
    state.knowledge.note_use("a", 300.0)
    assert order.quotas == {"a": 4.0, "b": 4.0}  # b is new and counts as an average one
    state.knowledge.note_use("b", 100.0)
    assert order.quotas == {"a": 6.0, "b": 2.0}


def test_what_a_vc_uses_does_not_depend_on_the_order_in_which_jobs_came_and_went() -> None:
    """Otherwise a fork, which counts anew, could decide differently."""
    parts = [role(2, gpus=1, gpu_milli=333, cpu=0.1), role(1, gpus=1, gpu_milli=500), role(1, gpus=1, memory_gib=0.3)]
    jobs = [Job(job(roles=(part,), id=f"{n}", vc="a").spec, n, 0.0) for n, part in enumerate(parts)]
    state = State(cluster("1x8"))
    for order_of_exits in itertools.permutations(jobs):
        order = CapacityQueues(EQUAL, ("a",))
        order.attach(state)
        for each in jobs:
            order._count(each, +1)
        for each in order_of_exits[:-1]:
            order._count(each, -1)
        assert order.used_by("a") == order_of_exits[-1].gpus


def test_gpus_are_taken_back_from_a_job_of_the_same_instant() -> None:
    """At 10, 3 of 4 GPUs are in use: nothing is taken back for d. Then c takes the last one, so that all are busy."""
    rows = [
        job(2, at=0, work=1000, vc="x"),
        job(1, at=0, work=1000, vc="x"),
        job(1, at=10, work=1000, vc="x"),
        job(2, at=10, work=50, vc="y"),
    ]
    run = World(trace(*rows), cluster("1x4"), "yarn-cs", restart_s=0.0).run().rows()
    assert [row.start_s for row in run] == [0, 0, 10, 10]
    assert [row.preemptions for row in run] == [0, 1, 1, 0]
