"""Searches in the API: trials, the best one, why others were stopped, and who may stop a search."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from board import API, Board

from skep.server.routes.searches import SearchBrief, SearchDetail

SEARCH = {"metric": "loss", "rule": "asha", "first": 10, "parameters": {"lr": [0.1, 0.01, 0.001]}}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with Board(tmp_path_factory.mktemp("searches"), "1x4") as made:
        yield made


def submit(board: Board, name: str, **search: object) -> list[str]:
    body = {"name": name, "command": "train ${lr}", "gpus": 1, "hold": True, "search": {**SEARCH, **search}}
    answer = board.client.post(f"{API}/jobs", json=body)
    assert answer.status_code == 201, answer.text
    return [job["id"] for job in answer.json()["jobs"]]


def test_a_search_has_its_trials_and_the_best_of_them(board: Board) -> None:
    ids = submit(board, "tune")
    for job, loss in zip(ids, (0.5, 0.25, None), strict=True):
        board.engine.machine.said[job] = {"step": 7, "loss": loss}
    found = board.get("/searches/tune", SearchDetail)
    assert [trial["parameters"] for trial in found["trials"]] == [{"lr": "0.1"}, {"lr": "0.01"}, {"lr": "0.001"}]
    assert [(trial["value"], trial["is_best"]) for trial in found["trials"]] == [
        (0.5, False),
        (0.25, True),
        (None, False),
    ]
    assert (found["best"], found["best_value"], found["state"]) == (ids[1], 0.25, "running")
    (listed,) = board.get("/searches", list[SearchBrief])
    assert {name: listed[name] for name in ("name", "best", "best_value", "state")} == {
        name: found[name] for name in ("name", "best", "best_value", "state")
    }
    assert board.client.get(f"{API}/searches/none").status_code == 404
    assert board.client.get(f"{API}/searches/a'b").status_code in (400, 404, 422)


def test_a_search_is_stopped_and_submitted_again(board: Board) -> None:
    submit(board, "again")
    body = {"name": "again", "command": "train ${lr}", "search": SEARCH}
    refused = board.client.post(f"{API}/jobs", json=body)
    assert (refused.status_code, refused.json()["error"]) == (409, "a search again is running")
    found = board.client.post(f"{API}/searches/again/stop", json={}).json()
    assert {trial["state"] for trial in found["trials"]} == {"stopped"}
    assert all("its search was stopped" in trial["why"] for trial in found["trials"])
    assert found["state"] == "ended"
    assert board.client.post(f"{API}/searches/again/stop", json={}).status_code == 409
    ids = submit(board, "again")
    assert [trial["id"] for trial in board.get("/searches/again", SearchDetail)["trials"]] == ids


def test_the_rule_is_with_the_request_of_each_trial(board: Board) -> None:
    (first, *_) = submit(board, "ruled")
    asked = board.client.get(f"{API}/jobs/{first}").json()["request"]
    assert asked["of_group"]["search"]["rule"] == "asha"
    assert asked["parameters"] == {"lr": "0.1"}
