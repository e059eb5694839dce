"""`skep history`, `decisions`, `open`, `studies`, and changes to many jobs at once."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.support.fake_api import FakeAnswer, FakeApi, job

from skep.core.errors import NotFound

HISTORY = {
    **{"since_s": 0, "until_s": 120, "step_s": 60, "t": [0.0, 60.0], "gpus": [8, 8], "used": [None, 4.25]},
    **{"lent": [None, 1], "bad": [None, 0], "drained": [None, 0], "queue": [None, 3], "queue_gpus": [None, 6]},
    "vcs": [{"name": "red", "gpus": [4, 4], "used": [None, 2], "borrowed": [None, 1], "queue": [None, 2]}],
}
DECISION = {
    **{"seq": 9, "at_s": 1000.0, "kind": "preempt", "job": "3", "name": "long\x1b[2J", "vc": "default", "user": "ann"},
    **{"reason": "makes room for job 4", "because": ["job 4 was submitted"], "before": None, "after": None},
}
STUDY = {
    **{"id": "1f0c9a2e", "name": "mine", "user": "ann", "state": "done", "progress": 1.0, "created_s": 1000.0},
    **{"policies": ["fifo", "srtf"], "error": ""},
}


def test_history_is_drawn(ask: Callable[..., Result], api: FakeApi) -> None:
    api.answers["GET /history"] = HISTORY
    lines = ask("history", "--since", "2h").output.splitlines()
    assert lines[0].split() == ["TIME", "USED", "LENT", "BAD", "QUEUE", "USE"]
    assert lines[1].split()[-5:] == ["4.2", "1", "0", "3", "██████████▋"]
    assert len(lines) == 2
    asked = api.asked[-1].query
    assert float(asked["step"][0]) == 300
    assert "red" in ask("history", "--vc", "red", "-o", "json").output
    with pytest.raises(NotFound, match="no VC blue"):
        ask("history", "--vc", "blue")


def test_decisions_are_listed(ask: Callable[..., Result], api: FakeApi) -> None:
    api.answers["GET /decisions"] = {"decisions": [DECISION], "next": None}
    said = ask("decisions", "3", "-n", "5").output
    assert "makes room for job 4" in said
    assert "job 4 was submitted" in said
    assert "\x1b" not in said
    assert (api.asked[-1].query["job"], api.asked[-1].query["last"]) == (["3"], ["5"])
    assert json.loads(ask("decisions", "-o", "json").output) == [DECISION]


def test_open_opens_the_page_or_prints_its_address(
    ask: Callable[..., Result], api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answers["GET /health"] = {"status": "ok", "version": "1"}
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    assert ask("open").output == ""
    assert opened == [api.url]
    assert ask("open", "--print").output.strip() == api.url
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert ask("open").output.strip() == api.url


def test_a_study_is_run_to_its_end(ask: Callable[..., Result], api: FakeApi, tmp_path: Path) -> None:
    trace = tmp_path / "a b.csv"
    trace.write_text("job_id,submit_s,duration_s,gpus\n")
    api.answers["POST /traces"] = {"id": "0000000a"}
    api.answers["POST /studies"] = {**STUDY, "state": "queued"}
    api.answers["GET /studies/1f0c9a2e"] = [{**STUDY, "state": "running"}, STUDY]
    said = ask("studies", "run", str(trace), "--policy", "fifo", "--policy", "srtf", "--cluster", "4x8")
    assert said.output.strip() == "1f0c9a2e done"
    (asked,) = api.bodies("POST", "/studies")
    assert asked == {
        "trace": "0000000a",
        "policies": ["fifo", "srtf"],
        "cluster": "4x8",
        "name": "",
        "seed": 0,
        "estimate_error": 0.0,
        "repetitions": 0,
    }
    assert next(each for each in api.asked if each.path == "/traces").query == {"name": ["a-b.csv"]}
    api.answers["GET /studies"] = [[STUDY]]
    assert "100%" in ask("studies").output
    api.answers["GET /studies/1f0c9a2e/report"] = FakeAnswer(200, b"<html>")
    page = tmp_path / "r.html"
    assert ask("studies", "report", "1f0c9a2e", "--html", str(page)).exit_code == 0
    assert page.read_text() == "<html>"


def test_many_jobs_are_changed_by_filters(ask: Callable[..., Result], api: FakeApi) -> None:
    api.answers["GET /jobs"] = {"jobs": [job("7"), job("8")], "next": None}
    api.answers["POST /jobs:bulk"] = {
        "results": [
            {"id": "7", "ok": True, "error": "", "hint": ""},
            {"id": "8", "ok": False, "error": "no", "hint": "h"},
        ],
        "done": 1,
    }
    refused = ask("stop", "--vc", "red", input="n\n")
    assert refused.exit_code == 1
    assert not api.bodies("POST", "/jobs:bulk")
    said = ask("stop", "--vc", "red", "--state", "pending", "--yes", "--reason", "why")
    assert said.exit_code == 2
    assert "7 asked to stop" in said.output
    assert "error: no (h)" in said.output
    assert api.bodies("POST", "/jobs:bulk") == [{"action": "stop", "ids": ["7", "8"], "reason": "why"}]
    assert ask("hold", "--state", "pending").exit_code == 2
    assert ask("release").exit_code == 2


def test_bulk_goes_in_pieces_that_the_server_takes(api: FakeApi) -> None:
    from skep.client import Client

    def answer(asked: Any) -> dict[str, Any]:
        return {"results": [{"id": job_id, "ok": True, "error": "", "hint": ""} for job_id in asked.json["ids"]]}

    api.answers["POST /jobs:bulk"] = answer
    with Client(api.url) as client:
        found = client.bulk([str(number) for number in range(2500)], "priority", 5)
    assert [each["id"] for each in found] == [str(number) for number in range(2500)]
    assert [len(body["ids"]) for body in api.bodies("POST", "/jobs:bulk")] == [1000, 1000, 500]
    assert api.bodies("POST", "/jobs:bulk")[0]["value"] == 5
