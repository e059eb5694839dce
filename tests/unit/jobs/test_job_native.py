"""Skep's own job file: every field, and what is said about a wrong one."""

from __future__ import annotations

import json

import msgspec
import pytest

from skep.core.errors import InputError
from skep.jobs.read import from_mapping, read_requests
from skep.jobs.request import MASK, Completion, Elastic, Request, TaskRole, masked, task_names

FULL = """\
name: resnet
vc: research
user: mallory
priority: prod
tasks:
  worker:
    count: 4
    gpus: 2
    gpu_type: V100|A100
    gpu_milli: 1000
    gpu_mem_gib: 12.5
    cpu: 4
    memory_gib: 16
    ports: {http: 2}
    command: |
      python train.py
    env: {DEBUG: yes, LR: 0.10, EMPTY: ""}
    completion: {min_failed: 2, min_succeeded: 3}
  watcher:
    argv: [tail, -f, "", x y]
    completion: {min_failed: null}
gang: true
elastic: {role: worker, min: 2, max: 8}
checkpoint: criu
model: resnet50
preemptible: no
spans_types: yes
pinned: rack0/n7
grace_s: 90s
expect_s: 2h
time_limit_s: 1.5d
deadline_s: 10m
retries: -1
workdir: /data/run
group: study
needs: prepare
tags: [a, b, a]
hold: true
secrets: {TOKEN: abc}
"""


def one(text: str, **options: str) -> Request:
    (request,) = read_requests(text, **options).requests
    return request


