"""Tasks in container images on this machine: everything is as for processes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.integration.local_world import World, is_alive, on, processes_of, reachable_folder, sh, until
from tests.support.images import python_image

from skep.core.actions import Checkpoint, Launch, Resume, Stop, Suspend
from skep.core.ports import Capability
from skep.core.reports import Exited, Progressed, Resumed, Started, Suspended
from skep.engines.local.accounts import Accounts
from skep.jobs.request import Request, TaskRole

pytestmark = pytest.mark.slow
TRAIN = Path("src/skep/cli/demo/training.py").absolute()


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    yield python_image(tmp_path, monkeypatch)
    assert until(lambda: str(tmp_path) not in containers(), timeout_s=20), containers()


def containers() -> str:
    return subprocess.run(["podman", "ps", "--all", "--no-trunc"], capture_output=True, text=True, check=True).stdout


def test_output_exit_code_folders_and_variables(tmp_path: Path, image: str) -> None:
    """One container: a start takes a second."""
    command = """test -e /var || echo inside; pwd; echo "$SKEP_NODE $WORLD_SIZE $SECRET $(id -u)"
        echo kept > $SKEP_CHECKPOINT_DIR/file; python3 -c 'import skep.train'; echo error >&2; exit 7"""
    request = Request("job", {"main": TaskRole(command=command, image=image)}, secrets={"SECRET": "a b'$c"})
    with World(tmp_path / "data", {"1": request}) as world:
        assert Capability.IMAGES in world.engine.capabilities
        told = world.run()
        assert (told.code, told.cause) == (7, "")
        folder = tmp_path / "data" / "jobs" / "1"
        assert told.log_tail == f"inside\n{folder}/work\nn0 1 a b'$c 0\nerror\n"
        assert (folder / "checkpoint" / "file").read_text() == "kept\n"


def test_an_image_or_a_program_that_is_not_there(tmp_path: Path, image: str) -> None:
    gone = sh("true", image="localhost/no-such-image:1")
    program = Request("job", {"main": TaskRole(argv=("no-such-program",), image=image)})
    with World(tmp_path / "data", {"1": gone, "2": program}) as world:
        world.launch("2")
        told = world.run("1")
        assert (told.code, told.cause) == (125, "image")
        assert "no-such-image" in told.log_tail
        told = world.wait(Exited, "2")
        assert (told.code, told.cause) == (126, "")
        assert "no-such-program" in told.log_tail


def test_stop_lets_it_save_and_gets_every_process(tmp_path: Path, image: str) -> None:
    """The signal is sent once to each process of the container, also to one that the first process waits for."""
    python = (
        "import signal, sys, time\n"
        "def save(*_):\n    time.sleep(1); print('saved', flush=True); sys.exit(5)\n"
        "signal.signal(signal.SIGTERM, save); print('ready', flush=True)\ntime.sleep(600)"
    )
    request = sh(f'sleep 601 & python3 -c "{python}"; echo code $?', image=image)
    with World(tmp_path / "data", {"1": request}) as world:
        world.start()
        assert until(lambda: "ready" in world.log())
        world.do(Stop("1", "stopped", launch=1))
        told = world.wait(Exited)
        assert told.was_stopped
        assert world.log() == "ready\nsaved\n"
        assert until(lambda: not processes_of(tmp_path / "data" / "jobs"))


def test_one_that_ignores_the_signal_is_killed(tmp_path: Path, image: str) -> None:
    with World(
        tmp_path / "data", {"1": sh("trap '' TERM; while :; do sleep 1; done", image=image, grace_s=1)}
    ) as world:
        world.start()
        assert until(lambda: (world.task() / "contained").exists())
        world.do(Stop("1", "stopped", launch=1))
        assert world.wait(Exited).was_stopped


def test_limits_and_suspension(tmp_path: Path, image: str) -> None:
    """Its processes are in the task's control groups, with their limits."""
    greedy = 'import time; print("begin", flush=True); x = bytearray(400 << 20); time.sleep(60)'
    many = Request("job", {"main": TaskRole(argv=("python3", "-c", greedy), image=image, memory_gib=0.2)})
    clock = sh("while :; do echo tick; sleep 0.1; done", image=image)
    with World(tmp_path / "data", {"1": many, "2": clock}) as world:
        world.launch("1")
        world.start("2")
        assert until(lambda: "tick" in world.log("2"))
        world.do(Suspend("2", launch=1))
        world.wait(Suspended, "2")
        told = world.wait(Exited, "1")
        if "memory" in world.engine.groups.bases or "unified" in world.engine.groups.bases:
            assert (told.code, told.cause) == (137, "oom")
        seen = world.log("2")
        assert world.log("2") == seen
        world.do(Resume("2", launch=1))
        world.wait(Resumed, "2")
        assert until(lambda: len(world.log("2")) > len(seen))


