"""Single decisions of the policies, in worlds small enough to work out by hand."""

from __future__ import annotations

import pytest
from tests.support import World, cluster, job, node, role, trace

from skep.core.cluster import Cluster
from skep.core.events import Event, TasksStarted
from skep.core.model import told
from skep.experiments.simulate import Experiment
from skep.metrics.run import JobRow
from skep.traces.trace import TraceJob


def run(policy: str, on: str | Cluster, *jobs: TraceJob, **more: object) -> dict[str, JobRow]:
    there = cluster(on) if isinstance(on, str) else on
    return {row.job_id: row for row in World(trace(*jobs), there, policy, **more).run().rows()}


def starts(policy: str, on: str | Cluster, *jobs: TraceJob, **more: object) -> dict[str, float | None]:
    return {name: row.start_s for name, row in run(policy, on, *jobs, **more).items()}


@pytest.mark.parametrize("policy", ["tiresias-l", "tiresias-g", "yarn-cs:patience=100.3"])
@pytest.mark.parametrize("since_s", [1.6e9, 5e11])
def test_time_goes_on_far_from_zero_where_moments_are_rounded(policy: str, since_s: float) -> None:
    sizes = (96, 128, 7, 48) * 5
    jobs = [job(gpus, id=str(n), at=since_s + n * 61.8034, work=1618.034 + n) for n, gpus in enumerate(sizes)]
    found = Experiment(trace(*jobs), cluster("16x8")).run(policy)
    assert found.summary.finished == len(jobs)


# Walks -------------------------------------------------------------------------------------------------------------


BLOCKED = (
    job(3, id="a", work=100.0),
    job(4, id="big", work=10.0),
    job(1, id="b", work=50.0),
    job(1, id="c", work=150.0),
)


@pytest.mark.parametrize(
    ("walk", "expected"),
    [
        pytest.param("strict", {"a": 0.0, "big": 100.0, "b": 110.0, "c": 110.0}, id="nobody passes the blocked head"),
        pytest.param("skip", {"a": 0.0, "big": 200.0, "b": 0.0, "c": 50.0}, id="whoever fits goes"),
        pytest.param("easy", {"a": 0.0, "big": 100.0, "b": 0.0, "c": 110.0}, id="only who does not delay the head"),
    ],
)
def test_walks(walk: str, expected: dict[str, float]) -> None:
    assert starts(f"fifo:walk={walk}", "1x4", *BLOCKED) == expected


def test_in_a_strict_walk_nobody_passes_a_job_that_was_just_pushed_out() -> None:
    jobs = (job(4, id="a", work=100.0), job(1, id="short", at=10.0, work=10.0), job(2, id="long", at=10.0, work=500.0))
    found = run("srtf:walk=strict", "1x4", *jobs)
    assert {name: row.start_s for name, row in found.items()} == {"a": 0.0, "short": 10.0, "long": 110.0}
    assert found["long"].preemptions == 0
    assert starts("srtf:walk=skip", "1x4", *jobs)["long"] == 10.0


def test_backfilling_may_last_beyond_the_reservation_where_the_head_does_not_need_it() -> None:
    found = starts("fifo:walk=easy", "1x4", job(3, id="a"), job(2, id="head", work=10.0), job(1, id="b", work=500.0))
    assert found == {"a": 0.0, "head": 100.0, "b": 0.0}


def test_in_easy_a_job_that_does_not_fit_speaks_only_for_its_like() -> None:
    # The second vgg must sit on one node; the resnet of the same size may be spread, and is tried all the same.
    jobs = (
        job(3, id="a", work=100.0, model="vgg16"),
        job(3, id="b", work=100.0, model="vgg16"),
        job(8, id="head", work=10.0),
        job(2, id="vgg", work=50.0, model="vgg16"),
        job(2, id="resnet", work=50.0, model="resnet50"),
    )
    found = starts("fifo:walk=easy,place=skew-gated", "2x4", *jobs)
    assert found["resnet"] == 0.0
    assert found["vgg"] == 110.0


# Preemption --------------------------------------------------------------------------------------------------------


