"""The environment of a task."""

from __future__ import annotations

import msgspec
import pytest

from skep.core.events import NodeLost
from skep.core.reports import Exited, LaunchFailed, Moved, Progressed, Report, Started
from skep.jobs.env import Folders, TaskPlace, command_line, ports_wanted, task_env
from skep.jobs.request import Completion, Elastic, Request, TaskRole

REQUEST = Request(
    name="train",
    user="ann",
    vc="research",
    tasks={
        "ps": TaskRole(cpu=2, memory_gib=1.5, command="ps", ports={"rpc": 2}),
        "worker": TaskRole(
            count=2,
            gpus=2,
            command="run",
            env={"LR": "0.1", "TOKEN": "public", "RANK": "99"},
            completion=Completion(None, 2),
        ),
    },
    secrets={"TOKEN": "hidden"},
)
PLACES = [
    TaskPlace("ps", 0, "n0"),
    TaskPlace("worker", 0, "n0", (0, 1)),
    TaskPlace("worker", 1, "n1", (2, 3), "10.0.0.2"),
]
PORTS = [{"rpc": [20001, 20002], "master": [20000]}, {}, {"http": [20003]}]
FOLDERS = Folders("/data/task", "/data/checkpoint")


def env(rank: int, request: Request = REQUEST) -> dict[str, str]:
    return task_env(request, "7", 3, PLACES, rank, PORTS, FOLDERS)


def part(rank: int, *names: str) -> list[str]:
    found = env(rank)
    return [found[name] for name in names]


def test_a_task_is_one_rank() -> None:
    names = (
        "RANK",
        "NODE_RANK",
        "GROUP_RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
    )
    assert part(0, *names) == ["0", "0", "0", "3", "0", "1", "0", "1"]
    assert part(2, *names) == ["2", "2", "2", "3", "0", "1", "1", "2"]
    assert {tuple(part(rank, "MASTER_ADDR", "MASTER_PORT")) for rank in range(3)} == {("127.0.0.1", "20000")}


def test_a_task_sees_its_own_gpus_and_no_others() -> None:
    assert [env(rank)["CUDA_VISIBLE_DEVICES"] for rank in range(3)] == ["", "0,1", "2,3"]


def test_what_the_in_job_library_needs() -> None:
    names = ("SKEP_JOB_ID", "SKEP_LAUNCH", "SKEP_TASK", "SKEP_TASK_DIR", "SKEP_CHECKPOINT_DIR", "SKEP_NODE")
    assert part(2, *names) == ["7", "3", "7/3/worker-1", "/data/task", "/data/checkpoint", "n1"]


def test_our_names_come_last_and_secrets_after_variables() -> None:
    assert part(1, "LR", "TOKEN", "RANK") == ["0.1", "hidden", "1"]
    assert env(0)["TOKEN"] == "hidden"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PAI_JOB_NAME", "ann~train"),
        ("PAI_FRAMEWORK_NAME", "ann~train"),
        ("PAI_USER_NAME", "ann"),
        ("PAI_USERNAME", "ann"),
        ("PAI_VIRTUAL_CLUSTER", "research"),
        ("PAI_TASK_ROLE_COUNT", "2"),
        ("PAI_TASK_ROLES_NUM", "2"),
        ("PAI_TASK_ROLE_LIST", "ps,worker"),
        ("PAI_TASKS_NUM", "3"),
        ("PAI_JOB_TASK_COUNT", "3"),
        ("PAI_CURRENT_TASK_ROLE_NAME", "worker"),
        ("PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "1"),
        ("PAI_TASK_INDEX", "1"),
        ("PAI_TASK_ROLE_TASK_COUNT_worker", "2"),
        ("PAI_RESOURCE_ps", "0,2,1536,0"),
        ("PAI_MIN_FAILED_TASK_COUNT_worker", "-1"),
        ("PAI_MIN_SUCCEEDED_TASK_COUNT_worker", "2"),
        ("PAI_HOST_IP_worker_1", "10.0.0.2"),
        ("PAI_PORT_LIST_ps_0_rpc", "20001,20002"),
        ("PAI_CONTAINER_HOST_http_PORT_LIST", "20003"),
        ("PAI_TASK_ROLE_worker_HOST_LIST", "127.0.0.1,10.0.0.2"),
    ],
)
def test_names_of_openpai(name: str, value: str) -> None:
    assert env(2)[name] == value


def test_an_elastic_job_counts_the_tasks_it_has() -> None:
    request = msgspec.structs.replace(REQUEST, elastic=Elastic("worker", 1, 8))
    found = task_env(request, "7", 4, PLACES[:2], 1, PORTS[:2], FOLDERS)
    assert (found["WORLD_SIZE"], found["PAI_TASK_ROLE_TASK_COUNT_worker"]) == ("2", "1")


def test_a_member_of_an_incremental_job_is_a_world_of_its_own_and_knows_the_others() -> None:
    request = msgspec.structs.replace(REQUEST, gang=False)
    found = task_env(request, "7/worker-1", 1, PLACES[2:], 0, [{"master": [20009]}], FOLDERS)
    assert (found["RANK"], found["WORLD_SIZE"], found["MASTER_ADDR"]) == ("0", "1", "10.0.0.2")
    assert (found["PAI_TASK_INDEX"], found["PAI_TASK_ROLE_TASK_COUNT_worker"]) == ("1", "2")


def test_ports_are_those_asked_for_and_one_to_meet() -> None:
    assert ports_wanted(REQUEST, PLACES) == [{"rpc": 2, "master": 1}, {}, {}]
    assert REQUEST.tasks["ps"].ports == {"rpc": 2}


def test_command_lines() -> None:
    assert command_line(TaskRole(command="a; b")) == ["bash", "-c", "a; b"]
    assert command_line(TaskRole(argv=("a", ";"))) == ["a", ";"]


@pytest.mark.parametrize(
    "report",
    [
        Started("7", 1),
        Moved("7", 2),
        Exited("7", 2, 137, "worker-0", log_tail="x", seconds=1.5, cause="oom"),
        LaunchFailed("7", 2, "no such folder"),
        NodeLost("a"),
        Progressed("7", 2, {"step": 1, "loss": 0.5}),
    ],
)
def test_reports_survive_json(report: Report) -> None:
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
