"""Virtual GPU types with a declared speed: real processes run slower there, and none stays paused."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from local_world import World, on, sh, until
from test_local_suspend import way  # noqa: F401
from test_local_turns import SPIN, is_paused, keeper_of

from skep.core.actions import Launch, Resume, Stop, Suspend
from skep.core.cluster import Cluster, NodeSpec
from skep.core.reports import Exited, Resumed, Suspended
from skep.engines.local.processes import cpu_below
from skep.jobs.request import Request, TaskRole

pytestmark = pytest.mark.slow

SLOW = (("", 0.4), ("light", 0.8))


def nodes(speeds: tuple[tuple[str, float], ...] = SLOW) -> Cluster:
    return Cluster([NodeSpec("n0", 4, "slow", speeds=speeds), NodeSpec("n1", 4, "full")])


def world_of(folder: Path, *job_ids: str, model: str = "") -> World:
    request = Request("job", {"main": TaskRole(command=SPIN)}, grace_s=5.0, model=model)
    world = World(folder, dict.fromkeys(job_ids, request))
    world.engine.use_cluster(nodes())
    return world


def speed(world: World, job_id: str) -> float:
    """The share of the time in which it may run: CPU time would depend on who else wants the cores."""
    awake = []
    end_s = time.monotonic() + 3.0
    while time.monotonic() < end_s:
        awake.append(not is_paused(world, job_id))
        time.sleep(0.01)
    return sum(awake) / len(awake)


def test_a_job_on_a_slow_type_is_slowed_alone(tmp_path: Path, way: str) -> None:  # noqa: F811
    with world_of(tmp_path, "1", "2") as world:
        world.start("2", allocation=on(1, gpus=1))
        assert not keeper_of(tmp_path)
        world.start("1", allocation=on(0, gpus=1))
        assert until(lambda: "1/1" in world.engine.runs.shares.measured().members)
        assert speed(world, "1") == pytest.approx(0.4, abs=0.15)
        assert speed(world, "2") == 1.0
        assert world.engine.runs.shares.measured().members["1/1"].way == way


def test_speeds_differ_by_model_and_with_the_cluster(tmp_path: Path) -> None:
    with world_of(tmp_path, "1", "2", model="light") as world:
        for job_id, node in (("1", 0), ("2", 1)):
            world.start(job_id, allocation=on(node, gpus=1))
        assert until(lambda: "1/1" in world.engine.runs.shares.measured().members)
        assert world.engine.runs.shares._written.groups[0].members["1/1"].speed == 0.8
        world.engine.use_cluster(nodes(()))
        assert until(lambda: not world.engine.runs.shares.measured().members or not keeper_of(tmp_path))
        assert speed(world, "1") > 0.75


def test_a_suspended_job_rests_until_it_is_resumed(tmp_path: Path) -> None:
    with world_of(tmp_path, "1") as world:
        world.start("1", allocation=on(0, gpus=1))
        assert until(lambda: "1/1" in world.engine.runs.shares.measured().members)
        world.do(Suspend("1", 1))
        world.wait(Suspended)
        before = cpu_below(world.shim("1"))
        time.sleep(0.5)
        assert cpu_below(world.shim("1")) - before < 0.1
        world.do(Resume("1", 1))
        world.wait(Resumed)
        assert until(lambda: cpu_below(world.shim("1")) - before > 0.3)
        world.do(Stop("1", "preempted", 1))
        assert world.wait(Exited).was_stopped


def test_a_gang_is_as_slow_as_its_slowest_gpu_and_cpu_jobs_are_not(tmp_path: Path) -> None:
    requests = {"1": Request("job", {"main": TaskRole(count=2, command="sleep 60")}), "2": sh("sleep 60")}
    with World(tmp_path, requests) as world:
        world.engine.use_cluster(nodes())
        world.start("1", allocation=on(0, 1, gpus=1))
        world.start("2", allocation=on(0))
        assert (world.engine.runs.by_job["1"].speed, world.engine.runs.by_job["2"].speed) == (0.4, 1.0)


def test_a_new_server_goes_on_slowing(tmp_path: Path) -> None:
    before = world_of(tmp_path, "1", "2")
    for job_id, node in (("1", 0), ("2", 1)):
        before.start(job_id, allocation=on(node, gpus=1))
    assert until(lambda: "1/1" in before.engine.runs.shares.measured().members)
    before.engine.close()
    with world_of(tmp_path, "1", "2") as world:
        known = {("1", 1), ("2", 1)}
        world.adopt(known, *(Launch(job_id, on(node, gpus=1), 1) for job_id, node in (("1", 0), ("2", 1))))
        assert until(lambda: {"1", "2"} <= world.engine.runs.by_job.keys())
        assert world.engine.runs.by_job["1"].speed == 0.4
        assert speed(world, "1") == pytest.approx(0.4, abs=0.15)
