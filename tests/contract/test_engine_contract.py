"""What every engine must do, whatever it runs jobs on: see the docstrings of `Engine` in `core/ports.py`."""

from __future__ import annotations

from contextlib import closing

import pytest
from subjects import Subject

from skep.core.actions import Action, Checkpoint, Launch, Limit, Move, Reshare, Resume, Stop, Suspend, Tune
from skep.core.allocation import Seat
from skep.core.cluster import Allocation, Slice
from skep.core.errors import NotFound
from skep.core.events import NodeBack, NodeLost
from skep.core.ports import Capability, ForeignStore, StaleEpoch
from skep.core.reports import Exited, LaunchFailed, Looked, Moved, Progressed, Refused, Resumed, Started, Suspended

SUSPEND, LOGS = Capability.SUSPEND, Capability.LOGS
ALONE = Allocation((Slice(0, 0b1),), 1)
SLICE = ALONE.on_terms(mode="slice", milli=0, limit=1000, group="turns")


def on(*nodes: int, gpus: int = 1) -> Allocation:
    """One task on each of these nodes, with the first GPUs of it."""
    return Allocation(tuple(Slice(node, gpus=(1 << gpus) - 1) for node in nodes), gpus * len(nodes))


def started(subject: Subject, job_id: str = "1", launch: int = 1, node: int = 0) -> Launch:
    order = Launch(job_id, on(node), launch)
    subject.do(order)
    assert subject.wait(Started, job_id).launch == launch
    assert subject.goes_on(job_id)
    return order


# Starting and ending


def test_a_launch_runs_and_is_told(subject: Subject) -> None:
    started(subject)
    assert subject.there() == {("1", 1)}


def test_a_start_says_what_each_task_was_given(subject: Subject) -> None:
    """The numbers in the allocation mean nothing to an engine: nodes go by their names."""
    asked = Allocation((Slice(0, 0b11), Slice(1, 0b110)), 4)
    subject.engine.execute(subject.epoch, 0.0, [Launch("1", asked, 1, ("n1", "n0"))])
    given = subject.wait(Started).given
    assert [seat.node for seat in given] == ["n1", "n0"]
    if Capability.EXACT_GPUS in subject.engine.capabilities:
        assert [seat.gpus for seat in given] == [(0, 1), (1, 2)]


@pytest.mark.needs(Capability.MIGRATE)
def test_a_move_says_what_each_task_was_given(subject: Subject) -> None:
    started(subject)
    subject.do(Move("1", Allocation((Slice(1, 0b100),), 1), 2))
    (seat,) = subject.wait(Moved).given
    assert seat.node == "n1"
    if Capability.EXACT_GPUS in subject.engine.capabilities:
        assert seat.gpus == (2,)


def test_the_same_number_is_one_start_and_is_told_again(subject: Subject) -> None:
    order = started(subject)
    subject.do(order, order)
    subject.do(order)
    subject.wait(Started, count=3)
    assert subject.until(lambda: subject.starts() == [("1", 1)])


def test_a_job_that_is_asked_to_stop_leaves(subject: Subject) -> None:
    started(subject)
    subject.do(Stop("1", "preempted", 1))
    told = subject.wait(Exited)
    assert (told.launch, told.code, told.was_stopped) == (1, 143, True)
    assert not subject.there()


def test_one_that_does_not_leave_is_killed_after_its_grace_period(subject: Subject) -> None:
    subject.make_stubborn()
    started(subject)
    subject.do(Stop("1", "preempted", 1))
    told = subject.wait(Exited)
    assert (told.code, told.was_stopped) == (137, True)
    assert not subject.there()


def test_a_stop_for_an_earlier_start_comes_too_late(subject: Subject) -> None:
    started(subject, launch=2)
    subject.do(Stop("1", "preempted", 1))
    assert subject.goes_on()
    assert not subject.of(Exited)


