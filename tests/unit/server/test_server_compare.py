"""All jobs of a sweep with their parameters and what they last reported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from board import API, Board

from skep.server.routes.compare import ComparedPage
from skep.server.schemas import JobPage


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with Board(tmp_path_factory.mktemp("compare"), "2x4") as made:
        yield made


def test_all_jobs_of_a_sweep_are_there_with_their_parameters(board: Board) -> None:
    sweep = {"lr": [0.1, 0.01, "1e-3"], "seed": list(range(9))}
    body = {"name": "tune-${lr}-${seed}", "command": "train --lr ${lr}", "hold": True, "sweep": sweep}
    assert board.client.post(f"{API}/jobs", json=body).status_code == 201
    found: list[dict[str, str]] = []
    cursor = ""
    while cursor is not None:
        page = board.get(f"/compare?group=tune&limit=10&cursor={cursor}", ComparedPage)
        found += [job["request"]["parameters"] for job in page["jobs"]]
        cursor = page["next"]
    assert len(found) == 27
    assert found[0] == {"lr": "0.1", "seed": "0"}
    assert {(each["lr"], each["seed"]) for each in found} == {
        (lr, str(seed)) for lr in ("0.1", "0.01", "1e-3") for seed in range(9)
    }


def test_jobs_are_named_too_and_show_what_they_last_reported(board: Board) -> None:
    job = board.run(name="reports", gpus=1)
    board.engine.machine.said[job] = {"step": 7, "loss": 0.5}
    found = board.get("/compare?job=reports", ComparedPage)["jobs"]
    assert [(each["id"], each["values"]["loss"]) for each in found] == [(job, 0.5)]
    assert board.client.get(f"{API}/compare?job=nobody").status_code == 404
    assert board.get("/compare", ComparedPage) == {"jobs": [], "next": None}


def test_parameters_stay_with_the_file_and_may_be_written_by_hand(board: Board) -> None:
    body = {"name": "by-hand", "command": "true", "parameters": {"lr": 0.1}, "hold": True}
    job = board.client.post(f"{API}/jobs", json=body).json()["id"]
    text = board.client.get(f"{API}/jobs/{job}/file").json()["text"]
    assert "parameters:\n  lr: '0.1'\n" in text
    both = {**body, "sweep": {"lr": [1, 2]}}
    refused = board.client.post(f"{API}/jobs", json=both)
    assert (refused.status_code, "parameters and sweep are both given" in refused.json()["error"]) == (400, True)


def test_rows_of_certain_jobs(board: Board) -> None:
    ids = [board.submit(name=f"row-{number}", gpus=1, hold=True) for number in range(3)]
    found = board.get(f"/jobs?id={ids[0]}&id={ids[2]}&id=99999", JobPage)["jobs"]
    assert [job["id"] for job in found] == [ids[2], ids[0]]


def test_an_event_has_the_name_of_its_job(board: Board) -> None:
    job = board.submit(name="named", gpus=1, hold=True)
    past = board.client.get(f"{API}/jobs/{job}/events").json()
    assert {event["name"] for event in past} == {"named"}
