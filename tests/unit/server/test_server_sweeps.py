"""Large submissions keep nobody else waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_world import World

from skep.server.routes import submit


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    tmp_path.chmod(0o700)
    with World(tmp_path) as made:
        yield made


def test_a_sweep_is_read_back_beside_the_event_loop(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a single job takes happens on the loop itself, on which everybody waits."""
    threads: set[str] = set()
    for name in ("submit", "rows", "brief"):
        original = getattr(world.live, name)

        def noted(*args: object, _original: object = original) -> object:
            threads.add(threading.current_thread().name)
            return _original(*args)  # type: ignore[operator]

        monkeypatch.setattr(world.live, name, noted)
    read = submit.read_body

    def reading(*args: Any) -> Any:
        threads.add(threading.current_thread().name)
        return read(*args)

    monkeypatch.setattr(submit, "read_body", reading)
    loop = world._thread.name
    sweep = {"name": "s", "command": "true", "gpus": 1, "sweep": {"lr": list(range(300))}}
    answer = world.client.post("/api/v1/jobs", json=sweep)
    assert answer.status_code == 201, answer.text
    found = answer.json()
    assert len(found["jobs"]) == 300
    assert [int(job["id"]) for job in found["jobs"]] == list(range(1, 301))
    assert found["id"] == "1"
    assert threads
    assert loop not in threads
