"""Rounds that begin when the one before ends, which is as soon as all of its jobs have ended."""

from __future__ import annotations

from tests.support import World, cluster, job, trace
from tests.support.solving import Solving
from tests.support.world import WorldCourse

from skep.core.state import State
from skep.core.step import Scheduler
from skep.core.view import JobView


class Drifting(Solving):
    """Asks at the beginning of a round, and gets the answer in it."""

    name, round_s, drifts = "drifting", 100.0, True
    declared = frozenset()

    def why_never(self, view: object, job: JobView) -> str:
        return ""


def starts(*arrivals: tuple[float, float], gpus: int = 1) -> list[float | None]:
    world = World(trace(*(job(1, work=work_s, at=at_s) for at_s, work_s in arrivals)), cluster(f"1x{gpus}"), "fifo")
    state = State(world.cluster.blank())
    course = WorldCourse(Scheduler(state, Drifting()), world.engine(state.cluster))
    course.finish(world.checker(state))
    return [each.start_s for each in state.jobs.values()]


def test_the_first_round_begins_with_the_first_job_and_the_next_after_it() -> None:
    assert starts((30.0, 250.0), (40.0, 10.0), gpus=2) == [30.0, 130.0]


def test_a_round_ends_early_when_all_of_its_jobs_have_ended() -> None:
    assert starts((0.0, 70.0), (10.0, 20.0), (75.0, 5.0)) == [0.0, 70.0, 90.0]


def test_a_job_that_ends_early_leaves_its_gpus_idle_while_others_run() -> None:
    assert starts((0.0, 500.0), (0.0, 50.0), (10.0, 5.0), gpus=2) == [0.0, 0.0, 100.0]
