"""Groups: who is in them, when they end, and what becomes of members and of those who need them."""

from __future__ import annotations

import pytest
from tests.support import check, cluster, job, snapshot

from skep.core.events import Exit, GroupEnded, GroupFormed, JobsForgotten, JobSubmitted, StopRequested, TasksExited
from skep.core.group import ALL_ENDED, FIRST_FAILED, FIRST_SUCCEEDED, NEVER, EndsWhen, Enough, GroupKind, GroupSpec
from skep.core.job import JobState
from skep.core.model import GroupRef
from skep.core.record import PlanRecord, decode_plan, encode_plan, replay
from skep.core.snapshot import dump, fork, load
from skep.core.state import State
from skep.core.step import Scheduler
from skep.policies.registry import Setting, build_planner

G = GroupRef("g")


class Small:
    """`fifo` on a few GPUs; launches and stops are done at once."""

    def __init__(self, *groups: GroupSpec, gpus: int = 2) -> None:
        state = State(cluster(f"1x{gpus}"))
        self.scheduler = Scheduler(state, build_planner("fifo", Setting(state.cluster)))
        self.state = state
        self.step(*map(GroupFormed, groups))

    def step(self, *events: object) -> None:
        from skep.core.actions import Launch, Stop
        from skep.core.events import TasksStarted

        actions = self.scheduler.step(self.state.now_s + 1, list(events))  # type: ignore[arg-type]
        check(self.state)
        following: list[object] = []
        for action in actions:
            if isinstance(action, Launch):
                following.append(TasksStarted(action.job_id, 1.0, self.state.now_s))
            elif isinstance(action, Stop):
                following.append(TasksExited(action.job_id, Exit.PREEMPTED, 0.0))
        if following:
            self.step(*following)

    def submit(self, *ids: str, group: GroupRef | None = G, **more: object) -> None:
        self.step(*(JobSubmitted(job(1, id=name, group=group, **more).spec) for name in ids))

    def end(self, name: str, exit: Exit = Exit.FINISHED) -> None:
        self.step(TasksExited(name, exit, 1.0))

    def states(self) -> str:
        return " ".join(str(each.state) for each in self.state.jobs.values())


def test_the_first_that_succeeds_ends_the_others() -> None:
    world = Small(GroupSpec("g", GroupKind.SWEEP, ends_when=FIRST_SUCCEEDED, name="tune"))
    world.submit("a", "b", "c")
    assert world.states() == "running running pending"
    world.end("a")
    assert world.states() == "succeeded stopped stopped"
    assert {world.state.jobs[name].reason for name in "bc"} == {"group tune ended: 1 of its members succeeded"}
    assert world.state.groups["g"].outcome is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("rule", "ends", "outcome"),
    [
        (ALL_ENDED, {"a": Exit.FAILED, "b": Exit.FINISHED, "c": Exit.FINISHED}, "succeeded"),
        (FIRST_FAILED, {"a": Exit.FINISHED, "b": Exit.FAILED}, "failed"),
        (EndsWhen((Enough(succeeded=2),)), {"a": Exit.FINISHED, "b": Exit.FINISHED}, "succeeded"),
        (EndsWhen((Enough("other", failed=1),)), dict.fromkeys("abc", Exit.FAILED), "succeeded"),
    ],
)
def test_rules(rule: EndsWhen, ends: dict[str, Exit], outcome: str) -> None:
    world = Small(GroupSpec("g", ends_when=rule))
    world.submit("a", "b", "c")
    for number, (name, exit) in enumerate(ends.items(), 1):
        assert world.state.groups["g"].outcome is None, number
        world.end(name, exit)
    assert world.state.groups["g"].outcome == outcome
    assert world.state.groups["g"].has_ended


def test_a_group_whose_member_was_stopped_by_its_owner_is_stopped() -> None:
    world = Small()
    world.submit("a", "b")
    world.step(StopRequested("a", "by ann"))
    world.end("b")
    assert world.state.groups["g"].outcome is JobState.STOPPED


def test_who_needs_a_group_waits_for_its_last_member() -> None:
    world = Small(GroupSpec("g", ends_when=FIRST_SUCCEEDED), gpus=1)
    world.submit("a", "b")
    world.submit("c", group=None, needs_groups=("g",))
    assert world.states() == "running pending pending"
    world.end("a")
    assert world.states() == "succeeded stopped running"


def test_who_needs_a_group_that_failed_is_stopped() -> None:
    world = Small(GroupSpec("g", ends_when=FIRST_FAILED))
    world.submit("a", "b")
    world.submit("c", group=None, needs_groups=("g",))
    world.end("a", Exit.FAILED)
    world.submit("d", group=None, needs_groups=("g",))
    assert world.states() == "failed stopped stopped stopped"
    assert world.state.jobs["c"].reason == world.state.jobs["d"].reason == "needs g, which ended as failed"


