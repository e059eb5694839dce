"""A real `skep up` on a folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

CLOCKED = Path(__file__).with_name("clocked.py")
WAIT_S = 120.0
"""For what comes soon: the machine may be busy, and only that it comes matters here."""


class Server:
    """A real `skep up` on a folder."""

    def __init__(self, data: Path, cluster: str = "2x4", policy: str = "fifo:walk=skip") -> None:
        self.data = data
        self.log = data.with_suffix(".log")
        """Beside the data: it can be read when the data's disk is full."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/api/v1"
        self.options = ["--cluster", cluster, "--policy", policy]
        self.clock = data.with_suffix(".clock")
        """Seconds that are added to its wall clock."""
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        command = [sys.executable, str(CLOCKED), "up", "--data", str(self.data), "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.options],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "BENCH_CLOCK": str(self.clock)},
            )

    def start(self) -> float:
        """Until it answers; seconds that took."""
        began_s = time.monotonic()
        self.begin()
        assert self.process is not None
        while time.monotonic() - began_s < WAIT_S:
            try:
                httpx.get(f"{self.url}/health", timeout=WAIT_S)
                return time.monotonic() - began_s
            except httpx.HTTPError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.02)
        raise RuntimeError(f"the server does not answer:\n{self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WAIT_S)
