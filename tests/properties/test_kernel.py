"""Same log, same state; a rollback restores exactly; a fork goes on like the original (DESIGN §7.6)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import World, check, cluster, job, snapshot, trace
from tests.support.invariants import check_books
from tests.support.world import WorldCourse
from worlds import examples, fork_of, taken_up, worlds

from skep.core.chance import draw as draw_bits
from skep.core.errors import InvariantBroken
from skep.core.job import Job, JobState
from skep.core.memory import At, Memory
from skep.core.model import Declares
from skep.core.plan import Plan
from skep.core.ports import Planner
from skep.core.record import Entry, PlanRecord, decode, encode, record, replay
from skep.core.refusal import Refusal
from skep.core.solving import SolverProblem
from skep.core.state import State
from skep.core.step import Scheduler
from skep.core.view import Trigger
from skep.policies.pipeline import Pipeline
from skep.policies.place import PLACES
from skep.policies.registry import policies
from skep.traces.trace import TraceJob

every_policy = pytest.mark.parametrize("name", sorted(policies()))


class Recorder(Declares):
    """A planner that keeps what another one decided."""

    def __init__(self, inner: Planner) -> None:
        self.inner = inner
        self.round_s, self.drifts, self.declared = inner.round_s, inner.drifts, inner.declared
        self.name = "recorder"
        self.plans: list[Plan] = []

    def attach(self, view: State, memory: Memory) -> None:
        self.inner.attach(view, memory)

    def problem(self, view: State, memory: Memory, at: At) -> SolverProblem:
        return self.inner.problem(view, memory, at)

    def plan(self, view: State, memory: Memory, trigger: Trigger) -> Plan:
        self.plans.append(self.inner.plan(view, memory, trigger))
        return self.plans[-1]

    def explain(self, view: State, memory: Memory, job: Job) -> Refusal:
        return self.inner.explain(view, memory, job)


class Replayer(Recorder):
    """A planner that decides nothing and applies what was logged; the other one is asked for problems only."""

    def __init__(self, logged: list[PlanRecord], inner: Planner) -> None:
        super().__init__(inner)
        self.logged = iter(logged)

    def plan(self, view: State, memory: Memory, trigger: Trigger) -> Plan:
        return replay(view, next(self.logged))


@every_policy
@examples(12)
@given(data=st.data())
def test_replaying_logged_plans_gives_the_same_state(name: str, data: st.DataObject) -> None:
    replay_and_compare(data, data.draw(taken_up(name)))


def replay_and_compare(data: st.DataObject, world: World) -> None:
    """The whole log, and a part of it after which the policy takes up the state and decides again."""
    first = State(world.cluster.blank())
    recorder = Recorder(world.planner())
    planned = WorldCourse(Scheduler(first, recorder), world.engine(first.cluster))
    planned.finish()
    logged = decode(encode(Entry(0.0, [], [record(plan) for plan in recorder.plans])))
    part = data.draw(st.integers(0, planned.batches), label="batches of the log")
    for batches in (planned.batches, part):
        second = State(world.cluster.blank())
        replayed = WorldCourse(Scheduler(second, Replayer(logged.plans, world.planner())), world.engine(second.cluster))
        for _ in range(batches):
            assert replayed.advance()
        assert batches == part or snapshot(second) == snapshot(first)
        again = WorldCourse(Scheduler(second, world.planner()), replayed.engine)
        again.finish()
        assert again.csv() == planned.csv()
        check(second)


@every_policy
@examples(40)
@given(data=st.data())
def test_a_fork_goes_on_like_the_original(name: str, data: st.DataObject) -> None:
    world: World = data.draw(taken_up(name))
    original, fork = fork_of(data, world)
    assert snapshot(fork.state) == snapshot(original.state)
    original.finish()
    fork.finish()
    assert fork.csv() == original.csv()


def busy(number: int) -> TraceJob:
    """Jobs of three users that queue up for long, so that what was known when one came is not what is known later."""
    size, length, gap = (draw_bits(11, number, part) for part in range(3))
    who = ("ann", "bob", "cho")[size // 8 % 3]
    scale = {"ann": 40, "bob": 400, "cho": 2000}[who]
    return job((1, 1, 2, 4)[size % 4], work=float(scale + length % scale), at=float(number * 20 + gap % 20), user=who)


@pytest.mark.parametrize("policy", ["qssf", "sjf:estimate=history,walk=skip", "tiresias-g:queues=500+3000,place=any"])
def test_a_fork_remembers_what_was_known_when_a_job_came(policy: str) -> None:
    world = World(trace(*(busy(number) for number in range(60))), cluster("1x4"), policy)
    expected = world.run().csv()
    original = world.begin()
    fork_count = 0
    while original.advance():
        if original.batches % 7 == 0:
            fork = original.fork(world.planner())
            fork.finish()
            assert fork.csv() == expected, f"forked at {original.state.now_s}"
            fork_count += 1
    assert fork_count > 5


@examples(150)
@given(data=st.data())
def test_rollback_restores_the_state_exactly(data: st.DataObject) -> None:
    world: World = data.draw(worlds("srtf"))
    course = world.begin()
    for _ in range(data.draw(st.integers(1, 12), label="batches")):
        course.advance()
    state = course.state
    place = PLACES[data.draw(st.sampled_from(sorted(PLACES)))]()
    before = snapshot(state)
    plan = state.new_plan()
    marks = [(plan.mark(), before)]
    for _ in range(data.draw(st.integers(1, 8), label="decisions")):
        decide(data, state, plan, place)
        check_indexes(state)
        if data.draw(st.booleans(), label="mark"):
            marks.append((plan.mark(), snapshot(state)))
    while marks:
        mark, then = marks.pop()
        plan.rollback(mark)
        assert snapshot(state) == then
    assert not plan.decisions


def decide(data: st.DataObject, state: State, plan: Plan, place: object) -> None:
    """A random decision that is allowed now, if there is one."""
    open_states = (JobState.PENDING, JobState.RUNNING, JobState.SUSPENDED)
    jobs = [job for job in state.jobs.values() if job.state in open_states]
    if not jobs:
        return
    job = data.draw(st.sampled_from(jobs), label="job")
    found = place.find(state.cluster, plan, job, job.spec.shapes[0], state.now_s)
    if job.state is JobState.PENDING:
        if found is not None:
            plan.start(job, found, until_s=data.draw(st.sampled_from([None, state.now_s + 60.0])))
            if data.draw(st.booleans(), label="tuned"):
                plan.tune(job, {"batch": 8})
        return
    kinds = ["stop", "resume"] if job.state is JobState.SUSPENDED else ["stop", "suspend", "move", "tune"]
    kind = data.draw(st.sampled_from(kinds), label="kind")
    try:
        if kind == "suspend":
            plan.suspend(job, data.draw(st.sampled_from(["resident", "swapped"])))
        elif kind == "resume":
            plan.resume(job)
        elif kind == "move" and found is not None:
            plan.move(job, found)
            if data.draw(st.booleans(), label="tuned"):
                plan.tune(job, {"batch": 16})
        elif kind == "tune":
            plan.tune(job, {"batch": 64})
        else:
            plan.stop(job, "test")
    except InvariantBroken:  # no room in the memory of its nodes, or others have its GPUs by now
        assert kind in ("suspend", "resume")


def check_indexes(state: State) -> None:
    placed = [job for job in state.jobs.values() if job.allocation is not None]
    check_books(state.cluster, [(job.seq, job.allocation) for job in placed])


IN_LINES = [name for name in sorted(policies()) if name in ("fifo", "sjf", "qssf", "drf", "yarn-cs")]


@pytest.mark.parametrize("name", IN_LINES)
@examples(60)
@given(data=st.data())
def test_a_policy_that_skips_and_does_not_preempt_leaves_nothing_idle_that_somebody_could_use(
    name: str, data: st.DataObject
) -> None:
    knobs = {"yarn-cs": {"take_back": "2"}, "drf": {"mode": "drf"}}.get(name, {})
    world: World = data.draw(worlds(name, calm=True, walk="skip", **knobs))
    course = world.begin()
    planner = course.scheduler.planner
    assert isinstance(planner, Pipeline)
    while course.advance():
        state = course.state
        for each in state.jobs.values():
            if each.state is JobState.PENDING and not each.needs_left:
                # With random placement several roles may fit for one job and not for its like.
                if len(each.spec.shapes[0].roles) > 1 and planner.place.name == "random":
                    continue
                assert (
                    planner.place.find(state.cluster, state.new_plan(), each, each.spec.shapes[0], state.now_s) is None
                )


@every_policy
@examples(20)
@given(data=st.data())
def test_with_jobs_that_never_end_a_run_still_does(name: str, data: st.DataObject) -> None:
    world: World = data.draw(worlds(name))
    endless = data.draw(st.sets(st.integers(0, len(world.trace.jobs) - 1), min_size=1, max_size=3))
    for number in endless:
        entry = world.trace.jobs[number]
        spec = msgspec.structs.replace(entry.spec, expect_s=None)
        world.trace.jobs[number] = msgspec.structs.replace(entry, work_s=float("inf"), spec=spec)
    course = world.begin()
    course.finish(world.checker(course.state))
    names = {world.trace.jobs[number].spec.id for number in endless}
    for each in course.state.jobs.values():
        if each.id in names:
            assert each.finish_s is None or each.state is JobState.STOPPED  # by its group
        elif each.state is JobState.PENDING and not each.needs_left:
            holders = [other for other in course.state.jobs.values() if other.allocation is not None]
            assert {other.id for other in holders} & names, f"{each} waits for nobody"
