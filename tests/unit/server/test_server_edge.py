"""Clients that hold connections, trickle requests or send too much: the others do not notice."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest
from fake_world import JOB, World

from skep.server import edge as edge_module
from skep.server.edge import Bounds, bounds_for

SMALL = Bounds(
    connections=12,
    per_client=8,
    first_byte_s=0.5,
    header_s=0.5,
    idle_s=1.0,
    body_s=0.5,
    stuck_s=0.5,
    header_count=20,
    log_files=6,
)
LONG = Bounds(connections=12, per_client=8)
POST = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LOGIN = POST.replace(b"jobs", b"session") + b"Content-Length: 9\r\n\r\n{"
GET = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Gives up soon on those who are slow."""
    edge_module.SWEEP_S = 0.05
    with World(tmp_path_factory.mktemp("quick"), bounds=SMALL) as made:
        yield made
    edge_module.SWEEP_S = 1.0


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("patient"), bounds=LONG) as made:
        yield made


def connect(world: World) -> socket.socket:
    return socket.create_connection(("127.0.0.1", world.port), timeout=60)


def health(world: World) -> int:
    """On a connection of its own."""
    return httpx.get(f"http://127.0.0.1:{world.port}/api/v1/health", timeout=60, trust_env=False).status_code


def answer(wire: socket.socket) -> bytes:
    """All that comes until the server ends the connection."""
    found = b""
    try:
        while piece := wire.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def eventually(holds: Callable[[], bool]) -> None:
    for _ in range(1200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it never came true")


def test_idle_connections_make_room_for_new_ones(patient: World) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(connect(patient)) for _ in range(50)]
        assert health(patient) == 200
        assert patient.edge.count <= LONG.per_client
        assert idle[0].recv(1) == b""  # the oldest had to go
        idle[-1].sendall(GET)
        assert idle[-1].recv(4096).startswith(b"HTTP/1.1 200")
    eventually(lambda: patient.edge.count <= 1)


def test_half_sent_headers_make_room_too(patient: World) -> None:
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(connect(patient)).sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert health(patient) == 200


def test_what_is_under_way_is_not_ended_for_a_new_one(patient: World) -> None:
    follow = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as stack:
        streams = [stack.enter_context(connect(patient)) for _ in range(LONG.per_client)]
        for stream in streams:
            stream.sendall(follow)
            assert b"200" in stream.recv(4096)
        late = stack.enter_context(connect(patient))
        said = answer(late)
        assert said.startswith(b"HTTP/1.1 503")
        assert b"too many connections" in said
        assert patient.edge.refused == 1
        streams[0].close()
        eventually(lambda: patient.edge.count < LONG.per_client)
        assert health(patient) == 200


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000 + b"\r\n\r\n"],
        [b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", *[b"x" * 10_000] * 8],
        [b"GET /", *[b"x" * 10_000] * 8],
        [b"GET / HTTP/1.1\r\n", *[b"X-%d: y\r\n" % number for number in range(200)]],
        [b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(200)) + b"\r\n"],
    ],
    ids=["one long header", "in pieces", "a long address", "many headers in pieces", "many headers"],
)
def test_a_header_has_a_size(quick: World, pieces: list[bytes]) -> None:
    with connect(quick) as wire:
        try:
            for piece in pieces:
                wire.sendall(piece)
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert answer(wire)[:12] in (b"HTTP/1.1 431", b"")
    assert health(quick) == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),
        (b"\r\n\r\n", b""),
        (b"GET / HTTP/1.1\r\nHost: local", b"408"),
        (POST + b"Content-Length: 9\r\n\r\n{", b"408"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"408"),
    ],
    ids=["nothing", "empty lines", "half a header", "half a body", "half a body in chunks"],
)
def test_whoever_stops_in_the_middle_is_given_up(quick: World, sent: bytes, status: bytes) -> None:
    with connect(quick) as wire:
        wire.sendall(sent)
        assert answer(wire).split(b" ")[1:2] == ([status] if status else [])


def trickle(wire: socket.socket, piece: bytes) -> None:
    """Until the server has had enough."""
    try:
        for _ in range(2000):
            wire.sendall(piece)
            time.sleep(0.01)
    except OSError:
        return
    raise AssertionError("the server took it all")


