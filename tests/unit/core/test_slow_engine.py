"""Wanted and seen differ for a while: an engine whose stops, launches and moves take time."""

from __future__ import annotations

from collections.abc import Callable

from tests.support import check, cluster, job, trace

from skep.core.actions import Action, Launch, Move, Resume, Stop, Suspend
from skep.core.cluster import Allocation, Slice
from skep.core.events import (
    Event,
    Exit,
    JobSubmitted,
    PolicyChanged,
    StopRequested,
    SuspendRefused,
    TasksExited,
    TasksMoved,
    TasksResumed,
    TasksStarted,
    TasksSuspended,
    TimerDue,
)
from skep.core.job import Job, JobState
from skep.core.memory import Memory
from skep.core.model import Declares
from skep.core.plan import Plan
from skep.core.ports import Planner
from skep.core.refusal import Cause, Refusal
from skep.core.state import State
from skep.core.step import Scheduler
from skep.core.view import Trigger
from skep.policies.registry import Setting, build_planner
from skep.traces.trace import TraceJob


class Slow:
    """Holds back what it did until it is asked for it; every step is checked."""

    def __init__(self, planner: Planner, state: State) -> None:
        self.state = state
        self.scheduler = Scheduler(state, planner)
        self.under_way: dict[tuple[str, str], Event] = {}
        self.told: list[str] = []

    def step(self, *events: Event) -> list[str]:
        """What the engine is told after these events, as `stop a`, `launch b`."""
        actions = self.scheduler.step(self.state.now_s, list(events))
        check(self.state)
        told = [self._begin(action) for action in actions]
        self.told += told
        return told

    def submit(self, *jobs: TraceJob) -> list[str]:
        return self.step(*(JobSubmitted(entry.spec) for entry in trace(*jobs).jobs))

    def _begin(self, action: Action) -> str:
        kind = type(action).__name__.lower()
        outcomes: dict[type, Callable[[], Event]] = {
            Launch: lambda: TasksStarted(action.job_id, 1.0, self.state.now_s),
            Stop: lambda: TasksExited(action.job_id, Exit.PREEMPTED, 7.0),
            Move: lambda: TasksMoved(action.job_id, action.allocation, 7.0, 1.0, self.state.now_s),
            Suspend: lambda: TasksSuspended(action.job_id, 7.0, action.memory, action.launch),
            Resume: lambda: TasksResumed(action.job_id, 7.0, 1.0, self.state.now_s, action.launch),
        }
        if isinstance(action, Suspend | Resume):
            assert action.launch == self.state.jobs[action.job_id].held_launch > 0
        self.under_way[kind, action.job_id] = outcomes[type(action)]()
        return f"{kind} {action.job_id}"

    def done(self, *what: str) -> list[str]:
        """These have now happened: `stop a`."""
        return self.step(*(self.under_way.pop(tuple(name.split())) for name in what))

    def state_of(self, name: str) -> JobState:
        return self.state.jobs[name].state


def slow(policy: str, spec: str = "1x4") -> Slow:
    there = cluster(spec)
    return Slow(build_planner(policy, Setting(there)), State(there))


def test_a_launch_waits_until_the_victim_has_gone() -> None:
    world = slow("srtf")
    assert world.submit(job(4, id="long", work=100.0)) == ["launch long"]
    assert world.done("launch long") == []
    assert world.submit(job(2, id="short", work=10.0)) == ["stop long"]
    assert world.state_of("short") is JobState.LAUNCHING
    assert world.state_of("long") is JobState.STOPPING
    assert world.step(TimerDue()) == []  # it is told once
    assert world.done("stop long") == ["launch short"]
    assert world.state_of("long") is JobState.PENDING
    assert world.state.jobs["long"].preemptions == 1
    assert world.state.jobs["long"].work_s == 7.0


def test_nobody_else_gets_the_cells_that_were_freed_for_a_job() -> None:
    world = slow("srtf")
    world.submit(job(4, id="long", work=100.0))
    world.done("launch long")
    world.submit(job(3, id="short", work=10.0))
    assert world.submit(job(2, id="two", work=20.0)) == []
    assert world.submit(job(1, id="one", work=30.0)) == []  # it has the last gpu, but long is still there
    assert world.state_of("one") is JobState.LAUNCHING
    assert world.state_of("two") is JobState.PENDING
    assert world.done("stop long") == ["launch short", "launch one"]
    world.done("launch short", "launch one")
    assert [world.state_of(name) for name in ("short", "one", "two", "long")] == [
        JobState.RUNNING,
        JobState.RUNNING,
        JobState.PENDING,
        JobState.PENDING,
    ]