def test_stopping_what_is_over_tells_how_it_ended(subject: Subject) -> None:
    started(subject)
    subject.finish()
    assert subject.wait(Exited).code == 0
    subject.do(Stop("1", "preempted", 1))
    assert subject.wait(Exited, count=2).launch == 1


def test_a_report_that_was_lost_comes_again_when_the_launch_is_asked_for_again(subject: Subject) -> None:
    order = started(subject)
    subject.finish()
    told = subject.wait(Exited)
    assert (told.code, told.was_stopped) == (0, False)
    subject.told.clear()
    subject.do(order)
    assert subject.wait(Exited).code == 0
    assert subject.until(lambda: subject.starts() == [("1", 1)])


def test_the_next_start_has_the_next_number(subject: Subject) -> None:
    started(subject)
    subject.do(Stop("1", "preempted", 1))
    subject.wait(Exited)
    subject.do(Launch("1", on(1), 2))
    assert subject.wait(Started, count=2).launch == 2
    assert subject.there() == {("1", 2)}


def test_a_look_comes_back_behind_the_exits(subject: Subject) -> None:
    started(subject)
    subject.finish()
    assert subject.until(lambda: not subject.there())
    subject.engine.look({"1"})
    assert subject.until(lambda: Looked() in subject.told)
    subject.wait(Exited)
    assert subject.told.index(subject.of(Exited)[0]) < subject.told.index(Looked())


def test_a_look_at_no_job_comes_back_too(subject: Subject) -> None:
    started(subject)
    subject.engine.look(())
    assert subject.until(lambda: Looked() in subject.told)
    assert subject.goes_on()


def test_a_settled_exit_does_not_come_back_and_the_next_start_works(subject: Subject) -> None:
    started(subject)
    subject.finish()
    subject.wait(Exited)
    for _ in range(2):
        subject.engine.settle(subject.epoch, "1", 1)
    started(subject, "2", node=1)
    subject.engine.settle(subject.epoch, "1", 1)
    assert subject.there() == {("2", 1)}
    assert subject.goes_on("2")
    assert len(subject.of(Exited)) == 1


def test_of_a_launch_that_fails_in_part_nothing_is_left(subject: Subject) -> None:
    if not subject.can_break:
        pytest.skip("no start fails here")
    two = on(0, 1)
    with subject.break_start():
        subject.do(Launch("1", two, 1))
        assert subject.wait(LaunchFailed).launch == 1
        assert not subject.there()
        assert not subject.of(Started)
    subject.do(Launch("1", two, 2))
    assert subject.wait(Started).launch == 2
    assert subject.goes_on()


# Moves and sizes


@pytest.mark.needs(Capability.MIGRATE)
def test_a_move_is_the_next_start_elsewhere(subject: Subject) -> None:
    started(subject)
    move = Move("1", on(1), 2)
    subject.do(move)
    assert subject.wait(Moved).launch == 2
    assert subject.there() == {("1", 2)}
    assert subject.goes_on()
    subject.do(move)
    subject.wait(Moved, count=2)
    assert subject.until(lambda: subject.starts() == [("1", 1), ("1", 2)])
    assert not subject.of(Exited)


@pytest.mark.needs(Capability.MIGRATE)
def test_two_jobs_swap_their_gpus(subject: Subject) -> None:
    started(subject, "1", node=0)
    started(subject, "2", node=1)
    subject.do(Move("1", on(1), 2), Move("2", on(0), 2))
    subject.wait(Moved, "1")
    subject.wait(Moved, "2")
    assert subject.there() == {("1", 2), ("2", 2)}


@pytest.mark.needs(Capability.MIGRATE)
def test_a_job_that_moves_can_be_stopped(subject: Subject) -> None:
    started(subject)
    subject.do(Move("1", on(1), 2), Stop("1", "preempted", 2))
    assert subject.wait(Exited).was_stopped
    assert subject.until(lambda: not subject.there())


