"""An engine with real processes for tests, and what is needed to look at them."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from skep.core.actions import Action, Launch, Move, named
from skep.core.cluster import Allocation, Cluster, NodeSpec, Slice
from skep.core.model import GroupRef
from skep.core.ports import Wanted
from skep.core.reports import Exited, LaunchFailed, Report, Started
from skep.engines.local.accounts import Accounts
from skep.engines.local.engine import LocalEngine
from skep.jobs.request import UNLIMITED, LimitRules, Request, TaskRole

WAIT_S = 90.0
"""For what comes at once on an idle machine: only that it comes matters."""


def cluster(nodes: int = 2, gpus: int = 4) -> Cluster:
    return Cluster([NodeSpec(f"n{index}", gpus) for index in range(nodes)])


def sh(command: str, *, grace_s: float = 30.0, **role) -> Request:
    """A job of one task."""
    return Request("job", {"main": TaskRole(command=command, **role)}, grace_s=grace_s)


def on(*nodes: int, gpus: int = 0) -> Allocation:
    """One task on each of these nodes."""
    return Allocation(tuple(Slice(node, gpus=(1 << gpus) - 1) for node in nodes), gpus * len(nodes))


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """One that other accounts can get to; `tmp_path` is closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="skep-accounts-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


class World:
    def __init__(
        self,
        folder: Path,
        requests: dict[str, Request],
        *,
        nodes: int = 2,
        accounts: Accounts | None = None,
        limits: LimitRules = UNLIMITED,
        is_open: Callable[[str], bool] = lambda job_id: True,
    ) -> None:
        self.folder = folder
        self.requests = requests
        self.members: dict[str, GroupRef] = {}
        self.told: list[Report] = []
        self.news = threading.Condition()
        self.cluster = cluster(nodes)
        self.engine = LocalEngine(folder, self.cluster, self.request_of, self.hear, accounts, limits, is_open=is_open)

    def request_of(self, job_id: str) -> tuple[Request, GroupRef | None]:
        return self.requests[job_id], self.members.get(job_id)

    def hear(self, reports: list[Report]) -> None:
        with self.news:
            self.told += reports
            self.news.notify_all()

    def do(self, *actions: Action) -> None:
        self.engine.execute(self.engine.last_epoch(), 0.0, named(actions, self.cluster))

    def adopt(self, known: set[tuple[str, int]], *actions: Action) -> None:
        """As a server that starts, and knows of these launches."""
        self.engine.adopt(self.engine.last_epoch() + 1, 0.0, Wanted(named(actions, self.cluster), known))

    def launch(self, job_id: str = "1", launch: int = 1, allocation: Allocation | None = None) -> None:
        self.do(Launch(job_id, allocation or on(0), launch))

    def move(self, job_id: str, launch: int, allocation: Allocation | None = None) -> None:
        self.do(Move(job_id, allocation or on(1), launch))

    def of(self, kind: type, job_id: str = "1") -> list:
        return [report for report in self.told if isinstance(report, kind) and report.job_id == job_id]

    def wait(self, kind: type, job_id: str = "1", *, count: int = 1, timeout_s: float = WAIT_S):
        """The last of `count` reports of this kind."""
        with self.news:
            is_there = self.news.wait_for(lambda: len(self.of(kind, job_id)) >= count, timeout_s)
        assert is_there, f"no {kind.__name__} of {job_id} in {timeout_s} s, only {self.told}"
        return self.of(kind, job_id)[count - 1]

    def run(self, job_id: str = "1", launch: int = 1, allocation: Allocation | None = None) -> Exited:
        self.launch(job_id, launch, allocation)
        return self.wait(Exited, job_id)

    def start(self, job_id: str = "1", launch: int = 1, allocation: Allocation | None = None) -> None:
        self.launch(job_id, launch, allocation)
        self.wait(Started, job_id)

    def failure(self, job_id: str = "1") -> str:
        return self.wait(LaunchFailed, job_id).reason

    def log(self, job_id: str = "1", task: str = "", launch: int = 0) -> str:
        with closing(self.engine.open_log(job_id, task, launch)) as log:
            return b"".join(iter(log.read, b"")).decode()

    def task(self, job_id: str = "1", launch: int = 1, task: str = "main-0") -> Path:
        return self.engine.folder.task(job_id, launch, task)

    def shim(self, job_id: str = "1", launch: int = 1, task: str = "main-0") -> int:
        return int((self.task(job_id, launch, task) / "pid").read_text())

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing may be left of a test, whatever became of it."""
        self.adopt(set())
        for run in list(self.engine.runs.by_job.values()):
            for task in run.tasks:
                task.send(self.engine.last_epoch(), "kill")
        until(lambda: not processes_of(self.folder))
        self.engine.close()
        left = processes_of(self.folder)
        assert left == [], f"processes were left: {left}"
        groups = self.engine.groups
        assert until(lambda: not any(list(base.glob(f"{groups.mark}*")) for base in groups.bases.values()))


def processes_of(folder: Path) -> list[int]:
    """Processes that belong to tasks of this data folder, shims included."""
    mark = os.fsencode(folder)
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                about = Path(f"/proc/{name}/environ").read_bytes() + Path(f"/proc/{name}/cmdline").read_bytes()
                is_zombie = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            except OSError:
                continue
            if mark in about and not is_zombie and int(name) != os.getppid():
                found.append(int(name))
    return found


def until(condition: Callable[[], bool], *, timeout_s: float = WAIT_S) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
