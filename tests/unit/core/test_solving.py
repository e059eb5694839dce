"""Questions of planners and their answers: at once, late, missing, stale."""

from __future__ import annotations

from tests.support import World, cluster, job, trace
from tests.support.solving import SOLVING, Late

from skep.core.events import Solved
from skep.core.solving import solver_status


def test_a_late_answer_decides_when_it_comes() -> None:
    world = World(trace(job(1, work=100.0), job(1, work=100.0, at=10.0)), cluster("1x1"), SOLVING)
    course = Late(world, 30.0)
    course.finish()
    assert [each.start_s for each in course.state.jobs.values()] == [30.0, 130.0]


def test_without_an_answer_the_last_one_stays_in_force() -> None:
    jobs = [job(1, work=100.0, at=at) for at in (0.0, 0.0, 0.0, 50.0)]
    course = World(trace(*jobs), cluster("1x1"), f"{SOLVING}:fails_every=3").begin()
    course.advance()
    (status,) = solver_status(course.state.memory)
    assert (status.answered_s, status.error, status.failures) == (None, "no order for 3 jobs", 1)
    reason = course.scheduler.planner.explain(course.state, course.state.memory, None).reason
    assert reason == "there is no answer of the solver yet; the last failed: no order for 3 jobs"
    course.advance()  # a fourth job: four have an order, so the last one runs
    assert course.running() == {"j3"}
    (status,) = solver_status(course.state.memory)
    assert (status.answered_s, status.error) == (50.0, "")
    course.advance()  # it ends; three are left, for which there is no answer
    (status,) = solver_status(course.state.memory)
    assert (status.answered_s, status.failures) == (50.0, 1)
    assert course.running() == {"j2"}, "the answer for four jobs is still in force"


def test_a_bug_of_a_solver_is_no_answer_and_stops_nothing() -> None:
    course = World(trace(job(1)), cluster("1x1"), f"{SOLVING}:fails_every=-1").begin()
    course.advance()
    (status,) = solver_status(course.state.memory)
    assert (status.answered_s, status.failures) == (None, 1)
    assert status.error == "the solver failed: ZeroDivisionError: a bug of the solver"


def test_an_answer_nobody_waits_for_changes_nothing() -> None:
    course = World(trace(job(1)), cluster("1x1"), SOLVING).begin()
    course.advance()
    before = solver_status(course.state.memory)
    course.state.advance(1.0, [Solved(999, answer=b"")])
    assert solver_status(course.state.memory) == before
    assert not course.state.is_woken
