"""The routes: what they take, what they answer, what they call."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from fake_world import CLUSTER, JOB, World, maker

from skep.service.reads import Reads

JOBS = "/api/v1/jobs"


def test_submitting_answers_with_the_job(world: World) -> None:
    answer = world.client.post(JOBS, content="name: a\ncommand: 'true'\n", headers={"Content-Type": "application/yaml"})
    assert answer.status_code == 201
    said = answer.json()
    assert (said["name"], said["state"], said["warnings"]) == ("a", said["jobs"][0]["state"], [])
    assert [job["id"] for job in said["jobs"]] == [said["id"]]


def test_a_sweep_is_several_jobs(world: World) -> None:
    sweep = {"name": "s-${lr}", "command": "echo ${lr}", "sweep": {"lr": [1, 2, 3]}}
    said = world.client.post(JOBS, json=sweep).json()
    assert [job["id"] for job in said["jobs"]] == world.ids()
    assert len(world.ids()) == 3


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"name": "../x", "command": "a"}',
        b"\xff\xfe",
        b'{"name": "a"}',
        b"null",
        b"1",
        b"[" * 5000,
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
def test_bad_jobs_are_one_line(world: World, body: bytes, kind: str) -> None:
    answer = world.client.post(JOBS, content=body, headers={"Content-Type": kind})
    assert answer.status_code == 400
    said = answer.json()
    assert set(said) == {"error", "hint"}
    assert said["error"]
    assert "\n" not in said["error"] + said["hint"]
    assert not world.ids()


def test_a_batch_is_all_or_nothing(world: World) -> None:
    batch = f"{JOBS}:batch"
    answer = world.client.post(batch, json={"jobs": [JOB, {**JOB, "gpus": -1}]})
    assert answer.status_code == 400
    assert "jobs[1]" in answer.json()["error"]
    assert not world.ids()
    answer = world.client.post(batch, json={"jobs": [JOB, JOB]})
    assert answer.status_code == 201
    assert answer.json()["ids"] == world.ids()


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", '{"jobs": []}', '{"jobs": [1]}', '{"jobs": {}}', '{"jobs": [{}], "x": 1}', "[" * 9000]
)
def test_bad_batches(world: World, body: str) -> None:
    answer = world.client.post(f"{JOBS}:batch", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert "\n" not in answer.json()["error"]


def test_the_same_key_is_one_submission(world: World) -> None:
    answers = [world.client.post(JOBS, json=JOB, headers={"Idempotency-Key": "k1"}) for _ in range(3)]
    assert len({answer.json()["id"] for answer in answers}) == len(world.ids()) == 1
    for key in (b"", b"a b", b"x" * 201, b"\xe9"):
        assert world.client.post(JOBS, json=JOB, headers={"Idempotency-Key": key}).status_code == 400


def test_pages(world: World) -> None:
    ids = [world.submit() for _ in range(5)]
    seen, cursor = [], ""
    while cursor is not None:
        page = world.client.get(JOBS, params={"limit": 2, "cursor": cursor}).json()
        seen += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
    assert seen == ids[::-1]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "limit=1001", "state=bad", "all=maybe", "cursor=%00", "vc=%00"]
)
def test_bad_queries(world: World, query: str) -> None:
    answer = world.client.get(f"{JOBS}?{query}")
    assert answer.status_code == 400
    assert query.split("=")[0] in answer.json()["error"]


def test_states_filter(world: World) -> None:
    job_id, other = world.run(user="filter"), world.run(user="filter")
    world.client.post(f"{JOBS}/{job_id}/stop", json={"reason": "enough"})
    world.wait_for(job_id, "stopped")

    def found(*query: tuple[str, str]) -> list[str]:
        page = world.client.get(JOBS, params=[("user", "filter"), *query]).json()
        return [job["id"] for job in page["jobs"]]

    assert found() == [other]
    assert found(("state", "stopped")) == [job_id]
    assert found(("state", "stopped"), ("state", "running")) == found(("all", "true")) == [other, job_id]


def test_changing_a_job(world: World) -> None:
    job_id = world.submit(hold=True)
    change = {"priority": 100, "hold": False, "tags": ["a", "b"]}
    answer = world.client.patch(f"{JOBS}/{job_id}", json=change, headers={"X-Skep-User": "ann"})
    assert answer.status_code == 200
    assert (answer.json()["priority"], answer.json()["tags"]) == (100, ["a", "b"])
    assert world.wait_for(job_id, "running")["priority"] == 100
    by_ann = [event["kind"] for event in world.events() if event["job_id"] == job_id and event["who"] == "ann"]
    assert by_ann == ["priority", "released", "tagged"]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"priority": "5"},
        {"priority": 5.5},
        {"priority": 1001},
        {"hold": 1},
        {"tags": "a"},
        {"name": "x"},
        {"tags": ["a\nb"]},
        [],
    ],
)
def test_bad_changes(world: World, change: object) -> None:
    job_id = world.submit()
    assert world.client.patch(f"{JOBS}/{job_id}", json=change).status_code == 400


def test_an_ended_job_conflicts(world: World) -> None:
    job_id = world.submit()
    assert world.client.post(f"{JOBS}/{job_id}/stop").status_code == 200
    world.wait_for(job_id, "stopped")
    answer = world.client.post(f"{JOBS}/{job_id}/stop")
    assert answer.status_code == 409
    assert answer.json()["error"] == f"job {job_id} cannot be stopped: it already finished (stopped)"


HIVED = """
physicalCluster:
  cellTypes: {node: {childCellType: gpu, childCellNumber: 1000, isNodeLevel: true}}
  physicalCells:
