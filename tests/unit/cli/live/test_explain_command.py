"""`skep explain`: why a job does not run, and the changes that were tried out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from click.testing import Result
from tests.support.fake_api import FakeAnswer, FakeApi, job

Ask = Callable[..., Result]
DETAIL = {
    "history": [
        {"task": "", "launch": 1, "start_s": 1010.0, "end_s": 1070.0, "nodes": ["n1"], "outcome": "retried", "code": 1}
        | {"phrase": "CUDA out of memory", "advice": "use a smaller batch"}
    ],
}
TRIED = {"type": "tried", "changes": 0, "seconds": 0.25, "samples": 0, "cut": False, "error": ""}
WHY = {"job": "7", "state": "pending", "code": "x", "cause": "capacity", "reason": "0 GPUs are free", "remedy": ""}


def lines(*fixes: dict[str, Any], **tried: Any) -> FakeAnswer:
    sent = [{"type": "fix", "command": "", "change": {}, "lost_gpu_s": 0.0, "delay_s": None, **each} for each in fixes]
    text = "".join(json.dumps(each) + "\n" for each in [*sent, {**TRIED, **tried}]).encode()
    return FakeAnswer(pieces=[text[:30], text[30:]], media_type="application/x-ndjson")


def test_explain_speaks_in_sentences(api: FakeApi, ask: Ask) -> None:
    found = {"job": "7", "state": "pending", "code": "vc-full", "cause": "quota", "reason": "VC a uses 8 of 8 gpus"}
    api.answers["GET /jobs/7/explain"] = found | {"remedy": "job 3 ending, or asking for fewer gpus"}
    api.answers |= {"GET /jobs/7": job("7"), "GET /jobs/7/changes": lines()}
    assert ask("explain", "7").stdout.splitlines() == [
        "Job 7 is pending (quota).",
        "VC a uses 8 of 8 gpus.",
        "What would change that: job 3 ending, or asking for fewer gpus.",
    ]
    assert ask("explain", "7", "-o", "name").stdout == "vc-full\n"


def test_a_preempted_job_says_by_whom(api: FakeApi, ask: Ask) -> None:
    found = {
        "job": "7",
        "state": "pending",
        "code": "x",
        "cause": "capacity",
        "reason": "0 GPUs are free",
        "remedy": "",
    }
    attempt = {"launch": 1, "outcome": "preempted", "phrase": "preempted by job 9; exited after SIGTERM, as requested"}
    api.answers |= {
        "GET /jobs/7/explain": found,
        "GET /jobs/7": job("7", history=[attempt]),
        "GET /jobs/7/changes": lines(),
    }
    said = ask("explain", "7").stdout.splitlines()
    assert said[-1] == "Attempt 1 ended: preempted by job 9; exited after SIGTERM, as requested."


def test_a_running_job_has_nothing_to_explain(api: FakeApi, ask: Ask) -> None:
    found = {"job": "7", "state": "running", "code": "not-waiting", "cause": "order", "reason": "it runs", "remedy": ""}
    api.answers["GET /jobs/7/explain"] = found
    assert ask("explain", "7").stdout == "Job 7 is running.\n"


def test_an_ended_job_is_explained_by_its_last_attempt(api: FakeApi, ask: Ask) -> None:
    found = {
        "job": "7",
        "state": "failed",
        "code": "not-waiting",
        "cause": "order",
        "reason": "has failed",
        "remedy": "",
    }
    api.answers |= {"GET /jobs/7/explain": found, "GET /jobs/7": job("7", state="failed", **DETAIL)}
    assert ask("explain", "7").stdout.splitlines() == [
        "Job 7 has failed.",
        "Exit code 1; CUDA out of memory; use a smaller batch.",
    ]


def test_changes_are_listed_with_what_they_cost(api: FakeApi, ask: Ask) -> None:
    now = {"kind": "alter", "when": "now", "text": "ask for 4 GPUs", "effect": "the job starts at once on n0"}
    later = {"kind": "stop", "when": "sooner", "text": "stop job 3", "effect": "the job starts about 2 hours sooner"}
    fixes = [{**now, "command": "skep alter 7 --gpus 4"}, {**later, "lost_gpu_s": 5400.0, "delay_s": 600.0}]
    api.answers |= {
        "GET /jobs/7/explain": WHY,
        "GET /jobs/7": job("7"),
        "GET /jobs/7/changes": lines(*fixes, changes=9),
    }
    assert ask("explain", "7").stdout.splitlines()[2:] == [
        "Tried out, those first that cost others least:",
        "  now     ask for 4 GPUs: the job starts at once on n0",
        "          $ skep alter 7 --gpus 4",
        "  sooner  stop job 3: the job starts about 2 hours sooner; 1.5 GPU-hours are lost; "
        "other jobs start 10m later, all together",
        "Nothing else that you may do helps (9 changes in 0.2 s).",
    ]
    found = json.loads(ask("explain", "7", "-o", "json", "--within", "0").stdout)
    assert [each["kind"] for each in found["changes"]] == ["alter", "stop"]
    assert found["tried"]["changes"] == 9
    assert [asked.query for asked in api.asked if asked.path.endswith("changes")][-1] == {"within": ["0.0"]}


def test_how_a_list_ends(api: FakeApi, ask: Ask) -> None:
    api.answers |= {"GET /jobs/7/explain": WHY, "GET /jobs/7": job("7")}
    ends = {
        "Nothing that you may do helps (1 change in 0.2 s).": {"changes": 1},
        "There was no time to try everything (5 changes in 9.0 s, 7 samples of 16).": {
            **{"changes": 5, "seconds": 9.0, "samples": 7, "cut": True}
        },
        "Nothing could be tried out: the policy failed.": {"error": "the policy failed"},
    }
    for said, tried in ends.items():
        api.answers["GET /jobs/7/changes"] = lines(**tried)
        assert ask("explain", "7").stdout.splitlines()[-1] == said


def test_too_long(ask: Ask) -> None:
    found = ask("explain", "7", "--within", "5m")
    assert (found.exit_code, "at most 30 s" in found.stderr) == (2, True)
