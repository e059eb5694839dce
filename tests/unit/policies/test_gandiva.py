"""Gandiva: where jobs go, who takes turns, what is packed, moved and resized."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support import World, cluster, job, node, trace
from tests.support.world import WorldCourse

from skep.clusters.read import read_text
from skep.core.cluster import Cluster
from skep.core.job import Job, JobState
from skep.experiments.simulate import Experiment, Options
from skep.policies.adjust.effects import Adjustment
from skep.policies.adjust.pack import VERDICTS
from skep.profiles.native import read_native
from skep.traces.trace import TraceJob

SHARE = 0.5 - 0.1 / 120
"""What two jobs that take turns of 60 s get each: the switch costs 0.1 s a turn."""


def play(policy: str, where: str | Cluster, *jobs: TraceJob) -> WorldCourse:
    hardware = cluster(where) if isinstance(where, str) else where
    return World(trace(*jobs), hardware, policy).run()


def until(course: WorldCourse, at_s: float) -> dict[str, Job]:
    while course.state.now_s < at_s and course.advance():
        pass
    return course.state.jobs


def begin(policy: str, where: str, *jobs: TraceJob) -> WorldCourse:
    return World(trace(*jobs), cluster(where), policy).begin()


def nodes_of(found: Job) -> list[int]:
    assert found.allocation is not None
    return found.allocation.nodes()


def modes(course: WorldCourse) -> dict[str, str]:
    jobs = course.state.jobs.values()
    return {each.id: each.allocation.terms.mode for each in jobs if each.allocation is not None}


# The order of affinity -----------------------------------------------------------------------------------------


def arrangements(counts: dict[int, int]) -> Iterator[tuple[int, ...]]:
    if not any(counts.values()):
        yield ()
    for size in [size for size, count in counts.items() if count]:
        left = {**counts, size: counts[size] - 1}
        yield from ((size, *rest) for rest in arrangements(left))


def test_sizes_are_on_nodes_of_their_own_whatever_the_order_of_arrival() -> None:
    """Eight jobs of one GPU, two of two and one of four on four nodes of four GPUs: all 495 orders."""
    orders = list(arrangements({1: 8, 2: 2, 4: 1}))
    assert len(orders) == 495
    for order in orders:
        course = begin("gandiva", "4x4", *(job(size, work=1e4, at=float(at)) for at, size in enumerate(order)))
        sizes: dict[int, set[int]] = {}
        for each in until(course, 10.0).values():
            for index in nodes_of(each):
                sizes.setdefault(index, set()).add(each.gpu_count)
        assert sorted(map(sorted, sizes.values())) == [[1], [1], [2], [4]], order


def test_a_node_that_has_emptied_has_no_affinity() -> None:
    """Node 0 hosted jobs of one GPU; once they have gone, a job of two GPUs takes it."""
    jobs = [job(1, work=10.0), job(4, work=100.0, at=1.0), job(2, work=50.0, at=20.0)]
    course = begin("gandiva", "2x4", *jobs)
    assert nodes_of(until(course, 20.0)["j2"]) == [0]


def test_other_affinity_goes_before_turns() -> None:
    course = begin("gandiva", "2x4", job(1), job(2, at=1.0), job(1, at=2.0), job(2, at=3.0), job(2, at=4.0))
    found = until(course, 4.0)
    assert [nodes_of(found[name]) for name in ("j0", "j1", "j2", "j3", "j4")] == [[0], [1], [0], [1], [0]]
    assert set(modes(course).values()) == {""}


# Time slices ----------------------------------------------------------------------------------------------------


def test_two_jobs_of_one_size_take_turns_and_the_last_is_alone_again() -> None:
    course = play("gandiva", "1x4", job(4, work=400.0), job(4, work=50.0, at=10.0))
    long, short = course.state.jobs.values()
    end_s = 10.0 + 50.0 / SHARE
    assert short.start_s == 10.0
    assert short.finish_s == pytest.approx(end_s)
    assert long.finish_s == pytest.approx(end_s + 400.0 - 10.0 - 50.0)
    assert long.preemptions == long.migrations == 0


def test_turns_are_not_planned_one_by_one() -> None:
    course = play("gandiva:pack=false", "1x1", job(1, work=1e6), job(1, work=1e6, at=10.0))
    assert course.state.decision_count < 20


@pytest.mark.parametrize(
    ("policy", "late"),
    [
        ("gandiva", job(2, at=5.0)),
        ("gandiva:slices=false", job(4, at=5.0)),
        ("gandiva:height=1", job(4, at=5.0)),
        ("gandiva", job(4, at=5.0, preemptible=False)),
    ],
    ids=["another size", "switched off", "a height of one", "not to be interrupted"],
)
def test_who_does_not_take_turns_waits(policy: str, late: TraceJob) -> None:
    course = play(policy, "1x4", job(4, work=100.0), late)
    assert course.state.jobs["j1"].start_s == 100.0


@pytest.mark.parametrize(
    ("where", "sizes", "expected"),
    [
        ("2x2", (1,) * 6, {0: 3, 1: 3}),
        ("4x4", (2, 2, 4, *(1,) * 12), {2: 6, 3: 6}),
        ("3x2", (1,) * 11, {0: 4, 1: 4, 2: 3}),
        ("1x4+1x2", (1,) * 9, {0: 6, 1: 3}),
    ],
)
def test_the_least_loaded_node_is_oversubscribed(where: str, sizes: tuple[int, ...], expected: dict[int, int]) -> None:
    """Jobs of one GPU on each node. On nodes of four and two GPUs the load is in relation to their GPUs."""
    course = begin("gandiva", where, *(job(size, work=1e4) for size in sizes))
    course.advance()
    counts: dict[int, int] = {}
    for each in course.state.jobs.values():
        if each.gpu_count == 1:
            counts[nodes_of(each)[0]] = counts.get(nodes_of(each)[0], 0) + 1
    assert dict(sorted(counts.items())) == expected


def test_no_more_than_the_height_take_turns() -> None:
    course = begin("gandiva:height=3", "1x1", *(job(1, work=1e4, at=float(at)) for at in range(5)))
    states = [each.state for each in until(course, 10.0).values()]
    assert states == [JobState.RUNNING] * 3 + [JobState.PENDING] * 2


def test_the_least_crowded_gpu_is_joined_first() -> None:
    course = begin("gandiva:height=3,pack=false", "1x2", *(job(1, work=1e4, at=float(at)) for at in range(5)))
    until(course, 5.0)
    masks = [each.allocation.slices[0].gpus for each in course.state.jobs.values() if each.allocation]
    assert sorted(masks) == [1, 1, 1, 2, 2]
    assert masks[2:4] in ([1, 2], [2, 1])


def test_nobody_joins_a_job_of_a_higher_priority() -> None:
    course = play("gandiva", "1x1", job(1, work=100.0, priority=1), job(1, at=5.0))
    assert course.state.jobs["j1"].start_s == 100.0


def test_gpu_memory_limits_who_takes_turns() -> None:
    where = cluster([node(1, gpu_mem_gib=16)])
    course = play(
        "gandiva", where, job(1, gpu_mem_gib=9.0), job(1, at=5.0, gpu_mem_gib=9.0), job(1, at=6.0, gpu_mem_gib=6.0)
    )
    starts = [each.start_s for each in course.state.jobs.values()]
    assert starts[0] == 0.0
    assert starts[2] == 6.0
    assert starts[1] is not None
    assert starts[1] > 100.0


def test_jobs_leave_a_crowded_gpu_for_a_free_one() -> None:
    """When both jobs of a GPU have ended, one that shares the other GPU moves there. The effect is predicted, and
    measured later."""
    jobs = [job(1, work=work, at=float(at)) for at, work in enumerate((10.0, 2000.0, 10.0, 2000.0))]
    course = begin("gandiva:pack=false", "1x2", *jobs)
    until(course, 600.0)
    moved = course.state.memory.jobs["j3"]["adjusted rebalance"]
    assert isinstance(moved, Adjustment)
    assert (moved.action, moved.predicted) == ("move", 2.0)
    assert moved.measured == pytest.approx(1 / SHARE, abs=0.01)


# Packing --------------------------------------------------------------------------------------------------------

PAIRS = """
models:
  light: {sharing: {light: 0.8, heavy: 0.6}}
  heavy: {sharing: {light: 0.6, heavy: 0.45}}
  even: {sharing: {even: 0.51}}