def test_the_last_in_order_is_pushed_out_and_only_if_that_helps() -> None:
    found = run(
        "srtf",
        "1x4",
        job(1, id="mid", work=200.0),
        job(3, id="late", work=300.0),
        job(2, id="short", at=10.0, work=50.0),
        job(4, id="all", at=20.0, work=250.0),
    )
    assert [found[name].preemptions for name in ("mid", "late", "short", "all")] == [0, 1, 0, 0]
    assert found["short"].start_s == 10.0


def test_victims_that_turn_out_not_to_be_needed_are_spared() -> None:
    found = run(
        "srtf",
        "2x2",
        job(2, id="one", work=200.0),
        job(2, id="last", work=300.0),
        job(2, id="short", at=10.0, work=50.0),
    )
    assert [found[name].preemptions for name in ("one", "last")] == [0, 1]


def test_what_victims_leave_over_goes_to_who_is_first_in_order() -> None:
    found = starts(
        "srtf:place=any",
        "1x8",
        job(8, id="big", work=300.0),
        job(4, id="four", at=1.0, work=350.0),
        job(1, id="one", at=10.0, work=400.0),
        job(1, id="short", at=10.0, work=50.0),
        job(4, id="mid", at=10.0, work=320.0),
    )
    assert found["short"] == 10.0
    assert found["mid"] == 10.0
    assert found["one"] == 10.0
    assert found["four"] != 10.0  # 8 - 1 - 4 - 1 leaves two


def test_a_share_can_push_out_a_share() -> None:
    found = run("srtf", "1x1", job(id="a", gpu_milli=600, work=300.0), job(id="b", gpu_milli=500, at=10.0, work=20.0))
    assert found["b"].start_s == 10.0
    assert found["a"].preemptions == 1


def test_a_whole_gpu_can_be_had_from_a_share() -> None:
    found = run("srtf", "1x1", job(id="a", gpu_milli=400, work=300.0), job(id="b", at=10.0, work=20.0))
    assert found["b"].start_s == 10.0


def test_priorities_go_before_every_order() -> None:
    found = starts(
        "sjf", "1x1", job(id="x"), job(id="a", work=5.0, at=1.0), job(id="b", work=500.0, at=1.0, priority=1)
    )
    assert found["b"] < found["a"]


def test_gangs_of_several_roles_count_all_their_gpus() -> None:
    roles = (role(1, 1, gpu_milli=500), role(2, 1), role(1, cpu=2.0))
    row = run("fifo", "1x4", job(id="a", roles=roles))["a"]
    assert row.gpus == 2.5
    assert row.service_gpu_s == 250.0


def test_a_job_without_gpus_and_without_expectation_has_a_place_in_every_order() -> None:
    there = cluster([node(1, cpu=2)])
    jobs = (job(0, id="a", cpu=1.0, expect=None), job(0, id="b", cpu=1.0, expect=None), job(1, id="c"))
    for policy in ("srsf", "srtf", "qssf:estimate=known", "sjf", "smallest"):
        assert set(starts(policy, there, *jobs).values()) == {0.0}


# Least attained service --------------------------------------------------------------------------------------------


def test_continuous_las_changes_over_when_the_lead_is_reached() -> None:
    found = run("las:lead=3600", "1x1", job(id="a", work=10000.0), job(id="b", work=10000.0))
    assert (found["a"].start_s, found["b"].start_s) == (0.0, 3600.0)
    assert found["a"].preemptions >= 1
    assert found["b"].finish_s == 20000.0 or found["a"].finish_s == 20000.0


def test_las_in_queues_lets_a_new_job_pass_one_that_has_sunk() -> None:
    found = run("las:queues=100", "1x1", job(id="a", work=500.0), job(id="b", at=200.0, work=50.0), restart_s=0.0)
    assert (found["b"].start_s, found["a"].preemptions) == (200.0, 1)


def test_las_in_queues_lets_nobody_pass_one_of_its_own_queue() -> None:
    found = run("las:queues=1000", "1x1", job(id="a", work=500.0), job(id="b", at=200.0, work=50.0))
    assert (found["b"].start_s, found["a"].preemptions) == (500.0, 0)


