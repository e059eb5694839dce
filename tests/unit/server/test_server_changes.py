"""The stream of a dashboard: events together with the jobs they changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from board import API, Board
from httpx_sse import EventSource

from skep.server import hub
from skep.server.shapes import Change


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Board]:
    with Board(tmp_path) as made:
        yield made


class Following:
    """One open stream."""

    def __init__(self, board: Board, query: str = "", **headers: str) -> None:
        self.board, self.query, self.headers = board, query, headers

    def __enter__(self) -> Following:
        self.open = httpx.stream(
            "GET", f"http://127.0.0.1:{self.board.port}{API}/changes{self.query}", headers=self.headers, timeout=30
        )
        answer = self.open.__enter__()
        assert answer.status_code == 200
        self.events = EventSource(answer).iter_sse()
        return self

    def __exit__(self, *given: Any) -> None:
        self.open.__exit__(*given)

    def next(self) -> dict[str, Any]:
        for event in self.events:
            if event.data:
                assert event.event == "message"  # with another name, onmessage would not fire
                Change.model_validate_json(event.data, strict=True)
                return dict(event.json())
        raise AssertionError("the stream ended")

    def until(self, job_id: str, state: str) -> list[dict[str, Any]]:
        found = []
        while True:
            found.append(self.next())
            if any(job["id"] == job_id and job["state"] == state for job in found[-1]["jobs"]):
                return found


def test_it_begins_at_once_and_brings_rows_with_events(board: Board) -> None:
    with Following(board) as stream:
        first = stream.next()
        assert (first["resync"], first["events"], first["jobs"]) == (False, [], [])
        job = board.submit(name="one", vc="red", gpus=1)
        told = stream.until(job, "running")
        assert {event["kind"] for change in told for event in change["events"]} >= {"submitted", "started"}
        assert all(change["seq"] >= first["seq"] for change in told)
        board.client.patch(f"{API}/nodes/b0", json={"state": "drained"})
        assert stream.next()["cluster"]


def test_a_browser_that_comes_back_misses_nothing(board: Board) -> None:
    with Following(board) as stream:
        seq = stream.next()["seq"]
    job = board.run(name="meanwhile", vc="red", gpus=1)
    for query, headers in ((f"?after={seq}", {}), ("", {"Last-Event-ID": str(seq)})):
        with Following(board, query, **headers) as stream:
            missed = stream.next()
            assert not missed["resync"]
            assert [event["kind"] for event in missed["events"]] == ["submitted", "started"]
            assert [(row["id"], row["state"]) for row in missed["jobs"]] == [(job, "running")]


def test_who_was_away_for_too_long_reads_everything_again(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MISSED_MAX", 1)
    board.run(name="one", vc="red", gpus=1)
    for after in (0, 10**9):  # of another store
        with Following(board, f"?after={after}") as stream:
            assert stream.next()["resync"]


def test_too_much_at_once_is_not_sent_but_read_again(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "JOBS_MAX", 1)
    with Following(board) as stream:
        stream.next()
        jobs = [{"name": "many", "vc": "red", "command": "true", "gpus": 1} for _ in range(5)]
        board.client.post(f"{API}/jobs:batch", json={"jobs": jobs})
        assert stream.next()["resync"]


def test_changes_of_other_vcs_are_not_told(tmp_path: Path) -> None:
    with Board(tmp_path, auth="token") as board:
        root, ann = board.bearer("root", "admin"), board.bearer("ann", "user", "red")
        with Following(board, **ann) as stream:
            stream.next()
            for vc in ("blue", "red"):
                job = {"name": vc, "vc": vc, "command": "true", "gpus": 1}
                found = board.client.post(f"{API}/jobs", json=job, headers=root).json()["id"]
            told = stream.until(found, "running")
            with Following(board, "?after=0", **ann) as again:
                told.append(again.next())
        assert {row["vc"] for change in told for row in change["jobs"]} == {"red"}
        assert {event["job_id"] for change in told for event in change["events"]} == {found}


def test_the_stream_ends_with_its_token(tmp_path: Path) -> None:
    with Board(tmp_path, auth="token") as board, Following(board, **board.bearer("ann", "user")) as stream:
        stream.next()
        board.tokens.revoke(board.tokens.list()[0].id)
        for _ in range(100):  # what had happened before may still come
            try:
                stream.next()
            except (AssertionError, httpx.HTTPError):  # the end of the stream
                return
        raise AssertionError("the stream goes on")


def test_changes_that_cannot_be_read_are_not_lost(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    with Following(board) as stream:
        stream.next()
        with monkeypatch.context() as broken:
            broken.setattr(board.context.live, "rows", lambda ids: 1 / 0)
            board.submit(name="one", vc="red", gpus=1)
            assert stream.next()["resync"]
        stream.until(board.submit(name="two", vc="red", gpus=1), "running")
