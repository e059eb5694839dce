"""Stopping: politely first, then for sure, and nobody is left behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from local_world import World, is_alive, on, processes_of, sh, until

from skep.core.actions import Move, Stop
from skep.core.reports import Exited, Moved

SAVER = """
import pathlib, os, signal, sys, time
def save(*_):
    time.sleep(0.5)
    pathlib.Path(os.environ["SKEP_CHECKPOINT_DIR"], "saved").write_text("all of it")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
"""


def stop(world: World) -> Exited:
    world.do(Stop("1", "preempted"))
    return world.wait(Exited)


def started(world: World, *, lines: int = 1) -> list[str]:
    """What it printed, once that is so many lines."""
    world.start()
    assert until(lambda: len(world.log().splitlines()) >= lines), world.log()
    return world.log().splitlines()


def test_a_child_of_a_shell_gets_the_signal_and_its_time(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SAVER)
    with World(tmp_path / "data", {"1": sh(f"cd /; {sys.executable} {script}; echo after")}) as world:
        started(world)
        began = time.monotonic()
        told = stop(world)
        assert told.was_stopped
        assert 0.4 < time.monotonic() - began < 25
    assert (tmp_path / "data/jobs/1/checkpoint/saved").read_text() == "all of it"


def test_who_does_not_leave_is_killed_after_the_grace(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("trap '' TERM; echo on; sleep 60; sleep 60", grace_s=0.5)}) as world:
        started(world)
        began = time.monotonic()
        told = stop(world)
        assert 0.4 < time.monotonic() - began < 30
        assert (told.code, told.was_stopped) == (137, True)


def test_no_process_of_an_older_launch_writes_a_checkpoint_beside_the_next(tmp_path: Path) -> None:
    """One that left its session and ignores SIGTERM writes on and on, until it is killed; only then the next begins."""
    loop = "while :; do echo $SKEP_LAUNCH > $SKEP_CHECKPOINT_DIR/state; sleep 0.01; done"
    escaped = f"( trap '' TERM HUP INT; setsid bash -c '{loop}' >/dev/null 2>&1 & ); echo on; sleep 60"
    with World(tmp_path, {"1": sh(escaped, grace_s=0.5)}) as world:
        started(world)
        state = tmp_path / "jobs/1/checkpoint/state"
        assert until(lambda: state.exists() and state.read_text() == "1\n")
        world.requests["1"] = sh("echo $SKEP_LAUNCH > $SKEP_CHECKPOINT_DIR/state; sleep 60")
        world.do(Move("1", on(1), 2))
        world.wait(Moved)
        assert until(lambda: state.read_text() == "2\n")
        time.sleep(0.2)
        assert state.read_text() == "2\n"


ESCAPES = {
    "setsid": "setsid sleep 987 & echo $!",
    "nohup": "nohup sleep 987 >/dev/null 2>&1 & echo $!",
    "double fork": "( ( sleep 987 & echo $! ) & )",
    "double fork, own session, no environment": "( ( env -i setsid sleep 987 >/dev/null 2>&1 & echo $! ) & )",
    "ignores everything": "( trap '' TERM HUP INT; setsid sleep 987 & echo $! )",
    "stopped": "setsid sleep 987 & echo $!; kill -STOP $!",
}


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_nobody_is_left_after_a_stop(tmp_path: Path, escape: str) -> None:
    with World(tmp_path, {"1": sh(f"{escape}; sleep 60", grace_s=0.3)}) as world:
        pid = int(started(world)[0])
        stop(world)
        assert not is_alive(pid)
        assert until(lambda: not processes_of(tmp_path))


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_nobody_is_left_after_the_end(tmp_path: Path, escape: str) -> None:
    with World(tmp_path, {"1": sh(f"{escape}; sleep 0.2; exit 3")}) as world:
        told = world.run()
        assert (told.code, told.was_stopped) == (3, False)
        assert not is_alive(int(told.log_tail.split()[0]))


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
def test_nobody_is_left_when_the_shim_is_killed(tmp_path: Path, escape: str) -> None:
    with World(tmp_path, {"1": sh(f"{escape}; sleep 60")}) as world:
        if "env -i" in escape and not world.engine.groups.bases:
            pytest.skip("without control groups nothing marks a process that dropped its environment")
        pid = int(started(world)[0])
        os.kill(world.shim(), signal.SIGKILL)
        told = world.wait(Exited)
        assert (told.code, told.was_stopped) == (137, False)
        assert not is_alive(pid)
        assert processes_of(tmp_path) == []


def test_a_fork_bomb_ends(tmp_path: Path) -> None:
    bomb = (
        "f() { setsid bash -c 'trap \"\" TERM; sleep 0.05; for i in 1 2; do setsid sleep 987 & done; sleep 987' & }; "
    )
    with World(tmp_path, {"1": sh(bomb + "f; f; f; echo on; sleep 60", grace_s=0.1)}) as world:
        started(world)
        stop(world)
        assert until(lambda: not processes_of(tmp_path))


LOADER = """
import multiprocessing, os, pathlib, signal, sys, time
def work(inbox, outbox):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        outbox.put(inbox.get() * 2)
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    inbox, outbox = context.Queue(), context.Queue()
    worker = context.Process(target=work, args=(inbox, outbox), daemon=True)
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    worker.start()
    inbox.put(1)
    outbox.get()
    print("ready", flush=True)
    while not stop:
        time.sleep(0.01)
    time.sleep(0.3)
    inbox.put(21)
    print("last batch", outbox.get(timeout=25), flush=True)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_the_workers_of_a_loader_live_as_long_as_their_parent_needs_them(tmp_path: Path, method: str) -> None:
    script = tmp_path / "loader.py"
    script.write_text(LOADER)
    with World(tmp_path / "data", {"1": sh(f"{sys.executable} {script} {method}; true")}) as world:
        world.launch()
        assert until(lambda: "ready" in (world.log() if (world.task() / "log").exists() else ""))
        assert stop(world).was_stopped
        assert world.log().splitlines()[1:] == ["last batch 42"]


