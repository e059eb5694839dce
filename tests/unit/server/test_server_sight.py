"""Who sees what: a token for a VC reads nothing of another, through any route."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_world import World
from httpx_sse import EventSource
from tests.support.engines import FakeEngine

from skep.core.errors import NotFound
from skep.jobs.request import LimitRules, Limits
from skep.server.hub import ChangeBatch
from skep.service.live import Live
from skep.service.sight import EVERYTHING
from skep.service.store import Store

API = "/api/v1"
CLUSTER = """
nodes: [{count: 2, name: n, gpus: 2}]
vcs: {red: 1 node, blue: 1 node}
"""


def make_live(folder: Path) -> Live:
    return Live(
        Store(folder / "skep.db"),
        lambda live: FakeEngine(live.tell, live.writer.state.cluster),
        time.time,
        cluster=("two", CLUSTER),
        policy="fifo",
        limits=LIMITS,
    )


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("sight"), make_live, auth="token", limits=LIMITS) as made:
        yield made


LIMITS = LimitRules(Limits(priority=20, jobs=1000), {"max": Limits(jobs=1, cpus=2, priority=0)})


@pytest.fixture(scope="module")
def people(two: World) -> dict[str, dict[str, str]]:
    return {
        "root": two.bearer("root", "admin"),
        "red": two.bearer("ann", "user", "red"),
        "blue": two.bearer("bob", "user", "blue"),
        "blue owner": two.bearer("olga", "owner", "blue"),
        "blue viewer": two.bearer("vic", "viewer", "blue"),
        "viewer": two.bearer("eve", "viewer"),
    }


def submit(two: World, who: dict[str, str], **fields: Any) -> str:
    answer = two.client.post(f"{API}/jobs", json={"command": "true", "gpus": 1, **fields}, headers=who)
    assert answer.status_code == 201, answer.text
    found: str = answer.json()["id"]
    return found


@pytest.fixture(scope="module")
def red_job(two: World, people: dict[str, dict[str, str]]) -> str:
    fields = {"name": "hush", "command": "echo crimson", "tags": ["crimson"], "group": "crimson"}
    return submit(two, people["red"], vc="red", **fields)


@pytest.fixture(scope="module")
def blue_job(two: World, people: dict[str, dict[str, str]], red_job: str) -> str:
    return submit(two, people["blue"], vc="blue", name="open")


def get(two: World, path: str, who: dict[str, str]) -> httpx.Response:
    return two.client.get(f"{API}{path}", headers=who)


@pytest.mark.parametrize("who", ["blue", "blue owner", "blue viewer"])
@pytest.mark.parametrize(
    "rest",
    ["", "/logs", "/events", "/explain", "/environment", "/logs?follow=true", "/curve", "/logs:search?q=a", "/file"],
)
@pytest.mark.parametrize("by_name", [False, True])
def test_a_job_of_another_vc_is_as_if_it_were_not(
    two: World, people: dict[str, dict[str, str]], red_job: str, who: str, rest: str, by_name: bool
) -> None:
    ref = "hush" if by_name else red_job
    answer = get(two, f"/jobs/{ref}{rest}", people[who])
    missing = get(two, f"/jobs/{'nothing' if by_name else 99999}{rest}", people[who])
    assert answer.status_code == missing.status_code == 404
    assert answer.json()["error"] == missing.json()["error"].replace("nothing" if by_name else "99999", ref)
    assert two.client.post(f"{API}/jobs/{ref}/stop", headers=people["blue owner"]).status_code == 404
    assert two.client.patch(f"{API}/jobs/{ref}", json={"tags": []}, headers=people["blue owner"]).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "/jobs",
        "/jobs?all=true",
        "/jobs?vc=red",
        "/jobs?name=hush&all=true",
        "/jobs?state=running",
        "/jobs?tag=crimson",
        "/nodes",
        "/vcs",
        "/cluster",
        "/usage?by=user",
        "/usage?by=vc",
        "/usage?by=job",
        "/events?follow=false",
        "/events?follow=false&last=1000",
        "/jobs?q=hush",
        "/jobs?q=crimson&all=true&counts=true&sort=name",
        "/map",
        "/timeline",
        "/decisions",
        "/history?vc=true",
        "/usage?by=user&vc=red",
        "/nodes/n0/drain",
        "/nodes/n1/drain",
    ],
)
def test_lists_tell_nothing_of_another_vc(
    two: World, people: dict[str, dict[str, str]], red_job: str, blue_job: str, path: str
) -> None:
    for who in ("blue", "blue owner", "blue viewer"):
        answer = get(two, path, people[who])
        assert answer.status_code == 200
        for word in ("hush", "crimson", "ann", '"red"', f'"{red_job}"'):
            assert word not in answer.text, (path, word)
    for filter in ("vc=red", "name=hush&", "tag=crimson"):
        path = path.replace(filter, "")
    both = get(two, path, people["viewer"])
    assert both.status_code == 200
    if path.endswith("/drain"):
        return  # of one of them only
    assert any(word in both.text for word in ("hush", '"red"', "ann", f'"{red_job}"'))


def test_numbers_of_jobs_are_those_in_sight(
    two: World, people: dict[str, dict[str, str]], red_job: str, blue_job: str
) -> None:
    whole, blue = (get(two, "/overview", people[who]).json() for who in ("viewer", "blue"))
    assert whole["gpus"] == blue["gpus"]
    assert 0 < sum(blue["jobs"].values()) < sum(whole["jobs"].values())
    page = get(two, "/jobs?all=true&counts=true&limit=1000", people["blue"]).json()
    assert sum(page["counts"].values()) == len(page["jobs"])
    refused = two.client.post(
        f"{API}/jobs:bulk", json={"ids": [red_job, "hush"], "action": "stop"}, headers=people["blue owner"]
    ).json()
    assert [each["error"] for each in refused["results"]] == [f"there is no job {red_job}", "there is no job hush"]


def test_metrics_are_for_those_who_see_everything(two: World, people: dict[str, dict[str, str]]) -> None:
    assert two.client.get("/metrics", headers=people["viewer"]).status_code == 200
    assert two.client.get("/metrics", headers=people["blue owner"]).status_code == 403


def test_a_name_means_the_latest_job_in_sight(two: World, people: dict[str, dict[str, str]]) -> None:
    ours = submit(two, people["blue"], vc="blue", name="same")
    submit(two, people["red"], vc="red", name="same")
    assert get(two, "/jobs/same", people["blue"]).json()["id"] == ours
    needy = submit(two, people["blue"], vc="blue", name="needy", needs=["same"])
    assert get(two, f"/jobs/{needy}", people["blue"]).json()["request"]["needs"] == ["same"]
    assert get(two, f"/jobs/{needy}/explain", people["blue"]).json()["reason"].startswith(f"waits for job {ours}")


def test_nobody_needs_a_job_out_of_sight(two: World, people: dict[str, dict[str, str]], red_job: str) -> None:
    for ref in (red_job, "hush"):
        job = {"command": "true", "vc": "blue", "needs": [ref], "name": "x"}
        answer = two.client.post(f"{API}/jobs", json=job, headers=people["blue"])
        assert answer.status_code in (404, 409)
        assert "crimson" not in answer.text


def test_an_owner_of_a_vc_changes_its_jobs_and_does_not_read_their_secrets(
    two: World, people: dict[str, dict[str, str]]
) -> None:
    role = {"command": "true", "env": {"KEY": "hunter2"}}
    answer = two.client.post(
        f"{API}/jobs", json={"name": "s", "vc": "blue", "tasks": {"w": role}}, headers=people["blue"]
    )
    job_id, owner = answer.json()["id"], people["blue owner"]
    assert "hunter2" not in get(two, f"/jobs/{job_id}", owner).text
    assert get(two, f"/jobs/{job_id}/environment", owner).status_code == 403
    for answer in (
        two.client.patch(f"{API}/jobs/{job_id}", json={"tags": ["a"]}, headers=owner),
        two.client.post(f"{API}/jobs/{job_id}/stop", headers=owner),
    ):
        assert answer.status_code == 200
        assert "hunter2" not in answer.text


def test_explain_names_no_job_of_another_vc(two: World, people: dict[str, dict[str, str]], red_job: str) -> None:
    reads = two.live.seen_by(two_sight("blue"))
    ours = submit(two, people["blue"], vc="blue", name="plain")
    said = f"job {red_job} goes first, then job {ours}, job {red_job}/worker-0 too"
    assert reads.without_others(said) == (f"a job of another VC goes first, then job {ours}, a job of another VC too")
    assert two.live.without_others(said) == said


def test_a_reason_is_the_same_everywhere_and_names_no_job_out_of_sight(tmp_path: Path) -> None:
    with World(tmp_path, make_live, auth="token", limits=LIMITS) as made:
        red, blue = made.bearer("ann", "user", "red"), made.bearer("bob", "user", "blue")
        holders = [submit(made, who, name="x", vc=vc, gpus=2) for who, vc in ((red, "red"), (blue, "blue"))]
        role = {"count": 2, "gpus": 2, "command": "true"}
        large = {"name": "guest", "vc": "blue", "priority": -1, "tasks": {"w": role}}
        guest = made.client.post(f"{API}/jobs", json=large, headers=blue).json()["id"]
        for who, named in ((blue, ["a job of another VC", f"job {holders[1]}"]), (made.bearer("root", "admin"), [])):
            found = get(made, f"/jobs/{guest}/explain", who).json()
            rows = {row["id"]: row for row in get(made, "/jobs", who).json()["jobs"]}
            reasons = {found["reason"], get(made, f"/jobs/{guest}", who).json()["reason"], rows[guest]["reason"]}
            assert reasons == {
                "on cells that others leave idle: asks for 4 GPUs, 0 are free; "
                f"{' and '.join(named or [f'job {each}' for each in holders])} hold what it needs"
            }
            assert (holders[0] in found["remedy"].split()) == (not named)


def test_a_row_of_the_change_stream_names_no_job_out_of_sight() -> None:
    row = {"id": "2", "vc": "blue", "reason": "job 1 and job 3 go first"}
    batch = ChangeBatch(1, 1, [], [row], is_too_large=False, vcs={"1": "red", "3": "blue"})
    assert b"job 1 and job 3 go first" in batch.message(EVERYTHING, 0)
    assert b"a job of another VC and job 3 go first" in batch.message(two_sight("blue"), 0)


def two_sight(vc: str) -> Any:
    from skep.service.sight import Sight

    return Sight(frozenset({vc}))


def test_a_stream_has_the_events_of_its_vcs(two: World, people: dict[str, dict[str, str]]) -> None:
    """Those of the ring, and those read from the store."""
    for begin in ({}, {"Last-Event-ID": "0"}):
        seen: list[dict[str, Any]] = []
        with two.client.stream("GET", f"{API}/events", headers={**people["blue"], **begin}) as stream:
            lines = stream.iter_lines()  # of the raw stream: it begins after the greeting
            assert next(lines) == ": hello"
            submit(two, people["red"], vc="red", name="secret")
            last = submit(two, people["blue"], vc="blue", name="mark")
            for line in lines:
                if line.startswith("data: "):
                    seen.append(json.loads(line[6:]))
                    if seen[-1]["job_id"] == last:
                        break
        vcs = two.live.vcs_of({event["job_id"] for event in seen})
        assert set(vcs.values()) == {"blue"}
        assert "secret" not in json.dumps(seen)


def test_a_reader_out_of_sight_finds_no_job(two: World, red_job: str) -> None:
    with pytest.raises(NotFound):
        two.live.seen_by(two_sight("blue")).open_log(red_job)


# limits


def test_a_limit_is_refused_with_its_name_and_shown(two: World) -> None:
    who = two.bearer("max", "user", "blue")
    job = {"name": "a", "command": "true", "gpus": 1, "vc": "blue", "priority": 0, "hold": True}
    both = two.client.post(f"{API}/jobs:batch", json={"jobs": [job, job]}, headers=who)
    assert both.status_code == 429
    assert both.json()["code"] == "limit-jobs"
    assert both.json()["error"].startswith("user max may have 1 jobs")
    assert two.client.post(f"{API}/jobs", json=job, headers=who).status_code == 201
    assert two.client.post(f"{API}/jobs", json=job, headers=who).status_code == 429
    rows = get(two, "/limits", who).json()
    first = rows[0]
    assert (first["kind"], first["name"], first["limits"]["jobs"], first["used"]["jobs"]) == ("user", "max", 1, 1)
    assert {row["name"] for row in rows if row["kind"] == "vc"} <= {"blue"}
    everybody = get(two, "/limits", two.bearer("root", "admin")).json()
    assert {"max", "ann", "red"} <= {row["name"] for row in everybody}


def test_only_admins_and_owners_of_the_vc_raise_a_priority_above_the_limit(
    two: World, people: dict[str, dict[str, str]]
) -> None:
    job = {"name": "p", "command": "true", "gpus": 2, "vc": "blue", "hold": True}
    for path, body in (("/jobs", {**job, "priority": 21}), ("/jobs:batch", {"jobs": [job, {**job, "priority": 21}]})):
        answer = two.client.post(f"{API}{path}", json=body, headers=people["blue"])
        assert answer.status_code == 403
        assert "priority 21 is above 20" in answer.json()["error"]
        assert two.client.post(f"{API}{path}", json=body, headers=people["blue owner"]).status_code == 201
    job_id = two.client.post(f"{API}/jobs", json={**job, "priority": 20}, headers=people["blue"]).json()["id"]

    def change(who: str, priority: int) -> int:
        return two.client.patch(f"{API}/jobs/{job_id}", json={"priority": priority}, headers=people[who]).status_code

    def change_bulk(who: str, priority: int) -> bool:
        body = {"ids": [job_id], "action": "priority", "value": priority}
        answer = two.client.post(f"{API}/jobs:bulk", json=body, headers=people[who])
        return bool(answer.json()["results"][0]["ok"])

    assert change("blue", 21) == 403
    assert not change_bulk("blue", 21)
    assert change_bulk("blue owner", 30)
    assert change_bulk("blue", 20)
    assert change("blue owner", 500) == 200
    assert change("blue", 400) == 200  # to lower it is no raise
    assert change("blue", 401) == 403
    assert change("root", 1000) == 200


def test_a_follower_that_comes_back_too_late_is_told_how_much_it_missed(
    two: World, people: dict[str, dict[str, str]]
) -> None:
    """Last in this file: it forgets events."""
    newest = two.live.events(0, None, 10_000)[-1]["seq"]
    two.live.store.db.execute("DELETE FROM events WHERE seq < ?", (newest,))
    for after, missed in ((3, newest - 4), (newest - 1, 0)):
        begin = {**people["root"], "Last-Event-ID": str(after)}
        with two.client.stream("GET", f"{API}/events", headers=begin) as stream:
            first = next(event.json() for event in EventSource(stream).iter_sse() if event.data)
        if missed:
            assert (first["kind"], first["seq"]) == ("missed", newest - 1)
            assert first["text"] == f"{missed:,} events were deleted before they were read"
        else:
            assert first["seq"] == newest
