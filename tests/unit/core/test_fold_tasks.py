"""Events about the tasks of jobs: what they change, and that stale and duplicate ones change nothing."""

from __future__ import annotations

import pytest
from tests.support import job
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.actions import Stop, Suspend
from skep.core.cluster import Allocation, Slice
from skep.core.events import (
    Event,
    Exit,
    NodeLost,
    ProgressReported,
    SuspendRefused,
    TasksExited,
    TasksMoved,
    TasksPlaced,
    TasksResumed,
    TasksStarted,
    TasksSuspended,
)
from skep.core.job import JobState
from skep.core.progress import Report
from skep.core.snapshot import dump
from skep.core.timers import LIMIT


@pytest.fixture
def world() -> ByHand:
    """Job `a` runs since 10 s on one GPU; `b` is pending."""
    world = ByHand(job(id="a", time_limit_s=100.0), job(id="b"))
    world.state.now_s = 10.0
    world.start("a", gpus(0, 0b1))
    return world


def test_a_start_begins_all_clocks(world: ByHand) -> None:
    a = world["a"]
    assert (a.state, a.start_s, a.held_since_s, a.progress_since_s, a.rate) == (JobState.RUNNING, 10.0, 10.0, 10.0, 1.0)
    assert (a.held_gpus, a.gpu_count) == (1, 1)
    assert world.state.timers.next_s == 110.0


@pytest.mark.parametrize(
    "event",
    [
        TasksStarted("a", 1.0, 20.0, 1),
        TasksStarted("nosuch", 1.0, 20.0),
        TasksStarted("b", 1.0, 20.0),
        TasksMoved("b", gpus(0, 1), 0.0, 1.0, 20.0),
        TasksMoved("a", gpus(0, 1), 0.0, 1.0, 20.0, 1),
        TasksPlaced("nosuch", gpus(0, 0b10), 1),
        TasksPlaced("b", gpus(0, 0b10), 1),
        TasksSuspended("b", 0.0),
        TasksResumed("a", 0.0, 1.0, 20.0),
        TasksExited("b", Exit.FINISHED, 0.0),
        TasksExited("nosuch", Exit.FINISHED, 0.0),
        SuspendRefused("a"),
        ProgressReported("b", work_s=3.0),
    ],
    ids=str,
)
def test_what_does_not_concern_a_launch_changes_nothing(world: ByHand, event: Event) -> None:
    before = dump(world.state)
    world.apply(event)
    world.state.version -= 1
    assert dump(world.state) == before


def test_reports_of_an_earlier_launch_are_stale(world: ByHand) -> None:
    world.decide(lambda plan: plan.stop(world["a"], "b"))
    world.apply(TasksExited("a", Exit.PREEMPTED, 5.0, 1), at_s=20.0)
    world.decide(lambda plan: plan.start(world["a"], gpus(0, 0b10)))
    world.apply(TasksStarted("a", 1.0, 20.0, 1))
    assert world["a"].state is JobState.LAUNCHING
    world.apply(TasksStarted("a", 1.0, 20.0, 2))
    assert world["a"].held_launch == 2
    world.apply(TasksExited("a", Exit.FINISHED, 9.0, 1), at_s=30.0)
    assert world["a"].state is JobState.RUNNING
    world.apply(TasksExited("a", Exit.FINISHED, 9.0, 2), at_s=40.0)
    assert (world["a"].state, world["a"].finish_s, world["a"].run_s) == (JobState.SUCCEEDED, 40.0, 30.0)


@pytest.mark.parametrize(
    ("exit", "preemptions", "retries", "wakes"),
    [(Exit.PREEMPTED, 1, 0, False), (Exit.RETRIED, 0, 1, True), (Exit.NODE_LOST, 0, 0, True)],
)
def test_exits_that_bring_a_job_back(world: ByHand, exit: Exit, preemptions: int, retries: int, wakes: bool) -> None:
    pending = world.state.pending_count
    trigger = world.apply(TasksExited("a", exit, 7.0, 1), at_s=25.0)
    a = world["a"]
    assert (a.state, a.pending_since_s, a.work_s, a.saved_s) == (JobState.PENDING, 25.0, 7.0, 7.0)
    assert (a.preemptions, a.retries, trigger.nodes_changed) == (preemptions, retries, wakes)
    assert trigger.returned == [a]
    assert world.state.pending_count == pending + 1
    assert (a.held, a.bound, a.allocation, a.held_gpus, a.rate) == (None, None, None, 0, 0.0)
    assert not world.state.timers
    assert (a.run_s, a.service_gpu_s, a.busy_gpu_s) == (15.0, 15.0, 15.0)


