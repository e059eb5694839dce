"""Forecasts as the server shows them, and the process that makes them."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from fake_world import World

from skep.core.errors import InputError
from skep.server.config import ForecastRules, make_config
from skep.server.foresight import Forecasts
from skep.service.foreseen import Foreseen, Foresight, Judged, Likely, Setup

API = "/api/v1"


def made(*job_ids: str, at_s: float | None = None) -> Foresight:
    """A forecast in which these jobs start in a minute."""
    now_s = time.time() if at_s is None else at_s
    soon, later = Likely(now_s + 30, now_s + 60, now_s + 90), Likely(now_s + 300, None, None, poor=True)
    jobs = {job_id: Foreseen(soon, later, "history") for job_id in job_ids}
    return Foresight(now_s, now_s + 86400.0, 32, 0.5, "fifo", jobs, [Judged("start", "history", 10, 8, 0.2)])


def test_jobs_have_an_eta_when_there_is_a_forecast(world: World) -> None:
    running = world.submit(gpus=8)
    world.wait_for(running, "running")
    waiting = world.submit(gpus=8)
    world.live.foresight = None
    assert world.client.get(f"{API}/jobs/{waiting}").json()["eta"] is None
    answer = world.client.get(f"{API}/forecast")
    assert (answer.status_code, answer.json()["error"]) == (404, "there is no forecast: none has been made yet")
    found = world.live.foresight = made(running, waiting)
    eta = world.client.get(f"{API}/jobs/{waiting}").json()["eta"]
    start = found.jobs[waiting].start
    assert start is not None
    assert eta["start"] == {"p10_s": start.p10_s, "p50_s": start.p50_s, "p90_s": start.p90_s, "poor": False}
    assert (eta["end"]["p50_s"], eta["end"]["poor"], eta["lengths"]) == (None, True, "history")
    assert (eta["made_s"], eta["samples"]) == (found.made_s, 32)
    listed = {job["id"]: job["eta"] for job in world.client.get(f"{API}/jobs").json()["jobs"]}
    assert listed[waiting] == eta
    assert listed[running]["start"] is None
    assert world.client.get(f"{API}/jobs/{waiting}/explain").json()["eta"] == eta


def test_how_it_was_made(world: World) -> None:
    found = world.live.foresight = made()
    assert world.client.get(f"{API}/forecast").json() == {
        "made_s": found.made_s,
        "until_s": found.until_s,
        "samples": 32,
        "cpu_s": 0.5,
        "policy": "fifo",
        "judged": [{"what": "start", "lengths": "history", "count": 10, "held": 8, "error": 0.2}],
    }


def test_metrics_say_how_often_forecasts_held(world: World) -> None:
    world.live.foresight = None
    assert "skep_forecast" not in world.client.get("/metrics").text
    world.live.foresight = made()
    found = world.client.get("/metrics").text
    assert 'skep_forecasts_judged{lengths="history",what="start"} 10.0' in found
    assert 'skep_forecasts_held{lengths="history",what="start"} 8.0' in found
    assert "skep_forecast_samples 32.0" in found


def test_who_does_not_see_a_job_learns_nothing_of_it(guarded: World) -> None:
    admin, ann = guarded.bearer("root", "admin"), guarded.bearer("ann", "user", "lab")
    hidden = guarded.client.post(f"{API}/jobs", json={"name": "hidden", "command": "true", "vc": "prod"}, headers=admin)
    own = guarded.client.post(f"{API}/jobs", json={"name": "own", "command": "true", "vc": "lab"}, headers=ann)
    ids = [answer.json()["id"] for answer in (hidden, own)]
    guarded.live.foresight = made(*ids)
    listed = guarded.client.get(f"{API}/jobs", headers=ann).json()["jobs"]
    assert [(job["id"], job["eta"] is not None) for job in listed] == [(ids[1], True)]
    assert guarded.client.get(f"{API}/jobs/{ids[0]}", headers=ann).status_code == 404
    shown = guarded.client.get(f"{API}/forecast", headers=ann).json()
    assert shown["judged"] == []
    assert "jobs" not in shown
    assert guarded.client.get(f"{API}/forecast", headers=admin).json()["judged"] != []


def test_a_process_that_fails_is_started_again_later_and_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.server.foresight.FIRST_PAUSE_S", 0.01)
    forecasts = Forecasts(Setup(str(tmp_path / "nothing")), 0.01, time.time, lambda found: None)
    forecasts.start()
    by_s = time.monotonic() + 60
    while len(caplog.records) < 3 and time.monotonic() < by_s:
        time.sleep(0.02)
    forecasts.close()
    assert [record.levelno for record in caplog.records[:3]] == [logging.WARNING] * 3
    assert [record.getMessage().rpartition(" in ")[2] for record in caplog.records[:3]] == [
        "0.01 s",
        "0.02 s",
        "0.04 s",
    ]
    assert "Traceback" not in capfd.readouterr().err


def test_it_can_be_switched_off_and_limited(tmp_path: Path) -> None:
    def read(text: str) -> ForecastRules | None:
        (tmp_path / "skep.yaml").write_text(text)
        return make_config(str(tmp_path / "skep.yaml"), {"data": str(tmp_path)}).forecast

    assert read("port: 0") == ForecastRules(every_s=30.0, cpu=0.2, samples=32)
    assert read("forecast: off") is None
    assert read("forecast: on") == ForecastRules()
    assert read("forecast: {every_s: 5, cpu: 0.5, samples: 8}") == ForecastRules(5.0, 0.5, 8)
    for text, problem in (
        ("forecast: maybe", "forecast is maybe, expected true or false"),
        ("forecast: {cpu: 2}", "forecast.cpu is 2, expected a number above 0, at most 1"),
        ("forecast: {samples: 1}", "forecast.samples is 1, expected a whole number from 5"),
        ("forecast: {sample: 9}", "did you mean samples?"),
    ):
        with pytest.raises(InputError, match="skep.yaml:1: .*" + problem.replace("?", "\\?")):
            read(text)
