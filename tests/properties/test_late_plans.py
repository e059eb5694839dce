"""Plans that arrive late: what is kept is exactly what still makes sense, and the log tells it to a replay."""

from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared_worlds import shared_worlds
from worlds import examples, taken_up

from skep.core.checked import BadPlan, checked_plan
from skep.core.events import Event
from skep.core.job import JobState
from skep.core.late import Proposal, accept, bundles_of, propose
from skep.core.nodes import Membership
from skep.core.plan import Decision, Plan
from skep.core.record import Entry, PlanRecord, decode, encode, fold, record, take_in
from skep.core.refusal import Cause
from skep.core.rounds import everything
from skep.core.snapshot import dump, load
from skep.core.state import State
from skep.policies.order.queues import STANDING, Standing
from skep.policies.place import PLACES, Place
from skep.policies.registry import policies
from skep.policies.shared.planner import VcPlanner
from skep.testing import World, check
from skep.testing.world import WorldCourse


class Logged:
    """A course whose log is kept."""

    def __init__(self, course: WorldCourse) -> None:
        self.course = course
        self.has_vcs = isinstance(course.scheduler.planner, VcPlanner)
        self.log: list[bytes] = []

    @property
    def state(self) -> State:
        return self.course.state

    def note(self, at_s: float, events: list[Event], *accepted: Plan) -> None:
        plans = [record(plan) for plan in (*accepted, *self.course.scheduler.plans)]
        self.log.append(encode(Entry(at_s, events, plans)))

    def advance(self) -> bool:
        return self.course.advance(self.note)

    def accept(self, proposal: Proposal) -> Plan:
        scheduler, at_s = self.course.scheduler, self.state.now_s
        actions = scheduler.accept(proposal)
        kept = scheduler.accepted
        assert kept is not None
        self.note(at_s, [], kept)
        if not self.has_vcs:
            check(self.state)
        while actions:
            events = self.course.engine.execute(at_s, actions)
            actions = scheduler.step(at_s, events)
            self.note(at_s, events)
        return kept

    def check_replay(self, world: World) -> None:
        again = State(world.cluster.blank())
        for entry in self.log:
            fold(again, decode(entry))
        assert values(again) == values(self.state)


def values(state: State) -> object:
    """Of its snapshot: a number that was read back may be 1.0 where it was 1."""
    return msgspec.msgpack.decode(dump(state), strict=False)


def copy_of(state: State) -> State:
    """As a planner that follows the log has it."""
    return load(dump(state), state.cluster.blank(), state.knowledge.measured)


def draw_proposal(data: st.DataObject, state: State) -> Proposal:
    """Random decisions, alone or in bundles, with all that may go with them."""
    plan = state.new_plan()
    place = PLACES[data.draw(st.sampled_from(["any", "consolidate", "spread"]))]()
    for _ in range(data.draw(st.integers(1, 5), label="bundles")):
        if data.draw(st.booleans(), label="alone"):
            decide(data, state, plan, place)
        else:
            with plan.bundle():
                for _ in range(data.draw(st.integers(1, 3), label="decisions")):
                    decide(data, state, plan, place)
    for job in list(state.jobs.values())[:8]:
        if job.state is JobState.PENDING and job.is_ready:
            plan.wait(job, "late")
        if not job.state.is_final:
            plan.remember(STANDING, job.id, Standing(1, 2.0))
        if job.state is JobState.RUNNING and job.held is not None and data.draw(st.booleans(), label="tune"):
            plan.tune(job, {"batch": 8})
    plan.refuse("late", Cause.ORDER)
    plan.wake(state.now_s + data.draw(st.integers(-10, 50)))
    return propose(state, plan)


def decide(data: st.DataObject, state: State, plan: Plan, place: Place) -> None:
    """A random decision that is allowed now, if there is one."""
    starts = [job for job in state.jobs.values() if job.state is JobState.PENDING and job.is_ready]
    stops = [job for job in state.jobs.values() if job.state is JobState.RUNNING and not job.is_ending]
    if not starts and not stops:
        return
    job = data.draw(st.sampled_from(starts + stops), label="job")
    found = place.find(state.cluster, plan, job, job.spec.shapes[0], state.now_s)
    if job.state is JobState.PENDING:
        if found is not None:
            plan.start(job, found)
    elif found is not None and data.draw(st.booleans(), label="move"):
        plan.move(job, found)
    else:
        plan.stop(job, "test")


