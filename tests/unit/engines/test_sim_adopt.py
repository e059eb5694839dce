"""A simulator that goes on from a state: what was running, told, saved and suspended by then."""

from __future__ import annotations

import math

import pytest
from tests.support import check, cluster, job, node, take_trigger, trace
from tests.support.world import WorldCourse

from skep.core.actions import Resume
from skep.core.cluster import Allocation, Slice
from skep.core.errors import InvariantBroken
from skep.core.events import (
    ClockStepped,
    Event,
    Exit,
    JobSubmitted,
    NodeLost,
    TasksExited,
    TasksMoved,
    TasksResumed,
    TasksStarted,
    TasksSuspended,
)
from skep.core.job import JobState
from skep.core.snapshot import dump, load
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.engine import Simulator
from skep.engines.sim.outages import Outages
from skep.experiments.simulate import Experiment
from skep.policies.idle import Idle
from skep.profiles.native import read_native
from skep.service.loop import run
from skep.traces.trace import TraceJob


def gpus(number: int, mask: int) -> Allocation:
    return Allocation((Slice(number, mask, tasks=mask.bit_count()),), mask.bit_count())


class Live:
    """A state as a server has it: time passes, engines answer when the test says so, nothing is known of work."""

    def __init__(self, *jobs: TraceJob, on: str = "2x2") -> None:
        self.state = State(cluster(on))
        self.tell(*(JobSubmitted(entry.spec) for entry in jobs))

    def at(self, now_s: float) -> Live:
        self.state.now_s = now_s
        return self

    def tell(self, *events: Event) -> Live:
        self.state.advance(self.state.now_s, list(events))
        take_trigger(self.state)
        return self

    def decide(self, step: str, job_id: str, *more: object) -> Live:
        plan = self.state.new_plan()
        getattr(plan, step)(self.state.jobs[job_id], *more)
        self.state.commit(plan)
        self.state.send()
        return self

    def runs(self, job_id: str, where: Allocation) -> Live:
        return self.decide("start", job_id, where).tell(TasksStarted(job_id, 1.0, self.state.now_s))

    def adopt(self, estimates: dict[str, float], policy: str = "fifo", **options: object) -> State:
        """To the end, from what is written down of it."""
        state = load(dump(self.state), self.state.cluster.blank())
        engine = Simulator.adopt(state, estimates, **options)  # type: ignore[arg-type]
        planner = Experiment(trace(), state.cluster).planner(policy)
        run(Scheduler(state, planner), engine, lambda at_s, events: check(state))
        return state


def ends(state: State) -> dict[str, float | None]:
    return {each.id: each.finish_s for each in state.jobs.values()}


def test_a_running_job_does_what_is_left_and_the_next_one_starts_then() -> None:
    live = Live(job(2, id="a"), job(2, id="b"), on="1x2").at(10.0).runs("a", gpus(0, 0b11)).at(50.0)
    state = live.adopt({"a": 100.0, "b": 20.0})
    assert ends(state) == {"a": 110.0, "b": 130.0}
    assert state.jobs["b"].start_s == 110.0


def test_a_job_that_has_done_more_than_was_expected_ends_at_once() -> None:
    live = Live(job(id="a"), on="1x1").runs("a", gpus(0, 1)).at(50.0)
    assert ends(live.adopt({"a": 20.0})) == {"a": 50.0}


def test_a_job_without_an_estimate_keeps_what_it_has() -> None:
    live = Live(job(id="a"), job(id="b"), job(id="c"), on="1x2").runs("a", gpus(0, 1)).runs("b", gpus(0, 2)).at(50.0)
    assert ends(live.adopt({"b": 60.0, "c": 10.0})) == {"a": None, "b": 60.0, "c": 70.0}


def test_arrivals_come_after_those_that_are_there() -> None:
    live = Live(job(id="a"), job(id="b"), on="1x1").runs("a", gpus(0, 1)).at(50.0)
    state = live.adopt({"a": 60.0, "b": 10.0}, arrivals=trace(job(id="c", at=55.0, work=5.0)).jobs)
    assert ends(state) == {"a": 60.0, "b": 70.0, "c": 75.0}
    assert state.jobs["c"].submit_s == 55.0