def test_a_restart_is_held_and_not_busy() -> None:
    world = ByHand(job(id="a"))
    world.decide(lambda plan: plan.start(world["a"], gpus(0, 0b1)))
    world.apply(TasksStarted("a", 1.0, 4.0, 1))  # it makes progress from 4 s on
    world.apply(TasksExited("a", Exit.PREEMPTED, 6.0, 1), at_s=10.0)
    assert (world["a"].service_gpu_s, world["a"].busy_gpu_s) == (10.0, 6.0)


def test_the_books_follow_what_an_engine_gave_instead(world: ByHand) -> None:
    trigger = world.apply(TasksPlaced("a", gpus(1, 0b1), 1))
    a = world["a"]
    assert (a.allocation, a.bound, a.held) == (gpus(1, 0b1),) * 3
    assert (a.state, trigger.nodes_changed) == (JobState.RUNNING, True)
    assert [node.free for node in world.state.cluster.nodes] == [2, 1]


@pytest.mark.parametrize("given", [None, gpus(0, 0b10)], ids=["a place that does not exist", "one that is taken"])
def test_a_job_that_an_engine_put_where_it_cannot_be_is_stopped(world: ByHand, given: Allocation | None) -> None:
    world.start("b", gpus(0, 0b10))
    world.apply(TasksPlaced("a", given, 1))
    assert (world["a"].state, world["a"].held) == (JobState.STOPPING, gpus(0, 0b1))
    assert [type(action) for action in world.state.send()] == [Stop]


def test_a_move_counts_as_a_migration_and_another_size_as_a_resize() -> None:
    world = ByHand(job(1, id="a"))
    world.start("a", gpus(0, 0b1))
    world.decide(lambda plan: plan.move(world["a"], gpus(1, 0b1)))
    assert list(world.state.orders.moving) == [world["a"].seq]
    world.apply(TasksMoved("a", gpus(1, 0b1), 3.0, 1.0, 9.0, 2), at_s=8.0)
    a = world["a"]
    assert (a.migrations, a.resizes, a.work_s, a.saved_s, a.progress_since_s) == (1, 0, 3.0, 3.0, 9.0)
    assert (a.held, a.held_launch, a.run_s) == (gpus(1, 0b1), 2, 8.0)
    assert not world.state.orders.moving
    before = world.state.event_count
    world.state.advance(world.state.now_s, [TasksMoved("a", gpus(1, 0b11), 4.0, 1.0, 9.0, 3)])
    assert (a.migrations, a.resizes, a.held_gpus, a.gpu_count) == (1, 1, 2, 2)
    assert world.state.event_count == before + 1


@pytest.mark.parametrize(("reported", "launch"), [(0, 3), (2, 2), (3, 3)])
def test_a_move_is_of_the_launch_that_is_reported_or_of_the_last_one(reported: int, launch: int) -> None:
    """Logs of older formats do not number moves. A job that was sent elsewhere meanwhile is still moving."""
    world = ByHand(job(1, id="a"))
    world.start("a", gpus(0, 0b1))
    world.decide(lambda plan: plan.move(world["a"], gpus(1, 0b1)))
    world.decide(lambda plan: plan.move(world["a"], gpus(1, 0b10)))
    assert world["a"].launches == 3
    world.state.advance(world.state.now_s, [TasksMoved("a", gpus(1, 0b1), 3.0, 1.0, 9.0, reported)])
    assert world["a"].held_launch == launch


def test_a_move_that_is_over_wakes_those_who_were_refused_because_of_it() -> None:
    world = ByHand(job(1, id="a"))
    world.start("a", gpus(0, 0b1))
    world.decide(lambda plan: plan.move(world["a"], gpus(1, 0b1)))
    assert world.apply(TasksMoved("a", gpus(1, 0b1), 3.0, 1.0, 9.0, 2), at_s=8.0).nodes_changed


def test_a_job_that_exits_while_it_should_move_is_not_moving_any_more() -> None:
    world = ByHand(job(1, id="a"))
    world.start("a", gpus(0, 0b1))
    world.decide(lambda plan: plan.move(world["a"], gpus(1, 0b1)))
    world.state.now_s = 8.0
    world.state.advance(world.state.now_s, [TasksExited("a", Exit.FINISHED, 8.0, 1)])
    assert (world["a"].state, list(world.state.orders.moving)) == (JobState.SUCCEEDED, [])


