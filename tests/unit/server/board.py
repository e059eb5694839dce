"""A real service on paper jobs, and answers held against their shapes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_world import World
from paper import Paper
from pydantic import TypeAdapter

from skep.service.live import Live
from skep.service.store import Store

API = "/api/v1"
CLUSTER = """
nodes: [{count: 2, name: a, gpus: 4, rack: r0}, {count: 2, name: b, gpus: 4, rack: r1}]
vcs: {red: 2 nodes, blue: 2 nodes}
"""


def maker(cluster: str = CLUSTER, policy: str = "fifo") -> Callable[[Path], Live]:
    def make(folder: Path) -> Live:
        name = "board"
        return Live(
            Store(folder / "skep.db"),
            lambda live: Paper(live, folder),
            time.time,
            cluster=(name, cluster),
            policy=policy,
        )

    return make


class Board(World):
    def __init__(self, folder: Path, cluster: str = CLUSTER, policy: str = "fifo", **flags: Any) -> None:
        super().__init__(folder, maker(cluster, policy), **flags)

    def get(self, path: str, shape: Any, who: dict[str, str] | None = None) -> Any:
        """The answer, which must be of exactly this shape."""
        answer = self.client.get(f"{API}{path}", headers=who)
        assert answer.status_code == 200, answer.text
        TypeAdapter(shape).validate_json(answer.content, strict=True)
        return answer.json()

    def wait_for(self, job_id: str, *states: str) -> dict[str, Any]:
        by_s = time.monotonic() + 30
        while (job := self.client.get(f"{API}/jobs/{job_id}").json())["state"] not in states:
            assert time.monotonic() < by_s, job
            time.sleep(0.005)
        return dict(job)

    def run(self, **fields: Any) -> str:
        """Submit a job and wait until it runs."""
        job_id = self.submit(**fields)
        self.wait_for(job_id, "running")
        return job_id

    def end(self, job_id: str, code: int = 0) -> None:
        self.live.engine.end(job_id, code)
        self.wait_for(job_id, "succeeded", "failed")