def test_promotion_brings_back_who_has_waited_long_enough() -> None:
    # `old` sinks at 100 and is passed by everybody who is new, one after the other.
    jobs = (
        job(id="old", work=200.0),
        *(job(id=f"n{number}", at=100.0 + 90 * number, work=99.0) for number in range(20)),
    )
    never = run("tiresias-l:queues=100,place=any", "1x1", *jobs)["old"]
    twice = run("tiresias-l:queues=100,place=any,promote=2", "1x1", *jobs)["old"]
    assert never.finish_s == 2180.0
    # Promoted at 300, behind the three that had come by then and before the rest.
    assert twice.finish_s == 100.0 + 3 * 99.0 + 100.0


@pytest.mark.parametrize(
    ("work_s", "preemptions"),
    [
        pytest.param(100_000.0, 1, id="much service and no progress: pushed out"),
        pytest.param(1000.0, 0, id="near its end: finished first"),
    ],
)
def test_e_las_finishes_what_is_nearly_done(work_s: float, preemptions: int) -> None:
    # By sum, 900 s: 0.5·900/(900+900) + 0.5·(1-p) against 0.5 of a new job.
    old = job(id="old", work=work_s, epochs=10)
    found = run("e-las:scale=900,lead=0.1", "1x1", old, job(id="new", at=900.0, work=500.0, epochs=10))
    assert found["old"].preemptions == preemptions


@pytest.mark.parametrize(
    ("form", "service", "done", "key"),
    [
        ("sum", 7200.0, 0.5, 0.5 * 0.5 + 0.5 * 0.5),
        ("sum", 0.0, 0.0, 0.5),
        ("product", 7200.0, 0.25, 5400.0),
        ("remaining", 7200.0, 0.25, 21600.0),
        ("remaining", 0.0, 0.0, 0.0),
    ],
)
def test_e_las_keys(form: str, service: float, done: float, key: float) -> None:
    from skep.core.job import Job
    from skep.policies.order.progress import ProgressAndService

    asking = Job(told(job(id="x", work=1000.0).spec), 0, 0.0)
    asking.service_gpu_s, asking.work_s = service, done * 1000.0
    order = ProgressAndService(form=form, weight=0.5, scale=7200.0, lead=0.1)
    assert order.key(asking, 0.0) == pytest.approx(key)


def test_epochs_count_when_they_are_whole() -> None:
    from skep.core.job import Job
    from skep.core.knowledge import Knowledge
    from skep.core.progress import Progress, Report
    from skep.policies.estimate.progress import standing_of

    asking, known = Job(told(job(id="x", work=100.0, epochs=4).spec), 0, 0.0), Knowledge()
    asking.work_s = 49.0
    assert standing_of(asking, known, 0.0).counted == 0.25
    asking.work_s = 50.0
    assert standing_of(asking, known, 0.0).counted == 0.5
    known.progress["x"] = Progress(0.0, 1, Report(50.0, 200.0, reference=1.0))  # it has more to do than was expected
    assert standing_of(asking, known, 0.0).counted == 0.25


# Shares ------------------------------------------------------------------------------------------------------------


def test_drf_starts_who_has_the_smallest_dominant_share() -> None:
    # The paper's example: 9 cpus and 18 GiB; a task of A takes 1 cpu and 4 GiB, one of B 3 cpus and 1 GiB.
    there = cluster([node(0, cpu=9, memory_gib=18)])
    a = [job(0, id=f"a{number}", user="A", cpu=1.0, memory_gib=4.0) for number in range(5)]
    b = [job(0, id=f"b{number}", user="B", cpu=3.0, memory_gib=1.0) for number in range(5)]
    found = starts("drf", there, *a, *b)
    assert sorted(name for name, start_s in found.items() if start_s == 0.0) == ["a0", "a1", "a2", "b0", "b1"]


def test_yarn_cs_takes_back_what_was_lent_from_the_newest() -> None:
    found = run(
        "yarn-cs:take_back=0.5,patience=none",
        "1x4",
        job(1, id="lent0", vc="a", work=500.0),
        job(1, id="lent1", vc="a", work=500.0, at=1.0),
        job(2, id="lent2", vc="a", work=500.0, at=2.0),
        job(2, id="owed", vc="b", work=50.0, at=10.0),
    )
    assert found["owed"].start_s == 10.0
    assert [found[f"lent{number}"].preemptions for number in range(3)] == [0, 0, 1]