def refusal(text: str) -> str:
    with pytest.raises(InputError) as caught:
        read_requests(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def job(**more: object) -> str:
    return json.dumps({"name": "a", "command": "true"} | more)


def test_every_field_is_read() -> None:
    worker = TaskRole(
        count=4,
        gpus=2,
        gpu_type="v100|a100",
        gpu_mem_gib=12.5,
        cpu=4,
        memory_gib=16,
        ports={"http": 2},
        command="python train.py\n",
        env={"DEBUG": "yes", "LR": "0.10", "EMPTY": ""},
        completion=Completion(2, 3),
    )
    watcher = TaskRole(argv=("tail", "-f", "", "x y"), completion=Completion(min_failed=None))
    assert one(FULL, user="alice") == Request(
        name="resnet",
        tasks={"worker": worker, "watcher": watcher},
        vc="research",
        user="alice",
        priority=100,
        elastic=Elastic("worker", 2, 8),
        checkpoint="criu",
        model="resnet50",
        preemptible=False,
        spans_types=True,
        pinned="rack0/n7",
        grace_s=90,
        expect_s=7200,
        time_limit_s=129_600,
        deadline_s=600,
        retries=-1,
        workdir="/data/run",
        group="study",
        needs=("prepare",),
        tags=("a", "b"),
        hold=True,
        secrets={"TOKEN": "abc"},
    )


def test_the_user_of_the_file_counts_only_without_a_caller() -> None:
    assert one(FULL).user == "mallory"


def test_a_job_without_tasks_is_one_role() -> None:
    request = one("{name: a, gpus: 2, count: 3, command: ls, retries: 2}")
    assert request == Request("a", {"task": TaskRole(count=3, gpus=2, command="ls")}, retries=2)
    assert request.gpus == 6


def test_what_belongs_to_a_role_is_refused_beside_tasks() -> None:
    assert refusal("name: a\ngpus: 1\ntasks: {w: {command: ls}}") == "job.yaml:2: gpus belongs to a role"


@pytest.mark.parametrize(("given", "seconds"), [(90, 90), ("90s", 90), ("10m", 600), ("2h", 7200), ("0.5d", 43_200)])
def test_durations(given: object, seconds: float) -> None:
    assert one(job(expect_s=given)).expect_s == seconds


@pytest.mark.parametrize(("given", "number"), [("prod", 100), ("test", 10), ("oppo", -1), (-1, -1), (1000, 1000)])
def test_priorities(given: object, number: int) -> None:
    assert one(job(priority=given)).priority == number


def test_a_list_of_jobs() -> None:
    reading = read_requests(f"[{job()}, {job(name='b')}]")
    assert [request.name for request in reading.requests] == ["a", "b"]


def test_values_that_are_null_are_not_there() -> None:
    assert one(job(vc=None, expect_s=None, gpus=None, needs=None)) == one(job())


def test_what_is_not_done_is_said_once() -> None:
    reading = read_requests(f"[{job(image='torch:2', locality='rack', preemptible=False)}, {job(image='torch:2')}]")
    assert reading.requests[0].tasks["task"].image == "torch:2"
    assert [warning.split(":")[0] for warning in reading.warnings] == ["locality"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"priority": 1001}, "priority is 1001, expected a whole number from -1 to 1000, or oppo, test, prod"),
        ({"priority": "high"}, 'priority is "high", expected'),
        ({"priority": 1.5}, "priority is 1.5, expected"),
        ({"gpus": -1}, "gpus is -1, expected a whole number from 0"),
        ({"gpus": True}, "gpus is true, expected a whole number"),
        ({"gpu_milli": 500}, "gpu_milli is given without GPUs"),
        ({"pinned": "n7"}, "pinned cell n7 is requested without GPUs"),
        ({"pinned": "n7", "gpus": 1, "priority": "oppo"}, "opportunistic work (priority oppo) cannot ask for pinned"),
        ({"pinned": ["n7"], "gpus": 1}, "pinned is a list, expected"),
        ({"gpuz": 1}, "unknown key gpuz, did you mean gpus?"),
        ({"expect_s": "soon"}, 'expect_s is "soon", expected a duration'),
        ({"expect_s": -1}, "expect_s is -1, expected a duration"),
        ({"grace_s": "2d"}, 'grace_s is "2d", expected a duration up to 86400 seconds'),
        ({"argv": ["ls"]}, "command and argv are both given"),
        ({"command": None}, "command (or argv) is missing"),
        ({"command": " \n"}, "command is "),
        ({"command": ["ls", "-l"]}, "command is a list, expected text"),
        ({"command": None, "argv": []}, "argv is an empty list, expected a list of 1 to 1000 arguments"),
        ({"checkpoint": "magic"}, 'checkpoint is "magic", expected signal or criu'),
        ({"workdir": "data"}, 'workdir is "data", expected an absolute path'),
        ({"env": {"A B": "1"}}, "expected the name of a variable"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "env.CUDA_VISIBLE_DEVICES: Skep sets this variable itself"),
        ({"env": {"SKEP_JOB_ID": "0"}}, "Skep sets this variable itself"),
        ({"env": {"A": [1]}}, "env.A is a list, expected text"),
        ({"ports": {"http": 0}}, "ports.http is 0, expected a whole number from 1"),
        ({"retries": -2}, "retries is -2, expected a whole number from -1"),
        ({"elastic": {"min": 1, "max": 2}}, "elastic: the elastic role, and no other, has GPUs"),
        ({"elastic": {"min": 2, "max": 1}, "gpus": 1}, "elastic.max is 1, expected a whole number from 2"),
        ({"elastic": {"min": 2, "max": 4}, "gpus": 1}, "elastic: count of task is 1, expected 2 to 4"),
        ({"elastic": {"role": "tusk", "min": 1, "max": 1}, "gpus": 1}, "unknown role tusk, did you mean task?"),
        ({"elastic": {"min": 1, "max": 2}, "gpus": 1, "gang": False}, "elastic: an elastic job is a gang"),
        ({"completion": {"min_failed": 0}}, "completion.min_failed is 0, expected a whole number from 1"),
        ({"count": 10_001}, "count is 10001, expected"),
        ({"name": None}, "name is empty, expected a name"),
        ({"tasks": {}, "command": None}, "command belongs to a role"),
    ],
)
def test_faults_name_line_and_field(more: dict[str, object], said: str) -> None:
    fault = refusal(job(**more))
    assert fault.startswith("job.yaml:1: ")
    assert said in fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("command: ls", "job.yaml:1: name is missing"),
        ("name: a\ntasks: {}", "job.yaml:2: tasks is a mapping, expected at least one role"),
        ("name: a\ntasks:\n  w:\n    gpu: 1", "job.yaml:4: unknown key tasks.w.gpu, did you mean gpus?"),
        ("name: a\ntasks:\n  w: {gpus: 1}", "job.yaml:3: tasks.w: command (or argv) is missing"),
        ("name: a\ntasks:\n  w: {command: ls, retries: 2}", "job.yaml:3: tasks.w.retries: the tasks of a gang"),
        (
            "name: a\ntasks:\n  w: {command: ls, gpus: 1}\n  v: {command: ls}\nelastic: {min: 1, max: 1}",
            "role is missing",
        ),
        (
            "name: a\ntasks:\n  w: {command: ls, gpu_type: a}\n  v: {command: ls, gpu_type: b}",
            "one GPU type, not on a and b",
        ),
        ("name: a\ntasks:\n  w: {command: ls, count: 9999}\n  v: {command: ls, count: 2}", "tasks has 10,001 tasks"),
        ("[]", "the file is an empty list, expected a mapping"),
        ("hello", "job.yaml:1: the file is hello, expected a mapping"),
        ('{"name": "a", "name": "b", "command": "ls"}', "name is given twice"),
        ('{"name": "a",\n"command": "ls",\n"gpus": "x"}', 'job.yaml:3: gpus is "x"'),
        ('{\n\t"name": "a",\n\t"command": 1,\n\t"gpus": "x"}', 'job.yaml:4: gpus is "x"'),
        ('{"name": "a", "command": "\\ud83d\\ude00", "gpus": "x"}', 'job.yaml: gpus is "x"'),
    ],
)
def test_faults_of_files(text: str, said: str) -> None:
    assert said in refusal(text)


