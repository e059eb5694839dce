"""What the simulator does with work, restarts, failures, moves and rounds."""

from __future__ import annotations

import math

import msgspec
import pytest
from tests.support import World, check, cluster, job, trace
from tests.support.world import WorldCourse

from skep.core.cluster import Allocation, Slice
from skep.core.events import Event, ProgressReported, TasksStarted
from skep.core.job import Job, JobState
from skep.core.memory import Memory
from skep.core.model import Declares, Shape, gpu_shape
from skep.core.plan import Plan
from skep.core.refusal import Cause, Refusal
from skep.core.state import State
from skep.core.step import Scheduler
from skep.core.view import Trigger
from skep.experiments.simulate import Experiment, Options
from skep.metrics.run import JobRow
from skep.profiles.native import read_native
from skep.traces.trace import TraceJob


def rows(*jobs: TraceJob, on: str = "1x1", policy: str = "fifo", **more: object) -> dict[str, JobRow]:
    course = World(trace(*jobs), cluster(on), policy, **more).run()
    return {row.job_id: row for row in course.rows()}


def test_a_job_alone_runs_as_long_as_its_work() -> None:
    row = rows(job(1, at=5.0, work=60.0, id="a"))["a"]
    assert (row.start_s, row.finish_s, row.run_s, row.queue_s, row.service_gpu_s) == (5.0, 65.0, 60.0, 0.0, 60.0)


def test_a_job_without_work_ends_at_once() -> None:
    row = rows(job(1, at=5.0, work=0.0, id="a"))["a"]
    assert (row.start_s, row.finish_s, row.run_s) == (5.0, 5.0, 0.0)


@pytest.mark.parametrize(
    ("restart_s", "finish_s", "run_s"),
    [(0.0, 110.0, 100.0), (30.0, 140.0, 130.0)],
    ids=["free restarts", "every start but the first costs"],
)
def test_a_preempted_job_goes_on_where_it_was(restart_s: float, finish_s: float, run_s: float) -> None:
    found = rows(job(id="long"), job(id="short", at=50.0, work=10.0), policy="srtf", restart_s=restart_s)
    long, short = found["long"], found["short"]
    assert (short.start_s, short.finish_s, short.run_s) == (50.0, 60.0, 10.0)
    assert (long.finish_s, long.run_s, long.preemptions, long.queue_s) == (finish_s, run_s, 1, 10.0)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.engines.sim.engine.FRUITLESS_MAX", 50)


def finishes(*jobs: TraceJob, on: str = "1x1", policy: str = "fifo", **more: object) -> list[float | None]:
    options = Options(restart_s=30.0, **more)  # type: ignore[arg-type]
    return [row.finish_s for row in Experiment(trace(*jobs), cluster(on), options).run(policy).rows]


@pytest.mark.usefixtures("impatient")
def test_jobs_that_take_turns_too_short_for_their_restarts_are_given_up() -> None:
    assert finishes(job(), job(), policy="las:service=seconds", round_s=20.0) == [None, None]


@pytest.mark.usefixtures("impatient")
def test_a_job_that_gets_on_is_not_given_up_for_others_that_do_not() -> None:
    long = job(work=9000.0, priority=1)
    found = finishes(long, job(), job(), on="2x1", policy="las:service=seconds", round_s=20.0)
    assert found == [9000.0, 9110.0, 9090.0]  # and then they have a node each


def test_failures_are_drawn_from_the_first_submission_on() -> None:
    """Whatever the clock of the trace says."""
    early = finishes(job(work=5000.0), failures="mtbf=3000,repair=100")
    late = finishes(job(at=1.6e9, work=5000.0), failures="mtbf=3000,repair=100")
    assert late == [pytest.approx(1.6e9 + finish_s, abs=1e-3) for finish_s in early if finish_s]


@pytest.mark.usefixtures("impatient")
def test_a_job_whose_node_fails_before_each_checkpoint_is_given_up() -> None:
    assert finishes(job(work=1e6), failures="mtbf=10,repair=10") == [None]


def test_an_interrupted_restart_begins_anew() -> None:
    found = rows(
        job(id="long"),
        job(id="one", at=50.0, work=10.0),
        job(id="two", at=80.0, work=10.0),
        policy="srtf",
        restart_s=30.0,
    )
    # 0-50 work, 60-80 restart broken off, 90-120 restart, 120-170 work
    assert found["long"].finish_s == 170.0
    assert found["long"].run_s == 150.0
    assert found["long"].preemptions == 2


