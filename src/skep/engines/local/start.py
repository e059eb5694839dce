"""Starting shims and turn keepers, through the process that forks them: see `forks.py`."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from skep.engines.local.processes import began

FORKS = str(Path(__file__).with_name("forks.py"))
ROOM = 400
"""Memory for the names of shims in process lists."""
ANSWER_S = 10.0
"""The time limit of a fork. A process that takes longer is stopped or stuck, and is replaced."""
TRIES = 3


class ShimProcess(msgspec.Struct, frozen=True):
    """A process, by its number and start time, because numbers are reused. 0: it had exited before the first check."""

    pid: int
    began: int

    @property
    def has_left(self) -> bool:
        return not self.began or began(self.pid) != self.began


class Forks:
    """The engine's side of the forking process. It is started when needed, and again if it has died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def start(self, task: Path, *, goes_at_once: bool) -> ShimProcess:
        """A task that is requested twice, because the answer was lost, still runs once: its shim ensures that."""
        return self.fork((b"+" if goes_at_once else b"-") + os.fsencode(task))

    def fork(self, message: bytes) -> ShimProcess:
        with self._lock:
            for _ in range(TRIES):
                with contextlib.suppress(ConnectionError, TimeoutError):
                    return shim_of(self._ask(message))
                self.end()
        raise OSError(None, "the process that starts tasks does not answer")

    def begin(self) -> None:
        """Start it before the first task comes: a new Python takes a while."""
        with self._lock:
            if self._channel is None:
                self._begin()

    def _ask(self, message: bytes) -> bytes:
        if self._channel is None:
            self._begin()
        assert self._channel is not None
        self._channel.send(message)
        answer = self._channel.recv(4096)
        if not answer:
            raise ConnectionResetError
        return answer

    def _begin(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(ANSWER_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", FORKS, "-" * ROOM],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath)},  # Shims inherit it: no secret of the server.
                start_new_session=True,
            )
        self._channel = ours

    def end(self) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._channel = self._process = None


def shim_of(answer: bytes) -> ShimProcess:
    if answer.startswith(b"!"):
        number, _, reason = answer[1:].decode().partition(" ")
        raise OSError(int(number), reason)
    pid, when = answer.split()
    return ShimProcess(int(pid), int(when))


forks = Forks()
atexit.register(forks.end)


def start_shim(task: Path, *, goes_at_once: bool = False) -> ShimProcess:
    """One process forks for the whole program, for any number of engines."""
    return forks.start(task, goes_at_once=goes_at_once)


def start_keeper(folder: Path) -> None:
    """If another keeper is already running, the new one exits at once."""
    forks.fork(b"=" + os.fsencode(folder))
