"""What keeps a job out of the queue, and what it lacks there, in one answer."""

from __future__ import annotations

import pytest
from tests.support import World, cluster, job, trace
from tests.support.world import WorldCourse

from skep.core.events import Event, JobHeld, JobSubmitted
from skep.core.refusal import Cause, End, Refusal, Release, Succeed, Wait
from skep.core.why import why
from skep.traces.trace import TraceJob


def course_of(*jobs: TraceJob, script: tuple[tuple[float, Event], ...] = ()) -> WorldCourse:
    """Up to 1 s, on two GPUs."""
    last = job(0, at=1.0, id="last", work=1.0)
    course = World(trace(*jobs, last), cluster("1x2"), "fifo", script=script).begin()
    while course.state.now_s < 1.0:
        course.advance()
    return course


def why_of(course: WorldCourse, name: str, limit: Refusal | None = None) -> Refusal:
    return why(course.state, course.scheduler.planner, course.state.jobs[name], limit)


HELD = ((0.5, JobSubmitted(job(1, id="b").spec, "by ann")),)


def test_a_hold_alone() -> None:
    found = why_of(course_of(job(1, id="a", work=99.0), script=HELD), "b")
    assert (found.code, found.cause, found.reason) == ("held", Cause.CONSTRAINT, "held: by ann")
    assert (found.remedy, found.changes) == ("`skep release b`", (Release("b"),))


def test_a_hold_and_what_it_lacks_in_the_queue() -> None:
    found = why_of(course_of(job(2, id="a", work=99.0), script=HELD), "b")
    assert found.code == "held"
    assert found.reason == "held: by ann; asks for 1 GPU, 0 are free; job a holds what it needs"
    assert found.changes == (Release("b"), End(("a",)))
    assert found.remedy == "`skep release b`, and job a ending"


def test_a_limit_takes_the_place_of_the_hold() -> None:
    limit = Refusal("limit", Cause.QUOTA, "ann has 4 of 4 CPUs", "", (End(("7",)),))
    found = why_of(course_of(job(1, id="a"), script=HELD), "b", limit)
    assert (found.code, found.reason, found.remedy) == ("limit", "ann has 4 of 4 CPUs", "job 7 ending")


def test_a_back_off_says_how_long() -> None:
    held = (*HELD, (0.6, JobHeld("b", "back-off of 30 s", 31.0)))
    found = why_of(course_of(job(1, id="a"), script=held), "b")
    assert (found.code, found.reason) == ("back-off", "held: back-off of 30 s, 30 s left")
    assert found.changes == (Wait(31.0),)


@pytest.mark.parametrize("gpus", [1, 2])
def test_what_a_needed_job_holds_is_free_by_then(gpus: int) -> None:
    found = why_of(course_of(job(1, id="a", work=99.0), job(gpus, id="b", at=0.5, needs=("a",))), "b")
    assert (found.code, found.reason) == ("needs", "waits for job a")
    assert found.changes == (Succeed(("a",)),)
