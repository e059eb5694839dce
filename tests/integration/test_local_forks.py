"""The process that forks shims may die or be stopped at any time; jobs notice nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from local_world import World, is_alive, sh, until

from skep.core.actions import Stop
from skep.core.reports import Exited, Started
from skep.engines.local import start
from skep.engines.local.processes import began, read


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> start.Forks:
    """One of its own for a test that hurts it."""
    forks = start.Forks()
    monkeypatch.setattr(start, "forks", forks)
    yield forks
    forks.end()


def open_files(pid: int) -> list[str]:
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # It is at work.
            found.append(os.readlink(link))
    return found


def pid_of(forks: start.Forks) -> int:
    assert forks._process is not None
    return forks._process.pid


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_another_takes_its_place(
    tmp_path: Path, forks: start.Forks, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(start, "ANSWER_S", 0.5)
    with World(tmp_path, {"1": sh("sleep 60"), "2": sh("exit 5"), "3": sh("exit 6")}) as world:
        world.start("1")
        for job_id, code in (("2", 5), ("3", 6)):
            before = pid_of(forks)
            os.kill(before, number)
            assert world.run(job_id).code == code
            assert until(lambda pid=before: not is_alive(pid))
        world.do(Stop("1", "preempted"))  # Its shim has lived on, and hears.
        assert world.wait(Exited, "1").was_stopped


def test_a_shim_that_left_before_anybody_looked_has_left() -> None:
    assert start.shim_of(b"4194305 0").has_left
    assert not start.shim_of(b"%d %d" % (os.getpid(), began(os.getpid()))).has_left


def test_what_cannot_be_forked_is_an_error(forks: start.Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("import os\nos.read(0, 100)\nos.write(0, b'!11 no more processes')\n")
    monkeypatch.setattr(start, "FORKS", str(broken))
    with pytest.raises(BlockingIOError, match="no more processes"):
        forks.start(tmp_path, goes_at_once=False)
    broken.write_text("")
    forks.end()
    with pytest.raises(OSError, match="does not answer"):
        forks.start(tmp_path, goes_at_once=False)


def test_it_ends_with_the_server_and_shims_do_not(tmp_path: Path) -> None:
    script = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from local_world import World, sh
from skep.engines.local import start
world = World(Path({str(tmp_path)!r}), {{"1": sh("sleep 0.5; exit 3")}})
world.start()
print(start.forks._process.pid, world.shim(), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        forks, shim = map(int, process.stdout.readline().split())
        process.kill()
    assert until(lambda: not is_alive(forks))
    assert until(lambda: not is_alive(shim))
    with World(tmp_path, {"1": sh("")}) as world:
        assert world.run().code == 3


def test_a_shim_has_nothing_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: start.Forks) -> None:
    monkeypatch.setenv("SKEP_TOKEN", "secret")
    held = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(held, True)
    with World(tmp_path / "data", {"1": sh("sleep 60")}) as world:
        world.start()
        shim = world.shim()
        assert b"SKEP" not in read(f"/proc/{shim}/environ")
        assert read(f"/proc/{shim}/cmdline").rstrip(b"\0") == f"skep-shim {world.task()}".encode()
        known = (str(world.task()), str(world.folder / "reports"), os.devnull, "pipe:")
        files = open_files(shim)
        assert all(file.startswith(known) for file in files), files
    os.close(held)


def test_a_stop_that_comes_before_the_shim_is_ready_is_heard(tmp_path: Path) -> None:
    jobs = {str(number): sh("sleep 60") for number in range(20)}
    with World(tmp_path, jobs) as world:
        for job_id in jobs:
            world.launch(job_id)
            world.do(Stop(job_id, "preempted"))
        for job_id in jobs:
            assert world.wait(Exited, job_id).was_stopped
            assert len(world.of(Started, job_id)) <= 1
