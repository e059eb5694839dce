"""AFS on a cluster: who is resized, who is stopped, and what is not worth a restart. Worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support import World, cluster, job, node, role, trace
from tests.support.world import WorldCourse, held_after

from skep.clusters import read_layout
from skep.core.job import JobState
from skep.core.knowledge import SpeedKey
from skep.core.progress import Report
from skep.experiments.sharing import hardware_cluster
from skep.experiments.simulate import Experiment, Options
from skep.metrics.run import JobRow, Run
from skep.policies.shared.vc import CELLS, NUMBERS, PRIVATE
from skep.profiles.read import read_profile
from skep.traces.trace import TraceJob

FREE = "afs-l:restart=0"


def elastic(gpus: int, low: int, high: int, **more: Any) -> TraceJob:
    return job(gpus, min_gpus=low, max_gpus=high, **more)


def rows(course: WorldCourse) -> dict[str, JobRow]:
    return {row.job_id: row for row in course.rows()}


def test_it_grows_into_what_is_idle_and_shrinks_for_who_comes() -> None:
    world = World(
        trace(elastic(4, 1, 8, work=1000, id="a"), elastic(4, 1, 8, work=500, at=100, id="b")), cluster("1x8"), FREE
    )
    # a has all 8 and does 200 s of its work; then the shorter b stays two steps ahead, as speeds are in proportion.
    assert held_after(world) == {0: {"a": 8}, 100: {"a": 3, "b": 5}, 500: {"a": 8}, 750: {}}
    found = rows(finished(world))
    assert (found["a"].resizes, found["a"].preemptions, found["a"].migrations) == (2, 0, 0)
    assert found["b"].finish_s == 500
    assert found["a"].finish_s == 750


@pytest.mark.parametrize(("at_8", "expected"), [(20.0, 8), (10.5, 4)], ids=["twice as fast", "hardly faster"])
def test_sizes_follow_the_speeds_that_jobs_report(at_8: float, expected: int) -> None:
    jobs = (elastic(4, 1, 8, work=5000, id="a", model="bert"), job(4, work=100, at=100, id="b"))
    course = World(trace(*jobs), cluster("1x8:v100"), "afs-l").begin()
    course.advance()
    assert course.state.jobs["a"].held_gpus == 8
    for gpus, speed in ((4, 10.0), (8, at_8)):
        place = SpeedKey("bert", "v100", gpus)
        course.state.known.note_report(0.0, course.state.jobs["a"], Report(1.0, steps_per_s=speed), place)
    held = {}
    while course.advance() and course.state.now_s <= 200:
        held[course.state.now_s] = course.state.jobs["a"].held_gpus
    assert held == {100.0: 4, 200.0: expected}


def finished(world: World) -> WorldCourse:
    course = world.begin()
    course.finish(world.checker(course.state))
    return course


def test_of_equal_jobs_that_do_not_fit_together_the_first_starts() -> None:
    """There are enough thousandths for both, but no GPU has room for two parts."""
    parts = role(5, gpus=1, gpu_milli=700, is_apart=True)
    world = World(trace(*(job(roles=(parts,), work=100, id=name) for name in "ab")), cluster("1x8"), FREE)
    found = rows(finished(world))
    assert [found[name].start_s for name in "ab"] == [0, 100]


def test_a_resize_costs_a_restart() -> None:
    world = World(
        trace(elastic(1, 1, 2, work=100, id="a"), job(1, work=10, at=10, id="b")), cluster("1x2"), FREE, restart_s=5
    )
    # 20 s of work by 10; b runs to 20 while a works from 15 to 20; then again from 25 on with two: 75 / 2.
    assert rows(finished(world))["a"].finish_s == 25 + 37.5


def test_what_brings_less_than_a_restart_is_not_done() -> None:
    jobs = (elastic(1, 1, 2, work=100, id="a"), job(1, work=10, id="b"))
    grows = World(trace(*jobs), cluster("1x2"), "afs-l:restart=44,horizon=1000")
    assert held_after(grows) == {0: {"a": 1, "b": 1}, 10: {"a": 2}, 55: {}}  # 90 s left, of which half are gained
    stays = World(trace(*jobs), cluster("1x2"), "afs-l:restart=46,horizon=1000")
    assert held_after(stays) == {0: {"a": 1, "b": 1}, 10: {"a": 1}, 100: {}}
    short = World(trace(*jobs), cluster("1x2"), "afs-l:restart=44,horizon=50")
    assert held_after(short) == {0: {"a": 1, "b": 1}, 10: {"a": 1}, 100: {}}


def test_jobs_without_a_range_run_shortest_first_and_preempt() -> None:
    world = World(trace(job(2, work=100, id="a"), job(2, work=10, at=10, id="b")), cluster("1x2"), FREE)
    found = rows(finished(world))
    assert (found["a"].finish_s, found["a"].preemptions, found["b"].finish_s) == (110, 1, 20)
    assert found["a"].resizes == 0


def test_shrinking_goes_before_stopping() -> None:
    jobs = (elastic(2, 1, 3, work=100, id="a"), job(1, work=1000, id="long"), job(1, work=10, at=1, id="new"))
    assert held_after(World(trace(*jobs), cluster("1x4"), FREE))[1] == {"a": 2, "long": 1, "new": 1}


def test_a_higher_priority_takes_its_share_from_a_shorter_job() -> None:
    jobs = (job(2, work=10, id="short"), job(2, work=1000, at=1, priority=5, id="prod"))
    assert held_after(World(trace(*jobs), cluster("1x2"), FREE))[1] == {"prod": 2}


def test_a_higher_priority_gets_its_cpus_too() -> None:
    jobs = (job(0, cpu=2, work=100, id="low"), job(0, cpu=2, work=10, at=1, priority=5, id="high"))
    found = rows(finished(World(trace(*jobs), cluster([node(1, cpu=2)]), FREE)))
    assert (found["high"].start_s, found["low"].preemptions) == (1, 1)


def test_only_the_tasks_with_gpus_become_more_or_fewer() -> None:
    roles = (role(1, cpu=1.0, name="head"), role(2, 2, name="worker"))
    world = World(trace(job(roles=roles, work=100, id="a", min_gpus=2, max_gpus=7)), cluster("1x8"), FREE)
    course = world.begin()
    course.advance()
    held = course.state.jobs["a"].held
    assert held is not None
    assert [(piece.role, piece.tasks, piece.gpus.bit_count()) for piece in held.slices] == [(0, 1, 0), (1, 3, 6)]
    assert course.state.jobs["a"].rate == pytest.approx(1.5)


def test_an_elastic_job_larger_than_the_cluster_runs_with_what_there_is() -> None:
    found = rows(finished(World(trace(elastic(8, 2, 16, work=100, id="a")), cluster("1x4"), FREE)))
    assert found["a"].finish_s == 200


def test_one_whose_least_is_too_much_never_runs() -> None:
    course = finished(World(trace(elastic(8, 6, 16, work=100, id="a")), cluster("1x4"), FREE))
    assert course.state.jobs["a"].state is JobState.UNRUNNABLE
    assert course.state.jobs["a"].reason == "asks for 6 GPUs, the cluster has 4"


def test_who_can_never_run_stays_rejected_when_another_finds_no_place_near_enough() -> None:
    """Two GPUs are free, one on each node: `near` is tried, taken back and waits."""
    jobs = (
        *(job(2, work=100, id=name) for name in ("a", "b")),
        *(job(2, work=200, at=10, id="near"), job(1, gpu_type="v100", work=10, at=10, id="never")),
    )
    course = finished(World(trace(*jobs), cluster("2x3:k80"), f"{FREE},patience=none"))
    assert course.state.jobs["never"].state is JobState.UNRUNNABLE
    assert rows(course)["near"].start_s == 100


def test_it_goes_on_with_what_is_left_when_a_node_is_lost() -> None:
    world = World(
        trace(elastic(4, 1, 8, work=400, id="a")), cluster("2x4"), FREE, checkpoint_s=0, outages=((1, 50.0, 1000.0),)
    )
    # 100 s of work in 50 s; then 4 gpus, as asked.
    assert rows(finished(world))["a"].finish_s == 50 + 300


def test_speeds_are_those_of_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "speeds.yaml"
    flat = "{2: 0.55, 3: 0.37, 4: 0.28, 5: 0.225, 6: 0.19, 7: 0.163}"
    path.write_text(f"models: {{flat: {{scaling: {flat}}}, steep: {{scaling: {{8: 1.0}}}}}}\n")
    jobs = (
        elastic(1, 1, 7, work=500, model="flat", id="flat"),
        elastic(1, 1, 7, work=500, model="steep", at=1, id="steep"),
    )
    experiment = Experiment(trace(*jobs), cluster("1x8"), Options(restart_s=0), read_profile(path).speed)
    run = experiment.run(FREE)
    found = {row.job_id: row for row in run.rows}
    assert found["steep"].service_gpu_s / found["steep"].run_s > 5  # flat gains a tenth by its second gpu
    assert found["flat"].run_s > 400


# Virtual clusters -------------------------------------------------------------------------------------------------

LAB = "nodes: [{count: 2, gpus: 4, name: n}]\nvcs: {a: 1 nodes, b: 1 nodes}\n"


def shared(folder: Path, *jobs: TraceJob, sharing: str = CELLS, policy: str = FREE) -> Run:
    path = folder / "lab.yaml"
    path.write_text(LAB)
    layout = read_layout(str(path))
    where = hardware_cluster(layout, sharing)
    return Experiment(trace(*jobs), where, Options(restart_s=0), None, layout, sharing).run(policy)


@pytest.mark.parametrize("sharing", [CELLS, PRIVATE, NUMBERS])
def test_it_grows_and_shrinks_within_its_vc(tmp_path: Path, sharing: str) -> None:
    jobs = (
        elastic(2, 1, 8, work=100, vc="a", id="a"),
        job(1, work=10, at=10, vc="a", id="short"),
        job(4, work=100, vc="b", id="other"),
    )
    found = {row.job_id: row for row in shared(tmp_path, *jobs, sharing=sharing).rows}
    # 20 s of work by 10, with 4; 15 s more with 3; the rest with 4 again.
    assert found["a"].finish_s == 20 + 65 / 2
    assert (found["a"].resizes, found["a"].preemptions) == (2, 0)
    assert (found["short"].start_s, found["other"].start_s) == (10, 0)


def test_growing_into_lent_cells_pushes_the_borrower_out(tmp_path: Path) -> None:
    jobs = (
        elastic(1, 1, 4, work=100, vc="a", id="grows"),
        job(1, work=10, vc="a", id="first"),
        job(2, work=20, vc="a", id="second"),
        job(4, work=500, vc="b", id="other"),
        job(1, work=50, at=11, vc="b", priority=-1, id="cheap"),
    )
    # Only what brings 6 of 10 is worth it: one gpu more (5 of 10) is not, and is lent; three more (7.5 of 10) are.
    found = {row.job_id: row for row in shared(tmp_path, *jobs, policy="afs-l:restart=60,horizon=100").rows}
    assert (found["grows"].finish_s, found["grows"].resizes) == (40, 1)
    assert (found["cheap"].start_s, found["cheap"].preemptions, found["cheap"].finish_s) == (11, 1, 81)
