"""Singularity by hand: exact hourly fractions, who gives way and how, what is refused, and what is said about it."""

from __future__ import annotations

import pytest
from tests.support import World, cluster, job, node, trace
from tests.support.world import WorldCourse, use

from skep.core.errors import InputError
from skep.core.events import JobHeld
from skep.core.job import Job, JobState
from skep.core.needs import Need
from skep.core.share import Share
from skep.policies.adjust.effects import Adjustment
from skep.policies.order.promises import PROMISE
from skep.policies.registry import Setting, build_planner
from skep.policies.tiers import TierPipeline
from skep.traces.trace import TraceJob

PREMIUM, STANDARD = Share(tier="premium"), Share(tier="standard")


def world(where: str, *jobs: TraceJob, knobs: str = "restart=0", **more: object) -> World:
    return World(trace(*jobs), cluster(where), f"singularity:{knobs}", **more)  # type: ignore[arg-type]


def until(course: WorldCourse, at_s: float) -> dict[str, Job]:
    while course.state.now_s < at_s and course.advance():
        pass
    return course.state.jobs


def planner_of(course: WorldCourse) -> TierPipeline:
    planner = course.scheduler.planner
    assert isinstance(planner, TierPipeline)
    return planner


def gpus_of(found: Job) -> dict[int, int]:
    """By node."""
    assert found.allocation is not None
    return {piece.node: piece.gpus for piece in found.allocation.slices}


# Hours ----------------------------------------------------------------------------------------------------------------


def test_a_standard_job_starts_at_the_last_moment_and_lends_what_it_can_spare() -> None:
    """b must have 2520 s of every hour from 100 s on. It waits for a until 3700 - 2520 = 1180 s and has exactly 0.7 of
    its first hour. In the second it gives its GPUs to a at once, for 1080 s, and is back for the rest."""
    course = world("1x4", job(4, work=6000.0, id="a"), job(4, work=5000.0, at=100.0, id="b", share=STANDARD)).run()
    a, b = course.state.jobs["a"], course.state.jobs["b"]
    assert b.start_s == 1180.0
    assert b.finish_s == 4780.0 + 5000.0 - 2520.0
    assert a.finish_s == 6000.0 + 2520.0 + 5000.0 - 2520.0
    assert (a.preemptions, b.preemptions) == (2, 1)


def test_the_service_of_each_hour_is_exactly_the_promise_where_others_take_the_rest() -> None:
    course = world("1x4", job(4, work=1e5, id="a"), job(4, work=1e5, at=100.0, id="b", share=STANDARD)).begin()
    found = course.state.jobs
    for hour in range(1, 6):
        until(course, 100.0 + hour * 3600.0)
        assert found["b"].service_at(course.state.now_s) == pytest.approx(0.7 * 3600 * 4 * hour)
        assert found["a"].service_at(course.state.now_s) == pytest.approx(100 * 4 + 0.3 * 3600 * 4 * hour)
    kept = PROMISE.get(course.state.memory, "b")
    assert kept is not None
    assert (kept.hours, kept.short, kept.hour_s) == (5, 0, 100.0 + 5 * 3600.0)


def test_a_job_that_lends_half_of_its_gpus_has_exactly_its_part() -> None:
    """From 60 s on s has two of its GPUs, and all four again when it has spared 1080 s of them: at 60 + 2 · 1080 s."""
    jobs = [job(4, work=1e5, id="s", share=STANDARD), job(2, work=1e5, id="b")]
    course = world("1x4", *jobs).begin()
    found = until(course, 60.0)
    assert (found["s"].held_gpus, found["b"].start_s) == (2, 60.0)
    until(course, 2220.0)
    assert (found["s"].held_gpus, found["b"].state) == (4, JobState.PENDING)
    until(course, 3600.0)
    assert found["s"].service_at(3600.0) == pytest.approx(0.7 * 3600 * 4)