def twin(state: State, proposal: Proposal) -> list[Decision]:
    """What is kept, by trying each bundle after those before it on a copy of its own."""
    kept: list[Decision] = []
    is_reshaped = state.reshaped_at > proposal.version
    for group in bundles_of(proposal.plan.decisions):
        tried = copy_of(state)
        assumed = {job.id: job.bound for job in tried.jobs.values()} | {each.job_id: each.after for each in kept}
        is_same = True
        for each in group:
            job = tried.jobs[each.job_id]
            is_same &= job.launches == proposal.launches[job.id] and not job.is_ending and not job.is_expired
            is_same &= each.before == assumed[job.id] and not (is_reshaped and each.after is not None)
            assumed[job.id] = each.after
        try:
            if is_same:
                checked_plan(tried, PlanRecord(decisions=[*kept, *group]))
                kept += group
        except BadPlan:
            pass
    return kept


@pytest.mark.parametrize("name", ["fifo", "srtf", "tiresias-l", "yarn-cs", "afs-l"])
@examples(30)
@given(data=st.data())
def test_of_a_late_plan_what_still_makes_sense_is_kept(name: str, data: st.DataObject) -> None:
    world: World = data.draw(taken_up(name))
    original = Logged(world.begin())
    for _ in range(data.draw(st.integers(1, 12), label="batches before")):
        original.advance()
    proposal = draw_proposal(data, copy_of(original.state))
    assert proposal.version == original.state.version
    for _ in range(data.draw(st.integers(0, 4), label="batches meanwhile")):
        original.advance()
    state = original.state
    before = copy_of(state)
    late_before, dropped_before = state.late_count, state.dropped_count
    is_late = proposal.version < state.version
    expected = twin(state, proposal) if is_late else proposal.plan.decisions
    kept = original.accept(proposal)
    assert kept.decisions == expected
    assert (kept.made_on, state.late_count - late_before) == ((proposal.version, 1) if is_late else (0, 0))
    assert state.dropped_count - dropped_before == kept.dropped
    check_the_rest(before, proposal, kept)
    original.check_replay(world)
    while original.advance():
        pass
    original.check_replay(world)


def check_the_rest(before: State, proposal: Proposal, kept: Plan) -> None:
    """What goes with decisions is kept or dropped with them."""
    made, decided = proposal.plan, {each.job_id for each in kept.decisions}
    dropped = {each.job_id for each in made.decisions} - decided
    settings = len(made.settings) - len(kept.settings)
    assert kept.dropped == len(made.decisions) - len(kept.decisions) + settings
    assert not dropped & {change.key for change in kept.memory}
    assert all(before.jobs[job.id].state is JobState.PENDING for job, _ in kept.joins)
    if kept.made_on:
        assert not decided & {job.id for job, _ in kept.joins}
    else:
        assert record(kept) == made


@pytest.mark.parametrize("name", sorted(policies()))
@examples(8)
@given(data=st.data())
def test_every_policy_goes_on_after_a_late_plan(name: str, data: st.DataObject) -> None:
    world = data.draw(taken_up(name))
    # A job that only a node which has left again could hold would wait for ever.
    script = tuple(each for each in world.script if not isinstance(each[1], Membership))
    check_goes_on(data, msgspec.structs.replace(world, script=script))


@examples(15)
@given(data=st.data())
def test_virtual_clusters_go_on_after_a_late_plan(data: st.DataObject) -> None:
    check_goes_on(data, data.draw(shared_worlds(rounds=False)))


def check_goes_on(data: st.DataObject, world: World) -> None:
    """A follower plans on a state that it has folded itself; the planner of the course was quicker."""
    original = Logged(world.begin())
    for _ in range(data.draw(st.integers(0, 12), label="batches before")):
        original.advance()
    follower = copy_of(original.state)
    planner = world.planner()
    planner.attach(follower, follower.memory)
    batch = copy.deepcopy(original.course.engine).observe(follower.next_timer_s)
    if batch is None:
        return
    take_in(follower, batch.at_s, batch.events, None)
    planner.attach(follower, follower.memory)
    plan = planner.plan(follower, follower.memory, everything())
    proposal = propose(follower, plan)
    for _ in range(data.draw(st.integers(1, 3), label="batches meanwhile")):
        original.advance()
    original.accept(proposal)
    while original.advance():
        pass
    original.check_replay(world)
    waiting = [job for job in original.state.jobs.values() if not job.state.is_final and job.is_ready]
    assert not waiting, waiting


@examples(20)
@given(data=st.data())
def test_a_plan_in_time_is_kept_whole_and_written_as_any_other(data: st.DataObject) -> None:
    world: World = data.draw(taken_up("fifo"))
    course = world.begin()
    for _ in range(data.draw(st.integers(1, 8), label="batches before")):
        course.advance()
    first, second = copy_of(course.state), copy_of(course.state)
    proposal = draw_proposal(data, copy_of(course.state))
    first.commit(checked_plan(first, proposal.plan))
    plan = accept(second, proposal)
    assert msgspec.msgpack.encode(record(plan)) == msgspec.msgpack.encode(proposal.plan)
    assert values(first) == values(second)