"""


def packed(*models: str, work: float = 2000.0) -> Experiment:
    jobs = [job(1, work=work, at=float(at), model=model) for at, model in enumerate(models)]
    speed = read_native(PAIRS, "pairs").speed
    return Experiment(trace(*jobs), cluster(f"{len(models) // 2}x1:v100"), Options(restart_s=0.0), speed)


def test_a_pair_that_gains_stays_packed() -> None:
    run = packed("light", "light").run("gandiva:trial=100")
    first, second = run.rows
    assert first.finish_s == pytest.approx(2000.0 / 0.8, rel=0.01)
    assert second.finish_s == pytest.approx(2000.0 / 0.8, rel=0.01)


def test_a_pair_that_loses_takes_turns_again() -> None:
    """Packed for a trial of 100 to 200 s they lose a tenth of that time."""
    run = packed("heavy", "heavy").run("gandiva:trial=100")
    assert run.rows[1].finish_s == pytest.approx(2 * 2000.0 / (2 * SHARE), rel=0.01)
    together = packed("heavy", "heavy").run("gandiva:pack=false")
    assert run.rows[1].finish_s > together.rows[1].finish_s


@pytest.mark.parametrize(("knobs", "is_kept"), [("", True), (",gain=1.01", True), (",gain=1.02", False)])
def test_a_pair_stays_packed_from_any_gain_above_the_knob(knobs: str, is_kept: bool) -> None:
    """Both run at 0.51 of their speed alone: together 1.02 times as fast as by turns."""
    run = packed("even", "even").run(f"gandiva:trial=100{knobs}")
    speed = 1.02 if is_kept else 2 * SHARE
    assert run.rows[1].finish_s == pytest.approx(2 * 2000.0 / speed, rel=0.005)


def test_packing_is_only_for_jobs_that_take_turns() -> None:
    run = packed("light", "light", "light", "light").run("gandiva:slices=false")
    assert [row.run_s for row in run.rows] == [2000.0] * 4


# Migration ------------------------------------------------------------------------------------------------------


def fragmented() -> list[TraceJob]:
    """Nodes 0 to 2 are full; at 50 s one GPU is free on node 1 and one on node 2, on which the gang starts. The large
    job leaves node 0 at 100 s; single jobs leave later."""
    singles = [job(1, work=40.0 if at in (0, 4) else 1000.0 + at, at=1.0, id=f"s{at}") for at in range(8)]
    return [job(4, work=100.0, id="large"), *singles, job(2, work=3000.0, at=50.0, id="gang")]


def test_a_gang_becomes_co_located_when_a_large_job_leaves_and_migration_then_stops() -> None:
    world = World(trace(*fragmented()), cluster("3x4"), "gandiva:cool_down=0")
    course = world.begin()
    gang = until(course, 50.0)["gang"]
    assert nodes_of(gang) == [1, 2]
    until(course, 100.0)
    assert nodes_of(gang) == [0]
    course.finish()
    assert [each.migrations for each in course.state.jobs.values()] == [0] * 9 + [1]


def test_two_fragmented_gangs_share_the_node_that_a_large_job_leaves() -> None:
    singles = [job(1, work=40.0 if at % 4 == 0 else 5000.0, at=1.0) for at in range(16)]
    gangs = [job(2, work=900.0, at=50.0, id=name) for name in ("one", "two")]
    course = begin("gandiva", "5x4", job(4, work=100.0), *singles, *gangs)
    found = until(course, 50.0)
    assert all(len(nodes_of(found[name])) == 2 for name in ("one", "two"))
    until(course, 100.0)
    assert [nodes_of(found[name]) for name in ("one", "two")] == [[0], [0]]


def test_without_migration_a_gang_stays_where_it_is() -> None:
    course = play("gandiva:migrate=false", "3x4", *fragmented())
    assert course.state.jobs["gang"].migrations == 0


def test_a_node_is_emptied_for_a_job_that_needs_one() -> None:
    """Each node has one job of one GPU and three free ones: the job of four GPUs gets a node when somebody leaves."""
    jobs = [job(4, work=10.0), job(4, work=20.0, id="other"), *(job(3, at=1.0, work=w) for w in (30.0, 40.0))]
    jobs += [job(1, work=1000.0, at=2.0, id="a"), job(1, work=1000.0, at=11.0, id="b")]
    course = begin("gandiva:patience=none,slices=false", "2x4", *jobs, job(4, work=5.0, at=25.0, id="whole"))
    until(course, 45.0)
    assert course.state.jobs["whole"].start_s is not None
    assert sum(each.migrations for each in course.state.jobs.values()) == 1


# Grow and shrink ------------------------------------------------------------------------------------------------


def test_an_elastic_job_grows_on_its_node_and_shrinks_when_a_job_arrives() -> None:
    course = begin("gandiva", "1x4", job(2, work=1000.0, min_gpus=2, max_gpus=4), job(2, work=100.0, at=80.0))
    elastic = until(course, 60.0)["j0"]
    assert elastic.allocation is not None
    assert elastic.allocation.gpus == 4
    until(course, 80.0)
    assert course.state.jobs["j1"].start_s == 80.0
    assert elastic.allocation.gpus == 2
    assert elastic.resizes == 2


def test_without_grow_it_keeps_its_size() -> None:
    course = play("gandiva:grow=false", "1x4", job(2, work=100.0, max_gpus=4))
    assert course.state.jobs["j0"].finish_s == 100.0


def test_the_memory_has_a_verdict_for_each_pair() -> None:
    jobs = [job(1, work=5000.0, at=float(at), model="vgg16") for at in range(2)]
    course = begin("gandiva:trial=100", "1x1:v100", *jobs)
    until(course, 200.0)
    found = VERDICTS.get(course.state.memory)
    assert found is not None
    (verdict,) = found.pairs.values()
    assert list(found.pairs) == ["vgg16+vgg16 on 1 v100"]
    assert verdict.speed == pytest.approx(1.0)
    assert set(modes(course).values()) == {"slice"}


def test_jobs_of_different_vcs_do_not_take_turns_with_each_other() -> None:
    """Both VCs call their first GPU by the same number, and name share groups by it."""
    hardware, layout = read_text("nodes: [{count: 2, name: n, gpus: 1}]\nvcs: {red: 1 node, blue: 1 node}\n", "lab")
    jobs = [job(1, id=f"{vc}{number}", vc=vc, work=600.0) for vc in ("red", "blue") for number in range(2)]
    run = Experiment(trace(*jobs), hardware, Options(restart_s=0.0), layout=layout).run("gandiva:pack=false")
    assert [row.finish_s for row in run.rows] == [pytest.approx(600.0 / SHARE, abs=61.0)] * 4
