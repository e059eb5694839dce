"""Where the jobs of a pipeline are kept, and which lines its walk tries."""

from __future__ import annotations

from tests.support import job
from tests.support.world import WorldCourse
from tests.unit.policies.begun import begun as begun_with

from skep.policies.pipeline import Pipeline


def begun(policy: str, *, steps: int = 1) -> tuple[WorldCourse, Pipeline]:
    """On one node of four GPUs: a job on all of it, two small ones and a middle one behind it."""
    jobs = (
        job(4, work=100.0, at=0.0, id="large"),
        job(1, work=50.0, at=0.0, id="small-0"),
        job(1, work=50.0, at=0.0, id="small-1"),
        job(2, work=50.0, at=0.0, id="middle"),
    )
    return begun_with(policy, *jobs, on="1x4", steps=steps)


def test_jobs_with_equal_requests_stand_in_one_line_and_only_its_head_is_tried() -> None:
    course, planner = begun("fifo:walk=skip")
    jobs = course.state.jobs
    lines = {id: planner.pending.entries[jobs[id].seq][0] for id in ("small-0", "small-1", "middle")}
    assert lines["small-0"] is lines["small-1"] is not lines["middle"]
    assert [entry[3].id for entry in lines["small-0"].entries] == ["small-0", "small-1"]


def test_in_a_strict_walk_all_jobs_stand_in_one_line() -> None:
    course, planner = begun("fifo:walk=strict")
    lines = {id(line) for line, _ in planner.pending.entries.values()}
    assert len(planner.pending.entries) == 3
    assert len(lines) == 1
    assert course.state.jobs["large"].seq in planner.running.by_seq


def test_a_withdrawn_head_leaves_its_line_to_the_next_which_is_then_tried() -> None:
    course, planner = begun("fifo:walk=skip")
    first, second = course.state.jobs["small-0"], course.state.jobs["small-1"]
    line = planner.pending.entries[first.seq][0]
    assert planner.pending.touched == {}
    planner.withdraw(first)
    assert first.seq not in planner.pending.entries
    assert line.entries[0][3] is second
    assert planner.pending.touched == {line.scope: line}


def test_without_a_new_head_or_anything_freed_there_is_nothing_to_try() -> None:
    course, planner = begun("fifo:walk=skip")
    assert planner.walker.heads(course.state) == []


def test_a_job_that_was_let_go_is_no_longer_among_the_running() -> None:
    course, planner = begun("fifo:walk=skip")
    large, plan = course.state.jobs["large"], course.state.new_plan()
    planner.let_go(course.state, plan, large)
    assert large.seq not in planner.running.by_seq
    planner.take_over(course.state, plan, large)
    assert [entry[3] for entry in planner.running.entries] == [large]


def test_the_timer_of_a_running_job_orders_it_again_and_may_help_others() -> None:
    course, planner = begun("tiresias-l:queues=100")
    large, plan, epoch = course.state.jobs["large"], course.state.new_plan(), planner.pending.epoch
    course.state.now_s = 50.0
    assert planner.roster.rekey(course.state, plan, large) is None
    assert planner.running.by_seq[large.seq][1][0] == 1  # the second queue
    assert planner.pending.epoch > epoch


def test_the_timer_of_a_pending_job_puts_it_into_a_line_that_is_tried() -> None:
    course, planner = begun("fifo:walk=skip")
    middle, plan = course.state.jobs["middle"], course.state.new_plan()
    line = planner.roster.rekey(course.state, plan, middle)
    assert line is not None
    assert planner.pending.entries[middle.seq][0] is line
    assert line.scope in planner.pending.touched