def test_a_crash_of_the_server_and_of_the_shim(tmp_path: Path, image: str) -> None:
    request = sh("echo $$ > $SKEP_CHECKPOINT_DIR/pid; sleep 600", image=image)
    world = World(tmp_path / "data", {"1": request})
    world.start()
    pid_file = tmp_path / "data/jobs/1/checkpoint/pid"
    assert until(pid_file.exists)
    world.engine.close()  # The container goes on.
    with World(tmp_path / "data", {"1": request}) as world:
        world.adopt({("1", 1)}, Launch("1", on(0), 1))
        world.wait(Started)
        pid = int(pid_file.read_text())
        assert is_alive(pid)
        os.kill(world.shim(), signal.SIGKILL)
        told = world.wait(Exited)
        assert (told.code, told.cause) == (137, "shim-killed")
        assert not is_alive(pid)


def test_the_demo_trains_is_preempted_and_resumes_where_it_was(tmp_path: Path, image: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "training.py").write_bytes(TRAIN.read_bytes())
    role = TaskRole(argv=("python3", "training.py", "--steps", "60"), image=image, gpus=1)
    requests = {"1": Request("job", {"main": role}, workdir=str(work))}
    with World(tmp_path / "data", requests) as world:
        world.start()
        assert until(lambda: any(each.values.get("step", 0) >= 5 for each in world.of(Progressed)))
        world.do(Checkpoint("1", launch=1))
        world.do(Stop("1", "preempted", launch=1))
        assert world.wait(Exited).was_stopped
        reached = max(each.values.get("step", 0) for each in world.of(Progressed))
        world.told.clear()
        told = world.run(launch=2)
        assert (told.code, told.was_stopped) == (0, False)
        assert min(each.values["step"] for each in world.of(Progressed) if each.values.get("step")) >= reached


def test_another_account(tmp_path: Path, image: str) -> None:
    """It runs as the account of its job, without rights, and reaches no folder that the account could not."""
    with reachable_folder() as folder:
        secret = folder / "closed"
        (folder / "data").mkdir()
        (secret / "open").mkdir(parents=True)
        secret.chmod(0o700)
        accounts = Accounts("separate", folder / "data")
        own = Request("a", {"main": TaskRole(command="id -u; cat /proc/self/status", image=image)}, user="ann")
        other = Request("b", {"main": TaskRole(command="pwd", image=image)}, user="ann", workdir=str(secret / "open"))
        with World(folder / "data", {"1": own, "2": other}, accounts=accounts) as world:
            said = world.run("1").log_tail
            assert said.startswith("5")
            assert "CapEff:\t0000000000000000" in said
            assert "NoNewPrivs:\t1" in said
            told = world.run("2")
            assert told.code == 126
            assert "cannot enter the folder" in told.log_tail


def test_exec_words(tmp_path: Path, image: str) -> None:
    with World(tmp_path / "data", {"1": sh("sleep 600", image=image)}) as world:
        world.start()
        assert until(lambda: (world.task() / "contained").exists())
        found = world.engine.environment("1")
        ran = subprocess.run(
            [*found.within, "bash", "-c", "pwd; echo $SKEP_JOB_ID"], capture_output=True, text=True, check=False
        )
        assert ran.stdout == f"{tmp_path}/data/jobs/1/work\n1\n", ran.stderr
