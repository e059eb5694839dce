"""A priority above `test` preempts the jobs of others, so it needs a grant, by whatever way it is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_world import JOB, VCS, World, maker

from skep.jobs.request import DEFAULTS

PAI = """
protocolVersion: 2
name: pai
type: job
prerequisites: [{name: image, type: dockerimage, uri: none}]
taskRoles:
  main: {dockerImage: image, resourcePerInstance: {cpu: 1, memoryMB: 100, gpu: 1}, commands: ["true"]}
extras: {hivedScheduler: {jobPriorityClass: prod}}
"""
API = "/api/v1"
PROD = {**JOB, "priority": "prod"}
WAYS = {
    "a job": ("/jobs", {"json": PROD}),
    "a number": ("/jobs", {"json": {**JOB, "priority": 11}}),
    "a dry run": ("/jobs?dry_run=true", {"json": PROD}),
    "a sweep": ("/jobs", {"json": {**JOB, "name": "s-${p}", "priority": "${p}", "sweep": {"p": ["test", "prod"]}}}),
    "a batch": ("/jobs:batch", {"json": {"jobs": [JOB, PROD]}}),
    "a file of OpenPAI": ("/jobs", {"content": PAI, "headers": {"content-type": "application/yaml"}}),
}


def status(world: World, way: str, who: dict[str, str]) -> int:
    path, given = WAYS[way]
    answer = world.client.post(API + path, **{**given, "headers": {**given.get("headers", {}), **who}})
    if "dry_run" in path and answer.json()["errors"]:
        return 403 if "priority 100 is above 10" in answer.json()["errors"][0]["text"] else 500
    return answer.status_code


@pytest.mark.parametrize("way", WAYS)
def test_a_user_needs_a_grant(guarded: World, way: str) -> None:
    assert status(guarded, way, guarded.bearer("ann", "user")) == 403
    assert status(guarded, way, guarded.bearer("lead", "owner", "default")) in (200, 201)
    assert status(guarded, way, guarded.bearer("root", "admin")) in (200, 201)


def test_later_changes_need_it_too(guarded: World) -> None:
    ann = guarded.bearer("ann", "user")
    job_id = guarded.client.post(f"{API}/jobs", json={**JOB, "hold": True}, headers=ann).json()["id"]

    def patch(who: dict[str, str], priority: int) -> int:
        path = f"{API}/jobs/{job_id}"
        return guarded.client.patch(path, json={"priority": priority}, headers=who).status_code

    assert [patch(ann, priority) for priority in (100, 11, 10, -1)] == [403, 403, 200, 200]
    bulk = {"ids": [job_id], "action": "priority", "value": 100}
    found = guarded.client.post(f"{API}/jobs:bulk", json=bulk, headers=ann).json()["results"][0]
    assert not found["ok"]
    assert "priority 100 is above 10" in found["error"]
    assert patch(guarded.bearer("lead", "owner", "default"), 100) == 200


def test_without_tokens_the_owner_of_the_machine_has_it(world: World) -> None:
    assert world.client.post(f"{API}/jobs", json=PROD).status_code == 201


def test_the_config_file_grants_it_to_a_user(tmp_path: Path) -> None:
    config = tmp_path / "skep.yaml"
    config.write_text("limits: {users: {ann: {priority: 100}}}")
    from skep.server.config import make_config

    limits = make_config(str(config), {"data": str(tmp_path)}).limits
    with World(tmp_path, maker(VCS), auth="token", limits=limits) as made:
        answers = [
            made.client.post(f"{API}/jobs", json=PROD, headers=made.bearer(who, "user")) for who in ("ann", "bob")
        ]
    assert [answer.status_code for answer in answers] == [201, 403]
    assert DEFAULTS.priority == 10
    assert answers[1].json()["error"] == "priority 100 is above 10, the limit of bob in VC default"
    assert "preempt" in answers[1].json()["hint"]


def test_who_may_alter_what(guarded: World) -> None:
    ann, bob = guarded.bearer("ann", "user", "lab"), guarded.bearer("bob", "user", "lab")
    asked = {**JOB, "gpus": 2, "vc": "lab", "hold": True}
    job_id = guarded.client.post(f"{API}/jobs", json=asked, headers=ann).json()["id"]

    def patch(who: dict[str, str], **change: object) -> int:
        return guarded.client.patch(f"{API}/jobs/{job_id}", json=change, headers=who).status_code

    assert [patch(ann, gpus=1), patch(bob, gpus=2)] == [200, 403]
    assert patch(ann, vc="prod") == 403
    assert [patch(ann, gpus=1, priority=5), patch(ann, gpus=0)] == [409, 400]
    assert patch(guarded.bearer("root", "admin"), vc="prod") == 200
    assert guarded.client.get(f"{API}/jobs/{job_id}", headers=ann).status_code == 404  # it is in a VC of others now
