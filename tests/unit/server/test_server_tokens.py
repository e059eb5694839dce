"""Tokens end: by expiry, by rotation, by revocation, and what was opened with them ends too."""

from __future__ import annotations

import asyncio
import logging
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fake_world import JOB, World

from skep.core.errors import InputError
from skep.server import tokens as tokens_module
from skep.server.edge import Refusals
from skep.server.tokens import Tokens

JOBS = "/api/v1/jobs"


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


class Clock:
    def __init__(self) -> None:
        self.now_s = 1e9

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(tokens_module, "now_s", made)
    return made


def test_an_expired_token_is_refused(guarded: World, clock: Clock) -> None:
    token, secret = guarded.tokens.create("ann", "user", life_s=60)
    assert token.expires_s == clock.now_s + 60
    assert guarded.client.get(JOBS, headers=bearer(secret)).status_code == 200
    clock.now_s += 61
    answer = guarded.client.get(JOBS, headers=bearer(secret))
    assert (answer.status_code, answer.json()["error"]) == (401, "this token has expired")


def test_what_is_wrong_is_for_those_with_a_token(guarded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    _, secret = guarded.tokens.create("ann", "user")
    monkeypatch.setattr(guarded.live, "problems", lambda: ["policy mine.py:Mine failed"], raising=False)
    told = {
        who: guarded.client.get("/api/v1/health", headers=bearer(who) if who else None).json()
        for who in (secret, "x", "")
    }
    assert [told[who]["problems"] for who in (secret, "x", "")] == [
        ["policy mine.py:Mine failed"],
        ["there is a problem"],
        ["there is a problem"],
    ]


@pytest.mark.parametrize("life_s", [0, -1, float("inf"), float("nan"), 1e12])
def test_a_life_is_a_sensible_time(tmp_path: Path, life_s: float) -> None:
    with pytest.raises(InputError, match="cannot expire after"):
        Tokens(tmp_path).create("ann", "user", life_s=life_s)


def test_rotation_keeps_user_role_vcs_and_life_and_ends_the_old_one(guarded: World, clock: Clock) -> None:
    old, old_secret = guarded.tokens.create("ann", "user", ("lab",), life_s=100)
    clock.now_s += 90
    made = guarded.tokens.rotate(old.id)
    assert made is not None
    new, secret = made
    assert (new.user, new.role, new.vcs, new.expires_s) == ("ann", "user", ("lab",), clock.now_s + 100)
    assert guarded.client.get(JOBS, headers=bearer(secret)).status_code == 200
    assert guarded.client.get(JOBS, headers=bearer(old_secret)).status_code == 401
    assert guarded.tokens.rotate(old.id) is None


def test_a_token_of_the_longest_life_is_rotated(guarded: World) -> None:
    for _ in range(20):  # the moment of its making decides how the sum is rounded
        old, _ = guarded.tokens.create("ann", "user", life_s=tokens_module.LIFE_MAX_S)
        assert guarded.tokens.rotate(old.id) is not None


def test_with_an_overlap_both_count_for_a_while(guarded: World, clock: Clock) -> None:
    old, old_secret = guarded.tokens.create("ann", "user")
    made = guarded.tokens.rotate(old.id, overlap_s=60)
    assert made is not None
    assert guarded.client.get(JOBS, headers=bearer(old_secret)).status_code == 200
    clock.now_s += 61
    assert guarded.client.get(JOBS, headers=bearer(old_secret)).status_code == 401
    assert guarded.client.get(JOBS, headers=bearer(made[1])).status_code == 200


def test_an_overlap_does_not_lengthen_the_life_of_the_old_one(guarded: World, clock: Clock) -> None:
    old, _ = guarded.tokens.create("ann", "user", life_s=10)
    guarded.tokens.rotate(old.id, overlap_s=1000)
    kept = guarded.tokens.get(old.id)
    assert kept is not None
    assert kept.expires_s == clock.now_s + 10


def test_expiry_and_rotation_over_the_api(guarded: World) -> None:
    root = guarded.bearer("root", "admin")
    made = guarded.client.post("/api/v1/tokens", json={"user": "eve", "life_s": 3600}, headers=root).json()
    assert 3590 < made["expires_s"] - time.time() < 3610
    answer = guarded.client.post(f"/api/v1/tokens/{made['id']}/rotate", headers=root)
    assert answer.status_code == 201
    assert guarded.client.get(JOBS, headers=bearer(made["token"])).status_code == 401
    assert guarded.client.get(JOBS, headers=bearer(answer.json()["token"])).status_code == 200
    eve = bearer(answer.json()["token"])
    assert guarded.client.post(f"/api/v1/tokens/{answer.json()['id']}/rotate", headers=eve).status_code == 403
    assert guarded.client.post("/api/v1/tokens/00000000/rotate", headers=root).status_code == 404


def test_a_file_of_the_first_format_is_brought_up_to_date_and_a_newer_one_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "tokens.db")
    db.execute(tokens_module._TABLE)
    db.execute("INSERT INTO tokens VALUES ('0000000a', 'x', 'ann', 'lab', 'user', 5.0)")
    db.commit()
    db.close()
    (tmp_path / "tokens.db").chmod(0o600)
    for _ in range(2):
        made = Tokens(tmp_path)
        assert [(token.user, token.vcs, token.expires_s) for token in made.list()] == [("ann", ("lab",), None)]
        made.close()
    db = sqlite3.connect(tmp_path / "tokens.db")
    db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(InputError, match="newer version"):
        Tokens(tmp_path)