def test_a_launch_waits_for_all_victims() -> None:
    world = slow("srtf", "2x2")
    world.submit(job(2, id="a", work=100.0), job(2, id="b", work=90.0))
    world.done("launch a", "launch b")
    assert sorted(world.submit(job(4, id="short", work=10.0))) == ["stop a", "stop b"]
    assert world.done("stop a") == []
    assert world.done("stop b") == ["launch short"]


def test_a_launch_elsewhere_does_not_wait() -> None:
    world = slow("srtf", "2x2")
    world.submit(job(2, id="a", work=100.0), job(2, id="b", work=90.0))
    world.done("launch a", "launch b")
    world.submit(job(1, id="short", work=10.0))
    assert world.told[-1] == "stop a"
    # b ends while a is still leaving: its node is free at once.
    assert world.step(TasksExited("b", Exit.FINISHED, 90.0)) == []
    assert world.submit(job(2, id="next", work=5.0)) == ["launch next"]
    assert world.done("stop a") == ["launch short"]


def test_a_job_whose_node_is_lost_while_it_stops_comes_back_once() -> None:
    world = slow("srtf")
    world.submit(job(4, id="long", work=100.0))
    world.done("launch long")
    world.submit(job(4, id="short", work=10.0))
    world.under_way.pop(("stop", "long"))
    assert world.step(TasksExited("long", Exit.NODE_LOST, 0.0)) == ["launch short"]
    assert world.state.jobs["long"].preemptions == 0
    assert world.state.pending_count == 1


