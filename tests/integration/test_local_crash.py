"""The server's process dies at any moment; what runs goes on, its exits are kept, and the next one takes over."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from local_world import World, is_alive, on, processes_of, sh, until

from skep.core.actions import Launch, Move, Stop
from skep.core.reports import Exited, LaunchFailed, Moved, Started
from skep.engines.local.start import start_shim
from skep.jobs.request import Request, TaskRole

SERVER = """
import sys, time
from pathlib import Path
sys.path.insert(0, {here!r})
from local_world import World, on, sh, until
from skep.jobs.request import Request, TaskRole
role = TaskRole(count={count}, command={command!r})
world = World(Path({folder!r}), {{"1": Request("job", {{"main": role}}, grace_s=30)}})
world.launch(allocation=on(*[0] * {count}))
print("asked", flush=True)
{then}
time.sleep(60)
"""


@contextlib.contextmanager
def server(folder: Path, command: str, *, count: int = 1, then: str = ""):
    """An engine in a process of its own, told to launch job 1."""
    here = str(Path(__file__).parent)
    code = SERVER.format(here=here, folder=str(folder), command=command, count=count, then=then)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def request(command: str, count: int = 1) -> Request:
    return Request("job", {"main": TaskRole(count=count, command=command)}, grace_s=30)


def wait_for(name: str) -> str:
    """For a script: until the test makes this file in the checkpoint folder."""
    return f"until [ -e $SKEP_CHECKPOINT_DIR/{name} ]; do sleep 0.05; done"


def main_file(folder: Path, launch: int = 1, task: str = "main-0") -> Path:
    return folder / "jobs" / "1" / str(launch) / task / "main"


def test_an_exit_while_nobody_looks_is_kept(tmp_path: Path) -> None:
    command = f"echo once >> $SKEP_CHECKPOINT_DIR/runs; {wait_for('go')}; echo done; exit 42"
    with server(tmp_path, command) as process:
        assert until(lambda: main_file(tmp_path).exists())
        process.kill()
        process.wait()
    assert is_alive(int(main_file(tmp_path).read_text()))
    (tmp_path / "jobs/1/checkpoint/go").touch()
    assert until(lambda: (tmp_path / "jobs/1/1/main-0/exit.json").exists())
    assert until(lambda: not processes_of(tmp_path))
    with World(tmp_path, {"1": request(command)}) as world:
        world.launch()
        told = world.wait(Exited)
        assert (told.code, told.log_tail, told.was_stopped) == (42, "done\n", False)
    assert (tmp_path / "jobs/1/checkpoint/runs").read_text() == "once\n"


def test_what_runs_is_adopted(tmp_path: Path) -> None:
    command = "trap 'echo saved; exit 0' TERM; sleep 60 & echo on; wait"
    with server(tmp_path, command, count=2) as process:
        assert until(lambda: main_file(tmp_path, task="main-1").exists() and main_file(tmp_path).exists())
        process.kill()
    pids = [int(main_file(tmp_path, task=task).read_text()) for task in ("main-0", "main-1")]
    with World(tmp_path, {"1": request(command, 2)}) as world:
        world.adopt({("1", 1)})
        world.launch(allocation=on(0, 0))
        world.wait(Started)
        assert all(is_alive(pid) for pid in pids)
        ports = world.engine.folder.record("1", 1).tasks[0].ports["master"]
        assert set(ports) <= world.engine.runs.ports.in_use
        assert until(lambda: world.log() == "on\n")
        world.do(Stop("1", "preempted"))
        assert world.wait(Exited).was_stopped
        assert world.log() == "on\nsaved\n"
        assert not any(is_alive(pid) for pid in pids)


def test_what_runs_is_adopted_however_long_its_record_is(tmp_path: Path) -> None:
    """As that of a gang of many tasks."""
    large = {"1": sh("sleep 60", ports={"many": 12_000})}
    world = World(tmp_path, large)
    world.start()
    world.engine.close()
    assert (tmp_path / "jobs/1/1/launch.json").stat().st_size > 1 << 16
    with World(tmp_path, large) as world:
        world.launch()
        world.wait(Started)
        assert is_alive(int(main_file(tmp_path).read_text()))
        assert len(world.engine.tasks("1")) == 1


def test_a_ring_that_is_lost_is_made_up_for(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("sleep 0.5; exit 3")}) as world:
        world.start()
        world.engine.folder.reports.unlink()  # The shim finds no fifo to ring.
        assert world.wait(Exited).code == 3


def test_a_shim_killed_while_nobody_looks(tmp_path: Path) -> None:
    command = "setsid sleep 987 & echo $!; sleep 60"
    with server(tmp_path, command) as process:
        log = tmp_path / "jobs/1/1/main-0/log"
        assert until(lambda: log.exists() and bool(log.read_text()))
        process.kill()
    os.kill(int((tmp_path / "jobs/1/1/main-0/pid").read_text()), signal.SIGKILL)
    with World(tmp_path, {"1": request(command)}) as world:
        world.launch()
        assert world.wait(Exited).code == 137
        assert not is_alive(int(log.read_text()))


def test_what_nobody_knows_is_killed(tmp_path: Path) -> None:
    with server(tmp_path, "trap '' TERM; sleep 60") as process:
        assert until(lambda: main_file(tmp_path).exists())
        process.kill()
        process.wait()
    with World(tmp_path, {}) as world:
        world.adopt({("2", 1)})
        assert until(lambda: not processes_of(tmp_path))
        assert world.told == []


def test_a_sweep_does_not_touch_what_was_just_launched(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("sleep 0.5")}) as world:
        world.launch()
        world.adopt(set())
        assert world.wait(Exited).code == 0


def test_a_move_cut_short_goes_on(tmp_path: Path) -> None:
    trap = f"trap 'touch $SKEP_CHECKPOINT_DIR/asked; {wait_for('go')}; exit 0' TERM"
    command = f"{trap}; sleep 60 & echo $SKEP_LAUNCH >> $SKEP_CHECKPOINT_DIR/t; wait"
    checkpoint = tmp_path / "jobs/1/checkpoint"
    then = f"until(Path({str(checkpoint / 't')!r}).exists); world.move('1', 2)"
    with server(tmp_path, command, then=then) as process:
        assert until((checkpoint / "asked").exists)
        process.kill()
    assert not (tmp_path / "jobs/1/2").exists()
    (checkpoint / "go").touch()
    with World(tmp_path, {"1": request(command)}) as world:
        world.move("1", 2)
        assert world.wait(Moved).launch == 2
        assert until(lambda: (checkpoint / "t").read_text() == "1\n2\n")


def test_a_move_whose_stop_ended_while_nobody_looked_goes_on(tmp_path: Path) -> None:
    command = "trap 'exit 0' TERM; sleep 60 & wait"
    with server(tmp_path, command) as process:
        assert until(lambda: main_file(tmp_path).exists())
        process.kill()
    control = os.open(tmp_path / "jobs/1/1/main-0/control", os.O_WRONLY | os.O_NONBLOCK)
    os.write(control, b"stop 5\n")  # What the engine did first when it was asked to move the job.
    os.close(control)
    assert until(lambda: (tmp_path / "jobs/1/1/main-0/exit.json").exists())
    with World(tmp_path, {"1": request(command)}) as world:
        world.do(Launch("1", on(0), 1), Move("1", on(1), 2))  # As the service does after a crash.
        assert world.wait(Moved).launch == 2
        assert world.of(Exited) == []


def test_a_launch_whose_shims_were_never_started_is_started(tmp_path: Path) -> None:
    """The folder is complete, then the engine dies."""
    world = World(tmp_path, {"1": request("echo ran >> $SKEP_CHECKPOINT_DIR/runs", 2)})
    world.engine.runs._spawn = lambda run: None  # type: ignore[method-assign]
    world.launch(allocation=on(0, 0))
    assert until(lambda: (tmp_path / "jobs/1/1").exists())
    world.engine.close()
    # Of two shims the first engine had just started one.
    shim = start_shim(tmp_path / "jobs/1/1/main-0")
    with World(tmp_path, {"1": request("", 2)}) as world:
        world.launch(allocation=on(0, 0))
        assert world.wait(Exited).code == 0
    assert (tmp_path / "jobs/1/checkpoint/runs").read_text() == "ran\nran\n"
    assert until(lambda: shim.has_left)


def test_two_shims_for_one_task_run_it_once(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("echo ran >> $SKEP_CHECKPOINT_DIR/runs; sleep 0.3")}) as world:
        world.launch()
        assert until(lambda: (tmp_path / "jobs/1/1").exists())
        shims = [start_shim(tmp_path / "jobs/1/1/main-0") for _ in range(4)]
        world.wait(Exited)
        shims.append(start_shim(tmp_path / "jobs/1/1/main-0"))  # One that comes when all is over.
        assert until(lambda: all(shim.has_left for shim in shims))
    assert (tmp_path / "jobs/1/checkpoint/runs").read_text() == "ran\n"


def test_half_a_launch_folder_is_no_launch(tmp_path: Path) -> None:
    (tmp_path / "jobs/1/.1/main-0").mkdir(parents=True)
    with World(tmp_path, {"1": sh("exit 4")}) as world:
        assert world.run().code == 4


def test_a_shim_killed_while_it_waits_for_the_gang(tmp_path: Path) -> None:
    with World(tmp_path, {"1": request("touch $SKEP_CHECKPOINT_DIR/ran; sleep 60", 2)}) as world:
        world.engine.runs._go = lambda run: None  # type: ignore[method-assign]
        world.launch(allocation=on(0, 0))
        assert until(lambda: all((world.task(task=task) / "pid").exists() for task in ("main-0", "main-1")))
        os.kill(world.shim(), signal.SIGKILL)
        assert until(lambda: (world.task() / "exit.json").exists())
        del world.engine.runs._go
        world.wait(LaunchFailed)
        assert until(lambda: not processes_of(tmp_path))
    assert not (tmp_path / "jobs/1/checkpoint/ran").exists()


@pytest.mark.slow
def test_killed_at_many_moments_everything_runs_once(tmp_path: Path) -> None:
    """Kill the engine's process a little later each time, from before the launch to after the exit."""
    command = "echo ran >> $SKEP_CHECKPOINT_DIR/runs; sleep 0.1; exit 7"
    for number in range(12):
        folder = tmp_path / str(number)
        with server(folder, command, count=2) as process:
            time.sleep(number * 0.025)
            process.kill()
            process.wait()
        with World(folder, {"1": request(command, 2)}) as world:
            world.adopt({("1", 1)})
            world.launch(allocation=on(0, 0))
            assert world.wait(Exited).code == 7
        assert 1 <= len((folder / "jobs/1/checkpoint/runs").read_text().split()) <= 2
