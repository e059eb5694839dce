"""Several tasks: a gang starts and ends as one, moves as one, and is lost as one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from local_world import World, on, processes_of, sh, until

from skep.core.actions import Launch, Move, Stop
from skep.core.cluster import Allocation, Slice
from skep.core.events import NodeBack, NodeLost
from skep.core.reports import Exited, LaunchFailed, Moved, Started
from skep.engines.local.start import ShimProcess
from skep.jobs.request import Completion, Elastic, Request, TaskRole


def gang(command: str, count: int = 2, *, grace_s: float = 30.0, completion: Completion | None = None) -> Request:
    role = TaskRole(count=count, command=command, completion=completion or Completion())
    return Request("job", {"w": role}, grace_s=grace_s)


def test_all_tasks_start_and_the_job_ends_with_the_last(tmp_path: Path) -> None:
    with World(tmp_path, {"1": gang("sleep 0.$((RANK * 4))", 2)}) as world:
        told = world.run(allocation=on(0, 1))
        assert (told.code, told.was_stopped) == (0, False)
        assert told.seconds >= 0.4
        assert len(world.of(Started)) == 1


def test_tasks_go_only_when_all_are_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep.engines.local import launches as runs

    real = runs.start_shim
    late: list[Path] = []

    def start(path: Path, **how: bool) -> ShimProcess | None:
        if path.name == "w-2":
            late.append(path)
            return None
        return real(path, **how)

    monkeypatch.setattr(runs, "start_shim", start)
    ran = tmp_path / "jobs/1/checkpoint/ran"
    with World(tmp_path, {"1": gang(f"echo $RANK >> {ran}", 3)}) as world:
        world.launch(allocation=on(0, 0, 1))
        assert until(lambda: all((world.task(task=task) / "pid").exists() for task in ("w-0", "w-1")))
        time.sleep(1.5)  # The engine looks again meanwhile.
        assert not ran.exists()
        shim = real(late[0])
        assert world.wait(Exited).code == 0
        assert until(lambda: shim.has_left)
    assert sorted(ran.read_text().split()) == ["0", "1", "2"]


def test_the_first_failure_ends_the_gang(tmp_path: Path) -> None:
    command = """trap 'echo asked; exit 0' TERM; cd $SKEP_CHECKPOINT_DIR
    if [ $RANK = 1 ]; then until [ -e 0 -a -e 2 ]; do sleep 0.05; done; exit 9; fi; sleep 60 & touch $RANK; wait"""
    with World(tmp_path, {"1": gang(command, 3)}) as world:
        told = world.run(allocation=on(0, 0, 1))
        assert (told.code, told.task, told.was_stopped) == (9, "w-1", False)
        assert world.log(task="w-0") == world.log(task="w-2") == "asked\n"
        assert until(lambda: not processes_of(tmp_path))


def test_one_success_can_be_enough(tmp_path: Path) -> None:
    completion = Completion(min_failed=None, min_succeeded=1)
    command = "[ $RANK = 0 ] && exit 1; [ $RANK = 1 ] && sleep 0.3 && exit 0; sleep 60"
    with World(tmp_path, {"1": gang(command, 3, completion=completion)}) as world:
        told = world.run(allocation=on(0, 0, 1))
        assert (told.code, told.task, told.was_stopped) == (0, "w-1", False)


def test_roles_and_an_elastic_number_of_tasks(tmp_path: Path) -> None:
    roles = {
        "ps": TaskRole(command="echo $ROLE_NAME $RANK"),
        "w": TaskRole(count=4, gpus=1, command="echo $ROLE_NAME $RANK"),
    }
    request = Request("job", roles, elastic=Elastic("w", 1, 4))
    allocation = Allocation((Slice(1, gpus=0b11, role=1, tasks=2), Slice(0, role=0)), 2)
    with World(tmp_path, {"1": request}) as world:
        assert world.run(allocation=allocation).code == 0
        assert [world.log(task=task) for task in ("ps-0", "w-0", "w-1")] == ["ps 0\n", "w 1\n", "w 2\n"]


def test_a_stopped_gang_is_stopped_once(tmp_path: Path) -> None:
    with World(tmp_path, {"1": gang("sleep 60", 3)}) as world:
        world.start(allocation=on(0, 0, 1))
        world.do(Stop("1", "preempted"), Stop("1", "preempted"))
        told = world.wait(Exited)
        assert (told.code, told.was_stopped) == (143, True)
        assert until(lambda: not processes_of(tmp_path))


def test_a_stop_right_after_the_launch(tmp_path: Path) -> None:
    with World(tmp_path, {"1": gang("touch $SKEP_CHECKPOINT_DIR/ran; sleep 60", 2)}) as world:
        world.do(Launch("1", on(0, 1), 1), Stop("1", "preempted"))
        told = world.wait(Exited)
        assert told.was_stopped
        assert until(lambda: not processes_of(tmp_path))
        assert not (tmp_path / "jobs/1/checkpoint/ran").exists()


SAVES = """cd $SKEP_CHECKPOINT_DIR; trap 'sleep 0.3; echo - >> t; exit 0' TERM
sleep 60 & echo + $SKEP_LAUNCH $SKEP_NODE >> t; wait"""


def test_a_move_stops_saves_and_goes_on_elsewhere(tmp_path: Path) -> None:
    with World(tmp_path, {"1": gang(SAVES, 1)}) as world:
        world.start()
        assert until(lambda: (tmp_path / "jobs/1/checkpoint/t").exists())
        world.move("1", 2)
        assert world.wait(Moved).launch == 2
        assert until(lambda: len((tmp_path / "jobs/1/checkpoint/t").read_text().splitlines()) == 3)
        assert (tmp_path / "jobs/1/checkpoint/t").read_text().splitlines() == ["+ 1 n0", "-", "+ 2 n1"]
        world.move("1", 2)  # Asked again, it is told again and does nothing.
        world.wait(Moved, count=2)
        assert world.of(Exited) == []


def test_a_job_that_finishes_while_it_should_move_has_finished(tmp_path: Path) -> None:
    command = """echo '{"step": 1}' > $SKEP_TASK_DIR/progress.json; trap '{ exit 0; }' TERM; sleep 60 & echo on; wait"""
    with World(tmp_path, {"1": gang(command, 1)}) as world:
        world.start()
        assert until(lambda: world.log() == "on\n")
        world.move("1", 2)
        told = world.wait(Exited)
        assert (told.launch, told.code, told.was_stopped) == (1, 0, False)
        assert world.of(Moved) == []
        assert world.engine.folder.launches("1") == [1]


def test_a_move_of_what_has_ended_tells_the_end(tmp_path: Path) -> None:
    with World(tmp_path, {"1": gang("exit 8", 1)}) as world:
        world.run()
        world.move("1", 2)
        told = world.wait(Exited, count=2)
        assert (told.launch, told.code) == (1, 8)


def test_a_stop_during_a_move_ends_the_move(tmp_path: Path) -> None:
    with World(tmp_path, {"1": gang(SAVES, 1)}) as world:
        world.start()
        assert until(lambda: (tmp_path / "jobs/1/checkpoint/t").exists())
        world.do(Move("1", on(1), 2), Stop("1", "preempted"))
        told = world.wait(Exited)
        assert (told.launch, told.was_stopped) == (1, True)
        assert world.of(Moved) == []


def test_a_lost_node_takes_its_gangs_with_it(tmp_path: Path) -> None:
    here = gang("trap '' TERM; sleep 60", 1)
    both = gang("trap 'echo asked; exit 0' TERM; sleep 60 & echo on; wait", 2)
    with World(tmp_path, {"here": here, "both": both, "there": here}) as world:
        world.start("here", allocation=on(0))
        world.start("there", allocation=on(1))
        world.start("both", allocation=on(0, 1))
        assert until(lambda: world.log("both", "w-1") == "on\n")
        world.engine.lose_node(0, "n0")
        for job_id in ("here", "both"):
            told = world.wait(Exited, job_id)
            assert (told.code, told.cause, told.was_stopped) == (137, "node-lost", False)
        assert world.log("both", "w-1") == "on\nasked\n"
        assert world.of(Exited, "there") == []
        changes = [report for report in world.told if isinstance(report, NodeLost | NodeBack)]
        assert changes == [NodeLost("n0")]
        assert world.told.index(changes[0]) < world.told.index(world.of(Exited, "here")[0])
        world.launch("here", 2, on(0))
        assert world.failure("here") == "node n0 is lost"
        world.engine.restore_node(0, "n0")
        world.launch("here", 3, on(0))
        assert world.wait(Started, "here", count=2).launch == 3
        assert world.told.index(NodeBack("n0")) < world.told.index(world.of(Started, "here")[1])
        assert len(world.of(LaunchFailed, "here")) == 1


def test_who_asks_for_an_older_start_hears_of_the_newer(tmp_path: Path) -> None:
    """The server crashed after a move and before it could write down that it was told."""
    with World(tmp_path, {"1": gang("sleep 60", 1)}) as world:
        world.start()
        world.move("1", 2)
        world.wait(Moved)
        world.launch(launch=1)
        assert world.wait(Moved, count=2).launch == 2
        assert world.engine.folder.launches("1") == [1, 2]


def test_two_that_swap_their_gpus_never_share_them(tmp_path: Path) -> None:
    """The quick one waits until the slow one has left its gpus, and the other way round."""
    ledger = tmp_path / "ledger"
    script = "trap 'sleep $1; echo out-$SKEP_NODE-$1 >> {0}; exit' TERM; sleep 60 & echo in-$SKEP_NODE-$1 >> {0}; wait"
    requests = {
        job: sh(f"set -- {seconds}; {script.format(ledger)}", gpus=4) for job, seconds in (("1", 0.7), ("2", 0))
    }
    with World(tmp_path / "data", requests) as world:
        world.start("1", allocation=on(0, gpus=4))
        world.start("2", allocation=on(1, gpus=4))
        assert until(lambda: ledger.exists() and len(ledger.read_text().split()) == 2)
        world.do(Move("1", on(1, gpus=4), 2), Move("2", on(0, gpus=4), 2))
        world.wait(Moved, "1")
        world.wait(Moved, "2")
        assert until(lambda: len(ledger.read_text().split()) == 6)
        lines = ledger.read_text().split()
    assert lines.index("out-n0-0.7") < lines.index("in-n0-0")
    assert lines.index("out-n1-0") < lines.index("in-n1-0.7")