@pytest.mark.needs(Capability.MIGRATE)
def test_a_job_that_ended_does_not_move(subject: Subject) -> None:
    started(subject)
    subject.finish()
    subject.wait(Exited)
    subject.do(Move("1", on(1), 2))
    subject.wait(Exited, count=2)
    assert not subject.of(Moved)


@pytest.mark.needs(Capability.RESIZE)
def test_a_resize_is_a_move_with_another_amount(subject: Subject) -> None:
    started(subject)
    subject.do(Move("1", on(0, 1, gpus=2), 2))
    assert subject.wait(Moved).launch == 2
    assert subject.there() == {("1", 2)}


# Standing still


@pytest.mark.needs(SUSPEND)
def test_a_suspended_job_stands_still_until_it_is_resumed(subject: Subject) -> None:
    started(subject)
    subject.do(Suspend("1", 1))
    assert subject.wait(Suspended).launch == 1
    assert subject.stands()
    assert subject.there() == {("1", 1)}
    subject.do(Resume("1", 1))
    assert subject.wait(Resumed).launch == 1
    assert subject.goes_on()


@pytest.mark.needs(SUSPEND)
def test_both_are_told_again_when_they_are_asked_again(subject: Subject) -> None:
    started(subject)
    subject.do(Suspend("1", 1), Suspend("1", 1))
    subject.wait(Suspended)
    subject.do(Suspend("1", 1))
    subject.wait(Suspended, count=2)
    subject.do(Resume("1", 1))
    subject.wait(Resumed)
    subject.do(Resume("1", 1))
    subject.wait(Resumed, count=2)
    assert subject.goes_on()


@pytest.mark.needs(SUSPEND)
def test_orders_for_an_earlier_start_do_nothing(subject: Subject) -> None:
    started(subject, launch=2)
    subject.do(Suspend("1", 1))
    subject.pass_time()
    assert subject.goes_on()
    assert not subject.of(Suspended)
    subject.do(Suspend("1", 2))
    subject.wait(Suspended)
    subject.do(Resume("1", 1))
    assert subject.stands()


@pytest.mark.needs(SUSPEND)
def test_a_suspended_job_can_be_stopped(subject: Subject) -> None:
    started(subject)
    subject.do(Suspend("1", 1))
    subject.wait(Suspended)
    subject.do(Stop("1", "preempted", 1))
    assert subject.wait(Exited).was_stopped
    assert not subject.there()


@pytest.mark.needs(SUSPEND)
def test_a_suspended_job_that_dies_is_noticed(subject: Subject) -> None:
    if not subject.can_be_killed:
        pytest.skip("no job dies here")
    started(subject)
    subject.do(Suspend("1", 1))
    subject.wait(Suspended)
    subject.kill()
    told = subject.wait(Exited)
    assert (told.code, told.was_stopped) == (137, False)


# Share groups


def slices(launch: int, *job_ids: str) -> list[Launch]:
    return [Launch(job_id, SLICE, launch) for job_id in job_ids]


@pytest.mark.needs(Capability.SHARE)
def test_members_of_a_share_group_all_go_on(subject: Subject) -> None:
    subject.adopt()
    subject.do(*slices(1, "1", "2", "3"))
    for job_id in ("1", "2", "3"):
        assert subject.wait(Started, job_id).launch == 1
    assert all(subject.goes_on(job_id) for job_id in ("1", "2", "3", "1", "2", "3"))


@pytest.mark.needs(Capability.SHARE)
def test_other_terms_are_not_answered_and_the_job_goes_on(subject: Subject) -> None:
    subject.adopt()
    subject.do(Launch("1", ALONE, 1))
    subject.wait(Started)
    subject.do(Reshare("1", 1, SLICE), *slices(1, "2"))
    subject.wait(Started, "2")
    assert subject.goes_on("1")
    assert subject.goes_on("2")
    subject.do(Stop("2", "done", 1))
    subject.wait(Exited, "2")
    subject.do(Reshare("1", 1, ALONE), Reshare("1", 1, ALONE))
    assert subject.goes_on("1")
    assert not subject.of(Refused)
    assert len(subject.starts()) == 2


