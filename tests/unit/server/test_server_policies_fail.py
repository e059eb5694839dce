"""A policy that failed is named wherever people look."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_world import World
from tests.support.engines import FakeEngine

from skep.jobs.request import Request, TaskRole
from skep.service.live import Live
from skep.service.store import Store

POLICY = """
import pathlib
import time

from skep.policies import Order

class Mine(Order):
    def key(self, job, now_s):
        if job.gpus == 3:
            while job.spec.user == "endless" and not pathlib.Path(__file__).with_name("go").exists():
                time.sleep(0.01)
            raise AttributeError("no such thing")
        return job.seq
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "data").mkdir(mode=0o700)

    def make(folder: Path) -> Live:
        return Live(
            Store(folder / "skep.db"),
            lambda live: FakeEngine(live.tell, live.writer.state.cluster),
            time.time,
            cluster=("1x8", "1x8"),
            policy=f"{tmp_path}/mine.py:Mine",
        )

    with World(tmp_path / "data", make) as made:
        yield made


SAYS = "policy mine.py:Mine failed (AttributeError: no such thing, line 12); the previous policy fifo takes over"


def test_it_is_named_and_the_job_is_kept(world: World) -> None:
    world.submit(gpus=8)
    job = world.submit(gpus=3)
    ask = world.client.get
    assert ask(f"/api/v1/jobs/{job}").json()["state"] == "pending"
    assert ask("/api/v1/health").json()["problems"] == [SAYS]
    explained = ask(f"/api/v1/jobs/{job}/explain").json()
    assert explained["problems"] == [SAYS]
    assert explained["code"] != "policy-failed"
    assert ask("/api/v1/policy").json() == {"policy": "fifo", "problems": [SAYS], "missing": []}
    assert [event["text"] for event in world.live.events(0, None, 100) if event["kind"] == "policy-failed"] == [SAYS]
    metrics = ask("/metrics").text
    assert "skep_policy_failures_total 1.0" in metrics
    assert "skep_policies_replaced 1.0" in metrics


ENDLESS = Request("x", {"task": TaskRole(count=3, gpus=1, command="true")}, user="endless")


def test_one_that_takes_long_blocks_no_reader(world: World, tmp_path: Path) -> None:
    world.submit(gpus=8)
    asked = world.live.submit([ENDLESS], "endless")
    while not world.live.bounded.waits_s:
        time.sleep(0.01)
    answers = [world.client.get(f"/api/v1/{path}").status_code for path in ("jobs", "health", "nodes", "jobs/1")]
    assert (answers, asked.done()) == ([200] * 4, False)
    (tmp_path / "go").touch()
    assert asked.result(60) == ["2"]


def test_one_that_never_comes_back_is_left_behind(world: World) -> None:
    world.submit(gpus=8)
    world.live.bounded.limit_s = 0.5
    assert world.live.submit([ENDLESS], "endless").result(60) == ["2"]
    (problem,) = world.live.problems()
    assert problem.startswith("policy mine.py:Mine failed (TooSlow: no answer within 0.5 s")
    world.live.bounded.limit_s = 60.0
    assert world.live.submit([ENDLESS], "endless").result(60) == ["3"]


def test_what_is_missing_for_a_policy_is_said_before_it_is_used(world: World, tmp_path: Path) -> None:
    put, body = world.client.put, {"policy": "srtf"}
    said = put("/api/v1/policy?dry_run=true", json=body).json()
    assert [sentence.split(":")[0] for sentence in said["missing"]] == ["no oracle"]
    assert world.client.get("/api/v1/policy").json()["policy"] != "srtf"
    assert put("/api/v1/policy", json=body).json() == {"policy": "srtf", "problems": [], "missing": said["missing"]}
    listed = {info["name"]: info for info in world.client.get("/api/v1/policies").json()}
    assert (listed["srtf"]["oracle"], listed["srtf"]["missing"]) == (True, said["missing"])
    assert (listed["fifo"]["needs"], listed["fifo"]["missing"]) == ([], [])
    own = {"policy": "/x/own.py:Own", "files": {"/x/own.py": "class Own:\n    needs = ['magic']\n"}}
    assert put("/api/v1/policy?dry_run=true", json=own).status_code == 400
