"""`skep run`, `logs -f`, `wait` and `exec`: what they send, what they show, how they end."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.support.fake_api import FakeAnswer, FakeApi, job

from skep.core.errors import NotFound

Ask = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]


def ready(api: FakeApi, *states: dict[str, Any], log: list[Any]) -> None:
    api.answers["POST /jobs"] = FakeAnswer(201, {**job("7"), "warnings": ["image is ignored"]})
    api.answers["GET /jobs/7"] = list(states)
    api.answers["GET /jobs/7/logs"] = FakeAnswer(pieces=log)


def test_a_command_becomes_a_job(api: FakeApi, ask: Ask, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setenv("TOKEN", "from here")
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "LANG", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    api.answers["POST /jobs"] = FakeAnswer(201, {**job("7"), "warnings": []})
    options = "--detach --gpus 4 --gpu-type v100 --cpu 2 --memory-gib 8 --name big --vc a --priority prod --env K=a=b"
    options += (
        " --env TOKEN --time-limit 2h --expect 90m --grace 5 --retries 2 --needs 3 --needs 4 --tag t --elastic 1:8"
    )
    assert ask("run", *options.split(), "--checkpoint", "criu", "--", "python", "a b.py", "--gpus", "9").stdout == "7\n"
    env = {"PATH": "/bin", "PYTHONUNBUFFERED": "1", "K": "a=b", "TOKEN": "from here"}
    role = {"gpus": 4, "gpu_type": "v100", "cpu": 2.0, "memory_gib": 8.0, "count": 8, "env": env}
    assert api.bodies("POST", "/jobs") == [
        {
            **{"name": "big", "workdir": str(tmp_path), "vc": "a", "priority": 100, "checkpoint": "criu", "retries": 2},
            **{"time_limit_s": 7200.0, "expect_s": 5400.0, "grace_s": 5.0, "needs": ["3", "4"], "tags": ["t"]},
            "tasks": {"main": {**role, "argv": ["python", "a b.py", "--gpus", "9"]}},
            "elastic": {"role": "main", "min": 1, "max": 8},
        }
    ]


def test_what_is_not_said_is_left_to_the_server(api: FakeApi, ask: Ask) -> None:
    api.answers["POST /jobs"] = FakeAnswer(201, {**job("7"), "warnings": []})
    ask("run", "-d", "true")
    (sent,) = api.bodies("POST", "/jobs")
    assert set(sent) == {"name", "workdir", "tasks"}
    assert set(sent["tasks"]["main"]) == {"gpus", "argv", "env"}


@pytest.mark.parametrize("wrong", ["--elastic 8", "--elastic 3:2", "--env =x", "--env NOT_SET_HERE", "--priority high"])
def test_what_makes_no_sense_is_not_sent(api: FakeApi, ask: Ask, wrong: str) -> None:
    assert ask("run", *wrong.split(), "--", "true").exit_code == 2
    assert not api.asked


def test_the_log_is_shown_and_the_exit_code_is_the_jobs(api: FakeApi, ask: Ask) -> None:
    ready(
        api,
        job("7"),
        job("7", state="failed", history=[{"code": 3, "phrase": "failed", "advice": "read its log"}]),
        log=[b"epoch 1\n", b"no newline"],
    )
    found = ask("run", "--", "python", "train.py")
    assert found.stdout == "epoch 1\nno newline"
    assert found.stderr == "warning: image is ignored\nskep: job 7 failed: exit code 3; read its log\n"
    assert found.exit_code == 3


def test_success_is_quiet(api: FakeApi, ask: Ask) -> None:
    ready(api, job("7"), job("7", state="succeeded", history=[{"code": 0}]), log=[b"done\n"])
    api.answers["POST /jobs"] = FakeAnswer(201, {**job("7"), "warnings": []})
    found = ask("run", "--", "true")
    assert (found.stdout, found.stderr, found.exit_code) == ("done\n", "", 0)


def test_waiting_is_told_with_its_reason(api: FakeApi, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.cli.follow.PATIENCE_S", 0.0)
    pending = job("7", state="pending", attempts=0, nodes=[], reason="VC a is full")
    ready(api, pending, pending, job("7"), job("7", state="stopped"), log=[b"x\n"])
    found = ask("run", "--", "true")
    told = [line for line in found.stderr.splitlines() if line.startswith("skep:")]
    assert told == ["skep: job 7 is pending: VC a is full", "skep: job 7 runs on n0", "skep: job 7 stopped"]
    assert found.exit_code == 130


def test_it_follows_a_preempted_job_into_its_next_attempt(api: FakeApi, ask: Ask) -> None:
    states = [job("7"), job("7", state="pending"), job("7", state="pending"), job("7", attempts=2)]
    ready(api, *states, job("7", attempts=2, state="succeeded"), log=[])
    api.answers["GET /jobs/7/logs"] = lambda asked: FakeAnswer(
        pieces=[f"attempt {asked.query['attempt'][0]}\n".encode()]
    )
    assert ask("run", "--", "true").stdout == "attempt 1\nattempt 2\n"


def test_nothing_is_shown_twice_or_lost_when_the_server_restarts(
    api: FakeApi, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.client.wire.PAUSES_S", ())
    ready(api, job("7"), log=[])
    cut = FakeAnswer(pieces=["epoch é\nepo".encode()], is_cut=True)
    clean = FakeAnswer(pieces=["epoch é\nepoch 2\n".encode()])  # the server shut down: an end that is none
    whole = FakeAnswer(pieces=["epoch é\n".encode(), b"epoch 2\n", b"epoch 3\n"])
    api.answers["GET /jobs/7/logs"] = [cut, clean, whole]
    gone = FakeAnswer(is_cut=True)
    api.answers["GET /jobs/7"] = [job("7"), gone, job("7"), gone, job("7"), job("7", state="succeeded")]
    found = ask("run", "--", "true")
    assert found.stdout == "epoch é\nepoch 2\nepoch 3\n"
    assert found.stderr.count("lost the server") == 2
    assert found.exit_code == 0


def test_a_log_that_is_not_there_yet_is_waited_for(api: FakeApi, ask: Ask) -> None:
    ready(api, job("7", state="launching"), job("7", state="launching"), job("7"), job("7", state="succeeded"), log=[])
    api.answers["GET /jobs/7/logs"] = [
        FakeAnswer(404, {"error": "no start yet", "hint": ""}),
        FakeAnswer(pieces=[b"a\n"]),
    ]
    assert ask("run", "--", "true").stdout == "a\n"


def test_tasks_that_start_one_by_one_are_followed_to_the_end_of_the_job(api: FakeApi, ask: Ask) -> None:
    loose = {"request": {"gang": False}, "attempts": 3}
    ready(api, job("7", **loose), job("7", **loose), job("7", state="succeeded", **loose), log=[])
    api.answers["GET /jobs/7/logs"] = [FakeAnswer(pieces=[b"a\n"]), FakeAnswer(pieces=[b"a\n", b"b\n"])]
    assert ask("run", "--", "true").stdout == "a\nb\n"
    asked = [each.query for each in api.asked if each.path.endswith("/logs")]
    assert asked == [{"follow": ["true"]}] * 2


def test_a_stream_that_ends_early_is_taken_up_again(api: FakeApi, ask: Ask) -> None:
    ready(api, job("7"), job("7"), job("7"), job("7", state="succeeded"), log=[])
    api.answers["GET /jobs/7/logs"] = [FakeAnswer(pieces=[b"a\n"]), FakeAnswer(pieces=[b"a\n", b"b\n"])]
    assert ask("run", "--", "true").stdout == "a\nb\n"


def test_ctrl_c_asks_the_job_to_stop_and_waits_for_its_end(api: FakeApi, start: Start) -> None:
    stopped = threading.Event()

    def stop(_: object) -> dict[str, Any]:
        stopped.set()
        return job("7", state="stopping")

    ready(api, job("7"), log=[b"working\n", lambda: stopped.wait(120), b"saved\n"])
    api.answers["GET /jobs/7"] = lambda _: job("7", state="stopped" if stopped.is_set() else "running")
    api.answers["POST /jobs/7/stop"] = stop
    with start("run", "--", "true") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert out == "saved\n"
    assert process.returncode == 130
    assert "asking job 7 to stop" in err
    assert "job 7 stopped" in err
    assert api.bodies("POST", "/jobs/7/stop") == [{"reason": "Ctrl-C"}]


def test_a_second_ctrl_c_leaves(api: FakeApi, start: Start) -> None:
    stopped, over = threading.Event(), threading.Event()

    def stop(_: object) -> dict[str, Any]:
        stopped.set()
        return job("7", state="stopping")

    ready(api, job("7", state="running"), log=[b"working\n", lambda: over.wait(120)])
    api.answers["POST /jobs/7/stop"] = stop
    with start("run", "--", "true") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        assert stopped.wait(120)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    over.set()
    assert process.returncode == 130
    assert "left job 7" in err
    assert "Traceback" not in err


def test_logs_prints_what_is_there(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /jobs/train/logs"] = FakeAnswer(pieces=[b"a\n", b"b\n"])
    assert ask("logs", "train", "--tail", "2", "--task", "main-0", "--attempt", "3").stdout == "a\nb\n"
    assert api.asked[0].query == {"tail": ["2"], "task": ["main-0"], "attempt": ["3"]}


def test_the_log_of_a_job_that_waits_is_empty_and_says_why(api: FakeApi, ask: Ask) -> None:
    waiting = job("7", state="pending", attempts=0, reason="VC a is full")
    api.answers |= {"GET /jobs/train/logs": FakeAnswer(pieces=[]), "GET /jobs/train": waiting}
    found = ask("logs", "train")
    assert (found.stdout, found.stderr) == ("", "skep: job 7 has not started: VC a is full\n")
    api.answers["GET /jobs/train"] = job("7")
    assert ask("logs", "train").stderr == ""


def test_logs_follows_from_the_present_attempt_to_the_end_of_the_job(api: FakeApi, ask: Ask) -> None:
    request = {"tasks": {"main": {"count": 2}}}
    api.answers["GET /jobs/train"] = job("7", attempts=4, request=request)
    api.answers["GET /jobs/7"] = [job("7", attempts=4), job("7", attempts=4, state="failed", history=[{"code": 9}])]
    api.answers["GET /jobs/7/logs"] = lambda asked: FakeAnswer(
        pieces=[f"attempt {asked.query['attempt'][0]}\n".encode()]
    )
    found = ask("logs", "-f", "train", "--task", "main-1")
    assert (found.stdout, found.exit_code) == ("attempt 4\n", 0)
    with pytest.raises(NotFound, match="job 7 has no task main-2"):
        ask("logs", "-f", "train", "--task", "main-2")


def test_lines_of_several_tasks_are_shown_once_when_the_server_restarts(
    api: FakeApi, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.client.wire.PAUSES_S", ())
    running = job("7", request={"tasks": {"main": {"count": 2}}})
    ready(api, running, log=[])
    cut = FakeAnswer(pieces=[b"main-0 | a\nmain-1 | a\nmain-0 | b\nmain-1 |"], is_cut=True)
    whole = FakeAnswer(pieces=[b"main-0 | a\nmain-0 | b\nmain-0 | c\nmai", b"n-1 | a\nmain-1 | a\n"])
    api.answers["GET /jobs/7/logs"] = [cut, whole]
    api.answers["GET /jobs/7"] = [running, FakeAnswer(is_cut=True), running, job("7", state="succeeded")]
    assert ask("run", "--count", "2", "--", "true").stdout.splitlines() == [
        *("main-0 | a", "main-1 | a", "main-0 | b"),
        *("main-0 | c", "main-1 | a"),
    ]


def test_a_task_that_an_elastic_job_may_grow_to_can_be_followed(api: FakeApi, ask: Ask) -> None:
    request = {"tasks": {"main": {"count": 1}}, "elastic": {"role": "main", "min": 1, "max": 4}}
    api.answers["GET /jobs/7"] = job("7", state="succeeded", attempts=0, request=request)
    assert ask("logs", "-f", "7", "--task", "main-3").exit_code == 0


@pytest.mark.parametrize(
    ("count", "there", "more", "shown"),
    [
        (1, b"1\n2\n3\n", b"4\n", "2\n3\n4\n"),
        (1, b"1\n2\n3\nhal", b"f\n4\n", "3\nhalf\n4\n"),
        (1, b"", b"1\n", "1\n"),
        (2, b"w-0 | 1\nw-0 | 2\nw-0 | 3\nw-1 | 1\n", b"w-1 | 2\n", "w-0 | 2\nw-0 | 3\nw-1 | 1\nw-1 | 2\n"),
    ],
)
def test_following_may_begin_with_the_last_lines(
    api: FakeApi, ask: Ask, count: int, there: bytes, more: bytes, shown: str
) -> None:
    asked_for = {"request": {"tasks": {"w": {"count": count}}}}
    api.answers["GET /jobs/7"] = [job("7", **asked_for), job("7", **asked_for), job("7", state="succeeded")]
    api.answers["GET /jobs/7/logs"] = [FakeAnswer(200, there), FakeAnswer(200, there + more)]
    assert ask("logs", "-f", "--tail", "2", "7").stdout == shown


def test_more_tasks_than_can_be_followed_are_told(api: FakeApi, ask: Ask) -> None:
    many = {"request": {"tasks": {"main": {"count": 300}}}}
    ready(api, job("7", **many), job("7", state="succeeded", **many), log=[b"main-0   | a\n"])
    found = ask("run", "--count", "300", "--", "true")
    assert found.stdout == "main-0   | a\n"
    assert "skep: the first 64 of 300 tasks are shown; `skep logs --task` shows another" in found.stderr


def test_wait_has_the_exit_code_of_the_first_failure(api: FakeApi, ask: Ask) -> None:
    api.answers |= {
        "GET /jobs/1": job("1", state="succeeded"),
        "GET /jobs/2": job("2", state="failed", history=[{"code": 4}]),
    }
    api.answers["GET /jobs/3"] = job("3", state="stopped")
    assert ask("wait", "1").exit_code == 0
    found = ask("wait", "1", "2", "3")
    assert found.exit_code == 4
    assert found.stderr.splitlines() == ["job 1 succeeded", "job 2 failed", "job 3 stopped"]


def test_wait_looks_for_all_jobs_before_it_waits_for_one(api: FakeApi, ask: Ask) -> None:
    api.answers |= {"GET /jobs/train": job("1"), "GET /jobs/1": job("1")}
    with pytest.raises(NotFound):
        ask("wait", "train", "2")
    assert [asked.path for asked in api.asked] == ["/jobs/train", "/jobs/2"]


def test_wait_gives_up_in_time(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /jobs/1"] = job("1")
    found = ask("wait", "1", "--timeout", "0.1s")
    assert found.exit_code == 124
    assert found.stderr == "error: job 1 is still running\n"


def test_exec_runs_in_the_environment_and_folder_of_the_task(api: FakeApi, start: Start, tmp_path: Path) -> None:
    api.answers["GET /jobs/7/environment"] = {"env": {"RANK": "1"}, "cwd": str(tmp_path), "task": "w-1"}
    code = "import os, sys; print(os.environ['RANK'], os.getcwd(), sys.argv[1:]); sys.exit(5)"
    import sys

    with start("exec", "7", "--task", "w-1", "--", sys.executable, "-c", code, "--task", "x") as process:
        out, _ = process.communicate(timeout=120)
    assert out == f"1 {os.path.realpath(tmp_path)} ['--task', 'x']\n"
    assert process.returncode == 5
    assert api.asked[0].query == {"task": ["w-1"]}


def test_exec_names_what_is_not_there(api: FakeApi, start: Start, tmp_path: Path) -> None:
    api.answers["GET /jobs/7/environment"] = {"env": {}, "cwd": str(tmp_path), "task": "w-1"}
    with start("exec", "7", "--", "no-such-command") as process:
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (127, "error: no-such-command: no such file or directory\n")
    api.answers["GET /jobs/7/environment"] = {"env": {}, "cwd": str(tmp_path / "gone"), "task": "w-1"}
    with start("exec", "7", "--", "true") as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "gone: no such file or directory" in err


def test_the_json_of_run_is_what_the_reader_of_jobs_takes(api: FakeApi, ask: Ask) -> None:
    from skep.jobs.read import read_requests

    api.answers["POST /jobs"] = FakeAnswer(201, {**job("7"), "warnings": []})
    ask("run", "-d", "--gpus", "1", "--elastic", "1:4", "--time-limit", "1h", "--needs", "3", "--", "python", "x.py")
    reading = read_requests(json.dumps(api.bodies("POST", "/jobs")[0]), "job")
    (request,) = reading.requests
    assert reading.warnings == []
    assert (request.gpus, request.time_limit_s, request.tasks["main"].argv) == (4, 3600.0, ("python", "x.py"))


HOSTILE = "\x1b[31mred\x1b[0m \x1b]0;title\x07plain\u202e\n"


def on_a_terminal(*args: str) -> str:
    """What the command prints there."""
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "skep.cli.main", *args]
    with subprocess.Popen(line, stdout=theirs, stdin=subprocess.DEVNULL) as process:
        os.close(theirs)
        found = b""
        while piece := read_or_end(ours):
            found += piece
        assert process.wait(120) == 0
    os.close(ours)
    return found.decode().replace("\r\n", "\n")


def read_or_end(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError:  # the other side of a terminal is gone
        return b""


@pytest.mark.parametrize("follow", [(), ("--follow",)])
def test_a_log_cannot_command_a_terminal_unless_it_is_asked_for(
    api: FakeApi, ask: Ask, follow: tuple[str, ...]
) -> None:
    api.answers["GET /jobs/7"] = FakeAnswer(200, {**job("7", state="succeeded"), "request": {"tasks": {"main": {}}}})
    api.answers["GET /jobs/7/logs"] = FakeAnswer(pieces=[HOSTILE.encode()])
    assert on_a_terminal("logs", "7", *follow) == "red plain\n"
    assert on_a_terminal("logs", "7", "--raw", *follow) == HOSTILE
    assert ask("logs", "7", *follow).stdout == HOSTILE  # a file gets all of it


@pytest.mark.parametrize("how", ["file", "pipe", "heredoc"])
def test_input_is_refused_and_nothing_is_submitted(api: FakeApi, start: Start, tmp_path: Path, how: str) -> None:
    (tmp_path / "input").write_text("1 2 3\n")
    source = (tmp_path / "input").open()
    with source, start("run", "--", "cat", stdin=source if how == "file" else subprocess.PIPE) as process:
        if process.stdin is not None:
            process.stdin.write("1 2 3\n")
            process.stdin.flush()
            if how == "heredoc":
                process.stdin.close()
        code = process.wait(60)
        assert process.stderr is not None
        said = process.stderr.read()
    assert (code, api.bodies("POST", "/jobs")) == (2, [])
    assert said.startswith("error: stdin is not passed to jobs")
    assert "< FILE" in said


@pytest.mark.parametrize("how", ["nothing", "an open pipe", "an ended pipe", "the end of a file", "detached"])
def test_without_input_or_without_waiting_it_runs(api: FakeApi, start: Start, tmp_path: Path, how: str) -> None:
    """A loop such as `while read x; do skep run -d …; done < list` keeps its input."""
    ready(api, {**job("7"), "state": "succeeded"}, log=[])
    (tmp_path / "list").write_text("a\nb\n" if how == "detached" else "")
    given: Any = {"nothing": subprocess.DEVNULL, "an open pipe": subprocess.PIPE, "an ended pipe": subprocess.PIPE}
    options = ["--detach"] if how == "detached" else []
    source = (tmp_path / "list").open()
    with source, start("run", *options, "--", "true", stdin=given.get(how, source)) as process:
        if how == "an ended pipe":
            assert process.stdin is not None
            process.stdin.close()
        assert process.wait(60) == 0
    assert len(api.bodies("POST", "/jobs")) == 1


@pytest.mark.parametrize(
    ("states", "code", "waited"),
    [
        (("succeeded", "succeeded", "running"), 0, ["2", "3"]),
        (("failed", "succeeded", "running"), 0, ["2", "3"]),  # of last week
        (("succeeded", "failed", "running"), 3, ["2", "3"]),
        (("succeeded", "succeeded", "failed"), 3, ["2", "3"]),
    ],
)
def test_waiting_for_a_group(api: FakeApi, ask: Ask, states: tuple[str, ...], code: int, waited: list[str]) -> None:
    jobs = [
        job(str(number), state=state, submit_s=1000.0 if number > 1 else 5.0, group="lr")
        for number, state in enumerate(states, 1)
    ]
    api.answers["GET /jobs"] = {"jobs": jobs[::-1], "next": None}
    for each in jobs:
        ended = each["state"] if each["state"] != "running" else "succeeded"
        history = [{"code": 3, "outcome": "failed"}] if ended == "failed" else []
        api.answers[f"GET /jobs/{each['id']}"] = {**each, "state": ended, "history": history}
    done = ask("wait", "--group", "lr")
    assert done.exit_code == code
    assert [line.split()[1] for line in done.stderr.splitlines()] == waited
    assert api.asked[0].query["group"] == ["lr"]


def test_waiting_for_nothing(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /jobs"] = {"jobs": [], "next": None}
    assert ask("wait").exit_code == 2
    with pytest.raises(NotFound, match="there is no job of group nope"):
        ask("wait", "--group", "nope")
