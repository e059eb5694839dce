"""A closer look at one job: curves, logs searched, its file, what would be submitted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from board import API, Board
from pydantic import TypeAdapter

from skep.jobs.read import read_requests
from skep.server import search
from skep.server.routes.inspect import Matches
from skep.server.shapes import Curve, DryRun, Example, JobFile
from skep.service import curves


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with Board(tmp_path_factory.mktemp("inspect"), "2x4") as made:
        yield made


def put_metrics(board: Board, job_id: str, attempt: int, rows: list[Any]) -> None:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    board.engine.machine.metrics[job_id, attempt] = [line.encode() for line in lines]


def test_a_curve_goes_through_attempts_without_doing_a_step_twice(board: Board) -> None:
    job = board.run(name="curve", gpus=1)
    put_metrics(board, job, 1, [{"step": step, "loss": 10 - step, "at_s": 100 + step} for step in range(6)])
    put_metrics(
        board, job, 2, [{"step": step, "loss": 20 - step, "acc": 0.5, "at_s": 200 + step} for step in (4, 5, 6)]
    )
    found = board.get(f"/jobs/{job}/curve", Curve)
    assert (found["keys"], found["is_cut"], found["task"]) == (["loss", "acc"], False, "task-0")
    loss = found["series"][0]
    assert loss["step"] == [0, 1, 2, 3, 4, 5, 6]
    assert loss["value"] == [10, 9, 8, 7, 16, 15, 14]
    assert loss["attempt"] == [1, 1, 1, 1, 2, 2, 2]
    only = board.get(f"/jobs/{job}/curve?key=acc&key=nothing", Curve)["series"]
    assert [(each["key"], each["value"]) for each in only] == [("acc", [0.5] * 3), ("nothing", [])]


def test_a_long_curve_is_thinned_and_keeps_its_spikes(board: Board) -> None:
    job = board.run(name="long", gpus=1)
    values = [0.0] * 10_000
    values[5_003] = 99.0
    put_metrics(board, job, 1, [{"step": step, "loss": value} for step, value in enumerate(values)])
    series = board.get(f"/jobs/{job}/curve?points=100", Curve)["series"][0]
    assert len(series["value"]) <= 100
    assert (max(series["value"]), series["step"][series["value"].index(99.0)]) == (99.0, 5_003)
    assert series["step"] == sorted(series["step"])


def test_what_a_job_writes_there_is_not_trusted(board: Board) -> None:
    job = board.run(name="odd", gpus=1)
    odd = ["no json", "[1]", '{"step": "x"}', '{"loss": NaN}', "x" * 10_000, '{"step": 1, "loss": 1e400}', "{", ""]
    put_metrics(board, job, 1, [*odd, {"step": 2, "loss": 0.5}])
    assert board.get(f"/jobs/{job}/curve", Curve)["series"][0]["value"][-1] == 0.5
    many = [{f"key{number}": 1.0 for number in range(90)}]
    put_metrics(board, job, 1, many)
    assert len(board.get(f"/jobs/{job}/curve", Curve)["keys"]) == curves.KEYS_MAX


def test_logs_are_searched(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    two = {"name": "words", "tasks": {"w": {"count": 2, "command": "true"}}}
    job = board.client.post(f"{API}/jobs", json=two).json()["id"]
    board.wait_for(job, "running")
    for task in ("w-0", "w-1"):
        lines = [f"epoch 1 of {task}", "Loss is <b>0.5</b>", "x" * 5000 + "needle" + "y" * 99]
        board.engine.print(job, "\n".join(lines) + "\n", task)
    found = board.get(f"/jobs/{job}/logs:search?q=LOSS", Matches)
    assert [(match["task"], match["line"], match["text"]) for match in found["matches"]] == [
        ("w-0", 2, "Loss is <b>0.5</b>"),
        ("w-1", 2, "Loss is <b>0.5</b>"),
    ]
    newest = board.get(f"/jobs/{job}/logs:search?q=e&limit=3", Matches)["matches"]
    assert [(match["task"], match["line"]) for match in newest] == [("w-0", 3), ("w-1", 3), ("w-0", 1)]
    long = board.get(f"/jobs/{job}/logs:search?q=needle&task=w-1", Matches)["matches"]
    assert [match["task"] for match in long] == ["w-1"]
    assert "needle" in long[0]["text"]
    assert len(long[0]["text"]) < 1100
    assert board.get(f"/jobs/{job}/logs:search?q=o&limit=1", Matches)["is_cut"]
    nothing = board.get(f"/jobs/{job}/logs:search?q=nowhere", Matches)
    assert (nothing["matches"], nothing["is_cut"]) == ([], False)
    assert nothing["searched_bytes"] == nothing["bytes"] > 10_000
    monkeypatch.setattr(search, "COUNT_MAX", 6000)
    part = board.get(f"/jobs/{job}/logs:search?q=loss", Matches)
    assert ([match["task"] for match in part["matches"]], part["bytes"]) == (["w-0"], nothing["bytes"])
    assert part["searched_bytes"] < part["bytes"]
    assert board.client.get(f"{API}/jobs/{job}/logs:search?q=a&task=w-7").status_code == 404


def test_a_long_log_is_searched_from_its_end_with_true_line_numbers() -> None:
    lines = [b"line %d %s\n" % (number, b"x" * 50) for number in range(1, 40_001)]
    with_limit = search.READ_MAX

    class Whole:
        """A log of a few MiB, in pieces."""

        def __init__(self) -> None:
            self.pieces = [b"".join(lines[at : at + 1000]) for at in range(0, len(lines), 1000)]
            self.number = 1

        def read(self) -> bytes:
            piece = self.pieces.pop(0) if self.pieces else b""
            self.number += piece.count(b"\n")
            return piece

        def line(self) -> int:
            return self.number

        def size(self) -> int:
            return sum(map(len, lines))

        def close(self) -> None: ...

    try:
        search.READ_MAX = 1 << 20
        found = search.search([("w-0", 1, Whole())], 1, "LINE ", 5)
    finally:
        search.READ_MAX = with_limit
    assert [(match["line"], match["text"][:10]) for match in found["matches"]] == [
        (number, f"line {number}") for number in range(40_000, 39_995, -1)
    ]
    assert found["is_cut"]
    assert 0 < found["searched_bytes"] <= (1 << 20) + 100_000 < found["bytes"]


def test_lines_of_a_log_have_their_numbers_and_are_read_by_them(board: Board) -> None:
    job = board.run(name="numbered", gpus=1)
    board.engine.print(job, "".join(f"text {number}\n" for number in range(1, 301)) + "rest")

    def lines(query: str) -> list[str]:
        return board.client.get(f"{API}/jobs/{job}/logs?numbers=true&{query}").text.splitlines()

    assert lines("tail=2") == ["300 text 300", "301 rest"]
    assert lines("first=7&lines=2") == ["7 text 7", "8 text 8"]
    assert lines("first=301") == ["301 rest"]
    assert lines("first=999") == []
    assert len(lines("")) == 301


def test_the_file_of_a_job_submits_it_again(board: Board) -> None:
    job = board.submit(name="again", gpus=2, tags=["a"], env={"OPEN": "1"}, secrets={"KEY": "hunter2"}, hold=True)
    found = board.get(f"/jobs/{job}/file", JobFile)
    assert found["hidden"] == ["KEY"]
    assert "hunter2" not in found["text"]
    again = read_requests(found["text"]).requests[0]
    assert (again.gpus, again.tags, again.tasks["task"].env) == (2, ("a",), {"OPEN": "1"})


def test_a_dry_run_submits_nothing_and_names_all_faults(board: Board) -> None:
    def dry(job: Any) -> dict[str, Any]:
        answer = board.client.post(f"{API}/jobs?dry_run=true", json=job)
        assert answer.status_code == 200, answer.text
        TypeAdapter(DryRun).validate_json(answer.content, strict=True)
        return dict(answer.json())

    before = board.client.get(f"{API}/overview").json()["seq"]
    good = dry({"name": "dry", "command": "true", "gpus": 1, "sweep": {"a": [1, 2]}})
    assert ([each["name"] for each in good["requests"]], good["errors"]) == (["dry-1", "dry-2"], [])
    bad = dry({"name": "dry", "command": "true", "gpus": -1, "cpu": "much"})
    assert [each["path"] for each in bad["errors"]] == ["gpus", "cpu"]
    assert bad["requests"] == []
    never = dry({"name": "dry", "command": "true", "gpus": 64})
    assert "can never run" in never["errors"][0]["text"]
    needs = dry({"name": "dry", "command": "true", "needs": "nobody"})
    assert needs["errors"][0]["text"] == "there is no job nobody"
    text = "name: dry\ncommand: |\n  true\ngpus: lots\n"
    answer = board.client.post(
        f"{API}/jobs?dry_run=true", content=text, headers={"Content-Type": "application/yaml"}
    ).json()
    assert (answer["errors"][0]["path"], answer["errors"][0]["line"]) == ("gpus", 4)
    assert board.client.get(f"{API}/overview").json()["seq"] == before


def test_examples_are_jobs(board: Board) -> None:
    found = board.get("/examples", list[Example])
    assert len({example["name"] for example in found}) == len(found) >= 5
    for example in found:
        assert example["title"]
        assert read_requests(example["text"], example["name"]).requests


def test_values_of_others_are_hidden_in_files(tmp_path: Path) -> None:
    with Board(tmp_path, "2x4", auth="token") as board:
        ann, bob, vic = board.bearer("ann", "user"), board.bearer("bob", "user"), board.bearer("vic", "viewer")
        job = {"name": "mine", "command": "true", "env": {"KEY": "hunter2"}}
        job_id = board.client.post(f"{API}/jobs", json=job, headers=ann).json()["id"]
        assert "hunter2" in board.get(f"/jobs/{job_id}/file", JobFile, ann)["text"]
        for other in (bob, vic):
            found = board.get(f"/jobs/{job_id}/file", JobFile, other)
            assert "hunter2" not in found["text"]
            assert found["hidden"] == ["KEY"]
        refused = board.client.post(f"{API}/jobs?dry_run=true", json=job, headers=vic).json()
        assert "only reads" in refused["errors"][0]["text"]