def test_a_group_within_another_counts_as_one_member() -> None:
    outer, inner = GroupSpec("g", ends_when=FIRST_SUCCEEDED), GroupSpec("7", GroupKind.INCREMENTAL, within=G)
    world = Small(outer, inner, gpus=3)
    world.submit("7/a", "7/b", group=GroupRef("7", "w"))
    world.submit("c")
    world.end("7/a")
    assert world.states() == "succeeded running running"
    world.end("7/b")
    assert world.states() == "succeeded succeeded stopped"
    other = Small(outer, inner, gpus=3)
    other.submit("7/a", "7/b", group=GroupRef("7", "w"))
    other.submit("c")
    other.end("c")
    assert other.states() == "stopped stopped succeeded"
    assert other.state.groups["7"].outcome is JobState.STOPPED


@pytest.mark.parametrize("is_formed_first", [True, False])
def test_a_group_that_comes_into_one_whose_outcome_is_known_is_stopped(is_formed_first: bool) -> None:
    inner = GroupSpec("inner", within=G)
    world = Small(GroupSpec("g", ends_when=FIRST_SUCCEEDED), *([inner] if is_formed_first else []))
    world.submit("a", "b")
    if is_formed_first:
        world.submit("c", group=GroupRef("inner"))
        world.step(StopRequested("c", "not needed"))
    state = world.state
    state.advance(state.now_s, [TasksExited("a", Exit.FINISHED, 1.0)])  # b is asked to stop, and has not exited yet
    if not is_formed_first:
        state.advance(state.now_s, [GroupFormed(inner)])
        check(state)
    state.advance(state.now_s, [JobSubmitted(job(1, id="d", group=GroupRef("inner")).spec)])
    check(state)
    assert state.jobs["d"].state is JobState.STOPPED
    assert not state.groups["g"].has_ended
    state.advance(state.now_s, [TasksExited("b", Exit.PREEMPTED, 1.0)])
    check(state)
    assert state.groups["g"].has_ended


def test_a_group_that_has_ended_begins_anew_with_the_next_member() -> None:
    world = Small(GroupSpec("g", weight=3.0, ends_when=FIRST_SUCCEEDED))
    world.submit("a")
    world.end("a")
    world.submit("b", "c")
    assert world.states() == "succeeded running running"
    assert world.state.groups["g"].weight == 3.0
    assert list(world.state.groups["g"].members) == ["b", "c"]


def test_one_that_never_ends_by_itself_is_ended_by_whoever_says_so() -> None:
    world = Small(GroupSpec("g", ends_when=NEVER))
    world.submit("a", "b", "c")
    world.end("a")
    assert world.state.groups["g"].outcome is None
    world.step(GroupEnded("g", JobState.STOPPED, "enough"))
    assert world.states() == "succeeded stopped stopped"
    assert world.state.jobs["c"].reason == "enough"


def test_a_member_that_can_never_run_may_end_those_who_were_started_with_it() -> None:
    world = Small(GroupSpec("g", ends_when=FIRST_FAILED))
    world.step(JobSubmitted(job(1, id="a", group=G).spec), JobSubmitted(job(9, id="b", group=G).spec))
    assert world.states() == "stopped unrunnable"
    assert world.state.cluster.free_gpus() == 2


def test_a_plan_ends_a_group_and_so_does_its_replay() -> None:
    world = Small(GroupSpec("g"))
    world.submit("a", "b", "c")
    twin = fork(world.state)
    plan = world.state.new_plan()
    plan.end_group("g", "b is the best it will get", succeeded=True)
    logged = decode_plan(encode_plan(plan))
    assert logged == PlanRecord(ends=[("g", JobState.SUCCEEDED, "group g ended: b is the best it will get")])
    for state in (world.state, twin):
        state.commit(replay(state, logged))
    assert snapshot(twin) == snapshot(world.state)
    assert world.state.jobs["c"].state is JobState.STOPPED
    assert world.state.jobs["a"].is_ending


def test_snapshots_keep_groups() -> None:
    world = Small(GroupSpec("g", ends_when=FIRST_SUCCEEDED), gpus=1)
    world.submit("a", "b")
    world.submit("c", group=None, needs_groups=("g",))
    again = load(dump(world.state), world.state.cluster.blank())
    assert snapshot(again) == snapshot(world.state)


def test_a_group_is_forgotten_with_its_last_member() -> None:
    world = Small()
    world.submit("a", "b")
    world.end("a")
    world.end("b")
    world.step(JobsForgotten(["a"]))
    assert list(world.state.groups) == ["g"]
    world.step(JobsForgotten(["b"]))
    assert not world.state.groups


@pytest.mark.parametrize(("exit", "becomes"), [(Exit.FINISHED, "running"), (Exit.FAILED, "stopped")])
def test_a_job_that_needs_a_group_which_has_ended_runs_or_ends_at_once(exit: Exit, becomes: str) -> None:
    world = Small(GroupSpec("g", ends_when=FIRST_FAILED))
    world.submit("a")
    world.end("a", exit)
    world.submit("b", group=None, needs_groups=("g",))
    assert world.states().split()[1] == becomes
