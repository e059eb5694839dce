"""Replica splicing: a gang runs on fewer GPUs with all its workers, several on each."""

from __future__ import annotations

import pytest
from tests.support import cluster, job, role, trace
from tests.support.invariants import fault_of

from skep.core.allocation import Seat
from skep.core.checked import is_shape
from skep.core.cluster import Allocation, Slice
from skep.core.job import in_proportion
from skep.core.model import Role, Shape, gpu_shape
from skep.engines.sim.engine import Simulator
from skep.profiles.native import read_native
from skep.profiles.sharing import Costs, Sharing


def spliced(*workers: int, gpus: float | None = None) -> Allocation:
    """On one GPU for each number of workers."""
    slices = tuple(Slice(0, 1 << gpu, tasks=count) for gpu, count in enumerate(workers))
    return Allocation(slices, len(workers) if gpus is None else gpus)


def test_workers_sit_where_their_slices_are() -> None:
    assert spliced(2, 2).seating() == [Seat(0, 0, (0,)), Seat(0, 0, (0,)), Seat(0, 0, (1,)), Seat(0, 0, (1,))]
    assert spliced(2, 2).depth == 2
    assert Allocation((Slice(0, 0b1111, tasks=4),), 4).depth == 1
    assert Allocation((Slice(0, tasks=3),), 0).depth == 1, "tasks without GPUs share none"


@pytest.mark.parametrize(
    ("allocation", "shape", "is_right"),
    [
        pytest.param(spliced(2, 2), gpu_shape(4), True, id="two workers on each GPU"),
        pytest.param(spliced(4), gpu_shape(4), True, id="all workers on one GPU"),
        pytest.param(spliced(3, 1), gpu_shape(4), False, id="not as many on each"),
        pytest.param(spliced(2, 2), gpu_shape(3), False, id="more workers than the job has"),
        pytest.param(spliced(2), gpu_shape(4), False, id="fewer workers than the job has"),
        pytest.param(spliced(2, 2, gpus=4), gpu_shape(4), False, id="counted as the GPUs that it asked for"),
        pytest.param(spliced(2), gpu_shape(2, gpu_milli=500), False, id="parts of GPUs"),
        pytest.param(spliced(2), Shape((Role(count=1, gpus=2),)), False, id="a task with several GPUs"),
        pytest.param(spliced(2, 2), Shape((role(2, 1), role(2, 1))), False, id="several roles"),
    ],
)
def test_a_plan_may_splice_workers_with_one_gpu_each(allocation: Allocation, shape: Shape, is_right: bool) -> None:
    there = cluster("1x4")
    assert is_shape(there, allocation, shape) is is_right
    assert (fault_of(there, shape, allocation) == "") is is_right, "the checker of invariants agrees"


def test_a_spliced_gang_has_its_part_of_the_speed() -> None:
    assert Sharing().spliced(1) == 1.0
    assert Sharing().spliced(2) == pytest.approx(1 / 2 / 1.03)
    assert Sharing(costs=Costs(splice=0.0)).spliced(4) == 0.25
    plain, elastic = job(4).spec, job(4, max_gpus=8).spec
    assert in_proportion(plain, spliced(2, 2)) == 0.5
    assert in_proportion(elastic, spliced(2, 2)) == 0.5


@pytest.mark.parametrize("more", [{}, {"min_gpus": 1, "max_gpus": 8}], ids=["a gang", "an elastic job"])
@pytest.mark.parametrize("has_profile", [False, True], ids=["without speeds", "with measured speeds"])
def test_the_simulator_runs_it_at_k_of_n(more: dict[str, int], has_profile: bool) -> None:
    there = cluster("1x4")
    # Two workers with a GPU each would have 0.45 of the speed of four.
    speed = read_native("models: {m: {scaling: {2: 0.9, 4: 1.0}}}", "p").speed(there) if has_profile else None
    engine = Simulator(trace(job(4, id="a", model="m", **more)).jobs, there, speed=speed)
    engine.observe(0.0)
    engine._launch(engine.tasks["a"], spliced(2, 2), 0.0, [])
    assert engine.tasks["a"].shown_rate == pytest.approx(1 / 2 / 1.03)
