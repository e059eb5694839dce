"""Tasks that stand still, by a control group where there is one and by signals elsewhere, and go on in every case."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from local_world import World, is_alive, on, sh, until
from test_local_crash import main_file, request, server

from skep.core.actions import Launch, Limit, Resume, Stop, Suspend
from skep.core.reports import Exited, Refused, Resumed, Started, Suspended
from skep.engines.local import engine as engine_module
from skep.engines.local.cgroups import find_bases
from skep.engines.local.runs import LEASE_S

COUNT = "i=0; while true; do i=$((i+1)); echo $i >> $SKEP_CHECKPOINT_DIR/$SKEP_TASK_INDEX; sleep 0.02; done"
STILL_S = 0.3
"""In which a task that goes on would have counted many times."""


@pytest.fixture(params=["freezer", "signals"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "signals":
        bases = {key: base for key, base in find_bases().items() if key not in ("freezer", "unified")}
        monkeypatch.setattr(engine_module, "find_bases", lambda: bases)
    return str(request.param)


def counted(folder: Path, task: int = 0) -> int:
    try:
        return len((folder / f"jobs/1/checkpoint/{task}").read_text().split())
    except FileNotFoundError:
        return 0


def goes_on(folder: Path, task: int = 0) -> bool:
    before = counted(folder, task)
    return until(lambda: counted(folder, task) > before)


def stands(folder: Path, task: int = 0) -> bool:
    before = counted(folder, task)
    time.sleep(STILL_S)
    return counted(folder, task) == before


def suspend(world: World, launch: int = 1, count: int = 1) -> None:
    world.do(Suspend("1", launch))
    assert world.wait(Suspended, count=count).launch == launch


def test_suspend_and_resume(tmp_path: Path, way: str) -> None:
    with World(tmp_path, {"1": sh(f"bash -c '{COUNT}' & wait")}) as world:
        if way == "freezer" and not {"freezer", "unified"} & world.engine.groups.bases.keys():
            pytest.skip("no control group of version 2 may be made here")
        world.start()
        assert goes_on(tmp_path)
        suspend(world)
        assert stands(tmp_path)
        assert world.engine.tasks("1")[0].state == "suspended"
        suspend(world, count=2)  # asked for again, told again
        world.do(Resume("1", 1))
        assert world.wait(Resumed).launch == 1
        assert goes_on(tmp_path)
        world.do(Resume("1", 1))
        world.wait(Resumed, count=2)
        assert world.engine.tasks("1")[0].state == "running"


def test_a_gang_stands_still_as_a_whole(tmp_path: Path, way: str) -> None:
    with World(tmp_path, {"1": request(COUNT, 2)}) as world:
        world.start(allocation=on(0, 1))
        assert goes_on(tmp_path)
        assert goes_on(tmp_path, 1)
        suspend(world)
        assert stands(tmp_path)
        assert stands(tmp_path, 1)
        world.do(Resume("1", 1))
        world.wait(Resumed)


def test_a_suspended_task_can_still_save_itself(tmp_path: Path, way: str) -> None:
    with World(tmp_path, {"1": sh("trap 'echo saved; exit 0' TERM; sleep 60 & echo on; wait")}) as world:
        world.start()
        assert until(lambda: world.log() == "on\n")
        suspend(world)
        world.do(Stop("1", "preempted", 1))
        told = world.wait(Exited)
        assert (told.was_stopped, told.log_tail) == (True, "on\nsaved\n")


def test_a_suspended_task_that_dies_is_noticed(tmp_path: Path, way: str) -> None:
    with World(tmp_path, {"1": sh(COUNT)}) as world:
        world.start()
        suspend(world)
        os.kill(int(main_file(tmp_path).read_text()), signal.SIGKILL)
        told = world.wait(Exited)
        assert (told.code, told.was_stopped) == (137, False)


def test_a_shim_that_dies_takes_its_suspended_task_along(tmp_path: Path, way: str) -> None:
    with World(tmp_path, {"1": sh(f"setsid sleep 987 & {COUNT}")}) as world:
        world.start()
        suspend(world)
        os.kill(world.shim(), signal.SIGKILL)
        assert world.wait(Exited).code == 137  # and nobody is left, see `World.close`


def test_orders_for_another_start_do_nothing(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh(COUNT)}) as world:
        world.start(launch=2)
        world.do(Suspend("1", 1), Stop("1", "preempted", 1), Suspend("nobody", 1))
        world.do(Launch("1", on(0), 2))
        world.wait(Started, count=2)
        assert goes_on(tmp_path)
        assert not world.of(Suspended)
        suspend(world, launch=2)


def test_what_is_not_offered_is_refused(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh(COUNT)}) as world:
        world.start()
        world.do(Limit("1", 1, 500), Suspend("1", 1, "swapped"))
        assert world.wait(Refused, count=2).action == "suspend"
        assert [told.action for told in world.of(Refused)] == ["limit", "suspend"]  # it has no GPU to limit
        assert goes_on(tmp_path)


@pytest.mark.slow
def test_the_order_is_renewed(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh(COUNT)}) as world:
        world.start()
        suspend(world)
        before = counted(tmp_path)
        time.sleep(LEASE_S + 1)
        assert counted(tmp_path) == before
        assert not world.of(Resumed)


@pytest.mark.slow
def test_a_killed_server_leaves_nobody_standing(tmp_path: Path) -> None:
    """And the next one lets it stand still again, or not, as its state wants."""
    then = "from skep.core.actions import Suspend; world.do(Suspend('1', 1))"
    with server(tmp_path, COUNT, then=then) as process:
        assert until(lambda: (tmp_path / "jobs/1/1/main-0/suspended").exists())
        assert stands(tmp_path)
        process.kill()
        process.wait()
    killed_s = time.monotonic()
    assert goes_on(tmp_path)
    assert time.monotonic() - killed_s < LEASE_S + 10  # it is 5 s on a machine that has time
    assert is_alive(int(main_file(tmp_path).read_text()))
    with World(tmp_path, {"1": request(COUNT)}) as world:
        world.adopt({("1", 1)}, Launch("1", on(0), 1), Suspend("1", 1))
        world.wait(Suspended)
        assert stands(tmp_path)
        world.adopt({("1", 1)}, Launch("1", on(0), 1), Resume("1", 1))
        world.wait(Resumed)
        assert goes_on(tmp_path)


def test_a_shim_obeys_no_server_that_was_replaced(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("echo on; sleep 60")}) as world:
        world.adopt(set())
        world.start()
        task = world.engine.runs.by_job["1"].tasks[0]
        world.engine.fence.path.write_text("7")
        assert task.send(6, "kill")
        assert task.send(7, "suspend", 5)
        assert until(lambda: (world.task() / "suspended").exists())  # it came after, and was heard
        assert is_alive(int(main_file(tmp_path).read_text()))


def test_a_job_starts_on_the_gpus_of_a_suspended_one(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("sleep 600"), "2": sh("sleep 600")}) as world:
        world.start("1", allocation=on(0, gpus=1))
        world.do(Suspend("1", 1), Launch("2", on(0, gpus=1), 1))
        world.wait(Suspended)
        world.wait(Started, "2")
