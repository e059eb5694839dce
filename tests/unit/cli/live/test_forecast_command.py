"""Forecasts in words: `skep forecast`, and in `ps`, `show` and `explain`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result
from tests.support.fake_api import FakeAnswer, FakeApi, job

from skep.cli.eta import eta_cell, eta_sentence, short, span

Ask = Callable[..., Result]
NOW_S = 1_000_000.0


def likely(*after: float | None, poor: bool = False, now_s: float = NOW_S) -> dict[str, Any]:
    times = (None if each is None else now_s + each for each in after)
    return {**dict(zip(("p10_s", "p50_s", "p90_s"), times, strict=True)), "poor": poor}


def eta(start: dict[str, Any] | None, end: dict[str, Any], now_s: float = NOW_S) -> dict[str, Any]:
    return {
        **{"made_s": now_s - 35, "until_s": now_s - 35 + 86400, "samples": 32},
        **{"start": start, "end": end, "lengths": "owner"},
    }


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (-5, "0s"), (100, "100s"), (720, "12m"), (7200, "2h"), (86400, "24h"), (200000, "2d")],
)
def test_short_times(seconds: float, text: str) -> None:
    assert short(seconds) == text


@pytest.mark.parametrize(
    ("times", "text"),
    [
        (likely(300, 720, 2400), "in 12m (5m-40m)"),
        (likely(720, 720, 720), "in 12m"),
        (likely(300, 720, None), "in 12m (5m->24h)"),
        (likely(3600, None, None), "in more than 24h (60m->24h)"),
        (likely(None, None, None), "in more than 24h"),
        (likely(300, 720, 2400, poor=True), "poorly known"),
    ],
)
def test_spans(times: dict[str, Any], text: str) -> None:
    assert span(times, eta(None, times), NOW_S) == text


def test_the_next_start_comes_before_the_end() -> None:
    found = {"eta": eta(likely(300, 720, 2400), likely(3600, 7200, 18000))}
    assert eta_cell(found, NOW_S) == "starts in 12m (5m-40m)"
    assert eta_sentence(found, NOW_S) == (
        "starts in 12m (5m-40m), ends in 2h (60m-5h); 0:35 old, 32 samples, length as its owner expects"
    )
    assert eta_cell({"eta": eta(None, likely(60, 60, 60))}, NOW_S) == "ends in 60s"
    assert eta_cell({"eta": None}, NOW_S) == eta_sentence({}, NOW_S) == ""


def with_eta(job_id: str, **more: Any) -> dict[str, Any]:
    now_s = time.time()
    return job(
        job_id, eta=eta(likely(300, 725, 2410, now_s=now_s), likely(None, None, None, now_s=now_s), now_s), **more
    )


def test_ps_has_a_column_only_when_something_is_known(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /jobs"] = {"jobs": [with_eta("2", state="pending", nodes=[]), job("1")], "next": None}
    said = ask("ps")
    head, first, second = said.stdout.splitlines()
    assert head.split()[-2:] == ["FORECAST", "NODES(REASON)"]
    assert "starts in 12m (" in first
    assert "start" not in second
    assert said.stderr.endswith("; the forecast is 0:35 old\n")
    api.answers["GET /jobs"] = {"jobs": [job("1", eta=None)], "next": None}
    assert "FORECAST" not in ask("ps").stdout


MADE = {
    **{"made_s": 1.0, "until_s": 86401.0, "samples": 32, "cpu_s": 1.25, "policy": "fifo"},
    "judged": [{"what": "start", "lengths": "owner", "count": 50, "held": 41, "error": 0.125}],
}


def test_the_table_and_how_it_was_made(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /forecast"] = MADE
    api.answers["GET /jobs"] = {"jobs": [with_eta("2", state="pending"), job("1", eta=None)], "next": None}
    said = ask("forecast")
    head, row = said.stdout.splitlines()
    assert head.split() == ["ID", "NAME", "USER", "VC", "STATE", "GPUS", "START", "END", "LENGTH"]
    assert row.split()[0] == "2"
    assert "in more than 24h" in row
    assert "under fifo from 32 samples in 1.2 s of CPU time; no job is submitted in it" in said.stderr
    assert [each["id"] for each in json.loads(ask("forecast", "-o", "json").stdout)] == ["2"]


def test_calibration(api: FakeApi, ask: Ask) -> None:
    api.answers["GET /forecast"] = MADE
    head, row = ask("forecast", "--calibration").stdout.splitlines()
    assert head.split() == ["WHAT", "LENGTHS", "FROM", "FORECASTS", "HELD", "MEDIAN", "ERROR"]
    assert row.split() == ["start", "owner", "50", "82%", "12%"]


def test_explain_ends_with_the_forecast(api: FakeApi, ask: Ask) -> None:
    why = {"code": "x", "cause": "capacity", "reason": "none is free", "remedy": "job 1 ending", "problems": []}
    found = with_eta("2", state="pending")
    api.answers["GET /jobs/2/explain"] = {"job": "2", "state": "pending", **why, "eta": found["eta"]}
    api.answers["GET /jobs/2"] = {**found, "history": []}
    tried = b'{"type": "tried", "changes": 0, "error": ""}\n'
    api.answers["GET /jobs/2/changes"] = FakeAnswer(pieces=[tried], media_type="application/x-ndjson")
    assert ask("explain", "2").stdout.splitlines()[-1].startswith("Forecast: starts in 12m (")
