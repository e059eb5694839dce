"""What would let a job start, as the server answers it: a process tries it out on the server's own store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fake_world import World, maker

from skep.server.advice import Advice
from skep.service.advice import FixQuestion
from skep.service.foreseen import Setup

API = "/api/v1"
TYPED = """
nodes: [{count: 2, name: n, gpus: 4}]
vcs: {lab: 1 nodes, prod: 1 nodes}
"""


def changes(world: World, job_id: str, within: float = 0.0, **headers: Any) -> list[dict[str, Any]]:
    answer = world.client.get(f"{API}/jobs/{job_id}/changes", params={"within": within}, **headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def test_a_fix_is_offered_and_helps(world: World) -> None:
    first = world.run(gpus=6)
    waiting = world.submit(gpus=8)
    *fixes, tried = changes(world, waiting)
    assert (tried["type"], tried["error"]) == ("tried", "")
    by_kind = {each["kind"]: each for each in fixes}
    assert by_kind["alter"]["change"] == {"gpus": 2}
    assert by_kind["wait"]["change"] == {"job": first}
    assert by_kind["stop"]["command"] == f"skep stop {first}"
    assert fixes == sorted(fixes, key=lambda each: each["lost_gpu_s"])
    assert world.client.patch(f"{API}/jobs/{waiting}", json=by_kind["alter"]["change"]).status_code == 200
    world.wait_for(waiting, "running")
    assert changes(world, waiting)[0]["changes"] == 0


def test_only_what_the_caller_may_do(tmp_path: Path) -> None:
    with World(tmp_path, maker(TYPED), auth="token") as world:
        root, ann = world.bearer("root", "admin"), world.bearer("ann", "user", "lab")

        def submit(who: dict[str, str], vc: str, **fields: Any) -> str:
            job = {"name": "j", "command": "true", "gpus": 4, "vc": vc, **fields}
            found: str = world.client.post(f"{API}/jobs", json=job, headers=who).json()["id"]
            return found

        for vc in ("lab", "prod"):
            world.wait_for(submit(root, vc), "running")
        waiting = submit(ann, "lab")
        mine = changes(world, waiting, headers=ann)
        assert {each.get("kind") for each in mine} <= {"wait", None}
        assert [each["change"] for each in mine[:-1]] == [{"job": "1"}]
        kinds = {each.get("kind") for each in changes(world, waiting, headers=root)}
        assert {"stop", "wait"} <= kinds
        viewer = world.bearer("eve", "viewer", "lab")
        assert {each.get("kind") for each in changes(world, waiting, headers=viewer)} == {"wait", None}
        assert world.client.get(f"{API}/jobs/2/changes", headers=ann).status_code == 404


def plan(world: World, *jobs: dict[str, Any], **headers: Any) -> list[dict[str, Any]]:
    body = list(jobs) if len(jobs) > 1 else jobs[0]
    answer = world.client.post(f"{API}/jobs:plan", params={"within": 20}, json=body, **headers)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def test_what_a_submission_would_do(world: World) -> None:
    running = world.run(gpus=6)
    known = {"name": "new", "command": "true", "expect_s": 60}
    found, tried = plan(world, {**known, "gpus": 2})
    assert (found["type"], found["jobs"][0]["nodes"], tried["error"]) == ("plan", ["n0"], "")
    assert (found["preempts"], found["delayed"], found["jobs"][0]["lengths"]) == ([], 0, "owner")
    found, *fixes, _ = plan(world, {**known, "gpus": 8, "secrets": {"KEY": "hidden"}})
    assert found["jobs"][0]["nodes"] == []
    assert [each["change"] for each in fixes] == [{"gpus": 2}, {"priority": 100}]
    found = plan(world, {**known, "gpus": 4, "priority": 100})[0]
    assert found["preempts"] == [running]
    assert world.ids() == [running]
    bad = world.client.post(f"{API}/jobs:plan", json={**known, "gpus": 80})
    assert (bad.status_code, "can never run" in bad.json()["error"]) == (400, True)
    many = [{**known, "name": f"n{number}"} for number in range(21)]
    assert world.client.post(f"{API}/jobs:plan", json=many).status_code == 400


def test_a_process_that_fails_is_started_again(tmp_path: Path) -> None:
    advice = Advice(Setup(str(tmp_path / "nothing")))
    try:
        for _ in range(2):
            (line,) = advice.ask(FixQuestion("1", 0.0))
            assert "has ended" in json.loads(line)["error"]
    finally:
        advice.close()
    (line,) = advice.ask(FixQuestion("1", 0.0))
    assert "has ended" in json.loads(line)["error"]