@pytest.mark.parametrize(
    "past", [{"arrivals": trace(job(at=49.0)).jobs}, {"outages": Outages([(49.0, 0, True)])}], ids=["job", "outage"]
)
def test_what_is_to_come_cannot_have_been(past: dict[str, object]) -> None:
    live = Live(job(id="a"), on="1x1").at(50.0)
    with pytest.raises(InvariantBroken, match=r"begin at 49\.0, before the time of the state, 50\.0"):
        live.adopt({}, **past)


def test_a_timer_that_is_late_is_due_now() -> None:
    live = Live(job(id="a", time_limit_s=30.0), on="1x1").runs("a", gpus(0, 1)).at(50.0)
    assert ends(live.adopt({"a": 100.0})) == {"a": 50.0}


# What was told and not answered ------------------------------------------------------------------------------------


def test_a_launch_under_way_is_done() -> None:
    live = Live(job(id="a"), on="1x1").decide("start", "a", gpus(0, 1)).at(50.0)
    state = live.adopt({"a": 100.0}, restart_s=30.0)
    assert (state.jobs["a"].start_s, state.jobs["a"].finish_s, state.jobs["a"].launches) == (50.0, 150.0, 1)


def test_a_move_under_way_costs_its_restart() -> None:
    live = Live(job(2, id="a")).runs("a", gpus(0, 0b11)).at(50.0).decide("move", "a", gpus(1, 0b11)).at(60.0)
    state = live.adopt({"a": 100.0}, restart_s=30.0)
    assert (state.jobs["a"].finish_s, state.jobs["a"].migrations) == (130.0, 1)


def test_a_stop_under_way_gives_the_place_to_who_waits_for_it() -> None:
    live = Live(job(id="a"), job(id="b", priority=1), on="1x1").runs("a", gpus(0, 1)).at(50.0)
    live.decide("stop", "a", "preempted").decide("start", "b", gpus(0, 1)).at(55.0)
    state = live.adopt({"a": 100.0, "b": 20.0}, restart_s=30.0)
    assert ends(state) == {"a": 55.0 + 20.0 + 30.0 + 45.0, "b": 75.0}
    assert state.jobs["a"].preemptions == 1


def test_a_resume_under_way_is_done() -> None:
    live = Live(job(id="a"), on="1x1").runs("a", gpus(0, 1)).at(50.0).decide("suspend", "a", "resident")
    live.tell(TasksSuspended("a", 50.0)).at(80.0).decide("resume", "a").at(90.0)
    assert ends(live.adopt({"a": 100.0})) == {"a": 140.0}


# Suspended jobs ----------------------------------------------------------------------------------------------------


def swapping() -> State:
    """A job of 20 GiB on its GPU, told at 50 to swap, which takes 2 s."""
    state = State(cluster([node(1, gpu_mem_gib=20, memory_gib=64)]))
    course = WorldCourse(Scheduler(state, Idle()), Simulator([job(id="a", gpu_mem_gib=20.0)], state.cluster))
    course.advance()
    for at_s, step in ((0.0, "start"), (50.0, "suspend")):
        state.now_s = at_s
        plan = state.new_plan()
        where = Allocation((Slice(0, 1, tasks=1, gpu_mem_mib=20 * 1024),), 1)
        getattr(plan, step)(state.jobs["a"], where if step == "start" else "swapped")
        state.commit(plan)
        state.advance(state.now_s, list(course.engine.execute(at_s, state.send())))
    return state


@pytest.mark.parametrize(("adopted_s", "seen_s"), [(51.0, 52.0), (60.0, 60.0)], ids=["half-way", "over by then"])
def test_memory_that_is_being_copied_is_there_when_it_would_have_been(adopted_s: float, seen_s: float) -> None:
    state = swapping()
    state.now_s = adopted_s
    batch = Simulator.adopt(state, {"a": 100.0}).observe(math.inf)
    assert batch is not None
    assert (batch.at_s, batch.events) == (seen_s, [TasksSuspended("a", 50.0, "swapped", saved_s=0.0)])


