"""The cluster at a glance, against the real service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from board import API, Board

from skep.server.schemas import JobDetail, JobPage
from skep.server.shapes import (
    Bulk,
    ClusterSchema,
    Decisions,
    DrainPreview,
    HistorySchema,
    Map,
    NodeSchema,
    Overview,
    PolicyInfo,
    Timeline,
    Usage,
    VcSchema,
)


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    with Board(tmp_path) as made:
        yield made


def test_numbers_of_the_moment(board: Board) -> None:
    board.run(name="own", vc="red", gpus=4)
    board.run(name="more", vc="red", gpus=4)
    board.run(name="borrows", vc="red", gpus=4)
    waiting = board.submit(name="waits", vc="blue", gpus=4, hold=True)
    found = board.get("/overview", Overview)
    assert (found["gpus"], found["used"], found["free"], found["lent"], found["bad"]) == (16, 12, 4, 4, 0)
    assert (found["jobs"]["running"], found["jobs"]["pending"], found["queue_gpus"]) == (3, 1, 4)
    assert found["waiting"]["jobs"] == 3
    assert found["waiting_now"]["jobs"] == 1
    assert 0 <= found["waiting"]["p50_s"] <= found["waiting"]["p90_s"] <= found["waiting"]["max_s"]
    vcs = {vc["name"]: vc for vc in board.get("/vcs", list[VcSchema])}
    assert (vcs["red"]["used"], vcs["red"]["borrowed"], vcs["red"]["lent"]) == (8, 4, 0)
    assert (vcs["blue"]["used"], vcs["blue"]["lent"], vcs["blue"]["pending"]) == (0, 4, 1)
    assert board.get(f"/jobs/{waiting}", JobDetail)["request"]["hold"] is True


def test_idle_gpus_that_typical_jobs_cannot_use_are_fragments(board: Board) -> None:
    """Four nodes of 4 GPUs; three jobs of three GPUs each leave one idle on three nodes, and nobody wants one."""
    for name in ("a", "b", "c"):
        board.run(name=name, vc="red", gpus=3)
    found = board.get("/overview", Overview)
    assert (found["idle_gpus"], found["fragment_gpus"]) == (7, 3)
    text = board.client.get("/metrics").text
    assert "skep_gpus_idle 7.0" in text
    assert "skep_gpus_fragments 3.0" in text


def test_bad_and_drained_gpus_are_counted_apart(board: Board) -> None:
    board.client.patch(f"{API}/nodes/a0", json={"state": "lost"})
    board.client.patch(f"{API}/nodes/b0", json={"state": "drained"})
    while (found := board.get("/overview", Overview))["bad"] == 0:
        time.sleep(0.005)
    assert (found["bad"], found["drained"], found["free"]) == (4, 4, 8)
    states = {node["name"]: node["state"] for node in board.get("/nodes", list[NodeSchema])}
    assert states == {"a0": "lost", "a1": "up", "b0": "drained", "b1": "up"}
    board.get("/cluster", ClusterSchema)


def test_the_map_shows_every_gpu_and_who_is_on_it(board: Board) -> None:
    whole = board.run(name="whole", vc="red", gpus=4)
    shares = [board.run(name="share", vc="blue", gpus=1, gpu_milli=500) for _ in range(2)]
    found = board.get("/map", Map)
    assert [(cell["level"], cell["name"], cell["parent"]) for cell in found["cells"]] == [
        ("rack", "r0", -1),
        ("rack", "r1", -1),
    ]
    assert [(node["name"], node["first"], node["cell"]) for node in found["nodes"]] == [
        ("a0", 0, 0),
        ("a1", 4, 0),
        ("b0", 8, 1),
        ("b1", 12, 1),
    ]
    ids = [job["id"] for job in found["jobs"]]
    held = [number for number, job in enumerate(found["gpus"]) if job >= 0]
    assert {found["gpus"][number] for number in held} == {ids.index(whole)}
    assert (len(held), len(found["gpus"]), found["gpus"].count(-2)) == (4, 16, 1)
    shared = found["gpus"].index(-2)
    assert sorted((share["gpu"], ids[share["job"]], share["milli"]) for share in found["shares"]) == sorted(
        (shared, job, 500) for job in shares
    )


def test_tenants_of_a_node_say_how_much_of_a_gpu_they_have(board: Board) -> None:
    job = board.run(name="share", vc="blue", gpus=1, gpu_milli=250, gpu_mem_gib=2)
    tenants = [tenant for node in board.get("/nodes", list[NodeSchema]) for tenant in node["tenants"]]
    assert tenants == [{"job": job, "name": "share", "gpu": 0, "milli": 250, "gpu_mem_mib": 2048}]


def test_nodes_say_what_the_driver_says_of_their_gpus(board: Board) -> None:
    reading = {"utilization": 97.0, "memory_used_mib": 1, "memory_total_mib": 2, "temperature_c": 60.0}
    board.engine.machine.health = {"a0": [{"index": 0, **reading, "power_w": None, "errors": None}]}
    health = {node["name"]: node["health"] for node in board.get("/nodes", list[NodeSchema])}
    assert [(gpu["index"], gpu["utilization"]) for gpu in health["a0"]] == [(0, 97.0)]
    assert health["b0"] == []


def test_the_timeline_says_who_held_which_gpus(board: Board) -> None:
    first = board.run(name="first", vc="red", gpus=4)
    board.end(first)
    second = board.run(name="second", vc="blue", gpus=2)
    found = board.get("/timeline", Timeline)
    assert not found["is_cut"]
    assert [(span["job"], span["outcome"]) for span in found["spans"]] == [(second, "running"), (first, "succeeded")]
    assert [len(held["gpus"]) for span in found["spans"] for held in span["held"]] == [2, 4]
    assert found["spans"][0]["end_s"] is None
    node = found["spans"][0]["held"][0]["node"]
    assert [span["job"] for span in board.get(f"/timeline?node={node}&vc=blue", Timeline)["spans"]] == [second]
    assert board.get("/timeline?limit=1", Timeline)["is_cut"]
    assert board.get("/timeline?since=1&until=2", Timeline)["spans"] == []
    assert board.client.get(f"{API}/timeline?since=2&until=1").status_code == 400


def test_decisions_say_why_and_are_there_after_a_restart(tmp_path: Path) -> None:
    with Board(tmp_path, "1x8", "srtf") as board:
        long = board.run(name="long", gpus=8, expect_s=10_000)
        short = board.run(name="short", gpus=8, expect_s=10)
        before = board.get("/decisions", Decisions)
    with Board(tmp_path, "1x8", "srtf") as board:
        after = board.get("/decisions", Decisions)
        assert board.get(f"/decisions?job={long}", Decisions)["decisions"][0]["kind"] == "preempt"
        assert after["decisions"][-len(before["decisions"]) :] == before["decisions"]
    told = [(each["kind"], each["name"], each["reason"]) for each in before["decisions"]]
    assert told[-1][:2] == ("start", "long")
    assert ("preempt", "long", f"makes room for job {short}") in told
    assert ("start", "short") in [each[:2] for each in told]
    preempted = next(each for each in before["decisions"] if each["kind"] == "preempt")
    assert preempted["because"] == [f"job {short} was submitted"]
    assert preempted["before"] == {"nodes": ["n0"], "gpus": 8}


def test_decisions_come_in_pages_without_a_gap(tmp_path: Path) -> None:
    with Board(tmp_path, "2x4") as board:
        jobs = [board.run(name=f"j{number}", gpus=1) for number in range(6)]
        found, before = [], ""
        while True:
            page = board.get(f"/decisions?last=2{before}", Decisions)
            found += [each["job"] for each in page["decisions"]]
            if page["next"] is None:
                break
            before = f"&before={page['next']}"
    assert found == jobs[::-1]


def test_names_of_nodes_are_left_out_where_the_cluster_was_another(tmp_path: Path) -> None:
    with Board(tmp_path, "2x4") as board:
        board.end(board.run(name="early", gpus=1))
        put = board.client.put(f"{API}/cluster", content="1x4", headers={"Content-Type": "application/yaml"})
        assert put.status_code == 200, put.text
        board.run(name="late", gpus=1)
        late, early = board.get("/decisions", Decisions)["decisions"]
        page = board.get("/decisions?last=1", Decisions)
        older = board.get(f"/decisions?last=1&before={page['next']}", Decisions)["decisions"]
    assert (late["after"]["nodes"], early["after"]) == (["n0"], {"nodes": [], "gpus": 1})
    assert older[0]["after"]["nodes"] == []


def test_draining_is_previewed(tmp_path: Path) -> None:
    with Board(tmp_path, "1x8+1x4") as board:
        wide = board.run(name="wide", gpus=8)
        small = board.run(name="small", gpus=2)
        stuck = board.submit(name="stuck", gpus=8)
        board.submit(name="fits", gpus=4)
        names = [node["name"] for node in board.get("/nodes", list[NodeSchema])]
        found = board.get(f"/nodes/{names[0]}/drain", DrainPreview)
        assert [job["id"] for job in found["jobs"]] == [wide]
        assert [job["id"] for job in found["unrunnable"]] == [stuck]
        assert (found["gpus"], found["idle"], found["gpus_left"]) == (8, 0, 4)
        other = board.get(f"/nodes/{names[1]}/drain", DrainPreview)
        assert ([job["id"] for job in other["jobs"]], other["unrunnable"], other["idle"]) == ([small], [], 2)
        assert board.client.get(f"{API}/nodes/nowhere/drain").status_code == 404


def test_history_begins_with_the_server(board: Board) -> None:
    board.run(name="one", vc="red", gpus=4)
    board.context.history.add(board.live.clock(), board.live.sample())
    found = board.get("/history?vc=true", HistorySchema)
    assert len(found["t"]) == len(found["used"]) <= 310
    assert (found["gpus"][-1], found["used"][-1]) == (16, 4)
    assert found["used"][0] is None
    assert {vc["name"]: vc["used"][-1] for vc in found["vcs"]} == {"blue": 0, "red": 4}
    assert board.client.get(f"{API}/history?since=5&until=2").status_code == 400


def test_policies_say_what_they_assume(board: Board) -> None:
    found = {policy["name"]: policy for policy in board.get("/policies", list[PolicyInfo])}
    assert found["srtf"]["oracle"]
    assert not found["las"]["oracle"]
    assert all(policy["knobs"] and policy["paper"] for policy in found.values())


def test_usage_of_a_vc_by_user_as_csv(board: Board) -> None:
    for user, vc in (("ann", "red"), ("=1+1", "red"), ("bob", "blue")):
        board.end(board.run(name="job", vc=vc, user=user, gpus=1))
    rows = board.get("/usage?by=user&vc=red", list[Usage])
    assert {row["user"] for row in rows} == {"ann", "=1+1"}
    table = board.client.get(f"{API}/usage?by=user&vc=red&format=csv")
    assert table.headers["content-type"].startswith("text/csv")
    lines = table.text.splitlines()
    assert lines[0] == "user,jobs,gpu_hours"
    assert {line.split(",")[0] for line in lines[1:]} == {"ann", "'=1+1"}


def test_jobs_are_searched_sorted_and_counted(board: Board) -> None:
    fields = [("alpha", "ann", "red"), ("beta_1", "bob", "blue"), ("betaX1", "cid", "red"), ("gamma", "ann", "blue")]
    ids = {name: board.submit(name=name, user=user, vc=vc, gpus=1, hold=True) for name, user, vc in fields}
    board.client.patch(f"{API}/jobs/{ids['gamma']}", json={"tags": ["keep"]})

    def names(query: str) -> list[str]:
        return [job["name"] for job in board.get(f"/jobs?{query}", JobPage)["jobs"]]

    assert names("q=beta_1") == ["beta_1"]
    assert names("q=BETA") == ["betaX1", "beta_1"]
    assert names("q=ann+blue") == ["gamma"]
    assert names("q=keep") == ["gamma"]
    assert names(f"q={ids['alpha']}&sort=name")[0] == "alpha"
    assert names("q=%25") == []
    assert names("sort=name") == ["alpha", "betaX1", "beta_1", "gamma"]
    assert names("sort=-user&vc=red") == ["betaX1", "alpha"]
    assert names("sort=-waited") == ["alpha", "beta_1", "betaX1", "gamma"]
    page = board.get("/jobs?counts=true&state=running&user=ann", JobPage)
    assert (page["jobs"], page["counts"]["pending"], page["counts"]["running"]) == ([], 2, 0)
    assert page["seq"] > 0
    assert board.client.get(f"{API}/jobs?sort=secret").status_code == 400
    assert board.client.get(f"{API}/jobs?cursor=AAAA").status_code == 400


def test_many_jobs_are_changed_each_by_itself(board: Board) -> None:
    held = [board.submit(name=f"held{number}", vc="red", gpus=1, hold=True) for number in range(3)]
    running = board.run(name="runs", vc="red", gpus=1)
    ended = board.run(name="ended", vc="red", gpus=1)
    board.end(ended)

    def bulk(ids: list[str], action: str, **fields: object) -> dict[str, tuple[bool, str]]:
        answer = board.client.post(f"{API}/jobs:bulk", json={"ids": ids, "action": action, **fields})
        assert answer.status_code == 200, answer.text
        Bulk.model_validate_json(answer.content, strict=True)
        return {each["id"]: (each["ok"], each["error"]) for each in answer.json()["results"]}

    found = bulk([*held, running, ended, "99999", "held0", held[0]], "priority", value=77)
    assert all(found[job] == (True, "") for job in held)
    assert "cannot be given another priority" in found[running][1]
    assert not found[ended][0]
    assert found["99999"] == (False, "there is no job 99999")
    assert board.get(f"/jobs/{held[2]}", JobDetail)["priority"] == 77
    assert bulk(held[:1], "release") == {held[0]: (True, "")}
    board.wait_for(held[0], "running")
    assert bulk([*held, running], "stop", reason="enough") == {job: (True, "") for job in [*held, running]}
    assert "enough" in board.wait_for(held[1], "stopped")["reason"]
    assert board.client.post(f"{API}/jobs:bulk", json={"ids": [], "action": "stop"}).status_code == 400
    assert board.client.post(f"{API}/jobs:bulk", json={"ids": ["1"], "action": "explode"}).status_code == 400


def test_pages_of_any_order_fit_together(board: Board) -> None:
    for number in range(7):
        board.submit(name=f"j{number % 3}", vc="red", user=f"u{number % 2}", gpus=1 + number % 2)
    for sort in ("id", "-id", "name", "-gpus", "user", "waited", "-ran", "state"):
        check_pages(board, sort)


def check_pages(board: Board, sort: str) -> None:
    whole = [job["id"] for job in board.get(f"/jobs?sort={sort}", JobPage)["jobs"]]
    found, cursor = [], ""
    while cursor is not None:
        page = board.get(f"/jobs?sort={sort}&limit=2&cursor={cursor}", JobPage)
        found += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
    assert len(set(found)) == 7
    if sort not in ("waited", "-ran"):
        assert found == whole