def test_jobs_that_were_refused_because_of_a_suspension_are_tried_again(world: ByHand) -> None:
    world.suspend("a")
    assert world.apply(TasksSuspended("a", 15.0, launch=1), at_s=30.0).nodes_changed
    world.decide(lambda plan: plan.resume(world["a"]))
    assert world.apply(TasksResumed("a", 15.0, 1.0, 40.0, launch=1), at_s=40.0).nodes_changed


def test_suspension_stops_the_clocks_and_the_limit(world: ByHand) -> None:
    world.suspend("a")
    world.apply(TasksSuspended("a", 15.0, launch=1, saved_s=12.0), at_s=30.0)
    a = world["a"]
    assert (a.is_halted, a.held_gpus, a.work_s, a.saved_s, a.rate) == (True, 0, 15.0, 12.0, 0.0)
    assert (a.run_s, a.service_gpu_s) == (20.0, 20.0)
    assert not world.state.timers
    world.apply(TasksSuspended("a", 99.0, launch=1), at_s=31.0)
    assert a.work_s == 15.0, "a duplicate"
    world.apply(ProgressReported("a", work_s=50.0, launch=1))
    assert a.work_s == 15.0, "it was suspended by then"
    world.apply(TasksExited("a", Exit.STOPPED, 15.0, 1), at_s=50.0)
    assert (a.run_s, a.service_gpu_s) == (20.0, 20.0)


def test_a_resumed_job_has_what_is_left_of_its_limit(world: ByHand) -> None:
    world.suspend("a")
    world.apply(TasksSuspended("a", 15.0, launch=1), at_s=30.0)
    world.decide(lambda plan: plan.resume(world["a"]))
    world.apply(TasksResumed("a", 14.0, 0.5, 52.0, 1), at_s=50.0)
    a = world["a"]
    assert (a.held_gpus, a.rate, a.work_s, a.progress_since_s, a.held_since_s) == (1, 0.5, 14.0, 52.0, 50.0)
    assert not world.state.orders.dirty, "it is where it is wanted"
    assert (world.state.timers.next_s, world.state.due(130.0)[0].kind) == (130.0, LIMIT)


def test_a_refused_suspension_becomes_a_stop(world: ByHand) -> None:
    world.suspend("a")
    world.state.advance(world.state.now_s, [SuspendRefused("a", 1)])
    assert (world["a"].state, world["a"].bound) == (JobState.STOPPING, None)
    assert [type(action) for action in world.decide()] == [Stop]


def test_progress_moves_work_but_not_a_restart_in_flight(world: ByHand) -> None:
    a = world["a"]
    a.progress_since_s = 40.0
    world.apply(ProgressReported("a", work_s=3.0, saved_s=2.0, rate=2.0, launch=1), at_s=20.0)
    assert (a.work_s, a.saved_s, a.rate, a.progress_since_s) == (3.0, 2.0, 2.0, 40.0)
    world.apply(ProgressReported("a", work_s=4.0, launch=1), at_s=60.0)
    assert (a.work_s, a.saved_s, a.rate, a.progress_since_s) == (4.0, 2.0, 2.0, 60.0)


def test_an_unknown_rate_is_taken_to_be_in_proportion() -> None:
    world = ByHand(job(2, id="a"))
    world.decide(lambda plan: plan.start(world["a"], gpus(0, 0b11)))
    world.apply(TasksStarted("a", None, 0.0, 1))
    assert (world["a"].rate, world["a"].is_rate_known) == (1.0, False)


def test_a_lost_node_takes_its_jobs_only_by_their_exits(world: ByHand) -> None:
    name = world.state.cluster.nodes[0].name
    trigger = world.apply(NodeLost(name), at_s=20.0)
    assert world["a"].state is JobState.RUNNING, "the engine reports its exit"
    assert trigger.nodes_changed
    world.apply(TasksExited("a", Exit.NODE_LOST, 0.0, 1))
    assert world["a"].state is JobState.PENDING


def test_the_measured_share_of_its_gpus_is_that_of_the_present_run(world: ByHand) -> None:
    a = world["a"]
    world.suspend("a")
    world.apply(TasksSuspended("a", 15.0, launch=1), at_s=30.0)
    world.decide(lambda plan: plan.resume(a))
    world.apply(TasksResumed("a", 15.0, 1.0, 40.0, launch=1, share=0.25), at_s=40.0)
    assert a.share == 0.25
    world.apply(TasksExited("a", Exit.FINISHED, 20.0, 1), at_s=60.0)
    assert a.share is None