@pytest.mark.parametrize("how", ["revoked", "revoked by another process", "expired"])
@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/jobs/{id}/logs?follow=true"])
def test_streams_end_with_their_token(guarded: World, how: str, path: str) -> None:
    job_id = guarded.client.post(JOBS, json=JOB, headers=guarded.bearer("ann", "user")).json()["id"]
    token, secret = guarded.tokens.create("ann", "user", life_s=2.0 if how == "expired" else None)
    other = guarded.bearer("bob", "user")
    with (
        guarded.client.stream("GET", path.format(id=job_id), headers=bearer(secret)) as stream,
        guarded.client.stream("GET", path.format(id=job_id), headers=other) as lasting,
    ):
        assert (stream.status_code, lasting.status_code) == (200, 200)
        if how == "revoked":
            guarded.tokens.revoke(token.id)
        elif how != "expired":
            (guarded.config.data / "skep.db").touch()  # the command takes no other folder for that of a server
            command = [sys.executable, "-m", "skep.cli.main", "token", "revoke", token.id]
            subprocess.run([*command, "--data", str(guarded.config.data)], check=True, timeout=60)
        for _ in stream.iter_bytes():  # it ends, and ends as a whole answer does
            pass
        lasting.close()
    assert guarded.client.get(JOBS, headers=bearer(secret)).status_code == 401
    assert guarded.client.get(JOBS, headers=other).status_code == 200


