"""The kinds of faults, each a small function of the scene. After each of them the server answers again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.crash.server import Server


class Scene:
    """The server, the processes of its jobs, and a seeded chance."""

    def __init__(self, server: Server, chance: random.Random) -> None:
        self.server = server
        self.chance = chance
        self.slowest_restart_s = 0.0

    def start(self) -> None:
        self.slowest_restart_s = max(self.slowest_restart_s, self.server.start())

    def processes(self) -> tuple[list[int], list[int]]:
        """Shims, and processes of tasks."""
        data = os.fsencode(self.server.data)
        shims, tasks = [], []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if b"SKEP_TASK_DIR=" + data in Path(f"/proc/{name}/environ").read_bytes():
                    tasks.append(int(name))
                elif self._is_shim(name, data):
                    shims.append(int(name))
        return shims, tasks

    def _is_shim(self, name: str, data: bytes) -> bool:
        """It works in the folder of its task, or is about to."""
        where = os.fsencode(os.readlink(f"/proc/{name}/cwd"))
        return where.startswith(data + b"/jobs/") or data + b"/jobs/" in Path(f"/proc/{name}/cmdline").read_bytes()

    def some(self, pids: list[int]) -> list[int]:
        return [pid for pid in pids if self.chance.random() < 0.3]

    def send(self, number: int, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def signal_server(self, number: int) -> None:
        assert self.server.process is not None
        self.server.process.send_signal(number)

    def wait(self, longest_s: float) -> None:
        time.sleep(self.chance.uniform(0.0, longest_s))


Fault = Callable[[Scene], None]


def server(scene: Scene) -> None:
    """`kill -9` of the server alone."""
    scene.server.kill()
    scene.start()


def server_at_start(scene: Scene) -> None:
    """Again while it comes up."""
    scene.server.kill()
    scene.server.begin()
    scene.wait(1.0)
    scene.server.kill()
    scene.start()


def restart(scene: Scene) -> None:
    scene.server.stop()
    scene.start()


def power(scene: Scene) -> None:
    """Server, shims and tasks all at once: the server sees nobody die."""
    scene.signal_server(signal.SIGSTOP)
    everybody = [pid for kind in scene.processes() for pid in kind]
    scene.send(signal.SIGSTOP, everybody)
    while everybody:
        scene.send(signal.SIGKILL, everybody)
        everybody = [pid for kind in scene.processes() for pid in kind if is_alive(pid)]
    scene.server.kill()
    scene.start()


def server_and_shims(scene: Scene) -> None:
    """Tasks die with their shims, or are left to the next server."""
    scene.signal_server(signal.SIGSTOP)
    scene.send(signal.SIGKILL, scene.processes()[0])
    scene.server.kill()
    scene.start()


def server_and_some_shims(scene: Scene) -> None:
    scene.signal_server(signal.SIGSTOP)
    scene.send(signal.SIGKILL, scene.some(scene.processes()[0]))
    scene.server.kill()
    scene.start()


def shims(scene: Scene) -> None:
    scene.send(signal.SIGKILL, scene.some(scene.processes()[0]))


def tasks(scene: Scene) -> None:
    scene.send(signal.SIGKILL, scene.some(scene.processes()[1]))


def pause_server(scene: Scene) -> None:
    scene.signal_server(signal.SIGSTOP)
    scene.wait(1.0)
    scene.signal_server(signal.SIGCONT)


def pause_shims(scene: Scene) -> None:
    """Nobody but the server lets them go on."""
    scene.send(signal.SIGSTOP, scene.some(scene.processes()[0]))


def pause_all(scene: Scene) -> None:
    """As when the machine sleeps."""
    scene.signal_server(signal.SIGSTOP)
    everybody = [pid for kind in scene.processes() for pid in kind]
    scene.send(signal.SIGSTOP, everybody)
    scene.wait(1.0)
    scene.send(signal.SIGCONT, everybody)
    scene.signal_server(signal.SIGCONT)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in b"ZX"
    return False
