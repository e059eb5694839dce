"""Gandiva_fair: stride scheduling of gangs, users, trades, migration."""

from __future__ import annotations

import pytest
from tests.support import World, cluster, job, trace
from tests.support.world import WorldCourse

from skep.core.errors import InputError
from skep.core.weights import read_weights
from skep.experiments.simulate import Experiment, Options
from skep.policies.registry import Setting, build_planner
from skep.traces.trace import TraceJob


def run_until(course: WorldCourse, at_s: float) -> None:
    while course.state.now_s < at_s and course.advance():
        pass


def service(policy: str, where: str, at_s: float, *jobs: TraceJob) -> dict[str, float]:
    """GPU-seconds of each user at that time; a job that ends then is added."""
    course = World(trace(*jobs, job(0, work=1.0, at=at_s, cpu=0.001, user="tick")), cluster(where), policy).begin()
    run_until(course, at_s)
    found: dict[str, float] = {}
    for each in course.state.jobs.values():
        found[each.spec.user] = found.get(each.spec.user, 0.0) + each.service_at(at_s)
    return found


ENDLESS = 1e7


def test_eight_jobs_and_a_gang_of_eight_have_the_same_time() -> None:
    """1,000 quanta of 60 s: 4,000 GPU quanta for each user."""
    jobs = [job(1, work=ENDLESS, user="A") for _ in range(8)] + [job(8, work=ENDLESS, user="B")]
    found = service("gandiva-fair", "1x8", 60_000.0, *jobs)
    assert (found["A"] / 60, found["B"] / 60) == (4000, 4000)


def test_users_with_many_jobs_have_no_more() -> None:
    jobs = [job(1, work=ENDLESS, user="A") for _ in range(6)] + [job(1, work=ENDLESS, user="B") for _ in range(2)]
    found = service("gandiva-fair", "1x4", 60_000.0, *jobs)
    assert found["A"] == pytest.approx(found["B"], rel=0.02)
    assert found["A"] + found["B"] == 4 * 60_000


def test_what_one_user_leaves_goes_to_the_others() -> None:
    jobs = [job(1, work=ENDLESS, user="A") for _ in range(4)] + [job(1, work=120, user="B")]
    found = service("gandiva-fair", "1x4", 6000.0, *jobs)
    assert found == {"A": 4 * 6000 - 120, "B": 120, "tick": 0}


def test_jobs_are_suspended_and_not_restarted() -> None:
    course = World(trace(job(1, work=300), job(1, work=300)), cluster("1x1"), "gandiva-fair", restart_s=30.0).run()
    assert [(row.finish_s, row.preemptions) for row in course.rows()] == [(540, 0), (600, 0)]


def test_a_job_moves_to_gpus_that_are_idle() -> None:
    """Two share a GPU of the first node when the job on the second node ends."""
    jobs = [job(1, work=2000), job(1, work=1000), job(1, work=2000)]
    course = World(trace(*jobs), cluster("2x1"), "gandiva-fair:cool_down=0").run()
    rows = course.rows()
    assert sum(row.preemptions for row in rows) >= 1
    assert max(row.finish_s or 0 for row in rows) < 3000


def test_a_higher_priority_goes_first_in_the_next_quantum() -> None:
    course = World(trace(job(1, work=200), job(1, work=100, at=10, priority=1)), cluster("1x1"), "gandiva-fair").run()
    assert [row.finish_s for row in course.rows()] == [300, 160]


def test_a_user_with_three_times_the_weight_has_three_times_the_time() -> None:
    jobs = [job(1, work=30_000.0, user=user) for user in "AB"]
    options = Options(restart_s=0.0, weights=read_weights("users.B=3"))
    run = Experiment(trace(*jobs), cluster("1x1"), options).run("gandiva-fair")
    assert [row.finish_s for row in run.rows] == [60_000, pytest.approx(40_000, abs=120)]


@pytest.mark.parametrize("knob", ["quantum=0"])
def test_knobs_that_make_no_sense_are_refused(knob: str) -> None:
    with pytest.raises(InputError, match="quantum=0: expected at least 1"):
        build_planner(f"gandiva-fair:{knob}", Setting(cluster("1x1")))
