"""Keeps the follower running, a process that forecasts when jobs start and end (`experiments/follower.py`).

Its failure is a line in the log of the server, never a problem of the server: it is started again, after longer and
longer pauses.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import msgspec

from skep.server.config import Config
from skep.service.foreseen import Foresight, Setup
from skep.service.live import Live

FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 600.0

log = logging.getLogger("skep")


def setup_of(live: Live, config: Config) -> Setup:
    ground = live.writer.ground
    return Setup(str(config.data), config.profile, ground.offers, ground.weights)


class Forecasts:
    """`publish` gets each forecast, from another thread; `clock` is the server's."""

    def __init__(
        self, setup: Setup, every_s: float, clock: Callable[[], float], publish: Callable[[Foresight], None]
    ) -> None:
        self.setup = setup
        self.every_s = every_s
        self.clock = clock
        self.publish = publish
        self.pause_s = FIRST_PAUSE_S
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="forecasts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            if self._process is not None:
                kill(self._process)
        self._thread.join()

    def _run(self) -> None:
        """The first forecast comes after a while: many servers live for a moment only."""
        wait_s = self.every_s
        while not self._closing.wait(wait_s):
            try:
                self._forecast_until_fault()
            except (OSError, ValueError, msgspec.MsgspecError) as error:
                why = str(error)
            else:
                why = "it has ended"
            if self._closing.is_set():
                return
            wait_s, self.pause_s = self.pause_s, min(self.pause_s * 2, LONGEST_PAUSE_S)
            log.warning("no forecasts: the process that makes them failed (%s); next attempt in %g s", why, wait_s)

    def _forecast_until_fault(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "skep.experiments.follower"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        with self._lock:
            self._process = process
            if self._closing.is_set():
                kill(process)
        try:
            self._ask(process, msgspec.json.encode(self.setup))
            while self._ask(process, str(self.clock()).encode()):
                line = process.stdout.readline() if process.stdout is not None else b""
                if not line:
                    return
                self.publish(msgspec.json.decode(line, type=Foresight))
                self.pause_s = FIRST_PAUSE_S
                if self._closing.wait(self.every_s):
                    return
        finally:
            with self._lock:
                kill(process)
                self._process = None
            process.communicate()

    def _ask(self, process: subprocess.Popen[bytes], line: bytes) -> bool:
        if process.stdin is None:
            return False
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        return True


def kill(process: subprocess.Popen[bytes]) -> None:
    """With the sample that it is making: they are a process group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
