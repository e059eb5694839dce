"""Jobs that share a GPU take turns, as real processes; and none stays paused, whatever dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local_world import World, is_alive, sh, until
from test_local_suspend import way  # noqa: F401

from skep.core.actions import Limit, Reshare, Stop, Suspend
from skep.core.cluster import Allocation, Slice
from skep.core.reports import Exited, Moved, Suspended
from skep.engines.local.processes import cpu_below, family, send, state_of
from skep.files.untrusted import lock_holder

SPIN = "exec python3 -c 'while True: pass'"


def part(mode: str = "slice", milli: int = 0, limit: int = 0, node: int = 0, gpus: int = 1) -> Allocation:
    return Allocation((Slice(node, gpus, milli, limit=limit, mode=mode),), milli / 1000)


def keeper_of(folder: Path) -> int:
    return lock_holder(folder / "turns" / "lock")


def is_paused(world: World, job_id: str) -> bool:
    """By its state, which a control group does not change, or by that group."""
    pids = family(world.shim(job_id))
    freezes = world.engine.groups.bases.get("freezer") or world.engine.groups.bases.get("unified")
    if freezes is not None:
        groups = list(freezes.glob(f"{world.engine.groups.mark}.{job_id}.*/turn/cgroup.freeze"))
        if any(group.read_text().strip() == "1" for group in groups):
            return True
    return bool(pids) and all(state_of(pid) == b"T" for pid in pids)


def shares(world: World, *job_ids: str, cpu_s: float = 1.5) -> list[float]:
    """Of the CPU time of all of them, once they have used so much: on a busy machine that takes longer."""
    before = [cpu_below(world.shim(job_id)) for job_id in job_ids]

    def used() -> list[float]:
        return [cpu_below(world.shim(job_id)) - was for job_id, was in zip(job_ids, before, strict=True)]

    assert until(lambda: sum(used()) >= cpu_s)
    return [each / sum(used()) for each in used()]


def settles(world: World, job_id: str, low: float, high: float) -> bool:
    """Whether the measured share of a job comes between these and is there a second later."""

    def is_between() -> bool:
        measured = world.engine.runs.shares.measured().members.get(f"{job_id}/1")
        return measured is not None and low < measured.share < high

    if not until(is_between):
        return False
    time.sleep(1.0)
    return is_between()


def two(folder: Path, command: str = SPIN) -> World:
    world = World(folder, {"1": sh(command), "2": sh(command)})
    for job_id in ("1", "2"):
        world.start(job_id, allocation=part())
    assert until(lambda: set(world.engine.runs.shares.measured().members) == {"1/1", "2/1"})
    return world


def test_two_jobs_take_turns(tmp_path: Path, way: str) -> None:  # noqa: F811
    with two(tmp_path) as world:
        first, second = shares(world, "1", "2")
        assert abs(first - second) < 0.2
        measured = world.engine.runs.shares.measured().members["1/1"]
        assert measured.way == way
        assert world.engine.tasks("1")[0].gpus == [0]
        assert settles(world, "1", 0.3, 0.7)
        together = sum(is_paused(world, "1") + is_paused(world, "2") == 0 for _ in range(50) if not time.sleep(0.01))
        assert together < 15


@contextmanager
def held(world: World) -> Iterator[str]:
    """While its keeper is stopped: the job that is paused by its turn, and stays so."""
    keeper = keeper_of(world.folder)
    os.kill(keeper, signal.SIGSTOP)
    try:
        yield "1" if is_paused(world, "1") else "2"
    finally:
        send(keeper, signal.SIGCONT)


def test_a_paused_job_can_be_stopped_and_saves_itself(tmp_path: Path, way: str) -> None:  # noqa: F811
    with two(tmp_path, "trap 'echo saved; exit 0' TERM; echo on; while true; do :; done") as world:
        with held(world) as job_id:
            world.do(Stop(job_id, "preempted", 1))
            told = world.wait(Exited, job_id)
        assert (told.was_stopped, told.log_tail) == (True, "on\nsaved\n")


def test_a_paused_job_that_dies_is_noticed(tmp_path: Path, way: str) -> None:  # noqa: F811
    with two(tmp_path) as world:
        with held(world) as job_id:
            os.kill(int((world.task(job_id) / "main").read_text()), signal.SIGKILL)
            told = world.wait(Exited, job_id)
        assert (told.code, told.was_stopped) == (137, False)


def test_a_paused_job_can_be_suspended_and_gets_no_turns(tmp_path: Path, way: str) -> None:  # noqa: F811
    with two(tmp_path) as world:
        world.do(Suspend("1", 1))
        world.wait(Suspended)
        assert until(lambda: not world.engine.runs.shares._written.groups)  # the other one is alone
        before = cpu_below(world.shim("1"))
        assert shares(world, "1", "2", cpu_s=0.5)[1] > 0.9
        assert cpu_below(world.shim("1")) - before < 0.1


def test_a_dead_keeper_is_replaced(tmp_path: Path, way: str) -> None:  # noqa: F811
    with two(tmp_path) as world:
        old = keeper_of(tmp_path)
        os.kill(old, signal.SIGKILL)
        assert until(lambda: keeper_of(tmp_path) not in (0, old))
        first, second = shares(world, "1", "2")
        assert abs(first - second) < 0.2


@pytest.mark.slow
def test_a_stuck_keeper_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.engines.local.shares.STUCK_S", 3.0)
    with two(tmp_path) as world:
        old = keeper_of(tmp_path)
        os.kill(old, signal.SIGSTOP)
        assert until(lambda: keeper_of(tmp_path) not in (0, old))
        assert not is_alive(old)
        assert min(shares(world, "1", "2")) > 0.3


def test_new_processes_of_a_job_are_paused_too(tmp_path: Path, way: str) -> None:  # noqa: F811
    fork = "setsid bash -c 'while true; do :; done' & "
    with two(tmp_path, f"{fork} sleep 0.5; {fork} wait") as world:
        assert until(lambda: all(len(family(world.shim(job_id))) == 3 for job_id in ("1", "2")))
        with held(world) as job_id:
            before = cpu_below(world.shim(job_id))
            time.sleep(0.5)
            assert cpu_below(world.shim(job_id)) - before < 0.1


def test_a_limit_holds_for_a_job_that_is_alone(tmp_path: Path, way: str) -> None:  # noqa: F811
    with World(tmp_path, {"1": sh(SPIN)}) as world:
        world.start(allocation=part("", 1000))
        world.do(Limit("1", 1, 300))
        assert settles(world, "1", 0.2, 0.4)
        world.do(Limit("1", 1, 1000))
        assert until(lambda: keeper_of(tmp_path) == 0)
        assert not is_paused(world, "1")


def test_a_gang_takes_its_turn_as_a_whole(tmp_path: Path) -> None:
    gang = Allocation((Slice(0, 0b11, 0, tasks=2, mode="slice"),), 0)
    with World(tmp_path, {"1": sh(SPIN, count=2), "2": sh(SPIN), "3": sh(SPIN)}) as world:
        world.start("1", allocation=gang)
        world.start("2", allocation=part())
        world.start("3", allocation=part(gpus=0b10))
        assert until(lambda: len(world.engine.runs.shares.measured().members) == 3)
        for job_id in ("1", "2", "3"):
            assert settles(world, job_id, 0.3, 0.7)
        with held(world):
            assert is_paused(world, "2") == is_paused(world, "3") != is_paused(world, "1")


@pytest.mark.slow
def test_nobody_stays_paused_when_server_and_keeper_are_gone(tmp_path: Path, way: str) -> None:  # noqa: F811
    with two(tmp_path) as world:
        world.engine.runs.shares.check = lambda: None  # type: ignore[method-assign]
        with held(world):
            assert until(lambda: not is_paused(world, "1") and not is_paused(world, "2"), timeout_s=30)
            assert min(shares(world, "1", "2", cpu_s=1.0)) > 0.0


def test_a_paused_job_moves_to_a_gpu_of_its_own(tmp_path: Path, way: str) -> None:  # noqa: F811
    with two(tmp_path, f"trap 'exit 143' TERM; {SPIN.removeprefix('exec ')} & wait") as world, held(world) as job_id:
        world.move(job_id, 2, part("", 1000, node=1))
        assert world.wait(Moved, job_id).launch == 2
        assert until(lambda: not world.engine.runs.shares._written.groups)


def test_other_terms_begin_and_end_turns(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh(SPIN), "2": sh(SPIN)}) as world:
        for job_id in ("1", "2"):
            world.start(job_id, allocation=part("pack", 500, 1000))
        assert keeper_of(tmp_path) == 0
        world.do(Reshare("1", 1, part()), Reshare("2", 1, part()))
        assert until(lambda: len(world.engine.runs.shares.measured().members) == 2)
        assert until(lambda: is_paused(world, "1") != is_paused(world, "2"))
        world.do(Reshare("1", 1, part("pack", 500, 1000)), Reshare("2", 1, part("pack", 500, 1000)))
        assert until(lambda: keeper_of(tmp_path) == 0)
        assert not is_paused(world, "1")
        assert not is_paused(world, "2")


def test_weights_and_the_quantum_of_a_plan_hold(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh(SPIN), "2": sh(SPIN)}) as world:
        for job_id, weight in (("1", 3), ("2", 1)):
            piece = Slice(0, 1, 0, limit=1000, mode="slice", group="g", weight=weight, quantum_ms=50)
            world.start(job_id, allocation=Allocation((piece,), 1))
        assert until(lambda: len(world.engine.runs.shares.measured().members) == 2)
        assert world.engine.runs.shares._written.groups[0].quantum_s == 0.05
        assert settles(world, "1", 0.65, 0.85)
        assert world.engine.share("1")["share"] == pytest.approx(0.75, abs=0.1)


def test_an_opportunistic_job_has_the_idle_class_while_the_guaranteed_one_works(tmp_path: Path) -> None:
    calm = tmp_path / "calm"
    work = sh(f"while :; do if [ -e {calm} ]; then sleep 0.2; fi; done")
    with World(tmp_path, {"1": work, "2": sh(SPIN)}) as world:
        world.start("1", allocation=part("lend", 1000, 1000))
        world.start("2", allocation=part("lend", 0, 1000))
        assert until(lambda: "duty" in world.engine.share("2"))
        pid = family(world.shim("2"))[0]
        assert os.sched_getscheduler(pid) == os.SCHED_IDLE
        calm.touch()
        assert until(lambda: world.engine.share("2")["duty"] == 1.0)
        assert until(lambda: os.sched_getscheduler(pid) == os.SCHED_OTHER), "other processes do not go first then"
        calm.unlink()
        assert until(lambda: os.sched_getscheduler(pid) == os.SCHED_IDLE)
        world.do(Stop("1", "preempted", 1))
        world.wait(Exited, "1")
        assert until(lambda: os.sched_getscheduler(pid) == os.SCHED_OTHER)
