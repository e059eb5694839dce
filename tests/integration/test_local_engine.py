"""Real processes: what a task gets, and what is told of it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from local_world import World, on, processes_of, sh, until

from skep.core.actions import Launch, Stop
from skep.core.cluster import Allocation, Slice
from skep.core.errors import NotFound
from skep.core.model import GroupRef
from skep.core.reports import Exited, LaunchFailed, Looked, Progressed, Started
from skep.engines.local.folder import log_files
from skep.engines.local.start import ShimProcess
from skep.files.untrusted import write_line
from skep.jobs.request import Request, TaskRole


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_the_exit_code_is_told(tmp_path: Path, command: str, code: int) -> None:
    with World(tmp_path, {"1": sh(f"echo last words; {command}")}) as world:
        told = world.run()
        assert (told.code, told.launch, told.was_stopped) == (code, 1, False)
        assert told.task == ("main-0" if code else "")  # Who ended it; if all went well, nobody in particular.
        assert told.log_tail == "last words\n"
        assert [type(report) for report in world.told] == [Started, Exited]


def test_environment_gpus_and_ports(tmp_path: Path) -> None:
    role = TaskRole(count=2, gpus=2, ports={"web": 2}, env={"MINE": "a b"}, command="env > $SKEP_CHECKPOINT_DIR/$RANK")
    request = Request("job", {"worker": role}, secrets={"TOKEN": "s3"})
    with World(tmp_path, {"1": request}) as world:
        # Two tasks in one slice share its gpus in ascending order.
        assert world.run(allocation=Allocation((Slice(1, gpus=0b1111, tasks=2),), 4)).code == 0
        seen = [
            dict(line.split("=", 1) for line in (tmp_path / f"jobs/1/checkpoint/{rank}").read_text().splitlines())
            for rank in "01"
        ]
    assert [env["CUDA_VISIBLE_DEVICES"] for env in seen] == ["0,1", "2,3"]
    assert {env["WORLD_SIZE"] for env in seen} == {"2"}
    assert [env["SKEP_TASK"] for env in seen] == ["1/1/worker-0", "1/1/worker-1"]
    assert {(env["MINE"], env["TOKEN"], env["SKEP_NODE"]) for env in seen} == {("a b", "s3", "n1")}
    assert "PATH" in seen[0]
    assert len({env["MASTER_PORT"] for env in seen}) == 1
    ports = [port for env in seen for port in env["PAI_CONTAINER_HOST_web_PORT_LIST"].split(",")]
    assert len({*ports, seen[0]["MASTER_PORT"]}) == 5
    assert all(15000 <= int(port) < 40000 for port in ports)


def test_ports_are_not_given_twice_while_in_use(tmp_path: Path) -> None:
    request = sh("sleep 60", ports={"web": 3})
    with World(tmp_path, {"1": request, "2": request}) as world:
        world.start("1")
        world.start("2")
        given = [
            number
            for job_id in "12"
            for record in world.engine.folder.record(job_id, 1).tasks
            for numbers in record.ports.values()
            for number in numbers
        ]
        assert len(given) == 8
        assert len(set(given)) == 8


def test_working_folder(tmp_path: Path) -> None:
    place = tmp_path / "a place"
    place.mkdir()
    here = sh("pwd; ls /proc/$PPID/fd | wc -l")
    there = Request("job", {"main": TaskRole(command="pwd")}, workdir=str(place))
    nowhere = Request("job", {"main": TaskRole(command="pwd")}, workdir=str(tmp_path / "gone"))
    with World(tmp_path / "data", {"1": here, "2": there, "3": nowhere}) as world:
        assert world.run("1").log_tail.startswith(f"{tmp_path}/data/jobs/1/work\n")
        assert world.run("2").log_tail == f"{place}\n"
        told = world.run("3")
        assert told.code == 127
        assert told.log_tail == f"skep: cannot enter the folder '{tmp_path}/gone': No such file or directory\n"


@pytest.mark.parametrize(
    ("role", "code", "said"),
    [
        (TaskRole(argv=("no-such-program",)), 127, "skep: cannot run 'no-such-program': No such file or directory\n"),
        (TaskRole(argv=("/etc/passwd",)), 126, "skep: cannot run '/etc/passwd': it is not executable\n"),
        (TaskRole(command="no-such-program"), 127, "bash: line 1: no-such-program: command not found\n"),
        (TaskRole(argv=("true",), env={"A": "x\0y"}), 126, "skep: cannot run 'true': embedded null byte\n"),
    ],
)
def test_a_command_that_cannot_run(tmp_path: Path, role: TaskRole, code: int, said: str) -> None:
    with World(tmp_path, {"1": Request("job", {"main": role})}) as world:
        told = world.run()
        assert (told.code, told.log_tail) == (code, said)


def test_a_script_whose_interpreter_is_missing(tmp_path: Path) -> None:
    """The kernel answers as if the script itself were not there."""
    script = tmp_path / "train.sh"
    script.write_text("#!/nowhere/python\n")
    script.chmod(0o755)
    with World(tmp_path / "data", {"1": Request("job", {"main": TaskRole(argv=(str(script),))})}) as world:
        told = world.run()
        said = f"skep: cannot run '{script}': it is not executable: its interpreter does not exist\n"
        assert (told.code, told.log_tail) == (126, said)


def test_argv_is_not_read_by_a_shell(tmp_path: Path) -> None:
    words = ("printf", "%s|", "$(touch owned)", "; rm -rf /", "a b", "")
    with World(tmp_path, {"1": Request("job", {"main": TaskRole(argv=words)})}) as world:
        assert world.run().log_tail == "$(touch owned)|; rm -rf /|a b||"
    assert not list(tmp_path.rglob("owned"))


@pytest.mark.parametrize(
    "job_id", ["../../../evil", "..", ".", "a/../../b", "$(touch owned)", "'\"; ls", "ü\n☃", "x" * 500, "1/worker-0"]
)
def test_hostile_names_stay_in_the_folder(tmp_path: Path, job_id: str) -> None:
    data = tmp_path / "deep" / "data"
    with World(data, {job_id: sh("true")}) as world:
        assert world.run(job_id).code == 0
        assert len(world.log(job_id)) == 0
    assert os.listdir(tmp_path) == ["deep"]
    assert os.listdir(tmp_path / "deep") == ["data"]
    assert len(os.listdir(data / "jobs")) == 1
    assert not list(tmp_path.rglob("owned"))


def test_a_launch_asked_for_twice_runs_once(tmp_path: Path) -> None:
    request = sh("echo once >> $SKEP_CHECKPOINT_DIR/runs; sleep 0.3")
    with World(tmp_path, {"1": request}) as world:
        world.do(Launch("1", on(0), 1), Launch("1", on(0), 1))
        world.wait(Exited)
        world.launch()  # It is over: what is known of it is told again.
        assert world.wait(Exited, count=2) == world.of(Exited)[0]
        assert (tmp_path / "jobs/1/checkpoint/runs").read_text() == "once\n"


def test_a_stop_of_what_is_gone_tells_again(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("exit 5"), "2": sh("true")}) as world:
        first = world.run()
        world.do(Stop("1", "preempted"))
        assert world.wait(Exited, count=2) == first
        world.do(Stop("2", "preempted"))  # It never was.
        assert world.wait(Exited, "2").was_stopped


def test_two_launches_never_overlap(tmp_path: Path) -> None:
    request = sh(
        "trap '' TERM; echo + >> $SKEP_CHECKPOINT_DIR/t; sleep 0.6; echo - >> $SKEP_CHECKPOINT_DIR/t", grace_s=60
    )
    with World(tmp_path, {"1": request}) as world:
        world.start()
        assert until((tmp_path / "jobs/1/checkpoint/t").exists)  # its trap is set
        world.launch(launch=2)
        world.wait(Started, count=2)
        world.wait(Exited)
        assert [report.launch for report in world.told] == [1, 2, 2]
    assert (tmp_path / "jobs/1/checkpoint/t").read_text().split() == ["+", "-", "+", "-"]


def test_a_later_launch_of_what_failed_starts_anew(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("exit $SKEP_LAUNCH")}) as world:
        assert world.run().code == 1
        world.launch(launch=2)
        assert world.wait(Exited, count=2).code == 2


def test_an_engine_problem_is_a_launch_failed(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("true")}) as world:
        (tmp_path / "jobs" / "1").write_text("in the way")
        world.launch()
        assert world.failure().startswith(("Not a directory", "File exists"))
        world.launch("2")  # Nobody knows this job.
        assert world.failure("2")


def test_a_shim_that_cannot_start_fails_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request("job", {"main": TaskRole(count=3, command="touch $SKEP_CHECKPOINT_DIR/ran; sleep 60")})
    calls = []

    def start(path: Path, **how: bool) -> ShimProcess:
        calls.append(path)
        if len(calls) == 3:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return real(path, **how)

    from skep.engines.local import launches as runs

    real = runs.start_shim
    monkeypatch.setattr(runs, "start_shim", start)
    with World(tmp_path, {"1": request}) as world:
        world.launch(allocation=on(0, 0, 1))
        assert world.failure() == "task main-2 cannot be started: Resource temporarily unavailable"
        assert until(lambda: not processes_of(tmp_path))
        assert world.of(Started) == []
    assert not (tmp_path / "jobs/1/checkpoint/ran").exists()


def test_a_shim_that_dies_at_birth_fails_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep.engines.local import launches

    def die(path: Path, **_: bool) -> ShimProcess:
        (path / "shim.err").write_text("Traceback\nno such luck\n")
        return ShimProcess(os.getpid(), 1)

    monkeypatch.setattr(launches, "start_shim", die)
    with World(tmp_path / "data", {"1": sh("true")}) as world:
        world.launch()
        assert world.failure() == "task main-0 cannot be started: no such luck"


def test_progress_is_told_and_read(tmp_path: Path) -> None:
    content = '{"step": 7, "loss": 0.5, "deep": [1]}'
    write = f"cd $SKEP_TASK_DIR; echo '{content}' > aside; mv aside progress.json"
    with World(tmp_path, {"1": sh(f"{write}; sleep 60")}) as world:
        world.start()
        assert world.wait(Progressed).values == {"step": 7, "loss": 0.5}
        assert world.engine.progress("1") == {"step": 7, "loss": 0.5}


@pytest.mark.parametrize(
    "hostile",
    ["mkfifo", "ln -s /dev/zero", "ln -s /etc/passwd", "mkdir", "dd if=/dev/zero bs=1M count=1 of=", "echo '{]' >"],
)
def test_a_hostile_progress_file_is_harmless(tmp_path: Path, hostile: str) -> None:
    glue = "" if hostile.endswith("=") else " "
    with World(tmp_path, {"1": sh(f"{hostile}{glue}$SKEP_TASK_DIR/progress.json; sleep 1.2")}) as world:
        assert world.run().code == 0
        assert world.engine.progress("1") == {}


def test_the_environment_for_exec(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("true", env={"MINE": "1"})}) as world:
        world.run()
        found = world.engine.environment("1")
        assert (found.task, found.cwd, found.env["MINE"]) == ("main-0", str(tmp_path / "jobs/1/work"), "1")
        with pytest.raises(NotFound, match="no task 'other-0'"):
            world.engine.environment("1", "other-0")
        with pytest.raises(NotFound, match="not started yet"):
            world.engine.check_log("2")
        assert (tmp_path / "jobs/1/1/main-0/task.json").stat().st_mode & 0o077 == 0


def test_an_ended_job_can_be_forgotten_a_running_one_not(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("true"), "2": sh("sleep 60")}) as world:
        world.run("1")
        world.start("2")
        world.engine.forget("1")
        world.engine.forget("2")
        assert until(lambda: os.listdir(tmp_path / "jobs") == ["2"])


def test_a_full_disk_fails_the_launch_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep.engines.local import begin

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with World(tmp_path, {"1": sh("true", memory_gib=1)}) as world:
        with monkeypatch.context() as patch:
            patch.setattr(begin, "make_task", full)
            world.launch()
            assert world.failure() == "No space left on device"
        assert world.engine.runs.ports.in_use == set()
        groups = world.engine.groups
        assert not any(list(base.glob(f"{groups.mark}*")) for base in groups.bases.values())
        world.launch()  # There is room again: the same launch may begin.
        assert world.wait(Exited).code == 0


def test_logs_are_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep.engines.local import begin

    monkeypatch.setattr(begin, "LOG_BYTES", 1500)
    with World(tmp_path, {"1": sh("seq --format 'line %.0f' 100000")}) as world:
        told = world.run()
        files = log_files(world.task())
        assert [path.name for path in files] == ["log.4", "log.3", "log.2", "log.1", "log"]
        assert all(path.stat().st_size <= 300 + (1 << 16) for path in files)
        lines = world.log().splitlines()
    # It is more than fits a pipe, so that it comes in parts. The end is there, without a gap; the beginning was let go.
    numbers = [int(line.split()[1]) for line in lines[1:]]
    assert numbers == list(range(numbers[0], 100_001))
    assert numbers[0] > 1
    assert told.log_tail.endswith("line 100000\n")


def test_a_member_of_an_incremental_job(tmp_path: Path) -> None:
    request = Request("job", {"w": TaskRole(count=3, command="echo $PAI_TASK_INDEX $SKEP_TASK; exit 4")}, gang=False)
    with World(tmp_path, {"17/w-2": request}) as world:
        world.members["17/w-2"] = GroupRef("17", "w", 2)
        told = world.run("17/w-2")
        assert (told.code, told.task, told.log_tail) == (4, "w-2", "2 17/w-2/1/w-2\n")


def test_a_report_that_finds_no_ear_is_told_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with World(tmp_path, {"1": sh("exit 6")}) as world:
        deaf = [True, True]
        heard = world.hear

        def hear(reports: list) -> None:
            if deaf:
                deaf.pop()
                raise RuntimeError("not now")
            heard(reports)

        world.engine.tell = hear
        assert world.run().code == 6
        assert [type(report) for report in world.told] == [Started, Exited]


def test_garbage_in_the_fifos_is_harmless(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("sleep 60")}) as world:
        world.start()
        for fifo in (tmp_path / "reports", world.task() / "control"):
            fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            os.write(fd, b"\n///\n1/1/\xff\nstop\nstop x y z\ngo\n1/2/main-0\nkilll\n" + b"x" * 3000 + b"\n")
            os.close(fd)
        world.do(Stop("1", "preempted"))
        assert world.wait(Exited).was_stopped
        assert world.of(LaunchFailed) == []


def test_a_task_that_removes_its_folder_ends_with_a_reason(tmp_path: Path) -> None:
    remove = "cd $SKEP_TASK_DIR/..; rm -rf $PWD; setsid sleep 987 & sleep 60"
    with World(tmp_path, {"1": sh(remove), "2": sh(f"sleep 0.3; {remove.replace('PWD', 'PWD/*')}")}) as world:
        world.launch("1")
        world.launch("2")
        for job_id in "12":
            assert world.failure(job_id) == "the folder of task main-0 was removed while it ran"
        assert until(lambda: not processes_of(tmp_path))
        world.launch("1", 2)
        assert world.wait(LaunchFailed, "1", count=2).launch == 2


def test_a_launch_whose_record_is_torn_is_made_anew(tmp_path: Path) -> None:
    """As a machine may leave it that loses its power."""
    world = World(tmp_path, {"1": sh("setsid sleep 987 & echo on; wait")})
    world.start()
    assert until(lambda: world.log() == "on\n")
    world.engine.close()
    (tmp_path / "jobs/1/1/launch.json").write_bytes(b"")
    with World(tmp_path, {"1": sh("exit 4")}) as world:
        assert world.run().code == 4
        assert until(lambda: not processes_of(tmp_path))


def test_an_environment_that_is_no_text_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "LATIN", "caf\udce9")
    with World(tmp_path, {"1": sh("echo $LATIN."), "2": sh("true", env={"A": "\udce9"}, memory_gib=1)}) as world:
        assert world.run().log_tail == ".\n"
        world.launch("2")
        assert "codec" in world.failure("2")  # and no control group is left, see `World.close`


def test_exit_json_says_what_is_told(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("sleep 0.2")}) as world:
        told = world.run()
        kept = json.loads((world.task() / "exit.json").read_text())
        assert kept["code"] == 0
        assert 0.2 <= kept["seconds"] == told.seconds < 30


def test_a_shim_asked_to_leave_stops_its_task_politely(tmp_path: Path) -> None:
    """A machine that shuts down sends SIGTERM to everybody."""
    with World(tmp_path, {"1": sh("trap 'echo saved; exit 0' TERM; sleep 60 & echo on; wait")}) as world:
        world.start()
        assert until(lambda: world.log() == "on\n")
        os.kill(world.shim(), signal.SIGTERM)
        told = world.wait(Exited)
        assert (told.was_stopped, told.log_tail) == (True, "on\nsaved\n")


def test_who_looks_has_told_what_had_ended(tmp_path, caplog):
    """Also what ended while no engine was there, and a ring that nobody heard."""
    requests = {"1": sh("exit 3")}
    with World(tmp_path, requests) as world:
        world.start()
        until(lambda: (world.task() / "exit.json").exists())
        world.engine.close()
        after = World(tmp_path, requests)
        after.launch()
        after.engine.look({"1"})
        with after.news:
            assert after.news.wait_for(lambda: Looked() in after.told, 90.0)
        ended = [report for report in after.told if isinstance(report, Exited)]
        assert [report.code for report in ended] == [3]
        assert after.told.index(ended[0]) < after.told.index(Looked())
        assert not [record for record in caplog.records if record.levelname == "ERROR"]
        world.engine = after.engine


def test_a_ring_that_a_look_has_read_does_not_end_the_engine(tmp_path: Path) -> None:
    with World(tmp_path, {"1": sh("exit 0")}) as world:
        with world.news:  # the engine waits in `hear`, so that it finds the ring and the look at once
            world.do(Stop("1", "test"))
            assert until(lambda: bool(world.engine._untold))
            assert write_line(world.engine.folder.reports, "1/1/main-0")
            world.engine.look([])
            assert world.news.wait_for(lambda: Looked() in world.told, 90.0)
        world.start()


def test_a_task_says_which_gpus_it_has_also_if_it_shares_them(tmp_path: Path) -> None:
    turns = Slice(0, 0b1010, 0, limit=1000, mode="slice", group="g")
    shared = {"1": Slice(0, 0b0001, 300), "2": turns, "3": Slice(1, 0b0110)}
    with World(tmp_path, {job_id: sh("sleep 60") for job_id in shared}) as world:
        for job_id, piece in shared.items():
            world.start(job_id, allocation=Allocation((piece,), 1))
        assert [world.engine.tasks(job_id)[0].gpus for job_id in shared] == [[0], [1, 3], [1, 2]]