def test_a_job_that_is_to_go_on_while_its_memory_is_copied_stands_still_first() -> None:
    state = swapping()
    state.now_s = 51.0
    plan = state.new_plan()
    plan.resume(state.jobs["a"])
    state.commit(plan)
    assert state.send() == []
    batch = Simulator.adopt(state, {"a": 100.0}).observe(math.inf)
    assert batch is not None
    assert (batch.at_s, batch.events) == (52.0, [TasksSuspended("a", 50.0, "swapped", saved_s=0.0)])


def test_a_restart_that_a_copy_cut_short_goes_on_after_it() -> None:
    """It was to last until 60 when the job was told at 50 to swap; 2 s go by on either way."""
    state = swapping()
    state.jobs["a"].progress_since_s = 60.0
    state.now_s = 51.0
    engine = Simulator.adopt(state, {"a": 100.0})
    assert engine.observe(math.inf) is not None
    (resumed,) = engine.execute(70.0, [Resume("a")])
    assert isinstance(resumed, TasksResumed)
    assert resumed.progress_since_s == 70.0 + 2.0 + 10.0


def test_a_restart_that_a_suspension_cut_short_goes_on_with_what_was_left() -> None:
    live = Live(job(id="a"), on="1x1").decide("start", "a", gpus(0, 1)).tell(TasksStarted("a", 1.0, 30.0)).at(20.0)
    live.decide("suspend", "a", "resident").tell(TasksSuspended("a", 0.0)).at(80.0).decide("resume", "a").at(90.0)
    assert ends(live.adopt({"a": 100.0})) == {"a": 90.0 + 10.0 + 100.0}


# Checkpoints -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("checkpoint_s", "finish_s"), [(600.0, 170.0), (25.0, 120.0)])
def test_a_failure_later_on_loses_what_was_not_saved(checkpoint_s: float, finish_s: float) -> None:
    """It runs since 10; at 25 s each, the last checkpoint before 65 is that at 60."""
    live = Live(job(id="a"), on="1x1").at(10.0).runs("a", gpus(0, 1)).at(50.0)
    outages = Outages([(65.0, 0, True), (70.0, 0, False)])
    state = live.adopt({"a": 100.0}, outages=outages, checkpoint_s=checkpoint_s, restart_s=0.0)
    assert ends(state) == {"a": finish_s}


def test_a_suspended_job_whose_node_fails_goes_back_to_what_was_saved() -> None:
    live = Live(job(id="a"), job(id="b"), on="2x1").runs("a", gpus(0, 1)).runs("b", gpus(1, 1)).at(50.0)
    live.decide("suspend", "a", "resident").tell(TasksSuspended("a", 50.0, saved_s=40.0))
    outages = Outages([(65.0, 0, True), (70.0, 0, False)])
    state = live.at(60.0).adopt({"a": 100.0, "b": 200.0}, outages=outages, restart_s=0.0)
    assert ends(state) == {"a": 70.0 + 60.0, "b": 200.0}


def lost(live: Live, at_s: float, checkpoint_s: float = 600.0) -> float | None:
    """When its job of 100 s ends if both nodes are away for 5 s."""
    outages = Outages([(at_s + away_s, number, away_s == 0) for number in (0, 1) for away_s in (0, 5)])
    return live.adopt({"a": 100.0}, outages=outages, checkpoint_s=checkpoint_s, restart_s=0.0).jobs["a"].finish_s


def test_what_a_preemption_saved_is_there_if_the_node_fails_during_the_restart() -> None:
    live = Live(job(2, id="a")).runs("a", gpus(0, 0b11)).at(50.0).decide("stop", "a", "preempted")
    live.tell(TasksExited("a", Exit.PREEMPTED, 50.0)).at(60.0).decide("start", "a", gpus(1, 0b11))
    assert lost(live.tell(TasksStarted("a", 1.0, 90.0)).at(70.0), 80.0) == 85.0 + 50.0


