"""Studies: real processes beside the server, on small traces."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from board import API, Board

from skep.server import security
from skep.server.shapes import StudySchema, TraceSchema
from skep.server.studies import studies as module

OVER = ("done", "failed", "cancelled", "interrupted")
TRACE = "job_id,submit_s,duration_s,gpus\n" + "".join(
    f"j{at},{at * 10},{60 + at % 7},{1 + at % 4}\n" for at in range(40)
)
ENDLESS = "job_id,submit_s,duration_s,gpus\n" + "".join(
    f"j{at},{at},{50 + at % 9},{1 + at % 3}\n" for at in range(60_000)
)
CSV = {"Content-Type": "text/csv"}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with Board(tmp_path_factory.mktemp("studies"), "2x4") as made:
        yield made


def upload(board: Board, text: str, name: str = "small.csv", **headers: str) -> httpx.Response:
    return board.client.post(f"{API}/traces?name={name}", content=text, headers={**CSV, **headers})


def start(board: Board, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    return board.client.post(f"{API}/studies", json={"policies": ["fifo"], **fields}, headers=headers)


def wait_for(board: Board, study_id: str, *states: str) -> dict[str, Any]:
    by_s = time.monotonic() + 120
    while (found := board.get(f"/studies/{study_id}", StudySchema))["state"] not in states:
        assert time.monotonic() < by_s, found
        time.sleep(0.02)
    return dict(found)


@pytest.mark.slow
def test_an_uploaded_trace_is_studied_and_the_report_stays(board: Board) -> None:
    made = upload(board, TRACE)
    assert made.status_code == 201, made.text
    trace = made.json()
    assert (trace["format"], trace["jobs"], trace["name"]) == ("native", 40, "small.csv")
    assert trace in board.get("/traces", list[TraceSchema])
    asked = start(board, trace=trace["id"], policies=["fifo", "srtf", "fifo"], name="two policies")
    assert asked.status_code == 201, asked.text
    found = wait_for(board, asked.json()["id"], *OVER)
    assert (found["state"], found["error"], found["progress"]) == ("done", "", 1.0)
    assert [part["policy"] for part in found["parts"]] == ["fifo", "srtf"]
    assert all(part["summary"]["finished"] == 40 and part["done"] == 40 for part in found["parts"])
    assert found["parts"][1]["summary"]["jct_avg_s"] <= found["parts"][0]["summary"]["jct_avg_s"]
    report = board.client.get(f"{API}/studies/{found['id']}/report")
    assert report.status_code == 200
    assert "two policies" in report.text
    assert "sandbox allow-scripts" in report.headers["content-security-policy"]
    assert report.headers["x-frame-options"] == "SAMEORIGIN"
    assert board.client.delete(f"{API}/traces/{trace['id']}").json() == {"removed": trace["id"]}
    assert board.client.get(f"{API}/studies/{found['id']}/report").status_code == 200
    assert board.client.delete(f"{API}/studies/{found['id']}").status_code == 200
    assert board.client.get(f"{API}/studies/{found['id']}").status_code == 404


@pytest.mark.slow
def test_the_history_of_this_cluster_is_studied(board: Board) -> None:
    for number in range(3):
        board.end(board.run(name=f"past{number}", gpus=1 + number))
    board.run(name="still-running", gpus=1)
    found = wait_for(board, start(board, trace="history", cluster="1x4").json()["id"], *OVER)
    assert (found["state"], found["error"]) == ("done", "")
    assert found["parts"][0]["jobs"] == 3
    assert start(board, trace="history", since_s=1, until_s=2).status_code == 400


@pytest.mark.slow
def test_a_study_is_cancelled_and_others_wait_their_turn(board: Board) -> None:
    trace = upload(board, ENDLESS, "endless.csv").json()["id"]
    first, second = (start(board, trace=trace, policies=["srtf"]).json()["id"] for _ in range(2))
    running = wait_for(board, first, "running")
    assert running["start_s"] is not None
    assert board.get(f"/studies/{second}", StudySchema)["state"] == "queued"
    assert board.client.get(f"{API}/studies/{first}/report").status_code == 409
    for study in (second, first):
        assert board.client.post(f"{API}/studies/{study}/cancel").json()["state"] == "cancelled"
    assert board.client.post(f"{API}/studies/{first}/cancel").status_code == 409
    small = upload(board, TRACE).json()["id"]
    assert wait_for(board, start(board, trace=small).json()["id"], *OVER)["state"] == "done"
    assert wait_for(board, first, *OVER)["state"] == "cancelled"


@pytest.mark.slow
def test_a_restart_marks_what_it_interrupted(tmp_path: Path) -> None:
    with Board(tmp_path, "2x4") as board:
        trace = upload(board, ENDLESS).json()["id"]
        running, queued = (start(board, trace=trace, policies=["srtf"]).json()["id"] for _ in range(2))
        wait_for(board, running, "running")
    with Board(tmp_path, "2x4") as board:
        for study in (running, queued):
            found = board.get(f"/studies/{study}", StudySchema)
            assert (found["state"], found["error"]) == ("interrupted", "the server was stopped meanwhile")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["what is this", "job_id,submit_s,duration_s,gpus\na,1,x,1\n", "", "\0\1\2"])
def test_what_is_no_trace_is_refused_in_one_line(board: Board, text: str) -> None:
    answer = upload(board, text, "odd.csv")
    assert answer.status_code == 400, answer.text
    said = answer.json()["error"]
    assert "\n" not in said
    assert "Traceback" not in said
    assert str(board.config.data) not in said
    assert all(trace["name"] != "odd.csv" for trace in board.get("/traces", list[TraceSchema]))


@pytest.mark.parametrize(
    "fields",
    [
        {"trace": "history", "policies": ["nosuch"]},
        {"trace": "history", "policies": ["./mine.py:Mine"]},
        {"trace": "history", "policies": ["yarn-cs:quotas=/etc/passwd"]},
        {"trace": "history", "policies": []},
        {"trace": "history", "cluster": "/etc/passwd"},
        {"trace": "history", "cluster": "0x0"},
        {"trace": "../../x"},
    ],
)
def test_a_study_that_cannot_be_is_refused(board: Board, fields: dict[str, Any]) -> None:
    assert start(board, **fields).status_code == 400


def test_unknown_ones_are_not_found(board: Board) -> None:
    assert start(board, trace="00000000").status_code == 404
    for path in ("studies/00000000", "studies/00000000/report"):
        assert board.client.get(f"{API}/{path}").status_code == 404
    for path in ("studies/00000000", "traces/00000000"):
        assert board.client.delete(f"{API}/{path}").status_code == 404


def test_a_trace_has_a_limit_of_its_own(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    assert board.client.post(f"{API}/traces", content="x", headers={"Content-Type": "text/plain"}).status_code == 415
    assert board.client.post(f"{API}/jobs", content="x", headers=CSV).status_code == 415
    monkeypatch.setattr(security, "TRACE_MAX", 100)
    assert upload(board, TRACE).status_code == 413
    pieces = iter([TRACE.encode()[:90], TRACE.encode()[90:]])
    assert board.client.post(f"{API}/traces", content=pieces, headers=CSV).status_code == 413
    assert not list((board.config.data / "traces").glob(".*"))
    monkeypatch.setattr(module, "TRACES_MAX", 0)
    assert upload(board, "short").status_code == 409


def test_studies_belong_to_who_made_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Board(tmp_path, auth="token") as board:
        monkeypatch.setattr(board.context.studies, "_run_one", lambda study_id: None)
        root, ann, bob = board.bearer("root", "admin"), board.bearer("ann", "user", "red"), board.bearer("bob", "user")
        vic = board.bearer("vic", "viewer")
        job = {"name": "past", "vc": "red", "command": "true", "gpus": 1}
        past = board.client.post(f"{API}/jobs", json=job, headers=root).json()["id"]
        while board.client.get(f"{API}/jobs/{past}", headers=root).json()["state"] != "running":
            time.sleep(0.005)
        board.engine.end(past)
        while board.client.get(f"{API}/jobs/{past}", headers=root).json()["state"] != "succeeded":
            time.sleep(0.005)
        assert start(board, vic, trace="history", cluster="1x4").status_code == 403
        assert start(board, ann, trace="history").status_code == 403  # the cluster of others is in it
        made = start(board, ann, trace="history", cluster="1x4")
        assert made.status_code == 201, made.text
        study = made.json()["id"]
        assert [each["id"] for each in board.get("/studies", list[StudySchema], ann)] == [study]
        assert [each["id"] for each in board.get("/studies", list[StudySchema], bob)] == [study]
        other = board.bearer("cid", "user", "blue")
        assert board.get("/studies", list[StudySchema], other) == []
        assert board.client.get(f"{API}/studies/{study}", headers=other).status_code == 404
        assert board.client.delete(f"{API}/studies/{study}", headers=other).status_code == 404
        assert board.client.delete(f"{API}/studies/{study}", headers=bob).status_code == 403
        assert board.client.post(f"{API}/studies/{study}/cancel", headers=vic).status_code == 403
        assert board.client.delete(f"{API}/studies/{study}", headers=ann).status_code == 200