def test_yarn_cs_pushes_nobody_below_its_quota_and_asks_only_within_its_own() -> None:
    found = run(
        "yarn-cs:take_back=0,patience=none",
        "1x4",
        job(3, id="a", vc="a", work=500.0),
        job(2, id="b", vc="b", work=50.0, at=10.0),
        job(1, id="c", vc="b", work=50.0, at=10.0),
    )
    # a has one gpu too many, but giving up a gang of three would leave it below its quota of two.
    assert found["a"].preemptions == 0
    assert found["b"].start_s == 500.0


def test_yarn_cs_never_takes_back_when_told_so() -> None:
    found = run(
        "yarn-cs:take_back=2,patience=none",
        "1x4",
        job(2, id="a0", vc="a", work=500.0),
        job(2, id="a1", vc="a", work=500.0),
        job(2, id="b", vc="b", work=50.0, at=10.0),
    )
    assert (found["b"].start_s, found["a1"].preemptions) == (500.0, 0)


# Placement that relaxes ----------------------------------------------------------------------------------------------

RACKS = cluster([node(4, rack="r0"), node(4, rack="r0"), node(4, rack="r1"), node(4, rack="r1")])


@pytest.mark.parametrize(
    ("blockers", "patience", "start_s"),
    [
        pytest.param((0, 1, 2, 3), "30+20", 50.0, id="one gpu in each rack too few: anywhere after both"),
        pytest.param((0, 2), "30+20", 0.0, id="a whole node is free"),
        pytest.param((0, 1, 2, 3), "30", 30.0, id="one number means anywhere"),
        pytest.param((0, 1, 2, 3), "none", 500.0, id="for ever"),
    ],
)
def test_patience(blockers: tuple[int, ...], patience: str, start_s: float) -> None:
    """Blockers hold 3 of 4 gpus of a node each; the job wants 4 together."""
    jobs = [job(3, id=f"x{number}", work=500.0) for number in blockers]
    found = starts(f"fifo:walk=skip,place=first-fit,patience={patience}", RACKS, *jobs, job(4, id="a"))
    assert found["a"] == start_s


def test_a_rack_comes_before_anywhere() -> None:
    # One gpu is free on each node: after 30 s two nodes of one rack will do for two, but there is no rack for three.
    blockers = [job(3, id=f"x{number}", work=500.0) for number in range(4)]
    found = starts(
        "fifo:walk=skip,patience=30+100", RACKS, *blockers, job(2, id="two", work=600.0), job(3, id="three", at=1.0)
    )
    assert found["two"] == 30.0
    assert found["three"] == 500.0
    alone = starts("fifo:walk=skip,patience=30+100", RACKS, *blockers, job(3, id="three", at=1.0))
    assert alone["three"] == 131.0


# Waiting by cause ----------------------------------------------------------------------------------------------------


def test_waiting_is_booked_on_its_cause() -> None:
    found = run(
        "fifo:walk=skip",
        "2x4",
        job(3, id="x0", work=100.0),
        job(3, id="x1", work=200.0),
        job(2, id="a", work=10.0),
        job(4, id="b", work=10.0),
    )
    # a: two GPUs are free, on two nodes. b: two are free, it wants four.
    assert (found["a"].queue_s, found["a"].queue_fragmentation_s) == (100.0, 100.0)
    assert found["b"].queue_quota_s == 0.0
    assert found["b"].queue_fragmentation_s == 0.0
    assert found["b"].queue_s == 110.0


def test_only_the_head_of_a_strict_line_waits_for_more_than_order() -> None:
    found = run(
        "fifo",
        "2x4",
        job(3, id="x0", work=100.0),
        job(3, id="x1", work=200.0),
        job(2, id="head", work=10.0),
        job(1, id="behind", work=10.0),
    )
    assert (found["head"].queue_s, found["head"].queue_fragmentation_s) == (100.0, 100.0)
    assert (found["behind"].queue_s, found["behind"].queue_fragmentation_s) == (100.0, 0.0)