def test_what_a_move_saved_is_there_if_the_node_fails_during_the_restart() -> None:
    live = Live(job(2, id="a")).runs("a", gpus(0, 0b11)).at(50.0).decide("move", "a", gpus(1, 0b11))
    assert lost(live.tell(TasksMoved("a", gpus(1, 0b11), 50.0, 1.0, 80.0)).at(60.0), 70.0) == 75.0 + 50.0


def test_checkpoints_count_from_where_a_suspended_job_went_on() -> None:
    """At 80; the last one before 110 is that of 105, with 75 s of work."""
    live = Live(job(2, id="a")).runs("a", gpus(0, 0b11)).at(50.0).decide("suspend", "a", "resident")
    live.tell(TasksSuspended("a", 50.0)).at(80.0).decide("resume", "a").tell(TasksResumed("a", 50.0, 1.0, 80.0))
    assert lost(live.at(90.0), 110.0, checkpoint_s=25.0) == 115.0 + 25.0


def test_moments_move_with_the_clock() -> None:
    live = Live(job(id="a"), on="1x1").runs("a", gpus(0, 1)).at(50.0).decide("suspend", "a", "resident")
    live.at(1050.0).tell(ClockStepped(1000.0))
    found = live.state.jobs["a"]
    assert (found.saving_since_s, found.halting_since_s) == (1000.0, 1050.0)


def test_a_node_that_is_away_is_waited_for() -> None:
    live = Live(job(id="a"), on="1x1").at(50.0)
    live.tell(NodeLost(live.state.cluster.nodes[0].name))
    assert ends(live.adopt({"a": 10.0}, outages=Outages([(80.0, 0, False)]))) == {"a": 90.0}


# Speeds ------------------------------------------------------------------------------------------------------------


def test_jobs_that_share_a_gpu_go_on_as_fast_as_the_profile_says() -> None:
    """The server took each for alone; from the adoption on both are half as fast, until one has ended."""
    halves = [job(id=name, gpu_milli=500) for name in ("a", "b")]
    live = Live(*halves, on="1x1")
    half = Allocation((Slice(0, 1, milli=500, tasks=1),), 0.5)
    live.runs("a", half).runs("b", half).at(50.0)
    profile = read_native("default: {sharing: 0.5}", "profile.yaml")
    state = live.adopt({"a": 60.0, "b": 100.0}, speed=profile.speed(live.state.cluster))
    assert ends(state) == {"a": 70.0, "b": 110.0}


def test_a_run_with_neighbours_ends_alike_wherever_it_is_adopted() -> None:
    profile = read_native("default: {sharing: 0.5}", "profile.yaml")
    jobs = trace(*(job(id=f"j{n}", gpu_milli=500, work=100.0 + 30 * n, at=20.0 * n) for n in range(5)))
    where = cluster("1x1")
    planner = Experiment(jobs, where).planner("srtf")

    def begin() -> WorldCourse:
        state = State(where.blank())
        engine = Simulator(jobs.jobs, state.cluster, speed=profile.speed(state.cluster), restart_s=7.0)
        return WorldCourse(Scheduler(state, planner), engine)

    whole = begin()
    whole.finish()
    for batches in range(1, whole.batches):
        course = begin()
        for _ in range(batches):
            course.advance()
        state = load(dump(course.state), where.blank())
        work = {entry.spec.id: entry.work_s for entry in jobs.jobs}
        left = [entry for entry in jobs.jobs if entry.spec.id not in state.jobs]
        engine = Simulator.adopt(state, work, left, speed=profile.speed(state.cluster), restart_s=7.0)
        adopted = WorldCourse(Scheduler(state, Experiment(jobs, where).planner("srtf")), engine)
        adopted.finish()
        assert adopted.csv() == whole.csv(), f"adopted after {batches} batches"
    assert all(each.state is JobState.SUCCEEDED for each in whole.state.jobs.values())
