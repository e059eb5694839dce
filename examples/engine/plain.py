"""The smallest engine that keeps the contract while it lives: every task is a plain subprocess.

What it lacks: jobs end with the server (nothing is on the disk, so the next server finds nothing to adopt, and epochs
start again). It has no control groups, no other accounts, no logs, no progress, no moves and no sharing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from skep.core.actions import Action, Launch, Reshare, Setting, Stop, names_of
from skep.core.cluster import Cluster
from skep.core.errors import NotFound
from skep.core.events import NodeBack, NodeLost
from skep.core.ports import Capability, LogReader, Metrics, StaleEpoch, TaskEnvironment, TaskStatus, Wanted
from skep.core.reports import Exited, GivenSeat, LaunchFailed, Looked, Refused, Report, Started
from skep.jobs.request import Request


@dataclass
class Run:
    """The last launch of a job."""

    job_id: str
    launch: int
    given: tuple[GivenSeat, ...]
    tasks: list[subprocess.Popen[bytes]] = field(default_factory=list)
    begun_s: float = field(default_factory=time.monotonic)
    is_stopped: bool = False
    cause: str = ""
    end: Exited | LaunchFailed | None = None

    @property
    def nodes(self) -> set[str]:
        return {seat.node for seat in self.given}

    def signal(self, number: int) -> None:
        for task in self.tasks:
            if task.poll() is None:
                os.killpg(task.pid, number)  # each task leads a process group


class PlainEngine:
    name = "plain"
    capabilities = frozenset({Capability.EXACT_GPUS})

    def __init__(
        self,
        folder: Path,
        cluster: Cluster,
        request_of: Callable[[str], Request],
        send: Callable[[list[Report]], None],
    ) -> None:
        self.folder, self.cluster, self.request_of, self.send = folder, cluster, request_of, send
        self.epoch = 0
        self.runs: dict[str, Run] = {}
        self.lost: set[str] = set()
        self.lock = threading.RLock()  # commands and the threads that wait for processes

    # Commands

    def last_epoch(self) -> int:
        return self.epoch

    def adopt(self, epoch: int, at_s: float, wanted: Wanted) -> None:
        """There is nothing to adopt: every launch that the server names is started anew."""
        with self.lock:
            self._check(epoch)
            self.epoch, self.lost = epoch, set(wanted.lost)
            self.execute(epoch, at_s, wanted.actions)

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        with self.lock:
            self._check(epoch)
            for action in actions:
                run = self.runs.get(action.job_id)
                if isinstance(action, Launch):
                    self._launch(action, run)
                elif isinstance(action, Stop):
                    self._stop(action, run)
                elif not isinstance(action, Reshare) and run is not None and action.launch in (0, run.launch):
                    kind = type(action).__name__.lower()
                    self.send([Refused(action.job_id, run.launch, kind, f"the plain engine cannot {kind} jobs")])

    def _launch(self, action: Launch, run: Run | None) -> None:
        """A launch that exists is reported again, one that is older than the present one is ignored."""
        if run is None or action.launch > run.launch:
            names, seats = names_of(action), action.allocation.seating()
            given = tuple(GivenSeat(names[seat.node], seat.gpus) for seat in seats)
            run = self.runs[action.job_id] = Run(action.job_id, action.launch, given)
            self._start(run, [seat.role for seat in seats])
        if action.launch == run.launch:
            self.send([run.end or Started(run.job_id, run.launch, run.given)])

    def _start(self, run: Run, roles: list[int]) -> None:
        """All tasks or none."""
        try:
            if gone := run.nodes & self.lost:
                raise OSError(f"node {min(gone)} is lost")
            for index, role in enumerate(roles):
                run.tasks.append(self._task(run, index, role))
        except OSError as error:
            run.signal(signal.SIGKILL)
            for task in run.tasks:
                task.wait()
            run.end = LaunchFailed(run.job_id, run.launch, str(error), "shortage")
        else:
            threading.Thread(target=self._wait, args=(run,), daemon=True).start()

    def _task(self, run: Run, index: int, role: int) -> subprocess.Popen[bytes]:
        request, seat = self.request_of(run.job_id), run.given[index]
        wanted = list(request.tasks.values())[role]
        kept = self.folder / run.job_id
        kept.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            **wanted.env,
            **request.secrets,
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, seat.gpus or ())),
            "SKEP_NODE": seat.node,
            "SKEP_LAUNCH": str(run.launch),
            "SKEP_TASK_INDEX": str(index),
            "SKEP_CHECKPOINT_DIR": str(kept),
        }
        line = wanted.argv or ("bash", "-c", wanted.command)
        return subprocess.Popen(line, cwd=kept, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)

    def _wait(self, run: Run) -> None:
        """The first task that fails ends the others; the launch has ended when all have."""
        code = 0
        while any(task.poll() is None for task in run.tasks):
            code = code or next((task.returncode for task in run.tasks if task.returncode), 0)
            if code and not run.is_stopped:  # tasks that were asked to stop have their grace period
                run.signal(signal.SIGKILL)
            time.sleep(0.02)
        code = code or next((task.returncode for task in run.tasks if task.returncode), 0)
        code = code if code >= 0 else 128 - code
        with self.lock:
            seconds = time.monotonic() - run.begun_s
            was_stopped = run.is_stopped and code != 0
            run.end = Exited(run.job_id, run.launch, code, "", was_stopped, "", seconds, run.cause)
            self.send([run.end])

    def _stop(self, action: Stop, run: Run | None) -> None:
        """SIGTERM, and SIGKILL after the grace period. What has ended is reported again."""
        if run is None or 0 < action.launch < run.launch:
            return
        if run.end is not None:
            self.send([run.end])
        elif not run.is_stopped:
            run.is_stopped = True
            run.signal(signal.SIGTERM)
            timer = threading.Timer(self.request_of(run.job_id).grace_s, run.signal, [signal.SIGKILL])
            timer.daemon = True
            timer.start()

    def lose_node(self, epoch: int, node: str) -> None:
        with self.lock:
            self._check(epoch)
            self.lost.add(node)
            self.send([NodeLost(node)])
            for run in self.runs.values():
                if run.end is None and node in run.nodes:
                    run.cause = "node-lost"
                    run.signal(signal.SIGKILL)

    def restore_node(self, epoch: int, node: str) -> None:
        with self.lock:
            self._check(epoch)
            self.lost.discard(node)
            self.send([NodeBack(node)])

    def use_cluster(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def look(self, job_ids: Collection[str]) -> None:
        """A launch is reported by its own thread: wait for those whose processes are gone."""
        runs = [run for run in self._all() if run.job_id in job_ids]
        while any(run.end is None and all(task.poll() is not None for task in run.tasks) for run in runs):
            time.sleep(0.005)
        self.send([Looked()])

    def settle(self, epoch: int, job_id: str, launch: int) -> None:
        """Nothing to do: this engine keeps what it knows in memory."""

    def forget(self, job_id: str) -> None:
        self.runs.pop(job_id, None)

    def close(self) -> None:
        """Jobs do not survive this engine."""
        for run in self._all():
            run.signal(signal.SIGKILL)

    def _check(self, epoch: int) -> None:
        if epoch < self.epoch:
            raise StaleEpoch(epoch, self.epoch)

    def _all(self) -> list[Run]:
        with self.lock:
            return list(self.runs.values())

    # Queries: what an engine without files can say

    def problems(self) -> list[str]:
        return ["jobs end with this server: the plain engine cannot adopt them"]

    def make_room(self) -> bool:
        return False

    def last_job(self) -> int:
        return 0

    def tasks(self, job_id: str) -> list[TaskStatus]:
        return []

    def progress(self, job_id: str) -> dict[str, Setting]:
        return {}

    def share(self, job_id: str) -> dict[str, Setting]:
        return {}

    def metrics(self, job_id: str, task: str = "") -> Iterable[Metrics]:
        return []

    def check_log(self, job_id: str, task: str = "", launch: int = 0) -> None:
        raise NotFound("the plain engine keeps no logs")

    def open_log(self, job_id: str, task: str = "", launch: int = 0, tail: int | None = None) -> LogReader:
        raise NotFound("the plain engine keeps no logs")

    def environment(self, job_id: str, task: str = "", launch: int = 0) -> TaskEnvironment:
        raise NotFound("the plain engine runs no commands beside tasks")

    def gpu_health(self) -> dict[str, list[dict[str, Setting]]]:
        return {}

    def disk_used(self) -> Mapping[tuple[str, str], int] | None:
        return None
