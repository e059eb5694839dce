"""Freezing and thawing, with a program in CRIU's place: the real one needs a kernel it knows.

It "freezes" by writing the count the task has reached, and "thaws" by starting a counter there.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from local_world import World, processes_of, until

from skep.core.actions import Stop
from skep.core.reports import Exited, Started
from skep.engines.local import criu
from skep.jobs.request import Request, TaskRole

COUNT = "while true; do i=$((i+1)); echo $i; sleep 0.02; done"
FAKE = f"""#!/bin/bash
echo "$@" >> CALLS
case $1 in
check) exit 0;;
dump)
    kill -STOP $3; tail -n 1 $5/../criu-main-0.log > $5/inventory.img; kill -9 $3; exit FREEZE;;
restore)
    [ -n "THAW" ] && exit 1
    i=$(cat $3/inventory.img)
    ( ( {COUNT} ) >> $3/../criu-main-0.log 2>&1 & echo $! > ${{!#}} )
    exit 0;;
esac
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def install(*, freeze: int = 0, thaw: str = "") -> Path:
        program = tmp_path / "bin" / "criu"
        program.parent.mkdir(exist_ok=True)
        text = FAKE.replace("CALLS", str(tmp_path / "calls"))
        program.write_text(text.replace("FREEZE", str(freeze)).replace("THAW", thaw))
        program.chmod(0o755)
        return tmp_path / "calls"

    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    criu.criu_problem.cache_clear()
    yield install
    criu.criu_problem.cache_clear()


def counter() -> Request:
    return Request("job", {"main": TaskRole(command=f"i=0; {COUNT}")}, checkpoint="criu", grace_s=3)


def numbers(world: World) -> list[int]:
    return [int(line) for line in world.log().split()]


def test_a_frozen_task_goes_on_where_it_was(tmp_path: Path, fake) -> None:
    calls = fake()
    with World(tmp_path / "data", {"1": counter()}) as world:
        world.start()
        assert until(lambda: len(numbers(world)) > 3)
        world.do(Stop("1", "preempted"))
        assert world.wait(Exited).was_stopped
        reached = len(numbers(world))
        world.launch(launch=2)
        world.wait(Started, count=2)
        assert until(lambda: len(numbers(world)) > reached + 3)
        world.do(Stop("1", "preempted"))
        world.wait(Exited, count=2)
        assert until(lambda: not processes_of(tmp_path / "data"))
        assert numbers(world) == list(range(1, len(numbers(world)) + 1))
    words = [line.split()[0] for line in calls.read_text().splitlines()]
    assert words == ["check", "dump", "restore", "dump"]


def test_a_freeze_that_fails_becomes_a_stop(tmp_path: Path, fake) -> None:
    fake(freeze=1)
    with World(tmp_path / "data", {"1": counter()}) as world:
        world.start()
        assert until(lambda: len(numbers(world)) > 1)
        world.do(Stop("1", "preempted"))
        assert world.wait(Exited).was_stopped
        assert "skep: criu could not freeze the task" in world.log()


def test_a_thaw_that_fails_is_said_and_keeps_the_image(tmp_path: Path, fake) -> None:
    fake(thaw="fails")
    with World(tmp_path / "data", {"1": counter()}) as world:
        world.start()
        assert until(lambda: len(numbers(world)) > 1)
        world.do(Stop("1", "preempted"))
        world.wait(Exited)
        world.launch(launch=2)
        told = world.wait(Exited, count=2)
        assert (told.code, told.was_stopped) == (125, False)
        assert "skep: criu could not restore the task" in told.log_tail
        assert (tmp_path / "data/jobs/1/frozen/criu-main-0/inventory.img").exists()


def test_without_criu_the_task_gets_the_signal_and_the_log_says_why(tmp_path: Path, fake) -> None:
    with World(tmp_path / "data", {"1": counter()}) as world:
        world.start()
        world.do(Stop("1", "preempted"))
        assert world.wait(Exited).was_stopped
        assert world.log().startswith("skep: criu is not installed, so a task cannot be frozen here; it gets SIGTERM")