@pytest.mark.needs(Capability.SHARE)
def test_a_member_of_a_share_group_can_be_stopped_and_moved(subject: Subject) -> None:
    subject.adopt()
    subject.do(*slices(1, "1", "2", "3"))
    for job_id in ("1", "2", "3"):
        subject.wait(Started, job_id)
    subject.do(Stop("1", "preempted", 1), Move("2", on(1, gpus=1), 2))
    assert subject.wait(Exited, "1").was_stopped
    assert subject.wait(Moved, "2").launch == 2
    assert subject.goes_on("2")
    assert subject.goes_on("3")


@pytest.mark.needs(Capability.SHARE, SUSPEND)
def test_a_member_of_a_share_group_can_be_suspended(subject: Subject) -> None:
    subject.adopt()
    subject.do(*slices(1, "1", "2"))
    subject.wait(Started, "1")
    subject.wait(Started, "2")
    subject.do(Suspend("1", 1))
    subject.wait(Suspended)
    assert subject.stands("1")
    assert subject.goes_on("2")
    subject.do(Resume("1", 1))
    subject.wait(Resumed)
    assert subject.goes_on("1")
    assert subject.goes_on("2")


@pytest.mark.needs(Capability.SHARE)
def test_a_share_group_is_adopted(subject: Subject) -> None:
    subject.adopt()
    subject.do(*slices(1, "1", "2"))
    subject.wait(Started, "1")
    subject.wait(Started, "2")
    subject.crash()
    assert subject.goes_on("1")
    assert subject.goes_on("2")
    subject.adopt(*slices(1, "1", "2"), Reshare("1", 1, SLICE), Reshare("2", 1, SLICE))
    assert all(subject.goes_on(job_id) for job_id in ("1", "2", "1", "2"))
    assert len(subject.starts()) == 2


# Crashes


def test_what_runs_is_adopted_and_told_again(subject: Subject) -> None:
    order = started(subject)
    subject.crash()
    subject.told.clear()
    subject.adopt(order)
    assert subject.wait(Started).launch == 1
    assert subject.goes_on()
    assert subject.until(lambda: subject.starts() == [("1", 1)])


def test_what_was_not_begun_before_the_crash_is_begun(subject: Subject) -> None:
    subject.crash()
    subject.adopt(Launch("1", on(0), 1))
    subject.wait(Started)
    assert subject.until(lambda: subject.starts() == [("1", 1)])


def test_an_end_that_nobody_heard_is_told_on_adoption(subject: Subject) -> None:
    order = started(subject)
    subject.crash()
    subject.finish()
    assert subject.until(lambda: not subject.there())
    subject.told.clear()
    subject.adopt(order)
    told = subject.wait(Exited)
    assert (told.launch, told.code, told.was_stopped) == (1, 0, False)


def test_what_nobody_knows_is_ended_and_not_told_of(subject: Subject) -> None:
    started(subject, "1")
    kept = started(subject, "2", node=1)
    subject.crash()
    subject.told.clear()
    subject.adopt(kept)
    assert subject.until(lambda: subject.there() == {("2", 1)})
    subject.wait(Started, "2")
    assert not subject.of(Started, "1")


@pytest.mark.needs(Capability.MIGRATE)
def test_a_move_that_nobody_heard_of_is_told_on_adoption(subject: Subject) -> None:
    order, move = started(subject), Move("1", on(1), 2)
    subject.do(move)
    subject.wait(Moved)
    subject.crash()
    subject.told.clear()
    subject.adopt(order, move)
    assert subject.wait(Moved).launch == 2
    assert subject.there() == {("1", 2)}


