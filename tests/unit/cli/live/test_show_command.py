"""`skep show` and the changes to jobs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result
from tests.support.fake_api import FakeAnswer, FakeApi, job

Ask = Callable[..., Result]
DETAIL = {
    "request": {
        "workdir": "/home/ann",
        "needs": ["3"],
        "tasks": {"main": {"count": 2, "gpus": 4, "gpu_type": "v100", "memory_gib": 16, "argv": ["python", "a b.py"]}},
    },
    "tasks": [{"name": "main-0", "state": "running", "node": "n0", "gpus": [0, 1], "exit_code": None}],
    "history": [
        {"task": "", "launch": 1, "start_s": 1010.0, "end_s": 1070.0, "nodes": ["n1"], "outcome": "retried", "code": 1}
        | {"phrase": "CUDA out of memory", "advice": "use a smaller batch"}
    ],
}


def test_one_screen_has_everything(api: FakeApi, ask: Ask) -> None:
    found = job("7", tags=["t"], group="g", progress={"step": 120, "loss": 0.25}, reason="runs", attempts=2, **DETAIL)
    api.answers["GET /jobs/train"] = found
    events = [{"seq": at, "at_s": 1000.0 + at, "kind": "x", "who": "ann", "text": f"event {at}"} for at in range(20)]
    api.answers["GET /events"] = lambda asked: FakeAnswer(200, events[-int(asked.query["last"][0]) :])
    out = ask("show", "train").stdout
    for words in (
        "job 7  train  running",
        "user ann, VC default, priority 10",
        "main: 2 × 4 v100 GPUs, 16 GiB",
        "python 'a b.py'",
        "/home/ann",
        "step 120, loss 0.25",
        "CUDA out of memory; use a smaller batch",
        "waited 0:10, ran 1:30, 0.05 GPU-hours",
        "main-0  running  n0    0 1",
        "event 19",
        "event 12",
    ):
        assert words in out
    assert "event 11" not in out


def test_a_pending_job_shows_why(api: FakeApi, ask: Ask) -> None:
    waiting = job("7", state="pending", start_s=None, nodes=[], attempts=0, reason="VC a is full")
    api.answers |= {"GET /jobs/7": waiting, "GET /events": FakeAnswer(200, [])}
    lines = ask("show", "7").stdout.splitlines()
    assert lines[0].split() == ["job", "7", "train", "pending"]
    assert lines[1].split(maxsplit=1) == ["because", "VC a is full"]
    assert "attempts" not in "".join(lines)


def test_show_as_json(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /jobs/7"] = job("7", **DETAIL)
    assert json.loads(ask("show", "7", "-o", "json").stdout) == job("7", **DETAIL)
    assert ask("show", "7", "-o", "name").stdout == "7\n"


def test_every_job_gets_its_answer(api: FakeApi, ask: Ask) -> None:
    api.answers |= {"POST /jobs/1/stop": job("1"), "POST /jobs/3/stop": job("3")}
    api.answers["POST /jobs/2/stop"] = FakeAnswer(409, {"error": "job 2 has ended", "hint": "skep show 2"})
    found = ask("stop", "1", "2", "3", "--reason", "enough")
    assert found.stdout == "1 asked to stop\n3 asked to stop\n"
    assert found.stderr == "error: job 2 has ended (skep show 2)\n"
    assert found.exit_code == 2
    assert api.bodies("POST", "/jobs/3/stop") == [{"reason": "enough"}]


def test_a_job_of_somebody_else_does_not_keep_the_others_from_their_answer(api: FakeApi, ask: Ask) -> None:
    api.answers["POST /jobs/1/stop"] = FakeAnswer(403, {"error": "job 1 belongs to bob, not to ann", "hint": ""})
    api.answers["POST /jobs/2/stop"] = job("2")
    found = ask("stop", "1", "2")
    assert (found.stdout, found.stderr) == ("2 asked to stop\n", "error: job 1 belongs to bob, not to ann\n")
    assert found.exit_code == 2


def test_a_failed_task_says_more_than_those_that_were_stopped_for_it(api: FakeApi, ask: Ask) -> None:
    base = {"task": "w-0", "launch": 1, "start_s": 1.0, "end_s": 2.0, "nodes": ["n1"], "advice": ""}
    failed = base | {"outcome": "failed", "code": 3, "phrase": "bad data"}
    stopped = base | {"outcome": "stopped", "code": 143, "phrase": "left as it was asked to"}
    ended = job("7", state="failed", reason="other tasks ended the job", history=[failed, stopped])
    api.answers |= {"GET /jobs/7": ended, "GET /events": FakeAnswer(200, [])}
    assert "because     exit code 3; bad data\n" in ask("show", "7").stdout


def test_the_lines_of_a_script_are_told_apart(api: FakeApi, ask: Ask) -> None:
    found = job("7", request={"tasks": {"w": {"command": "make\n./run"}}})
    api.answers |= {"GET /jobs/7": found, "GET /events": FakeAnswer(200, [])}
    assert "command     make; ./run\n" in ask("show", "7").stdout


@pytest.mark.parametrize(
    ("command", "sent"),
    [
        ("hold 7", {"hold": True}),
        ("release 7", {"hold": False}),
        ("priority 7 prod", {"priority": 100}),
        ("priority 7 -1", {"priority": -1}),
        ("alter 7 --gpus 4 --vc lab", {"gpus": 4, "vc": "lab"}),
        ("alter 7 --gpu-type any", {"gpu_type": ""}),
        ("tag 7 new", {"tags": ["old", "new"]}),
        ("tag 7 --remove old new", {"tags": ["new"]}),
    ],
)
def test_changes(api: FakeApi, ask: Ask, command: str, sent: object) -> None:
    api.answers |= {"GET /jobs/7": job("7", tags=["old"]), "PATCH /jobs/7": job("7")}
    assert ask(*command.split()).exit_code == 0
    assert api.bodies("PATCH", "/jobs/7") == [sent]


def test_tags_are_printed(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /jobs/7"] = job("7", tags=["old", "b"])
    assert ask("tag", "7").stdout == "old\nb\n"
    assert not api.bodies("PATCH", "/jobs/7")