def test_promises_share_gpus_at_different_times_of_an_hour() -> None:
    """0.5 of four GPUs, and twice 0.4 of two of them at other times: 3.6 of 4 GPUs, never more than 4 at once."""
    half, less = Share(promise_milli=500), Share(promise_milli=400)
    jobs = [job(4, work=1e5, id="a", share=half), *(job(2, work=1e5, id=name, share=less) for name in "bc")]
    course = world("1x4", *jobs, knobs="restart=0").begin()
    found = until(course, 3600.0)
    for hour in range(1, 5):
        until(course, hour * 3600.0)
        now_s = course.state.now_s
        assert found["a"].service_at(now_s) >= 0.5 * 3600 * 4 * hour - 1e-6
        assert min(found[name].service_at(now_s) for name in "bc") >= 0.4 * 3600 * 2 * hour - 1e-6


def test_every_start_costs_what_a_restart_may_take() -> None:
    """With restarts of up to 60 s b starts 60 s earlier, and without the real 30 s it still has its part."""
    course = world(
        "1x4",
        job(4, work=1e5, id="a"),
        job(4, work=1e5, at=100.0, id="b", share=STANDARD),
        knobs="restart=60",
        restart_s=30.0,
    ).begin()
    found = until(course, 3700.0)
    assert found["b"].start_s == 1180.0 - 60.0
    assert found["b"].service_at(3700.0) == pytest.approx((2520.0 + 60.0) * 4)


def test_hours_begin_when_a_job_is_first_ready() -> None:
    """b waits for c, which ends at 500 s, and has 0.95 of every hour from then on."""
    jobs = [job(2, work=500.0, id="c"), job(2, work=9000.0, id="a"), job(4, id="b", share=PREMIUM, needs=("c",))]
    course = world("1x4", *jobs, job(2, work=9000.0, id="d")).run()
    assert course.state.jobs["b"].start_s == 500.0 + 180.0


# Who gives way, and how -----------------------------------------------------------------------------------------------


def test_scale_down_comes_first() -> None:
    """At 280 s a keeps two of its GPUs and all its workers, at half the speed less 3 %, and gets the others back when b
    has ended."""
    course = world("1x4", job(4, work=3000.0, id="a"), job(2, work=2000.0, at=100.0, id="b", share=PREMIUM)).begin()
    found = until(course, 280.0)
    assert found["b"].start_s == 280.0
    assert found["a"].allocation is not None
    assert (found["a"].allocation.depth, found["a"].allocation.gpus, found["a"].held_gpus) == (2, 2, 2)
    assert found["a"].rate == pytest.approx(1 / 2.06)
    noted = [value for slot, value in course.state.memory.jobs["a"].items() if slot.startswith("adjusted")]
    assert [each.action for each in noted if isinstance(each, Adjustment)] == ["scale down"]
    course.finish()
    assert (found["a"].resizes, found["a"].preemptions) == (2, 0)
    assert found["a"].finish_s == pytest.approx(2280.0 + 3000.0 - 280.0 - 2000.0 / 2.06)


def test_a_job_that_cannot_be_scaled_down_moves() -> None:
    """d has a home on the first node. When it must run, at 181 s, c has left the second one: b, the newer of both,
    moves there, and a is stopped."""
    jobs = [job(1, work=9000.0, id="a"), job(1, work=9000.0, id="b"), job(1, work=150.0, id="c")]
    d = job(2, work=900.0, at=1.0, id="d", share=PREMIUM)
    course = world("1x2+1x1", *jobs, d, knobs="restart=0,place=first-fit").begin()
    found = until(course, 181.0)
    assert found["d"].start_s == 181.0
    assert gpus_of(found["d"]) == {0: 0b11}
    assert [found[name].migrations for name in "ab"] == [0, 1]
    assert [found[name].preemptions for name in "ab"] == [1, 0]


def test_a_job_that_wants_its_gpus_for_itself_is_not_scaled_down() -> None:
    alone = Share(mode="exclusive")
    jobs = [job(4, work=3000.0, id="a", share=alone), job(2, work=2000.0, at=100.0, id="b", share=PREMIUM)]
    found = until(world("1x4", *jobs).begin(), 280.0)
    assert (found["b"].start_s, found["a"].preemptions) == (280.0, 1)