def test_a_strict_line_looks_at_the_gpus_its_head_accepts() -> None:
    # The line begins with a job for k80; the next head wants v100, of which none is free.
    found = run(
        "fifo",
        "1x2:k80+1x2:v100",
        job(2, id="k", gpu_type="k80", work=10.0),
        job(2, id="v", gpu_type="v100", work=100.0),
        job(2, id="head", gpu_type="v100", work=10.0),
    )
    assert (found["head"].queue_s, found["head"].queue_fragmentation_s) == (100.0, 0.0)


def test_a_head_that_ran_and_came_back_is_booked_anew() -> None:
    # Lost with its node at 10; until 110 four GPUs are free, on two nodes.
    there = cluster([node(4), node(2), node(2)])
    row = run("fifo", there, job(4, id="a", work=50.0), outages=((0, 10.0, 20.0), (0, 30.0, 110.0)))["a"]
    assert row.queue_s == 90.0
    assert row.queue_fragmentation_s == 90.0


def test_quota_is_waited_for_where_the_share_is_used_up() -> None:
    found = run(
        "yarn-cs:take_back=2,patience=none",
        "1x4",
        job(2, id="a0", vc="a", work=100.0),
        job(2, id="b0", vc="b", work=100.0),
        job(2, id="a1", vc="a", work=10.0),
    )
    assert (found["a1"].queue_s, found["a1"].queue_quota_s) == (100.0, 100.0)


def test_a_job_with_cpus_gives_up_locality_too() -> None:
    jobs = [job(id="a", gpus=3, work=100.0, cpu=3.0), job(id="b", gpus=3, work=100.0, cpu=3.0)]
    found = run("yarn-cs:patience=60", "2x4", *jobs, job(id="c", at=10.0, gpus=2, work=50.0, cpu=2.0))
    assert found["c"].start_s == 70.0


# Keys that cross between events ------------------------------------------------------------------------------------


def test_las_wakes_for_every_waiting_job_not_only_for_the_first() -> None:
    """w waits for both GPUs, which n, new, does not leave; meanwhile a and b take turns on the other."""
    jobs = [job(2, id="w", work=100_000.0), job(id="a", work=100_000.0), job(id="b", work=100_000.0)]
    course = World(trace(*jobs, job(id="n", at=60_000.0, work=100_000.0)), cluster("1x2"), "las:place=any").begin()
    turns: list[tuple[float, str]] = []

    def note(at_s: float, events: list[Event]) -> None:
        turns.extend((at_s, event.job_id) for event in events if isinstance(event, TasksStarted))

    course.finish(note)
    between = [name for at_s, name in turns if 63_000.0 <= at_s <= 100_000.0]
    assert len(between) > 10
    assert set(between) >= {"a", "b"}


@pytest.mark.parametrize("policy", ["las:queues=1000", "tiresias-l:queues=1000"])
def test_jobs_demoted_and_preempted_at_one_instant_come_back_in_the_order_of_submission(policy: str) -> None:
    jobs = [job(id="a", work=3000.0), job(id="b", work=3000.0), job(2, id="c", at=500.0)]
    found = run(policy, "1x2", *jobs, job(id="d", at=1050.0, work=500.0))
    assert [row.finish_s for row in found.values()] == [3100.0, 3600.0, 1100.0, 1600.0]


def test_jobs_that_lose_different_nodes_at_one_instant_come_back_in_the_order_of_submission() -> None:
    """In the order of the nodes b would be lost first; a is back first whatever the order of the outages."""
    jobs = [job(id="a", work=300.0), job(id="b", work=300.0)]
    for outages in (((0, 50.0, 60.0), (1, 50.0, 500.0)), ((1, 50.0, 60.0), (0, 50.0, 500.0))):
        world = World(trace(*jobs), cluster("2x1"), "tiresias-l:queues=1000", checkpoint_s=0.0, outages=outages)
        assert [row.finish_s for row in world.run().rows()] == [310.0, 560.0]
