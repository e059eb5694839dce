"""Singularity's rules for tiers in random worlds: turns inside a tier, and promised jobs are hit last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from test_promises import promise_of, promised_worlds
from tests.support import World, cluster, job, trace
from tests.support.world import WorldCourse
from worlds import examples

from skep.core.events import Event
from skep.core.job import Job, JobState
from skep.core.share import Share
from skep.policies.tiers import TierPipeline

TURN_S = 900.0


@st.composite
def equal_jobs(draw: st.DrawFn) -> World:
    """Jobs of one size that all come at once and stay, on nodes of which each holds some of them."""
    gpus = draw(st.sampled_from([1, 2, 4]))
    jobs = [job(gpus, work=1e7) for _ in range(draw(st.integers(2, 12)))]
    where = f"{draw(st.integers(1, 3))}x4"
    restart_s = draw(st.sampled_from([0.0, 30.0]))
    return World(trace(*jobs), cluster(where), f"singularity:turn={TURN_S:g}", restart_s=restart_s)


@examples(25)
@given(world=equal_jobs(), hours=st.integers(1, 24))
def test_the_service_of_equal_jobs_differs_by_a_turn_at_most(world: World, hours: int) -> None:
    course = world.begin()
    while course.state.now_s < hours * 3600.0 and course.advance():
        now_s = course.state.now_s
        had = [each.service_at(now_s) / each.gpus for each in course.state.jobs.values()]
        if len(had) == len(world.trace.jobs):
            assert max(had) - min(had) <= TURN_S + 1e-3


class Watch:
    """Looks at every stop of a promised job: no job without a promise may run on where it would have helped."""

    def __init__(self, course: WorldCourse) -> None:
        self.course = course
        self.stops = 0
        self.before: dict[str, float] = {}
        """The jobs without a promise that ran before the step, with their GPUs."""

    def __call__(self, at_s: float, events: list[Event]) -> None:
        state, planner = self.course.state, self.course.scheduler.planner
        assert isinstance(planner, TierPipeline)
        for plan in self.course.scheduler.plans:
            for decision in plan.decisions:
                stopped = state.jobs[decision.job_id]
                if decision.after is None and stopped.state is JobState.STOPPING and promise_of(stopped):
                    self.stops += 1
                    self._check(planner, stopped, state.jobs[decision.cause])
        self.before = {each.id: each.held_gpus for each in state.jobs.values() if self._may_leave(each)}

    def _may_leave(self, each: Job) -> bool:
        is_fixed = not each.spec.preemptible or each.rank < 0
        return each.state is JobState.RUNNING and not promise_of(each) and not is_fixed and each.held == each.bound

    def _check(self, planner: TierPipeline, stopped: Job, cause: Job) -> None:
        state = self.course.state
        if not planner.promises.can_afford_a_start(stopped, state.now_s):
            return  # it would not survive another start: it waits for its home
        wanted = stopped if promise_of(cause) else cause
        on_node: dict[int, int] = {}
        for name in self.before:
            each = state.jobs[name]
            if each.state is JobState.RUNNING and each.allocation is not None and each.rank >= cause.rank:
                for piece in each.allocation.slices:
                    on_node[piece.node] = on_node.get(piece.node, 0) + piece.gpus.bit_count()
        assert max(on_node.values(), default=0) < wanted.gpu_count, (state.now_s, stopped, cause, on_node)


@examples(120)
@given(world=promised_worlds())
def test_no_promised_job_is_stopped_while_others_hold_gpus_that_would_serve(world: World) -> None:
    course = world.begin()
    course.finish(Watch(course), batches_max=200_000)


def test_promised_jobs_are_stopped_at_all() -> None:
    """Where nobody else could give way; otherwise the property above would say nothing."""
    jobs = [job(4, work=1e4, share=Share(tier="standard")), job(4, work=1e4)]
    course = World(trace(*jobs), cluster("1x4"), "singularity:restart=0").begin()
    watch = Watch(course)
    course.finish(watch)
    assert watch.stops
