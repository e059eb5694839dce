"""A server with jobs that share a GPU, and what the kernel says of their processes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from bench.crash import Server
from bench.load import stop_all, wait_until

from skep.engines.local.processes import cpu_below, family, state_of
from skep.files.untrusted import lock_holder

POLICY = f"{Path(__file__).with_name('policy.py')}:Shared"
SPIN = f"exec {sys.executable} -c 'while True: pass'"


class World:
    """`core`: the one that all processes of jobs are pinned to."""

    def __init__(self, folder: Path, core: int, policy: str) -> None:
        self.folder = folder
        self.core = core
        self.server = Server(folder / "data", "1x2", policy)
        self.client = httpx.Client(base_url=self.server.url, timeout=60)

    def submit(self, share: dict[str, Any], command: str = SPIN, tasks: int = 1) -> str:
        """Submit a job and wait until it runs; its id."""
        pinned = f"taskset -pc {self.core} $$ > /dev/null; {command}"
        role = {"gpus": 1, "count": tasks, "command": pinned}
        body = {"name": share["mode"], "user": "bench", "tasks": {"w": role}, "grace_s": 5, "share": share}
        job_id = str(self.client.post("/jobs", json=body).raise_for_status().json()["id"])
        wait_until(lambda: self.job(job_id)["state"] == "running")
        return job_id

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.client.get(f"/jobs/{job_id}").raise_for_status().json())

    def stop(self, *job_ids: str) -> None:
        for job_id in job_ids:
            self.client.post(f"/jobs/{job_id}/stop").raise_for_status()
        for job_id in job_ids:
            wait_until(lambda job_id=job_id: self.job(job_id)["state"] not in ("running", "stopping"))

    def launches(self, job_id: str) -> int:
        return len(list((self.server.data / "jobs" / job_id).glob("[0-9]*")))

    def shims(self, job_id: str) -> list[int]:
        """Of the tasks of its last launch."""
        launch = self.server.data / "jobs" / job_id / str(self.launches(job_id))
        return [int(path.read_text()) for path in launch.glob("*/pid")]

    def cpu_s(self, job_id: str) -> float:
        return sum(cpu_below(shim) for shim in self.shims(job_id))

    def is_runnable(self, job_id: str) -> bool:
        return any(state_of(pid) == b"R" for shim in self.shims(job_id) for pid in family(shim))

    def keeper(self) -> int:
        return lock_holder(self.server.data / "turns" / "lock")

    def measured(self) -> dict[str, dict[str, Any]]:
        """By job, what the turn keeper says."""
        try:
            found = json.loads((self.server.data / "turns" / "measured.json").read_bytes())["members"]
        except (OSError, ValueError):
            return {}
        return {key.rpartition("/")[0]: value for key, value in found.items()}

    def wait_for_turns(self, *job_ids: str) -> None:
        wait_until(lambda: set(job_ids) <= self.measured().keys())


@contextmanager
def world(folder: Path, core: int, policy: str = POLICY) -> Iterator[World]:
    there = World(folder, core, policy)
    there.server.start()
    try:
        yield there
    finally:
        there.client.close()
        stop_all(there.server)
        assert there.server.process is not None
        there.server.process.wait(60)


def used_over(there: World, job_ids: list[str], seconds: float) -> list[float]:
    """CPU seconds of each."""
    before = [there.cpu_s(job_id) for job_id in job_ids]
    time.sleep(seconds)
    return [there.cpu_s(job_id) - was for job_id, was in zip(job_ids, before, strict=True)]