@pytest.mark.needs(SUSPEND)
def test_a_crash_leaves_nobody_standing_for_ever(subject: Subject) -> None:
    """The next server says whether the job is to stand still."""
    order = started(subject)
    subject.do(Suspend("1", 1))
    subject.wait(Suspended)
    subject.crash()
    subject.told.clear()
    subject.adopt(order, Suspend("1", 1))
    subject.wait(Suspended)
    assert subject.stands()
    subject.crash()
    subject.adopt(order, Resume("1", 1))
    subject.wait(Resumed)
    assert subject.goes_on()


# Epochs


def test_a_server_that_was_replaced_is_refused(subject: Subject) -> None:
    order = started(subject)
    before, epoch = subject.engine, subject.epoch
    subject.crash()
    subject.adopt(order)
    assert subject.engine.last_epoch() == subject.epoch > epoch
    for engine in (subject.engine, before):
        for stale in (
            lambda engine=engine: engine.execute(epoch, 0.0, [Stop("1", "preempted", 1)]),
            lambda engine=engine: engine.lose_node(epoch, "n0"),
            lambda engine=engine: engine.restore_node(epoch, "n0"),
        ):
            with pytest.raises(StaleEpoch, match=f"epoch {subject.epoch}; this one has {epoch}"):
                stale()
    assert subject.goes_on()
    assert not subject.of(Exited)


def test_a_server_on_another_store_is_refused_and_ends_nothing(subject: Subject) -> None:
    if not subject.is_apart:
        pytest.skip("its launches are in the data folder of the store")
    order = started(subject)
    subject.crash()
    for known in ("other", "new"):
        with pytest.raises(ForeignStore, match=f"another store .*this one is {known}"):
            subject.adopt(store=known)
    assert subject.there() == {("1", 1)}
    subject.adopt(order)
    assert subject.there() == {("1", 1)}
    subject.crash()
    subject.adopt(store="new", is_new=True)
    assert subject.until(lambda: not subject.there())
    subject.crash()
    with pytest.raises(ForeignStore, match=r"another store .new") as refused:
        subject.adopt(order)
    assert "--new" in refused.value.hint


# Nodes


def test_a_lost_node_ends_what_is_there_and_takes_nothing_new(subject: Subject) -> None:
    started(subject, "1", node=0)
    started(subject, "2", node=1)
    subject.engine.lose_node(subject.epoch, "n0")
    assert subject.until(lambda: NodeLost("n0") in subject.told)
    told = subject.wait(Exited, "1")
    assert (told.cause, told.was_stopped) == ("node-lost", False)
    assert subject.goes_on("2")
    subject.do(Launch("3", on(0), 1))
    failed = subject.wait(LaunchFailed, "3")
    assert "n0" in failed.reason
    assert failed.cause in ("node-lost", "shortage"), "it is not the fault of the job"
    subject.engine.restore_node(subject.epoch, "n0")
    assert subject.until(lambda: NodeBack("n0") in subject.told)
    subject.do(Launch("3", on(0), 2))
    assert subject.wait(Started, "3").launch == 2


# Logs and progress


def read(subject: Subject, **which: object) -> str:
    with closing(subject.engine.open_log("1", **which)) as log:  # type: ignore[arg-type]
        return b"".join(iter(log.read, b"")).decode()


@pytest.mark.needs(LOGS)
def test_a_log_is_followed_into_the_next_start(subject: Subject) -> None:
    found = b""

    def has(text: bytes) -> bool:
        nonlocal found
        found += log.read()
        return found == text

    with closing(subject.engine.open_log("1")) as log:
        assert log.read() == b""
        started(subject)
        subject.print("one\n")
        assert subject.until(lambda: has(b"one\n"))
        subject.print("two\n")
        assert subject.until(lambda: has(b"one\ntwo\n"))
        subject.do(Stop("1", "preempted", 1))
        subject.wait(Exited)
        subject.do(Launch("1", on(0), 2))
        subject.wait(Started, count=2)
        assert subject.goes_on()
        subject.print("three\n")
        assert subject.until(lambda: has(b"one\ntwo\nthree\n"))
    assert read(subject, launch=1) == "one\ntwo\n"
    assert read(subject, launch=1, tail=1) == "two\n"
    assert read(subject) == "three\n"


