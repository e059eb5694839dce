"""Answers that go on: events and logs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_world import World
from httpx_sse import EventSource

from skep.engines.local.read_log import Reader
from skep.server.logs import CHUNK, LabelledLog

EVENTS = "/api/v1/events"


def sse_events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for event in EventSource(answer).iter_sse():
        if event.data:
            found = event.json()
            assert (event.id, event.event) == (str(found["seq"]), found["kind"])
            yield found


def take(answer: httpx.Response, count: int) -> list[int]:
    events = sse_events(answer)
    return [next(events)["seq"] for _ in range(count)]


def test_events_arrive_as_they_happen(world: World) -> None:
    with world.client.stream("GET", EVENTS) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        begin = world.live.last_seq()
        timer = threading.Timer(0.1, lambda: [world.say("TimerDue") for _ in range(3)])
        timer.start()
        assert take(answer, 3) == [begin + 1, begin + 2, begin + 3]


def test_a_stream_goes_on_where_it_was(world: World) -> None:
    for _ in range(1200):
        world.say("TimerDue")
    world.say("TimerDue").result()
    end = world.live.last_seq()
    with world.client.stream("GET", EVENTS, headers={"Last-Event-ID": str(end - 1100)}) as answer:
        world.say("TimerDue")
        assert take(answer, 1101) == list(range(end - 1099, end + 2))
    with world.client.stream("GET", f"{EVENTS}?after={end}", headers={"Last-Event-ID": str(end + 1)}) as answer:
        world.say("TimerDue")
        assert take(answer, 1) == [end + 2]


def test_two_listeners_hear_the_same_and_one_job_only_its_own(world: World) -> None:
    job_id = world.run()
    begin = world.live.last_seq()
    with (
        world.client.stream("GET", f"{EVENTS}?after={begin}") as everything,
        world.client.stream("GET", f"{EVENTS}?after={begin}&job={job_id}") as own,
    ):
        for turn in range(20):
            world.say("TimerDue", job_id if turn % 2 else None)
        assert take(everything, 20) == list(range(begin + 1, begin + 21))
        assert take(own, 10) == list(range(begin + 2, begin + 21, 2))


def listeners(world: World, expected: int) -> int:
    by_s = time.monotonic() + 60
    while world.context.hub._listeners != expected and time.monotonic() < by_s:
        time.sleep(0.02)
    return world.context.hub._listeners


def test_a_listener_that_leaves_is_forgotten(world: World) -> None:
    assert listeners(world, 0) == 0
    with world.client.stream("GET", EVENTS) as answer:
        pieces = answer.iter_raw()
        next(pieces)
        assert world.context.hub._listeners == 1
    assert listeners(world, 0) == 0
    world.say("TimerDue").result()
    by_s = time.monotonic() + 60
    while world.context.hub._newest != world.live.last_seq() and time.monotonic() < by_s:
        time.sleep(0.02)
    assert world.context.hub._newest == world.live.last_seq()
    assert not world.context.hub._ring


def test_a_quiet_stream_beats(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.context.hub._heartbeat_s = 0.05
        with world.client.stream("GET", EVENTS) as answer:
            pieces = answer.iter_raw()
            assert next(pieces).startswith(b": hello")
            assert next(pieces) == b": still here\n\n"


def test_streams_end_with_the_server(tmp_path: Path) -> None:
    with World(tmp_path) as world, world.client.stream("GET", EVENTS) as answer:
        threading.Timer(0.1, world.context.hub.close).start()  # as the server does when it is told to stop
        assert "hello" in answer.read().decode()


@pytest.mark.parametrize(
    "query", ["after=-1", "after=x", "after=99999999999999999999999", "job=..", "limit=0", "follow=x"]
)
def test_bad_event_queries(world: World, query: str) -> None:
    assert world.client.get(f"{EVENTS}?{query}").status_code == 400


def test_a_list_of_events(world: World) -> None:
    before = world.live.last_seq()
    job_id = world.run()
    found = world.client.get(f"{EVENTS}?follow=false&after={before}").json()
    assert [(event["seq"], event["kind"]) for event in found] == [(before + 1, "submitted"), (before + 2, "started")]
    assert world.client.get(f"/api/v1/jobs/{job_id}/events").json() == found


def test_a_reader_that_reads_nothing_is_dropped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    from skep.server import streams

    monkeypatch.setattr(streams, "STUCK_S", 0.3)
    assert listeners(world, 0) == 0
    with socket.create_connection(("127.0.0.1", world.port)) as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.sendall(b"GET %s?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n" % EVENTS.encode())
        by_s = time.monotonic() + 60
        is_heard = False
        while time.monotonic() < by_s:
            is_heard = is_heard or world.context.hub._listeners == 1
            if is_heard and world.context.hub._listeners == 0:
                break
            world.say("TimerDue", text="x" * 100_000).result()
        assert is_heard
        assert world.context.hub._listeners == 0


@pytest.mark.parametrize(("most", "found"), [(0, 0), (1, 1), (5, 5), (9, 7)])
def test_the_last_events(world: World, most: int, found: int) -> None:
    job_id = world.run()
    for turn in range(10):
        world.say("TimerDue", job_id if turn % 2 else None).result()
    own = [event["seq"] for event in world.events() if event["job_id"] == job_id]
    asked = world.client.get(f"{EVENTS}?follow=false&last={most}&job={job_id}").json()
    assert [event["seq"] for event in asked] == own[len(own) - found :]
    with world.client.stream("GET", f"{EVENTS}?last={most}&job={job_id}") as answer:
        world.say("TimerDue", job_id).result()
        assert take(answer, found + 1) == [*own[len(own) - found :], world.live.last_seq()]


def test_the_last_events_behind_a_number(world: World) -> None:
    for _ in range(5):
        world.say("TimerDue").result()
    end = world.live.last_seq()
    for after, last, expected in ((end - 2, 4, 2), (end - 4, 2, 2)):
        asked = world.client.get(f"{EVENTS}?follow=false&after={after}&last={last}").json()
        assert [event["seq"] for event in asked] == list(range(end - expected + 1, end + 1))


# logs


def test_a_log_is_text_from_any_line_on(world: World) -> None:
    job_id = world.run()
    logs = f"/api/v1/jobs/{job_id}/logs"
    assert world.client.get(logs).text == ""
    world.engine.print(job_id, "1\n2\n3")
    answer = world.client.get(logs)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text == "1\n2\n3"
    for tail, text in ((0, ""), (1, "3"), (2, "2\n3"), (99, "1\n2\n3")):
        assert world.client.get(f"{logs}?tail={tail}").text == text
    assert world.client.get(f"{logs}?task=other-1").status_code == 404
    assert world.client.get(f"{logs}?attempt=2").status_code == 404
    assert world.client.get("/api/v1/jobs/j0/logs").status_code == 404


def test_following_a_log_until_the_end(world: World) -> None:
    job_id = world.run()

    def work() -> None:
        for number in range(30):
            world.engine.print(job_id, f"{number}\n")
            time.sleep(0.02)
        world.engine.end(job_id)

    thread = threading.Thread(target=work)
    thread.start()
    said = world.client.get(f"/api/v1/jobs/{job_id}/logs?follow=true").text.split()
    thread.join()
    assert said == [str(number) for number in range(30)]


def test_followers_do_not_hold_up_others(world: World) -> None:
    job_id = world.run()
    world.engine.print(job_id, "begun\n")
    clients = [httpx.Client(base_url=world.client.base_url, timeout=60, trust_env=False) for _ in range(60)]
    streams = [client.stream("GET", f"/api/v1/jobs/{job_id}/logs?follow=true") for client in clients]
    answers = [stream.__enter__() for stream in streams]
    assert all(next(answer.iter_raw()) == b"begun\n" for answer in answers)
    assert world.client.get("/api/v1/jobs", timeout=60).status_code == 200
    world.end(job_id)
    for stream, client in zip(streams, clients, strict=True):
        stream.__exit__(None, None, None)
        client.close()


def test_following_one_attempt_ends_with_it(world: World) -> None:
    job_id = world.run(retries=1)
    world.engine.print(job_id, "one\n")
    world.engine.end(job_id, 1)
    by_s = time.monotonic() + 60
    while world.live.brief(job_id)["attempts"] < 2 and time.monotonic() < by_s:
        time.sleep(0.02)
    assert world.client.get(f"/api/v1/jobs/{job_id}/logs?follow=true&attempt=1").text == "one\n"


# logs of several tasks


@pytest.fixture
def gang(world: World) -> str:
    tasks = {"ps": {"command": "x"}, "worker": {"command": "x", "count": 2}}
    job_id: str = world.client.post("/api/v1/jobs", json={"name": "gang", "tasks": tasks}).json()["id"]
    world.wait_for(job_id, "running")
    return job_id


def test_lines_of_several_tasks_stand_behind_their_names(world: World, gang: str) -> None:
    world.engine.print(gang, "a\nb", "ps-0")
    world.engine.print(gang, "c\n\nd\n", "worker-1")
    logs = f"/api/v1/jobs/{gang}/logs"
    assert world.client.get(logs).text == "ps-0     | a\nps-0     | b\nworker-1 | c\nworker-1 | \nworker-1 | d\n"
    assert world.client.get(f"{logs}?tail=1").text == "ps-0     | b\nworker-1 | d\n"
    assert world.client.get(f"{logs}?task=worker-1").text == "c\n\nd\n"


def test_a_task_that_a_job_cannot_have_is_named(world: World, gang: str) -> None:
    answer = world.client.get(f"/api/v1/jobs/{gang}/logs?task=worker-2")
    assert answer.status_code == 404
    assert answer.json() == {"error": f"job {gang} has no task worker-2", "hint": "it has ps-0, worker-0, worker-1"}


def test_several_tasks_are_followed_to_the_end(world: World, gang: str) -> None:
    def work() -> None:
        for number in range(3):
            for task in ("ps-0", "worker-0", "worker-1"):
                world.engine.print(gang, f"{number}\nhalf ", task)
            time.sleep(0.25)
        world.engine.end(gang)

    thread = threading.Thread(target=work)
    thread.start()
    lines = world.client.get(f"/api/v1/jobs/{gang}/logs?follow=true").text.splitlines()
    thread.join()
    for task in ("ps-0", "worker-0", "worker-1"):
        own = [line.partition("| ")[2] for line in lines if line.startswith(f"{task} ")]
        assert own == ["0", "half 1", "half 2", "half "]


def test_tasks_that_a_job_has_not_grown_to_have_no_log(world: World) -> None:
    job_id = world.run(gpus=1, elastic={"min": 1, "max": 3})
    world.engine.print(job_id, "a\n")
    assert world.client.get(f"/api/v1/jobs/{job_id}/logs").text == "task-0 | a\n"


@pytest.mark.parametrize("step", [1000, CHUNK - 1, CHUNK, 3 * CHUNK])
def test_long_lines_are_cut_alike_however_they_were_written(tmp_path: Path, step: int) -> None:
    lines = [b"x" * CHUNK, b"y" * (2 * CHUNK + 1), b"", b"z" * (CHUNK + 1)]
    text, log = b"\n".join(lines), tmp_path / "log"
    reader, found = LabelledLog(Reader(lambda: [log], None), "w | "), b""
    for at in range(0, len(text), step):
        with log.open("ab") as file:
            file.write(text[at : at + step])
        while chunk := reader.read():
            found += chunk
    found += reader.last()
    reader.close()
    assert [len(line) - 4 for line in found.splitlines()] == [CHUNK, CHUNK, CHUNK, 1, 0, CHUNK, 1]