def test_a_job_is_busy_with_the_share_that_it_had_at_each_time(world: ByHand) -> None:
    """All of its GPU for 10 s, half of it for another 10."""
    world.apply(ProgressReported("a", launch=1, share=0.5), at_s=20.0)
    world.apply(TasksExited("a", Exit.PREEMPTED, 15.0, 1), at_s=30.0)
    assert (world["a"].service_gpu_s, world["a"].busy_gpu_s) == (15.0, 15.0)


def test_a_start_that_took_long_wakes_those_who_were_refused_because_of_it() -> None:
    world = ByHand(job(2, id="a"), job(id="b"))
    world.decide(lambda plan: plan.start(world["a"], Allocation((Slice(0, 0b1, tasks=2),), 1)))
    trigger = world.apply(TasksStarted("a", 1.0, 5.0, 1, share=0.5), at_s=5.0)
    assert (trigger.nodes_changed, world["a"].gpu_count, world["a"].share) == (True, 1, 0.5)
    world.decide(lambda plan: plan.start(world["b"], gpus(1, 0b1)))
    assert not world.apply(TasksStarted("b", 1.0, 5.0, 1)).nodes_changed, "in the same instant none was refused"


def test_a_start_on_a_part_of_a_gpu_tells_that_its_neighbours_are_slower() -> None:
    world = ByHand(job(1, id="a", gpu_milli=500), job(id="b"))
    world.decide(lambda plan: plan.start(world["a"], Allocation((Slice(0, 0b1, milli=500),), 0.5)))
    assert world.apply(TasksStarted("a", 1.0, 0.0, 1)).is_slowed
    world.decide(lambda plan: plan.start(world["b"], gpus(1, 0b1)))
    assert not world.apply(TasksStarted("b", 1.0, 0.0, 1)).is_slowed


def test_a_job_that_has_moved_and_is_to_be_suspended_meanwhile_is_sent_that() -> None:
    world = ByHand(job(id="a"))
    world.start("a", gpus(0, 0b1))
    world.decide(lambda plan: plan.move(world["a"], gpus(1, 0b1)))
    world.suspend("a")
    assert world.actions == []
    world.apply(TasksMoved("a", gpus(1, 0b1), 3.0, 1.0, 9.0, 2), at_s=8.0)
    assert [type(action) for action in world.decide()] == [Suspend]


def test_a_job_that_is_stopped_is_sent_nothing_more_when_its_suspension_is_reported(world: ByHand) -> None:
    world.suspend("a")
    world.decide(lambda plan: plan.stop(world["a"], "b"))
    world.apply(TasksSuspended("a", 15.0, launch=1), at_s=30.0)
    assert world.state.send() == []


def test_progress_is_known_of_the_present_launch_only(world: ByHand) -> None:
    world.decide(lambda plan: plan.stop(world["a"], "b"))
    world.apply(TasksExited("a", Exit.PREEMPTED, 5.0, 1), at_s=20.0)
    world.start("a", gpus(0, 0b10))
    world.apply(ProgressReported("a", work_s=50.0, report=Report(9.0), launch=1), at_s=30.0)
    assert (world["a"].work_s, world.state.knowledge.progress) == (5.0, {})
    world.apply(ProgressReported("a", report=Report(9.0), launch=2))
    assert world.state.knowledge.progress["a"].report.step == 9.0


def test_what_was_predicted_is_doubtful_after_each_report_move_and_resumption(world: ByHand) -> None:
    counts = [world.state.report_count]

    def happens(event: Event) -> None:
        world.apply(event)
        counts.append(world.state.report_count)

    happens(ProgressReported("a", work_s=3.0, launch=1))
    happens(ProgressReported("b", work_s=3.0))
    world.decide(lambda plan: plan.move(world["a"], gpus(1, 0b1)))
    happens(TasksMoved("a", gpus(1, 0b1), 3.0, 1.0, 9.0, 2))
    world.suspend("a")
    happens(TasksSuspended("a", 15.0, launch=2))
    world.decide(lambda plan: plan.resume(world["a"]))
    happens(TasksResumed("a", 15.0, 1.0, 40.0, launch=2))
    assert counts == [0, 1, 1, 2, 2, 3]
