"""Forecasts of a real server: they appear, follow what happens, and end with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_server_up import Place, until

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    (tmp_path / "skep.yaml").write_text("cluster: 1x1\nforecast: {every_s: 1, cpu: 1, samples: 5}\n")
    made = Place(tmp_path / "data")
    made.up("--config", str(tmp_path / "skep.yaml"))
    yield made
    if (made.data / "server.json").exists():
        made.down("--stop-jobs")


def eta(place: Place, job_id: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = place.http.get(f"/jobs/{job_id}").json()["eta"]
    return found


def followers(pid: int) -> list[int]:
    """The children of a process that forecast."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if b"skep.experiments.follower" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_forecast_appears_moves_and_ends_with_the_server(place: Place) -> None:
    first, second = (place.submit("sleep 600", gpus=1, expect_s=300) for _ in range(2))
    found = until(lambda: eta(place, second))
    start, end = found["start"], found["end"]
    assert start["p10_s"] < start["p50_s"] < start["p90_s"]
    assert found["made_s"] + 60 < start["p50_s"] < end["p50_s"]
    place.http.post(f"/jobs/{first}/stop", json={})
    moved = until(lambda: (now := eta(place, second)) and now["made_s"] > found["made_s"] and not now["start"] and now)
    assert moved["end"]["p50_s"] < end["p50_s"]
    assert place.http.get("/forecast").json()["samples"] == 5
    (follower,) = until(lambda: followers(place.pid))
    os.kill(place.pid, signal.SIGKILL)
    until(lambda: is_gone(follower))
    (place.data / "server.json").unlink()
    place.up()
    place.http.post(f"/jobs/{second}/stop", json={})
    until(lambda: place.state(second) == "stopped")
