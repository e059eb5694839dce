"""Requests of one kind wait for their turn on the event loop; beyond a bound they are refused."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_world import JOB, World

from skep.jobs.read import read_requests
from skep.server.gate import Crowded, Gate
from skep.server.routes import submit
from skep.server.routes.submit import FileChecks
from skep.server.security import Budget

API = "/api/v1"


def test_a_gate_bounds_who_works_and_who_waits() -> None:
    async def try_out() -> None:
        gate, working, most = Gate("tests", 2, 3, share=1.0), 0, 0
        go = asyncio.Event()

        async def work(user: str) -> None:
            nonlocal working, most
            async with gate.turn(user):
                working += 1
                most = max(most, working)
                await go.wait()
                working -= 1

        tasks = [asyncio.create_task(work(f"u{number}")) for number in range(9)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        go.set()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert most == 2
        assert [isinstance(each, Crowded) for each in ended] == [False] * 5 + [True] * 4
        async with gate.turn("later"):  # all places are free again
            pass
        assert not gate._users

    asyncio.run(try_out())


def test_one_user_has_a_share_of_the_places() -> None:
    async def try_out() -> None:
        gate = Gate("tests", 4, 0, share=0.5)
        async with gate.turn("ann"), gate.turn("ann"), gate.turn("bob"):
            with pytest.raises(Crowded, match="too many tests at once"):
                async with gate.turn("ann"):
                    pass

    asyncio.run(try_out())


def test_a_budget_is_taken_and_given_back() -> None:
    budget = Budget(100, share=0.6)
    budget.take("ann", 60)
    with pytest.raises(Crowded):
        budget.take("ann", 1)
    budget.take("bob", 40)
    with pytest.raises(Crowded):
        budget.take("cid", 1)
    budget.give("ann", 60)
    budget.take("cid", 1)
    assert budget.used == {"bob": 40, "cid": 1}


def test_bodies_in_memory_have_a_bound_for_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Budget(1 << 20)
    monkeypatch.setattr(world.app.app, "held", held)
    large = json.dumps({"jobs": [JOB] * 20_000}).encode()
    assert len(large) > held.most_each
    refused = world.client.post(f"{API}/jobs:batch", content=large, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
    assert world.submit()
    by_s = time.monotonic() + 30
    while held.used:  # it is given back when the answer has been sent
        assert time.monotonic() < by_s
        time.sleep(0.01)


def test_a_login_takes_little_memory(world: World) -> None:
    body = json.dumps({"token": "x" * 20_000})
    assert (
        world.client.post(f"{API}/session", content=body, headers={"Content-Type": "application/json"}).status_code
        == 413
    )


def test_a_few_bytes_cannot_become_a_hundred_million_tasks(world: World) -> None:
    sweep = {"name": "a-${x}", "gang": False, "tasks": {"w": {"count": 10_000, "command": "true"}}}
    sweep |= {"sweep": {"x": list(range(100)), "y": list(range(100))}}
    for query in ("", "?dry_run=true"):
        answer = world.client.post(f"{API}/jobs{query}", json=sweep)
        said = answer.json()
        error = said["errors"][0]["text"] if query else said["error"]
        assert error == "10,000 jobs with 100,000,000 tasks, expected at most 200,000 tasks at once"
    assert answer.elapsed.total_seconds() < 30


def test_a_disk_that_hangs_stops_no_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "WAIT_S", 0.1)
    monkeypatch.setattr(submit, "AT_ONCE", 2)
    hangs = threading.Event()
    monkeypatch.setattr(submit, "refuse_missing", lambda named: hangs.wait(60))
    reading = read_requests('{"name": "a", "command": "true"}', "job", "ann")
    checks = FileChecks()
    began_s = time.monotonic()
    for _ in range(5):
        checks.check(reading.requests)
    assert time.monotonic() - began_s < 30
    assert threading.active_count() < 30
    hangs.set()


def test_a_workdir_that_hangs_leaves_lists_alone(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(submit, "WAIT_S", 120.0)
    monkeypatch.setattr(submit, "refuse_missing", lambda named: hangs.wait(120))
    with ThreadPoolExecutor(60) as pool:
        jobs = [{**JOB, "workdir": str(tmp_path / str(number))} for number in range(60)]
        asked = [pool.submit(world.client.post, f"{API}/jobs", json=job) for job in jobs]
        time.sleep(0.5)
        assert world.client.get(f"{API}/jobs").status_code == 200  # it would give up after a minute
        hangs.set()
        assert {each.result().status_code for each in asked} <= {201, 429}