def test_a_trickle_of_bytes_buys_no_time(quick: World) -> None:
    with connect(quick) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\n")
        trickle(wire, b"x")
    with connect(quick) as wire:
        wire.sendall(POST + b"Content-Length: 1000000\r\n\r\n")
        trickle(wire, b" ")
    with connect(quick) as wire:
        wire.sendall(GET)
        assert wire.recv(4096).startswith(b"HTTP/1.1 200")
        trickle(wire, b"\r\n")  # empty lines between two requests are not a request


def test_a_large_body_that_comes_steadily_is_taken(quick: World) -> None:
    body = b'{"name": "a", "command": "true"' + b" " * 240_000 + b"}"
    head = POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with connect(quick) as wire:
        for at in range(0, len(body), 20_000):
            wire.sendall(head + body[at : at + 20_000])
            head = b""
            time.sleep(0.06)  # longer than `body_s` in all, but much faster than `body_rate`, also on a busy machine
        assert answer(wire).startswith(b"HTTP/1.1 201")


def test_an_answer_that_nobody_reads_is_given_up(quick: World) -> None:
    with connect(quick) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 30)
        eventually(lambda: quick.edge.count == 0)


ODD = {
    "not HTTP": b"\x16\x03\x01\x02\x00\x01",
    "no request line": b"HELO x\r\n\r\n",
    "no such version": b"GET / HTTP/9.9\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "CONNECT": b"CONNECT example.com:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "CONNECT with a body": b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
    "CONNECT without a port": b"CONNECT localhost HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "CONNECT a path": b"CONNECT / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "absolute": b"GET http://localhost/api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "absolute without a path": b"GET http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "authority": b"GET localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no path": b"GET ?x HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no ASCII": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{",
}


@pytest.mark.parametrize("sent", ODD.values(), ids=ODD)
def test_an_odd_request_gets_400_and_one_line(quick: World, caplog: pytest.LogCaptureFixture, sent: bytes) -> None:
    with caplog.at_level(logging.INFO), connect(quick) as wire:
        wire.sendall(sent + b"\r\n\r\n")
        assert answer(wire).startswith(b"HTTP/1.1 400")
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    assert "from 127.0.0.1" in caplog.messages[0]
    assert "\n" not in caplog.messages[0]
    still_keeps_time(quick)


def still_keeps_time(world: World) -> None:
    """Half-sent requests are ended as before."""
    with ExitStack() as stack:
        half = [stack.enter_context(connect(world)) for _ in range(4)]
        for wire in half:
            wire.sendall(LOGIN)
        for wire in half:
            assert answer(wire).startswith(b"HTTP/1.1 408")
    assert health(world) == 200
    eventually(lambda: world.edge.count <= 1)


def test_after_many_odd_requests_nobody_is_locked_out(quick: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(30):
        with connect(quick) as wire:
            wire.sendall(ODD["CONNECT with a body"])
            wire.settimeout(5)
            answer(wire)
    still_keeps_time(quick)
    assert not [record for record in caplog.records if record.exc_info]


def test_a_fault_of_the_edge_costs_one_connection(
    quick: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(quick) as wire:
        wire.sendall(GET)
        assert wire.recv(4096).startswith(b"HTTP/1.1 200")
        (broken,) = [each for mine in quick.edge.clients.values() for each in mine]
        monkeypatch.setattr(broken, "_check_unsent", lambda now_s: 1 / 0)
        answer(wire)
    assert [message for message in caplog.messages if "ZeroDivisionError" in message]
    still_keeps_time(quick)


def test_lines_about_odd_requests_are_limited(quick: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3 * edge_module.LINES_MAX):
        with connect(quick) as wire:
            wire.sendall(ODD["asterisk"])
            answer(wire)
    assert len(caplog.messages) <= edge_module.LINES_MAX


def test_a_request_for_an_upgrade_is_answered_and_the_next_one_too(
    patient: World, caplog: pytest.LogCaptureFixture
) -> None:
    upgrade = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    with connect(patient) as wire:
        wire.sendall((upgrade + GET) * 4)
        found = b""
        while found.count(b"HTTP/1.1 200") < 8:
            piece = wire.recv(65536)
            assert piece
            found += piece
    assert not caplog.messages


@pytest.mark.parametrize("length", [b"Content-Length: %d", b"Transfer-Encoding: chunked"])
def test_the_body_of_a_request_for_an_upgrade_is_no_request(patient: World, length: bytes) -> None:
    head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: h2c\r\n"
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(GET), GET) if b"chunked" in length else GET
    size = length if b"chunked" in length else length % len(GET)
    with connect(patient) as wire:
        wire.sendall(head + size + b"\r\n\r\n" + body)
        found = answer(wire)
    assert found.startswith(b"HTTP/1.1 400")
    assert found.count(b"HTTP/1.1") == 1


def test_requests_that_wait_for_their_answers_are_limited(patient: World) -> None:
    with connect(patient) as wire:
        wire.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET * 2000)
        answer(wire)
    assert health(patient) == 200


def test_a_stream_ends_with_its_connection_although_another_request_waits(patient: World) -> None:
    job_id = patient.run()
    follow = f"GET /api/v1/jobs/{job_id}/logs?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with connect(patient) as wire:
        wire.sendall(follow + GET)
        assert wire.recv(4096).startswith(b"HTTP/1.1 200")
        assert patient.context.log_files.used == 1
    eventually(lambda: patient.context.log_files.used == 0)


def test_a_trailer_is_no_header(patient: World) -> None:
    head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connect(patient) as wire:
        wire.sendall(head + b"2\r\n{}\r\n0\r\nContent-Type: application/json\r\nHost: other\r\n\r\n")
        assert answer(wire).startswith(b"HTTP/1.1 415")


def test_trailers_have_a_size(patient: World) -> None:
    """The parser keeps them in memory, also after the request was answered."""
    with connect(patient) as wire:
        wire.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ")
        trickle(wire, b"x" * 50_000)
    assert health(patient) == 200


def test_a_body_in_tiny_chunks_is_taken(patient: World) -> None:
    body = b'{"name": "a", "command": "true"' + b" " * 30_000 + b"}"
    with connect(patient) as wire:
        wire.sendall(POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 1000):
            wire.sendall(b"".join(b"1\r\n%c\r\n" % letter for letter in body[at : at + 1000]))
        wire.sendall(b"0\r\n\r\n")
        assert answer(wire).startswith(b"HTTP/1.1 201")


def test_keep_alive_and_pipelined_requests_work(patient: World) -> None:
    with connect(patient) as wire:
        wire.sendall(GET * 20)
        found = b""
        while found.count(b"HTTP/1.1 200") < 20:
            found += wire.recv(65536)
    with httpx.Client(base_url=f"http://127.0.0.1:{patient.port}", timeout=60, trust_env=False) as client:
        for _ in range(20):
            assert client.post("/api/v1/jobs", json=JOB).status_code == 201


@pytest.mark.parametrize(("files", "connections", "per_client"), [(65_536, 4096, 2048), (1024, 512, 256), (64, 32, 16)])
def test_half_of_the_files_are_for_others(files: int, connections: int, per_client: int) -> None:
    bounds = bounds_for(files)
    assert (bounds.connections, bounds.per_client) == (connections, per_client)
    assert bounds.connections + bounds.log_files <= files * 3 // 4


def test_open_logs_are_counted_and_given_back(quick: World) -> None:
    role = {"count": SMALL.log_files, "command": "true"}
    with httpx.Client(base_url=f"http://127.0.0.1:{quick.port}/api/v1", timeout=60, trust_env=False) as client:
        job_id = client.post("/jobs", json={"name": "a", "tasks": {"w": role}}).json()["id"]
        quick.wait_for(job_id, "running")
        quick.engine.print(job_id, "hello\n", "w-0")
        with client.stream("GET", f"/jobs/{job_id}/logs?follow=true") as stream:
            assert stream.status_code == 200
            refused = client.get(f"/jobs/{job_id}/logs")
            assert (refused.status_code, refused.json()["error"]) == (503, "too many logs are being read")
        eventually(lambda: quick.context.log_files.used == 0)
        assert "hello" in client.get(f"/jobs/{job_id}/logs").text
        assert client.get(f"/jobs/{job_id}/logs?task=nosuch").status_code == 404
        assert client.get(f"/jobs/{job_id}/logs?attempt=9").status_code == 404
    eventually(lambda: quick.context.log_files.used == 0)