@pytest.mark.parametrize(
    ("checkpoint_s", "lost_at", "finish_s"),
    [
        pytest.param(600.0, 50.0, 160.0, id="no checkpoint yet: all is lost"),
        pytest.param(20.0, 50.0, 120.0, id="the last checkpoint was at 40"),
        pytest.param(20.0, 60.0, 110.0, id="one was just made"),
        pytest.param(0.0, 50.0, 110.0, id="always saved"),
    ],
)
def test_a_failure_loses_what_came_after_the_last_checkpoint(
    checkpoint_s: float, lost_at: float, finish_s: float
) -> None:
    outages = ((0, lost_at, lost_at + 10.0),)
    row = rows(job(id="a"), outages=outages, checkpoint_s=checkpoint_s)["a"]
    assert row.finish_s == finish_s
    assert row.preemptions == 0
    assert row.queue_s == pytest.approx(10.0)


def test_checkpoints_count_from_the_start_of_each_run() -> None:
    # Runs 0-50, saved at 20 and 40; back at 60, restarts till 75; saved at 95 and 115 with 60 and 80 s; lost at 130.
    outages = ((0, 50.0, 60.0), (0, 130.0, 140.0))
    row = rows(job(id="a", work=200.0), outages=outages, checkpoint_s=20.0, restart_s=15.0)["a"]
    assert row.finish_s == 140.0 + 15.0 + (200.0 - 80.0)


def test_a_preemption_saves_and_a_failure_goes_back_to_there() -> None:
    found = rows(
        job(id="long"),
        job(id="short", at=50.0, work=10.0),
        policy="srtf",
        outages=((0, 70.0, 80.0),),
    )
    assert found["long"].finish_s == 80.0 + 50.0  # the 10 s since 60 are lost, the 50 before are not


def test_only_jobs_on_the_lost_node_are_hit() -> None:
    found = rows(job(2, id="a"), job(2, id="b"), on="2x2", outages=((0, 50.0, 90.0),))
    assert (found["a"].finish_s, found["b"].finish_s) == (190.0, 100.0)


def test_a_gang_is_lost_with_any_of_its_nodes() -> None:
    found = rows(job(4, id="a"), on="2x2", outages=((1, 50.0, 90.0),))
    assert found["a"].finish_s == 190.0


def test_a_node_that_never_comes_back_leaves_its_jobs_pending() -> None:
    world = World(
        trace(job(4, id="a"), job(1, id="b")), cluster("2x2"), "fifo:walk=skip", outages=((1, 50.0, math.inf),)
    )
    course = world.begin()
    course.finish(world.checker(course.state))
    assert {row.job_id: row.state for row in course.rows()} == {"a": "pending", "b": "succeeded"}


def test_jobs_that_never_end_hold_what_they_have() -> None:
    world = World(trace(job(id="for ever", work=math.inf), job(id="b", at=1.0)), cluster("1x1"), "fifo", round_s=60.0)
    course = world.begin()
    course.finish(world.checker(course.state))
    assert {row.job_id: row.state for row in course.rows()} == {"for ever": "running", "b": "pending"}


def test_a_run_ends_with_the_last_job_that_does() -> None:
    world = World(trace(job(id="for ever", work=math.inf), job(id="b", at=1.0)), cluster("1x2"), "fifo")
    course = world.begin()
    course.finish(world.checker(course.state))
    assert course.state.now_s == 101.0
    assert course.rows()[0].run_s == 101.0


def test_needs_are_waited_for_and_never_met_by_a_job_that_cannot_run() -> None:
    jobs = (
        job(id="a", work=30.0),
        job(id="b", needs=("a",), work=10.0),
        job(9, id="huge"),
        job(id="c", needs=("huge", "a")),
    )
    for round_s in (0.0, 60.0):
        found = rows(*jobs, on="1x4", round_s=round_s)
        assert [(name, row.state) for name, row in found.items()] == [
            ("a", "succeeded"),
            ("b", "succeeded"),
            ("huge", "unrunnable"),
            ("c", "unrunnable"),
        ]
        assert found["b"].start_s == (30.0 if not round_s else 60.0)


