"""OpenPAI's job protocol, version 2."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from skep.core.errors import InputError
from skep.jobs.read import Reading, from_mapping, read_requests
from skep.jobs.request import Completion, Request

SMALL = """\
protocolVersion: 2
name: mnist_1
type: job
prerequisites:
  - {protocolVersion: 2, name: torch, type: dockerimage, uri: openpai/torch}
taskRoles:
  train:
    instances: 2
    completion: {minFailedInstances: 1, minSucceededInstances: 1}
    dockerImage: torch
    resourcePerInstance: {cpu: 2, memoryMB: 4096, gpu: 1}
    commands: [python main.py, sleep 5m]
defaults: {virtualCluster: vc1}
extras:
  gangAllocation: false
  hivedScheduler: {jobPriorityClass: oppo}
"""


def small(**more: Any) -> dict[str, Any]:
    return yaml.safe_load(SMALL) | more


def with_role(**more: Any) -> dict[str, Any]:
    document = small()
    document["taskRoles"]["train"] |= more
    return document


def read(document: dict[str, Any], user: str = "bob") -> Reading:
    return read_requests(yaml.safe_dump(document), "pai.yaml", user)


def one(document: dict[str, Any]) -> Request:
    return read(document).requests[0]


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        read(document)
    return str(caught.value)


def test_a_job_as_in_the_lab() -> None:
    reading = read_requests(SMALL, "pai.yaml", "bob")
    (request,) = reading.requests
    role = request.tasks["train"]
    assert (request.name, request.vc, request.user, request.priority, request.gang) == (
        "mnist_1",
        "vc1",
        "bob",
        -1,
        False,
    )
    assert (role.count, role.gpus, role.cpu, role.memory_gib) == (2, 1, 2, 4)
    assert role.command == "python main.py\nsleep 5m"
    assert role.completion == Completion(1, 1)
    assert role.ports == {"ssh": 1, "http": 1}
    assert role.image == "openpai/torch"
    assert reading.warnings == []


def test_defaults() -> None:
    document = with_role()
    for key in ("defaults", "extras"):
        del document[key]
    for key in ("instances", "completion"):
        del document["taskRoles"]["train"][key]
    request = one(document)
    assert (request.vc, request.priority, request.gang, request.retries) == ("default", 10, True, 0)
    assert request.tasks["train"].count == 1
    assert request.tasks["train"].completion == Completion(1, 1), "as many as there are instances"


@pytest.mark.parametrize("value", [-1, None])
def test_completion_without_numbers(value: int | None) -> None:
    document = with_role(completion={"minFailedInstances": value, "minSucceededInstances": value})
    assert one(document).tasks["train"].completion == Completion(None, None)


def test_templates() -> None:
    document = small(parameters={"lr": 0.1, "a": [{"b": "deep"}], "map": {"x": 1}})
    document["prerequisites"] += [
        {"name": "data1", "type": "data", "uri": ["s3://x", "s3://y"]},
        {"name": "code", "type": "script", "uri": "git://z"},
    ]
    document["taskRoles"]["train"] |= {
        "data": "data1",
        "script": "code",
        "commands": [
            "run <% $parameters.lr %> <%$parameters.a[0].b%> <% $data.uri[1] %> <% $script.uri %> <% $script.name %>",
            "keep <% $parameters.none %> <% $parameters.map %> <% $output.uri %> <% $parameters.a[9].b %>",
        ],
    }
    first, second = one(document).tasks["train"].command.split("\n")
    assert first == "run 0.1 deep s3://y git://z code"
    assert second == document["taskRoles"]["train"]["commands"][1]


def test_secrets_are_variables_and_not_in_the_command() -> None:
    document = with_role(commands=['login "<% $secrets.token %>" <% $secrets.more[0].key %> <% $secrets.none %>'])
    document["secrets"] = {"token": "hunter2", "more": [{"key": "abc"}]}
    request = one(document)
    assert request.tasks["train"].command == (
        'login "${SKEP_SECRET_token}" ${SKEP_SECRET_more_0_key} <% $secrets.none %>'
    )
    assert request.secrets == {"SKEP_SECRET_token": "hunter2", "SKEP_SECRET_more_0_key": "abc"}


def test_the_chosen_deployment_wraps_the_commands() -> None:
    document = small(
        parameters={"x": "1"},
        deployments=[
            {
                "name": "d1",
                "taskRoles": {"train": {"preCommands": ["pre <% $parameters.x %>"], "postCommands": ["post"]}},
            },
            {"name": "d2", "taskRoles": {"train": {"preCommands": ["other"]}}},
        ],
        defaults={"deployment": "d1"},
    )
    assert one(document).tasks["train"].command == "pre 1\npython main.py\nsleep 5m\npost"
    del document["defaults"]
    assert one(document).tasks["train"].command == "python main.py\nsleep 5m"


def test_kind_and_number_of_gpus() -> None:
    skus = {"taskRoles": {"train": {"skuType": "K80", "skuNum": 3, "affinityGroupName": None}}}
    role = one(small(extras={"hivedScheduler": skus})).tasks["train"]
    assert (role.gpu_type, role.gpus) == ("k80", 3)


def test_tasks_are_retried_only_outside_gangs() -> None:
    document = with_role(taskRetryCount=3) | {"jobRetryCount": 2}
    assert (one(document).retries, one(document).tasks["train"].retries) == (2, 3)
    document["extras"]["gangAllocation"] = True
    assert one(document).tasks["train"].retries == 0


def test_what_is_not_done_is_said() -> None:
    extras = {
        "submitFrom": "portal",
        "storages": [{"name": "nfs"}],
        "jobStatusChangeNotification": {},
        "com.microsoft.pai.runtimeplugin": [{"plugin": "ssh"}],
        "hivedScheduler": {"lazyPreemptionEnable": True, "taskRoles": {"train": {"pinnedCellId": "c1"}}},
    }
    document = with_role(extraContainerOptions={"infiniband": True, "shmMB": 512}) | {"extras": extras}
    assert read(document).warnings[:4] == [
        "extras.com.microsoft.pai.runtimeplugin: not used",
        "extras.storages: not used",
        "extras.hivedScheduler.lazyPreemptionEnable: not used",
        "extraContainerOptions.infiniband: not used",
    ]
    assert one(document).pinned == "c1"


def test_shared_memory_is_that_of_the_largest_role() -> None:
    assert one(small()).kubernetes.shm_gib == 0.5
    document = with_role(extraContainerOptions={"shmMB": 2048})
    document["taskRoles"]["other"] = {**document["taskRoles"]["train"], "extraContainerOptions": {"shmMB": 64}}
    assert one(document).kubernetes.shm_gib == 2.0
    assert one(with_role(extraContainerOptions={"shmMB": 0})).kubernetes.shm_gib == 0
    with pytest.raises(InputError, match="shmMB"):
        one(with_role(extraContainerOptions={"shmMB": -1}))


def test_credentials_for_an_image_are_said_to_be_not_used() -> None:
    document = small()
    document["prerequisites"][0]["auth"] = {"username": "ann", "password": "p", "registryuri": "r.example"}
    assert any("pull_secrets" in warning for warning in read(document).warnings)


def test_all_roles_are_in_one_pinned_cell() -> None:
    document = small()
    document["taskRoles"]["other"] = document["taskRoles"]["train"]
    for first, second in (("c1", "c2"), ("c1", None)):
        pins = {"train": {"pinnedCellId": first}, "other": {"pinnedCellId": second}}
        fault = refusal(document | {"extras": {"hivedScheduler": {"taskRoles": pins}}})
        assert "extras.hivedScheduler.taskRoles: all roles must be in one pinned cell, or none" in fault


RESOURCE = {"cpu": 1, "memoryMB": 1, "gpu": 1}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (small(protocolVersion=1), "pai.yaml:13: protocolVersion is 1, expected 2"),
        (small(type="data"), "type is data, expected job"),
        (small(name="a b"), "name is a b, expected a name of letters"),
        (small(name="a" * 256), "expected a name of letters"),
        (small(jobRetryCount=-1), "jobRetryCount is -1, expected a whole number from 0"),
        (small(taskRoles={}), "taskRoles is a mapping, expected at least one role"),
        (small(foo=1), "unknown key foo"),
        (with_role(instance=1), "unknown key taskRoles.train.instance, did you mean instances?"),
        (with_role(instances=0), "taskRoles.train.instances is 0, expected a whole number from 1"),
        (with_role(completion={"minFailed": 1}), "unknown key taskRoles.train.completion.minFailed"),
        (with_role(completion={"minFailedInstances": 0}), "minFailedInstances is 0, expected"),
        (with_role(resourcePerInstance={"cpu": 1, "gpu": 1}), "memoryMB is missing"),
        (with_role(resourcePerInstance=RESOURCE | {"gpus": 1}), "unknown key taskRoles.train.resourcePerInstance.gpus"),
        (with_role(resourcePerInstance=RESOURCE | {"ports": {}}), "ports is a mapping, expected at least one label"),
        (with_role(commands=[]), "commands is an empty list, expected a list of 1 to 1,000 commands"),
        (with_role(dockerImage="torhc"), "no prerequisite torhc of type dockerimage, did you mean torch?"),
        (with_role(data="torch"), "taskRoles.train.data: no prerequisite torch of type data"),
        (with_role(prerequisites=["none"]), "no prerequisite none"),
        (small(prerequisites=[]), "prerequisites is an empty list, expected at least one prerequisite"),
        (small(prerequisites=[{"name": "x", "type": "disk"}]), "expected one of dockerimage, script, output, data"),
        (small(prerequisites=small()["prerequisites"] * 2), "the dockerimage torch is given twice"),
        (small(prerequisites=[{"name": "t", "type": "dockerimage"}]), "prerequisites[0].uri is missing"),
        (
            small(prerequisites=[{"name": "t", "type": "dockerimage", "uri": "u", "x": 1}]),
            "unknown key prerequisites[0].x",
        ),
        (small(defaults={"deployment": "d"}), "defaults.deployment: no deployment d"),
        (small(deployments=[{"name": "d", "taskRoles": {"tain": {}}}]), "unknown role, did you mean train?"),
        (small(deployments=[{"name": "d", "taskRoles": {}}] * 2), "the deployment d is given twice"),
        (small(extras={"gangAllocation": "perhaps"}), "extras.gangAllocation is perhaps, expected true or false"),
        (
            small(extras={"hivedScheduler": {"jobPriorityClass": "crit"}}),
            "jobPriorityClass is crit, expected one of prod",
        ),
        (small(extras={"hivedScheduler": {"taskRoles": {"tran": {}}}}), "unknown role, did you mean train?"),
        (
            small(extras={"hivedScheduler": {"taskRoles": {"train": {"skuType": "a", "pinnedCellId": "b"}}}}),
            "has both skuType and pinnedCellId",
        ),
    ],
)
def test_faults(document: dict[str, Any], said: str) -> None:
    fault = refusal(document)
    assert fault.startswith("pai.yaml:")
    assert said in fault


def test_a_job_can_be_submitted_again_as_it_is_shown() -> None:
    document = with_role(taskRetryCount=-1, commands=["<% $secrets.a %>"]) | {"secrets": {"a": "b"}, "name": "_" * 255}
    request = one(document)
    assert from_mapping(msgspec.to_builtins(request)).requests == [request]


def test_an_image_that_is_none_is_a_plain_process() -> None:
    assert (
        one(small(prerequisites=[{"name": "torch", "type": "dockerimage", "uri": "none"}])).tasks["train"].image == ""
    )


def test_auth_of_an_image_is_not_kept() -> None:
    document = small()
    document["prerequisites"][0]["auth"] = {"username": "u", "password": "hunter2"}
    assert "hunter2" not in repr(one(document))


def test_rendering_cannot_blow_up() -> None:
    document = with_role(commands=["<% $parameters.x %>" * 5000])
    document["parameters"] = {"x": "y" * 50_000}
    with pytest.raises(InputError, match="becomes longer than"):
        from_mapping(document)