def test_streams_end_although_the_tokens_could_not_be_read_for_a_moment(
    guarded: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, secret = guarded.tokens.create("ann", "user")
    read, failed = guarded.tokens.valid, threading.Event()

    def fail_once(ids: set[str]) -> set[str]:
        if failed.is_set():
            return read(ids)
        failed.set()
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(guarded.tokens, "valid", fail_once)
    with guarded.client.stream("GET", "/api/v1/events", headers=bearer(secret)) as stream:
        assert failed.wait(60)
        guarded.tokens.revoke(token.id)
        for _ in stream.iter_bytes():
            pass


def refusals_of(world: World) -> list[dict[str, Any]]:
    world.say("mark").result(60)  # what was noted before is written before
    return [event for event in world.events() if event["kind"] == "refused"]


def test_refusals_are_events(guarded: World) -> None:
    before = len(refusals_of(guarded))
    ann = guarded.bearer("ann", "user")
    guarded.client.put("/api/v1/policy", json={"policy": "fifo"}, headers=ann)
    guarded.client.get(JOBS, headers=bearer("wrong"))
    guarded.client.get(JOBS, headers={"Host": "evil.example"})
    guarded.client.get("/api/v1/me")  # the dashboard asks whether somebody is logged in
    found = [(event["who"], event["text"]) for event in refusals_of(guarded)[before:]]
    assert found == [
        (
            "ann",
            "403 PUT /api/v1/policy from 127.0.0.1: changing the policy needs a token of role admin; "
            "this one is of role user",
        ),
        ("", "401 GET /api/v1/jobs from 127.0.0.1: this token is not valid"),
        ("", "403 GET /api/v1/jobs from 127.0.0.1: this server is not known by that name"),
    ]


def test_a_flood_of_refusals_is_one_line() -> None:
    asyncio.run(flood())


async def flood() -> None:
    noted: list[str] = []
    is_over = asyncio.Event()

    def note(kind: str, text: str, who: str) -> None:
        noted.append(text)
        if "more" in text:
            is_over.set()

    refusals = Refusals(note, most=3, window_s=0.05)

    async def send(message: Any) -> None: ...

    scope = {"method": "GET", "path": "/x\x1b[31m\u202e" + "y" * 10_000, "client": ("1.2.3.4", 5)}
    for _ in range(1000):
        await refusals.watching(scope, send)({"type": "http.response.start", "status": 403})
    await asyncio.wait_for(is_over.wait(), 60)
    assert len(noted) == 4
    assert noted[-1] == "997 more requests within 0.05 s"
    assert all(len(text) < 300 and text.isprintable() for text in noted)


@pytest.mark.parametrize("path", [b"/api/v1/jobs", b"/api/v1/jobs:batch", b"/api/v1/policy", b"/api/v1/cluster"])
def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_bug(
    world: World, caplog: pytest.LogCaptureFixture, path: bytes
) -> None:
    method = b"PUT" if path in (b"/api/v1/policy", b"/api/v1/cluster") else b"POST"
    head = b"%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    before = bad_requests(world)
    with caplog.at_level(logging.INFO):
        with socket.create_connection(("127.0.0.1", world.port), timeout=60) as wire:
            wire.sendall(head % (method, path) + b'{"name":')
        wait_for_answer(world, before)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def bad_requests(world: World) -> float:
    """Those of a client that has gone before a server of root has seen whose it was are refused instead."""
    lines = world.client.get("/metrics").text.splitlines()
    wanted = ('status="400"', 'status="403"')
    return sum(float(line.split()[-1]) for line in lines if "requests_total" in line and any(s in line for s in wanted))


def wait_for_answer(world: World, before: float) -> None:
    """Until the server has seen that the client has gone: it counts an answer that nobody reads."""
    for _ in range(1200):
        if bad_requests(world) > before:
            return
        time.sleep(0.05)
    raise AssertionError("the request never ended")


def token_events(world: World, count: int) -> list[tuple[str, str]]:
    """(who, what) of the last ones, once there are that many new ones."""
    by_s = time.monotonic() + 30
    while world.tokens.changes():
        assert time.monotonic() < by_s, "changes are not recorded"
        time.sleep(0.05)
    return [(each["who"], each["text"]) for each in world.events() if each["kind"] == "token"][-count:]


def test_changes_of_tokens_are_events_with_who_made_them(guarded: World) -> None:
    root = guarded.bearer("root", "admin")
    made = guarded.client.post("/api/v1/tokens", json={"user": "ann", "role": "user", "vcs": ["lab"]}, headers=root)
    first = made.json()["id"]
    second = guarded.client.post(f"/api/v1/tokens/{first}/rotate", json={}, headers=root).json()["id"]
    guarded.client.delete(f"/api/v1/tokens/{second}", headers=root)
    assert token_events(guarded, 4) == [
        ("root", f"token {first} was created for ann (user in lab)"),
        ("root", f"token {second} was created for ann (user in lab)"),
        ("root", f"token {first} of ann was revoked"),
        ("root", f"token {second} of ann was revoked"),
    ]
    secrets = [each for each in guarded.events() if made.json()["token"] in str(each)]
    assert secrets == []


def test_changes_in_the_file_are_events_too_also_those_made_while_no_server_ran(guarded: World, clock: Clock) -> None:
    beside = Tokens(guarded.config.data, by="operator")
    try:
        clock.now_s -= 3600
        token, _ = beside.create("ann", "user")
        clock.now_s += 3600
        beside.rotate(token.id, 60.0)
    finally:
        beside.close()
    told = token_events(guarded, 3)
    assert {who for who, _ in told} == {"operator"}
    assert told[0][1].startswith(f"token {token.id} was created for ann (user) at ")
    assert told[2][1] == f"token {token.id} of ann expires in 60 s"