def test_a_job_that_was_changed_a_moment_ago_is_stopped() -> None:
    """a was scaled down at 280 s for b, and would be again at 380 s for c."""
    jobs = [job(8, work=9000.0, id="a"), job(4, work=2000.0, at=100.0, id="b", share=PREMIUM)]
    c = job(2, work=2000.0, at=200.0, id="c", share=PREMIUM)
    found = until(world("1x8", *jobs, c).begin(), 380.0)
    assert (found["a"].resizes, found["a"].preemptions) == (1, 1)
    found = until(world("1x8", *jobs, c, knobs="restart=0,cool_down=0").begin(), 380.0)
    assert (found["a"].resizes, found["a"].preemptions, found["a"].held_gpus) == (2, 0, 2)


@pytest.mark.parametrize(("depth", "resizes"), [("1", 0), ("2", 1), ("4", 1)])
def test_depth_bounds_the_workers_on_a_gpu(depth: str, resizes: int) -> None:
    jobs = [job(4, work=9000.0, id="a"), job(3, work=2000.0, at=100.0, id="b", share=PREMIUM)]
    found = until(world("1x4", *jobs, knobs=f"restart=0,depth={depth}").begin(), 280.0)
    assert found["b"].start_s == 280.0
    assert found["a"].resizes == (depth == "4"), "one GPU is left, for all four workers"
    found = until(
        world("1x4", jobs[0], job(2, at=100.0, share=PREMIUM), knobs=f"restart=0,depth={depth}").begin(), 280.0
    )
    assert found["a"].resizes == resizes


def test_workers_need_their_memory_on_the_gpus_that_are_left() -> None:
    big = job(4, work=3000.0, id="a", gpu_mem_gib=10.0)
    small = job(2, work=2000.0, at=100.0, id="b", share=PREMIUM)
    for memory_gib, preemptions in ((16, 1), (32, 0)):
        where = cluster([node(4, gpu_mem_gib=memory_gib)])
        found = until(World(trace(big, small), where, "singularity:restart=0").begin(), 280.0)
        assert found["a"].preemptions == preemptions


def test_priority_does_not_stop_a_promised_job() -> None:
    jobs = [job(4, work=9000.0, id="a", share=PREMIUM), job(4, work=100.0, at=10.0, id="b", priority=5)]
    course = world("1x4", *jobs, job(4, work=100.0, at=20.0, id="c")).run()
    assert course.state.jobs["a"].preemptions == 0
    assert course.state.jobs["b"].start_s == 9000.0


def test_a_job_that_may_not_be_stopped_stays_off_homes() -> None:
    """b waits for its home, which a has. c, which could never be made to leave, does not get what is free of it."""
    jobs = [job(2, work=9000.0, id="a"), job(4, work=9000.0, at=1.0, id="b", share=STANDARD)]
    c = job(2, work=100.0, at=2.0, id="c", preemptible=False)
    found = until(world("1x4", *jobs, c).begin(), 2.0)
    assert found["c"].state is JobState.PENDING
    other = job(2, work=100.0, at=2.0, id="c")
    assert until(world("1x4", *jobs, other).begin(), 2.0)["c"].state is JobState.RUNNING


# What is refused ------------------------------------------------------------------------------------------------------


def test_a_promise_that_does_not_fit_is_refused() -> None:
    jobs = [job(4, work=3000.0, id="a", share=STANDARD), job(2, work=100.0, at=100.0, id="b", share=PREMIUM)]
    course = world("1x4", *jobs, job(2, work=100.0, at=3000.0, id="c", share=PREMIUM)).run()
    b = course.state.jobs["b"]
    assert b.state is JobState.UNRUNNABLE
    assert b.reason.startswith(
        "promise of 0.95 of 2 GPUs in every hour does not fit: 2.8 of 4 GPUs are promised to other jobs (1)"
    )
    assert course.state.jobs["c"].state is JobState.SUCCEEDED, "a has ended by then"