@pytest.mark.needs(LOGS)
def test_logs_that_cannot_be_are_not_found(subject: Subject) -> None:
    with pytest.raises(NotFound, match="not started yet"):
        subject.engine.check_log("1")
    started(subject)
    subject.engine.check_log("1")
    with pytest.raises(NotFound, match="attempt 2 does not exist"):
        subject.engine.check_log("1", launch=2)


@pytest.mark.needs(LOGS)
def test_tasks_say_how_they_stand(subject: Subject) -> None:
    assert subject.engine.tasks("1") == []
    started(subject)
    assert [(task.state, task.node) for task in subject.engine.tasks("1")] == [("running", "n0")]
    subject.finish()
    subject.wait(Exited)
    assert [(task.state, task.exit_code) for task in subject.engine.tasks("1")] == [("succeeded", 0)]


@pytest.mark.needs(LOGS)
def test_tasks_sit_where_the_allocation_seats_them(subject: Subject) -> None:
    subject.do(Launch("1", Allocation((Slice(0, gpus=0b111, tasks=3),), 3), 1))
    subject.wait(Started)
    assert [(task.node, task.gpus) for task in subject.engine.tasks("1")] == [("n0", [0]), ("n0", [1]), ("n0", [2])]
    usual = Allocation((Slice(1, gpus=0b111, tasks=3),), 3)
    subject.do(Launch("2", usual.seated([Seat(0, 1, (gpu,)) for gpu in (1, 2, 0)]), 1))
    subject.wait(Started, "2")
    assert [(task.node, task.gpus) for task in subject.engine.tasks("2")] == [("n1", [1]), ("n1", [2]), ("n1", [0])]


@pytest.mark.slow
@pytest.mark.needs(Capability.CHECKPOINT)
def test_a_job_saves_when_it_is_asked_and_goes_on(subject: Subject) -> None:
    subject.train()
    subject.do(Launch("1", on(0), 1))
    subject.wait(Started)
    assert subject.until(lambda: subject.engine.progress("1").get("step") is not None)
    subject.do(Checkpoint("1", 1))
    assert subject.until(lambda: subject.engine.progress("1").get("checkpoint_step") is not None)
    assert subject.until(lambda: any(told.values.get("checkpoint_step") for told in subject.of(Progressed)))
    assert not subject.of(Refused)
    assert subject.there() == {("1", 1)}


@pytest.mark.slow
@pytest.mark.needs(Capability.TUNE)
def test_settings_reach_the_job(subject: Subject) -> None:
    subject.train()
    subject.do(Launch("1", on(0), 1))
    subject.wait(Started)
    assert subject.until(lambda: subject.engine.progress("1").get("step") is not None)
    subject.do(Tune("1", 1, {"batch": 64, "rate": 0.5}))
    subject.do(Tune("1", 1, {"rate": 0.25}))
    assert subject.until(lambda: subject.settings() == {"batch": 64, "rate": 0.25})


@pytest.mark.parametrize(
    ("capability", "action"),
    [
        (Capability.SUSPEND, Suspend("1", 1)),
        (Capability.SWAP, Suspend("1", 1, "swapped")),
        (Capability.LIMIT, Limit("1", 1, 500)),
        (Capability.TUNE, Tune("1", 1, {"batch": 64})),
        (Capability.CHECKPOINT, Checkpoint("1", 1)),
    ],
)
def test_what_is_not_offered_is_refused_and_changes_nothing(
    subject: Subject, capability: Capability, action: Action
) -> None:
    if capability in subject.engine.capabilities:
        pytest.skip("it is offered")
    started(subject)
    subject.do(action)
    told = subject.wait(Refused)
    assert (told.launch, told.action) == (1, type(action).__name__.lower())
    assert told.reason
    assert subject.goes_on()
