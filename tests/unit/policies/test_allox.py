"""AlloX: machines of GPUs and CPUs, gangs, users, priorities."""

from __future__ import annotations

import msgspec
import pytest
from tests.support import World, cluster, job, node, trace

from skep.core.errors import InputError
from skep.core.model import gpu_shape
from skep.policies.registry import Setting, build_planner
from skep.traces.trace import TraceJob


def ends(policy: str, where: str, *jobs: TraceJob) -> list[float | None]:
    return [row.finish_s for row in World(trace(*jobs), cluster(where), policy).run().rows()]


def test_the_shortest_go_first_and_nothing_is_preempted() -> None:
    jobs = job(1, work=100), job(1, work=50, at=1), job(1, work=10, at=2)
    assert ends("allox", "1x1", *jobs) == [100, 160, 110]


def test_a_gang_waits_for_a_slice_of_its_size() -> None:
    jobs = job(3, work=100), job(2, work=10, at=1), job(1, work=20, at=1)
    assert ends("allox", "1x4", *jobs) == [100, 110, 21]


def test_a_gang_larger_than_a_node_takes_several() -> None:
    assert ends("allox", "2x2", job(4, work=10), job(1, work=5, at=1)) == [10, 15]


def test_a_job_runs_on_cpus_if_that_is_allowed_and_no_gpu_is_free() -> None:
    either = job(1, work=50, at=1)
    shapes = (*either.spec.shapes, gpu_shape(0, cpu=4.0))
    either = msgspec.structs.replace(either, spec=msgspec.structs.replace(either.spec, shapes=shapes))
    world = World(trace(job(1, work=100), either), cluster([node(1, cpu=8)]), "allox")
    rows = world.run().rows()
    assert [row.finish_s for row in rows] == [100, 51]
    assert rows[1].service_gpu_s == 0


def test_users_who_hold_the_least_are_matched_first() -> None:
    jobs = [job(1, work=100, user="ann"), job(1, work=100, user="bob")]
    jobs += [job(1, work=10, at=1, user="ann"), job(1, work=200, at=1, user="cat")]
    assert ends("allox", "1x3", *jobs)[2:] == [11, 211]
    assert ends("allox:fraction=0.5", "1x3", *jobs)[2:] == [110, 201]


def test_more_jobs_than_a_matching_takes_all_run() -> None:
    assert ends("allox:window=1", "1x4", *(job(1, work=10) for _ in range(5))) == [10, 10, 10, 10, 20]


def test_a_higher_priority_preempts() -> None:
    assert ends("allox", "1x1", job(1, work=100), job(1, work=50, at=10, priority=1)) == [150, 60]


@pytest.mark.parametrize("knob", ["fraction=0", "fraction=2", "window=0", "window=1.5"])
def test_knobs_that_make_no_sense_are_refused(knob: str) -> None:
    with pytest.raises(InputError, match=r"allox: (fraction|window)="):
        build_planner(f"allox:{knob}", Setting(cluster("1x1")))
