"""What a web page, a wrong name or a wrong token can do: nothing."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from fake_world import World

from skep.core.errors import InputError
from skep.server.config import make_config
from skep.server.security import host_name

JOBS = "/api/v1/jobs"
JOB = {"name": "train", "command": "true", "gpus": 1}


@pytest.mark.parametrize("host", ["127.0.0.1:7437", "localhost", "localhost:9000", "[::1]:7437", "LOCALHOST:1"])
def test_own_names_are_served(world: World, host: str) -> None:
    assert world.client.get(JOBS, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:7437",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "",
        "192.168.1.1",
        "[::2]",
        "localhost:1@x",
    ],
)
@pytest.mark.parametrize("path", [JOBS, "/metrics", "/openapi.json", "/api/v1/health", "/nothing"])
def test_a_name_that_only_points_here_is_refused(world: World, host: str, path: str) -> None:
    answer = world.client.get(path, headers={"Host": host})
    assert answer.status_code == 403
    assert set(answer.json()) == {"error", "hint"}


def raw(world: World, request: bytes) -> bytes:
    """As no proper client would send it; the first line of the answer."""
    with socket.create_connection(("127.0.0.1", world.port), timeout=60) as wire:
        wire.sendall(request)
        return wire.makefile("rb").readline()


def test_two_hosts_and_none_are_refused(world: World) -> None:
    assert b" 400 " in raw(world, b"GET /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
    assert b" 403 " in raw(world, b"GET /api/v1/jobs HTTP/1.0\r\n\r\n")
    assert b" 400 " in raw(world, b"GET http://evil.example/api/v1/jobs HTTP/1.1\r\nHost: evil.example\r\n\r\n")


@pytest.mark.parametrize(
    "path", [b"/api/v1/jobs/../tokens", b"/api/v1/jobs/..", b"//api/v1/jobs/x/../../y", b"/./metrics"]
)
def test_dots_are_not_resolved(world: World, path: bytes) -> None:
    assert raw(world, b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path).split()[1] in (b"400", b"404")


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://localhost:7437",
        "http://127.0.0.1:3000",
        "file://",
        "http://127.0.0.1",
        "",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_pages_of_another_origin_are_refused(world: World, method: str, origin: str) -> None:
    answer = world.client.request(method, JOBS, headers={"Origin": origin}, json=JOB)
    assert answer.status_code == 403
    assert not world.ids()
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_the_own_origin_is_served_without_cors(world: World) -> None:
    answer = world.client.post(JOBS, headers={"Origin": f"http://127.0.0.1:{world.port}"}, json=JOB)
    assert answer.status_code == 201
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
)
def test_fetch_site(world: World, site: str, status: int) -> None:
    assert world.client.get(JOBS, headers={"Sec-Fetch-Site": site}).status_code == status


@pytest.mark.parametrize(
    "kind",
    [
        *(
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "text/html",
            "TEXT/PLAIN",
        ),
        *("text/plain; application/json", "application/jsonx", ""),
    ],
)
@pytest.mark.parametrize(
    "path", [JOBS, "/api/v1/jobs:batch", "/api/v1/jobs/1/stop", "/api/v1/shutdown", "/api/v1/backup"]
)
def test_bodies_that_a_form_can_send_are_refused(world: World, path: str, kind: str) -> None:
    headers = {"Content-Type": kind} if kind else {}
    answer = world.client.post(path, headers=headers, content=b'{"name": "a", "command": "true"}')
    assert answer.status_code == 415
    assert not world.ids()
    assert not world.shutdowns


@pytest.mark.parametrize(
    "kind",
    ["application/json", "application/json; charset=utf-8", "application/yaml", "application/x-yaml", "text/yaml"],
)
def test_bodies_of_our_kinds_are_taken(world: World, kind: str) -> None:
    answer = world.client.post(JOBS, headers={"Content-Type": kind}, content=b'{"name": "a", "command": "true"}')
    assert answer.status_code == 201


def test_a_long_body_is_refused_by_its_header_and_by_its_length(world: World) -> None:
    big = b" " * (1024 * 1024 + 1)
    headers = {"Content-Type": "application/json"}
    assert world.client.post(JOBS, headers=headers, content=big).status_code == 413
    pieces = (big[:500_000] for _ in range(3))
    assert world.client.post(JOBS, headers=headers, content=pieces).status_code == 413
    pieces = (big[:500_000] for _ in range(3))
    assert world.client.put("/api/v1/policy", headers=headers, content=pieces).status_code == 413
    assert world.client.post("/api/v1/jobs:batch", headers=headers, content=big).status_code == 400


@pytest.mark.parametrize(
    "ref",
    [
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "a%00b",
        "a%0ab",
        "-x",
        ".x",
        "a b",
        "%E2%80%AE",
        "a" * 200,
    ],
)
@pytest.mark.parametrize("what", ["", "/logs", "/events", "/explain", "/environment"])
def test_path_tricks_find_nothing(world: World, ref: str, what: str) -> None:
    answer = world.client.get(f"{JOBS}/{ref}{what}")
    assert answer.status_code in (400, 404)
    assert set(answer.json()) == {"error", "hint"}


@pytest.mark.parametrize("task", ["../x", "a/b", "a%00", "..", "/etc/passwd"])
def test_a_task_is_a_name(world: World, task: str) -> None:
    job_id = world.submit()
    assert world.client.get(f"{JOBS}/{job_id}/logs?task={task}").status_code == 400


def test_answers_are_not_to_be_guessed_at_or_framed(world: World) -> None:
    headers = world.client.get(JOBS).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"


def test_who_is_recorded(world: World) -> None:
    world.client.post(JOBS, json=JOB, headers={"X-Skep-User": "ann"})
    world.client.post(JOBS, json=JOB)
    assert [event["who"] for event in world.events() if event["kind"] == "submitted"][-2:] == ["ann", "anonymous"]
    assert [world.live.brief(job_id)["user"] for job_id in world.ids()] == ["ann", ""]


@pytest.mark.parametrize("said", ["a b", "a/b", "é", "x" * 65, "-x"])
def test_who_is_a_name(world: World, said: str) -> None:
    answer = world.client.post(JOBS, json=JOB, headers={"X-Skep-User": said.encode("latin-1")})
    assert answer.status_code == 400


# tokens


@pytest.mark.parametrize(
    "header",
    [None, "Bearer", "Bearer x", "Basic YTpi", "Bearer skep_00000000_" + "a" * 43, "skep_00000000_" + "a" * 43],
)
def test_without_a_token_nothing_is_said(guarded: World, header: str | None) -> None:
    headers = {"Authorization": header} if header else {}
    for path in (JOBS, "/metrics", "/openapi.json", "/nothing", "/api/v1/tokens", "/api/v1/events?follow=false"):
        answer = guarded.client.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    assert guarded.client.post(JOBS, json=JOB, headers=headers).status_code == 401
    assert guarded.client.get("/api/v1/health", headers=headers).status_code == 200


def test_a_token_in_the_address_is_none(guarded: World) -> None:
    secret = guarded.tokens.create("ann", "admin")[1]
    assert guarded.client.get(f"{JOBS}?token={secret}&access_token={secret}").status_code == 401


def test_a_token_differing_in_its_last_letter_is_none(guarded: World) -> None:
    secret = guarded.tokens.create("ann", "admin")[1]
    other = secret[:-1] + ("a" if secret[-1] != "a" else "b")
    assert guarded.client.get(JOBS, headers={"Authorization": f"Bearer {other}"}).status_code == 401
    assert guarded.client.get(JOBS, headers={"Authorization": f"bearer {secret}"}).status_code == 200


def test_values_of_variables_are_for_the_owner(guarded: World) -> None:
    ann, bob, viewer = guarded.bearer("ann", "user"), guarded.bearer("bob", "user"), guarded.bearer("vic", "viewer")
    job = {"name": "train", "tasks": {"w": {"command": "true", "env": {"KEY": "hunter2"}}}}
    job_id = guarded.client.post(JOBS, json=job, headers=ann).json()["id"]
    for other in (bob, viewer):
        answer = guarded.client.get(f"{JOBS}/{job_id}", headers=other)
        assert answer.json()["request"]["tasks"]["w"]["env"] == {"KEY": "******"}
        assert "hunter2" not in answer.text
    for owner in (ann, guarded.bearer("root", "admin")):
        env = guarded.client.get(f"{JOBS}/{job_id}", headers=owner).json()["request"]["tasks"]["w"]["env"]
        assert env == {"KEY": "hunter2"}


def test_mine_are_those_of_the_token(guarded: World) -> None:
    ann, bob = guarded.bearer("ann", "user"), guarded.bearer("bob", "user")
    job_id = guarded.client.post(JOBS, json=JOB, headers=ann).json()["id"]
    for headers, found in ((ann, [job_id]), (bob, [])):
        page = guarded.client.get(f"{JOBS}?mine=true", headers=headers).json()
        assert [job["id"] for job in page["jobs"]] == found
    assert guarded.client.get(f"{JOBS}?mine=true&user=bob", headers=ann).status_code == 400


def test_without_tokens_mine_are_those_of_the_name_that_is_said(world: World) -> None:
    assert world.client.get(f"{JOBS}?mine=true").status_code == 400
    said = {"X-Skep-User": "ann"}
    job_id = world.client.post(JOBS, json=JOB, headers=said).json()["id"]
    assert [job["id"] for job in world.client.get(f"{JOBS}?mine=true", headers=said).json()["jobs"]] == [job_id]


def test_viewers_read_and_do_nothing_else(guarded: World) -> None:
    ann, viewer = guarded.bearer("ann", "user"), guarded.bearer("vic", "viewer")
    job_id = guarded.client.post(JOBS, json=JOB, headers=ann).json()["id"]
    for path in (JOBS, f"{JOBS}/{job_id}", f"{JOBS}/{job_id}/logs", "/api/v1/nodes", "/metrics"):
        assert guarded.client.get(path, headers=viewer).status_code == 200
    assert guarded.client.post(JOBS, json=JOB, headers=viewer).status_code == 403
    assert guarded.client.post("/api/v1/jobs:batch", json={"jobs": [JOB]}, headers=viewer).status_code == 403
    assert guarded.client.post(f"{JOBS}/{job_id}/stop", headers=viewer).status_code == 403
    assert guarded.client.get(f"{JOBS}/{job_id}/environment", headers=viewer).status_code == 403
    refused_admin_work(guarded, viewer)


def test_users_change_their_own_jobs_only(guarded: World) -> None:
    ann, bob = guarded.bearer("ann", "user"), guarded.bearer("bob", "user")
    job_id = guarded.client.post(JOBS, json={**JOB, "user": "bob"}, headers=ann).json()["id"]
    assert guarded.wait_for(job_id, "running")["user"] == "ann"
    for send in (
        lambda who: guarded.client.patch(f"{JOBS}/{job_id}", json={"tags": ["a"]}, headers=who),
        lambda who: guarded.client.get(f"{JOBS}/{job_id}/environment", headers=who),
        lambda who: guarded.client.post(f"{JOBS}/{job_id}/stop", json={}, headers=who),
    ):
        assert send(bob).status_code == 403
        assert send(ann).status_code == 200
    refused_admin_work(guarded, ann)


def refused_admin_work(world: World, who: dict[str, str]) -> None:
    ask = world.client.request
    for method, path, body in (
        ("PATCH", "/api/v1/nodes/n0", {"state": "drained"}),
        ("PUT", "/api/v1/policy", {"policy": "fifo"}),
        ("PUT", "/api/v1/cluster", {"nodes": []}),
        ("POST", "/api/v1/shutdown", {}),
        ("POST", "/api/v1/backup", {}),
        ("POST", "/api/v1/tokens", {"user": "x", "role": "admin"}),
        ("GET", "/api/v1/tokens", None),
        ("DELETE", "/api/v1/tokens/00000000", None),
    ):
        assert ask(method, path, json=body, headers=who).status_code == 403, path
    assert not world.shutdowns


def test_users_stay_in_the_vcs_of_their_token(guarded: World) -> None:
    ann = guarded.bearer("ann", "user", "research", "lab")
    assert guarded.client.post(JOBS, json={**JOB, "vc": "lab"}, headers=ann).status_code == 201
    answer = guarded.client.post(JOBS, json={**JOB, "vc": "prod"}, headers=ann)
    assert answer.status_code == 403
    assert "research" in answer.json()["hint"]
    both = {"jobs": [{**JOB, "vc": "lab"}, {**JOB, "vc": "prod"}]}
    assert guarded.client.post("/api/v1/jobs:batch", json=both, headers=ann).status_code == 403
    other, job_id = guarded.bearer("ann", "user", "prod"), guarded.ids()[0]
    assert guarded.client.post(f"{JOBS}/{job_id}/stop", headers=other).status_code == 404
    assert len(guarded.ids()) == 1


def test_admins_may_do_everything(guarded: World) -> None:
    ann, root = guarded.bearer("ann", "user"), guarded.bearer("root", "admin")
    job_id = guarded.client.post(JOBS, json=JOB, headers=ann).json()["id"]
    assert guarded.client.post(f"{JOBS}/{job_id}/stop", headers=root).status_code == 200
    stops = [event for event in guarded.events() if event["job_id"] == job_id and event["kind"] == "stop-requested"]
    assert [event["who"] for event in stops] == ["root"]
    assert guarded.client.post("/api/v1/shutdown", headers=root).status_code == 202
    assert guarded.shutdowns == [None]


def test_tokens_over_the_api(guarded: World) -> None:
    root = guarded.bearer("root", "admin")
    made = guarded.client.post("/api/v1/tokens", json={"user": "eve", "role": "viewer"}, headers=root).json()
    eve = {"Authorization": f"Bearer {made['token']}"}
    assert guarded.client.get(JOBS, headers=eve).status_code == 200
    listed = guarded.client.get("/api/v1/tokens", headers=root)
    assert [row["user"] for row in listed.json()] == ["root", "eve"]
    assert made["token"] not in listed.text
    assert guarded.client.delete(f"/api/v1/tokens/{made['id']}", headers=root).status_code == 200
    assert guarded.client.get(JOBS, headers=eve).status_code == 401
    assert guarded.client.delete(f"/api/v1/tokens/{made['id']}", headers=root).status_code == 404


def test_without_login_nobody_makes_a_token_that_outlives_it(world: World) -> None:
    answer = world.client.post("/api/v1/tokens", json={"user": "eve", "role": "admin"})
    assert answer.status_code == 409
    assert not world.tokens.list()


def test_the_token_file_keeps_no_secret_and_is_private(guarded: World) -> None:
    secret = guarded.tokens.create("ann", "admin")[1]
    path = guarded.config.data / "tokens.db"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert secret.split("_", 2)[2].encode() not in path.read_bytes()


def test_idempotency_keys_of_two_people_do_not_meet(guarded: World) -> None:
    ann, bob = guarded.bearer("ann", "user"), guarded.bearer("bob", "user")
    key = {"Idempotency-Key": "k"}
    first = guarded.client.post(JOBS, json=JOB, headers={**ann, **key}).json()["id"]
    assert guarded.client.post(JOBS, json=JOB, headers={**ann, **key}).json()["id"] == first
    assert guarded.client.post(JOBS, json=JOB, headers={**bob, **key}).json()["id"] != first


# where it listens


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_other_addresses_need_tokens(tmp_path: Path, host: str) -> None:
    with pytest.raises(InputError, match="--auth token"):
        make_config(None, {"data": str(tmp_path), "host": host, "auth": "none"})
    assert make_config(None, {"data": str(tmp_path), "host": host}).auth == "token"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_none(tmp_path: Path, host: str) -> None:
    assert make_config(None, {"data": str(tmp_path), "host": host}).auth == "none"


def test_names_of_a_server_for_others(tmp_path: Path) -> None:
    with World(tmp_path, host="0.0.0.0", names=("skep.example",)) as made:
        ann = made.bearer("ann", "user")
        asked = {host: made.client.get(JOBS, headers={**ann, "Host": host}).status_code for host in HOSTS}
    assert asked == HOSTS


HOSTS = {"skep.example:7437": 200, "10.0.0.7:7437": 200, "localhost": 200, "evil.example": 403}


def test_host_name() -> None:
    assert host_name("[::1]:80") == "::1"
    assert host_name("[::1]") == "::1"
    assert host_name("a:80") == "a"
    assert host_name("a:80x") == ""
    assert host_name("a:b@c") == ""