""" + "".join(f"  - {{cellType: node, cellAddress: n{at}}}\n" for at in range(400))


@pytest.mark.parametrize("text", ["10001x1", "1000x161", "nodes: [{count: 10001, gpus: 1}]", HIVED])
def test_a_server_builds_no_huge_cluster(world: World, text: str) -> None:
    for query in ("?dry_run=true", ""):
        found = world.client.put(f"/api/v1/cluster{query}", content=text, headers={"Content-Type": "application/yaml"})
        assert found.status_code == 400
        assert re.search("10,001 nodes|161,000 GPUs|400,000 cells", found.json()["error"])


def test_nodes_policy_cluster_usage(world: World) -> None:
    ask = world.client
    assert ask.patch("/api/v1/nodes/n0", json={"state": "drained"}).json()["state"] == "drained"
    assert ask.patch("/api/v1/nodes/n0", json={"state": "up"}).json()["state"] == "up"
    assert ask.patch("/api/v1/nodes/n9", json={"state": "up"}).status_code == 404
    assert ask.patch("/api/v1/nodes/n0", json={"state": "gone"}).status_code == 400
    assert ask.put("/api/v1/policy", json={"policy": "sjf"}).json()["policy"] == "sjf"
    assert ask.put("/api/v1/policy", json={"policy": "fifo"}).status_code == 200
    assert ask.put("/api/v1/policy", json={"policy": "no such"}).status_code == 400
    yaml = {"Content-Type": "application/yaml"}
    before, two = world.live.last_seq(), "nodes: [{name: n0, gpus: 8}, {name: n1, gpus: 8}]"
    dry = ask.put("/api/v1/cluster?dry_run=true", content=two, headers=yaml)
    assert [change for change in dry.json()["changes"] if "n1" in change]
    assert world.live.last_seq() == before
    assert ask.put("/api/v1/cluster", content=two, headers=yaml).status_code == 200
    assert [node["name"] for node in ask.get("/api/v1/nodes").json()] == ["n0", "n1"]
    assert ask.put("/api/v1/cluster", content=CLUSTER, headers=yaml).status_code == 200
    assert ask.put("/api/v1/cluster", content="", headers=yaml).status_code == 400
    world.run()
    assert ask.get("/api/v1/usage?by=vc&since=0").json()[0]["vc"] == "default"
    assert ask.get("/api/v1/usage?since=nan").status_code == 400


def test_unknown_addresses_and_methods_have_the_same_shape(world: World) -> None:
    for method, path, status in (
        ("GET", "/none", 404),
        ("GET", "/docs", 404),
        ("PUT", JOBS, 405),
        ("PURGE", JOBS, 405),
    ):
        answer = world.client.request(method, path)
        assert answer.status_code == status
        assert set(answer.json()) == {"error", "hint"}
    assert set(world.client.put(JOBS).headers["allow"].split(", ")) == {"GET", "POST"}


def test_a_bug_is_not_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(reads: Reads, ref: str) -> None:
        raise RuntimeError("secret detail in /etc")

    monkeypatch.setattr(Reads, "job", broken)
    answer = world.client.get(f"{JOBS}/1")
    assert answer.status_code == 500
    assert set(answer.json()) == {"error", "hint"}
    assert "secret" not in answer.text


def test_backup_is_a_database_and_leaves_nothing(world: World, tmp_path: Path) -> None:
    world.submit()
    answer = world.client.post("/api/v1/backup")
    assert answer.headers["content-type"] == "application/vnd.sqlite3"
    copy = tmp_path / "copy.db"
    copy.write_bytes(answer.content)
    assert sqlite3.connect(copy).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert not list(world.config.data.glob(".backup*"))


def test_metrics(world: World) -> None:
    world.run(gpus=8)
    world.submit()
    world.client.get(f"{JOBS}/j-unknown")
    world.client.request("PURGE", "/some/where")
    text = world.client.get("/metrics").text
    assert 'skep_jobs{state="pending"} 1.0' in text
    assert 'skep_node_gpus{node="n0"} 8.0' in text
    assert 'skep_vc_gpus_used{vc="default"} 8.0' in text
    assert 'skep_jobs_waiting{cause="' in text
    assert float(value_of(text, "skep_decision_seconds_sum")) > 0
    assert float(value_of(text, "skep_commit_seconds_count")) >= 2
    assert 'skep_http_requests_total{method="GET",route="/api/v1/jobs/{id}",status="404"}' in text
    assert 'skep_http_requests_total{method="other",route="none",status="404"}' in text
    assert "j-unknown" not in text


def value_of(text: str, name: str) -> str:
    return next(line.split()[-1] for line in text.splitlines() if line.startswith(f"{name} "))


def test_metrics_of_waiting_and_running_times(tmp_path: Path) -> None:
    def counted() -> dict[str, float]:
        lines = world.client.get("/metrics").text.splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("skep_job_"))
        return {name: float(value) for name, value in values.items()}

    now_s = 1000.0
    with World(tmp_path, maker(clock=lambda: now_s)) as world:
        first = world.run(gpus=8)
        before, job_id = counted(), world.submit()
        assert counted() == before
        now_s += 42
        world.end(first)
        world.wait_for(job_id, "running")
        for _ in range(2):  # a job is counted once, however often somebody looks
            waited = counted()
            assert waited["skep_job_wait_seconds_sum"] == pytest.approx(before["skep_job_wait_seconds_sum"] + 42)
            bucket = 'skep_job_wait_seconds_bucket{le="%s"}'
            assert waited[bucket % "60.0"] == before[bucket % "60.0"] + 1
            assert waited[bucket % "10.0"] == before[bucket % "10.0"]
        now_s += 7200
        world.end(job_id)
        for _ in range(2):
            ended = counted()
            assert ended["skep_job_run_seconds_sum"] == pytest.approx(waited["skep_job_run_seconds_sum"] + 7200)
            assert ended["skep_job_run_seconds_count"] == waited["skep_job_run_seconds_count"] + 1
            assert ended["skep_job_wait_seconds_count"] == waited["skep_job_wait_seconds_count"]


def test_shutdown_is_passed_on(world: World) -> None:
    for body in ({}, {"stop_jobs": True}, {"stop_jobs": True, "within_s": 5}):
        assert world.client.post("/api/v1/shutdown", json=body).status_code == 202
    assert world.shutdowns == [None, 600.0, 5.0]
    for bad in ({"stop_jobs": "yes"}, {"stop_jobs": True, "within_s": 0}):
        assert world.client.post("/api/v1/shutdown", json=bad).status_code == 400


@pytest.mark.parametrize("name", ["_x", "x" * 255, "a.b-c"])
def test_every_name_a_job_may_have_can_be_asked_for(world: World, name: str) -> None:
    world.submit(name=name)
    assert world.client.get(f"{JOBS}/{name}").status_code == 200
    assert world.client.get(f"/api/v1/events?follow=false&job={name}").status_code == 200


def test_what_is_no_name_is_no_job(world: World) -> None:
    answer = world.client.get(f"{JOBS}/a b")
    assert (answer.status_code, answer.json()["error"]) == (404, "there is no job 'a b'")


def test_a_bad_parameter_is_named_as_it_was_sent(world: World) -> None:
    answer = world.client.get("/api/v1/usage?since=-1")
    assert answer.json()["error"] == "since: Input should be greater than or equal to 0"
    answer = world.client.patch(f"{JOBS}/{world.submit()}", json={"tags": ["a", "b\nc"]})
    assert answer.json()["error"] == "tags.1 is 'b\\nc', which does not have the expected form"
    assert world.client.put("/api/v1/policy", json=[]).json()["error"].startswith("body: ")