def test_no_more_can_be_promised_than_starts_leave() -> None:
    course = world("1x4", job(2, share=Share(promise_milli=990), id="a"), knobs="restart=60").run()
    assert course.state.jobs["a"].reason == (
        "promise of 0.99 of 2 GPUs in every hour: at most 0.967 can be promised, since every start of a job takes time"
    )
    ok = world("1x4", job(2, share=Share(promise_milli=990), id="a")).run()
    assert ok.state.jobs["a"].state is JobState.SUCCEEDED


def test_homes_move_together_for_one_that_needs_a_node() -> None:
    """a and b have homes on different nodes, because others were there when they came. For c, which needs a node, b
    gets one beside a, and moves there when c must run, at 110 + 180 s."""
    others = [job(3, work=50.0, id="x"), job(2, work=49.0, at=51.0, id="y")]
    jobs = [job(2, work=9000.0, at=1.0, id="a", share=PREMIUM), job(2, work=9000.0, at=60.0, id="b", share=PREMIUM)]
    c = job(4, work=900.0, at=110.0, id="c", share=PREMIUM)
    course = world("2x4", *others, *jobs, c).begin()
    found = until(course, 110.0)
    assert [list(gpus_of(found[name])) for name in "ab"] == [[1], [0]]
    until(course, 290.0)
    assert found["c"].start_s == 290.0
    assert [list(gpus_of(found[name])) for name in "abc"] == [[1], [1], [0]]
    assert [found[name].migrations for name in "abc"] == [0, 1, 0]


