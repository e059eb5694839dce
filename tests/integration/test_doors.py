"""What an attacker without and with a token tries against a real server; the others must not notice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_server_up import Place, until

from skep.server.tokens import Tokens

pytestmark = pytest.mark.slow
CSV = {"Content-Type": "text/csv"}
TRACE = "job_id,submit_s,duration_s,gpus\n" + "".join(f"j{at},{at},60,1\n" for at in range(20))
CONNECT = b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
LOGIN = (
    b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server that asks for tokens; its working directory has a file that is not for users."""
    folder = tmp_path_factory.mktemp("doors")
    made = Place(folder / "data")
    before = Path.cwd()
    os.chdir(folder)
    (folder / "secret.yaml").write_text("default,1\nsecret,2\n")
    made.up("--auth", "token", "--cluster", "2x4")
    yield made
    os.chdir(before)
    made.http.close()
    os.kill(made.pid, signal.SIGTERM)
    until(lambda: not (made.data / "server.json").exists())


@pytest.fixture(scope="module")
def users(place: Place) -> list[dict[str, str]]:
    with contextlib.closing(Tokens(place.data)) as tokens:
        return [{"Authorization": f"Bearer {tokens.create(f'u{number}', 'user')[1]}"} for number in range(20)]


def connect(place: Place) -> socket.socket:
    return socket.create_connection(("127.0.0.1", place.port), timeout=90)


def whole(wire: socket.socket) -> bytes:
    found = b""
    try:
        while piece := wire.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def memory_mib(place: Place) -> int:
    """The largest that the server has been."""
    status = Path(f"/proc/{place.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


def start(place: Place, who: dict[str, str], **fields: Any) -> httpx.Response:
    return place.http.post("/studies", json={"policies": ["fifo"], **fields}, headers=who)


def upload(place: Place, who: dict[str, str], text: str = TRACE, name: str = "a.csv") -> httpx.Response:
    return place.http.post(f"/traces?name={name}", content=text, headers={**who, **CSV})


def ended(place: Place, who: dict[str, str], study: str) -> dict[str, Any]:
    def over() -> dict[str, Any] | None:
        found: dict[str, Any] = place.http.get(f"/studies/{study}", headers=who).json()
        return found if found["state"] not in ("queued", "running") else None

    found: dict[str, Any] = until(over)
    return found


def test_connect_requests_end_no_deadline_and_lock_nobody_out(place: Place, users: list[dict[str, str]]) -> None:
    for _ in range(20):
        with connect(place) as wire:
            wire.sendall(CONNECT % place.port)
            assert whole(wire).startswith(b"HTTP/1.1 400")
    lines = (place.data / "server.log").read_text().splitlines()
    assert sum("400 CONNECT" in line for line in lines) == 20
    assert not any("Traceback" in line for line in lines)
    with ExitStack() as stack:
        half = [stack.enter_context(connect(place)) for _ in range(100)]
        began_s = time.monotonic()
        for wire in half:
            wire.sendall(LOGIN)
        assert place.http.get("/jobs", headers=users[0]).status_code == 200
        for wire in half:
            assert whole(wire).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began_s < 60  # 30 s are allowed


def test_no_study_is_built_in_the_server(place: Place, users: list[dict[str, str]]) -> None:
    trace = upload(place, users[0]).json()["id"]
    before = memory_mib(place)
    with ThreadPoolExecutor(16) as pool:
        sizes = ["100000x1000", "100000x16+1x1", "2x1000+99998x1000", "1601x1000"] * 4
        asked = list(pool.map(lambda size: start(place, users[0], trace=trace, cluster=size), sizes))
    assert {each.status_code for each in asked} == {400}
    assert all("expected at most" in each.json()["error"] for each in asked)
    largest = start(place, users[0], trace=trace, cluster="100000x16")
    assert largest.status_code == 201
    assert memory_mib(place) - before < 100
    ended(place, users[0], largest.json()["id"])
    assert memory_mib(place) - before < 100


def test_sixty_uploads_leave_lists_fast(place: Place, users: list[dict[str, str]]) -> None:
    text = TRACE + "".join(f"k{at},{at},60,1\n" for at in range(100_000))
    with ThreadPoolExecutor(60) as pool:
        asked = [pool.submit(upload, place, users[number % 20], text) for number in range(60)]
        slowest = 0.0
        while not all(each.done() for each in asked):
            began_s = time.monotonic()
            assert place.http.get("/jobs", headers=users[0]).status_code == 200
            slowest = max(slowest, time.monotonic() - began_s)
            time.sleep(0.05)
        answers = [each.result() for each in asked]
    assert slowest < 5
    assert {each.status_code for each in answers} == {201, 429}
    assert all("retry-after" in each.headers for each in answers if each.status_code == 429)


def test_a_trace_is_not_its_own_record(place: Place, users: list[dict[str, str]]) -> None:
    kept = upload(place, users[0]).json()
    secret = place.data / "secret.csv"
    secret.write_text(TRACE)
    secret.chmod(0o600)
    for number, forged in enumerate(({**kept, "user": "u1"}, {**kept, "id": "00000001", "name": "../../secret.csv"})):
        for text in (json.dumps(forged), json.dumps([forged])):
            assert upload(place, users[1], text, "trace.json").status_code == 400, number
    assert upload(place, users[1], TRACE, "trace.json").status_code == 201
    assert place.http.delete(f"/traces/{kept['id']}", headers=users[1]).status_code == 403
    assert start(place, users[1], trace="00000001", cluster="1x4").status_code == 404
    found = place.http.get("/traces", headers=users[0]).json()
    assert kept in found


def test_no_knob_opens_a_file_of_the_server(place: Place, users: list[dict[str, str]]) -> None:
    trace = upload(place, users[2]).json()["id"]
    for knob in ("antman:quotas", "yarn-cs:quotas", "tiresias-g:samples"):
        for file in ("secret.yaml", "./secret.yaml", "secret"):
            answer = start(place, users[2], trace=trace, cluster="1x4", policies=[f"{knob}={file}"])
            assert answer.status_code == 400
            assert "default" not in answer.json()["error"]


def test_a_study_ends_in_its_own_process(place: Place, users: list[dict[str, str]]) -> None:
    trace = upload(place, users[3]).json()["id"]
    done = ended(place, users[3], start(place, users[3], trace=trace, cluster="1x4").json()["id"])
    assert (done["state"], done["error"]) == ("done", "")