def test_roles_of_incremental_jobs_may_differ_and_retry() -> None:
    text = "{name: a, gang: no, tasks: {w: {command: ls, gpu_type: a, retries: 2}, v: {command: ls, gpu_type: b}}}"
    assert one(text).tasks["w"].retries == 2


def test_the_elastic_role_need_not_be_named_where_there_is_one() -> None:
    assert one(job(gpus=1, count=2, elastic={"min": 1, "max": 4})).elastic == Elastic("task", 1, 4)


def test_values_are_read_as_their_text_is() -> None:
    values = {"name": "a", "command": "x", "env": {"A": 1, "B": True, "C": 0.5}, "expect_s": 1e9, "tags": "t"}
    assert from_mapping(values).requests == read_requests(json.dumps(values)).requests
    assert from_mapping(values).requests[0].tasks["task"].env == {"A": "1", "B": "true", "C": "0.5"}


def test_a_fault_in_a_batch_names_its_place() -> None:
    with pytest.raises(InputError, match=r"^the batch: \[1\]\.gpus is 0\.5"):
        from_mapping([{"name": "a", "command": "x"}, {"name": "b", "command": "x", "gpus": 0.5}], "the batch")


def test_secrets_are_masked_where_shown() -> None:
    request = one(FULL)
    assert masked(request).secrets == {"TOKEN": MASK}
    assert request.secrets == {"TOKEN": "abc"}
    assert masked(one(job())) == one(job())


def test_opportunistic_work_cannot_refuse_to_leave() -> None:
    with pytest.raises(InputError, match="opportunistic work"):
        read_requests("name: a\ncommand: 'true'\npriority: oppo\npreemptible: false\n")


@pytest.mark.parametrize("limit", ["0", "0s", "0.0"])
def test_no_limit_is_not_written_as_zero(limit: str) -> None:
    with pytest.raises(InputError, match=r"time_limit_s is .*, expected a duration above 0"):
        read_requests(f"{{name: a, command: x, time_limit_s: {limit}}}")


def test_names_of_tasks() -> None:
    (job,) = read_requests("{name: a, tasks: {b: {command: x}, w: {command: x, count: 2, gpus: 1}}}").requests
    assert task_names(msgspec.to_builtins(job)) == ["b-0", "w-0", "w-1"]
    (job,) = read_requests("{name: a, command: x, gpus: 1, elastic: {min: 1, max: 3}}").requests
    assert task_names(msgspec.to_builtins(job)) == ["task-0", "task-1", "task-2"]