def test_a_promise_in_the_job_goes_before_the_tier_of_the_knobs() -> None:
    planner = build_planner("singularity:standard=0.5,premium=0.8", Setting(cluster("1x4")))
    assert isinstance(planner, TierPipeline)
    milli_of = planner.promises.milli_of
    assert [milli_of(job(1, share=share).spec) for share in (None, STANDARD, PREMIUM, Share(promise_milli=1))] == [
        0,
        500,
        800,
        1,
    ]
    assert milli_of(job(0, cpu=1.0, share=PREMIUM).spec) == 0, "there are no GPUs to promise"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("singularity:premium=1.2", "premium=1.2: expected a part of an hour, 0 to 1"),
        ("singularity:depth=1.5", "depth=1.5: expected a whole number of workers"),
    ],
)
def test_bad_knobs(spec: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        build_planner(spec, Setting(cluster("1x4")))


# Nodes, holds, other policies -----------------------------------------------------------------------------------------


def test_a_lost_node_breaks_promises_and_says_so() -> None:
    """Both homes are on a node each; when one is lost its job is without a home, and runs when there is room."""
    jobs = [job(4, work=9000.0, id="a", share=PREMIUM), job(4, work=9000.0, id="b", share=STANDARD)]
    course = world("2x4", *jobs, outages=((0, 1000.0, 5000.0),)).begin()
    found = until(course, 1000.0)
    waiting = next(each for each in found.values() if each.state is JobState.PENDING)
    refusal = course.scheduler.planner.explain(course.state, course.state.memory, waiting)
    assert "cannot be kept now: too few nodes are up for all promises" in refusal.reason
    until(course, 5000.0)
    kept = [PROMISE.get(course.state.memory, name) for name in "ab"]
    assert all(promise is not None and promise.home is not None for promise in kept)
    assert sum(promise.short for promise in kept if promise is not None) == 1
    assert all(each.state is JobState.RUNNING for each in found.values())
    course.finish()


def test_what_a_waiting_job_is_told() -> None:
    course = world("1x4", job(4, work=9000.0, id="a"), job(4, work=100.0, at=100.0, id="b", share=STANDARD)).begin()
    found = until(course, 100.0)
    refusal = course.scheduler.planner.explain(course.state, course.state.memory, found["b"])
    assert refusal.reason == (
        "asks for 4 GPUs, 0 are free; job a holds what it needs; "
        "it is promised 0.7 of every hour and starts in 1,080 s at the latest"
    )


def test_a_held_job_keeps_its_promise_for_later() -> None:
    jobs = [job(4, work=9000.0, id="a"), job(4, work=9000.0, at=100.0, id="b", share=STANDARD)]
    course = world("1x4", *jobs, script=((200.0, JobHeld("b", "backs off", 8000.0)),)).begin()
    found = until(course, 7900.0)
    assert found["b"].start_s is None
    until(course, 8000.0)
    kept = PROMISE.get(course.state.memory, "b")
    assert kept is not None
    assert (kept.hour_s, kept.hours, kept.short) == (100.0 + 2 * 3600.0, 0, 0), "its hours go on, and are not counted"
    course.finish()
    assert found["b"].state is JobState.SUCCEEDED


def test_it_takes_over_from_another_policy_and_hands_on() -> None:
    """Three jobs ask for premium, two of them fit: the third waits without a home and is not refused."""
    jobs = [job(4, work=9000.0, id="a", share=PREMIUM), job(4, work=9000.0, id="b", share=PREMIUM)]
    jobs += [job(4, work=9000.0, id="c", share=PREMIUM), job(4, work=900.0, at=50.0, id="d")]
    course = World(trace(*jobs), cluster("2x4"), "fifo:walk=skip").begin()
    until(course, 50.0)
    use(course, world("2x4", *jobs))
    found = until(course, 3600.0)
    kept = [PROMISE.get(course.state.memory, name) for name in "abc"]
    assert [promise is not None and promise.home is not None for promise in kept] == [True, True, False]
    until(course, 9000.0)
    assert found["c"].state is JobState.RUNNING
    use(course, World(trace(*jobs), cluster("2x4"), "gandiva"))
    course.finish()
    assert all(each.state is JobState.SUCCEEDED for each in found.values())


def test_an_engine_that_cannot_move_jobs_stops_them() -> None:
    offers = frozenset(Need) - {Need.MIGRATE}
    planner = build_planner("singularity:restart=0", Setting(cluster("1x4"), offers=offers))
    assert isinstance(planner, TierPipeline)
    assert not planner.give_way.moves
    jobs = [job(4, work=3000.0, id="a"), job(2, work=2000.0, at=100.0, id="b", share=PREMIUM)]
    course = world("1x4", *jobs).begin().fork(planner)
    found = until(course, 280.0)
    assert (found["b"].start_s, found["a"].resizes, found["a"].preemptions) == (280.0, 0, 1)
    course.finish()


# Tiers ----------------------------------------------------------------------------------------------------------------


def test_homes_on_gpus_of_which_others_use_a_part_are_not_given_twice() -> None:
    """j00 runs on a part of a GPU that becomes the home of j02. When j04 comes, the rest of that GPU is not free: j02
    and j04 would take it from each other without end."""
    jobs = [
        job(1, at=1900.0, work=5000.0, id="j00", share=PREMIUM, gpu_milli=300),
        job(2, at=3500.0, work=6100.0, id="j01"),
        job(2, at=4500.0, work=5900.0, id="j06", share=PREMIUM),
        job(4, at=4700.0, work=1100.0, id="j02", share=STANDARD),
        job(1, at=5300.0, work=3300.0, id="j04", share=PREMIUM, gpu_milli=300),
    ]
    course = world("2x4", *jobs, knobs="restart=60", restart_s=30.0).run()
    assert [each.state for each in course.state.jobs.values()] == [JobState.SUCCEEDED] * 5


def services(course: WorldCourse, names: str) -> list[float]:
    """Seconds with all its GPUs of each job."""
    jobs = course.state.jobs
    return [jobs[name].service_at(course.state.now_s) / jobs[name].gpus for name in names]


@pytest.mark.parametrize(("where", "gpus", "names"), [("1x1", 1, "abc"), ("1x4", 4, "abcd"), ("2x4", 4, "abc")])
def test_equal_jobs_of_a_tier_are_never_more_than_a_turn_apart(where: str, gpus: int, names: str) -> None:
    course = world(where, *(job(gpus, work=1e6, id=name) for name in names)).begin()
    for hour in range(1, 30):
        until(course, hour * 3600.0)
        had = services(course, names)
        assert max(had) - min(had) <= 900.0 + 1e-6, (hour, had)


def test_turns_by_hand() -> None:
    """a runs until b is a turn behind it, at 900 s; b until a is a turn behind it, at 2700 s; and so on."""
    course = world("1x1", job(1, work=1e6, id="a"), job(1, work=1e6, id="b")).begin()
    found = until(course, 900.0)
    assert (found["b"].start_s, found["a"].preemptions) == (900.0, 1)
    until(course, 901.0)
    assert course.state.now_s == 2700.0
    assert (found["a"].state, found["b"].state) == (JobState.RUNNING, JobState.PENDING)
    assert services(course, "ab") == [900.0, 1800.0]
    until(course, 4500.0)
    assert services(course, "ab") == [2700.0, 1800.0]


def test_the_most_under_served_goes_first() -> None:
    """b takes the place of a at 910 s, when it is 900 s behind, and ends at 1010 s. Then a has waited for 100 s in all,
    c for 500 s: c goes first, although a was submitted before it."""
    jobs = [job(4, work=1e5, id="a"), job(4, work=100.0, at=10.0, id="b"), job(4, work=1e5, at=510.0, id="c")]
    found = until(world("1x4", *jobs).begin(), 1010.0)
    assert found["b"].finish_s == 1010.0
    assert found["c"].start_s == 1010.0


def test_a_job_that_needed_another_one_does_not_count_the_time_before() -> None:
    """b was ready at 2000 s: it is behind a by a turn at 2900 s, not at once."""
    jobs = [job(1, work=2000.0, id="n"), job(1, work=1e5, id="a"), job(2, work=1e5, id="b", needs=("n",))]
    found = until(world("1x2", *jobs).begin(), 6000.0)
    assert found["b"].start_s == 2900.0


def test_a_gang_takes_the_place_of_several_jobs_that_have_had_more() -> None:
    jobs = [*(job(1, work=1e5, id=name) for name in "abcd"), job(4, work=1e5, at=100.0, id="g")]
    found = until(world("1x4", *jobs).begin(), 1000.0)
    assert found["g"].start_s == 1000.0
    assert [found[name].preemptions for name in "abcd"] == [1] * 4


def test_a_job_of_a_higher_priority_does_not_give_way() -> None:
    jobs = [job(4, work=5000.0, id="a", priority=1), job(4, work=100.0, at=10.0, id="b")]
    assert until(world("1x4", *jobs).begin(), 5000.0)["b"].start_s == 5000.0


def test_jobs_without_a_promise_are_hit_first() -> None:
    """As in the test of homes that move together, but y and z have the other halves of both nodes. When c must run, at
    290 s, b leaves the first node for its new home, and z is stopped for it; b is not."""
    others = [job(3, work=50.0, id="v"), job(2, work=49.0, at=51.0, id="w")]
    jobs = [job(2, work=9000.0, at=1.0, id="a", share=PREMIUM), job(2, work=9000.0, at=60.0, id="b", share=STANDARD)]
    rest = [job(2, work=9000.0, at=101.0, id="y"), job(2, work=9000.0, at=102.0, id="z")]
    c = job(4, work=900.0, at=110.0, id="c", share=PREMIUM)
    course = world("2x4", *others, *jobs, *rest, c, knobs="restart=0,depth=1").begin()
    found = until(course, 290.0)
    assert found["c"].start_s == 290.0
    assert (found["b"].migrations, found["b"].preemptions) == (1, 0)
    assert [found[name].preemptions for name in "yz"] == [1, 1]


def test_nobody_lends_to_a_job_that_would_have_its_turn() -> None:
    """s could spare its GPUs. But a runs where b would fit, and has had more: b waits for its turn with a."""
    jobs = [job(4, work=1e5, id="s", share=STANDARD), job(4, work=1e5, id="a"), job(4, work=1e5, at=1.0, id="b")]
    found = until(world("2x4", *jobs).begin(), 10_000.0)
    assert found["s"].preemptions == 0
    assert found["b"].start_s == 901.0