@pytest.mark.parametrize(
    ("at_boundary", "starts", "finishes"),
    [
        pytest.param(False, [60.0, 120.0], [110.0, 130.0], id="exact: gpus idle until the next round"),
        pytest.param(True, [60.0, 120.0], [120.0, 180.0], id="boundary: jobs end with their round"),
    ],
)
def test_rounds(at_boundary: bool, starts: list[float], finishes: list[float]) -> None:
    found = rows(
        job(id="a", at=10.0, work=50.0), job(id="b", at=20.0, work=10.0), round_s=60.0, finish_at_boundary=at_boundary
    )
    assert [row.start_s for row in found.values()] == starts
    assert [row.finish_s for row in found.values()] == finishes


def test_what_comes_at_a_boundary_is_decided_at_it() -> None:
    found = rows(job(id="a", at=0.0, work=60.0), job(id="b", at=60.0, work=10.0), round_s=60.0)
    assert [row.start_s for row in found.values()] == [0.0, 60.0]


# Moves and resizes -------------------------------------------------------------------------------------------------


def gpus(node: int, mask: int) -> Allocation:
    count = mask.bit_count()
    return Allocation((Slice(node, mask, tasks=count),), count)


class AtTimes(Declares):
    """A planner that starts every job where it is told, and moves it at given times."""

    name = "at-times"
    round_s = 0.0

    def __init__(self, moves: dict[float, tuple[str, Allocation]]) -> None:
        self.moves = moves

    def attach(self, view: State, memory: Memory) -> None:
        """Nothing is kept."""

    def plan(self, view: State, memory: Memory, trigger: Trigger) -> Plan:
        plan = view.new_plan()
        if view.now_s in self.moves:
            name, allocation = self.moves[view.now_s]
            if view.jobs[name].state is JobState.PENDING:
                plan.start(view.jobs[name], allocation)
            else:
                plan.move(view.jobs[name], allocation)
        plan.wake(min((at_s for at_s in self.moves if at_s > view.now_s), default=None))
        return plan

    def explain(self, view: State, memory: Memory, job: Job) -> Refusal:
        return Refusal("test", Cause.ORDER, "because", "nothing")


def moved(entry: TraceJob, moves: dict[float, tuple[str, Allocation]], restart_s: float) -> JobRow:
    world = World(trace(entry), cluster("2x4"), "fifo", restart_s=restart_s)
    state = State(world.cluster.blank())
    course = WorldCourse(Scheduler(state, AtTimes(moves)), world.engine(state.cluster))
    course.finish(world.checker(state))
    return course.rows()[0]


def test_a_move_pays_a_restart_and_loses_nothing() -> None:
    row = moved(job(2, id="a"), {0.0: ("a", gpus(0, 0b11)), 40.0: ("a", gpus(1, 0b11))}, restart_s=30.0)
    assert (row.finish_s, row.run_s, row.migrations, row.resizes, row.preemptions) == (130.0, 130.0, 1, 0, 0)
    assert row.service_gpu_s == 260.0


def test_a_move_onto_cells_it_partly_holds() -> None:
    row = moved(job(2, id="a"), {0.0: ("a", gpus(0, 0b11)), 40.0: ("a", gpus(0, 0b110))}, restart_s=0.0)
    assert (row.finish_s, row.migrations) == (100.0, 1)


def test_a_resize_is_counted_and_its_service_is_what_it_held() -> None:
    entry = job(2, id="a")
    shapes: tuple[Shape, ...] = (gpu_shape(2), gpu_shape(4))
    entry = msgspec.structs.replace(entry, spec=msgspec.structs.replace(entry.spec, shapes=shapes))
    row = moved(entry, {0.0: ("a", gpus(0, 0b11)), 40.0: ("a", gpus(0, 0b1111))}, restart_s=10.0)
    assert (row.finish_s, row.migrations, row.resizes) == (110.0, 0, 1)
    assert row.service_gpu_s == 40.0 * 2 + 70.0 * 4


def test_shares_of_a_gpu_run_side_by_side() -> None:
    found = rows(job(id="a", gpu_milli=400), job(id="b", gpu_milli=600), job(id="c", gpu_milli=100))
    assert [row.start_s for row in found.values()] == [0.0, 0.0, 100.0]
    assert found["a"].gpus == 0.4
    assert found["a"].service_gpu_s == pytest.approx(40.0)


