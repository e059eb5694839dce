"""The application before a fake service, on a port of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fake_live import FakeLive

from skep.server.app import make_app, make_context
from skep.server.config import make_config, open_socket
from skep.server.edge import Bounds, Edge
from skep.server.tokens import Tokens

JOB = {"name": "train", "command": "true", "gpus": 1}


class World:
    """A server, what it stands on, and a client of it."""

    def __init__(
        self, folder: Path, make_live: Callable[[Path], Any] = FakeLive, bounds: Bounds | None = None, **flags: Any
    ) -> None:
        self.edge = Edge(bounds or Bounds())
        self.config = make_config(None, {"data": str(folder), "port": 0, **flags})
        self.live = make_live(folder)
        self.tokens = Tokens(folder)
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

    def clear(self) -> None:
        self.live.all.clear()
        self.live.keys.clear()
        self.shutdowns.clear()
        for token in self.tokens.list():
            self.tokens.revoke(token.id)

    def submit(self, **fields: Any) -> str:
        answer = self.client.post("/api/v1/jobs", json={**JOB, **fields})
        assert answer.status_code == 201, answer.text
        job_id: str = answer.json()["id"]
        return job_id

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
