"""The application on a port of its own, before the real service on an engine without processes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from tests.support.engines import FakeEngine

from skep.core.errors import Conflict
from skep.server.app import make_app, make_context
from skep.server.config import make_config, open_socket
from skep.server.edge import Bounds, Edge
from skep.server.tokens import Tokens
from skep.service.live import Live
from skep.service.store import JobFilter, Store

JOB = {"name": "train", "command": "true", "gpus": 1}
CLUSTER = "nodes: [{name: n0, gpus: 8}]"
VCS = """
nodes: [{count: 4, name: n, gpus: 8}]
vcs: {default: 1 nodes, research: 1 nodes, lab: 1 nodes, prod: 1 nodes}
"""


def maker(
    cluster: str = CLUSTER, policy: str = "fifo", clock: Callable[[], float] = time.time
) -> Callable[[Path], Live]:
    def make(folder: Path) -> Live:
        return Live(
            Store(folder / "skep.db"),
            lambda live: FakeEngine(live.tell, live.writer.state.cluster),
            clock,
            cluster=("test", cluster),
            policy=policy,
        )

    return make


class World:
    """A server, what it stands on, and a client of it."""

    def __init__(
        self, folder: Path, make_live: Callable[[Path], Live] | None = None, bounds: Bounds | None = None, **flags: Any
    ) -> None:
        self.edge = Edge(bounds or Bounds())
        self.config = make_config(None, {"data": str(folder), "port": 0, **flags})
        self.live = (make_live or maker())(folder)
        self.tokens = Tokens(folder)
        self.jobs_before = 0
        self.shutdowns: list[float | None] = []
        """Within how many seconds jobs are to be stopped first; none: they go on."""
        self._socket = open_socket(self.config)
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60, trust_env=False)
        while not getattr(getattr(self, "server", None), "started", False):
            time.sleep(0.01)

    async def _serve(self) -> None:
        self.context = make_context(
            self.live, self.config, self.tokens, self.shutdowns.append, self.edge.bounds.log_files
        )
        self.app = make_app(self.context)
        settings = uvicorn.Config(self.app, http=self.edge.protocol, ws="none", log_config=None, access_log=False)
        self.server = uvicorn.Server(settings)
        await self.server.serve([self._socket])

    @property
    def engine(self) -> FakeEngine:
        engine = self.live.engine
        assert isinstance(engine, FakeEngine)
        return engine

    def clear(self) -> None:
        """Stop all jobs; tests see only their own among those that are listed."""
        for job_id in self.ids():
            if self.live.brief(job_id)["finish_s"] is None:
                with contextlib.suppress(Conflict):  # a test before asked for it, and it has ended just now
                    self.live.stop(job_id, "test").result(60)
                    self.wait_for(job_id, "stopped")
        self.jobs_before = self.live.writer.next_job - 1
        self.shutdowns.clear()
        for token in self.tokens.list():
            self.tokens.revoke(token.id)

    def submit(self, **fields: Any) -> str:
        answer = self.client.post("/api/v1/jobs", json={**JOB, **fields})
        assert answer.status_code == 201, answer.text
        job_id: str = answer.json()["id"]
        return job_id

    def ids(self) -> list[str]:
        """Jobs of this test, as they were submitted."""
        found = [int(row["id"]) for row in self.live.jobs(JobFilter(all=True), 10_000, None)[0]]
        return [str(number) for number in sorted(found) if number > self.jobs_before]

    def wait_for(self, job_id: str, *states: str) -> dict[str, Any]:
        by_s = time.monotonic() + 30
        while (job := self.live.brief(job_id))["state"] not in states:
            assert time.monotonic() < by_s, job
            time.sleep(0.005)
        return job

    def run(self, **fields: Any) -> str:
        """Submit a job and wait until it runs."""
        job_id = self.submit(**fields)
        self.wait_for(job_id, "running")
        return job_id

    def end(self, job_id: str, code: int = 0) -> None:
        self.engine.end(job_id, code)
        self.wait_for(job_id, "succeeded", "failed")

    def say(self, kind: str, job_id: str | None = None, text: str = "") -> Future[None]:
        """Something happens that is told to those who listen."""
        return self.live._ask(lambda writer, turn: turn.notify(kind, text, job_id, "test"))

    def events(self) -> list[dict[str, Any]]:
        return self.live.events(0, None, 1_000_000)

    def bearer(self, user: str, role: str, *vcs: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens.create(user, role, vcs)[1]}"}

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()
        self.live.close()
        self.tokens.close()