@pytest.mark.parametrize(
    ("progress", "code", "was_stopped"),
    [
        (None, 0, True),  # It knows nothing of us: it left because it was told to.
        (None, 5, True),
        ('{"step": 3, "left": true}', 0, True),
        ('{"step": 3}', 0, False),  # It was done just then.
        ('{"step": 3}', 5, True),
    ],
)
def test_what_an_exit_after_a_stop_means(tmp_path: Path, progress: str | None, code: int, was_stopped: bool) -> None:
    write = f"echo '{progress}' > $SKEP_TASK_DIR/progress.json; " if progress else ""
    with World(tmp_path, {"1": sh(f"trap '{{ exit {code}; }}' TERM; {write}sleep 60 & echo on; wait")}) as world:
        started(world)
        told = stop(world)
        assert (told.code, told.was_stopped) == (code, was_stopped)


def test_a_task_that_ended_before_the_stop_was_not_stopped(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("setsid bash -c 'trap \"\" TERM; echo on; sleep 60' & sleep 0.3; exit 7")}) as world:
        started(world)
        assert until(lambda: not is_alive(int((world.task() / "main").read_text())))
        told = stop(world)  # Only what it left behind is still there.
        assert (told.code, told.was_stopped) == (7, False)


def test_a_shell_does_not_go_on_when_its_child_leaves(tmp_path: Path) -> None:
    commands = {str(number): sh("echo on; sleep 60; echo went on") for number in range(10)}
    with World(tmp_path, commands) as world:
        for job_id in commands:
            world.start(job_id)
            world.do(Stop(job_id, "preempted"))
            world.wait(Exited, job_id)
            assert "went on" not in world.log(job_id)