def test_half_of_each_of_two_gpus_is_held_on_both() -> None:
    halves = [job(2, id=name, gpu_milli=500) for name in ("a", "b", "c")]
    whole = job(1, id="d", at=1.0, work=10.0)
    found = rows(*halves, whole, on="1x2", policy="fifo:walk=skip")
    assert [row.start_s for row in found.values()] == [0.0, 0.0, 100.0, 200.0]
    assert (found["a"].gpus, found["a"].service_gpu_s) == (1, 100.0)


def test_half_of_each_of_two_gpus_cannot_be_had_of_one() -> None:
    assert rows(job(2, id="a", gpu_milli=500), on="1x1")["a"].state == JobState.UNRUNNABLE


def test_the_loop_of_the_product_and_that_of_the_tests_do_the_same() -> None:
    from skep.service.loop import run

    world = World(trace(job(id="long"), job(id="short", at=50.0, work=10.0)), cluster("1x1"), "srtf", restart_s=30.0)
    seen: list[list[Event]] = []
    course = world.begin()
    run(course.scheduler, course.engine, lambda at_s, events: seen.append(events))
    check(course.state)
    assert course.csv() == world.run().csv()
    assert sum(isinstance(event, TasksStarted) for events in seen for event in events) == 3


def shared_rows(*jobs: TraceJob, on: str = "1x1", policy: str = "fifo", **more: object) -> dict[str, JobRow]:
    """Under a profile in which every neighbour halves the speed."""
    profile = read_native("default: {sharing: 0.5}", "profile.yaml")
    run = Experiment(trace(*jobs), cluster(on), Options(**more), profile.speed).run(policy)  # type: ignore[arg-type]
    return {row.job_id: row for row in run.rows}


def test_a_neighbour_that_finishes_slows_nobody_any_more() -> None:
    jobs = (job(id="a", gpu_milli=500, work=1000.0), job(id="b", gpu_milli=500), job(id="c", gpu_milli=500))
    found = shared_rows(*jobs)
    assert [row.finish_s for row in found.values()] == [1200.0, 200.0, 400.0]


def test_a_neighbour_that_is_preempted_slows_nobody_until_it_is_back() -> None:
    jobs = (
        job(id="a", gpu_milli=500, work=100.0),
        job(id="b", gpu_milli=500, work=300.0),
        job(id="c", gpu_milli=500, work=20.0, at=10.0),
    )
    found = shared_rows(*jobs, policy="srtf", restart_s=0.0)
    # a and b at half speed to 10; a and c to 50, when c is done; a and b to 200, a is done; b has 80 of 300.
    assert [row.finish_s for row in found.values()] == [200.0, 420.0, 50.0]


def test_a_neighbour_that_arrives_during_a_restart_does_not_shorten_it() -> None:
    state = State(cluster("1x1"))
    world = World(trace(job(id="a")), state.cluster, "fifo")
    WorldCourse(Scheduler(state, AtTimes({})), world.engine(state.cluster)).advance()
    state.jobs["a"].held = gpus(0, 1)
    state.advance(state.now_s, [TasksStarted("a", 1.0, 30.0)])
    state.now_s = 10.0
    state.advance(state.now_s, [ProgressReported("a", 0.0, 0.5)])
    assert state.jobs["a"].work_at(40.0) == 5.0


@pytest.mark.parametrize("place", ["any", "best-fit", "consolidate", "first-fit", "random", "spread"])
def test_a_gang_that_says_so_spans_gpu_types_and_runs_at_its_slowest_member(place: str) -> None:
    profile = read_native("default: {types: {v100: 1.0, k80: 0.25}}", "profile.yaml")
    jobs = trace(job(8, id="spans", spans_types=True), job(8, id="does not"), job(4, id="small", spans_types=True))
    run = Experiment(jobs, cluster("1x4:v100+1x4:k80"), Options(), profile.speed).run(f"fifo:walk=skip,place={place}")
    found = {row.job_id: row for row in run.rows}
    assert found["does not"].state == JobState.UNRUNNABLE
    assert (found["spans"].start_s, found["spans"].finish_s) == (0.0, 400.0)
    assert found["small"].finish_s == 500.0, "on one type where there is room for it"


def test_a_gang_that_spans_types_may_be_spread_when_its_patience_ends() -> None:
    jobs = [job(2, id=name, gpu_type=name) for name in ("v100", "k80")]
    found = rows(*jobs, job(4, id="spans", spans_types=True), on="1x4:v100+1x4:k80", policy="fifo:patience=10")
    assert found["spans"].start_s == 10.0
