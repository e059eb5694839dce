"""A disk that fills up: what was acknowledged is there, what was not is not, and the server says what is wrong."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from bench.crash import Server


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"a small disk cannot be made here: {made.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.slow
def test_a_full_disk_damages_nothing(small_disk: Path) -> None:
    server = Server(small_disk)
    server.start()
    taken = []
    job = {"tasks": {"w": {"gpus": 1, "command": "#" * 20_000}}, "hold": True}
    client = httpx.Client(timeout=60, trust_env=False)
    for number in range(500):
        try:
            answer = client.post(f"{server.url}/jobs", json={**job, "name": f"job{number}"})
        except httpx.HTTPError:
            break
        if answer.status_code != 201:
            assert answer.status_code == 503, answer.text
            assert "cannot write" in answer.json()["error"]
            break
        taken.append(answer.json()["id"])
    client.close()
    assert 10 < len(taken) < 500
    assert server.process is not None
    assert server.process.wait(60) != 0
    assert "the server stops, its jobs run on: database or disk is full" in server.log.read_text()

    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    server.start()
    listed = httpx.get(f"{server.url}/jobs", params={"limit": 1000}, timeout=60).json()["jobs"]
    assert {job["id"] for job in listed} >= set(taken)
    assert len(listed) <= len(taken) + 1  # the last one may have been written before its answer was lost
    server.stop()
