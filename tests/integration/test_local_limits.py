"""What a task may use, and what running many of them costs."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from local_world import WAIT_S, World, is_alive, on, sh, until

from skep.core.actions import Launch, Stop
from skep.core.reports import Exited, Started
from skep.engines.local import begin
from skep.engines.local.cgroups import members
from skep.engines.local.processes import below
from skep.engines.local.start import ShimProcess
from skep.jobs.request import LimitRules, Limits

HUNGRY = f"{sys.executable} -c 'x = bytearray(400 << 20); print(len(x))'"


def limited(world: World, controller: str) -> None:
    if not {controller, "unified"} & world.engine.groups.bases.keys():
        pytest.skip(f"no control group for {controller} may be made here")


def test_the_cause_of_a_kill_for_memory_is_told(tmp_path: Path) -> None:
    with World(
        tmp_path, {"1": sh(f"exec {HUNGRY}", memory_gib=0.1), "2": sh(f"{HUNGRY} || exit 1", memory_gib=0.1)}
    ) as world:
        limited(world, "memory")
        assert (world.run("1").code, world.wait(Exited, "1").cause) == (137, "oom")
        assert (world.run("2").code, world.wait(Exited, "2").cause) == (137, "oom")


def test_enough_memory_is_enough(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh(HUNGRY, memory_gib=1)}) as world:
        told = world.run()
        assert (told.code, told.cause) == (0, "")


def test_cpu_is_limited(tmp_path: Path) -> None:
    burn = "import time; end = time.monotonic() + 1\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    with World(tmp_path, {"1": sh(f"{sys.executable} -c '{burn}'", cpu=0.2)}) as world:
        limited(world, "cpu")
        assert float(world.run().log_tail) < 0.5


@pytest.mark.slow
def test_processes_are_limited(tmp_path: Path) -> None:
    many = "for i in $(seq 50); do sleep 60 & done 2>/dev/null; echo made $(jobs -p | wc -l)"
    with World(tmp_path, {"1": sh(many)}, limits=LimitRules(Limits(processes=10))) as world:
        limited(world, "pids")
        world.start()
        assert until(lambda: world.of(Exited) or "made" in world.log() or "fork" in world.log())
        world.do(Stop("1", "test"))
        world.wait(Exited)
        assert "made 50" not in world.log()


def test_a_task_has_the_file_limit_that_the_server_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begin, "STARTED_WITH", 777)
    with World(tmp_path, {"1": sh("ulimit -Sn")}) as world:
        assert world.run().log_tail == "777\n"


def test_the_groups_of_a_task_hold_it_and_go_with_it(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("setsid sleep 60 & wait", memory_gib=1, cpu=1)}) as world:
        if not world.engine.groups.bases:
            pytest.skip("no control group may be made here")
        world.start()
        groups = world.engine.folder.record("1", 1).tasks[0].cgroups
        assert until(lambda: len(members(groups)) == 2)
        assert world.shim() not in members(groups)
        world.do(Stop("1", "preempted"))
        world.wait(Exited)
        assert not any(os.path.exists(group) for group in groups)


def test_a_killed_shim_leaves_no_group(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("sleep 60", memory_gib=1, cpu=1)}) as world:
        if not world.engine.groups.bases:
            pytest.skip("no control group may be made here")
        world.start()
        groups = world.engine.folder.record("1", 1).tasks[0].cgroups
        assert groups
        os.kill(world.shim(), 9)
        world.wait(Exited)
        assert not any(os.path.exists(group) for group in groups)


def test_without_control_groups_it_runs_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from skep.engines.local import engine

    monkeypatch.setattr(engine, "find_bases", dict)
    with World(tmp_path, {"1": sh("setsid sleep 987 & echo $!; sleep 60", memory_gib=0.1)}) as world:
        world.start()
        assert until(lambda: bool(world.log()))
        os.kill(world.shim(), 9)
        assert world.wait(Exited).code == 137
        assert not is_alive(int(world.log()))
    said = [record.getMessage() for record in caplog.records]
    assert said == ["cpu and memory of tasks cannot be limited here: no control group may be made"]


@pytest.mark.slow
def test_many_launches_leave_nothing_open(tmp_path: Path) -> None:
    requests = {str(number): sh("true") for number in range(200)}
    with World(tmp_path, {"first": sh("true"), **requests}) as world:
        world.run("first")
        children = below(os.getpid()).keys()
        before = (len(os.listdir("/proc/self/fd")), threading.active_count())
        world.do(*[Launch(job_id, on(0), 1) for job_id in requests])
        for job_id in requests:
            assert world.wait(Exited, job_id, timeout_s=120).code == 0
        assert until(lambda: (len(os.listdir("/proc/self/fd")), threading.active_count()) == before)
        assert world.engine.runs.by_job == {}
        assert world.engine.runs.ports.in_use == set()
        assert until(lambda: below(os.getpid()).keys() <= children)


def test_execute_does_not_wait_for_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep.engines.local import launches as runs

    real, has_returned = runs.start_shim, threading.Event()
    seen = []

    def start(path: Path, **how: bool) -> ShimProcess:
        seen.append(has_returned.wait(WAIT_S))
        return real(path, **how)

    monkeypatch.setattr(runs, "start_shim", start)
    with World(tmp_path, {"1": sh("sleep 60")}) as world:
        world.launch()
        has_returned.set()
        world.wait(Started)
    assert seen == [True]


def test_a_process_runs_soon_after_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shims ring: nobody waits for the engine to look. `bench/load.py` says how many milliseconds that takes."""
    from skep.engines.local import engine

    monkeypatch.setattr(engine, "LOOK_S", 3600.0)
    requests = {str(number): sh("true") for number in range(5)}
    with World(tmp_path, {"first": sh("sleep 60"), **requests}) as world:
        world.start("first")
        for job_id in requests:
            assert world.run(job_id).code == 0


def test_the_engine_sleeps_while_nothing_happens(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("sleep 60")}) as world:
        world.start()
        before = time.process_time()
        time.sleep(1.5)
        assert time.process_time() - before < 0.1
