"""Themis: leases, auctions, apps."""

from __future__ import annotations

import pytest
from tests.support import World, cluster, job, trace

from skep.core.errors import InputError
from skep.core.model import GroupRef
from skep.policies.registry import Setting, build_planner
from skep.policies.themis import sizes
from skep.traces.trace import TraceJob


def ends(policy: str, where: str, *jobs: TraceJob) -> list[float | None]:
    return [row.finish_s for row in World(trace(*jobs), cluster(where), policy).run().rows()]


def test_a_lease_goes_on_if_nobody_wants_the_gpus() -> None:
    course = World(trace(job(1, work=1000)), cluster("1x1"), "themis:lease=100").run()
    assert [(row.finish_s, row.preemptions) for row in course.rows()] == [(1000, 0)]


def test_nothing_is_taken_before_its_lease_ends() -> None:
    assert ends("themis:lease=100", "1x1", job(1, work=150), job(1, work=10, at=20)) == [160, 110]


def test_gpus_that_no_bidder_uses_go_to_the_others() -> None:
    jobs = [job(1, work=100) for _ in range(10)]
    assert ends("themis", "1x10", *jobs) == [100] * 10


def test_winners_pay_with_a_part_of_their_lease() -> None:
    """Both bid for both GPUs: with payments, the first lease is over before its full time."""
    group = [GroupRef(name, index=at) for name in "xy" for at in range(2)]
    jobs = [job(1, work=1000, group=each) for each in group]
    course = World(trace(*jobs), cluster("1x2"), "themis:lease=100,left_out=0").begin()
    course.advance()
    leases = [course.state.memory.jobs[each].get("themis lease") for each in course.running()]
    assert leases
    assert all(0 < each < 100 for each in leases)


def test_a_gang_bids_for_all_of_its_gpus() -> None:
    assert ends("themis:lease=50", "1x4", job(4, work=100), job(3, work=40, at=10)) == [140, 90]


def test_the_auction_knows_which_type_an_app_can_use() -> None:
    jobs = job(1, work=50, gpu_type="k80"), job(1, work=50, gpu_type="v100")
    assert ends("themis", "1x1:k80+1x1:v100", *jobs) == [50, 50]


def test_a_higher_priority_does_not_wait_for_a_lease() -> None:
    assert ends("themis", "1x1", job(1, work=100), job(1, work=50, at=10, priority=1)) == [150, 60]


def test_numbers_of_jobs_that_an_app_bids_for() -> None:
    assert sizes(0) == []
    assert sizes(1) == [1]
    assert sizes(5) == [1, 2, 4, 5]


def test_a_lower_priority_gets_nothing_of_a_higher_one_whose_lease_is_over() -> None:
    jobs = trace(job(1, work=300, priority=1), job(1, work=50, at=10))
    course = World(jobs, cluster("1x1"), "themis:lease=100").run()
    assert [(row.finish_s, row.preemptions) for row in course.rows()] == [(300, 0), (350, 0)]


@pytest.mark.parametrize("knob", ["lease=0", "left_out=2"])
def test_knobs_that_make_no_sense_are_refused(knob: str) -> None:
    with pytest.raises(InputError, match=r"(lease|left_out)="):
        build_planner(f"themis:{knob}", Setting(cluster("1x1")))