class Mover(Declares):
    """A planner that does what a test has written down."""

    name = "mover"
    round_s = 0.0

    def __init__(self) -> None:
        self.todo: list[Callable[[State, Plan], None]] = []

    def attach(self, view: State, memory: Memory) -> None:
        """Nothing is kept."""

    def plan(self, view: State, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        for decide in self.todo:
            decide(view, plan)
        self.todo = []
        return plan

    def explain(self, view: State, memory: Memory, job: Job) -> Refusal:
        return Refusal("test", Cause.ORDER, "because", "nothing")


def gpus(node: int, mask: int) -> Allocation:
    count = mask.bit_count()
    return Allocation((Slice(node, mask, tasks=count),), count)


def part(node: int, mask: int, milli: int) -> Allocation:
    return Allocation((Slice(node, mask, milli, tasks=1),), milli / 1000)


def movers(spec: str = "2x2") -> tuple[Slow, Mover]:
    planner = Mover()
    return Slow(planner, State(cluster(spec))), planner


def test_nobody_is_launched_where_a_job_has_not_moved_away() -> None:
    world, planner = movers()
    planner.todo = [lambda view, plan: plan.start(view.jobs["a"], gpus(0, 0b11))]
    world.submit(job(2, id="a"))
    world.done("launch a")
    planner.todo = [
        lambda view, plan: plan.move(view.jobs["a"], gpus(1, 0b11)),
        lambda view, plan: plan.start(view.jobs["b"], gpus(0, 0b11)),
    ]
    assert world.submit(job(2, id="b")) == ["move a"]
    assert world.step(TimerDue()) == []
    assert world.done("move a") == ["launch b"]
    assert world.state.jobs["a"].migrations == 1


def test_a_move_waits_for_who_is_told_to_stop() -> None:
    world, planner = movers()
    planner.todo = [
        lambda view, plan: plan.start(view.jobs["a"], gpus(0, 0b11)),
        lambda view, plan: plan.start(view.jobs["b"], gpus(1, 0b11)),
    ]
    world.submit(job(2, id="a"), job(2, id="b"))
    world.done("launch a", "launch b")
    planner.todo = [
        lambda view, plan: plan.stop(view.jobs["b"], "a"),
        lambda view, plan: plan.move(view.jobs["a"], gpus(1, 0b11)),
    ]
    assert world.step(TimerDue()) == ["stop b"]
    assert world.done("stop b") == ["move a"]
    assert world.done("move a") == []
    assert world.state.jobs["a"].held == gpus(1, 0b11)


def test_a_move_that_is_taken_back_before_it_was_sent_blocks_nothing() -> None:
    world, planner = movers()
    planner.todo = [
        lambda view, plan: plan.start(view.jobs["a"], gpus(0, 0b01)),
        lambda view, plan: plan.start(view.jobs["b"], gpus(1, 0b11)),
    ]
    world.submit(job(1, id="a"), job(2, id="b"))
    world.done("launch a", "launch b")
    planner.todo = [
        lambda view, plan: plan.stop(view.jobs["b"], "a"),
        lambda view, plan: plan.move(view.jobs["a"], gpus(1, 0b01)),
    ]
    assert world.step(TimerDue()) == ["stop b"]
    planner.todo = [
        lambda view, plan: plan.move(view.jobs["a"], gpus(0, 0b01)),
        lambda view, plan: plan.start(view.jobs["half"], part(0, 0b10, 500)),
    ]
    assert world.submit(job(1, id="half", gpu_milli=500)) == ["launch half"]
    assert world.done("stop b") == []


def test_two_jobs_may_swap_their_cells() -> None:
    world, planner = movers()
    planner.todo = [
        lambda view, plan: plan.start(view.jobs["a"], gpus(0, 0b01)),
        lambda view, plan: plan.start(view.jobs["b"], gpus(1, 0b01)),
    ]
    world.submit(job(1, id="a"), job(1, id="b"))
    world.done("launch a", "launch b")

    def swap(view: State, plan: Plan) -> None:
        plan.move(view.jobs["a"], gpus(0, 0b10))
        plan.move(view.jobs["b"], gpus(0, 0b01))
        plan.move(view.jobs["a"], gpus(1, 0b01))

    planner.todo = [swap]
    assert sorted(set(world.step(TimerDue()))) == ["move a", "move b"]


def launch_all(world: Slow, planner: Mover, names: str) -> None:
    """Each on the next GPU of the first node."""
    for number, name in enumerate(names):
        planner.todo = [lambda view, plan, name=name, mask=1 << number: plan.start(view.jobs[name], gpus(0, mask))]
        world.submit(job(1, id=name))
        world.done(f"launch {name}")


def test_a_move_waits_for_one_that_waits_for_who_is_told_to_stop() -> None:
    """The engine is told of both at once, so that it can let them swap; before, the second would find the first."""
    world, planner = movers("1x4")
    launch_all(world, planner, "abc")
    planner.todo = [
        lambda view, plan: plan.stop(view.jobs["c"], "a"),
        lambda view, plan: plan.move(view.jobs["a"], gpus(0, 0b100)),
        lambda view, plan: plan.move(view.jobs["b"], gpus(0, 0b001)),
    ]
    assert world.step(TimerDue()) == ["stop c"]
    assert world.done("stop c") == ["move a", "move b"]


def test_a_move_waits_for_who_is_to_stand_still() -> None:
    world, planner = movers("1x2")
    launch_all(world, planner, "ab")
    planner.todo = [
        lambda view, plan: plan.suspend(view.jobs["a"], "swapped"),
        lambda view, plan: plan.move(view.jobs["b"], gpus(0, 0b01)),
    ]
    assert world.step(TimerDue()) == ["suspend a"]
    assert world.done("suspend a") == ["move b"]


# Suspended jobs --------------------------------------------------------------------------------------------------


def taking_turns() -> tuple[Slow, Mover]:
    """One GPU; `a` is to stand still so that `b` has it."""
    world, planner = movers("1x1")
    planner.todo = [lambda view, plan: plan.start(view.jobs["a"], gpus(0, 0b1))]
    world.submit(job(1, id="a"))
    world.done("launch a")
    world.state.now_s = 100.0
    planner.todo = [
        lambda view, plan: plan.suspend(view.jobs["a"]),
        lambda view, plan: plan.start(view.jobs["b"], gpus(0, 0b1)),
    ]
    assert world.submit(job(1, id="b")) == ["suspend a"]
    return world, planner


def test_who_comes_waits_until_the_other_stands_still() -> None:
    world, _ = taking_turns()
    assert world.state_of("a") is JobState.SUSPENDED
    world.state.now_s = 110.0
    assert world.state.jobs["a"].run_at(110.0) == 110.0  # it still has the GPU
    assert world.done("suspend a") == ["launch b"]
    seen = world.state.jobs["a"]
    assert (seen.run_s, seen.service_gpu_s, seen.work_s, seen.held_gpus) == (110.0, 110.0, 7.0, 0)
    assert (seen.run_at(500.0), seen.service_at(500.0), seen.work_at(500.0)) == (110.0, 110.0, 7.0)
    assert world.step(TasksSuspended("a", 9.0, "resident", 1)) == []  # told twice
    assert seen.work_s == 7.0


def test_it_goes_on_where_it_stood_when_the_other_has_gone() -> None:
    world, planner = taking_turns()
    world.done("suspend a")
    world.done("launch b")
    planner.todo = [
        lambda view, plan: plan.stop(view.jobs["b"], "a"),
        lambda view, plan: plan.resume(view.jobs["a"]),
    ]
    world.state.now_s = 200.0
    assert world.step(TimerDue()) == ["stop b"]
    assert world.state_of("a") is JobState.RUNNING
    assert world.state.jobs["a"].run_at(200.0) == 100.0  # it does not run yet
    world.state.now_s = 210.0
    assert world.done("stop b") == ["resume a"]
    world.done("resume a")
    assert world.state.jobs["a"].held == gpus(0, 0b1)
    assert world.state.jobs["a"].run_at(215.0) == 105.0
    assert world.state.jobs["a"].launches == 1


def test_two_jobs_change_places_again_and_again() -> None:
    world, planner = taking_turns()
    world.done("suspend a")
    world.done("launch b")
    for goes, comes in (("b", "a"), ("a", "b"), ("b", "a")):
        planner.todo = [
            lambda view, plan, goes=goes: plan.suspend(view.jobs[goes]),
            lambda view, plan, comes=comes: plan.resume(view.jobs[comes]),
        ]
        assert world.step(TimerDue()) == [f"suspend {goes}"]
        assert world.done(f"suspend {goes}") == [f"resume {comes}"]
        assert world.done(f"resume {comes}") == []


def test_another_mind_while_a_suspension_is_under_way() -> None:
    world, planner = movers("1x1")
    planner.todo = [lambda view, plan: plan.start(view.jobs["a"], gpus(0, 0b1))]
    world.submit(job(1, id="a"))
    world.done("launch a")
    planner.todo = [lambda view, plan: plan.suspend(view.jobs["a"])]
    assert world.step(TimerDue()) == ["suspend a"]
    planner.todo = [lambda view, plan: plan.resume(view.jobs["a"])]
    assert world.step(TimerDue()) == []
    assert world.done("suspend a") == ["resume a"]
    assert world.done("resume a") == []


def test_who_is_to_stand_still_again_before_it_went_on_stays_as_it_is() -> None:
    """Its memory is on its GPU, and nobody could tell a job that stands still to bring it elsewhere."""
    world, planner = taking_turns()
    world.done("suspend a")
    world.done("launch b")
    planner.todo = [
        lambda view, plan: plan.stop(view.jobs["b"], "a"),
        lambda view, plan: plan.resume(view.jobs["a"]),
    ]
    assert world.step(TimerDue()) == ["stop b"]
    planner.todo = [lambda view, plan: plan.suspend(view.jobs["a"], "swapped")]
    assert world.step(TimerDue()) == []
    kept = world.state.jobs["a"]
    assert kept.bound == kept.held == gpus(0, 0b1).suspended("resident")


def test_an_engine_that_lets_it_go_on_by_itself_is_told_again() -> None:
    world, planner = movers("1x1")
    planner.todo = [lambda view, plan: plan.start(view.jobs["a"], gpus(0, 0b1))]
    world.submit(job(1, id="a"))
    world.done("launch a")
    planner.todo = [lambda view, plan: plan.suspend(view.jobs["a"], "swapped")]
    world.step(TimerDue())
    world.done("suspend a")
    assert world.step(TasksResumed("a", 7.0, 1.0, 0.0, 1)) == ["suspend a"]


def test_who_cannot_be_suspended_is_stopped() -> None:
    world, _ = taking_turns()
    assert world.step(SuspendRefused("a", 1)) == ["stop a"]
    assert world.done("stop a") == ["launch b"]
    assert world.state_of("a") is JobState.PENDING


def test_its_owner_can_stop_a_suspended_job() -> None:
    world, _ = taking_turns()
    world.done("suspend a")
    assert world.step(StopRequested("a", "enough")) == ["stop a"]
    world.done("stop a")
    assert world.state_of("a") is JobState.STOPPED


def test_nobody_stays_suspended_under_another_policy() -> None:
    world, _ = taking_turns()
    world.done("suspend a")
    assert world.step(PolicyChanged("other")) == ["stop a"]
    world.done("stop a")
    assert world.state_of("a") is JobState.PENDING


def test_a_move_that_is_heard_before_the_start_tells_of_both() -> None:
    state = State(cluster("2x1"))
    slow = Slow(build_planner("fifo", Setting(state.cluster)), state)
    slow.submit(job(1, id="a"))
    moving = state.jobs["a"]
    assert moving.state is JobState.LAUNCHING
    moving.launches = 2
    slow.step(TasksMoved("a", moving.held or Allocation((), 0), 0.0, 1.0, 0.0, 2), TasksStarted("a", 1.0, 0.0, 1))
    assert (moving.state, moving.held_launch, moving.held_gpus) == (JobState.RUNNING, 2, 1)
